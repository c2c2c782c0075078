//! Usage errors: the request cannot be served as given, and the message says what to change.
//!
//! `main` prints them as `error: …` and exits with code 2, the code that clap uses for a malformed
//! command line. All other errors (a full disk, a bug) exit with code 1.

/// A request that cannot be served. The message names the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// An error with this message: one or more lines without a final full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Makes a [`UsageError`] from a message, written as for [`format!`].
#[macro_export]
macro_rules! usage {
    ($($message:tt)*) => {
        $crate::usage::UsageError::new(format!($($message)*))
    };
}

pub use usage;
