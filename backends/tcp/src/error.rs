//! What can go wrong over TCP.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};

use crate::MAX_STREAMS;
use crate::header::ProtocolViolation;

/// Why the message layer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer has ended. [`Tcp::loss`](crate::Tcp::loss) says how.
    #[error("rank {peer} has ended, or its connection has; look at what it said last")]
    PeerLost {
        /// The rank.
        peer: Rank,
    },
    /// A message did not fit the buffer of its receive.
    #[error("a message of rank {from} has {n_bytes} bytes, its receive {have}")]
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
        /// Bytes asked for.
        need: usize,
    },
    /// A rank out of range, or more bytes than the buffer has.
    #[error("a rank out of range, or more bytes than the buffer has")]
    Misuse,
    /// The system cannot tell which connections are ready.
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

/// How a rank was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerLoss {
    /// It said goodbye.
    #[error("it ended in good order")]
    Left,
    /// A connection ended without a goodbye: its process has, or its machine closed it.
    #[error("its connection ended without a goodbye")]
    Ended,
    /// The system gave a connection up: reset by the peer, or silent for too long.
    #[error("its connection broke ({0})")]
    Broken(io::ErrorKind),
    /// It sent what no rank would, so its connections were closed.
    #[error("it sent {0}")]
    ProtocolViolation(#[from] ProtocolViolation),
    /// There is no memory for what it sends.
    #[error("no memory for what it sends")]
    NoMemory,
}

/// Why ranks could not [join](crate::join).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The exchange of addresses failed.
    #[error("the bootstrap failed")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Not a number of streams.
    #[error("{have} streams were asked for; take 1 to {MAX_STREAMS}")]
    Streams {
        /// The number asked for.
        have: usize,
    },
    /// The interface is not there, or has no address.
    #[error("this host has no interface {name} with an address; name another, or an address")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// Strangers could connect.
    #[error(
        "ranks are to listen at {address}, where strangers can reach them; set FOLDWIRE_TOKEN (or \
         Settings::token) to the same secret on every rank, such as the output of `openssl rand \
         -hex 16`"
    )]
    NoToken {
        /// Where this rank was to listen.
        address: IpAddr,
    },
    /// Encryption was asked for, and this program has none.
    #[error("this program was built without encryption; build foldwire-tcp with feature noise")]
    NoEncryption,
    /// The system gave no random numbers.
    #[error("the system gave no random numbers ({0}); is /dev/urandom there?")]
    NoRandomNumbers(getrandom::Error),
    /// This rank cannot listen, or open its connections.
    #[error(
        "cannot use sockets at {address} ({source}); is it an address of this host, and are \
         enough files allowed (ulimit -n)?"
    )]
    Socket {
        /// Where it was to listen.
        address: IpAddr,
        /// Why not.
        source: io::Error,
    },
    /// The ranks are on several hosts, but one listens on the loopback interface.
    #[error(
        "rank {rank} listens on the loopback address, which other hosts cannot reach; name the \
         network on all ranks with FOLDWIRE_IFACE (or Settings::interface) or FOLDWIRE_ADDRESS \
         (or Settings::address)"
    )]
    OnlyLoopback {
        /// The rank.
        rank: Rank,
    },
    /// Another rank has other settings.
    #[error(
        "rank {rank} has other settings: {there}; here: {here}. All need the same frames, credit, \
         streams and encryption"
    )]
    SettingsDiffer {
        /// The other rank.
        rank: Rank,
        /// Its settings.
        there: String,
        /// Ours.
        here: String,
    },
    /// Another rank said something that makes no sense; it may run another version of Foldwire.
    #[error("rank {rank} speaks another language; give all ranks the same version of Foldwire")]
    Unintelligible {
        /// The rank.
        rank: Rank,
    },
    /// Another rank has another token.
    #[error(
        "rank {rank} has another token; set FOLDWIRE_TOKEN (or Settings::token) alike everywhere"
    )]
    TokenDiffers {
        /// The other rank.
        rank: Rank,
    },
    /// Who answers at a rank's address does not know the token.
    #[error(
        "whoever answers for rank {rank} does not know this rank's token; set FOLDWIRE_TOKEN \
         alike everywhere"
    )]
    Impostor {
        /// The rank.
        rank: Rank,
    },
    /// A rank's address does not answer, or turns this rank away.
    #[error(
        "rank {rank} cannot be reached ({source}); does a firewall let it through, and is \
         FOLDWIRE_TOKEN the same everywhere?"
    )]
    Unreachable {
        /// The rank.
        rank: Rank,
        /// Why not.
        source: io::Error,
    },
    /// Connections are missing when time is up.
    #[error(
        "rank {rank} did not connect within {limit:?} ({n_refused} others were turned away); do \
         firewalls let ranks through?"
    )]
    Missing {
        /// The first rank that is missing.
        rank: Rank,
        /// The limit.
        limit: Duration,
        /// Connections that could not show that they were a rank's.
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
