//! Primitives: the one definition of what a step computes.
//!
//! [`Rules`] combine codec, pipeline, operation and collective for all steps of a call.
//! [`Rules::primitives`] turns a step, and the content that its lane holds, into a short list of
//! [`Primitive`]s. The engine carries the list out on frames; the cost model of `foldwire-sim`
//! prices it.
//!
//! A payload has a codec: the call's, or raw, which means plain floats. Partial sums are *kept* in
//! one of the two, as the pipeline says, and *sent* in the call's codec. But floats stay floats
//! between ranks of a node ([`ProgramSpec::is_near`](crate::schedule::ProgramSpec::is_near)).
//!
//! | action | sums kept in the call's codec, local floats (fused) | the same, local input encoded (homomorphic) | sums kept as floats (compress-once, per-hop) |
//! |---|---|---|---|
//! | send local input | encode | encode | encode |
//! | combine a payload with local input | fold | encode, combine | encode (raw), reduce |
//! | … and send the result | fold | encode, combine | refold |
//! | … and store it | fold-store | encode, combine, store | reduce-store |
//! | … and do both | fold-store | encode, combine, store | refold, store |
//! | … and send it, but store the payload | fold, store | encode, combine, store | refold, store |
//! | combine a payload with the held content | combine | combine | reduce |
//! | send the held content | nothing | nothing | transcode; and back, if it is needed again |
//! | pass a payload on | nothing (per-hop: transcode) | nothing | nothing (per-hop: transcode) |
//! | … and store it | store (per-hop: store, encode what was stored; averages: transcode, store) | store | store (per-hop: the same) |
//! | store local input as other ranks decode it | encode, store | encode, store | encode, store |
//! | send a payload and keep it | copy of the payload | copy of the payload | transcode (reductions), nothing (others) |
//! | hold local input | encode | encode | encode (reductions, per-hop: raw) |
//! | put a kept payload behind, before or among the held content | join | join | join |
//! | put a kept payload in place of the last of the held content | replace | replace | replace, or nothing |
//!
//! Floats are added to received floats in place: in a raw call, and between ranks of a node. If the
//! sum then leaves the node, it is transcoded. If held floats meet a payload from another node, and
//! sums are kept in the call's codec, the floats are transcoded first.
//!
//! For a step on a run of parts, the list applies to each segment of the run in turn. A slot then
//! holds a segment of each part. Primitives that do not look at values ([`Primitive::Copy`],
//! [`Primitive::Move`], [`Primitive::Join`]) apply to all segments at once. So pipelines do not
//! depend on runs. Only [`Primitive::Join`] and [`Primitive::Replace`] exist because of them.
//!
//! If a lane holds more parts than the step uses, the step says where its parts are
//! ([`Step::places`]): they are the last ones, the first ones, or the last of each row. They are
//! sent as a copy. A slot does not record which parts it holds. So unless a step uses the last
//! parts, all parts in the slot must combine the same number of ranks' values.

mod rules;

pub use rules::{Rules, StepLinks};

use crate::codec::CodecId;
use crate::schedule::Step;
use heapless::Vec;

/// Largest number of primitives of a step.
pub const MAX_PRIMITIVES: usize = 8;

/// Primitives of a step, in order.
pub type Primitives = Vec<Primitive, MAX_PRIMITIVES>;

/// Slots of a lane, each for one frame. After a step, the content of `Out` is sent if the step
/// sends, the content of `Held` stays as [`held_after`] says, and everything else is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The payload that the step received.
    In,
    /// The payload that an earlier step kept.
    Held,
    /// The payload to send.
    Out,
    /// Scratch space.
    Spare,
}

impl Slot {
    /// Number of slots.
    pub const COUNT: usize = 4;

    /// Returns this slot as an array index.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Content of a slot.
///
/// Two numbers say how many ranks' values its parts combine: one for the first part, and one for
/// all other parts. Partial sums of different parts may combine different numbers of ranks if the
/// number of ranks is no power of two. In a circulant graph, only the first part differs, which is
/// the rank's own part. The schedule checker rejects programs that need more than two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotContent {
    /// Codec of the content: the call's, or raw for floats.
    pub codec: CodecId,
    /// Number of ranks' values combined in each part; the first one may differ.
    pub operands: u32,
    /// Number of ranks' values combined in the first part.
    pub first_operands: u32,
    /// True if the frame is a message exactly as it was received, header included.
    pub as_received: bool,
    /// Number of segments, one for each part of a run.
    pub n_parts: u16,
}

impl SlotContent {
    /// Creates the content of a frame made by this rank: `n_parts` parts that combine equal numbers
    /// of ranks' values.
    #[must_use]
    pub const fn new(codec: CodecId, operands: u32, n_parts: u16) -> Self {
        Self { codec, operands, first_operands: operands, as_received: false, n_parts }
    }

    /// Returns the same content as a received message.
    #[must_use]
    pub const fn received(self) -> Self {
        Self { as_received: true, ..self }
    }

