//! Errors of the threads backend.

use foldwire::transport::{MAX_CHANNELS, Rank, Tag, TransportError, TransportErrorKind};

/// Error of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer has dropped its endpoint: it returned, or it panicked.
    #[error("rank {peer} has dropped its endpoint; look for its panic or early return")]
    PeerLost {
        /// The rank that is gone.
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
        /// The tag.
        tag: Tag,
    },
    /// The rank does not exist.
    #[error("rank {rank} is out of range; the group has {size} ranks")]
    NoSuchRank {
        /// The requested rank.
        rank: Rank,
        /// Ranks in the group.
        size: u32,
    },
    /// The tag does not exist.
    #[error("tag {} is out of range; tags are below {}", tag.0, MAX_CHANNELS * Tag::COUNT)]
    NoSuchTag {
        /// The requested tag.
        tag: Tag,
    },
    /// The message is longer than a frame.
    #[error("{need} bytes do not fit a frame of {have}; raise World::frame_bytes")]
    TooLong {
        /// Bytes of the message.
        need: usize,
        /// Bytes in a frame.
        have: usize,
    },
    /// The frame belongs to another world.
    #[error("the frame comes from another world; take one from this endpoint's poll_frame")]
    ForeignFrame,
    /// The process has no memory for another frame.
    #[error("no memory for a frame of {need} bytes; lower World::frame_bytes or free memory")]
    OutOfMemory {
        /// Requested bytes.
        need: usize,
    },
}

impl TransportError for Error {
    fn kind(&self) -> TransportErrorKind {
        match self {
            Self::PeerLost { .. } => TransportErrorKind::PeerLost,
            Self::OutOfMemory { .. } => TransportErrorKind::OutOfFrames,
            Self::NotReady { .. }
            | Self::NoSuchRank { .. }
            | Self::NoSuchTag { .. }
            | Self::TooLong { .. }
            | Self::ForeignFrame => TransportErrorKind::Misuse,
        }
    }

    fn peer(&self) -> Option<Rank> {
        match *self {
            Self::PeerLost { peer } => Some(peer),
            Self::NotReady { to, .. } => Some(to),
            Self::NoSuchRank { rank, .. } => Some(rank),
            _ => None,
        }
    }
}
