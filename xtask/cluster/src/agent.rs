//! Enters a node. `mpirun` does so through `cluster agent`.
//!
//! `mpirun` starts its daemons with `rsh HOST COMMAND`. The agent replaces `rsh`, so there is no
//! login and no keys.

use super::nodes::{ClusterName, NETWORK};
use anyhow::Context;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arguments of the agent: those of rsh.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Options of rsh (ignored), the host, and the command for its shell
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

/// Shell script that sets the node's host name (`$0`), mounts an empty `/dev/shm`, and then becomes
/// the program. It runs in the mount namespace that `ip netns exec` makes.
const ALONE: &str = "echo \"$0\" > /proc/sys/kernel/hostname && \
    mount -t tmpfs foldwire /dev/shm && exec \"$@\"";

/// Returns a command that becomes a program in a node; the caller adds program and arguments. The
/// program gets the node's network and host name, and its own System V IPC and `/dev/shm`. No
/// process stays between the caller and the program.
pub(super) fn enter(cluster: &ClusterName, index: usize) -> Command {
    let node = cluster.node(index);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &node, "unshare", "--uts", "--ipc", "sh", "-c", ALONE, &node]);
    command
}
