//! Header of each message on a connection.
//!
//! ```text
//! kind u8 │ matched u8 │ tag u16 │ n_bytes u32 │ number u32 │ owner u32 │ index u32 │ check u32
//! ```
//!
//! All numbers are little-endian. The message follows, or it is in the shared slot that `owner` and
//! `index` name. `number` counts the messages of a link (peer, tag), which may travel over several
//! connections. `check` is the low half of XXH3 of the bytes before it, so that other bytes are not
//! taken for a header. A length is compared with the longest valid message before memory is
//! allocated for it.

use foldwire::transport::{MAX_CHANNELS, MIN_FRAME_BYTES, Tag};
use foldwire_messaging::SlotId;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 24;
/// Offset of the checksum.
const CHECK: usize = HEADER_BYTES - 4;

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageHeader {
    /// A message follows, or is in shared memory if it names a slot, which now belongs to the
    /// receiver. The sender of a `matched` message waits for an [`Answer`](Self::Answer).
    Message { tag: Tag, n_bytes: usize, number: u32, matched: bool, slot: Option<SlotId> },
    /// A slot that now belongs to the receiver, in exchange for one of a message. `number` counts
    /// those of the connection.
    Returned { slot: SlotId, number: u32 },
    /// The receiver has posted the receive for this link's `matched` message.
    Answer { tag: Tag },
    /// The sender sends nothing more on this connection.
    Goodbye,
}

/// Violation of the protocol by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// The checksum of a header is wrong.
    #[error("bytes that are not a valid header")]
    InvalidHeader,
    /// A header has an unknown kind, flag or tag.
    #[error("a header of an unknown kind or tag")]
    Unknown,
    /// A message is longer than a frame.
    #[error("a message of {n_bytes} bytes, but at most {most} are allowed")]
    TooLong {
        /// Bytes announced.
        n_bytes: usize,
        /// Most bytes of such a message.
        most: usize,
    },
    /// A message exceeds its sender's credit, or arrives twice.
    #[error("message {number} of a link whose next message is {next}")]
    OutOfOrder {
        /// Number of the message.
        number: u32,
        /// Number of the next message to be taken.
        next: u32,
    },
    /// An answer arrived to a message that was not sent.
    #[error("an answer to a message that was not sent")]
    UnexpectedAnswer,
    /// A header names shared memory that does not exist, or returns some that was not sent.
    #[error("a slot of shared memory that does not exist or was not sent")]
    UnexpectedSlot,
    /// Bytes cannot be decrypted.
    #[error("bytes that cannot be decrypted")]
    Forged,
}

const MESSAGE: u8 = 1;
const ANSWER: u8 = 2;
const GOODBYE: u8 = 3;
const SHARED: u8 = 4;
const RETURNED: u8 = 5;
/// Slot of a header that names none.
const NO_SLOT: SlotId = SlotId { owner: 0, index: 0 };

