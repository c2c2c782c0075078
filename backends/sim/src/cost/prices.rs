//! Costs of steps and messages in picoseconds, for the events of [`run`](super::run). They follow
//! from [`PrimitiveSpeeds`](super::PrimitiveSpeeds), [`NetworkModel`](super::NetworkModel) and
//! [`HostModel`](super::HostModel).

use super::ClusterModel;
use super::queue::Picos;
use super::run::PricedProgram;
use super::work::PrimitiveCounts;

/// Rates and latencies in picoseconds.
pub(super) struct Prices {
    per_value: Rates,
    /// Copying a byte of a frame.
    per_frame_byte: f64,
    /// Computing or verifying the checksum of a byte of a message.
    per_checked_byte: f64,
    /// Moving a byte across a link.
    per_wire_byte: f64,
    pub(super) latency: Picos,
    sending: Overhead,
    receiving: Overhead,
    /// See [`HostModel::wake`](super::HostModel::wake).
    pub(super) waking: Picos,
    /// See [`HostModel::time_slice`](super::HostModel::time_slice).
    pub(super) slice: Picos,
}

/// Picoseconds per value, in the order of [`PrimitiveCounts`]'s fields.
type Rates = [f64; 9];

/// Core time that a message takes on one of its two ranks.
struct Overhead {
    per_message: f64,
    per_byte: f64,
}

impl Overhead {
    fn of(&self, n_bytes: u32) -> f64 {
        self.per_message + f64::from(n_bytes) * self.per_byte
    }
}

/// Bytes of the messages that a step receives and sends.
pub(super) struct StepMessages {
    pub(super) received: Option<u32>,
    pub(super) sent: Option<u32>,
    /// True if this rank writes the header of the sent message, and so computes its checksum. A
    /// forwarded frame keeps its header.
    pub(super) is_new: bool,
}

pub(super) fn picoseconds(seconds: f64) -> Picos {
    (seconds * 1e12).round() as Picos
}

impl Prices {
    pub(super) fn new(program: &PricedProgram<'_>) -> Self {
        let ClusterModel { network, host } = program.cluster;
        let speeds = program.speeds;
        let rate = |speed: f64| 1e12 * program.bytes_per_value as f64 / speed;
        let overhead = |message: f64, byte: f64| Overhead {
            per_message: message * 1e12,
            per_byte: byte * 1e12,
        };
        Self {
            per_value: [
                speeds.encode,
                speeds.decode,
                speeds.fold,
                speeds.fold_store,
                speeds.combine,
                speeds.reduce,
                speeds.refold,
                speeds.recode,
                speeds.copy,
            ]
            .map(rate),
            per_frame_byte: 1e12 / speeds.copy,
            per_checked_byte: if network.checksums { 1e12 / speeds.checksum } else { 0.0 },
            per_wire_byte: network.rate.map_or(0.0, |rate| 1e12 / rate),
            latency: picoseconds(network.latency),
            sending: overhead(network.send_overhead, network.send_per_byte),
            receiving: overhead(network.recv_overhead, network.recv_per_byte),
            waking: picoseconds(host.wake),
            slice: picoseconds(host.time_slice),
        }
    }

    /// Time for which a message of `n_bytes` occupies a link.
    pub(super) fn crossing(&self, n_bytes: u32) -> Picos {
        (f64::from(n_bytes) * self.per_wire_byte).round() as Picos
    }

    /// Time for which a step on `n_values` occupies its rank's core.
    pub(super) fn of_step(
        &self,
        n_values: usize,
        work: &PrimitiveCounts,
        messages: &StepMessages,
    ) -> Picos {
        let mut time = n_values as f64 * self.of_value(work);
        if let Some(n_bytes) = messages.received {
            time += self.receiving.of(n_bytes) + f64::from(n_bytes) * self.per_checked_byte;
            // The segments of the received frame are copied into the frame that the lane holds.
            time += f64::from(n_bytes) * self.per_frame_byte * f64::from(work.join);
        }
        if let Some(n_bytes) = messages.sent {
            time += self.sending.of(n_bytes);
            if messages.is_new {
                time += f64::from(n_bytes) * self.per_checked_byte;
            }
            time += f64::from(n_bytes) * self.per_frame_byte * f64::from(work.copy_frame);
        }
        time.round() as Picos
    }

    fn of_value(&self, work: &PrimitiveCounts) -> f64 {
        let times = [
            work.encode,
            work.decode,
            work.fold,
            work.fold_store,
            work.combine,
            work.reduce,
            work.refold,
            work.recode,
            // Adding waits for memory as copying does.
            work.copy + work.add,
        ];
        times.iter().zip(&self.per_value).map(|(&n, rate)| f64::from(n) * rate).sum()
    }
}
