//! `cargo xtask cluster`: emulates a cluster on one machine. Its network is real and has a known
//! rate.
//!
//! ```text
//!  node 0            node 1                    network namespaces NAME-0, NAME-1, …
//!  eth0 10.77.0.1    eth0 10.77.0.2            tbf on eth0:     outgoing traffic of the node
//!    │ veth            │ veth
//!  node0 ─── br0 ─── node1                     tbf on node<i>:  incoming traffic of the node
//!  namespace NAME-switch: no address, no route, no other device
//! ```
//!
//! A program in a node has the node's network, and its own host name, System V IPC and `/dev/shm`.
//! So MPI and libfabric take the nodes for different machines and use TCP. The nodes share
//! processors, memory and file system. Only rates are emulated; there is no added latency (see
//! `shape.rs`).
//!
//! No state is stored in files. The cluster is found by the names of its namespaces, and each
//! namespace carries a mark (`nodes.rs`). So `down` works after a crash, and several clusters can
//! exist at once under different names. Namespaces of other programs are left alone.
//!
//! A program that uses this library takes [`ClusterOptions`] as its subcommand `cluster`: `mpirun`
//! calls the same program to enter nodes (`agent.rs`). The library is empty on other systems than
//! Linux.

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
  cargo xtask cluster run --mpi openmpi \
      --mpirun-args '--mca coll_tuned_use_dynamic_rules 1' -- ./program
  cargo xtask cluster status
  cargo xtask cluster down
It needs Linux, root, and the Debian packages iproute2 and util-linux (`cargo xtask packages`).";

/// Options of `cargo xtask cluster`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ClusterOptions {
    #[command(subcommand)]
    command: Command,
    /// Name of the cluster; the names of its namespaces begin with it
    #[arg(long, global = true, value_name = "NAME", default_value = "foldwire")]
    name: ClusterName,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the cluster, or change its rate if it exists
    Up(up::Args),
    /// Run a program, one rank in each node
    Run(run::Args),
    /// Show nodes, rates, link counters and processes
    Status,
    /// End all processes in the cluster and remove it
    Down,
    /// Test the emulation itself on small clusters with their own names
    Test,
    /// Run a command in the node of this address (for mpirun, in place of rsh)
    #[command(hide = true)]
    Agent(agent::Args),
}

/// Runs a subcommand.
///
/// # Errors
/// The subcommand's error.
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

/// Tests the emulation if clusters can be made here. Otherwise records the reason.
pub fn test(steps: &mut Steps) -> anyhow::Result<()> {
    match probe().context("network namespaces cannot be made here") {
        Ok(()) => test::run(steps),
        Err(reason) => {
            steps.skip("emulated cluster", &format!("{reason:#}"));
            Ok(())
        }
    }
}

/// Checks that clusters can be made here: makes a namespace with a shaped device and removes it.
///
/// # Errors
/// The reason why they cannot.
pub fn probe() -> anyhow::Result<()> {
    ip::require()?;
    let namespace = format!("foldwire-probe-{}", std::process::id());
    ip::ip(&format!("netns add {namespace}"))?;
    let shape = "root tbf rate 1gbit burst 80kb limit 1mb";
    let shaped = ip::tc(&format!("-n {namespace} qdisc add dev lo {shape}"));
    ip::ip(&format!("netns delete {namespace}"))?;
    shaped.map(|_| ())
}
