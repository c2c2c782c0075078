//! Runs iproute2's tools.
//!
//! The caller passes all arguments in one string, which is split at spaces. This is safe because
//! names of clusters have no spaces ([`super::nodes`]).

use anyhow::{Context, bail, ensure};
use std::process::{Command, Stdio};

/// Runs `ip` with these arguments. Returns its output.
pub(super) fn ip(words: &str) -> anyhow::Result<String> {
    output("ip", words)
}

/// Runs `tc` with these arguments. Returns its output.
pub(super) fn tc(words: &str) -> anyhow::Result<String> {
    output("tc", words)
}

/// Runs a line of shell in a namespace. Returns its output.
pub(super) fn shell(namespace: &str, line: &str) -> anyhow::Result<String> {
    finish(Command::new("ip").args(["netns", "exec", namespace, "sh", "-c", line]))
}

/// Checks that this process may make namespaces, and that the tools are installed.
pub(super) fn require() -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "network namespaces need root; run it as root (for example with `sudo -E`)"
    );
    ip("-V")?;
    tc("-V")?;
    Ok(())
}

fn output(program: &str, words: &str) -> anyhow::Result<String> {
    finish(Command::new(program).args(words.split_whitespace()))
}

/// Runs a command to its end. Returns its standard output, or an error with its standard error.
fn finish(command: &mut Command) -> anyhow::Result<String> {
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "`{}` is not installed; it comes with iproute2 (Debian: `apt install iproute2`)",
            command.get_program().display()
        ),
        other => {
            other.with_context(|| format!("cannot run {}", foldwire_steps::in_shell(command)))?
        }
    };
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}` failed ({}): {}",
        foldwire_steps::in_shell(command),
        output.status,
        message.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
