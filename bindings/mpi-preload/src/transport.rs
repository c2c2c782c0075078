//! Message transport of taken calls: point-to-point messages of the MPI library, on a communicator
//! that the program does not see.

use std::fmt;

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};
use foldwire_messaging::{Endpoint, Messages};

use crate::ffi::library::MpiErrorCode;
use crate::ffi::private_comm::PrivateComm;

/// Foldwire transport over MPI messages.
pub(crate) type PreloadEndpoint = Endpoint<Messages<PrivateComm>>;

/// An error that MPI returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    code: MpiErrorCode,
    kind: Kind,
    peer: Option<Rank>,
}

impl Error {
    /// Creates an error. Without a `kind`, assumes that `peer` is lost, if there is one.
    pub(crate) fn new(code: MpiErrorCode, kind: Option<Kind>, peer: Option<Rank>) -> Self {
        // Before version 5, MPI has no error class for a lost process.
        let other = if peer.is_some() { Kind::PeerLost } else { Kind::Other };
        Self { code, kind: kind.unwrap_or(other), peer }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MPI error {}", self.code)?;
        self.peer.map_or(Ok(()), |peer| write!(f, " (rank {peer})"))
    }
}

impl std::error::Error for Error {}

impl TransportError for Error {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}
