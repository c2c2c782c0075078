//! Errors of the MPI library, and of calls that it cannot make.

use foldwire::Collective;

/// Error of MPI, or of a call that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI returned an error.
    #[error(transparent)]
    Mpi(#[from] foldwire_mpi::Error),
    /// A function for control variables returned this code.
    #[error(
        "MPI's control variables cannot be used (code {code}); compare only with the library's \
         default"
    )]
    Tool {
        /// Error code of MPI's tool interface; 0 if the variable does not exist.
        code: i32,
    },
    /// A buffer has the wrong length for the call.
    #[error("the {buffer} buffer has {have} values, but the call needs {need}")]
    Length {
        /// The buffer.
        buffer: BufferSide,
        /// Number of values that the call needs.
        need: usize,
        /// Number of values in the buffer.
        have: usize,
    },
    /// The array has more values than MPI's 32-bit counts can express.
    #[error("{count} values are more than MPI's functions can count; use at most {}", i32::MAX)]
    TooLong {
        /// Number of values in the array.
        count: usize,
    },
    /// The call is impossible: in place, with a root beyond the group, or by a function for equal
    /// shares although the shares differ.
    #[error(
        "MPI cannot make this {} call: it has no in-place form, the root is out of range, or \
         shares differ",
        collective.name()
    )]
    NoSuchCall {
        /// The collective.
        collective: Collective,
    },
}

/// Role of a buffer in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSide {
    /// The send buffer.
    Send,
    /// The receive buffer.
    Recv,
}

impl std::fmt::Display for BufferSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Recv => "receive",
        })
    }
}
