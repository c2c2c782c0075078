//! Entering a node, and `cluster agent`, by which `mpirun` does.
//!
//! `mpirun` starts its daemons with `rsh HOST COMMAND`. Here the agent takes the place of `rsh`: no
//! daemon to log in to, no keys.

use super::nodes::{ClusterName, NETWORK};
use anyhow::Context;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arguments of the agent: those of rsh.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Options of rsh (left unread), host, words of a command for its shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

pub(super) fn run(cluster: &ClusterName, args: &Args) -> anyhow::Result<()> {
    let mut words = args.words.iter().skip_while(|word| word.starts_with('-'));
    let host = words.next().context("an agent needs a host and a command")?;
    let index = cluster.node_of_host(host).with_context(|| {
        format!("`{host}` is no node of cluster `{cluster}`; nodes are in {NETWORK}")
    })?;
    let line = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    let mut command = enter(cluster, index);
    let error = command.args(["sh", "-c", &line]).exec();
    Err(error).context("cannot run ip; it comes with iproute2")
}

/// What makes a process look alone on a machine, within the mount namespace that `ip netns exec`
/// makes.
const ALONE: &str = "echo \"$0\" > /proc/sys/kernel/hostname && \
    mount -t tmpfs foldwire /dev/shm && exec \"$@\"";

/// A command, to be given program and arguments, that becomes the program in a node: with the
/// node's network and host name, and with System V IPC and `/dev/shm` of its own. No process stands
/// in between.
pub(super) fn enter(cluster: &ClusterName, index: usize) -> Command {
    let node = cluster.node(index);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &node, "unshare", "--uts", "--ipc", "sh", "-c", ALONE, &node]);
    command
}
