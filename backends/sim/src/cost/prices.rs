//! Costs of steps and messages in picoseconds, for the events of [`run`](super::run). They follow
//! from [`PrimitiveSpeeds`](super::PrimitiveSpeeds), [`NetworkModel`](super::NetworkModel) and
//! [`HostModel`](super::HostModel).

use super::ClusterModel;
use super::queue::Picos;
use super::run::PricedProgram;
use super::speeds::PerPrimitive;
use super::work::PrimitiveCounts;

/// Rates and latencies in picoseconds.
pub(super) struct Prices {
    /// Each primitive on a value.
    per_value: PerPrimitive,
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

/// Times of a step in picoseconds, by kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepTimes {
    pub(super) encode: f64,
    pub(super) decode: f64,
    /// Combining values or frames. Fused primitives count here as a whole.
    pub(super) fold: f64,
    /// Copying values and frames.
    pub(super) copy: f64,
    /// Sending and receiving messages, and their checksums.
    pub(super) message: f64,
}

impl StepTimes {
    pub(super) fn total(&self) -> Picos {
        let Self { encode, decode, fold, copy, message } = self;
        (encode + decode + fold + copy + message).round() as Picos
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.encode += other.encode;
        self.decode += other.decode;
        self.fold += other.fold;
        self.copy += other.copy;
        self.message += other.message;
    }
}

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
        let overhead = |message: f64, byte: f64| Overhead {
            per_message: message * 1e12,
            per_byte: byte * 1e12,
        };
        Self {
            per_value: speeds.map(|speed| 1e12 * program.bytes_per_value as f64 / speed),
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

    /// Times for which a step on `n_values` occupies its rank's core.
    pub(super) fn of_step(
        &self,
        n_values: usize,
        work: &PrimitiveCounts,
        messages: &StepMessages,
    ) -> StepTimes {
        let mut times = self.of_primitives(n_values as f64, work);
        if let Some(n_bytes) = messages.received {
            times.message +=
                self.receiving.of(n_bytes) + f64::from(n_bytes) * self.per_checked_byte;
            // The segments of the received frame are copied into the frame that the lane holds.
            times.copy += f64::from(n_bytes) * self.per_frame_byte * f64::from(work.join);
        }
        if let Some(n_bytes) = messages.sent {
            times.message += self.sending.of(n_bytes);
            if messages.is_new {
                times.message += f64::from(n_bytes) * self.per_checked_byte;
            }
            times.copy += f64::from(n_bytes) * self.per_frame_byte * f64::from(work.copy_frame);
        }
        times
    }

    /// Times of a step's primitives on `n` values.
    fn of_primitives(&self, n: f64, work: &PrimitiveCounts) -> StepTimes {
        let each = &self.per_value;
        let time = |count: u8, per_value: f64| n * f64::from(count) * per_value;
        // A transcoding is a decoding and an encoding.
        let recode = time(work.recode, each.recode);
        let encode_share = each.encode / (each.encode + each.decode).max(f64::MIN_POSITIVE);
        let operated = [
            (work.fold, each.fold),
            (work.fold_store, each.fold_store),
            (work.combine, each.combine),
            (work.refold, each.refold),
        ];
        let reduce = time(work.reduce, each.reduce);
        let decoded = time(work.reduce, each.decode).min(reduce);
        // Adding waits for memory as copying does.
        let added = time(work.add, each.copy);
        let folds: f64 = operated.iter().map(|&(count, per_value)| time(count, per_value)).sum();
        StepTimes {
            encode: time(work.encode, each.encode) + recode * encode_share,
            decode: time(work.decode, each.decode) + recode * (1.0 - encode_share) + decoded,
            fold: folds + (reduce - decoded) + added,
            copy: time(work.copy, each.copy),
            message: 0.0,
        }
    }
}
