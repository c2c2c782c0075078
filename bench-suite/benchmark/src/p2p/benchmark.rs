//! The benchmark as every rank runs it: operations × sizes × rounds × implementations, all ranks in
//! step.
//!
//! A measurement repeats a message until the resolution of the clock does not matter. The number of
//! messages follows from a few timed ones, whose times the ranks exchange. One message of each
//! implementation is compared with the sent values before the rounds, and one after them. Neither
//! is timed.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context;
use foldwire::{Communicator, Report, Transport};
use foldwire_arguments::{P2pArgs, P2pTest};
use foldwire_fields::memory;
use foldwire_workbench::data::Data;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::implementation::MessageImplementation;
use super::output::{MessageRow, compare};
use crate::bench::benchmark::counts;
use crate::bench::runner::{Barrier, bits, gather_json};

/// Approximate seconds of a measurement.
const MEASUREMENT_S: f64 = 1e-3;
/// Largest number of messages in a measurement.
const MAX_IN_A_ROW: usize = 1000;
/// Largest size in bytes of a short message. The time of a short message is estimated from several.
const SHORT: usize = 64 << 10;
/// Number of different offsets in the data at which messages begin. Messages cycle through them.
const N_PLACES: usize = 32;
/// Number of values from one offset to the next. They fill a cache line, so that all offsets are
/// aligned alike.
const STEP: usize = 16;

/// The benchmark on one rank.
pub(super) struct MessageBenchmark<'a, X: Transport> {
    pub(super) args: &'a P2pArgs,
    pub(super) comm: Communicator<X>,
    pub(super) barrier: &'a mut Barrier<'a, Communicator<X>>,
    pub(super) implementations: Vec<Box<dyn MessageImplementation<X> + 'a>>,
    pub(super) data: &'a Data<f32>,
    pub(super) progress: &'a ProgressBar,
}

impl<X: Transport> MessageBenchmark<'_, X> {
    /// Runs the benchmark, together with all other ranks. All ranks return the same rows.
    ///
    /// # Errors
    /// Fails if a call fails on any rank. All ranks get an error, or run into their timeout.
    pub(super) fn run(mut self) -> anyhow::Result<Vec<MessageRow>> {
        let counts = counts::<f32>(&self.args.sizes)?;
        let mut problems = Vec::new();
        for what in self.args.whats() {
            match what {
                P2pTest::Barrier => problems.push((what, None)),
                P2pTest::PingPong | P2pTest::SendRecv => {
                    problems.extend(counts.iter().map(|&count| (what, Some(count))));
                }
            }
        }
        self.progress.set_length(problems.len() as u64);
        let mut rows = Vec::new();
        for (what, count) in problems {
            let n_bytes = count.map(|count| count * size_of::<f32>());
            let about = n_bytes.map_or_else(String::new, |n_bytes| format!(", {n_bytes} bytes"));
            self.progress.set_message(format!("{}{about}", what.name()));
            let measured = self.measure(what, count);
            rows.extend(measured.with_context(|| format!("{}{about}", what.name()))?);
            self.progress.inc(1);
        }
        self.progress.finish_and_clear();
        Ok(rows)
    }

    /// Measures an operation with messages of `count` values; `None` for the barrier.
    fn measure(&mut self, what: P2pTest, count: Option<usize>) -> anyhow::Result<Vec<MessageRow>> {
        let Self { args, comm, barrier, implementations, data, .. } = self;
        let mut runner = MessageRunner::new(what, count.unwrap_or(0), comm, *barrier, data)?;
        let mut records = Vec::new();
        for implementation in implementations.iter_mut().filter(|it| it.name(what).is_some()) {
            let implementation = implementation.as_mut();
            let mut record = RankMessageRecord { in_a_row: 1, ..RankMessageRecord::default() };
            record.add(runner.check(implementation, 0)?);
            record.in_a_row = runner.in_a_row(implementation)?;
            records.push((implementation, record));
        }
        for _ in 0..args.repeat {
            for (implementation, record) in &mut records {
                record.times.push(runner.time(*implementation, 0..record.in_a_row)?);
                record.coding.extend(runner.coding);
            }
        }
        for (implementation, record) in &mut records {
            record.add(runner.check(*implementation, N_PLACES - 1)?);
        }
        let mut rows = Vec::new();
        for (implementation, record) in &records {
            let ranks = gather_json(runner.comm, record)?;
            let n_bytes = count.map(|count| count * size_of::<f32>());
            rows.push(MessageRow::new(
                what,
                n_bytes,
                implementation.name(what).unwrap_or_default(),
                &ranks,
            ));
        }
        compare(&mut rows);
        Ok(rows)
    }
}

