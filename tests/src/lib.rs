//! What only this workspace's tests need, beside the conformance suite (`foldwire-conformance`,
//! which is here under its own names).

pub mod coding;
pub mod deadline;
pub mod join_all;
pub mod patterns;
#[cfg(feature = "processes")]
pub mod processes;
pub mod soak;

pub use foldwire_conformance::*;

use std::io::Write;

/// Says that something is not tested here, and why, where the capture of a test's output does not
/// hide it: `cargo xtask test` lists these lines.
pub fn skip(why: &str) {
    // In one piece, as other tests print too. Nobody is left to tell that the output is closed.
    let _ = std::io::stdout().write_all(format!("skipped: {why}\n").as_bytes());
}
