//! What can go wrong once the ranks are joined, and while they join.

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};

use crate::Errno;
use crate::check::Missing;

/// Why a [`Fabric`](crate::Fabric) failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer has ended.
    #[error("rank {peer} has ended; look for its error or its early return")]
    PeerLost {
        /// The rank that is gone.
        peer: Rank,
    },
    /// A message was longer than the buffer that was posted for it.
    #[error(
        "a message of rank {from} did not fit its buffer; give all ranks the same Options::frame_bytes"
    )]
    Truncated {
        /// The sender.
        from: Rank,
    },
    /// A message has no mark, or more bytes than there was room for.
    #[error("a message of rank {from} makes no sense; give all ranks the same version of Foldwire")]
    Malformed {
        /// The sender, as far as it can be told.
        from: Rank,
    },
    /// The provider failed to send or receive.
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
    /// There is no memory for a buffer, or none that the provider can register.
    #[error(
        "no memory for a buffer of {need} bytes ({errno}); use smaller frames, or raise `ulimit -l`"
    )]
    NoMemory {
        /// Bytes asked for.
        need: usize,
        /// libfabric's reason.
        errno: Errno,
    },
    /// A buffer of another endpoint, a rank out of range, or more bytes than the buffer has.
    #[error("a buffer of another endpoint, a rank out of range, or more bytes than the buffer has")]
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

/// Why ranks could not [join](crate::join).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The exchange of addresses failed.
    #[error("the bootstrap failed")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The provider that was asked for cannot be used here.
    #[error("libfabric's provider {provider} cannot be used: {missing}")]
    Unavailable {
        /// Its name.
        provider: String,
        /// What is missing.
        missing: Missing,
    },
    /// None of the providers that are tried can be used here.
    #[error("no provider of libfabric can be used here; `foldwire info` says why")]
    NoProvider,
    /// Another rank has no provider that this one has too, or was told to use another.
    #[error("rank {rank} offers {there}, this one {here}; choose a provider that all have")]
    NothingInCommon {
        /// The other rank.
        rank: Rank,
        /// Its providers.
        there: String,
        /// Ours.
        here: String,
    },
    /// The ranks are on several hosts, but one listens on the loopback interface.
    #[error(
        "rank {rank} listens on the loopback address, which other hosts cannot reach; name the network on all \
         ranks with FOLDWIRE_IFACE (or Settings::interface) or FOLDWIRE_ADDRESS (or Settings::address)"
    )]
    OnlyLoopback {
        /// The rank.
        rank: Rank,
    },
    /// Shared memory was asked for between hosts.
    #[error("rank {rank} is on another host; shared memory joins ranks on one host only")]
    OtherHost {
        /// A rank elsewhere.
        rank: Rank,
    },
    /// Shared memory was asked for within a process.
    #[error(
        "rank {rank} shares a process with another; libfabric's shared memory is for one rank in each process (use \
         foldwire-threads, or another provider)"
    )]
    SameProcess {
        /// One of the ranks.
        rank: Rank,
    },
    /// Frames have other sizes on another rank.
    #[error("rank {rank} has frames of {there} bytes, this one of {here}; all need the same")]
    FramesDiffer {
        /// The other rank.
        rank: Rank,
        /// Its bytes.
        there: usize,
        /// Ours.
        here: usize,
    },
    /// Another rank said something that makes no sense; it may run another version of Foldwire.
    #[error("rank {rank} speaks another language; give all ranks the same version of Foldwire")]
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
    /// Another rank has no provider, could not open its endpoint, or was told an address that its
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
