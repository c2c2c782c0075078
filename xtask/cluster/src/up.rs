//! `cluster up`: makes the namespaces, connects them, and shapes the links.
//!
//! If the cluster exists, only its rate changes. An unfinished cluster is removed and made anew.
//! When a step fails, everything that this call made is removed.

use super::ip::{ip, require, shell};
use super::nodes::{BRIDGE, ClusterName, DEVICE, MARK, MAX_NODES, address};
use super::shape::{self, Rate};
use super::{down, status};
use anyhow::{Context, ensure};

/// Options of `cargo xtask cluster up`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Number of nodes
    #[arg(short, value_name = "N", default_value_t = 4)]
    n: usize,
    /// Rate of each node's link in each direction, such as 1gbit or 250mbit; `none` for no limit
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: Rate,
}

pub(super) fn run(cluster: &ClusterName, args: &Args) -> anyhow::Result<()> {
    ensure!(
        (1..=MAX_NODES).contains(&args.n),
        "a cluster has 1 to {MAX_NODES} nodes: use another -n"
    );
    up(cluster, args.n, args.rate)?;
    status::run(cluster)
}

/// Makes the cluster, or changes its rate.
pub(super) fn up(cluster: &ClusterName, n_nodes: usize, rate: Rate) -> anyhow::Result<()> {
    require()?;
    let found = cluster.find()?;
    found.refuse_foreign()?;
    if found.is_complete {
        let n_found = found.nodes.len();
        ensure!(
            n_found == n_nodes,
            "cluster `{cluster}` is up with {n_found} nodes; \
             remove it first with `cargo xtask cluster down --name {cluster}`"
        );
        return (0..n_nodes).try_for_each(|index| shape::apply(cluster, index, n_nodes, rate));
    }
    if !found.is_empty() {
        eprintln!("cluster `{cluster}` was never finished; making it anew");
        down::remove(cluster)?;
    }
    make(cluster, n_nodes, rate).map_err(|error| match down::remove(cluster) {
        Ok(()) => error.context("cannot make the cluster; what was made is removed again"),
        Err(left) => error.context(format!("cannot make the cluster, nor remove it: {left:#}")),
    })
}

fn make(cluster: &ClusterName, n_nodes: usize, rate: Rate) -> anyhow::Result<()> {
    let switch = cluster.switch();
    namespace(&switch)?;
    ip(&format!("-n {switch} link add {}", shape::bridge()))?;
    ip(&format!("-n {switch} link set dev {BRIDGE} up"))?;
    for index in 0..n_nodes {
        node(cluster, index, n_nodes, rate).with_context(|| format!("node {index}"))?;
    }
    ip(&format!("-n {switch} link set dev {BRIDGE} alias {MARK}"))?;
    Ok(())
}

fn node(cluster: &ClusterName, index: usize, n_nodes: usize, rate: Rate) -> anyhow::Result<()> {
    let (node, switch, port) = (cluster.node(index), cluster.switch(), shape::port(index));
    namespace(&node)?;
    ip(&format!("-n {switch} link add name {port} type veth peer name {DEVICE} netns {node}"))?;
    ip(&format!("-n {switch} link set dev {port} master {BRIDGE}"))?;
    ip(&format!("-n {node} address add {}/24 dev {DEVICE}", address(index)))?;
    shape::apply(cluster, index, n_nodes, rate)?;
    shape::keep_order(cluster, index)?;
    ip(&format!("-n {switch} link set dev {port} up"))?;
    ip(&format!("-n {node} link set dev {DEVICE} up"))?;
    Ok(())
}

/// Makes a marked namespace with its loopback device up. IPv6 is off, because the counters would
/// include its announcements.
fn namespace(name: &str) -> anyhow::Result<()> {
    ip(&format!("netns add {name}"))?;
    ip(&format!("-n {name} link set dev lo alias {MARK}"))?;
    ip(&format!("-n {name} link set dev lo up"))?;
    let settings =
        "/proc/sys/net/ipv6/conf/all/disable_ipv6 /proc/sys/net/ipv6/conf/default/disable_ipv6";
    shell(name, &format!("for s in {settings}; do ! test -e $s || echo 1 > $s; done"))?;
    Ok(())
}
