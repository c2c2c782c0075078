//! Output of the command: results on stdout, completely or with an error, and remarks on stderr.
//!
//! `print!` and `eprintln!` panic if a disk is full or the reader has left. Lost results are an
//! error here. Lost remarks are ignored, because no stream is left to report them on.

use std::fmt::Display;
use std::io::{self, Write};

/// Exit code if the reader of stdout has left: the code of a program that SIGPIPE ended.
pub const NO_READER: u8 = 128 + 13;

/// A failure to write results.
#[derive(Debug, thiserror::Error)]
#[error("the output cannot be written: {0}")]
pub struct OutputError(#[from] io::Error);

impl OutputError {
    /// Returns whether the reader has left, as `head` does after its last line. This is not a
    /// fault.
    pub fn is_without_reader(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes results to stdout, and flushes it.
///
/// # Errors
/// If stdout cannot be written.
pub fn write(results: &str) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(results.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes results to stdout as one line of JSON, or as text for people.
///
/// # Errors
/// If stdout cannot be written.
pub fn results<J: Display>(
    as_json: bool,
    json: impl FnOnce() -> J,
    text: impl FnOnce() -> String,
) -> Result<(), OutputError> {
    write(&if as_json { format!("{}\n", json()) } else { text() })
}

/// Writes a line to stderr in one piece. Errors are ignored.
pub fn remark(line: impl Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
