//! The header in front of every message: what call it belongs to, which segment it is, a checksum.
//!
//! [`Header::emit`] writes it before the payload that a codec has put behind it; [`Header::parse`]
//! checks it once, after which the payload's length is trusted and its content is the codec's to
//! check. The header says enough of the call for ranks that disagree to get an error instead of
//! garbage, and who sent it, so that a frame on the wrong link is none of ours. Layout:
//! docs/format.md. A rank that passes a frame on puts its own number into it ([`readdress`]).

mod fields;
mod template;

use crate::codec::CodecId;
use crate::element::DType;
pub use crate::error::FrameError;
use crate::op::OpCode;
use crate::schedule::{Collective, Division};
use crate::transport::{MAX_LANES, Rank};
pub(crate) use template::{MessageFields, Template, operands_of};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the header, a multiple of [`FRAME_ALIGN`](crate::transport::FRAME_ALIGN) so that
/// payloads are aligned too.
pub const HEADER_BYTES: usize = 64;
/// Version of the message format.
pub const VERSION: u8 = 4;

const MAGIC: [u8; 2] = *b"FW";
const CONTEXT_AT: usize = 5;
const FROM_AT: usize = 48;
const CHECKSUM_AT: usize = 56;
/// The element type shares its byte with the collective.
const DTYPE_AT: u32 = 4;
/// Bits of a pipeline's code, and of that and the division's; the measure shares their byte.
const PIPELINE_BITS: u32 = 3;
const MEASURE_AT: u32 = 4;
/// In the same byte: the payload is raw, though the call's codec is another.
const AS_FLOATS: u8 = 1 << 7;
/// The byte of flags also holds the number of lanes, less one, and the schedule.
const HAS_CHECKSUM: u8 = 1;
const LANES_AT: u32 = 1;
const SCHEDULE_AT: u32 = 4;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// A segment.
    Data = 0,
    /// The sender gave the operation up.
    Abort = 1,
    /// Whom the sender counts among the survivors.
    View = 2,
    /// The last message on its link before those of the survivors' group.
    Fence = 3,
    /// What call the sender makes, in the hope that the receiver makes the same.
    Call = 4,
    /// A segment of an array that one rank sends another; its part is the tag.
    Message = 5,
    /// The sender has room for the rest of an array that the receiver has begun to send it.
    Grant = 6,
    /// What came before it on its link was of communicators that had the channel before.
    Flush = 7,
}

/// What stands for a message where a [collective](CallHeader::collective) is said as a number.
pub(crate) const MESSAGE: u64 = u8::MAX as u64;

impl MessageKind {
    const ALL: [Self; 8] = [
        Self::Data,
        Self::Abort,
        Self::View,
        Self::Fence,
        Self::Call,
        Self::Message,
        Self::Grant,
        Self::Flush,
    ];

    /// What a message is for, as it says itself; nothing else of it is checked.
    #[must_use]
    pub fn of(message: &[u8]) -> Option<Self> {
        Self::ALL.get(usize::from(*message.get(3)?)).copied()
    }
}

/// What a header's `step` is.
///
/// A call's own messages have the spacing of the lattice. Before it is known, ranks exchange what
/// they saw of their data; those messages have what is asked of each operand instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StepQuantity {
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
    /// A digest of the lengths and lattices of a group's arrays, in one of its own messages.
    Group = 5,
    /// The codec's setting.
    Setting = 6,
    /// Bytes of an array that measures links before the call, or 0 where ranks meet for that.
    Links = 7,
}

impl StepQuantity {
    const ALL: [Self; 8] = [
        Self::Lattice,
        Self::Sample,
        Self::Range,
        Self::ResultRange,
        Self::Result,
        Self::Group,
        Self::Setting,
        Self::Links,
    ];

    /// What kind of bound it belongs to.
    const fn name(self) -> &'static str {
        match self {
            Self::Lattice => "absolute",
            Self::Sample => "relative to a sample's range",
            Self::Range => "relative to the range",
            Self::ResultRange => "on the result, relative to the range",
            Self::Result => "on the result, absolute",
            Self::Group => "of each array of a group",
            Self::Setting => "none, but a codec's setting",
            Self::Links => "not yet asked: it measures links",
        }
    }
}

