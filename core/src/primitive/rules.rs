//! Rules of a call, and the list of primitives that they give for a step: the table in
//! [`primitive`](super), row by row.
//!
//! [`Step`] explains the flags of a step (`own`, `keep`, `store`, `before`, `as_sent`). [`Slot`]
//! explains the frames of a lane.

use super::{MAX_PRIMITIVES, Primitive, Primitives, Slot, SlotContent};
use crate::codec::CodecId;
use crate::op::OpCode;
use crate::pipeline::Pipeline;
use crate::plan::{Overlap, Plan};
use crate::schedule::{Collective, ProgramSpec, Step};
use crate::transport::Rank;
use heapless::Vec;

/// Rules that codec, pipeline, operation and collective set for every step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The call's codec.
    pub(super) codec: CodecId,
    /// True if decoding restores exactly what was encoded.
    pub(super) exact: bool,
    /// True if payloads that are passed on are encoded again.
    pub(super) recodes: bool,
    /// True if partial reductions are kept in the call's codec; false if they are kept as floats.
    pub(super) keeps_frames: bool,
    /// True if local input is encoded before it is combined.
    pub(super) encodes_own: bool,
    /// True if the call combines values.
    pub(super) reduces: bool,
    /// True for averages: sums are divided when they are stored, so stored values differ from
    /// received ones.
    pub(super) divides: bool,
    /// True if all ranks must get the same bits. Each rank then stores its own values as other
    /// ranks decode them.
    pub(super) same_bits: bool,
    /// Work that overlaps with messages. If segments overlap, decompression, reduction and
    /// compression of a frame may be one pass.
    pub(super) overlap: Overlap,
    /// True if this rank has no buffer for results, so that it stores nothing.
    pub(super) reads_only: bool,
}

/// Properties of a step's messages that the rules use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLinks {
    /// Codec of the received payload, if there is one.
    pub received: Option<CodecId>,
    /// True if the step sends a partial sum to a rank of the same node, so that floats stay floats.
    pub stays_floats: bool,
    /// True if the step's value is a reduction over all ranks.
    pub is_complete: bool,
}

impl StepLinks {
    /// Returns these properties for a step of `rank` with these received and held contents.
    #[must_use]
    pub fn of(
        call: ProgramSpec,
        rank: Rank,
        step: &Step,
        received: Option<SlotContent>,
        held: Option<SlotContent>,
    ) -> Self {
        let held = held.filter(|_| step.uses_held());
        let own = if step.own { held.map_or(1, |held| held.operands) } else { 0 };
        let n_operands = received.map_or(0, |content| content.operands).saturating_add(own);
        let is_near = step.to.is_some_and(|to| call.is_near(rank, to));
        let is_complete = call.collective.reduces() && n_operands as usize == call.size;
        let is_part = call.collective.reduces() && !is_complete;
        let received = received.map(|content| content.codec);
        Self { received, stays_floats: is_near && is_part, is_complete }
    }
}

impl Rules {
    /// Returns the rules of a call.
    #[must_use]
    pub fn new(collective: Collective, pipeline: &Pipeline, codec: CodecId, op: OpCode) -> Self {
        Self {
            codec,
            exact: codec.is_exact(),
            recodes: pipeline.recodes(codec, op),
            keeps_frames: pipeline.keeps_frames(codec, op),
            encodes_own: pipeline.encodes_own(codec, op),
            reduces: collective.reduces(),
            divides: collective.reduces() && op == OpCode::Avg,
            same_bits: true,
            overlap: Overlap::Segments,
            reads_only: false,
        }
    }

    /// Returns the rules of a plan that is already [adapted to the element type](Plan::for_values).
    #[must_use]
    pub fn of_plan(collective: Collective, plan: &Plan, op: OpCode) -> Self {
        let Plan { codec, same_bits, overlap, .. } = plan;
        let rules = Self::new(collective, &plan.pipeline_in_use(), *codec, op);
        // Codecs that add codes cannot fold values in which fill values must be marked first.
        let marks = rules.keeps_frames && !codec.is_free() && plan.marks(true).is_some();
        let encodes_own = rules.encodes_own || marks;
        Self { same_bits: *same_bits, encodes_own, overlap: *overlap, ..rules }
    }

    /// Returns the same rules for a rank without a buffer for the result.
    #[must_use]
    pub const fn reading_only(self) -> Self {
        Self { reads_only: true, ..self }
    }

    /// Returns whether payloads that are passed on are encoded again.
    #[must_use]
    pub const fn recodes(&self) -> bool {
        self.recodes
    }

