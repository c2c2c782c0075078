//! Helpers that only this workspace's tests need. The conformance suite (`foldwire-conformance`) is
//! re-exported under its own names.

pub mod coding;
pub mod deadline;
pub mod join_all;
pub mod options;
pub mod patterns;
#[cfg(feature = "processes")]
pub mod processes;
pub mod soak;

pub use foldwire_conformance::*;

use std::io::Write;

/// Reports that something is not tested here, and why. It writes past the output capture of tests,
/// so that `cargo xtask test` can list these lines.
pub fn skip(why: &str) {
    // Write the line in one call, since other tests print too. An error means that the reader
    // closed the output.
    let _ = std::io::stdout().write_all(format!("skipped: {why}\n").as_bytes());
}
