//! Finds the nightly toolchain, which fuzzing and sanitizers need.

use anyhow::{Context, bail};
use std::process::{Command, Stdio};

/// An installed nightly toolchain.
pub(crate) struct Nightly {
    /// The toolchain's default target. Sanitizers need it as an explicit argument; otherwise build
    /// scripts are instrumented too.
    pub(crate) host: String,
}

impl Nightly {
    /// Finds the toolchain.
    ///
    /// # Errors
    /// If it is not installed; the error says how to install it.
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
