//! How often a step asks for each primitive: core's list
//! ([`Rules::primitives`](foldwire::primitive::Rules::primitives)), counted by what has a price.
//!
//! *Operands* are the ranks whose values are in a frame; they decide its size on the wire. Dividing
//! by the number of ranks in an average is not counted: it happens within a decode. Storing a frame
//! is decoding it.

use foldwire::codec::CodecId;
use foldwire::primitive::{
    Primitive, Rules, Slot, SlotContent, SlotContents, StepLinks, held_after,
};
use foldwire::schedule::{ProgramSpec, Step};
use foldwire::transport::Rank;

/// Primitives of a step, each a number of times, by the names of [`PrimitiveSpeeds`](super::PrimitiveSpeeds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PrimitiveCounts {
    pub(super) encode: u8,
    pub(super) decode: u8,
    pub(super) fold: u8,
    pub(super) fold_store: u8,
    pub(super) combine: u8,
    pub(super) reduce: u8,
    pub(super) refold: u8,
    pub(super) recode: u8,
    /// Of values.
    pub(super) copy: u8,
    /// Of a frame; of how many operands is in what leaves.
    pub(super) copy_frame: u8,
    /// Of what came in, behind what is held.
    pub(super) join: u8,
}

impl PrimitiveCounts {
    /// Counts a primitive; own values need not be copied into the output if they are `in_place`.
    /// Floats of a call whose codec is another are moved, and added where they are.
    fn add(&mut self, primitive: Primitive, codec: CodecId, in_place: bool) {
        let is_other = |payload: CodecId| payload == CodecId::Raw && codec != CodecId::Raw;
        match primitive {
            Primitive::EncodeOwn { codec, .. } if is_other(codec) => self.copy += 1,
            Primitive::Store { codec, .. } | Primitive::StoreWhole { codec, .. }
                if is_other(codec) =>
            {
                self.copy += 1;
            }
            Primitive::FoldInPlace | Primitive::CombineInPlace { .. } if !codec.is_in_place() => {
                self.copy += 1;
            }
            Primitive::Transcode { codecs: [from, to], .. } => match [from, to].map(is_other) {
                [true, false] => self.encode += 1,
                [false, true] => self.decode += 1,
                _ => self.recode += 1,
            },
            Primitive::EncodeOwn { .. } | Primitive::EncodeStored { .. } => self.encode += 1,
            Primitive::Store { .. } | Primitive::StoreWhole { .. } => self.decode += 1,
            Primitive::Copy { .. } => self.copy_frame += 1,
            Primitive::Join { .. } | Primitive::Replace { .. } => self.join += 1,
            Primitive::Move { .. } => {}
            Primitive::Fold | Primitive::FoldInPlace => self.fold += 1,
            Primitive::FoldStore => self.fold_store += 1,
            Primitive::Refold => self.refold += 1,
            Primitive::Combine { .. } | Primitive::CombineInPlace { .. } => self.combine += 1,
            Primitive::Reduce { .. } => self.reduce += 1,
            Primitive::ReduceStore => {
                self.copy += u8::from(!in_place);
                self.reduce += 1;
            }
            Primitive::Divide => self.copy += 1,
            Primitive::StoreOwn => self.copy += u8::from(!in_place),
        }
    }
}

/// What `step` computes, given what its lane holds and what came in, if something did; and what
/// leaves, if something does. `held` becomes what the lane holds after it.
pub(super) fn count_step(
    rules: Rules,
    in_place: bool,
    (call, rank): (ProgramSpec, Rank),
    step: &Step,
    held: &mut Option<SlotContent>,
    incoming: Option<SlotContent>,
) -> (PrimitiveCounts, Option<SlotContent>) {
    let incoming = incoming.map(SlotContent::received);
    let mut contents: SlotContents = [None; Slot::COUNT];
    contents[Slot::In.index()] = incoming;
    contents[Slot::Held.index()] = *held;
    let mut work = PrimitiveCounts::default();
    let links = StepLinks::of(call, rank, step, incoming, *held);
    for primitive in rules.primitives(step, *held, links) {
        work.add(primitive, rules.codec(), in_place);
        let after = primitive.after(contents, step.n_parts);
        contents = after.expect("a step's primitives follow from its holding");
    }
    *held = held_after(step, &contents);
    (work, contents[Slot::Out.index()].filter(|_| step.to.is_some()))
}
