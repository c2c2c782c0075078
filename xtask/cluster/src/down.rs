//! `cluster down`: ends the processes in a cluster and removes its namespaces.
//!
//! A deleted namespace lives on with its devices while a process is in it. So this ends the
//! processes first, and waits until they are gone.

use super::ip::{ip, require};
use super::nodes::{BRIDGE, ClusterName, NodeProcess, devices, processes};
use anyhow::ensure;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit for killed processes to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(cluster: &ClusterName) -> anyhow::Result<()> {
    require()?;
    let found = cluster.find()?;
    remove(cluster)?;
    if found.is_empty() {
        println!("there is no cluster `{cluster}`");
    } else {
        println!("removed cluster `{cluster}`: {} nodes", found.nodes.len());
    }
    // Namespaces that another program made with the cluster's names were left alone. Report one.
    found.refuse_foreign()
}

/// Removes all parts of the cluster that exist.
pub(super) fn remove(cluster: &ClusterName) -> anyhow::Result<()> {
    let found = cluster.find()?;
    let switch = found.has_switch.then(|| cluster.switch());
    let namespaces: Vec<_> =
        found.nodes.iter().map(|&index| cluster.node(index)).chain(switch.clone()).collect();
    end_processes(&namespaces)?;
    if let Some(switch) = switch {
        // Deleting one end of a link removes both ends at once. The kernel removes devices in a
        // deleted namespace only later.
        for link in devices(&switch)?.iter().filter(|link| link.name != "lo" && link.name != BRIDGE)
        {
            ip(&format!("-n {switch} link delete dev {}", link.name))?;
        }
    }
    namespaces.iter().try_for_each(|name| ip(&format!("netns delete {name}")).map(|_| ()))
}

fn end_processes(namespaces: &[String]) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let mut left = Vec::new();
        for namespace in namespaces {
            left.extend(processes(namespace)?);
        }
        if left.is_empty() {
            return Ok(());
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "processes in the cluster do not end: {}",
            left.iter()
                .map(|p| format!("{} ({})", p.pid, p.command))
                .collect::<Vec<_>>()
                .join(", ")
        );
        left.iter().for_each(NodeProcess::kill);
        sleep(Duration::from_millis(20));
    }
}
