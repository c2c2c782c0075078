//! `cluster run --mpi`: `mpirun` in node 0, which reaches the others through [`agent`](super::agent).
//!
//! Both libraries are at their defaults, except that they are told to use TCP over the node's device.
//!
//! **Open MPI**: `pml ob1` and `btl tcp,self` over the cluster's network. Without `--bind-to none` each rank would be bound to
//! the first core of what Open MPI takes for a machine of its own: all to the same.
//!
//! **MPICH** (ch4:ucx, as in Debian): Hydra with the agent as `-launcher-exec`, `UCX_TLS=tcp,self` over the node's
//! device. Hydra binds nothing.

use super::agent::enter;
use super::nodes::{Cluster, DEVICE, NETWORK, address};
use super::run::tied;
use crate::machine;
use anyhow::{Context, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mpi {
    /// Open MPI
    Openmpi,
    /// MPICH
    Mpich,
}

/// Runs `mpirun` with more words of its own, and with what `add` adds: program and arguments.
pub(super) fn run<'a>(
    mpi: Mpi,
    cluster: &Cluster,
    n_ranks: usize,
    words: impl Iterator<Item = &'a str>,
    add: impl FnOnce(&mut Command),
) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let agent = agent_script(folder.path(), cluster)?;
    let hosts: Vec<_> = (0..n_ranks).map(|index| address(index).to_string()).collect();
    let mut command = tied(&enter(cluster, 0));
    match mpi {
        Mpi::Openmpi => open_mpi(&mut command, &agent, &hosts)?,
        Mpi::Mpich => mpich(&mut command, &agent, &hosts)?,
    }
    command.args(words);
    add(&mut command);
    let status = command.status().context("cannot run setpriv; it comes with util-linux")?;
    ensure!(status.success(), "mpirun failed ({status})");
    Ok(())
}

fn open_mpi(command: &mut Command, agent: &Path, hosts: &[String]) -> anyhow::Result<()> {
    let mpirun = machine::OPEN_MPI
        .mpirun()
        .context("Open MPI is not installed: see `cargo xtask packages`")?;
    let hosts: Vec<_> = hosts.iter().map(|host| format!("{host}:1")).collect();
    command.arg(mpirun).args(["--allow-run-as-root", "--bind-to", "none"]);
    command.args(["-n", &hosts.len().to_string(), "--host", &hosts.join(",")]);
    command.args(["--mca", "plm_rsh_agent"]).arg(agent);
    command.args(["--mca", "oob_tcp_if_include", NETWORK]);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
    command.args(["--mca", "btl_tcp_if_include", NETWORK]);
    Ok(())
}

fn mpich(command: &mut Command, agent: &Path, hosts: &[String]) -> anyhow::Result<()> {
    let mpirun =
        machine::MPICH.mpirun().context("MPICH is not installed: see `cargo xtask packages`")?;
    command.arg(mpirun).args(["-launcher", "rsh", "-launcher-exec"]).arg(agent);
    command.args(["-iface", DEVICE]);
    command.args(["-n", &hosts.len().to_string(), "-ppn", "1", "-hosts", &hosts.join(",")]);
    command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", DEVICE);
    Ok(())
}

/// A program without arguments of its own that does what `rsh` does: all that Hydra takes.
fn agent_script(folder: &Path, cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let path = folder.join("agent");
    // Through /proc, as the path of the executable may hold anything, and the file may be replaced meanwhile.
    let program = format!("/proc/{}/exe", std::process::id());
    let script = format!("#!/bin/sh\nexec {program} cluster agent --name {cluster} -- \"$@\"\n");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}
