//! Counts of the primitives in a step.
//!
//! Core lists the primitives of a step
//! ([`Rules::primitives`](foldwire::primitive::Rules::primitives)), and this module counts those
//! that have a cost. It also tracks the contents of frames ([`SlotContent`]): the number of
//! operands that a frame combines determines its size on the wire. Storing a frame counts as
//! decoding it. Dividing a sum by the number of ranks is part of a decode, or counts as a copy if
//! it is a separate primitive.

use foldwire::codec::CodecId;
use foldwire::primitive::{
    Primitive, Rules, Slot, SlotContent, SlotContents, StepLinks, held_after,
};
use foldwire::schedule::{ProgramSpec, Step};
use foldwire::transport::Rank;

/// Number of times that a step executes each primitive, named as in
/// [`PrimitiveSpeeds`](super::PrimitiveSpeeds).
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
    /// Copies of values.
    pub(super) copy: u8,
    /// Additions of floats to floats, in calls that compress.
    pub(super) add: u8,
    /// Copies of a frame into the frame to send.
    pub(super) copy_frame: u8,
    /// Copies of a received frame's segments into the frame that the lane holds.
    pub(super) join: u8,
}

impl PrimitiveCounts {
    /// Counts a primitive of a call with `codec`. If `in_place`, the local input is already in the
    /// output and needs no copy. Some payloads may be raw although `codec` compresses. Encoding or
    /// storing such a payload counts as a copy.
    fn add(&mut self, primitive: Primitive, codec: CodecId, in_place: bool) {
        let is_uncompressed = |payload: CodecId| payload == CodecId::Raw && codec != CodecId::Raw;
        match primitive {
            Primitive::EncodeOwn { codec, .. } if is_uncompressed(codec) => self.copy += 1,
            Primitive::Store { codec, .. } | Primitive::StoreWhole { codec, .. }
                if is_uncompressed(codec) =>
            {
                self.copy += 1;
            }
            Primitive::FoldInPlace | Primitive::CombineInPlace { .. } if !codec.is_in_place() => {
                self.add += 1;
            }
            Primitive::Transcode { codecs: [from, to], .. } => {
                match [from, to].map(is_uncompressed) {
                    [true, false] => self.encode += 1,
                    [false, true] => self.decode += 1,
                    _ => self.recode += 1,
                }
            }
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
            Primitive::ReduceStore { codec } => {
                self.copy += u8::from(!in_place);
                *(if is_uncompressed(codec) { &mut self.add } else { &mut self.reduce }) += 1;
            }
            Primitive::Divide => self.copy += 1,
            Primitive::StoreOwn => self.copy += u8::from(!in_place),
        }
    }
}

/// Counts the primitives of `step`, given the lane's holding (`held`) and the content of the
/// received frame, if any. Also returns the content of the frame to send, if any, and updates
/// `held` to the holding after the step.
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