    /// Returns its last `n_parts` parts; `None` if there are fewer.
    #[must_use]
    pub fn last(self, n_parts: u16) -> Option<Self> {
        if n_parts == self.n_parts {
            return Some(self);
        }
        (n_parts < self.n_parts).then_some(Self::new(self.codec, self.operands, n_parts))
    }

    /// Returns what is left without its last `n_parts` parts.
    #[must_use]
    fn without_last(self, n_parts: u16) -> Option<Self> {
        let n_parts = self.n_parts.checked_sub(n_parts).filter(|left| *left > 0)?;
        let operands = if n_parts == 1 { self.first_operands } else { self.operands };
        Some(Self { operands, as_received: false, n_parts, ..self })
    }

    /// Returns both contents, one behind the other. `None` if their codecs differ, or if the result
    /// could not record how many ranks' values are combined in which part.
    fn followed_by(self, next: Self) -> Option<Self> {
        let is_alike = next.codec == self.codec
            && next.first_operands == next.operands
            && (self.n_parts == 1 || next.operands == self.operands);
        let n_parts = self.n_parts.checked_add(next.n_parts).filter(|_| is_alike)?;
        Some(Self { operands: next.operands, as_received: false, n_parts, ..self })
    }

    /// Returns each part combined with the corresponding part of `other`, in this codec.
    fn combined_with(self, other: Self, codec: CodecId) -> Option<Self> {
        Some(Self {
            codec,
            operands: self.operands.checked_add(other.operands)?,
            first_operands: self.first_operands.checked_add(other.first_operands)?,
            as_received: false,
            n_parts: self.n_parts,
        })
    }
}

/// Contents of all slots.
pub type SlotContents = [Option<SlotContent>; Slot::COUNT];

/// Returns what stays held after a step, if `contents` are the slot contents after its last
/// primitive. A step that uses held parts and keeps nothing removes them.
#[must_use]
pub fn held_after(step: &Step, contents: &SlotContents) -> Option<SlotContent> {
    let held = contents[Slot::Held.index()]?;
    if step.keep || !step.uses_held() { Some(held) } else { held.without_last(step.n_parts) }
}

/// One action of a lane on a segment: it takes local input or slot contents, and writes a slot or
/// the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// Local input → payload.
    EncodeOwn {
        /// Slot to write.
        to: Slot,
        /// Codec of the payload.
        codec: CodecId,
    },
    /// Payload → payload of another codec, or encoded again.
    Transcode {
        /// Slot to read.
        from: Slot,
        /// Slot to write.
        to: Slot,
        /// Codecs of the two payloads.
        codecs: [CodecId; 2],
    },
    /// Payload → the same payload again. If it has more parts than the step, only the step's.
    Copy {
        /// Slot to read.
        from: Slot,
        /// Slot to write.
        to: Slot,
    },
    /// Content of a slot → another slot, without computation.
    Move {
        /// Slot to empty.
        from: Slot,
        /// Slot to fill.
        to: Slot,
    },
    /// Content of a slot → behind the content of `Held`, or to other places among it if the step
    /// says so ([`Step::places`]).
    Join {
        /// Slot with segments of the same codec.
        from: Slot,
    },
    /// Content of a slot → in place of the step's segments in `Held`.
    Replace {
        /// Slot with segments of the same codec.
        from: Slot,
    },
    /// `In` ⊕ local input → `Out`, in the call's codec.
    Fold,
    /// `In` ⊕ local input → `In` itself, for a codec that supports it.
    FoldInPlace,
    /// Same as `Fold`, and the result also goes to the output.
    FoldStore,
    /// Same as `Fold`, through floats: decompress, reduce, compress.
    Refold,
    /// `In` ⊕ another payload → `Out`, in the call's codec.
    Combine {
        /// Slot of the other payload.
        with: Slot,
    },
    /// `In` ⊕ another payload → `In` itself, for a codec that supports it.
    CombineInPlace {
        /// Slot of the other payload.
        with: Slot,
    },
    /// `In`, decoded, ⊕ floats → the same floats.
    Reduce {
        /// Slot of the floats.
        into: Slot,
    },
    /// Local input ⊕ decoded `In` → output.
    ReduceStore {
        /// Codec of `In`.
        codec: CodecId,
    },
    /// Payload → output.
    Store {
        /// Slot to read.
        from: Slot,
        /// Codec of the payload.
        codec: CodecId,
        /// True if the segment's local input has been read. Then its memory is in the caches when
        /// results overwrite it.
        over_own: bool,
    },
    /// Same as `Store`, but an average's sum is stored undivided.
    StoreWhole {
        /// Slot to read.
        from: Slot,
        /// Codec of the payload.
        codec: CodecId,
        /// Same as in `Store`.
        over_own: bool,
    },
    /// Sums in the output → averages.
    Divide,
    /// Local input → output, unchanged.
    StoreOwn,
    /// Values that were stored from `In` → payload, encoded again.
    EncodeStored {
        /// Slot to write.
        to: Slot,
        /// Codec of the payload.
        codec: CodecId,
    },
}