/// One rank's communicator and buffers for messages of one length.
struct MessageRunner<'a, X: Transport> {
    what: P2pTest,
    count: usize,
    comm: &'a mut Communicator<X>,
    barrier: &'a mut Barrier<'a, Communicator<X>>,
    /// Values at all offsets.
    send: Vec<f32>,
    recv: Vec<f32>,
    /// Rank that receives this rank's messages.
    to: usize,
    /// Rank whose messages this rank receives.
    from: usize,
    data: &'a Data<f32>,
    /// Seconds to encode and to decode a message in the last measurement, if the implementation
    /// reports them.
    coding: Option<[f64; 2]>,
}

impl<'a, X: Transport> MessageRunner<'a, X> {
    fn new(
        what: P2pTest,
        count: usize,
        comm: &'a mut Communicator<X>,
        barrier: &'a mut Barrier<'a, Communicator<X>>,
        data: &'a Data<f32>,
    ) -> anyhow::Result<Self> {
        let (size, rank) = (comm.size(), comm.rank().index());
        let mut send = memory::zeroed(count + N_PLACES * STEP)?;
        data.fill(rank, 0, &mut send);
        let recv = memory::zeroed(count)?;
        let (to, from) = match what {
            P2pTest::PingPong => (1 - rank.min(1), 1 - rank.min(1)),
            P2pTest::SendRecv | P2pTest::Barrier => ((rank + 1) % size, (rank + size - 1) % size),
        };
        Ok(Self { what, count, comm, barrier, send, recv, to, from, data, coding: None })
    }

    /// Returns whether this rank receives messages.
    fn receives(&self) -> bool {
        match self.what {
            P2pTest::PingPong => self.comm.rank().index() < 2,
            P2pTest::SendRecv => true,
            P2pTest::Barrier => false,
        }
    }

    /// Sends and receives one message, or runs one barrier. The sent values begin at the offset
    /// with the number `place`.
    fn exchange(
        &mut self,
        implementation: &mut dyn MessageImplementation<X>,
        place: usize,
    ) -> anyhow::Result<MessageReports> {
        let first = place % N_PLACES * STEP;
        let Self { comm, recv, to, from, .. } = self;
        let (send, to, from) = (&self.send[first..first + self.count], *to, *from);
        let reports = match (self.what, comm.rank().index()) {
            (P2pTest::PingPong, 0) => {
                let sent = implementation.send(comm, send, to)?;
                MessageReports { sent, received: implementation.recv(comm, recv, from)? }
            }
            (P2pTest::PingPong, 1) => {
                let received = implementation.recv(comm, recv, from)?;
                MessageReports { sent: implementation.send(comm, send, to)?, received }
            }
            (P2pTest::PingPong, _) => MessageReports::default(),
            (P2pTest::SendRecv, _) => {
                let both = implementation.send_recv(comm, (send, to), (recv, from))?;
                MessageReports { sent: both, received: both }
            }
            (P2pTest::Barrier, _) => {
                implementation.barrier(comm)?;
                MessageReports::default()
            }
        };
        Ok(reports)
    }

    /// Runs [`exchange`](Self::exchange) once for each of these places, and returns this rank's
    /// seconds per message. A ping-pong is two messages. Only rank 0 sees its start and its end, so
    /// the other ranks return 0.
    fn time(
        &mut self,
        implementation: &mut dyn MessageImplementation<X>,
        places: Range<usize>,
    ) -> anyhow::Result<f64> {
        let n = places.len().max(1) as f64;
        (self.barrier)(self.comm)?;
        let started = Instant::now();
        let mut coding = None;
        for place in places {
            if let MessageReports { sent: Some(sent), received: Some(received) } =
                self.exchange(implementation, place)?
            {
                let [encode, decode] = coding.unwrap_or_default();
                coding = Some([encode + sent.encode, decode + received.decode]);
            }
        }
        self.coding = coding.map(|parts: [Duration; 2]| parts.map(|part| part.as_secs_f64() / n));
        let each = started.elapsed().as_secs_f64() / n;
        Ok(match (self.what, self.comm.rank().index()) {
            (P2pTest::PingPong, 0) => each / 2.0,
            (P2pTest::PingPong, _) => 0.0,
            (P2pTest::SendRecv | P2pTest::Barrier, _) => each,
        })
    }

