//! Messages in a ring between ranks of a node, and the bits that stand for them.

use foldwire::transport::{MAX_CHANNELS, Tag};

use crate::ffi::ring::{RingMessage, SHORT_BYTES};
use crate::frame::SlotId;

/// Flag in a message's word, above the bits of the tag: the send completes only when a slot comes
/// back.
pub(super) const NOTIFY: u32 = 1 << 16;
/// Flag: the send is `matched`.
pub(super) const MATCHED: u32 = 1 << 17;
/// Flag: the message is an answer.
pub(super) const RETURNED: u32 = 1 << 18;
/// Flag: the message is short, or answers a short one.
pub(super) const SHORT: u32 = 1 << 19;
/// Flag: the message is an announcement.
pub(super) const ANNOUNCED: u32 = 1 << 20;

/// Flags of [`Message::Matched`], without `MATCHED`.
const SHORT_ANSWER: u32 = SHORT | RETURNED;
/// Flags of [`Completes::Send`] if the send is `matched`.
const NOTIFY_MATCHED: u32 = NOTIFY | MATCHED;

/// Slot of a message that passes none.
const NO_SLOT: SlotId = SlotId { owner: 0, index: 0 };

/// A message in a ring. An answer has the tag of the message that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The frame in this slot passes to the receiver.
    Frame { tag: Tag, slot: SlotId, n_bytes: usize, completes: Completes },
    /// Answer to a frame: the sender gets this slot in exchange.
    Slot { tag: Tag, slot: SlotId, completes: Completes },
    /// The bytes are in the ring's entry, and no slot changes hands. In place of a slot, the
    /// message may carry a [`Matched`](Self::Matched) with the tag `answer`.
    Short { tag: Tag, n_bytes: usize, matched: bool, answer: Option<Tag> },
    /// Answer to a short `matched` message.
    Matched { tag: Tag },
    /// The message layer carries what this message announces.
    Announced { tag: Tag, n_bytes: usize },
}

/// Effect of the slot that comes back for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completes {
    /// The slot is free. The send has completed with another one.
    Nothing,
    /// The slot completes the send.
    Send { matched: bool },
}

/// A message that no correct rank sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidMessage;

impl Message {
    /// Returns what the ring holds for this message.
    #[inline]
    pub(super) fn encode(self) -> RingMessage {
        let matched_flag = |matched| if matched { MATCHED } else { 0 };
        let (tag, flags, slot, n_bytes) = match self {
            Self::Frame { tag, slot, n_bytes, completes } => {
                (tag, completes.flags(), slot, n_bytes)
            }
            Self::Slot { tag, slot, completes } => (tag, RETURNED | completes.flags(), slot, 0),
            Self::Short { tag, n_bytes, matched, answer } => {
                let owner = answer.map_or(0, |tag| Self::Matched { tag }.encode().word);
                (tag, SHORT | matched_flag(matched), SlotId { owner, index: 0 }, n_bytes)
            }
            Self::Matched { tag } => (tag, SHORT_ANSWER | MATCHED, NO_SLOT, 0),
            Self::Announced { tag, n_bytes } => (tag, ANNOUNCED, NO_SLOT, n_bytes),
        };
        RingMessage { slot, n_bytes: n_bytes as u64, word: u32::from(tag.0) | flags }
    }

    /// Reads what a ring holds. A message has at most `frame_bytes`.
    #[inline]
    pub(super) fn decode(message: RingMessage, frame_bytes: usize) -> Result<Self, InvalidMessage> {
        let RingMessage { slot, n_bytes, word } = message;
        let (tag, flags) = (Tag(word as u16), word & !0xffff);
        let n_bytes = usize::try_from(n_bytes).map_err(|_| InvalidMessage)?;
        if n_bytes > frame_bytes || tag.channel() >= MAX_CHANNELS {
            return Err(InvalidMessage);
        }
        let kind = flags & (RETURNED | SHORT | ANNOUNCED);
        Ok(match (kind, flags & !kind) {
            (0, flags) => {
                Self::Frame { tag, slot, n_bytes, completes: Completes::of_flags(flags)? }
            }
            (RETURNED, flags) => Self::Slot { tag, slot, completes: Completes::of_flags(flags)? },
            (SHORT, 0 | MATCHED) if n_bytes <= SHORT_BYTES => {
                let answer = match slot.owner {
                    0 => None,
                    word => match Self::decode(RingMessage { slot: NO_SLOT, n_bytes: 0, word }, 0)?
                    {
                        Self::Matched { tag } => Some(tag),
                        _ => return Err(InvalidMessage),
                    },
                };
                Self::Short { tag, n_bytes, matched: flags & MATCHED != 0, answer }
            }
            (SHORT_ANSWER, MATCHED) => Self::Matched { tag },
            (ANNOUNCED, 0) => Self::Announced { tag, n_bytes },
            _ => return Err(InvalidMessage),
        })
    }
}

impl Completes {
    const fn flags(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Send { matched: false } => NOTIFY,
            Self::Send { matched: true } => NOTIFY_MATCHED,
        }
    }

    const fn of_flags(flags: u32) -> Result<Self, InvalidMessage> {
        match flags {
            0 => Ok(Self::Nothing),
            NOTIFY => Ok(Self::Send { matched: false }),
            NOTIFY_MATCHED => Ok(Self::Send { matched: true }),
            _ => Err(InvalidMessage),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let (tag, slot, n_bytes) = (Tag(5), SlotId { owner: 1, index: 9 }, SHORT_BYTES);
        let sends = [false, true].map(|matched| Completes::Send { matched });
        let frames = [sends[0], sends[1], Completes::Nothing].map(|completes| {
            let frame = Message::Frame { tag, slot, n_bytes, completes };
            [frame, Message::Slot { tag, slot, completes }]
        });
        let short = |matched, answer| Message::Short { tag, n_bytes, matched, answer };
        let others = [
            [short(false, None), short(true, Some(Tag(7)))],
            [Message::Matched { tag }, Message::Announced { tag, n_bytes }],
        ];
        for message in frames.into_iter().chain(others).flatten() {
            assert_eq!(Message::decode(message.encode(), n_bytes), Ok(message));
        }
    }
}
