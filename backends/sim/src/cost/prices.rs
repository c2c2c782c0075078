//! What steps and messages cost, in picoseconds: [`PrimitiveSpeeds`](super::PrimitiveSpeeds),
//! [`NetworkModel`](super::NetworkModel) and [`HostModel`](super::HostModel) as the events of [`run`](super::run) need
//! them.

use super::ClusterModel;
use super::queue::Picos;
use super::run::PricedProgram;
use super::work::PrimitiveCounts;

/// Rates and latencies in picoseconds.
pub(super) struct Prices {
    per_value: Rates,
    per_frame_byte: f64,
    per_checked_byte: f64,
    per_wire_byte: f64,
    pub(super) latency: Picos,
    sending: Overhead,
    receiving: Overhead,
    pub(super) waking: Picos,
    pub(super) slice: Picos,
}

/// Picoseconds per value, in the order of [`PrimitiveCounts`]'s fields.
type Rates = [f64; 9];

/// What a message takes of a rank's core at one of its ends.
struct Overhead {
    per_message: f64,
    per_byte: f64,
}

impl Overhead {
    fn of(&self, n_bytes: u32) -> f64 {
        self.per_message + f64::from(n_bytes) * self.per_byte
    }
}

/// The messages of a step, in bytes of their frames.
pub(super) struct StepMessages {
    pub(super) received: Option<u32>,
    pub(super) sent: Option<u32>,
    /// Whether what is sent has a header of this rank's; a frame that is passed on keeps the one it
    /// has.
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

    /// How long a message of `n_bytes` occupies a link.
    pub(super) fn crossing(&self, n_bytes: u32) -> Picos {
        (f64::from(n_bytes) * self.per_wire_byte).round() as Picos
    }

    /// How long a step on `n_values` keeps its rank's core.
    pub(super) fn of_step(
        &self,
        n_values: usize,
        work: &PrimitiveCounts,
        messages: &StepMessages,
    ) -> Picos {
        let mut time = n_values as f64 * self.of_value(work);
        if let Some(n_bytes) = messages.received {
            time += self.receiving.of(n_bytes) + f64::from(n_bytes) * self.per_checked_byte;
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
            work.copy,
        ];
        times.iter().zip(&self.per_value).map(|(&n, rate)| f64::from(n) * rate).sum()
    }
}