    /// Returns the number of messages in a measurement, estimated from a few timed ones.
    fn in_a_row(
        &mut self,
        implementation: &mut dyn MessageImplementation<X>,
    ) -> anyhow::Result<usize> {
        let n_tried = if self.count * size_of::<f32>() <= SHORT { 10 } else { 1 };
        let time = self.time(implementation, 0..n_tried)?;
        let slowest = gather_json(self.comm, &time)?.into_iter().fold(0.0, f64::max);
        let enough = (MEASUREMENT_S / slowest.max(1e-9)).ceil() as usize;
        Ok(enough.clamp(1, MAX_IN_A_ROW))
    }

    /// Exchanges one message with a cleared receive buffer, and checks the received values.
    fn check(
        &mut self,
        implementation: &mut dyn MessageImplementation<X>,
        place: usize,
    ) -> anyhow::Result<MessageCheck> {
        self.recv.fill(f32::NAN);
        (self.barrier)(self.comm)?;
        let reports = self.exchange(implementation, place)?;
        if !self.receives() {
            return Ok(MessageCheck::default());
        }
        let mut want = memory::zeroed(self.count)?;
        self.data.fill(self.from, place * STEP, &mut want);
        // Other libraries have no error.
        let bound = reports.received.map_or(0.0, |report| report.bound);
        Ok(MessageCheck::new(&self.recv, &want, bound, reports.sent))
    }
}

/// Reports of a sent and of a received message.
#[derive(Default)]
struct MessageReports {
    sent: Option<Report>,
    received: Option<Report>,
}

/// Comparison of a received message with the sent one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct MessageCheck {
    n_wrong: usize,
    /// Largest error of finite values; infinite if one arrived as NaN.
    max_err: f64,
    bound: f64,
    /// Report of the message that this rank sent.
    sent: Option<Report>,
}

impl MessageCheck {
    /// Compares received values with sent ones. Values are correct if they have the same bits, or
    /// are finite and within the bound.
    fn new(got: &[f32], want: &[f32], bound: f64, sent: Option<Report>) -> Self {
        let mut check = Self { bound, sent, ..Self::default() };
        for (&got, &want) in got.iter().zip(want) {
            if got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan() {
                continue;
            }
            let error = (f64::from(got) - f64::from(want)).abs();
            if want.is_finite() {
                check.max_err =
                    check.max_err.max(if error.is_nan() { f64::INFINITY } else { error });
            }
            // With a bound of 0, only the same bits are correct. NaN is never within a bound.
            let is_within = want.is_finite() && bound > 0.0 && error <= bound;
            check.n_wrong += usize::from(!is_within);
        }
        check
    }
}

/// Measurements of one implementation on one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankMessageRecord {
    /// Number of messages in a measurement.
    pub(super) in_a_row: usize,
    /// Number of wrong values in the checked messages.
    pub(super) n_wrong: usize,
    #[serde(with = "bits")]
    pub(super) max_err: f64,
    /// Infinite if the codec keeps no bound.
    #[serde(with = "bits")]
    pub(super) bound: f64,
    /// Bytes of the checked messages, before and after compression, if the implementation reports
    /// them.
    pub(super) bytes: Option<[u64; 2]>,
    /// Seconds per message, one entry for each round.
    pub(super) times: Vec<f64>,
    /// Seconds to encode and to decode a message, one entry for each round, if the implementation
    /// reports them.
    pub(super) coding: Vec<[f64; 2]>,
}

impl RankMessageRecord {
    fn add(&mut self, check: MessageCheck) {
        self.n_wrong += check.n_wrong;
        self.max_err = self.max_err.max(check.max_err);
        self.bound = self.bound.max(check.bound);
        if let Some(report) = check.sent {
            let [raw, wire] = self.bytes.unwrap_or_default();
            self.bytes = Some([raw + report.raw_bytes, wire + report.wire_bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_is_wrong_and_without_one_every_other_bit() {
        let (nan, infinite) = (f32::NAN, f32::INFINITY);
        let check = |got: &[f32], want: &[f32], bound| {
            let check = MessageCheck::new(got, want, bound, None);
            (check.n_wrong, check.max_err)
        };
        assert_eq!(check(&[1.0, nan, -0.0], &[1.0, nan, -0.0], 0.0), (0, 0.0));
        assert_eq!(check(&[0.0, nan, 1.5], &[-0.0, 1.0, 1.0], 0.0), (3, infinite.into()));
        assert_eq!(check(&[0.0, 1.5], &[-0.0, 1.0], 0.0), (2, 0.5));
        assert_eq!(check(&[0.0, 1.5, 2.0], &[-0.0, 1.0, 1.0], 0.5), (1, 1.0));
        assert_eq!(check(&[1.0, infinite, nan], &[infinite, 1.0, 1.0], 0.5), (3, infinite.into()));
    }
}
