//! What can go wrong on a simulated network.

use foldwire::transport::{Rank, Tag, TransportError, TransportErrorKind};

/// Why an [`Endpoint`](crate::Endpoint) refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer ended, died, or cannot be reached any more, and this rank has noticed.
    #[error("rank {peer} is gone")]
    PeerLost {
        /// The rank that is gone.
        peer: Rank,
    },
    /// This rank itself is dead; what it does has no effect.
    #[error("this rank died")]
    Dead,
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
    #[error("tag {} is out of range; tags are below {n_tags}; raise Net::channels", tag.0)]
    NoSuchTag {
        /// The tag asked for.
        tag: Tag,
        /// Tags of all channels.
        n_tags: usize,
    },
    /// More bytes were to be sent than a frame holds.
    #[error("{need} bytes do not fit a frame of {have}; raise Net::frame_bytes")]
    TooLong {
        /// Bytes to be sent.
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
