//! Errors of a launcher's PMI server, with advice.

use std::io;
use std::time::Duration;

use super::MAX_LINE_BYTES;

/// The launcher's PMI server does not tell where rank 0 is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmiError {
    /// `PMI_FD` is not an open socket of this process.
    #[error(
        "PMI_FD={number} is not a socket of this process ({kind}); a program between the launcher \
        and this one may have closed it. Start this program directly, or set \
        FOLDWIRE_ROOT=HOST:PORT and FOLDWIRE_TOKEN on every rank"
    )]
    Descriptor {
        /// The number that the variable holds.
        number: i32,
        /// The system's error.
        kind: io::ErrorKind,
    },
    /// Nothing answers at `PMI_PORT`.
    #[error("no PMI server at PMI_PORT={address} ({kind}); is the launcher still running?")]
    Unreachable {
        /// The variable's value.
        address: String,
        /// The system's error.
        kind: io::ErrorKind,
    },
    /// The server did not answer in time. At a barrier, other ranks may be missing.
    #[error(
        "the launcher's PMI server did not answer `{command}` within {limit:?}; {}",
        if *command == "barrier_in" { "a rank may be missing: read the ranks' output" } else {
            "another part of this process may use it too, such as MPI_Init"
        }
    )]
    Late {
        /// The command.
        command: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The server closed the connection.
    #[error(
        "the launcher's PMI server closed the connection at `{command}`; a process can use it \
        once, by MPI_Init or by Foldwire"
    )]
    Closed {
        /// The command.
        command: &'static str,
    },
    /// The system cannot use the connection.
    #[error("the connection to the launcher's PMI server failed at `{command}` ({kind})")]
    System {
        /// The command.
        command: &'static str,
        /// The system's error.
        kind: io::ErrorKind,
    },
    /// A line is too long.
    #[error("a line of the launcher's PMI server is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// A line is not text.
    #[error("the launcher's PMI server answered `{command}` with bytes that are not text")]
    NotText {
        /// The command.
        command: &'static str,
    },
    /// The server does not speak version 1 of the protocol.
    #[error(
        "the launcher's PMI server answered `{command}` with `{reply}`, which is not version 1 of \
        PMI's wire protocol; set FOLDWIRE_ROOT=HOST:PORT and FOLDWIRE_TOKEN on every rank instead"
    )]
    Unexpected {
        /// The command.
        command: &'static str,
        /// Beginning of the answer.
        reply: String,
    },
    /// The server reports a failure.
    #[error("the launcher's PMI server refused `{command}`: `{reply}`")]
    Refused {
        /// The command.
        command: &'static str,
        /// Beginning of the answer.
        reply: String,
    },
    /// The store's texts are too short.
    #[error("the launcher's PMI server has {name}={have}, but {need} characters are needed")]
    Room {
        /// The server's name of the limit.
        name: &'static str,
        /// Needed characters.
        need: usize,
        /// The server's limit.
        have: u64,
    },
    /// Rank and size of the server contradict each other or the environment.
    #[error("the launcher's PMI server says rank {rank} of {size}, which cannot be")]
    Rank {
        /// The server's rank.
        rank: u64,
        /// The server's size.
        size: u64,
    },
    /// Rank 0 has no address that other machines could reach.
    #[error(
        "rank 0 found no address of its machine that other machines reach; set FOLDWIRE_ADDRESS \
        to one on rank 0, or FOLDWIRE_ROOT=HOST:PORT and FOLDWIRE_TOKEN on every rank"
    )]
    NoAddress,
    /// Rank 0 could not listen.
    #[error("rank 0 could not listen for the other ranks; read its output")]
    RootFailed,
    /// Rank 0 published something that this version of Foldwire does not publish.
    #[error(
        "rank 0 published `{value}`, which this rank does not understand; run the same version of \
        the program on every rank"
    )]
    Value {
        /// Beginning of the value, without a secret.
        value: String,
    },
}

impl PmiError {
    /// Returns whether a time limit has passed.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Late { .. } | Self::Unreachable { kind: io::ErrorKind::TimedOut, .. })
    }
}
