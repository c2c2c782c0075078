//! Errors of a joined group, and errors while ranks join.

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};

use crate::Errno;
use crate::check::Missing;

/// Error of a [`Fabric`](crate::Fabric).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer has ended.
    #[error("rank {peer} has ended; look for its error or its early return")]
    PeerLost {
        /// The rank that has ended.
        peer: Rank,
    },
    /// A message was longer than the buffer posted for it.
    #[error(
        "a message of rank {from} did not fit its buffer; give all ranks the same \
         Options::frame_bytes"
    )]
    Truncated {
        /// The sender.
        from: Rank,
    },
    /// A message lacks the mark at its end (`ffi/memory.rs`), or is longer than its buffer.
    #[error("a message of rank {from} is malformed; give all ranks the same version of Foldwire")]
    Malformed {
        /// The sender, according to the message's tag.
        from: Rank,
    },
    /// The provider failed to send a message to the peer, or to receive one from it.
    #[error("libfabric could not carry a message of or for rank {peer}: {errno}")]
    Message {
        /// The other rank.
        peer: Rank,
        /// libfabric's reason.
        errno: Errno,
    },
    /// The provider failed as a whole.
    #[error("libfabric failed: {errno}")]
    Layer {
        /// libfabric's reason.
        errno: Errno,
    },
    /// No memory for a buffer, or no memory that the provider can register.
    #[error(
        "no memory for a buffer of {need} bytes ({errno}); use smaller frames, or raise `ulimit -l`"
    )]
    NoMemory {
        /// Length of the buffer in bytes.
        need: usize,
        /// libfabric's reason.
        errno: Errno,
    },
    /// The buffer belongs to another endpoint, the rank is out of range, or the message is longer
    /// than the buffer.
    #[error(
        "invalid send or receive: the buffer belongs to another endpoint, the rank is out of \
         range, or the message is longer than the buffer"
    )]
    Misuse,
}

impl TransportError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::PeerLost { .. } => Kind::PeerLost,
            Self::Truncated { .. } => Kind::Truncated,
            Self::NoMemory { .. } => Kind::OutOfFrames,
            Self::Misuse => Kind::Misuse,
            Self::Malformed { .. } | Self::Message { .. } | Self::Layer { .. } => Kind::Other,
        }
    }

    fn peer(&self) -> Option<Rank> {
        match *self {
            Self::PeerLost { peer } | Self::Message { peer, .. } => Some(peer),
            Self::Truncated { from } | Self::Malformed { from } => Some(from),
            _ => None,
        }
    }
}

/// Error while ranks [join](crate::join).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The exchange of addresses failed.
    #[error("the bootstrap failed")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The named provider cannot be used here.
    #[error("libfabric's provider {provider} cannot be used: {missing}")]
    Unavailable {
        /// Name of the provider.
        provider: String,
        /// Missing capability of the provider.
        missing: Missing,
    },
    /// No provider can be used here, and none was named.
    #[error("no provider of libfabric can be used here; `foldwire info` says why")]
    NoProvider,
    /// The ranks have no usable provider in common, or different ones were named.
    #[error(
        "rank {rank} offers the providers {there}, this rank {here}; choose one that all ranks have"
    )]
    NothingInCommon {
        /// The other rank.
        rank: Rank,
        /// Providers of the other rank.
        there: String,
        /// Providers of this rank.
        here: String,
    },
    /// The ranks are on several hosts, but one listens on the loopback interface.
    #[error(
        "rank {rank} listens on the loopback address, which other hosts cannot reach; name the \
         network on all ranks with FOLDWIRE_IFACE (or Settings::interface) or FOLDWIRE_ADDRESS (or \
         Settings::address)"
    )]
    OnlyLoopback {
        /// The rank.
        rank: Rank,
    },
    /// Shared memory was selected for ranks on several hosts.
    #[error("rank {rank} is on another host; shared memory joins ranks on one host only")]
    OtherHost {
        /// A rank on another host.
        rank: Rank,
    },
    /// Shared memory was selected for ranks within one process.
    #[error(
        "rank {rank} shares a process with another; libfabric's shared memory is for one rank in \
         each process (use foldwire-threads, or another provider)"
    )]
    SameProcess {
        /// One of the ranks.
        rank: Rank,
    },
    /// The frame size differs between ranks.
    #[error(
        "rank {rank} has frames of {there} bytes, this rank of {here}; give all ranks the same size"
    )]
    FramesDiffer {
        /// The other rank.
        rank: Rank,
        /// Frame size of the other rank in bytes.
        there: usize,
        /// Frame size of this rank in bytes.
        here: usize,
    },
    /// Another rank sent a join message that this version cannot read.
    #[error(
        "rank {rank} sent an unreadable join message; give all ranks the same version of Foldwire"
    )]
    Unintelligible {
        /// The rank.
        rank: Rank,
    },
    /// The endpoint could not be opened.
    #[error("libfabric's provider {provider} did not open an endpoint: {errno}")]
    Open {
        /// The provider.
        provider: String,
        /// libfabric's reason.
        errno: Errno,
    },
    /// Another rank has no provider, could not open its endpoint, or received an address that its
    /// provider does not accept.
    #[error("rank {rank} could not join; its own error says why")]
    PeerFailed {
        /// The rank.
        rank: Rank,
    },
    /// The provider does not accept the address of a rank.
    #[error("libfabric does not accept the address of rank {rank}: {errno}")]
    Address {
        /// The rank.
        rank: Rank,
        /// libfabric's reason.
        errno: Errno,
    },
    /// The transport could not be set up.
    #[error(transparent)]
    Endpoint(#[from] foldwire_messaging::Error<Error>),
}
