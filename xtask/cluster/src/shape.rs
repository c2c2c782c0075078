//! Link rates: the settings of `tc`, and the reasons for them.
//!
//! Each direction has a token bucket (`tbf`) on the sending device. It limits the rate of all
//! bytes, including the Ethernet, IP and TCP headers of each packet. So TCP gets 1448 of 1514
//! bytes: 956 Mbit/s of 1 Gbit/s.
//!
//! **Burst**, the bucket's size, passes at once after a pause. A small burst is realistic. But
//! tokens are lost when the timer that opens the bucket fires later than burst/rate. And the kernel
//! cuts up a send that is larger than the bucket. TCP sends up to 64 KiB as one buffer, kept whole
//! as for a card with segmentation offload. With a bucket of 32 KiB at 1 Gbit/s, the cuts alone
//! keep two cores busy, and each node of a ring gets 0.4 Gbit/s. With one of 72 KiB, which holds
//! the buffer and its headers, a node gets 0.95 Gbit/s and needs a tenth of the cores. So the burst
//! is a little more: 80 KiB (0.65 ms at 1 Gbit/s), or 0.25 ms if that is more. On slower links, TCP
//! sends smaller buffers, and the burst is 0.65 ms, but at least 16 KiB. Messages much shorter than
//! the burst do not show the rate.
//!
//! **Limit**, the queue in front of the bucket, holds all bytes that all nodes can have in flight
//! on one connection each. So the network drops nothing, like fabrics with flow control. On the
//! node's side, TCP itself keeps the queue short. At the switch, it fills only when several nodes
//! send to one. With 1 MiB there, three nodes that sent to one had up to 8000 retransmissions in 3
//! s at 1 Gbit/s.
//!
//! **Order**: the kernel handles a veth's output on the processor that sent it. So packets of one
//! connection overtake each other, which caused about 2000 needless retransmissions in 3 s at 10
//! Gbit/s. Receive packet steering gives all packets of a connection to one processor, like a card
//! with several queues. With it there are no retransmissions.
//!
//! **Offloads** keep veth's defaults: TSO is on. GRO is off, which makes no difference, since
//! buffers arrive whole.
//!
//! Measured with iperf3, Mbit/s of payload, on 2 virtual cores that all nodes share; 4 nodes, 3 s.
//! In brackets: while two endless loops run, one for each core.
//!
//! | rate | one stream | ring, each node | three to one, sum | cores busy in the ring |
//! |---|---|---|---|---|
//! | 1gbit | 956 (956) | 952–955 (953–955) | 957 (960) | 0.2 of 2 |
//! | 10gbit | 9496 (6933) | 4700–5300 (3800–4600) | 9497 (9302) | 2 of 2 |
//! | none | 10000–15000 | 5600–7100 | 21900 | 2 of 2 |
//!
//! At 10 Gbit/s the two cores limit the ring, not the buckets. TCP's congestion control is the
//! machine's: here BBR. With cubic and reno, an all-reduce of 64 MiB over four nodes took the same
//! time.

use super::ip::{ip, shell, tc};
use super::nodes::{BRIDGE, ClusterName, DEVICE};
use std::fs;
use std::str::FromStr;
use std::thread::available_parallelism;

/// Rate of a node's link in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// Bits per second, counting all bytes from the Ethernet header on.
    Limited(u64),
    /// Limited only by the speed of the machine.
    Unlimited,
}

const UNITS: [(&str, u64); 3] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
/// Below this range, the smallest burst would be more than 0.13 s of traffic, and few calls would
/// show the rate. Above it, no machine can keep up.
const RATES: std::ops::RangeInclusive<u64> = 1_000_000..=400_000_000_000;

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Unlimited);
        }
        let rate = UNITS.iter().find_map(|(unit, factor)| {
            text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*factor)
        });
        match rate {
            Some(rate) if RATES.contains(&rate) => Ok(Self::Limited(rate)),
            Some(_) => Err("between 1mbit and 400gbit, or `none`".into()),
            None => Err("a number and a unit, such as 1gbit, 250mbit, or `none`".into()),
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Unlimited => f.write_str("none"),
            Self::Limited(rate) => {
                let fits = |(_, factor): &&(&str, u64)| rate.is_multiple_of(*factor);
                match UNITS.iter().find(fits) {
                    Some((unit, factor)) => write!(f, "{}{unit}", rate / factor),
                    None => write!(f, "{rate}bit"),
                }
            }
        }
    }
}

