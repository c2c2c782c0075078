//! Why a call of the MPI library failed, or was not made.

use foldwire::Collective;

/// An error of MPI's, or a call that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI's.
    #[error(transparent)]
    Mpi(#[from] foldwire_mpi::Error),
    /// A function for control variables returned this code.
    #[error("MPI's control variables cannot be used (code {code}); compare with its default only")]
    Tool {
        /// The code, of MPI's tool interface.
        code: i32,
    },
    /// A buffer is not as long as the call needs.
    #[error("the {buffer} buffer has {have} values, but the call needs {need}")]
    Length {
        /// Which.
        buffer: BufferSide,
        /// Values needed.
        need: usize,
        /// Values there.
        have: usize,
    },
    /// More values than MPI's 32-bit counts can say.
    #[error("{count} values are more than MPI's functions can count; use at most {}", i32::MAX)]
    TooLong {
        /// The length of the array.
        count: usize,
    },
    /// No such call: in place, a root beyond the group, or a function for equal shares of an array
    /// that has none.
    #[error(
        "there is no such {}: it is not done in place, has no such root, or shares are not equal",
        collective.name()
    )]
    NoSuchCall {
        /// The collective.
        collective: Collective,
    },
}

/// A buffer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSide {
    /// What is sent.
    Send,
    /// Where results go.
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