    /// Returns whether all ranks get the same bits.
    #[must_use]
    pub const fn same_bits(&self) -> bool {
        self.same_bits
    }

    /// Returns the most values that a codec processes between two polls of the network. `None` if
    /// it does not poll.
    pub(crate) const fn values_per_poll(&self) -> Option<usize> {
        self.overlap.values_per_poll()
    }

    /// Returns the call's codec.
    #[must_use]
    pub const fn codec(&self) -> CodecId {
        self.codec
    }

    /// Returns the primitives of `step` in a lane with this held content and these links.
    #[must_use]
    pub fn primitives(
        self,
        step: &Step,
        held: Option<SlotContent>,
        links: StepLinks,
    ) -> Primitives {
        let takes = step.takes();
        let without_stores = Step { store: false, before: false, as_sent: false, ..*step };
        let step = if self.reads_only { &without_stores } else { step };
        let uses_held = step.uses_held();
        let used = held.filter(|_| uses_held);
        let own_is_read = step.own && used.is_none();
        let over_own = self.reduces || step.as_sent || own_is_read;
        let wire = if links.stays_floats { CodecId::Raw } else { self.codec };
        let primitives = Vec::new();
        let is_complete = links.is_complete;
        let mut list = PrimitiveList {
            rules: self,
            step,
            held,
            takes,
            uses_held,
            over_own,
            wire,
            is_complete,
            primitives,
        };
        match (links.received, used) {
            (None, None) => list.own(),
            (None, Some(held)) => list.finish(Slot::Held, held.codec),
            (Some(codec), _) if !step.own => list.received_alone(codec),
            (Some(codec), None) => list.received_with_own(codec),
            (Some(codec), Some(held)) => list.received_with_held(codec, held.codec),
        }
        list.primitives
    }

    /// Returns whether averages are stored as sums and then divided. If some ranks pass on what
    /// they stored, all ranks do it this way, so that all get the same bits.
    fn divides_apart(&self) -> bool {
        self.divides && self.recodes
    }

    /// Returns whether decoding restores exactly what this codec of the call encoded.
    fn is_exact(&self, codec: CodecId) -> bool {
        self.exact || codec.is_exact()
    }
}

/// The list of a step while it is being built.
struct PrimitiveList<'s> {
    rules: Rules,
    step: &'s Step,
    held: Option<SlotContent>,
    /// True if the local input becomes the held content.
    takes: bool,
    /// True if the step uses the held content, if there is one.
    uses_held: bool,
    /// True if the step or an earlier one has read the segment's local input, so that results
    /// overwrite memory that is in the caches ([`Primitive::Store`]).
    over_own: bool,
    /// Codec in which this step sends floats: raw within a node, else the call's.
    wire: CodecId,
    /// True if the step's value is a reduction over all ranks.
    is_complete: bool,
    primitives: Primitives,
}