/// Shapes both directions of a node's link. Replaces the previous shape.
pub(super) fn apply(
    cluster: &ClusterName,
    index: usize,
    n_nodes: usize,
    rate: Rate,
) -> anyhow::Result<()> {
    let discipline = match rate {
        // A queue that never fills, used for its counters.
        Rate::Unlimited => "pfifo limit 10000".to_owned(),
        Rate::Limited(rate) => {
            let (burst, limit) = (burst_bytes(rate), limit_bytes(n_nodes, send_buffer_bytes()));
            format!("tbf rate {rate}bit burst {burst} limit {limit}")
        }
    };
    let largest = match rate {
        Rate::Unlimited => MAX_BUFFER_BYTES,
        Rate::Limited(rate) => buffer_bytes(burst_bytes(rate)),
    };
    for (namespace, device) in ends(cluster, index) {
        ip(&format!("-n {namespace} link set dev {device} gso_max_size {largest}"))?;
        tc(&format!("-n {namespace} qdisc replace dev {device} root {discipline}"))?;
    }
    Ok(())
}

/// Makes one processor handle all packets of a connection. Kernels without receive packet steering
/// work too, with retransmissions.
pub(super) fn keep_order(cluster: &ClusterName, index: usize) -> anyhow::Result<()> {
    let mask = processor_mask(available_parallelism().map_or(1, usize::from));
    for (namespace, device) in ends(cluster, index) {
        let line = format!(
            "for queue in /sys/class/net/{device}/queues/rx-*/rps_cpus; do \
             ! test -w $queue || echo {mask} > $queue; done"
        );
        shell(&namespace, &line)?;
    }
    Ok(())
}

/// Returns the arguments for a switch that forwards at once and snoops no multicast groups.
pub(super) fn bridge() -> String {
    format!("name {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
}

/// Returns the namespaces and devices of both ends of a node's link.
pub(super) fn ends(cluster: &ClusterName, index: usize) -> [(String, String); 2] {
    [(cluster.node(index), DEVICE.to_owned()), (cluster.switch(), port(index))]
}

/// Returns the device name of the switch's end of a node's link.
pub(super) fn port(index: usize) -> String {
    format!("node{index}")
}

/// Largest buffer that TCP hands to a device.
const MAX_BUFFER_BYTES: u64 = 65536;

fn burst_bytes(rate: u64) -> u64 {
    let in_microseconds = |n: u64| rate / 8 * n / 1_000_000;
    in_microseconds(250).max(in_microseconds(650).clamp(16 << 10, 80 << 10))
}

/// Returns the largest buffer whose packets fit the bucket: headers are 66 of 1514 bytes.
fn buffer_bytes(burst: u64) -> u64 {
    (burst / 16 * 15).min(MAX_BUFFER_BYTES)
}

fn limit_bytes(n_nodes: usize, send_buffer: u64) -> u64 {
    // `tc` counts in 32 bits.
    (send_buffer * n_nodes as u64).min(1 << 30)
}

/// Returns the most bytes that a TCP connection can have in flight, by the system's settings.
fn send_buffer_bytes() -> u64 {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
    setting.split_whitespace().nth(2).and_then(|most| most.parse().ok()).unwrap_or(4 << 20)
}

/// Formats the set of the first `n` processors like the kernel: hexadecimal, in groups of 32 bits.
fn processor_mask(n: usize) -> String {
    let group = |bits: usize| if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
    let groups = (0..n.div_ceil(32)).rev().map(|at| format!("{:08x}", group(n - 32 * at)));
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written_alike() {
        for text in ["1gbit", "10gbit", "250mbit", "1500kbit", "none"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["", "1", "gbit", "-1gbit", "0mbit", "500gbit", "99999999999gbit", "1Gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bucket_holds_a_whole_buffer_with_the_headers_of_its_packets() {
        for rate in [1_000_000, 100_000_000, 500_000_000, 1_000_000_000, 10_000_000_000] {
            let burst = burst_bytes(rate);
            let buffer = buffer_bytes(burst);
            let packets = buffer.div_ceil(1448);
            assert!(buffer + 66 * packets <= burst, "{rate}: {buffer} in {burst}");
            assert!(buffer >= 8192, "{rate}: {buffer}");
        }
        assert_eq!(buffer_bytes(burst_bytes(1_000_000_000)), MAX_BUFFER_BYTES);
    }

    #[test]
    fn processors_are_named_in_groups_of_32() {
        assert_eq!(processor_mask(1), "00000001");
        assert_eq!(processor_mask(2), "00000003");
        assert_eq!(processor_mask(32), "ffffffff");
        assert_eq!(processor_mask(33), "00000001,ffffffff");
    }
}
