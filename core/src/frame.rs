//! The header in front of every message: what call it belongs to, which segment it is, a checksum.
//!
//! [`Header::emit`] writes it before the payload that a codec has put behind it; [`Header::parse`]
//! checks it once, after which the payload's length is trusted and its content is the codec's to
//! check. The header says enough of the call for ranks that disagree to get an error instead of
//! garbage. Layout: docs/format.md. Forwarded frames keep their header: nothing in it concerns a
//! hop.

use crate::codec::CodecId;
use crate::element::DType;
use crate::layout::Division;
use crate::op::OpCode;
use crate::schedule::Collective;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of the header, a multiple of [`FRAME_ALIGN`](crate::transport::FRAME_ALIGN) so that
/// payloads are aligned too.
pub const HEADER_BYTES: usize = 64;
/// Version of the message format.
pub const VERSION: u8 = 2;

const MAGIC: [u8; 2] = *b"FW";
const CHECKSUM_AT: usize = 56;
/// Bits of a pipeline's code, and of that and the division's; the measure shares their byte.
const PIPELINE_BITS: u32 = 3;
const MEASURE_AT: u32 = 4;
const HAS_CHECKSUM: u8 = 1;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A segment.
    Data = 0,
    /// The sender gave the operation up.
    Abort = 1,
    /// Whom the sender counts among the survivors.
    View = 2,
    /// The last message on its link before those of the survivors' group.
    Fence = 3,
}

/// What a header's `step` is.
///
/// A call's own messages have the spacing of the lattice. Before it is known, ranks exchange what
/// they saw of their data; those messages have what is asked of each operand instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Measure {
    /// The spacing of the lattice.
    Lattice = 0,
    /// A look at a sample, for a bound in units of the range.
    Sample = 1,
    /// A look at all data, for a bound in units of the range.
    Range = 2,
    /// The same for a bound on the result.
    ResultRange = 3,
    /// A look at all data, for a bound on the result in units of the data.
    Result = 4,
}

impl Measure {
    const ALL: [Self; 5] =
        [Self::Lattice, Self::Sample, Self::Range, Self::ResultRange, Self::Result];
}

/// What all messages of one call have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallHeader {
    /// Which group: 0 for all ranks of a transport, more for each group of survivors that came of
    /// it.
    pub epoch: u16,
    /// Number of the call on this communicator. A look at the extent of the data counts as a call.
    pub sequence: u32,
    /// The collective.
    pub collective: Collective,
    /// Type of the elements.
    pub dtype: DType,
    /// The reduction, or none.
    pub op: OpCode,
    /// The codec.
    pub codec: CodecId,
    /// How the array is divided among parts.
    pub division: Division,
    /// What the pipeline does ([`Pipeline::code`](crate::pipeline::Pipeline::code)).
    pub pipeline: u8,
    /// The root, 0 where there is none.
    pub root: u32,
    /// Values in the logical array.
    pub count: u64,
    /// What `step` is.
    pub measure: Measure,
    /// The lattice's step; 0 if there is none. Or what is asked of each operand.
    pub step: f64,
}

/// One message's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// What the message is for.
    pub kind: Kind,
    /// The call it belongs to.
    pub call: CallHeader,
    /// Part of the array.
    pub part: u32,
    /// Round of the segment in its part.
    pub round: u32,
    /// Values in the segment.
    pub n_values: u32,
    /// Bytes of payload.
    pub n_bytes: u32,
    /// How many ranks' values are combined in the segment: 1 where nothing is reduced, 0 in a
    /// notice.
    pub operands: u32,
}

/// Why a message is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter than a header, or than the header says.
    #[error("a message of {have} bytes, {need} expected")]
    Length {
        /// Bytes expected.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// Not a Foldwire message.
    #[error("not a Foldwire message")]
    Magic,
    /// A version that this library does not know.
    #[error("message version {version} is unknown to this version of Foldwire")]
    Version {
        /// The version found.
        version: u8,
    },
    /// A field holds a code that does not exist.
    #[error("the message header is damaged")]
    Damaged,
    /// The checksum does not match.
    #[error("the message was damaged on the way")]
    Checksum,
    /// No checksum, but this rank wants one.
    #[error("the message has no checksum; switch checksums on or off on all ranks alike")]
    NoChecksum,
}

