//! Errors of calls: small values with the ranks and numbers concerned.

use crate::bound::BoundError;
use crate::codec::{CodecError, CodecId, DecodeError};
use crate::element::DType;
use crate::op::OpCode;
use crate::schedule::Collective;
use crate::transport::{Rank, TransportErrorKind};
use core::fmt;

mod device;
mod disagreement;
mod fill;
mod frame;
mod reason;

pub use device::DeviceErrorKind;
pub use disagreement::{Field, Value};
pub use fill::FillError;
pub use frame::FrameError;
pub use reason::AbortReason;

/// Reason why a call failed.
///
/// *Usage errors* ([`is_usage`](Self::is_usage)) leave nothing running: correct the call and repeat
/// it. They are found before anything is sent, with two exceptions, which all ranks find together.
/// A bound on the result may turn out too small for the data ([`Error::Bound`]), and a plan may
/// refuse data with a suspected fill value ([`FillError::Suspected`]).
///
/// Every other error of a call ends the communicator. This rank notifies all other ranks, on
/// [`Tag::CONTROL`](crate::Tag::CONTROL), so that their calls end too. Later calls return
/// [`Error::Poisoned`]. The ranks that are left can go on with
/// [`Communicator::shrink`](crate::Communicator::shrink).
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The error bound cannot be used.
    #[error(transparent)]
    Bound(#[from] BoundError),
    /// The root is not a rank of the communicator.
    #[error("root {root} does not exist; the communicator has {size} ranks")]
    Root {
        /// The given root.
        root: Rank,
        /// Number of ranks.
        size: usize,
    },
    /// The peer is not a rank of the communicator.
    #[error("rank {rank} does not exist; the communicator has {size} ranks")]
    Peer {
        /// The given rank.
        rank: Rank,
        /// Number of ranks.
        size: usize,
    },
    /// A rank sends itself a message that it does not receive in the same exchange, or the reverse.
    #[error("a message to itself with tag {tag} needs a send and a receive in one exchange")]
    ToItself {
        /// Tag of the message.
        tag: u32,
    },
    /// A buffer has the wrong length.
    #[error("the {buffer} buffer has {have} values, {need} are needed here")]
    Length {
        /// The buffer.
        buffer: Buffer,
        /// Number of values needed.
        need: usize,
        /// Number of values in the buffer.
        have: usize,
    },
    /// The counts of an `all_to_all_v` give this rank's own block two lengths.
    #[error(
        "this rank sends itself {sent} values, but is to receive {received} from itself; make the \
        two counts equal"
    )]
    OwnCount {
        /// Number of values that this rank sends to itself.
        sent: usize,
        /// Number of values that this rank receives from itself.
        received: usize,
    },
    /// The schedule does not support this collective. Or it does not support lengths that only two
    /// ranks know, as in `all_to_all_v`, because its ranks pass on other ranks' data.
    #[error(
        "schedule {schedule} has no {}; choose another or leave the choice open",
        collective.name()
    )]
    Unsupported {
        /// Name of the schedule.
        schedule: &'static str,
        /// The requested collective.
        collective: Collective,
    },
    /// The codec keeps no error bound: its setting determines the loss.
    #[error(
        "codec {} keeps no error bound; leave the bound out, or choose another codec",
        codec.name()
    )]
    NoBound {
        /// The requested codec.
        codec: CodecId,
    },
    /// The codec is for [compressed arrays](mod@crate::compress) only.
    #[error(
        "codec {} is for compressed arrays only; choose another codec for messages, such as dense",
        codec.name()
    )]
    ArraysOnly {
        /// The requested codec.
        codec: CodecId,
    },
    /// The codec does not have this setting.
    #[error("codec {} has no setting {setting} for {dtype}; 0 is its default", codec.name())]
    Setting {
        /// The requested codec.
        codec: CodecId,
        /// Element type of the values.
        dtype: DType,
        /// The requested setting.
        setting: u16,
    },
    /// Too many low bits to drop: at least one bit of the fraction must be left.
    #[error("cannot drop {n_bits} low bits of {dtype} values; the most is {most}")]
    TooManyBits {
        /// Element type of the values.
        dtype: DType,
        /// The requested number of bits.
        n_bits: u32,
        /// Largest allowed number of bits.
        most: u32,
    },
    /// [`Call::of`](crate::Call::of) received shares or buffers that the collective does not have.
    #[error("{} does not take such shares, or such buffers on this rank", collective.name())]
    NoSuchCall {
        /// The requested collective.
        collective: Collective,
    },
    /// A prefix reduction has no average. Divide a sum instead.
    #[error(
        "{} has no average; use a sum, and divide it by the number of ranks in it",
        collective.name()
    )]
    NoAverage {
        /// The requested collective.
        collective: Collective,
    },
    /// Integers have no average, because it would have to be rounded. Divide a sum, or average
    /// floats.
    #[error("{dtype} values have no average; divide their sum, or make them floats")]
    NoIntegerAverage {
        /// Element type of the values.
        dtype: DType,
    },
    /// The codec has no lattice. Unbiased rounding and error feedback need one: to round to, and to
    /// know what rounding loses.
    #[error(
        "codec {} has no lattice to round to; choose another, or round to nearest, without \
         feedback",
        codec.name()
    )]
    NoLattice {
        /// The requested codec.
        codec: CodecId,
    },
    /// The call has no buffer for values that are rounded before the first message, without bias or
    /// with error feedback. [`Rounding`](crate::Rounding) lists the calls that have one.
    #[error(
        "this call has no buffer for rounded values, which rounding without bias and error \
         feedback need; all-reduce, all-gather and reduce-scatter in place or to the front have \
         one, prepared calls and messages do not"
    )]
    NoRoomToRound,
    /// The call cannot have the plan's fill value.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// The device cannot compute this call.
    #[error(
        "the device has no {} of {dtype} values with codec {}; choose another codec, or copy the \
         values to the host",
        op.name(), codec.name()
    )]
    NotOnDevice {
        /// The call's codec.
        codec: CodecId,
        /// Type of the values.
        dtype: DType,
        /// Operation of a reduction.
        op: OpCode,
    },
    /// Error feedback was requested together with a bound on the result. Feedback carries errors
    /// from call to call, so the result of a single call has no bound.
    #[error("with error feedback a call's result has no bound; bound the operands")]
    FeedbackOnResult,
    /// Frames are too small for even a single value.
    #[error("a frame has {have} bytes, {need} are needed")]
    FrameTooSmall {
        /// Number of bytes needed.
        need: usize,
        /// Number of bytes in a frame.
        have: usize,
    },
    /// The transport's pool has too few frames for the lanes.
    #[error(
        "the transport has {have} frames, {lanes} lanes need {need}: enlarge its pool, or set \
        Config::lanes lower on all ranks"
    )]
    TooFewFrames {
        /// Number of lanes of the communicator.
        lanes: usize,
        /// Number of frames that they can need at the same time.
        need: usize,
        /// Number of frames in the pool.
        have: usize,
    },
    /// Two ranks made calls with different arguments.
    #[error(
        "rank {rank} disagrees on the {field}: {} there, {} here",
        theirs.beside(*ours), ours.beside(*theirs)
    )]
    Mismatch {
        /// The rank that disagrees.
        rank: Rank,
        /// The argument on which it disagrees.
        field: Field,
        /// This rank's value.
        ours: Value,
        /// The other rank's value.
        theirs: Value,
    },
    /// A message is not a Foldwire message, or was damaged.
    #[error("message from rank {rank}: {error}")]
    Frame {
        /// The sender of the message.
        rank: Rank,
        /// The defect of the message.
        error: FrameError,
    },
    /// A segment could not be encoded, decoded or combined.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The transport failed.
    #[error("the transport{} failed: {kind}", ToPeer(*peer))]
    Transport {
        /// Kind of failure.
        kind: TransportErrorKind,
        /// The peer concerned, if any.
        peer: Option<Rank>,
    },
    /// A device failed in a call, perhaps before the call had sent anything.
    #[error("the device failed: {kind}")]
    Device {
        /// Kind of failure.
        kind: DeviceErrorKind,
    },
    /// The library contradicts itself. This is a defect of Foldwire, or of a custom schedule.
    /// Please report it.
    #[error("internal error: a defect of Foldwire, or of a custom schedule; please report it")]
    Internal,
    /// Nothing moved for longer than the time limit.
    #[error("no progress within the time limit: waiting for rank {rank} in step {step}")]
    Stalled {
        /// The rank that this rank waits for. It is this rank itself if it waits for its device, or
        /// has too few frames; then no peer is to blame.
        rank: Rank,
        /// Step of this rank's program. While survivors form a group: the tag of a missing fence.
        step: usize,
    },
    /// The call did not finish before its deadline.
    #[error("the deadline passed: waiting for rank {rank} in step {step}")]
    Deadline {
        /// The rank that this rank waits for, or this rank itself if it waits for no peer.
        rank: Rank,
        /// Step of this rank's program.
        step: usize,
    },
    /// Another rank aborted this call or an earlier one, or went on to another group.
    #[error("rank {rank} gave the operation up: {}", reason.description(*culprit))]
    Aborted {
        /// The rank that sent the notice. It may itself have learned of the failure from a third
        /// rank.
        rank: Rank,
        /// Origin of the failure: the rank that aborted first, or the rank that it blames.
        culprit: Rank,
        /// The failure at `culprit`.
        reason: AbortReason,
    },
    /// An earlier call on this communicator failed.
    #[error("an earlier call failed; shrink the communicator, or make a new one")]
    Poisoned,
    /// As many calls are running as the communicator was made for.
    #[error("{max} calls are under way already: wait for one, or make the communicator for more")]
    TooManyCalls {
        /// Number of calls that the communicator was made for.
        max: usize,
    },
    /// The transport has too few free channels for another communicator.
    #[error(
        "calls need {need} channels, {have} are free: drop other communicators, or use a transport \
        with more channels and frames"
    )]
    TooFewChannels {
        /// Number of channels that the communicator needs.
        need: usize,
        /// Number of channels that are free on all of its ranks and have frames.
        have: usize,
    },
    /// The communicator was made without a channel for messages in progress.
    #[error("messages under way need a channel: make communicators with Config::messages")]
    NoMessages,
    /// As many messages are already being sent, or received, as the communicator allows.
    #[error("{max} messages are under way already: wait for one")]
    TooManyMessages {
        /// Largest number in each direction.
        max: usize,
    },
    /// The survivors went on without this rank.
    #[error(
        "rank {rank} and others went on without this rank, which came late or could not be reached"
    )]
    Excluded {
        /// One of the survivors.
        rank: Rank,
    },
    /// The transport has too many ranks for its survivors to agree on a group. The communicator
    /// that was to be shrunk is gone.
    #[error("cannot shrink a transport of {size} ranks; the most is {max}")]
    TooManyRanks {
        /// Number of ranks of the transport.
        size: usize,
        /// Largest number of ranks that can agree.
        max: usize,
    },
    /// Survivors gave up too many groups before one was formed, or a rank claims so. The next
    /// group's [`epoch`](crate::Communicator::epoch) would count as an earlier one.
    #[error("survivors gave up {max} groups before one was formed; make a new transport")]
    TooManyGroups {
        /// Largest number of groups.
        max: u16,
    },
    /// A prepared call was started on buffers of another kind (in place, separate, read only), or
    /// on another communicator.
    #[error(
        "the call was prepared for buffers of another kind or another communicator; prepare it anew"
    )]
    NotAsPrepared,
    /// The operation has already returned its result.
    #[error("the operation is already finished")]
    Finished,
}

