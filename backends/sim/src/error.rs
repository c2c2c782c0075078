//! Errors of the simulated network.

use foldwire::transport::{Rank, Tag, TransportError, TransportErrorKind};

/// Error of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer ended, died, or cannot be reached any more, and this rank has noticed.
    #[error("rank {peer} is gone")]
    PeerLost {
        /// The rank that is gone.
        peer: Rank,
    },
    /// A fault killed this rank: its calls have no effect.
    #[error("a simulated fault killed this rank")]
    Dead,
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
        size: usize,
    },
    /// The tag does not exist.
    #[error("tag {} is out of range; tags are below {n_tags}; raise NetSettings::channels", tag.0)]
    NoSuchTag {
        /// The requested tag.
        tag: Tag,
        /// Tags of all channels.
        n_tags: usize,
    },
    /// The message is longer than a frame.
    #[error("{need} bytes do not fit a frame of {have}; raise NetSettings::frame_bytes")]
    TooLong {
        /// Bytes of the message.
        need: usize,
        /// Bytes in a frame.
        have: usize,
    },
}

impl TransportError for Error {
    fn kind(&self) -> TransportErrorKind {
        match self {
            Self::PeerLost { .. } => TransportErrorKind::PeerLost,
            Self::Dead => TransportErrorKind::Other,
            Self::NotReady { .. }
            | Self::NoSuchRank { .. }
            | Self::NoSuchTag { .. }
            | Self::TooLong { .. } => TransportErrorKind::Misuse,
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