impl Header {
    /// Writes the header in front of the `n_bytes` of payload in `frame`.
    ///
    /// # Panics
    /// If `frame` is shorter than header and payload.
    pub fn emit(&self, frame: &mut [u8], checksum: bool) {
        let (head, payload) = frame.split_at_mut(HEADER_BYTES);
        let payload = &payload[..self.n_bytes as usize];
        let call = &self.call;
        head.fill(0);
        head[..2].copy_from_slice(&MAGIC);
        head[2] = VERSION;
        head[3] = self.kind as u8;
        head[4] = collective_code(call.collective);
        head[5] = call.dtype as u8;
        head[6] = call.op as u8;
        head[7] = call.codec as u8;
        head[8] = if checksum { HAS_CHECKSUM } else { 0 };
        head[9] = call.pipeline
            | (call.division as u8) << PIPELINE_BITS
            | (call.measure as u8) << MEASURE_AT;
        head[10..12].copy_from_slice(&call.epoch.to_le_bytes());
        head[12..16].copy_from_slice(&call.sequence.to_le_bytes());
        head[16..24].copy_from_slice(&call.count.to_le_bytes());
        head[24..32].copy_from_slice(&call.step.to_le_bytes());
        head[32..36].copy_from_slice(&call.root.to_le_bytes());
        head[36..40].copy_from_slice(&self.part.to_le_bytes());
        head[40..44].copy_from_slice(&self.round.to_le_bytes());
        head[44..48].copy_from_slice(&self.n_values.to_le_bytes());
        head[48..52].copy_from_slice(&self.n_bytes.to_le_bytes());
        head[52..56].copy_from_slice(&self.operands.to_le_bytes());
        if checksum {
            let sum = checksum_of(&head[..CHECKSUM_AT], payload);
            head[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Reads and checks the header of a message. With `want_checksum` a message must have a
    /// checksum; one that is there must match in any case.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are no message of ours.
    pub fn parse(message: &[u8], want_checksum: bool) -> Result<Self, FrameError> {
        let Some((head, payload)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return Err(FrameError::Length { need: HEADER_BYTES, have: message.len() });
        };
        let u32_at =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if head[..2] != MAGIC {
            return Err(FrameError::Magic);
        }
        if head[2] != VERSION {
            return Err(FrameError::Version { version: head[2] });
        }
        let n_bytes = u32_at(48);
        let need = HEADER_BYTES.saturating_add(n_bytes as usize);
        if message.len() != need {
            return Err(FrameError::Length { need, have: message.len() });
        }
        match head[8] {
            HAS_CHECKSUM if u64_at(CHECKSUM_AT) != checksum_of(&head[..CHECKSUM_AT], payload) => {
                return Err(FrameError::Checksum);
            }
            HAS_CHECKSUM => {}
            0 if want_checksum => return Err(FrameError::NoChecksum),
            0 if u64_at(CHECKSUM_AT) == 0 => {}
            _ => return Err(FrameError::Damaged),
        }
        let fields = || {
            Some(Self {
                kind: match head[3] {
                    0 => Kind::Data,
                    1 => Kind::Abort,
                    2 => Kind::View,
                    3 => Kind::Fence,
                    _ => return None,
                },
                call: CallHeader {
                    epoch: u16::from_le_bytes([head[10], head[11]]),
                    sequence: u32_at(12),
                    collective: collective_of(head[4])?,
                    dtype: DType::from_code(head[5])?,
                    op: OpCode::from_code(head[6])?,
                    codec: CodecId::from_code(head[7])?,
                    division: if head[9] >> PIPELINE_BITS & 1 == 0 {
                        Division::Blocks
                    } else {
                        Division::Interleaved
                    },
                    measure: *Measure::ALL.get(usize::from(head[9] >> MEASURE_AT))?,
                    pipeline: head[9] & ((1 << PIPELINE_BITS) - 1),
                    root: u32_at(32),
                    count: u64_at(16),
                    step: f64::from_bits(u64_at(24)),
                },
                part: u32_at(36),
                round: u32_at(40),
                n_values: u32_at(44),
                n_bytes,
                operands: u32_at(52),
            })
        };
        fields().ok_or(FrameError::Damaged)
    }
}

/// xxh3 of the payload, seeded with xxh3 of the header: both are covered, neither is copied.
fn checksum_of(head: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64(head))
}

fn collective_code(collective: Collective) -> u8 {
    Collective::ALL.iter().position(|&c| c == collective).map_or(u8::MAX, |i| i as u8)
}

fn collective_of(code: u8) -> Option<Collective> {
    Collective::ALL.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn message(checksum: bool) -> (Header, Vec<u8>) {
        let header = Header {
            kind: Kind::Data,
            call: CallHeader {
                epoch: 5,
                sequence: 7,
                collective: Collective::AllReduce,
                dtype: DType::F32,
                op: OpCode::Sum,
                codec: CodecId::FzLight,
                division: Division::Interleaved,
                pipeline: 2,
                root: 0,
                count: 1 << 40,
                measure: Measure::ResultRange,
                step: 0.5,
            },
            part: 3,
            round: 2,
            n_values: 10,
            n_bytes: 40,
            operands: 5,
        };
        let mut bytes = vec![9; HEADER_BYTES + 40];
        header.emit(&mut bytes, checksum);
        (header, bytes)
    }

    #[test]
    fn what_was_emitted_is_parsed() {
        for checksum in [false, true] {
            let (header, bytes) = message(checksum);
            assert_eq!(Header::parse(&bytes, checksum), Ok(header));
        }
        assert_eq!(Header::parse(&message(false).1, true), Err(FrameError::NoChecksum));
    }

    #[test]
    fn no_prefix_and_no_flipped_bit_passes() {
        let (_, bytes) = message(true);
        for n in 0..bytes.len() {
            assert!(Header::parse(&bytes[..n], true).is_err());
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&damaged, true).is_err(), "bit {bit}");
        }
    }
}