/// What all messages of one call have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallHeader {
    /// Which calls of the sender's: the channel of the tags that their messages travel with, 0
    /// where calls are made one after the other.
    pub context: u8,
    /// Which of the communicators that had the channel: 0 for that of all ranks of a transport; of
    /// those after it, the later has the larger number, modulo 2¹⁶.
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
    /// The schedule ([`schedule::code`](crate::schedule::code)).
    pub schedule: u8,
    /// Lanes, 1…[`MAX_LANES`].
    pub lanes: u8,
    /// The root, 0 where there is none.
    pub root: u32,
    /// Values in the logical array.
    pub count: u64,
    /// What `step` is.
    pub measure: StepQuantity,
    /// The lattice's step; 0 if there is none. Or what is asked of each operand.
    pub step: f64,
}

impl CallHeader {
    /// As the call of this number.
    pub(crate) const fn numbered(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }

    /// How many epochs another one is before this one's; negative if it is after it. Epochs wrap.
    pub(crate) const fn age_of(&self, epoch: u16) -> i16 {
        self.epoch.wrapping_sub(epoch).cast_signed()
    }

    /// What stands for a call in messages that are of a group and of no call.
    #[must_use]
    pub const fn of_no_call(context: u8, epoch: u16) -> Self {
        Self {
            context,
            epoch,
            sequence: 0,
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: OpCode::None,
            codec: CodecId::Raw,
            division: Division::Blocks,
            pipeline: 0,
            schedule: 0,
            lanes: 1,
            root: 0,
            count: 0,
            measure: StepQuantity::Lattice,
            step: 0.0,
        }
    }
}

/// One message's header. All kinds of messages have the same fields, so that whatever reads, checks
/// or shows bytes does so in one way; each kind leaves some of them as they are in
/// [`CallHeader::of_no_call`], and is read only if it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// What the message is for.
    pub kind: MessageKind,
    /// The call it belongs to.
    pub call: CallHeader,
    /// The payload is raw, though the call's codec is another.
    pub as_floats: bool,
    /// Who sent it: a member of the group. In a view and a fence, a rank of the transport.
    pub from: Rank,
    /// Part of the array.
    pub part: u32,
    /// Round of the segment in its part.
    pub round: u32,
    /// Values in the segment.
    pub n_values: u32,
    /// Bytes of payload: what follows the header.
    pub n_bytes: u32,
    /// How many ranks' values are combined in the segment: 1 where nothing is reduced, 0 in a
    /// notice.
    pub operands: u32,
}

