//! What can go wrong in a call, as small values that say which rank and how much.

use crate::bound::BoundError;
use crate::codec::{CodecError, CodecId, DecodeError};
use crate::element::DType;
use crate::schedule::Collective;
use crate::transport::{Rank, TransportErrorKind};
use core::fmt;

mod disagreement;
mod frame;
mod reason;

pub use disagreement::{Field, Value};
pub use frame::FrameError;
pub use reason::AbortReason;

/// Why a call failed.
///
/// Errors of use ([`is_usage`](Self::is_usage)) leave nothing under way: correct the call and
/// repeat it. They are found before anything is sent, but for a bound on the result that turns out
/// too small for the data, which all ranks find together. Every other error of a call ends the
/// communicator: all other ranks are told, on a tag of its own
/// ([`Tag::CONTROL`](crate::Tag::CONTROL)), and later calls return [`Error::Poisoned`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bound cannot be used.
    #[error(transparent)]
    Bound(#[from] BoundError),
    /// A root that is no rank of the communicator.
    #[error("root {root} does not exist; the communicator has {size} ranks")]
    Root {
        /// The root given.
        root: Rank,
        /// Ranks there are.
        size: usize,
    },
    /// A peer that is no rank of the communicator.
    #[error("rank {rank} does not exist; the communicator has {size} ranks")]
    Peer {
        /// The rank given.
        rank: Rank,
        /// Ranks there are.
        size: usize,
    },
    /// A rank sends itself what it does not receive in the same exchange, or the other way around.
    #[error("a message to itself with tag {tag} needs a send and a receive in one exchange")]
    ToItself {
        /// The tag.
        tag: u32,
    },
    /// A buffer of the wrong length.
    #[error("the {buffer} buffer has {have} values, {need} are needed here")]
    Length {
        /// Which buffer.
        buffer: Buffer,
        /// Values needed.
        need: usize,
        /// Values there.
        have: usize,
    },
    /// The schedule cannot do this collective; or not with lengths that only two ranks know, as
    /// `all_to_all_v` has them, because by it ranks pass on what is others'.
    #[error("schedule {schedule} has no {}; choose another or leave the choice open", collective.name())]
    Unsupported {
        /// The schedule's name.
        schedule: &'static str,
        /// The collective asked for.
        collective: Collective,
    },
    /// The codec keeps no bound: what it loses its setting says.
    #[error("codec {} keeps no bound; leave it out, or choose another codec", codec.name())]
    NoBound {
        /// The codec asked for.
        codec: CodecId,
    },
    /// The codec has no such setting.
    #[error("codec {} has no setting {setting} for {dtype}; 0 is its default", codec.name())]
    Setting {
        /// The codec asked for.
        codec: CodecId,
        /// Of the values.
        dtype: DType,
        /// The setting asked for.
        setting: u16,
    },
    /// So many low bits are not dropped: a bit of the fraction must be left.
    #[error("{n_bits} low bits are too many to drop of {dtype}; {most} is the most")]
    TooManyBits {
        /// The type of the values.
        dtype: DType,
        /// How many were to be dropped.
        n_bits: u32,
        /// The most there can be.
        most: u32,
    },
    /// [`Call::of`](crate::Call::of) was given shares or buffers that the collective does not have.
    #[error("no {} has such shares, or such buffers on this rank", collective.name())]
    NoSuchCall {
        /// The collective asked for.
        collective: Collective,
    },
    /// There is no average of the ranks up to one: divide a sum.
    #[error("a {} has no average; divide a sum by the number of ranks before", collective.name())]
    NoAverage {
        /// The collective asked for.
        collective: Collective,
    },
    /// An average of integers would have to be rounded: divide a sum, or average floats.
    #[error("{dtype} values have no average; divide their sum, or make them floats")]
    NoIntegerAverage {
        /// Their type.
        dtype: DType,
    },
    /// The codec has no lattice that values could be rounded to without bias, or of which it were
    /// known what rounding loses.
    #[error(
        "codec {} has no lattice to round to; choose another, or round to nearest, without \
         feedback",
        codec.name()
    )]
    NoLattice {
        /// The codec asked for.
        codec: CodecId,
    },
    /// Unbiased rounding in a call that has no room for rounded values: see
    /// [`Rounding`](crate::Rounding) for those that have.
    #[error(
        "this call has no room for values rounded without bias: all-reduces and all-gathers have, \
         and reduce-scatters in place or to the front; neither prepared calls nor messages"
    )]
    NoRoomToRound,
    /// Error feedback carries errors from call to call, so no bound on the result of one can be
    /// kept.
    #[error("with error feedback a call's result has no bound; bound the operands")]
    FeedbackOnResult,
    /// Frames are too small for even a single value.
    #[error("a frame has {have} bytes, {need} are needed")]
    FrameTooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The transport's pool has too few frames for the lanes.
    #[error(
        "the transport has {have} frames, {lanes} lanes need {need}: enlarge its pool, or set Config::lanes lower on all ranks"
    )]
    TooFewFrames {
        /// Lanes of the communicator.
        lanes: usize,
        /// Frames that they can need at the same time.
        need: usize,
        /// Frames there.
        have: usize,
    },
    /// Two ranks called with different arguments.
    #[error(
        "rank {rank} disagrees on the {field}: {} there, {} here",
        theirs.beside(*ours), ours.beside(*theirs)
    )]
    Mismatch {
        /// Who disagrees.
        rank: Rank,
        /// On what.
        field: Field,
        /// What this rank says.
        ours: Value,
        /// What the other says.
        theirs: Value,
    },
    /// A message that is none of ours, or was damaged.
    #[error("message from rank {rank}: {error}")]
    Frame {
        /// Who sent it.
        rank: Rank,
        /// What is wrong.
        error: FrameError,
    },
    /// A segment could not be encoded, decoded or combined.
    #[error(transparent)]
    Codec(CodecError),
    /// The transport failed.
    #[error("the transport{} failed: {kind}", ToPeer(*peer))]
    Transport {
        /// What kind of failure.
        kind: TransportErrorKind,
        /// The peer concerned, if any.
        peer: Option<Rank>,
    },
    /// The library contradicts itself: a defect of it, or of a schedule or codec that is not its
    /// own. Please report it.
    #[error("a defect of Foldwire, or of a schedule or codec of yours; please report it")]
    Internal,
    /// Nothing moved for longer than the time limit.
    #[error("no progress within the time limit: waiting for rank {rank} in step {step}")]
    Stalled {
        /// Whom we wait for; this rank itself if it has too few frames, for which no peer is to
        /// blame.
        rank: Rank,
        /// The step of our program; while survivors form a group, the tag whose fence is missing.
        step: usize,
    },
    /// The call took longer than the caller allowed it.
    #[error("the deadline passed: waiting for rank {rank} in step {step}")]
    Deadline {
        /// Whom we wait for; this rank itself if for nobody.
        rank: Rank,
        /// The step of our program.
        step: usize,
    },
    /// Another rank gave up this call or one before it, or has gone on to another group.
    #[error("rank {rank} gave the operation up: {}", reason.description(*culprit))]
    Aborted {
        /// That rank. It may have heard itself of a third one.
        rank: Rank,
        /// Where it began: the rank that gave up first, or that the first to give up blames.
        culprit: Rank,
        /// What happened there.
        reason: AbortReason,
    },
    /// An earlier call on this communicator failed.
    #[error("an earlier call failed; shrink the communicator, or make a new one")]
    Poisoned,
    /// So many calls are under way on the communicator as it was made for.
    #[error("{max} calls are under way already: wait for one, or make the communicator for more")]
    TooManyCalls {
        /// Calls that it was made for.
        max: usize,
    },
    /// The transport has no channels left for the calls of another communicator.
    #[error(
        "calls need {need} channels, {have} are free: drop other communicators, or use a transport with more channels and frames"
    )]
    TooFewChannels {
        /// Channels that the communicator needs.
        need: usize,
        /// Those that are free on all of its ranks, and for which there are frames.
        have: usize,
    },
    /// The communicator was made without a channel for messages that are under way.
    #[error("messages under way need a channel: make communicators with Config::messages")]
    NoMessages,
    /// So many messages that are sent, or received, are under way on the communicator as there may
    /// be.
    #[error("{max} messages are under way already: wait for one")]
    TooManyMessages {
        /// Most there may be, each way.
        max: usize,
    },
    /// The survivors go on without this rank.
    #[error(
        "rank {rank} and others went on without this rank, which came late or could not be reached"
    )]
    Excluded {
        /// One of those that go on.
        rank: Rank,
    },
    /// Survivors of so many ranks cannot agree. The communicator that was to be shrunk is gone.
    #[error("a transport of {size} ranks cannot be shrunk, only up to {max}")]
    TooManyRanks {
        /// Ranks of the transport.
        size: usize,
        /// Most there may be.
        max: usize,
    },
    /// Survivors have given up so many groups before one was formed, or a rank says so, that the
    /// next one's [`epoch`](crate::Communicator::epoch) would be taken for an earlier one.
    #[error("survivors gave up {max} groups before one was formed; make a new transport")]
    TooManyGroups {
        /// Most there may be.
        max: u16,
    },
    /// A prepared call is started on buffers of another kind (in place, apart, read only), or on
    /// another communicator.
    #[error(
        "the call was prepared for buffers of another kind or another communicator; prepare it anew"
    )]
    NotAsPrepared,
    /// The operation has already returned its result.
    #[error("the operation is already finished")]
    Finished,
}

impl Error {
    /// Whether the call itself was wrong: nothing is under way, and it can be repeated on the same
    /// communicator.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Bound(_)
                | Self::Root { .. }
                | Self::Peer { .. }
                | Self::ToItself { .. }
                | Self::Length { .. }
                | Self::Unsupported { .. }
                | Self::NoBound { .. }
                | Self::Setting { .. }
                | Self::TooManyBits { .. }
                | Self::NoAverage { .. }
                | Self::NoSuchCall { .. }
                | Self::NoIntegerAverage { .. }
                | Self::NoLattice { .. }
                | Self::NoRoomToRound
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

impl From<CodecError> for Error {
    fn from(error: CodecError) -> Self {
        Self::Codec(error)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Codec(CodecError::Decode(error))
    }
}

/// The peer that a failure concerns, if any, as a sentence has it.
struct ToPeer(Option<Rank>);

impl fmt::Display for ToPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |peer| write!(f, " to rank {peer}"))
    }
}

/// A buffer of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Buffer {
    /// Values to send.
    Send,
    /// Room for the result.
    Recv,
    /// The lengths of ranks' shares: one for each rank.
    Counts,
    /// What error feedback keeps: one for each of the rank's own values.
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
