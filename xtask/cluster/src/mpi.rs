//! `cluster run --mpi`: runs `mpirun` in node 0, which reaches the other nodes through
//! [`agent`](super::agent).
//!
//! Both libraries run with their defaults, with these exceptions:
//!
//! - They use TCP over the node's device. Open MPI gets `pml ob1` and `btl tcp,self`; MPICH
//!   (ch4:ucx, as in Debian) gets `UCX_TLS` and `UCX_NET_DEVICES`.
//! - They yield while they wait, if there are fewer processors than ranks. They take each node for
//!   a separate machine. Without this setting a waiting rank would spin on a core that another rank
//!   needs. (Open MPI yields by itself when it sees more ranks than slots.)
//! - They do not bind ranks to cores. Open MPI would bind each rank to the first core of its
//!   supposed machine, so all to the same core. MPICH binds nothing.
//!
//! Measured on 2 cores, with `MPI_Allreduce` of 64 MiB of floats by 4 ranks at 1 Gbit/s, where a
//! ring takes at least 0.842 s: Open MPI 4.1.4 took 0.880 s with its ring
//! (`coll_tuned_allreduce_algorithm 4`) and 1.21 s with its segmented ring; MPICH 4.0.2 took 1.19
//! s. The links counted 1.5 times the array from each node, to 0.01 %. Other programs on the cores
//! slow all of them down (by up to a half with two compilers).
//!
//! MPICH's launcher (Hydra) ends all ranks when one is killed or aborts. But when the only rank of
//! a machine exits with an error code, the launcher waits forever. So a shell turns such an exit
//! into a kill, and the exit code is lost. MPICH's `MPI_Finalize` is also kept from hanging (see
//! `mpich_finalize.rs`).
//!
//! Open MPI may print `plm:rsh: Warning: setpgid … failed in parent`. It means that the agent was
//! faster, and is harmless.

use super::agent::enter;
use super::mpich_finalize;
use super::nodes::{ClusterName, DEVICE, NETWORK, address};
use super::run::tied_to_this_process;
use anyhow::{Context, ensure};
use foldwire_steps::programs;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

/// An MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MpiChoice {
    /// Open MPI
    Openmpi,
    /// MPICH
    Mpich,
}

/// A run under `mpirun`.
pub(super) struct MpirunJob<'a> {
    pub(super) mpi: MpiChoice,
    /// Folder of the installation; `None` means the system's library.
    pub(super) home: Option<&'a Path>,
    pub(super) cluster: &'a ClusterName,
    pub(super) n_ranks: usize,
    /// More arguments for `mpirun`.
    pub(super) mpirun_args: Vec<&'a str>,
    /// An environment variable for all processes of the run.
    pub(super) variable: (&'a str, &'a str),
}

/// Runs a program (and its arguments) under `mpirun`, with one rank in each of the first nodes.
pub(super) fn run(job: &MpirunJob<'_>, program: &[String]) -> anyhow::Result<()> {
    let &MpirunJob { mpi, home, cluster, n_ranks, variable: (name, value), .. } = job;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let agent = agent_script(folder.path(), cluster)?;
    let hosts: Vec<_> = (0..n_ranks).map(|index| address(index).to_string()).collect();
    let mut command = tied_to_this_process(&enter(cluster, 0));
    command.arg(match home {
        Some(home) => mpirun(home)?,
        None => mpi.mpirun()?.into(),
    });
    match mpi {
        MpiChoice::Openmpi => open_mpi(&mut command, &agent, &hosts),
        MpiChoice::Mpich => {
            mpich(&mut command, &agent, &hosts);
            if let Some(home) = home {
                // Hydra does not pass on its own environment.
                command.args(["-genv", "LD_LIBRARY_PATH"]).arg(path::absolute(home.join("lib"))?);
            }
            match mpich_finalize::compile(folder.path()) {
                Ok(library) => {
                    command.args(["-genv", "LD_PRELOAD"]).arg(library);
                }
                Err(error) => eprintln!("note: MPI_Finalize of MPICH may hang: {error:#}"),
            }
        }
    }
    if n_ranks > available_parallelism().map_or(1, usize::from) {
        match mpi {
            MpiChoice::Openmpi => command.args(["--mca", "mpi_yield_when_idle", "1"]),
            MpiChoice::Mpich => command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
        };
    }
    command.args(&job.mpirun_args);
    if mpi == MpiChoice::Mpich {
        command.args(["sh", "-c", "\"$@\" || kill -KILL $$", "sh"]);
    }
    command.args(program).env(name, value);
    let status = command.status().context("cannot run setpriv; it comes with util-linux")?;
    ensure!(status.success(), "mpirun failed ({status})");
    Ok(())
}

impl MpiChoice {
    /// Returns the system's launcher.
    fn mpirun(self) -> anyhow::Result<&'static str> {
        let (name, mpi) = match self {
            Self::Openmpi => ("Open MPI", programs::OPEN_MPI),
            Self::Mpich => ("MPICH", programs::MPICH),
        };
        let missing = || format!("{name} is not installed: see `cargo xtask packages`");
        mpi.mpirun().with_context(missing)
    }
}

/// Returns the launcher of the library that is installed in `home`.
///
/// # Errors
/// If there is no launcher.
fn mpirun(home: &Path) -> anyhow::Result<PathBuf> {
    // Nodes see the same files, but start in another folder.
    let mpirun = path::absolute(home.join("bin/mpirun"))?;
    let missing = "is not there; `cargo xtask packages --current-mpi` installs Open MPI and MPICH";
    ensure!(mpirun.exists(), "{} {missing}", mpirun.display());
    Ok(mpirun)
}

fn open_mpi(command: &mut Command, agent: &Path, hosts: &[String]) {
    let hosts: Vec<_> = hosts.iter().map(|host| format!("{host}:1")).collect();
    command.args(["--allow-run-as-root", "--bind-to", "none"]);
    command.args(["-n", &hosts.len().to_string(), "--host", &hosts.join(",")]);
    command.args(["--mca", "plm_rsh_agent"]).arg(agent);
    command.args(["--mca", "oob_tcp_if_include", NETWORK]);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
    command.args(["--mca", "btl_tcp_if_include", NETWORK]);
}

fn mpich(command: &mut Command, agent: &Path, hosts: &[String]) {
    command.args(["-launcher", "rsh", "-launcher-exec"]).arg(agent);
    command.args(["-iface", DEVICE]);
    command.args(["-n", &hosts.len().to_string(), "-ppn", "1", "-hosts", &hosts.join(",")]);
    command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", DEVICE);
}

/// Writes a script that does what `rsh` does. Hydra accepts only a program without arguments.
fn agent_script(folder: &Path, cluster: &ClusterName) -> anyhow::Result<PathBuf> {
    let path = folder.join("agent");
    // Use /proc: the executable's path may contain any character, and the file may be replaced
    // while this program runs.
    let program = format!("/proc/{}/exe", std::process::id());
    let script = format!("#!/bin/sh\nexec {program} cluster agent --name {cluster} -- \"$@\"\n");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}
