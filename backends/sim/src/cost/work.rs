//! How often a step asks for each primitive: core's list
//! ([`Rules::primitives`](foldwire::primitive::Rules::primitives)), counted by what has a price.
//!
//! *Operands* are the ranks whose values are in a frame; they decide its size on the wire. Dividing
//! by the number of ranks in an average is not counted: it happens within a decode. Storing a frame
//! is decoding it.

use foldwire::primitive::{Content, Contents, Form, Primitive, Rules, Slot, held_after};
use foldwire::schedule::Step;

/// Primitives of a step, each a number of times, by the names of [`Speeds`](super::Speeds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
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

impl Work {
    /// Counts a primitive; own values need not be copied into the output if they are `in_place`.
    fn add(&mut self, primitive: Primitive, in_place: bool) {
        match primitive {
            Primitive::EncodeOwn { .. } | Primitive::Encode { .. } => self.encode += 1,
            Primitive::Decode { .. } | Primitive::Store { .. } => self.decode += 1,
            Primitive::Recode { .. } => self.recode += 1,
            Primitive::Copy { .. } => self.copy_frame += 1,
            Primitive::Join { .. } => self.join += 1,
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
            Primitive::CopyOwn { .. } | Primitive::StoreFloats { .. } => self.copy += 1,
            Primitive::StoreOwn => self.copy += u8::from(!in_place),
        }
    }
}

/// What `step` computes, given what its lane holds and of how many operands the frame is that came
/// in, if one did; and the frame that leaves, if one does. `held` becomes what the lane holds after
/// it.
pub(super) fn act(
    rules: Rules,
    in_place: bool,
    step: &Step,
    held: &mut Option<Content>,
    incoming: Option<u32>,
) -> (Work, Option<Content>) {
    let n_parts = step.n_parts;
    let received = |operands| Content { form: Form::Frame, operands, as_received: true, n_parts };
    let mut contents: Contents = [None; Slot::COUNT];
    contents[Slot::In.index()] = incoming.map(received);
    contents[Slot::Held.index()] = *held;
    let mut work = Work::default();
    for primitive in rules.primitives(step, *held) {
        work.add(primitive, in_place);
        let after = primitive.after(contents, n_parts);
        contents = after.expect("a step's primitives follow from its holding");
    }
    *held = held_after(step, &contents);
    (work, contents[Slot::Out.index()].filter(|_| step.to.is_some()))
}