impl Error {
    /// Returns whether the call itself was wrong. Then nothing is running, and the call can be
    /// repeated on the same communicator.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Bound(_)
                | Self::Root { .. }
                | Self::Peer { .. }
                | Self::ToItself { .. }
                | Self::Length { .. }
                | Self::OwnCount { .. }
                | Self::Unsupported { .. }
                | Self::NoBound { .. }
                | Self::ArraysOnly { .. }
                | Self::Setting { .. }
                | Self::TooManyBits { .. }
                | Self::NoAverage { .. }
                | Self::NoSuchCall { .. }
                | Self::NoIntegerAverage { .. }
                | Self::NoLattice { .. }
                | Self::NoRoomToRound
                | Self::Fill(_)
                | Self::NotOnDevice { .. }
                | Self::FeedbackOnResult
                | Self::FrameTooSmall { .. }
                | Self::TooFewFrames { .. }
                | Self::TooManyCalls { .. }
                | Self::TooFewChannels { .. }
                | Self::NoMessages
                | Self::TooManyMessages { .. }
                | Self::NotAsPrepared
                | Self::Finished
        )
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Codec(CodecError::Decode(error))
    }
}

/// Formats the peer that a failure concerns, if any, as part of a sentence.
struct ToPeer(Option<Rank>);

impl fmt::Display for ToPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |peer| write!(f, " to rank {peer}"))
    }
}

/// One of the caller's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Buffer {
    /// Values to send.
    Send,
    /// Buffer for the result.
    Recv,
    /// Lengths of the ranks' shares: one for each rank.
    Counts,
    /// State of error feedback: one entry for each value of this rank's input.
    Feedback,
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Recv => "receive",
            Self::Counts => "counts",
            Self::Feedback => "feedback",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_error_that_takes_the_communicator_is_not_one_of_use() {
        assert!(!Error::TooManyRanks { size: 5000, max: 4096 }.is_usage());
        assert!(!Error::TooManyGroups { max: 9 }.is_usage());
        assert!(Error::Finished.is_usage());
    }

    #[test]
    fn a_failure_of_the_transport_names_the_peer_if_there_is_one() {
        let words = |peer| Error::Transport { kind: TransportErrorKind::Timeout, peer }.to_string();
        assert_eq!(
            [words(Some(Rank(3))), words(None)],
            [
                "the transport to rank 3 failed: the network timed out",
                "the transport failed: the network timed out"
            ]
        );
    }
}
