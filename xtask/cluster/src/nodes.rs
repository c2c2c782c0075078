//! What exists: the namespaces of a cluster, whether they are ours and complete, and the processes
//! in them.
//!
//! A namespace is ours if its loopback device has the alias [`MARK`]. It gets that right after it
//! is made; a crash in between leaves one with nothing in it but a loopback device that is down,
//! which is taken for ours too. The switch's bridge gets the same alias as the last act of `up`: a
//! cluster without it was never finished.

use super::ip::ip;
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use std::fs;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Alias of loopback devices of our namespaces and of bridges of finished clusters.
pub(super) const MARK: &str = "foldwire-cluster";
/// Most nodes of a cluster; more would be too slow on one machine to tell anything.
pub(super) const MAX_NODES: usize = 64;
/// A node's device.
pub(super) const DEVICE: &str = "eth0";
/// The switch's bridge.
pub(super) const BRIDGE: &str = "br0";
/// The network of all nodes.
pub(super) const NETWORK: &str = "10.77.0.0/24";

/// The name of a cluster: small letters, digits and hyphens, at most 32.
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
    /// The namespace, and the host name, of a node.
    pub(super) fn node(&self, index: usize) -> String {
        format!("{self}-{index}")
    }

    /// The namespace of the switch.
    pub(super) fn switch(&self) -> String {
        format!("{self}-switch")
    }

    /// The node that has this namespace.
    fn index(&self, namespace: &str) -> Option<usize> {
        let rest = namespace.strip_prefix(&self.0)?.strip_prefix('-')?;
        let index = rest.parse().ok()?;
        // `foldwire-+1` and `foldwire-01` are none of ours.
        (self.node(index) == namespace).then_some(index)
    }

    /// The node with this address or host name.
    pub(super) fn node_of_host(&self, host: &str) -> Option<usize> {
        if let Some(index) = self.index(host) {
            return Some(index);
        }
        let asked: Ipv4Addr = host.parse().ok()?;
        (0..MAX_NODES).find(|&index| address(index) == asked)
    }

    /// Everything of this name that exists.
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

    /// Number of nodes of a cluster that is up.
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

/// What exists of a cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    /// Our nodes, in order.
    pub(super) nodes: Vec<usize>,
    /// Whether our switch exists.
    pub(super) has_switch: bool,
    /// Whether `up` has finished.
    pub(super) is_complete: bool,
    /// Namespaces with names of ours that somebody else made.
    pub(super) foreign: Vec<String>,
}

impl ClusterState {
    /// Whether there is nothing of ours.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && !self.has_switch
    }

    /// Refuses to touch what others made.
    pub(super) fn refuse_foreign(&self) -> anyhow::Result<()> {
        if let Some(namespace) = self.foreign.first() {
            bail!(
                "the network namespace `{namespace}` was not made by this command and is left alone; \
                 take another --name, or remove it with `ip netns delete {namespace}`"
            );
        }
        Ok(())
    }
}

/// The address of a node.
pub(super) fn address(index: usize) -> Ipv4Addr {
    let [a, b, c, _] = [10, 77, 0, 0];
    // `MAX_NODES` keeps this within the network.
    Ipv4Addr::new(a, b, c, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// A network device, as `ip -j link` shows it.
#[derive(Debug, Deserialize)]
pub(super) struct NetDevice {
    #[serde(rename = "ifname")]
    pub(super) name: String,
    #[serde(rename = "ifalias", default)]
    pub(super) alias: String,
    #[serde(default)]
    pub(super) flags: Vec<String>,
}

/// The devices in a namespace.
pub(super) fn devices(namespace: &str) -> anyhow::Result<Vec<NetDevice>> {
    let json = ip(&format!("-n {namespace} -j link show"))?;
    serde_json::from_str(&json).with_context(|| format!("`ip -j link` of {namespace} said: {json}"))
}

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
    /// What the kernel calls it: the first 15 bytes of its program's name.
    pub(super) command: String,
}

impl NodeProcess {
    /// Whether it was started with this variable in its environment.
    pub(super) fn has_variable(&self, name: &str, value: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let wanted = format!("{name}={value}");
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    }

    /// Kills it; it may have ended by itself.
    pub(super) fn kill(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The processes in a namespace.
pub(super) fn processes(namespace: &str) -> anyhow::Result<Vec<NodeProcess>> {
    let pids = ip(&format!("netns pids {namespace}"))?;
    let processes = pids.split_whitespace().filter_map(|pid| {
        // One that has ended meanwhile has no name any more.
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
