//! The rules of a call, and the list that they make of a step: the table at
//! [`primitive`](super), row by row.

use super::{Content, Form, MAX_PRIMITIVES, Primitive, Primitives, Slot};
use crate::codec::CodecId;
use crate::op::OpCode;
use crate::pipeline::Pipeline;
use crate::schedule::{Collective, Step};
use heapless::Vec;

/// What codec, pipeline, operation and collective say of every step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Decoding gives back what was encoded.
    pub(super) exact: bool,
    /// Encoding and decoding are copies.
    pub(super) free: bool,
    /// Frames that are passed on are encoded anew.
    pub(super) recodes: bool,
    /// Partial reductions are kept as frames.
    pub(super) keeps_frames: bool,
    /// Own values are encoded before they are combined.
    pub(super) encodes_own: bool,
    /// The codec combines into a received frame itself.
    pub(super) in_place: bool,
    /// The call combines values.
    pub(super) reduces: bool,
    /// Nothing is stored.
    pub(super) reads_only: bool,
}

impl Rules {
    /// The rules of a call.
    #[must_use]
    pub fn new(collective: Collective, pipeline: &Pipeline, codec: CodecId, op: OpCode) -> Self {
        Self {
            exact: codec.is_exact(),
            free: codec.is_free(),
            recodes: pipeline.recodes(codec, op),
            keeps_frames: pipeline.keeps_frames(codec, op),
            encodes_own: pipeline.encodes_own(codec, op),
            in_place: codec.is_in_place(),
            reduces: collective.reduces(),
            reads_only: false,
        }
    }

    /// The same for a rank that has no room for a result.
    #[must_use]
    pub const fn reading_only(self) -> Self {
        Self { reads_only: true, ..self }
    }

    /// What `step` computes in a lane that holds this, or nothing.
    #[must_use]
    pub fn primitives(self, step: &Step, held: Option<Content>) -> Primitives {
        let takes = step.takes();
        let silent = Step { store: false, as_sent: false, ..*step };
        let step = if self.reads_only { &silent } else { step };
        let own_is_read = step.own && held.is_none();
        let over_own = self.reduces || step.as_sent || own_is_read;
        let mut list = List { rules: self, step, held, takes, over_own, primitives: Vec::new() };
        let form = held.map(|content| content.form);
        match (step.from.is_some(), form.filter(|_| step.own)) {
            (false, None) => list.own(),
            (false, Some(Form::Frame)) => list.leave_frame(Slot::Held),
            (false, Some(Form::Floats)) => list.leave_floats(),
            (true, _) if !step.own => list.pass(),
            (true, None) => list.meet_own(),
            (true, Some(form)) => list.meet_held(form),
        }
        list.primitives
    }
}

/// The list of a step while it is written.
struct List<'s> {
    rules: Rules,
    step: &'s Step,
    held: Option<Content>,
    /// Own values become the holding.
    takes: bool,
    over_own: bool,
    primitives: Primitives,
}

