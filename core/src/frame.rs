//! Header of every message: the call and the segment that it belongs to, and a checksum.
//!
//! [`Header::emit`] writes the header in front of a payload that is already in the frame.
//! [`Header::parse`] checks it once. After that the payload's length is trusted, and the codec
//! checks its content. The header describes the call, so that ranks that disagree get an error
//! instead of garbage. It also names the sender, so that a frame on the wrong link is refused. A
//! rank that passes a frame on writes its own number into the header ([`readdress`]). Layout:
//! docs/format.md.

mod fields;
mod template;

use crate::codec::CodecId;
use crate::element::DType;
pub use crate::error::FrameError;
use crate::op::OpCode;
use crate::schedule::{Collective, Division};
use crate::transport::{MAX_LANES, Rank};
use bytemuck::{CheckedBitPattern, checked};
pub(crate) use template::{MessageFields, Template, operands_of};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the header. It is a multiple of [`FRAME_ALIGN`](crate::transport::FRAME_ALIGN), so that
/// payloads are aligned too.
pub const HEADER_BYTES: usize = 64;
/// Version of the message format.
pub const VERSION: u8 = 4;

const MAGIC: [u8; 2] = *b"FW";
const CONTEXT_AT: usize = 5;
const FROM_AT: usize = 48;
const CHECKSUM_AT: usize = 56;
/// Position of the element type's bits in a byte that also holds the collective.
const DTYPE_AT: u32 = 4;
/// Number of bits of a pipeline's code. The same byte also holds the division and, from bit
/// [`MEASURE_AT`] on, the measure.
const PIPELINE_BITS: u32 = 3;
const MEASURE_AT: u32 = 4;
/// Flag in the pipeline's byte: the payload is raw, although the call uses another codec.
const AS_FLOATS: u8 = 1 << 7;
/// Flag in a byte that also holds the number of lanes, less one, and the schedule.
const HAS_CHECKSUM: u8 = 1;
const LANES_AT: u32 = 1;
const SCHEDULE_AT: u32 = 4;

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CheckedBitPattern)]
#[repr(u8)]
pub enum MessageKind {
    /// A segment of a call's array.
    Data = 0,
    /// The sender aborted the operation.
    Abort = 1,
    /// The ranks that the sender counts among the survivors.
    View = 2,
    /// The last message on its link before those of the survivors' group.
    Fence = 3,
    /// The call that the sender makes, so that the receiver can compare it with its own.
    Call = 4,
    /// A segment of an array that one rank sends to another. [`Header::part`] is the message's tag.
    Message = 5,
    /// The sender has space for the rest of an array that the receiver has begun to send to it.
    Grant = 6,
    /// All earlier messages on its link belong to communicators that had the channel before.
    Flush = 7,
}

/// Number that an error gives for a point-to-point message, in place of a
/// [collective](CallHeader::collective)'s number.
pub(crate) const MESSAGE: u64 = u8::MAX as u64;

impl MessageKind {
    /// Returns the purpose that a message claims. Nothing else in it is checked.
    #[must_use]
    pub fn of(message: &[u8]) -> Option<Self> {
        checked::try_cast(*message.get(3)?).ok()
    }
}

/// Meaning of a header's [`step`](CallHeader::step).
///
/// Messages of the call itself carry the spacing of the lattice. Before it is known, ranks exchange
/// value ranges. The messages of that exchange carry the bound required of each operand instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CheckedBitPattern)]
#[repr(u8)]
pub enum StepQuantity {
    /// The spacing of the lattice.
    Lattice = 0,
    /// In a scan of a sample: the bound on each operand, relative or absolute as in the plan.
    Sample = 1,
    /// In a scan of all data: the same.
    Range = 2,
    /// In a scan of all data: the bound on the result in units of the value range, divided among
    /// the errors that add up.
    ResultRange = 3,
    /// In a scan of all data: the absolute bound on the result, divided among the errors that add
    /// up.
    Result = 4,
    /// Digest of the lengths and lattices of a group's arrays, in one of the group's own messages.
    Group = 5,
    /// The codec's setting.
    Setting = 6,
    /// In a measurement of links before the call: bytes of the array that goes around a ring. 0 in
    /// the barrier, and when ranks exchange times.
    Links = 7,
}

impl StepQuantity {
    /// Returns the kind of bound, in words.
    const fn name(self) -> &'static str {
        match self {
            Self::Lattice => "absolute",
            Self::Sample => "relative to a sample's range",
            Self::Range => "relative to the range",
            Self::ResultRange => "on the result, relative to the range",
            Self::Result => "on the result, absolute",
            Self::Group => "of each array of a group",
            Self::Setting => "none, only a codec setting",
            Self::Links => "none yet, while links are measured",
        }
    }
}