impl MessageHeader {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, tag, n_bytes, number, matched, slot) = match self {
            Self::Message { tag, n_bytes, number, matched, slot } => {
                let kind = if slot.is_some() { SHARED } else { MESSAGE };
                (kind, tag.0, n_bytes, number, matched, slot.unwrap_or(NO_SLOT))
            }
            Self::Answer { tag } => (ANSWER, tag.0, 0, 0, false, NO_SLOT),
            Self::Returned { slot, number } => (RETURNED, 0, 0, number, false, slot),
            Self::Goodbye => (GOODBYE, 0, 0, 0, false, NO_SLOT),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = u8::from(matched);
        bytes[2..4].copy_from_slice(&tag.to_le_bytes());
        bytes[4..8].copy_from_slice(&(n_bytes as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        bytes[12..16].copy_from_slice(&slot.owner.to_le_bytes());
        bytes[16..CHECK].copy_from_slice(&slot.index.to_le_bytes());
        let check = check(&bytes);
        bytes[CHECK..].copy_from_slice(&check);
        bytes
    }

    /// Decodes a header from a peer whose frames have `frame_bytes`.
    pub(crate) fn decode(
        bytes: [u8; HEADER_BYTES],
        frame_bytes: usize,
    ) -> Result<Self, ProtocolViolation> {
        if bytes[CHECK..] != check(&bytes) {
            return Err(ProtocolViolation::InvalidHeader);
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let (tag, n_bytes) = (Tag(u16::from_le_bytes([bytes[2], bytes[3]])), word(4) as usize);
        if bytes[1] > 1 || tag.channel() >= MAX_CHANNELS {
            return Err(ProtocolViolation::Unknown);
        }
        let most = match bytes[0] {
            MESSAGE if tag.is_control() => MIN_FRAME_BYTES,
            SHARED if tag.is_control() => return Err(ProtocolViolation::Unknown),
            MESSAGE | SHARED => frame_bytes,
            _ => 0,
        };
        if n_bytes > most {
            return Err(ProtocolViolation::TooLong { n_bytes, most });
        }
        let slot = SlotId { owner: word(12), index: word(16) };
        match bytes[0] {
            MESSAGE | SHARED => {
                let (number, matched) = (word(8), bytes[1] == 1);
                let slot = (bytes[0] == SHARED).then_some(slot);
                Ok(Self::Message { tag, n_bytes, number, matched, slot })
            }
            RETURNED => Ok(Self::Returned { slot, number: word(8) }),
            ANSWER => Ok(Self::Answer { tag }),
            GOODBYE => Ok(Self::Goodbye),
            _ => Err(ProtocolViolation::Unknown),
        }
    }
}

fn check(bytes: &[u8; HEADER_BYTES]) -> [u8; 4] {
    (xxh3_64(&bytes[..CHECK]) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 5000;
    const SLOT: SlotId = SlotId { owner: 3, index: u32::MAX };

    fn message(tag: u16, n_bytes: usize) -> MessageHeader {
        MessageHeader::Message { tag: Tag(tag), n_bytes, number: 7, matched: true, slot: None }
    }

    #[test]
    fn headers_are_read_as_written() {
        let last = (MAX_CHANNELS * Tag::COUNT) as u16 - 1;
        for header in [
            message(0, 0),
            message(7, FRAME),
            message(last, MIN_FRAME_BYTES),
            MessageHeader::Message {
                tag: Tag(3),
                n_bytes: 1,
                number: u32::MAX,
                matched: false,
                slot: Some(SLOT),
            },
            MessageHeader::Returned { slot: SLOT, number: 2 },
            MessageHeader::Answer { tag: Tag(2) },
            MessageHeader::Goodbye,
        ] {
            assert_eq!(MessageHeader::decode(header.encode(), FRAME), Ok(header));
        }
    }

    #[test]
    fn a_header_with_any_wrong_bit_is_refused() {
        let good = message(5, 4000).encode();
        for bit in 0..8 * HEADER_BYTES {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                MessageHeader::decode(bytes, FRAME),
                Err(ProtocolViolation::InvalidHeader),
                "bit {bit}"
            );
        }
        assert_eq!(
            MessageHeader::decode([0; HEADER_BYTES], FRAME),
            Err(ProtocolViolation::InvalidHeader)
        );
    }

    #[test]
    fn impossible_lengths_and_tags_are_refused() {
        let decode = |header: MessageHeader| MessageHeader::decode(header.encode(), FRAME);
        let too_long = |n_bytes, most| Err(ProtocolViolation::TooLong { n_bytes, most });
        assert_eq!(decode(message(0, FRAME + 1)), too_long(FRAME + 1, FRAME));
        assert_eq!(decode(message(0, u32::MAX as usize)), too_long(u32::MAX as usize, FRAME));
        let control = Tag::CONTROL.0;
        assert_eq!(decode(message(control, 1025)), too_long(1025, MIN_FRAME_BYTES));
        let shared = MessageHeader::Message {
            tag: Tag::CONTROL,
            n_bytes: 1,
            number: 0,
            matched: false,
            slot: Some(SLOT),
        };
        assert_eq!(decode(shared), Err(ProtocolViolation::Unknown), "a notice in shared memory");
        let beyond = (MAX_CHANNELS * Tag::COUNT) as u16;
        assert_eq!(decode(message(beyond, 1)), Err(ProtocolViolation::Unknown));
        assert_eq!(decode(message(u16::MAX, 1)), Err(ProtocolViolation::Unknown));
    }
}
