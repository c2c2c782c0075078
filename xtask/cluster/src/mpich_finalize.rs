//! Keeps programs that use MPICH over UCX's TCP from hanging at their end.
//!
//! In `MPI_Finalize`, MPICH (4.0.2 with UCX 1.13, as in Debian 12) flushes its connections, and the
//! other side must answer. Then it waits for all ranks in its launcher's barrier, where it answers
//! no rank. If a rank reaches the barrier before another rank's flush arrives, the other rank waits
//! forever. With 4 ranks on 2 cores, about half of all runs hang in this way, after the program's
//! last output. Some runs of a plain `mpirun` with `UCX_TLS=tcp` on one machine hang too.
//!
//! So this preloads a function that skips the flush: none of 20 runs hung. The program's
//! measurements are done by then. Data is lost only if a program ends while its last message is
//! still in the sender's memory. A barrier after the send prevents that.

use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("mpich_finalize.c");

/// Compiles the function into a folder. Returns the path of the library.
///
/// # Errors
/// If there is no C compiler.
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
