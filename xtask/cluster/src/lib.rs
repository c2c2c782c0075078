//! `cargo xtask cluster`: a cluster on one machine, of which the wire is real and its rate is
//! known.
//!
//! ```text
//!  node 0            node 1                    network namespaces NAME-0, NAME-1, …
//!  eth0 10.77.0.1    eth0 10.77.0.2            tbf on eth0:     what a node sends
//!    │ veth            │ veth
//!  node0 ─── br0 ─── node1                     tbf on node<i>:  what a node receives
//!  namespace NAME-switch: no address, no route, no other device
//! ```
//!
//! Programs run in a node with its network, a host name, System V IPC and `/dev/shm` of its own, so
//! MPI and libfabric take the nodes for different machines and use TCP. Processors, memory and file
//! system are shared. There is no added latency: only rates are emulated (`shape.rs` says how, and
//! how well).
//!
//! Nothing is remembered in files. What exists is found by the names of namespaces, and each of
//! ours carries a mark (`nodes.rs`), so `down` works after a crash, several clusters live side by
//! side under different names, and namespaces of others are left alone.
//!
//! A library for a program that takes [`ClusterOptions`] as its subcommand `cluster`: `mpirun` calls the
//! same program to enter nodes (`agent.rs`). Elsewhere than on Linux it is empty.

#![cfg(target_os = "linux")]

mod agent;
mod counters;
mod down;
mod ip;
mod mpi;
mod mpich_finalize;
mod nodes;
mod run;
mod shape;
mod status;
mod test;
mod up;

use anyhow::Context;
use clap::{Args, Subcommand};
use foldwire_steps::Steps;
use nodes::ClusterName;

const EXAMPLES: &str = "\
Examples:
  cargo xtask cluster up -n 4 --rate 1gbit
  cargo xtask cluster run -- target/release/foldwire bench allreduce --backend libfabric
  cargo xtask cluster run -- target/release/foldwire bench allreduce --backend tcp
  cargo xtask cluster run --mpi openmpi --node-counters -- ./program
  cargo xtask cluster run --mpi openmpi --mpirun-args '--mca coll_tuned_use_dynamic_rules 1' -- ./program
  cargo xtask cluster status
  cargo xtask cluster down
It needs Linux, root, and the Debian packages iproute2 and util-linux (`cargo xtask packages`).";

/// Options of `cargo xtask cluster`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ClusterOptions {
    #[command(subcommand)]
    command: Command,
    /// Name of the cluster, and first part of the names of its namespaces
    #[arg(long, global = true, value_name = "NAME", default_value = "foldwire")]
    name: ClusterName,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the cluster, or change the rate of the one that is there
    Up(up::Args),
    /// Run a program, one rank in each node
    Run(run::Args),
    /// Show nodes, rates, counters of the links and processes
    Status,
    /// End all processes in the cluster and remove it
    Down,
    /// Test the emulation itself on small clusters of its own
    Test,
    /// Run a command in the node of this address (for mpirun, in place of rsh)
    #[command(hide = true)]
    Agent(agent::Args),
}

/// Runs a subcommand.
///
/// # Errors
/// Why it failed.
pub fn run(steps: &mut Steps, options: &ClusterOptions) -> anyhow::Result<()> {
    let cluster = &options.name;
    match &options.command {
        Command::Up(args) => up::run(cluster, args),
        Command::Run(args) => run::run(cluster, args),
        Command::Status => status::run(cluster),
        Command::Down => down::run(cluster),
        Command::Test => test(steps),
        Command::Agent(args) => agent::run(cluster, args),
    }
}

/// Tests the emulator where clusters can be made; says why not otherwise.
pub fn test(steps: &mut Steps) -> anyhow::Result<()> {
    match probe().context("network namespaces cannot be made here") {
        Ok(()) => test::run(steps),
        Err(reason) => {
            steps.skip("emulated cluster", &format!("{reason:#}"));
            Ok(())
        }
    }
}

/// Makes a namespace with a shaped device and removes it: whether clusters can be made here.
///
/// # Errors
/// Why they cannot.
pub fn probe() -> anyhow::Result<()> {
    ip::require()?;
    let namespace = format!("foldwire-probe-{}", std::process::id());
    ip::ip(&format!("netns add {namespace}"))?;
    let shape = "root tbf rate 1gbit burst 80kb limit 1mb";
    let shaped = ip::tc(&format!("-n {namespace} qdisc add dev lo {shape}"));
    ip::ip(&format!("netns delete {namespace}"))?;
    shaped.map(|_| ())
}
