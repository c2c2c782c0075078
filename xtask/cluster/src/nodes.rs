//! State of a cluster: its network namespaces, and the processes in them. Nodes and the switch are
//! namespaces.
//!
//! A namespace is *ours* if its loopback device has the alias [`MARK`], which it gets right after
//! it is made. A crash in between leaves a namespace without processes, whose only device is a
//! loopback device that is down. Such a namespace counts as ours too. As its last step, `up` gives
//! the switch's bridge the same alias. A cluster without this alias is unfinished.

use super::ip::ip;
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use std::fs;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Alias of loopback devices of our namespaces and of bridges of finished clusters.
pub(super) const MARK: &str = "foldwire-cluster";
/// Most nodes of a cluster. With more nodes, one machine is too slow to give useful results.
pub(super) const MAX_NODES: usize = 64;
/// Name of a node's device.
pub(super) const DEVICE: &str = "eth0";
/// Name of the switch's bridge.
pub(super) const BRIDGE: &str = "br0";
/// Network of all nodes.
pub(super) const NETWORK: &str = "10.77.0.0/24";

/// Name of a cluster: lower-case letters, digits and hyphens, at most 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterName(String);

impl FromStr for ClusterName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !name.starts_with(|c: char| c.is_ascii_lowercase())
            || name.len() > 32
            || !name.chars().all(is_fine)
        {
            return Err(
                "use a small letter, then small letters, digits and hyphens, at most 32".into()
            );
        }
        Ok(Self(name.to_owned()))
    }
}

impl std::fmt::Display for ClusterName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl ClusterName {
    /// Returns the namespace and host name of a node.
    pub(super) fn node(&self, index: usize) -> String {
        format!("{self}-{index}")
    }

    /// Returns the namespace of the switch.
    pub(super) fn switch(&self) -> String {
        format!("{self}-switch")
    }

    /// Returns the node that has this namespace.
    fn index(&self, namespace: &str) -> Option<usize> {
        let rest = namespace.strip_prefix(&self.0)?.strip_prefix('-')?;
        let index = rest.parse().ok()?;
        // `foldwire-+1` and `foldwire-01` are not ours.
        (self.node(index) == namespace).then_some(index)
    }

    /// Returns the node with this address or host name.
    pub(super) fn node_of_host(&self, host: &str) -> Option<usize> {
        if let Some(index) = self.index(host) {
            return Some(index);
        }
        let wanted: Ipv4Addr = host.parse().ok()?;
        (0..MAX_NODES).find(|&index| address(index) == wanted)
    }

    /// Finds all parts of the cluster that exist.
    pub(super) fn find(&self) -> anyhow::Result<ClusterState> {
        let mut found = ClusterState::default();
        for line in ip("netns list")?.lines() {
            // A line is `NAME` or `NAME (id: N)`.
            let Some(namespace) = line.split_whitespace().next() else { continue };
            let index = self.index(namespace);
            if index.is_none() && namespace != self.switch() {
                continue;
            }
            if !is_ours(namespace)? {
                found.foreign.push(namespace.to_owned());
            } else if let Some(index) = index {
                found.nodes.push(index);
            } else {
                found.has_switch = true;
            }
        }
        found.nodes.sort_unstable();
        let is_finished = |link: &NetDevice| link.name == BRIDGE && link.alias == MARK;
        found.is_complete = found.has_switch
            && devices(&self.switch())?.iter().any(is_finished)
            && found.nodes.iter().copied().eq(0..found.nodes.len());
        Ok(found)
    }

    /// Returns the number of nodes of a cluster that is up.
    pub(super) fn size(&self) -> anyhow::Result<usize> {
        super::ip::require()?;
        let found = self.find()?;
        ensure!(
            found.is_complete,
            "there is no cluster `{self}`; make it with `cargo xtask cluster up --name {self}`"
        );
        Ok(found.nodes.len())
    }
}

/// The parts of a cluster that exist.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    /// Our nodes, in order.
    pub(super) nodes: Vec<usize>,
    /// True if our switch exists.
    pub(super) has_switch: bool,
    /// True if `up` has finished.
    pub(super) is_complete: bool,
    /// Namespaces with our names that another program made.
    pub(super) foreign: Vec<String>,
}