/// Fields that all messages of one call have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallHeader {
    /// Channel of the tags that the call's messages use. 0 if calls are made one after another.
    pub context: u8,
    /// Number of the communicator among those that had the channel, modulo 2¹⁶. 0 for the
    /// communicator of all ranks of a transport; later ones have larger numbers.
    pub epoch: u16,
    /// Number of the call on this communicator. Each exchange before a call (of value ranges, or to
    /// measure links) counts as a call.
    pub sequence: u32,
    /// The collective.
    pub collective: Collective,
    /// Type of the elements.
    pub dtype: DType,
    /// The reduction, or none.
    pub op: OpCode,
    /// The codec.
    pub codec: CodecId,
    /// Division of the array among parts.
    pub division: Division,
    /// Code of the pipeline ([`Pipeline::code`](crate::pipeline::Pipeline::code)).
    pub pipeline: u8,
    /// Code of the schedule ([`schedule::code`](crate::schedule::code)).
    pub schedule: u8,
    /// Number of lanes, 1…[`MAX_LANES`].
    pub lanes: u8,
    /// The root, or 0 if there is none.
    pub root: u32,
    /// Number of values in the logical array.
    pub count: u64,
    /// Meaning of `step`.
    pub measure: StepQuantity,
    /// Spacing of the lattice, or 0 if there is none. Other meanings: see [`StepQuantity`].
    pub step: f64,
}

impl CallHeader {
    /// Returns the header with this call number.
    pub(crate) const fn numbered(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }

    /// Returns how many epochs `epoch` is before this one; negative if it is after it. Epochs wrap.
    pub(crate) const fn age_of(&self, epoch: u16) -> i16 {
        self.epoch.wrapping_sub(epoch).cast_signed()
    }

    /// Returns the fields of a message that belongs to a group and to no call.
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

/// Header of one message.
///
/// All kinds of messages have the same fields, so that one function can read, check or show them
/// all. In fields that a kind does not use, it has the values of [`CallHeader::of_no_call`]. A
/// message with other values there is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// Purpose of the message.
    pub kind: MessageKind,
    /// The call it belongs to.
    pub call: CallHeader,
    /// True if the payload is raw, although the call uses another codec.
    pub as_floats: bool,
    /// The sender: its rank in the group or, in a view or a fence, its rank in the transport.
    pub from: Rank,
    /// Part of the array.
    pub part: u32,
    /// Round of the segment in its part.
    pub round: u32,
    /// Number of values in the segment.
    pub n_values: u32,
    /// Number of payload bytes after the header.
    pub n_bytes: u32,
    /// Number of ranks whose values are combined in the segment. 1 if nothing is reduced, 0 in a
    /// notice.
    pub operands: u32,
}

impl Header {
    /// Returns the header of a message without values.
    #[must_use]
    pub(crate) const fn without_values(kind: MessageKind, call: CallHeader, from: Rank) -> Self {
        let (part, round, n_values, n_bytes, operands) = (0, 0, 0, 0, 0);
        Self { kind, call, as_floats: false, from, part, round, n_values, n_bytes, operands }
    }

    /// Returns whether the message belongs to an earlier communicator on the channel of `ours`.
    pub(crate) const fn is_left_over(&self, ours: &CallHeader) -> bool {
        self.call.context == ours.context && ours.age_of(self.call.epoch) > 0
    }

    /// Writes the header in front of the `n_bytes` of payload in `frame`.
    ///
    /// # Panics
    /// If `frame` is shorter than header and payload, if the number of lanes or the schedule's code
    /// is out of range, or if a raw call's payload is marked as floats.
    pub fn emit(&self, frame: &mut [u8], checksum: bool) {
        let (head, payload) = frame.split_at_mut(HEADER_BYTES);
        let payload = &payload[..self.n_bytes as usize];
        let call = &self.call;
        assert!(!self.as_floats || call.codec != CodecId::Raw);
        head.fill(0);
        head[..2].copy_from_slice(&MAGIC);
        head[2] = VERSION;
        head[3] = self.kind as u8;
        head[4] = call.collective as u8 | (call.dtype as u8) << DTYPE_AT;
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

    /// Reads and checks the header of a message. With `want_checksum`, a message without a checksum
    /// is an error. A checksum that is there must always match.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are not a Foldwire message.
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
                    collective: Collective::from_code(head[4] & ((1 << DTYPE_AT) - 1))?,
                    dtype: DType::from_code(head[4] >> DTYPE_AT)?,
                    op: OpCode::from_code(head[6])?,
                    codec,
                    division: Division::from_code(head[9] >> PIPELINE_BITS & 1)?,
                    measure: checked::try_cast((head[9] & !AS_FLOATS) >> MEASURE_AT).ok()?,
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

/// Writes `from` into the header of a message that was parsed. The cost does not depend on the
/// payload, because the checksum is the XOR of the header's and the payload's.
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

/// Returns xxh3 of the header ⊕ xxh3 of the payload. Both are covered, and neither is copied.
fn checksum_of(head: &[u8], payload: &[u8]) -> u64 {
    xxh3_64(head) ^ xxh3_64(payload)
}

/// Returns the [context](CallHeader::context) that a message claims. Nothing else in it is checked.
#[must_use]
pub fn context_of(message: &[u8]) -> Option<u8> {
    message.get(CONTEXT_AT).copied()
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
        // A raw call always sends floats, so its messages must not have the flag.
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