impl PrimitiveList<'_> {
    fn push(&mut self, primitive: Primitive) {
        let pushed = self.primitives.push(primitive);
        debug_assert!(pushed.is_ok(), "no step has more than {MAX_PRIMITIVES} primitives");
    }

    fn store(&mut self, from: Slot, codec: CodecId) {
        if self.step.store {
            self.store_whole(from, codec);
            self.divide();
        }
    }

    /// Stores a payload. If [`divide`](Self::divide) divides averages afterwards, stores a sum.
    fn store_whole(&mut self, from: Slot, codec: CodecId) {
        let over_own = self.over_own;
        self.push(if self.rules.divides_apart() {
            Primitive::StoreWhole { from, codec, over_own }
        } else {
            Primitive::Store { from, codec, over_own }
        });
    }

    /// Divides a sum that [`store_whole`](Self::store_whole) stored.
    fn divide(&mut self) {
        if self.rules.divides_apart() {
            self.push(Primitive::Divide);
        }
    }

    fn transcode(&mut self, from: Slot, to: Slot, codecs: [CodecId; 2]) {
        self.push(Primitive::Transcode { from, to, codecs });
    }

    /// Makes the content of `from` the held content, or a part of it.
    fn hold(&mut self, from: Slot) {
        if from == Slot::Held {
            return;
        }
        self.push(if !self.uses_held && self.held.is_some() {
            Primitive::Join { from }
        } else if self.holds_more() {
            Primitive::Replace { from }
        } else {
            Primitive::Move { from, to: Slot::Held }
        });
    }

    /// Returns whether a value that is sent must be kept as the receiver decodes it, so that the
    /// ranks' results do not differ.
    fn keeps_decoded(&self) -> bool {
        let Rules { keeps_frames, reduces, same_bits, .. } = self.rules;
        same_bits && reduces && !keeps_frames && !self.rules.is_exact(self.wire)
    }

    /// Adds the primitives for local input alone.
    fn own(&mut self) {
        let Rules { codec, recodes, keeps_frames, encodes_own, reduces, .. } = self.rules;
        let (Step { keep, store, to, .. }, wire) = (*self.step, self.wire);
        if self.takes {
            let as_floats = if reduces { !keeps_frames } else { recodes };
            let codec = if as_floats { CodecId::Raw } else { codec };
            self.push(Primitive::EncodeOwn { to: Slot::Spare, codec });
            return self.hold(Slot::Spare);
        }
        let stores_decoded =
            self.rules.same_bits && self.step.stores_as_sent() && !self.rules.is_exact(wire);
        if to.is_some() || stores_decoded {
            self.push(Primitive::EncodeOwn { to: Slot::Out, codec: wire });
        }
        // Hold the value if a later step needs it as the receiver decodes it, or would otherwise
        // encode the local input again. Else a later step reads the local input again.
        if keep && to.is_some() && !wire.is_free() {
            if self.keeps_decoded() {
                self.transcode(Slot::Out, Slot::Spare, [wire, CodecId::Raw]);
                self.hold(Slot::Spare);
            } else if encodes_own && reduces || !reduces && !recodes {
                self.push(Primitive::Copy { from: Slot::Out, to: Slot::Spare });
                self.hold(Slot::Spare);
            }
        }
        if stores_decoded {
            self.store(Slot::Out, wire);
        } else if store {
            self.push(Primitive::StoreOwn);
        }
    }

    /// Adds the primitives for a received payload alone.
    fn received_alone(&mut self, received: CodecId) {
        let Step { keep, to, .. } = *self.step;
        if !self.rules.recodes {
            return self.finish_unchanged(Slot::In, received);
        }
        let codec = self.rules.codec;
        if to.is_some() && self.step.store && received == codec {
            // Decode once, and send the values that were stored.
            self.store_whole(Slot::In, received);
            self.push(Primitive::EncodeStored { to: Slot::Out, codec });
            self.divide();
        } else if to.is_some() {
            self.transcode(Slot::In, Slot::Out, [received, codec]);
            self.store(Slot::Out, codec);
        } else {
            self.store(Slot::In, received);
        }
        if keep {
            self.transcode(Slot::In, Slot::Spare, [received, CodecId::Raw]);
            self.hold(Slot::Spare);
        }
    }

    /// Adds the primitives for a received payload and local input.
    fn received_with_own(&mut self, received: CodecId) {
        let Step { keep, store, to, .. } = *self.step;
        let Rules { codec, keeps_frames, encodes_own, .. } = self.rules;
        let leaves_encoded = to.is_some() && self.wire == codec;
        if self.step.before {
            return self.store_and_add_own(received);
        }
        let decoded = self.decode_first(received);
        if decoded != received && store && !self.step.stores_as_sent() && to.is_none() && !keep {
            return self.push(Primitive::ReduceStore { codec: decoded });
        }
        let received = decoded;
        if received == CodecId::Raw || keeps_frames && !encodes_own && received.is_in_place() {
            self.push(Primitive::FoldInPlace);
            self.finish(Slot::In, received);
        } else if encodes_own {
            self.push(Primitive::EncodeOwn { to: Slot::Spare, codec });
            self.combine(Slot::Spare);
        } else if keeps_frames && store {
            self.push(Primitive::FoldStore);
            self.finish_stored(Slot::Out);
        } else if keeps_frames {
            self.push(Primitive::Fold);
            self.finish(Slot::Out, codec);
        } else if leaves_encoded && !keep {
            self.push(Primitive::Refold);
            self.finish(Slot::Out, codec);
        } else if store && !self.step.stores_as_sent() && !keep {
            self.push(Primitive::ReduceStore { codec });
        } else {
            self.push(Primitive::EncodeOwn { to: Slot::Spare, codec: CodecId::Raw });
            self.push(Primitive::Reduce { into: Slot::Spare });
            self.finish(Slot::Spare, CodecId::Raw);
        }
    }

    /// Decodes a received payload before it is reduced as floats, if rules ask for separate passes.
    /// Returns the payload's codec.
    fn decode_first(&mut self, received: CodecId) -> CodecId {
        let fuses = self.rules.overlap == Overlap::Segments;
        if fuses || self.rules.keeps_frames || received == CodecId::Raw {
            return received;
        }
        self.transcode(Slot::In, Slot::Spare, [received, CodecId::Raw]);
        self.push(Primitive::Move { from: Slot::Spare, to: Slot::In });
        CodecId::Raw
    }

    /// Stores a received payload, and sends its sum with local input. The input must be read first,
    /// because input and output may be the same memory.
    fn store_and_add_own(&mut self, received: CodecId) {
        let Rules { codec, keeps_frames, encodes_own, .. } = self.rules;
        if encodes_own {
            self.push(Primitive::EncodeOwn { to: Slot::Spare, codec });
            self.push(Primitive::Combine { with: Slot::Spare });
        } else if keeps_frames {
            self.push(Primitive::Fold);
        } else {
            self.push(Primitive::Refold);
        }
        self.store(Slot::In, received);
    }

    /// Adds the primitives for a received payload and the held content.
    fn received_with_held(&mut self, received: CodecId, held: CodecId) {
        let codec = self.rules.codec;
        let received = self.decode_first(received);
        match [received, held].map(|codec| codec == CodecId::Raw) {
            [true, true] => self.combine_in_place(Slot::Held, received),
            [false, true] if !self.rules.keeps_frames => {
                self.push(Primitive::Reduce { into: Slot::Held });
                self.finish(Slot::Held, CodecId::Raw);
            }
            [false, true] => {
                self.transcode(Slot::Held, Slot::Spare, [held, codec]);
                self.combine(Slot::Spare);
            }
            [true, false] => {
                self.transcode(Slot::In, Slot::Spare, [received, codec]);
                self.push(Primitive::Move { from: Slot::Spare, to: Slot::In });
                self.combine(Slot::Held);
            }
            [false, false] => self.combine(Slot::Held),
        }
    }

    /// Combines the received payload with another one, both of the call's codec.
    fn combine(&mut self, with: Slot) {
        let codec = self.rules.codec;
        if codec.is_in_place() {
            self.combine_in_place(with, codec);
        } else {
            self.push(Primitive::Combine { with });
            self.finish(Slot::Out, codec);
        }
    }

    fn combine_in_place(&mut self, with: Slot, codec: CodecId) {
        self.push(Primitive::CombineInPlace { with });
        self.finish(Slot::In, codec);
    }

    /// Stores, sends and keeps this payload, the value of the step, as the step says. Floats are
    /// encoded in the wire's codec before they are sent.
    fn finish(&mut self, at: Slot, codec: CodecId) {
        let (Step { keep, to, .. }, wire) = (*self.step, self.wire);
        let is_encoded = codec != CodecId::Raw || wire == CodecId::Raw;
        let stores_decoded =
            self.rules.same_bits && self.step.stores_as_sent() && !self.rules.is_exact(wire);
        // In a step that neither sends nor reduces, `as_sent` concerns only the stored value.
        let moves_on = to.is_some() || self.step.reduces();
        // If encoding a decoded value may change it, the result must be kept as it is sent.
        // Encoding it once more for another rank could give that rank other bits.
        let is_result = self.is_complete && to.is_some();
        let must_stay = is_result && self.rules.same_bits && !wire.is_stable();
        let as_sent = self.step.as_sent || must_stay;
        let keeps_sent = keep && as_sent && moves_on && !self.rules.recodes;
        if is_encoded || to.is_none() && !stores_decoded && !keeps_sent {
            return self.finish_unchanged(at, codec);
        }
        self.transcode(at, Slot::Out, [codec, wire]);
        if stores_decoded {
            self.store(Slot::Out, wire);
        } else {
            self.store(at, codec);
        }
        let mut kept = at;
        if keeps_sent && to.is_none() {
            kept = Slot::Out;
        } else if keeps_sent {
            kept = Slot::Spare;
            self.push(Primitive::Copy { from: Slot::Out, to: kept });
        } else if keep && to.is_some() && self.keeps_decoded() {
            kept = if at == Slot::Held && self.holds_more() { Slot::Spare } else { at };
            self.transcode(Slot::Out, kept, [wire, codec]);
        }
        if keep {
            self.hold(kept);
        }
    }

    /// Same as [`finish`](Self::finish), for a payload that needs no encoding.
    fn finish_unchanged(&mut self, at: Slot, codec: CodecId) {
        self.store(at, codec);
        self.finish_stored(at);
    }

    /// Sends and keeps this payload, which has been stored, as the step says.
    fn finish_stored(&mut self, at: Slot) {
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

    /// Returns whether more parts are held than the step uses.
    fn holds_more(&self) -> bool {
        self.uses_held && self.held.is_some_and(|held| held.n_parts > self.step.n_parts)
    }
}
