//! The nightly toolchain, which fuzzing and sanitizers need: whether it is there, and for which
//! machine it compiles.

use anyhow::{Context, bail};
use std::process::{Command, Stdio};

/// A nightly toolchain that has been found.
pub(crate) struct Nightly {
    /// The target that it compiles for by default. Sanitizers want it named, or build scripts are
    /// instrumented too.
    pub(crate) host: String,
}

impl Nightly {
    /// Looks for it.
    ///
    /// # Errors
    /// When it is not there, with the way to install it.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let advice =
            "this needs a nightly toolchain; install one with\n  rustup toolchain install nightly";
        let output = Command::new("rustup")
            .args(["run", "nightly", "rustc", "-vV"])
            .stdin(Stdio::null())
            .output()
            .context(advice)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match text.lines().find_map(|line| line.strip_prefix("host: ")) {
            Some(host) if output.status.success() => Ok(Self { host: host.to_owned() }),
            _ => bail!(advice),
        }
    }
}