impl Header {
    /// Writes the header in front of the `n_bytes` of payload in `frame`.
    ///
    /// # Panics
    /// If `frame` is shorter than header and payload, there are no or too many lanes, or a
    /// raw call's payload is said to be floats.
    pub fn emit(&self, frame: &mut [u8], checksum: bool) {
        let (head, payload) = frame.split_at_mut(HEADER_BYTES);
        let payload = &payload[..self.n_bytes as usize];
        let call = &self.call;
        assert!(!self.as_floats || call.codec != CodecId::Raw);
        head.fill(0);
        head[..2].copy_from_slice(&MAGIC);
        head[2] = VERSION;
        head[3] = self.kind as u8;
        head[4] = collective_code(call.collective) | (call.dtype as u8) << DTYPE_AT;
        head[CONTEXT_AT] = call.context;
        head[6] = call.op as u8;
        head[7] = call.codec as u8;
        assert!((1..=MAX_LANES as u8).contains(&call.lanes) && call.schedule < 16);
        head[8] = (call.lanes - 1) << LANES_AT | call.schedule << SCHEDULE_AT;
        head[9] = call.pipeline
            | (call.division as u8) << PIPELINE_BITS
            | (call.measure as u8) << MEASURE_AT;
        if self.as_floats {
            head[9] |= AS_FLOATS;
        }
        head[10..12].copy_from_slice(&call.epoch.to_le_bytes());
        head[12..16].copy_from_slice(&call.sequence.to_le_bytes());
        head[16..24].copy_from_slice(&call.count.to_le_bytes());
        head[24..32].copy_from_slice(&call.step.to_le_bytes());
        head[32..36].copy_from_slice(&call.root.to_le_bytes());
        head[36..40].copy_from_slice(&self.part.to_le_bytes());
        head[40..44].copy_from_slice(&self.round.to_le_bytes());
        head[44..48].copy_from_slice(&self.n_values.to_le_bytes());
        head[FROM_AT..52].copy_from_slice(&self.from.0.to_le_bytes());
        head[52..56].copy_from_slice(&self.operands.to_le_bytes());
        if checksum {
            head[8] |= HAS_CHECKSUM;
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
        let checksum = u64_at(CHECKSUM_AT);
        match head[8] & HAS_CHECKSUM != 0 {
            true if checksum != checksum_of(&head[..CHECKSUM_AT], payload) => {
                return Err(FrameError::Checksum);
            }
            true => {}
            false if want_checksum => return Err(FrameError::NoChecksum),
            false if checksum == 0 => {}
            false => return Err(FrameError::Damaged),
        }
        let fields = || {
            let codec = CodecId::from_code(head[7])?;
            let as_floats = head[9] & AS_FLOATS != 0;
            if as_floats && codec == CodecId::Raw {
                return None;
            }
            Some(Self {
                kind: MessageKind::of(head)?,
                as_floats,
                call: CallHeader {
                    context: head[CONTEXT_AT],
                    epoch: u16::from_le_bytes([head[10], head[11]]),
                    sequence: u32_at(12),
                    collective: collective_of(head[4] & ((1 << DTYPE_AT) - 1))?,
                    dtype: DType::from_code(head[4] >> DTYPE_AT)?,
                    op: OpCode::from_code(head[6])?,
                    codec,
                    division: if head[9] >> PIPELINE_BITS & 1 == 0 {
                        Division::Blocks
                    } else {
                        Division::Interleaved
                    },
                    measure: *StepQuantity::ALL
                        .get(usize::from((head[9] & !AS_FLOATS) >> MEASURE_AT))?,
                    pipeline: head[9] & ((1 << PIPELINE_BITS) - 1),
                    schedule: head[8] >> SCHEDULE_AT,
                    lanes: (head[8] >> LANES_AT & (MAX_LANES as u8 - 1)) + 1,
                    root: u32_at(32),
                    count: u64_at(16),
                    step: f64::from_bits(u64_at(24)),
                },
                from: Rank(u32_at(FROM_AT)),
                part: u32_at(36),
                round: u32_at(40),
                n_values: u32_at(44),
                n_bytes: u32::try_from(payload.len()).ok()?,
                operands: u32_at(52),
            })
        };
        fields().ok_or(FrameError::Damaged)
    }
}

/// Puts `from` into the header of a message that was parsed. What it costs does not depend on the
/// payload, of whose checksum the message's is a sum.
///
/// # Panics
/// If `frame` is shorter than a header.
pub fn readdress(frame: &mut [u8], from: Rank) {
    let head = &mut frame[..HEADER_BYTES];
    let has_checksum = head[8] & HAS_CHECKSUM != 0;
    let before = xxh3_64(&head[..CHECKSUM_AT]);
    head[FROM_AT..FROM_AT + 4].copy_from_slice(&from.0.to_le_bytes());
    if has_checksum {
        let change = before ^ xxh3_64(&head[..CHECKSUM_AT]);
        let mut change = change.to_le_bytes().into_iter();
        head[CHECKSUM_AT..].iter_mut().for_each(|byte| *byte ^= change.next().unwrap_or(0));
    }
}

/// xxh3 of the header ⊕ xxh3 of the payload: both are covered, neither is copied.
fn checksum_of(head: &[u8], payload: &[u8]) -> u64 {
    xxh3_64(head) ^ xxh3_64(payload)
}

/// The [context](CallHeader::context) of a message, as it says itself; nothing else of it is
/// checked.
#[must_use]
pub fn context_of(message: &[u8]) -> Option<u8> {
    message.get(CONTEXT_AT).copied()
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
            kind: MessageKind::Data,
            call: CallHeader {
                context: 200,
                epoch: 5,
                sequence: 7,
                collective: Collective::AllReduce,
                dtype: DType::F32,
                op: OpCode::Sum,
                codec: CodecId::FzLight,
                division: Division::Interleaved,
                pipeline: 2,
                schedule: 3,
                lanes: 8,
                root: 0,
                count: 1 << 40,
                measure: StepQuantity::ResultRange,
                step: 0.5,
            },
            as_floats: false,
            from: Rank(9),
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
    fn floats_of_a_call_by_another_codec_say_so() {
        let (header, mut bytes) = message(true);
        let floats = Header { as_floats: true, ..header };
        floats.emit(&mut bytes, true);
        assert_eq!(Header::parse(&bytes, true), Ok(floats));
        // Of a raw call that says nothing, so nothing says it.
        let raw = CallHeader { codec: CodecId::Raw, ..header.call };
        Header { call: raw, ..header }.emit(&mut bytes, false);
        bytes[9] |= AS_FLOATS;
        assert_eq!(Header::parse(&bytes, false), Err(FrameError::Damaged));
    }

    #[test]
    fn a_message_passed_on_is_as_if_the_last_sender_had_made_it() {
        for checksum in [false, true] {
            let (header, mut bytes) = message(checksum);
            readdress(&mut bytes, Rank(70_000));
            let mut expected = bytes.clone();
            Header { from: Rank(70_000), ..header }.emit(&mut expected, checksum);
            assert_eq!(bytes, expected);
        }
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
