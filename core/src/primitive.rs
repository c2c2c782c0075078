//! What a step computes: the one place that says it.
//!
//! [`Rules`] are what codec, pipeline, operation and collective say of every step of a call.
//! [`Rules::primitives`] makes of a step, and of what its lane holds, a short list of
//! [`Primitive`]s. The engine carries the list out on frames; the cost model of `foldwire-sim`
//! prices it.
//!
//! A payload names its codec: the call's, or raw, which are floats as they are. Sums that are not
//! complete are *kept* by one of the two, as the pipeline says, and *travel* by the call's codec;
//! but floats stay floats between ranks of a node
//! ([`ProgramSpec::is_near`](crate::schedule::ProgramSpec::is_near)).
//!
//! | what happens | sums are kept by the codec, own floats (fused) | the same, own values encoded (homomorphic) | sums are floats (compress-once, per-hop) |
//! |---|---|---|---|
//! | own values leave | encode | encode | encode |
//! | a payload meets own values | fold | encode, combine | encode (raw), reduce |
//! | … and the result leaves | fold | encode, combine | refold |
//! | … and is stored | fold-store | encode, combine, store | reduce-store |
//! | … and both | fold-store | encode, combine, store | refold, store |
//! | … and leaves, and what came is stored | fold, store | encode, combine, store | refold, store |
//! | a payload meets what is held | combine | combine | reduce |
//! | what is held leaves | nothing | nothing | transcode; and back, if it is needed again |
//! | a payload passes | nothing (per-hop: transcode) | nothing | nothing (per-hop: transcode) |
//! | … and is stored | store (per-hop: store, encode what was stored; averages: transcode, store) | store | store (per-hop: the same) |
//! | own values stand for what others decode | encode, store | encode, store | encode, store |
//! | what leaves is needed again | copy of the payload | copy of the payload | transcode (reductions), nothing (others) |
//! | own values are taken | encode | encode | encode (reductions, per-hop: raw) |
//! | what is kept is put behind, before or among what is held | join | join | join |
//! | what is kept is put in place of the last of what is held | replace | replace | replace, or nothing |
//!
//! Floats that meet floats are added in place of what was received: in a raw call, and between
//! ranks of a node. If they leave it, they are transcoded then; where one that is held there meets
//! what came from another node, and sums are kept by the codec, it is transcoded before.
//!
//! A step on a run of parts asks for the same, of each segment of the run in turn: a slot then
//! holds a segment of each part. What takes no look at values ([`Primitive::Copy`],
//! [`Primitive::Move`], [`Primitive::Join`]) is done to all of them at once. Where more is held
//! than the step concerns, its parts are where it says ([`Step::places`]): the last ones, the
//! first, or the last of each row; and leave as a copy. What is in a slot says nothing of which:
//! but for the last ones, all parts there are of as many ranks' values.

mod rules;

pub use rules::{Rules, StepLinks};

use crate::codec::CodecId;
use crate::schedule::Step;
use heapless::Vec;

/// Most primitives of a step.
pub const MAX_PRIMITIVES: usize = 8;

/// What a step computes, in order.
pub type Primitives = Vec<Primitive, MAX_PRIMITIVES>;

/// The places of a lane; a frame fits each. After a step, what is in `Out` is sent if the step
/// sends, what is in `Held` stays as [`held_after`] says, and all else is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// What the step received.
    In,
    /// What an earlier step kept.
    Held,
    /// What will be sent.
    Out,
    /// Scratch.
    Spare,
}

impl Slot {
    /// Number of slots.
    pub const COUNT: usize = 4;

    /// This slot as an array index.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotContent {
    /// What it is encoded by: the call's codec, or raw for floats.
    pub codec: CodecId,
    /// How many ranks' values are combined in its last part, and in all others but the first.
    pub operands: u32,
    /// How many in its first part.
    pub first_operands: u32,
    /// It is a message as it was received, header and all.
    pub as_received: bool,
    /// Segments, one for each part of a run.
    pub n_parts: u16,
}

impl SlotContent {
    /// So many parts, all alike, that this rank made.
    #[must_use]
    pub const fn new(codec: CodecId, operands: u32, n_parts: u16) -> Self {
        Self { codec, operands, first_operands: operands, as_received: false, n_parts }
    }

    /// The same as a message that was received.
    #[must_use]
    pub const fn received(self) -> Self {
        Self { as_received: true, ..self }
    }

    /// Its last parts; `None` if there are not so many.
    #[must_use]
    pub fn last(self, n_parts: u16) -> Option<Self> {
        if n_parts == self.n_parts {
            return Some(self);
        }
        (n_parts < self.n_parts).then_some(Self::new(self.codec, self.operands, n_parts))
    }

    /// What is left without its last parts.
    #[must_use]
    fn without_last(self, n_parts: u16) -> Option<Self> {
        let n_parts = self.n_parts.checked_sub(n_parts).filter(|left| *left > 0)?;
        let operands = if n_parts == 1 { self.first_operands } else { self.operands };
        Some(Self { operands, as_received: false, n_parts, ..self })
    }

