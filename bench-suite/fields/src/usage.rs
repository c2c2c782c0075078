//! Errors of use: what the user asked for cannot be done as asked, and the message says what to
//! change.
//!
//! `main` prints them as `error: …` and exits with code 2, the code that clap uses for a malformed
//! command line. Every other error (a full disk, a bug) exits with code 1.

/// A request that cannot be served; the message names the fault and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// An error with this message, of one or more lines and without a final full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
