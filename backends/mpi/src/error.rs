//! MPI's errors as transport errors.

use std::fmt;

use foldwire::transport::{Rank, TransportError, TransportErrorKind as Kind};

use crate::ffi;

/// Error that MPI returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    code: i32,
    peer: Option<Rank>,
}

impl Error {
    pub(crate) const fn new(code: i32, peer: Option<Rank>) -> Self {
        Self { code, peer }
    }

    /// Makes an error of a call that concerns no other rank, from MPI's error code.
    #[must_use]
    pub const fn of_code(code: i32) -> Self {
        Self::new(code, None)
    }

    /// Returns MPI's error code, which only this process's MPI library can interpret.
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
            // Before version 5, MPI has no class for a lost process. Libraries report an
            // undeliverable message as "other", "intern" or "unknown".
            ffi::ErrorClass::Other if self.peer.is_some() => Kind::PeerLost,
            ffi::ErrorClass::Other => Kind::Other,
        }
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}