    /// Both, one behind the other; `None` if they are of other codecs, or there is no telling how
    /// many ranks' values are in which part.
    fn followed_by(self, next: Self) -> Option<Self> {
        let is_alike = next.codec == self.codec
            && next.first_operands == next.operands
            && (self.n_parts == 1 || next.operands == self.operands);
        let n_parts = self.n_parts.checked_add(next.n_parts).filter(|_| is_alike)?;
        Some(Self { operands: next.operands, as_received: false, n_parts, ..self })
    }

    /// Each part combined with another, by a codec.
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

/// What is in each slot.
pub type SlotContents = [Option<SlotContent>; Slot::COUNT];

/// What is held after a step that leaves this in the slots: what it keeps, and what lies beside the
/// parts that it used up.
#[must_use]
pub fn held_after(step: &Step, contents: &SlotContents) -> Option<SlotContent> {
    let held = contents[Slot::Held.index()]?;
    if step.keep || !step.uses_held() { Some(held) } else { held.without_last(step.n_parts) }
}

/// One thing that a lane does with a segment: own values, or what its slots hold, into a slot or
/// the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// Own values → payload.
    EncodeOwn {
        /// Where to.
        to: Slot,
        /// By which codec.
        codec: CodecId,
    },
    /// Payload → payload of another codec, or encoded anew.
    Transcode {
        /// A payload.
        from: Slot,
        /// Where to.
        to: Slot,
        /// The codecs of the two.
        codecs: [CodecId; 2],
    },
    /// Payload → the same payload again; of more parts than the step's, those.
    Copy {
        /// A payload.
        from: Slot,
        /// Where to.
        to: Slot,
    },
    /// What is in one slot is in another from now on; nothing is computed.
    Move {
        /// Anything.
        from: Slot,
        /// Where to.
        to: Slot,
    },
    /// What is in a slot → behind what is in `Held`, or where else the step puts it.
    Join {
        /// Segments of the same codec.
        from: Slot,
    },
    /// What is in a slot → in place of as many of the last in `Held`.
    Replace {
        /// Segments of the same codec.
        from: Slot,
    },
    /// `In` ⊕ own values → `Out`, by the call's codec.
    Fold,
    /// `In` ⊕ own values → `In` itself, by a codec that can.
    FoldInPlace,
    /// As `Fold`, and the result into the output.
    FoldStore,
    /// As `Fold`, through floats: decompress, operate, compress.
    Refold,
    /// `In` ⊕ another payload → `Out`, by the call's codec.
    Combine {
        /// The other.
        with: Slot,
    },
    /// `In` ⊕ another payload → `In` itself, by a codec that can.
    CombineInPlace {
        /// The other.
        with: Slot,
    },
    /// `In`, decoded, ⊕ floats → the same floats.
    Reduce {
        /// The floats.
        into: Slot,
    },
    /// Own values ⊕ `In`, decoded → output.
    ReduceStore,
    /// Payload → output.
    Store {
        /// A payload.
        from: Slot,
        /// Its codec.
        codec: CodecId,
        /// Own values of the segment have been read, so that where results overwrite them their
        /// memory is in the caches.
        over_own: bool,
    },
    /// As `Store`, but of a sum that will be an average the sum.
    StoreWhole {
        /// A payload.
        from: Slot,
        /// Its codec.
        codec: CodecId,
        /// As of `Store`.
        over_own: bool,
    },
    /// Sums in the output → averages.
    Divide,
    /// Own values → output, as they are.
    StoreOwn,
    /// What was stored of `In` → payload, encoded anew.
    EncodeStored {
        /// Where to.
        to: Slot,
        /// By which codec.
        codec: CodecId,
    },
}

impl Primitive {
    /// The slot that is written; `None` if that is the output.
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
            Self::ReduceStore
            | Self::Store { .. }
            | Self::StoreWhole { .. }
            | Self::StoreOwn
            | Self::Divide => None,
        }
    }

    /// Whether it writes to a frame that may be empty so far.
    pub(crate) const fn needs_frame(self, slot: Slot) -> bool {
        let is_written = match self.target() {
            Some(target) => target.index() == slot.index(),
            None => false,
        };
        is_written && !matches!(self, Self::Move { .. })
    }

    /// Whether it computes on segments, so that it asks what the frames of a lane hold, and not
    /// only moves them.
    #[cfg(feature = "alloc")]
    pub(crate) const fn computes(self) -> bool {
        !matches!(
            self,
            Self::Copy { .. } | Self::Move { .. } | Self::Join { .. } | Self::Replace { .. }
        )
    }

    /// Whether it changes what is in its target, and leaves it where it is.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        matches!(self, Self::FoldInPlace | Self::CombineInPlace { .. } | Self::Reduce { .. })
    }

    /// What is in the slots after it was done for a run of `n_parts`; `None` if a slot that it
    /// reads does not hold what it needs, or what it would overwrite is still needed.
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
            Self::ReduceStore => return received.map(|_| contents),
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