impl Primitive {
    /// Returns the slot that is written; `None` if it is the output.
    #[must_use]
    pub const fn target(self) -> Option<Slot> {
        match self {
            Self::EncodeOwn { to, .. }
            | Self::EncodeStored { to, .. }
            | Self::Transcode { to, .. }
            | Self::Copy { to, .. }
            | Self::Move { to, .. }
            | Self::Reduce { into: to } => Some(to),
            Self::Join { .. } | Self::Replace { .. } => Some(Slot::Held),
            Self::Fold | Self::FoldStore | Self::Refold | Self::Combine { .. } => Some(Slot::Out),
            Self::FoldInPlace | Self::CombineInPlace { .. } => Some(Slot::In),
            Self::ReduceStore { .. }
            | Self::Store { .. }
            | Self::StoreWhole { .. }
            | Self::StoreOwn
            | Self::Divide => None,
        }
    }

    /// Returns whether it writes to a frame that must be in `slot`. [`Move`](Self::Move) does not:
    /// it moves the frame itself.
    pub(crate) const fn needs_frame(self, slot: Slot) -> bool {
        let is_written = match self.target() {
            Some(target) => target.index() == slot.index(),
            None => false,
        };
        is_written && !matches!(self, Self::Move { .. })
    }

    /// Returns the slot that a primitive uses, and the slot of its other payload, for those that
    /// short exact calls consist of.
    #[cfg(feature = "alloc")]
    pub(crate) const fn raw_slots(self) -> Option<(Slot, Option<Slot>)> {
        match self {
            Self::EncodeOwn { to, .. } => Some((to, None)),
            Self::FoldInPlace | Self::ReduceStore { .. } => Some((Slot::In, None)),
            Self::CombineInPlace { with } => Some((Slot::In, Some(with))),
            Self::Store { from, .. } => Some((from, None)),
            _ => None,
        }
    }

    /// Returns whether it changes the content of its target in place.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        matches!(self, Self::FoldInPlace | Self::CombineInPlace { .. } | Self::Reduce { .. })
    }

    /// Returns the slot contents after it has run on `n_parts` parts. `None` if a slot that it
    /// reads lacks the content it needs, or if it would overwrite content that is still needed.
    #[must_use]
    pub fn after(self, mut contents: SlotContents, n_parts: u16) -> Option<SlotContents> {
        let of = |slot: Slot| contents[slot.index()]?.last(n_parts);
        let by = |slot: Slot, codec| of(slot).filter(|content| content.codec == codec);
        let held = Slot::Held.index();
        let received = of(Slot::In);
        let with_own = |content: SlotContent| {
            content.combined_with(SlotContent::new(content.codec, 1, n_parts), content.codec)
        };
        let with_received = |other: SlotContent| received?.combined_with(other, other.codec);
        let made = match self {
            Self::EncodeOwn { codec, .. } => SlotContent::new(codec, 1, n_parts),
            Self::EncodeStored { codec, .. } => {
                SlotContent { codec, as_received: false, ..received? }
            }
            Self::Transcode { from, codecs, .. } => {
                SlotContent { codec: codecs[1], as_received: false, ..by(from, codecs[0])? }
            }
            Self::Fold | Self::FoldInPlace | Self::FoldStore | Self::Refold => with_own(received?)?,
            Self::Combine { with } | Self::CombineInPlace { with } => {
                with_received(by(with, received?.codec)?)?
            }
            Self::Reduce { into } => with_received(by(into, CodecId::Raw)?)?,
            Self::Copy { from, to } => {
                contents[to.index()] = Some(of(from)?);
                return Some(contents);
            }
            Self::Move { from, to } => {
                let content = contents[from.index()].take_if(|moved| moved.n_parts == n_parts);
                contents[to.index()] = Some(content?);
                return Some(contents);
            }
            Self::Join { from } => {
                contents[held] = Some(contents[held]?.followed_by(contents[from.index()]?)?);
                return Some(contents);
            }
            Self::Replace { from } => {
                let rest = contents[held]?.without_last(n_parts)?;
                contents[held] = Some(rest.followed_by(of(from)?)?);
                return Some(contents);
            }
            Self::ReduceStore { codec } => return by(Slot::In, codec).map(|_| contents),
            Self::Store { from, codec, .. } | Self::StoreWhole { from, codec, .. } => {
                return by(from, codec).map(|_| contents);
            }
            Self::StoreOwn | Self::Divide => return Some(contents),
        };
        let target = &mut contents[self.target()?.index()];
        let rest = target.and_then(|content| content.without_last(n_parts));
        *target = match rest {
            None => Some(made),
            Some(rest) if self.is_in_place() => Some(rest.followed_by(made)?),
            Some(_) => return None,
        };
        Some(contents)
    }
}

#[cfg(test)]
mod tests;
