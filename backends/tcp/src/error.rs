//! Errors of the TCP backend.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};

use crate::MAX_STREAMS;
use crate::header::ProtocolViolation;

/// Error of the message layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer is lost. [`Tcp::loss`](crate::Tcp::loss) returns the reason.
    #[error("rank {peer} has ended, or its connection broke; read its last output")]
    PeerLost {
        /// The rank.
        peer: Rank,
    },
    /// A message is longer than the buffer of its receive.
    #[error("a message from rank {from} has {n_bytes} bytes, but its receive buffer only {have}")]
    Truncated {
        /// The sender.
        from: Rank,
        /// Bytes of the message.
        n_bytes: usize,
        /// Bytes of the buffer.
        have: usize,
    },
    /// There is no memory for a buffer.
    #[error("no memory for a buffer of {need} bytes; use smaller frames")]
    NoMemory {
        /// Bytes requested.
        need: usize,
    },
    /// A rank is out of range, a message is longer than its buffer, or a receive is already posted.
    #[error("a rank is out of range, a message exceeds its buffer, or a receive is already posted")]
    Misuse,
    /// The system cannot report which connections are ready.
    #[error("the system cannot watch connections ({0})")]
    System(io::ErrorKind),
}

impl TransportError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::PeerLost { .. } => Kind::PeerLost,
            Self::Truncated { .. } => Kind::Truncated,
            Self::NoMemory { .. } => Kind::OutOfFrames,
            Self::Misuse => Kind::Misuse,
            Self::System(_) => Kind::Other,
        }
    }

    fn peer(&self) -> Option<Rank> {
        match *self {
            Self::PeerLost { peer } => Some(peer),
            Self::Truncated { from, .. } => Some(from),
            _ => None,
        }
    }
}

/// Reason for which a rank was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerLoss {
    /// The rank said goodbye.
    #[error("it left with a goodbye")]
    Left,
    /// A connection ended without a goodbye: the process ended, or its machine closed the
    /// connection.
    #[error("its connection ended without a goodbye")]
    Ended,
    /// A connection failed: the peer reset it, or did not respond for too long.
    #[error("its connection broke ({0})")]
    Broken(io::ErrorKind),
    /// The rank violated the protocol, so its connections were closed.
    #[error("it sent {0}")]
    ProtocolViolation(#[from] ProtocolViolation),
    /// There is no memory for the rank's messages.
    #[error("no memory for its messages")]
    NoMemory,
    /// The rank has not connected, although the plan of the group has it.
    #[error("it did not connect")]
    Absent,
}

/// Failure to [join](crate::join).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The plan of a new group does not have this process's last offer.
    #[error("the plan of the group does not have this process; offer it again")]
    NotOffered,
    /// The exchange of addresses failed.
    #[error("the bootstrap failed")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The number of streams is 0 or too large.
    #[error(
        "{have} streams are set; set FOLDWIRE_STREAMS (or Settings::streams) to 1 to {MAX_STREAMS}"
    )]
    Streams {
        /// The number that was set.
        have: usize,
    },
    /// The interface does not exist, or has no address.
    #[error(
        "this host has no network interface {name} with an address; set FOLDWIRE_IFACE to another, \
         or FOLDWIRE_ADDRESS to an address"
    )]
    NoInterface {
        /// Name of the interface.
        name: String,
    },
    /// The address is the one that stands for all addresses of a host, which names none to others.
    #[error(
        "other ranks cannot connect to {address}; set FOLDWIRE_ADDRESS (or Settings::address) to \
         one address of this host"
    )]
    Unspecified {
        /// The address.
        address: IpAddr,
    },
    /// Other programs could connect, and there is no token.
    #[error(
        "ranks would listen at {address}, which other programs can reach; set FOLDWIRE_TOKEN (or \
         Settings::token) to the same secret on every rank, such as the output of `openssl rand \
         -hex 16`"
    )]
    NoToken {
        /// Address at which this rank would listen.
        address: IpAddr,
    },
    /// Encryption is set, but this program was built without it.
    #[error("this program was built without encryption; build foldwire-tcp with feature noise")]
    NoEncryption,
    /// The system gave no random numbers.
    #[error("the system gave no random numbers ({0}); is /dev/urandom there?")]
    NoRandomNumbers(getrandom::Error),
    /// This rank cannot listen, or cannot set up its connections.
    #[error(
        "cannot use sockets at {address} ({source}); is it an address of this host, and is the \
         limit of open files high enough (ulimit -n)?"
    )]
    Socket {
        /// Address at which this rank listens.
        address: IpAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The ranks are on several hosts, but one listens on loopback.
    #[error(
        "rank {rank} listens on the loopback address, which other hosts cannot reach; set the \
         network on all ranks with FOLDWIRE_IFACE (or Settings::interface) or FOLDWIRE_ADDRESS \
         (or Settings::address)"
    )]
    OnlyLoopback {
        /// The rank.
        rank: Rank,
    },
    /// Another rank has other settings.
    #[error(
        "rank {rank} has other settings: {there}; this rank: {here}. Set the same frames, credit, \
         streams and encryption on all ranks"
    )]
    SettingsDiffer {
        /// The other rank.
        rank: Rank,
        /// The other rank's settings.
        there: String,
        /// This rank's settings.
        here: String,
    },
    /// Another rank's offer, or its word that it is ready, cannot be read. The rank may run another
    /// version of Foldwire, or the message was changed on its way.
    #[error(
        "the connection data of rank {rank} cannot be read; run the same version of Foldwire on \
         all ranks"
    )]
    Unintelligible {
        /// The rank.
        rank: Rank,
    },
    /// Another rank has another token, or its offer was changed on its way.
    #[error(
        "rank {rank} has another token; set FOLDWIRE_TOKEN (or Settings::token) to the same secret \
         on all ranks"
    )]
    TokenDiffers {
        /// The other rank.
        rank: Rank,
    },
    /// The process at a rank's address does not know the session's secret.
    #[error(
        "the process that answers at the address of rank {rank} does not know the secret of this \
         session; does another program use the address?"
    )]
    Impostor {
        /// The rank.
        rank: Rank,
    },
    /// A rank's address does not answer, or closes the connection.
    #[error(
        "rank {rank} cannot be reached ({source}); does a firewall let it through, and is \
         FOLDWIRE_TOKEN the same everywhere?"
    )]
    Unreachable {
        /// The rank.
        rank: Rank,
        /// Error of the last attempt.
        source: io::Error,
    },
    /// Connections are missing at the time limit.
    #[error(
        "rank {rank} did not connect within {limit:?} ({n_refused} other connections were \
         refused); does a firewall block it?"
    )]
    Missing {
        /// The first rank that is missing.
        rank: Rank,
        /// The time limit.
        limit: Duration,
        /// Number of connections that did not prove that a rank had opened them.
        n_refused: usize,
    },
    /// Another rank could not join.
    #[error("rank {rank} could not join; its own error says why")]
    PeerFailed {
        /// The rank.
        rank: Rank,
    },
    /// The transport could not be set up.
    #[error(transparent)]
    Endpoint(#[from] foldwire_messaging::Error<Error>),
}