impl List<'_> {
    fn push(&mut self, primitive: Primitive) {
        let pushed = self.primitives.push(primitive);
        debug_assert!(pushed.is_ok(), "no step has more than {MAX_PRIMITIVES} primitives");
    }

    fn store(&mut self, from: Slot) {
        if self.step.store {
            self.push(Primitive::Store { from, over_own: self.over_own });
        }
    }

    /// What is in `from` becomes the holding, or the end of it.
    fn hold(&mut self, from: Slot) {
        if from == Slot::Held {
            return;
        }
        let joins = self.held.is_some() && !self.step.own;
        self.push(if joins {
            Primitive::Join { from }
        } else {
            Primitive::Move { from, to: Slot::Held }
        });
    }

    /// Own values alone.
    fn own(&mut self) {
        let Rules { exact, free, recodes, keeps_frames, encodes_own, reduces, .. } = self.rules;
        let Step { keep, store, to, .. } = *self.step;
        if self.takes {
            let as_floats = if reduces { !keeps_frames } else { recodes };
            self.push(if as_floats {
                Primitive::CopyOwn { to: Slot::Spare }
            } else {
                Primitive::EncodeOwn { to: Slot::Spare }
            });
            return self.hold(Slot::Spare);
        }
        let stores_decoded = self.step.stores_as_sent() && !exact;
        if to.is_some() || stores_decoded {
            self.push(Primitive::EncodeOwn { to: Slot::Out });
        }
        if keep && to.is_some() && !free {
            if reduces && !keeps_frames && !exact {
                // The receiver adds what it decodes; so must we, or results would differ.
                self.push(Primitive::Decode { from: Slot::Out, to: Slot::Spare });
                self.hold(Slot::Spare);
            } else if encodes_own && reduces || !reduces && !recodes {
                self.push(Primitive::Copy { from: Slot::Out, to: Slot::Spare });
                self.hold(Slot::Spare);
            }
        }
        if stores_decoded {
            self.store(Slot::Out);
        } else if store {
            self.push(Primitive::StoreOwn);
        }
    }

    /// A received frame alone.
    fn pass(&mut self) {
        let Step { keep, to, .. } = *self.step;
        if !self.rules.recodes {
            return self.leave_frame(Slot::In);
        }
        if to.is_some() {
            self.push(Primitive::Recode { from: Slot::In, to: Slot::Out });
        }
        self.store(if to.is_some() { Slot::Out } else { Slot::In });
        if keep {
            self.push(Primitive::Decode { from: Slot::In, to: Slot::Spare });
            self.hold(Slot::Spare);
        }
    }

    /// A received frame, and own values.
    fn meet_own(&mut self) {
        let Step { keep, store, to, .. } = *self.step;
        let Rules { in_place, keeps_frames, encodes_own, .. } = self.rules;
        if encodes_own {
            self.push(Primitive::EncodeOwn { to: Slot::Spare });
            self.combine(Slot::Spare);
        } else if keeps_frames && in_place {
            self.push(Primitive::FoldInPlace);
            self.leave_frame(Slot::In);
        } else if keeps_frames && store {
            self.push(Primitive::FoldStore);
            self.leave_stored_frame(Slot::Out);
        } else if keeps_frames {
            self.push(Primitive::Fold);
            self.leave_frame(Slot::Out);
        } else if to.is_some() && !keep {
            self.push(Primitive::Refold);
            self.leave_frame(Slot::Out);
        } else if store && !self.step.stores_as_sent() && !keep {
            self.push(Primitive::ReduceStore);
        } else {
            self.push(Primitive::CopyOwn { to: Slot::Spare });
            self.push(Primitive::Reduce { into: Slot::Spare });
            self.hold(Slot::Spare);
            self.leave_floats();
        }
    }

    /// A received frame, and what is held.
    fn meet_held(&mut self, form: Form) {
        match form {
            Form::Frame => self.combine(Slot::Held),
            Form::Floats => {
                self.push(Primitive::Reduce { into: Slot::Held });
                self.leave_floats();
            }
        }
    }

    /// A received frame, and another.
    fn combine(&mut self, with: Slot) {
        if self.rules.in_place {
            self.push(Primitive::CombineInPlace { with });
            self.leave_frame(Slot::In);
        } else {
            self.push(Primitive::Combine { with });
            self.leave_frame(Slot::Out);
        }
    }

    /// The value of the step is this frame.
    fn leave_frame(&mut self, at: Slot) {
        self.store(at);
        self.leave_stored_frame(at);
    }

    fn leave_stored_frame(&mut self, at: Slot) {
        match (self.step.keep, self.step.to.is_some()) {
            (false, false) => {}
            (true, false) => self.hold(at),
            (true, true) if at == Slot::Out => {
                self.push(Primitive::Copy { from: at, to: Slot::Spare });
                self.hold(Slot::Spare);
            }
            (true, true) => {
                self.push(Primitive::Copy { from: at, to: Slot::Out });
                self.hold(at);
            }
            (false, true) if at == Slot::Out => {}
            (false, true) if at == Slot::Held && self.holds_more() => {
                self.push(Primitive::Copy { from: at, to: Slot::Out });
            }
            (false, true) => self.push(Primitive::Move { from: at, to: Slot::Out }),
        }
    }

    /// Whether more is held than the step concerns.
    fn holds_more(&self) -> bool {
        self.held.is_some_and(|held| held.n_parts > self.step.n_parts)
    }

    /// The value of the step are the floats that are held.
    fn leave_floats(&mut self) {
        let Step { keep, store, to, .. } = *self.step;
        let Rules { exact, reduces, .. } = self.rules;
        let stores_decoded = self.step.stores_as_sent() && !exact;
        if to.is_some() || stores_decoded {
            self.push(Primitive::Encode { from: Slot::Held, to: Slot::Out });
        }
        if stores_decoded {
            self.store(Slot::Out);
        } else if store {
            self.push(Primitive::StoreFloats { from: Slot::Held });
        }
        if keep && to.is_some() && reduces && !exact {
            // As for own values.
            self.push(Primitive::Decode { from: Slot::Out, to: Slot::Held });
        }
    }
}
