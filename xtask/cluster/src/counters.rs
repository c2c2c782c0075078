//! Kernel counters of a node's link.
//!
//! Two counters see the same bytes. The queueing discipline counts packets as they would be on a
//! wire, each with its headers. The device counts buffers of up to 64 KiB, which only a real card
//! would cut into packets, so it counts few headers. Each counter gives one figure:
//!
//! - *wire bytes*, from the discipline: bytes from the Ethernet header on, without preamble,
//!   checksum and gap (24 bytes a packet). They restart at 0 when `cargo xtask cluster up` changes
//!   a rate to `none` or back.
//! - *payload*, from the device: its bytes − 66 × its buffers. A buffer has Ethernet, IPv4 and TCP
//!   headers and the time stamp, 14 + 20 + 20 + 12 bytes. This is exact for TCP, except where
//!   headers have another length. The figure is too large by up to 28 bytes for each selective
//!   acknowledgement (after losses), and by 8 to 20 bytes for the handshake of each connection. It
//!   is too small by 24 bytes for each packet of address resolution. Data that is sent twice counts
//!   twice; `retransmitted` shows it.

use super::ip::{ip, shell, tc};
use super::nodes::ClusterName;
use super::shape::ends;
use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Headers of a TCP packet or buffer, bytes.
const HEADERS: u64 = 66;

/// Counters of a node, since the cluster was made or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    /// Traffic from the node to the switch.
    pub(super) sent: Direction,
    /// Traffic from the switch to the node.
    pub(super) received: Direction,
    /// Packets that the node's TCP retransmitted.
    pub(super) retransmitted: u64,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Direction {
    /// Bytes of all packets, including all headers.
    pub(super) wire_bytes: u64,
    /// Packets.
    pub(super) packets: u64,
    /// Estimated bytes of TCP payload.
    pub(super) payload_bytes: u64,
    /// Packets dropped because the queue was full.
    pub(super) dropped: u64,
}

impl Counters {
    /// Reads a node's counters.
    pub(super) fn read(cluster: &ClusterName, index: usize) -> anyhow::Result<Self> {
        let [node, switch] = ends(cluster, index);
        let retransmitted = retransmitted(&shell(&node.0, "cat /proc/net/snmp")?)
            .context("/proc/net/snmp has no number of TCP's retransmissions")?;
        Ok(Self {
            sent: Direction::read(&node)?,
            received: Direction::read(&switch)?,
            retransmitted,
        })
    }

    /// Returns the difference from an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            sent: self.sent.since(earlier.sent),
            received: self.received.since(earlier.received),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
        }
    }

    /// Formats the counters of all nodes as a table.
    pub(super) fn table(all: &[Self]) -> String {
        let mut table = format!(
            "{:>4}  {:>15}  {:>11}  {:>15}  {:>15}  {:>15}  {:>7}  {:>13}\n",
            "node",
            "sent, bytes",
            "packets",
            "payload",
            "received, bytes",
            "payload",
            "dropped",
            "retransmitted"
        );
        for (node, counters) in all.iter().enumerate() {
            let Self { sent, received, retransmitted } = counters;
            let dropped = sent.dropped + received.dropped;
            table += &format!(
                "{node:>4}  {:>15}  {:>11}  {:>15}  {:>15}  {:>15}  {dropped:>7}  \
                {retransmitted:>13}\n",
                sent.wire_bytes,
                sent.packets,
                sent.payload_bytes,
                received.wire_bytes,
                received.payload_bytes,
            );
        }
        table
    }
}

impl Direction {
    fn read((namespace, device): &(String, String)) -> anyhow::Result<Self> {
        let discipline: QueueDiscipline =
            first(&tc(&format!("-n {namespace} -j -s qdisc show dev {device} root"))?)?;
        let device: DeviceReport =
            first(&ip(&format!("-n {namespace} -j -s link show dev {device}"))?)?;
        let TxStats { bytes, packets } = device.stats64.tx;
        Ok(Self {
            wire_bytes: discipline.bytes,
            packets: discipline.packets,
            payload_bytes: payload_bytes(bytes, packets),
            dropped: discipline.drops,
        })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            wire_bytes: self.wire_bytes.saturating_sub(earlier.wire_bytes),
            packets: self.packets.saturating_sub(earlier.packets),
            payload_bytes: self.payload_bytes.saturating_sub(earlier.payload_bytes),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

/// Returns the rate that a device is shaped to, in bits per second.
pub(super) fn shaped_rate(end: &(String, String)) -> anyhow::Result<Option<u64>> {
    let (namespace, device) = end;
    let discipline: QueueDiscipline =
        first(&tc(&format!("-n {namespace} -j -s qdisc show dev {device} root"))?)?;
    Ok(discipline.options.rate.map(|bytes| bytes * 8))
}

/// Entry in the output of `tc -j -s qdisc`.
#[derive(Deserialize)]
struct QueueDiscipline {
    bytes: u64,
    packets: u64,
    drops: u64,
    #[serde(default)]
    options: QueueOptions,
}

#[derive(Default, Deserialize)]
struct QueueOptions {
    /// Bytes per second.
    rate: Option<u64>,
}

/// Entry in the output of `ip -j -s link`.
#[derive(Deserialize)]
struct DeviceReport {
    stats64: DeviceStats,
}

#[derive(Deserialize)]
struct DeviceStats {
    tx: TxStats,
}

#[derive(Deserialize)]
struct TxStats {
    bytes: u64,
    packets: u64,
}

fn first<T: DeserializeOwned>(json: &str) -> anyhow::Result<T> {
    let all: Vec<T> = serde_json::from_str(json)
        .with_context(|| format!("unknown output of iproute2: {json}"))?;
    all.into_iter().next().context("iproute2 shows no such device")
}

fn payload_bytes(bytes: u64, buffers: u64) -> u64 {
    // Packets of address resolution are shorter than TCP's headers, and there may be nothing else.
    bytes.saturating_sub(HEADERS * buffers)
}

/// Parses `RetransSegs` in `/proc/net/snmp`, where a line of names precedes a line of numbers.
fn retransmitted(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "RetransSegs")?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_iproute2_are_understood() {
        let tbf = r#"[{"kind":"tbf","handle":"8162:","root":true,"refcnt":3,
            "options":{"rate":125000000,"burst":81875,"lat":32899},
            "bytes":90,"packets":1,"drops":2,"overlimits":0}]"#;
        let tbf: QueueDiscipline = first(tbf).unwrap();
        assert_eq!((tbf.bytes, tbf.drops, tbf.options.rate), (90, 2, Some(125_000_000)));
        let pfifo =
            r#"[{"kind":"pfifo","options":{"limit":10000},"bytes":0,"packets":0,"drops":0}]"#;
        assert_eq!(first::<QueueDiscipline>(pfifo).unwrap().options.rate, None);
        assert!(first::<QueueDiscipline>("[]").is_err());
    }

    #[test]
    fn retransmissions_are_found_by_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs InErrs\nTcp: 7 8 9\nUdp: X\nUdp: 0\n";
        assert_eq!(retransmitted(snmp), Some(8));
        assert_eq!(retransmitted("Tcp: InSegs\nTcp: 7\n"), None);
    }
}
