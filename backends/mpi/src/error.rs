//! MPI's error classes as ours.

use std::fmt;

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};

use crate::ffi;

/// An error that MPI returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    code: i32,
    peer: Option<Rank>,
}

impl Error {
    pub(crate) const fn new(code: i32, peer: Option<Rank>) -> Self {
        Self { code, peer }
    }

    /// The error that MPI says with this code, if it concerns no other rank.
    #[must_use]
    pub const fn of_code(code: i32) -> Self {
        Self::new(code, None)
    }

    /// MPI's error code, which only this process's MPI library can read.
    #[must_use]
    pub const fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MPI: {}", ffi::error_string(self.code))?;
        self.peer.map_or(Ok(()), |peer| write!(f, " (rank {peer})"))
    }
}

impl std::error::Error for Error {}

impl TransportError for Error {
    fn kind(&self) -> Kind {
        match ffi::error_class(self.code) {
            ffi::ErrorClass::Truncated => Kind::Truncated,
            ffi::ErrorClass::NoMemory => Kind::OutOfFrames,
            ffi::ErrorClass::Misuse => Kind::Misuse,
            // MPI has no class for a lost process before version 5: libraries report a message that
            // cannot be delivered as "other", "intern" or "unknown".
            ffi::ErrorClass::Other if self.peer.is_some() => Kind::PeerLost,
            ffi::ErrorClass::Other => Kind::Other,
        }
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}
