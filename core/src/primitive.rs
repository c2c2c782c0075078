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
//! ([`Call::is_near`](crate::schedule::Call::is_near)).
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
//! | own values stand for what others decode | encode, store | encode, store | encode, store |
//! | what leaves is needed again | copy of the payload | copy of the payload | transcode (reductions), nothing (others) |
//! | own values are taken | encode | encode | encode (reductions, per-hop: raw) |
//! | what is kept is put behind what is held | join | join | join |
//!
//! Floats that meet floats are added in place of what was received: in a raw call, and between
//! ranks of a node. If they leave it, they are transcoded then; where one that is held there meets
//! what came from another node, and sums are kept by the codec, it is transcoded before.
//!
//! A step on a run of parts asks for the same, of each segment of the run in turn: a slot then
//! holds a segment of each part. What takes no look at values ([`Primitive::Copy`],
//! [`Primitive::Move`], [`Primitive::Join`]) is done to all of them at once. Where more is held
//! than the step concerns, its parts are the last ones, and leave as a copy.

mod rules;

pub use rules::{Links, Rules};

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
pub struct Content {
    /// What it is encoded by: the call's codec, or raw for floats.
    pub codec: CodecId,
    /// How many ranks' values are combined in it.
    pub operands: u32,
    /// It is a message as it was received, header and all.
    pub as_received: bool,
    /// Segments, one for each part of a run.
    pub n_parts: u16,
}

/// What is in each slot.
pub type Contents = [Option<Content>; Slot::COUNT];

/// What is held after a step that leaves this in the slots: what it keeps, and what lies before the
/// parts that it used up.
#[must_use]
pub fn held_after(step: &Step, contents: &Contents) -> Option<Content> {
    let held = contents[Slot::Held.index()]?;
    if step.keep || !step.own {
        return Some(held);
    }
    let n_parts = held.n_parts.checked_sub(step.n_parts).filter(|left| *left > 0)?;
    Some(Content { n_parts, as_received: false, ..held })
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
    /// Payload → the same payload again; of more parts than the step's, the last.
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
    /// What is in a slot → behind what is in `Held`.
    Join {
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
    /// Own values → output, as they are.
    StoreOwn,
}

impl Primitive {
    /// The slot that is written; `None` if that is the output.
    #[must_use]
    pub const fn target(self) -> Option<Slot> {
        match self {
            Self::EncodeOwn { to, .. }
            | Self::Transcode { to, .. }
            | Self::Copy { to, .. }
            | Self::Move { to, .. }
            | Self::Reduce { into: to } => Some(to),
            Self::Join { .. } => Some(Slot::Held),
            Self::Fold | Self::FoldStore | Self::Refold | Self::Combine { .. } => Some(Slot::Out),
            Self::FoldInPlace | Self::CombineInPlace { .. } => Some(Slot::In),
            Self::ReduceStore | Self::Store { .. } | Self::StoreOwn => None,
        }
    }

    /// Whether it changes what is in its target, and leaves it where it is.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        matches!(self, Self::FoldInPlace | Self::CombineInPlace { .. } | Self::Reduce { .. })
    }

    /// What is in the slots after it was done for a run of `n_parts`; `None` if a slot that it
    /// reads does not hold what it needs, or what it would overwrite is still needed.
    #[must_use]
    pub fn after(self, mut contents: Contents, n_parts: u16) -> Option<Contents> {
        let of = |slot: Slot| contents[slot.index()].filter(|content| content.n_parts >= n_parts);
        let by = |slot: Slot, codec| of(slot).filter(|content| content.codec == codec);
        let received = of(Slot::In);
        let combined = |with: Content| {
            let operands = received?.operands.checked_add(with.operands)?;
            Some((with.codec, operands))
        };
        let (codec, operands) = match self {
            Self::EncodeOwn { codec, .. } => (codec, 1),
            Self::Transcode { from, codecs, .. } => (codecs[1], by(from, codecs[0])?.operands),
            Self::Fold | Self::FoldInPlace | Self::FoldStore | Self::Refold => {
                (received?.codec, received?.operands.checked_add(1)?)
            }
            Self::Combine { with } | Self::CombineInPlace { with } => {
                combined(by(with, received?.codec)?)?
            }
            Self::Reduce { into } => combined(by(into, CodecId::Raw)?)?,
            Self::Copy { from, to } => {
                let content = of(from)?;
                let as_received = content.as_received && content.n_parts == n_parts;
                contents[to.index()] = Some(Content { n_parts, as_received, ..content });
                return Some(contents);
            }
            Self::Move { from, to } => {
                let content = contents[from.index()].take_if(|moved| moved.n_parts == n_parts);
                contents[to.index()] = Some(content?);
                return Some(contents);
            }
            Self::Join { from } => {
                let (content, held) = (contents[from.index()]?, contents[Slot::Held.index()]?);
                let alike = |content: Content| (content.codec, content.operands);
                if alike(content) != alike(held) {
                    return None;
                }
                let n_parts = held.n_parts.checked_add(content.n_parts)?;
                let joined = Content { n_parts, as_received: false, ..held };
                contents[Slot::Held.index()] = Some(joined);
                return Some(contents);
            }
            Self::ReduceStore => return received.map(|_| contents),
            Self::Store { from, codec, .. } => return by(from, codec).map(|_| contents),
            Self::StoreOwn => return Some(contents),
        };
        let target = &mut contents[self.target()?.index()];
        if target.is_some_and(|content| content.n_parts > n_parts) {
            return None;
        }
        *target = Some(Content { codec, operands, as_received: false, n_parts });
        Some(contents)
    }
}

#[cfg(test)]
mod tests;