impl ClusterState {
    /// Returns whether no part of the cluster exists.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && !self.has_switch
    }

    /// Returns an error if another program made a namespace with one of our names.
    pub(super) fn refuse_foreign(&self) -> anyhow::Result<()> {
        if let Some(namespace) = self.foreign.first() {
            bail!(
                "the network namespace `{namespace}` was not made by this command and is left \
                 alone; take another --name, or remove it with `ip netns delete {namespace}`"
            );
        }
        Ok(())
    }
}

/// Returns the address of a node.
pub(super) fn address(index: usize) -> Ipv4Addr {
    // As in `NETWORK`.
    let [a, b, c, _] = [10, 77, 0, 0];
    // `MAX_NODES` keeps the last byte below 255.
    Ipv4Addr::new(a, b, c, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// A network device, from the output of `ip -j link`.
#[derive(Debug, Deserialize)]
pub(super) struct NetDevice {
    #[serde(rename = "ifname")]
    pub(super) name: String,
    #[serde(rename = "ifalias", default)]
    pub(super) alias: String,
    #[serde(default)]
    pub(super) flags: Vec<String>,
}

/// Returns the devices in a namespace.
pub(super) fn devices(namespace: &str) -> anyhow::Result<Vec<NetDevice>> {
    let json = ip(&format!("-n {namespace} -j link show"))?;
    serde_json::from_str(&json).with_context(|| format!("`ip -j link` of {namespace} said: {json}"))
}

/// Returns whether a namespace is ours (see the top of this file).
fn is_ours(namespace: &str) -> anyhow::Result<bool> {
    let devices = devices(namespace)?;
    let is_marked = devices.iter().any(|link| link.name == "lo" && link.alias == MARK);
    let is_untouched = devices.len() == 1 && !devices[0].flags.iter().any(|flag| flag == "UP");
    Ok(is_marked || is_untouched && processes(namespace)?.is_empty())
}

/// A process in a namespace.
#[derive(Debug)]
pub(super) struct NodeProcess {
    pub(super) pid: i32,
    /// The kernel's name for the process: the first 15 bytes of its program's name.
    pub(super) command: String,
}

impl NodeProcess {
    /// Returns whether the process was started with this environment variable.
    pub(super) fn has_variable(&self, name: &str, value: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let wanted = format!("{name}={value}");
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    }

    /// Kills the process. It may have ended by itself.
    pub(super) fn kill(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Returns the processes in a namespace.
pub(super) fn processes(namespace: &str) -> anyhow::Result<Vec<NodeProcess>> {
    let pids = ip(&format!("netns pids {namespace}"))?;
    let processes = pids.split_whitespace().filter_map(|pid| {
        // A process that has just ended has no name.
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(NodeProcess { pid: pid.parse().ok()?, command: command.trim().to_owned() })
    });
    Ok(processes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_one_cluster_are_not_taken_for_those_of_another() {
        let cluster: ClusterName = "foldwire".parse().unwrap();
        assert_eq!(cluster.index("foldwire-12"), Some(12));
        for other in
            ["foldwire", "foldwire-", "foldwire-switch", "foldwire-test-1", "foldwire-01", "x-1"]
        {
            assert_eq!(cluster.index(other), None, "{other}");
        }
        let nested: ClusterName = "foldwire-1".parse().unwrap();
        assert_eq!(cluster.index(&nested.node(0)), None);
        assert_ne!(cluster.switch(), nested.switch());
    }

    #[test]
    fn hosts_are_found_by_address_and_by_name() {
        let cluster: ClusterName = "a".parse().unwrap();
        assert_eq!(cluster.node_of_host("10.77.0.3"), Some(2));
        assert_eq!(cluster.node_of_host("a-2"), Some(2));
        assert_eq!(cluster.node_of_host("10.77.1.3"), None);
        assert_eq!(cluster.node_of_host("b-2"), None);
    }

    #[test]
    fn names_with_blanks_slashes_or_leading_hyphens_are_refused() {
        for name in ["", "-a", "a b", "a/b", "A", "..", "1", &"a".repeat(33)] {
            assert!(name.parse::<ClusterName>().is_err(), "{name}");
        }
        assert!("foldwire-test-3".parse::<ClusterName>().is_ok());
    }
}
