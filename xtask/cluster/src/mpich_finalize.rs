//! Lets programs with MPICH over UCX's TCP end.
//!
//! In `MPI_Finalize`, MPICH (4.0.2 with UCX 1.13, as in Debian 12) flushes its connections, for
//! which the other side must answer, and then waits for all ranks in its launcher's barrier, in
//! which it answers nobody. A rank that gets there before another's flush has come leaves that one
//! waiting for ever. With 4 ranks on 2 cores, about half of all runs hang like that, after the
//! program's last word; so do some of a plain `mpirun` with `UCX_TLS=tcp` on one machine.
//!
//! Hence a preloaded function that leaves the flush out: none of 20 runs hung. What a program
//! measures is done by then. Data is lost only if the program's last message is still in a sender's
//! memory, that is if nothing, not even a barrier, follows a send that a receiver has not taken.

use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("mpich_finalize.c");

/// Compiles the function into a folder. Returns the path of the library.
///
/// # Errors
/// When there is no C compiler.
pub(super) fn compile(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, library) = (folder.join("finalize.c"), folder.join("finalize.so"));
    fs::write(&source, SOURCE).with_context(|| format!("cannot write {}", source.display()))?;
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let output = command.stdin(Stdio::null()).output().context("cannot run cc; install gcc")?;
    ensure!(
        output.status.success(),
        "cc failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(library)
}
