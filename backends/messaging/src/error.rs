//! What can go wrong at an endpoint, or below it.

use foldwire::transport::{
    MAX_CHANNELS, MIN_FRAME_BYTES, Rank, Tag, TransportError, TransportErrorKind as Kind,
};

/// Why an [`Endpoint`](crate::Endpoint) refused; `E` is the message layer's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The peer has ended.
    #[error("rank {peer} has ended; look for its error or its early return")]
    PeerLost {
        /// The rank that is gone.
        peer: Rank,
    },
    /// The link is full.
    #[error("the link to rank {to} with tag {} is full; send after poll_ready said so", tag.0)]
    NotReady {
        /// The receiving rank.
        to: Rank,
        /// The stream.
        tag: Tag,
    },
    /// There is no such rank.
    #[error("rank {rank} is out of range; the group has {size} ranks")]
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// Ranks in the group.
        size: usize,
    },
    /// There is no such tag.
    #[error("tag {} is out of range; tags are below {}", tag.0, MAX_CHANNELS * Tag::COUNT)]
    NoSuchTag {
        /// The tag asked for.
        tag: Tag,
    },
    /// More bytes were to be sent than a frame holds (or, with [`Tag::CONTROL`], a notice).
    #[error("{need} bytes do not fit a frame of {have}; raise Options::frame_bytes")]
    TooLong {
        /// Bytes to be sent.
        need: usize,
        /// Bytes that fit.
        have: usize,
    },
    /// Frames of this size cannot be used.
    #[error("frames of {have} bytes are too small; use at least {MIN_FRAME_BYTES}")]
    FrameTooSmall {
        /// The bytes asked for.
        have: usize,
    },
    /// Another process made the endpoint.
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
