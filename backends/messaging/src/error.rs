//! Errors of an endpoint and of the message layer below it.

use foldwire::transport::{
    MAX_CHANNELS, MIN_FRAME_BYTES, Rank, Tag, TransportError, TransportErrorKind as Kind,
};

/// Error of an [`Endpoint`](crate::Endpoint). `E` is the message layer's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The peer has ended.
    #[error("rank {peer} has ended; look for its error or its early return")]
    PeerLost {
        /// The rank that has ended.
        peer: Rank,
    },
    /// The link is full.
    #[error(
        "the link to rank {to} with tag {} is full; send only after poll_ready has returned Ready",
        tag.0
    )]
    NotReady {
        /// The receiving rank.
        to: Rank,
        /// The tag of the link.
        tag: Tag,
    },
    /// The rank is outside the group.
    #[error("rank {rank} is out of range; the group has {size} ranks")]
    NoSuchRank {
        /// The requested rank.
        rank: Rank,
        /// Number of ranks in the group.
        size: usize,
    },
    /// The tag is out of range.
    #[error("tag {} is out of range; tags are below {}", tag.0, MAX_CHANNELS * Tag::COUNT)]
    NoSuchTag {
        /// The requested tag.
        tag: Tag,
    },
    /// The message is longer than a frame or, with [`Tag::CONTROL`], than a notice may be.
    #[error("{need} bytes do not fit a frame of {have}; raise Options::frame_bytes")]
    TooLong {
        /// Length of the message in bytes.
        need: usize,
        /// Longest possible message in bytes.
        have: usize,
    },
    /// The frame was allocated by another endpoint.
    #[error(
        "the frame belongs to another endpoint; send frames that this one's poll_frame returned"
    )]
    ForeignFrame,
    /// The configured frame size is too small.
    #[error("frames of {have} bytes are too small; use at least {MIN_FRAME_BYTES}")]
    FrameTooSmall {
        /// The configured frame size in bytes.
        have: usize,
    },
    /// The endpoint belongs to another process: this one was forked off it.
    #[error(
        "this process was forked off the one that made the endpoint; only that one may use it, so \
         join after the fork, or leave it to the parent"
    )]
    OtherProcess,
    /// The message layer failed.
    #[error(transparent)]
    Net(#[from] E),
}

impl<E: TransportError> TransportError for Error<E> {
    fn kind(&self) -> Kind {
        match self {
            Self::PeerLost { .. } => Kind::PeerLost,
            Self::OtherProcess => Kind::OtherProcess,
            Self::Net(error) => error.kind(),
            Self::NotReady { .. }
            | Self::NoSuchRank { .. }
            | Self::NoSuchTag { .. }
            | Self::TooLong { .. }
            | Self::ForeignFrame
            | Self::FrameTooSmall { .. } => Kind::Misuse,
        }
    }

    fn peer(&self) -> Option<Rank> {
        match *self {
            Self::PeerLost { peer } => Some(peer),
            Self::NotReady { to, .. } => Some(to),
            Self::NoSuchRank { rank, .. } => Some(rank),
            Self::Net(ref error) => error.peer(),
            _ => None,
        }
    }
}
