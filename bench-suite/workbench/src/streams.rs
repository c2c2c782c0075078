//! What the command writes: results to stdout, in full or with an error, and remarks to stderr.
//!
//! `print!` and `eprintln!` panic where a disk is full or nobody reads. Results that are lost are
//! an error here. A remark that is lost has nobody who could be told.

use std::fmt::Display;
use std::io::{self, Write};

/// The exit code when nobody reads the output any more: as that of a program ended by SIGPIPE.
pub const NO_READER: u8 = 128 + 13;

/// Results that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the output cannot be written: {0}")]
pub struct OutputError(#[from] io::Error);

impl OutputError {
    /// Whether the reader has left, as `head` does when it has its lines. That is no fault.
    pub fn is_without_reader(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes results to stdout, all of them before it returns.
///
/// # Errors
/// When stdout cannot be written.
pub fn write(results: &str) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(results.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes a line to stderr, in one piece, if that can be written.
pub fn remark(line: impl Display) {
    // Nobody is left to tell that it cannot.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
