//! Measurement of links in the first calls of automatic plans, if neither the configuration nor the
//! transport declares their rate.
//!
//! Ranks meet in a barrier, send an uncompressed array round a ring, and agree on the longest time
//! that any rank took. They do so twice for each length, and the shorter time counts. The first
//! array is short. The next ones are each eight times as long, until one takes long enough to be
//! measured. Each time includes a cost for each message that does not depend on its length. The
//! *difference* between two lengths cancels that cost:
//!
//! ```text
//! rate = (bytes − bytes at the previous length) / (seconds − seconds at the previous length)
//! ```
//!
//! The ranks send an array of a given length only after calls have moved many times its bytes. The
//! measurement therefore never costs much of what it can save.
//!
//! Before a [trial](crate::select::trials) call, ranks also wait for each other, and agree on how
//! long the previous call of the same kind took.

use super::full_call::{FullCall, Phase};
use super::operands::Operands;
use super::{Communicator, Request};
use crate::bound::Quantum;
use crate::element::Element;
use crate::error::Error;
use crate::frame::StepQuantity;
use crate::plan::Plan;
use crate::select::automatic::{Choice, Mode};
use crate::select::trials::{CallKind, Trials};
use crate::transport::Transport;
use alloc::vec::Vec;
use core::time::Duration;

/// Lengths of the arrays that go round the ring, in bytes.
const LENGTHS: [usize; 3] = [64 << 10, 512 << 10, 4 << 20];
/// Number of rounds of each length.
const N_REPEATS: u8 = 2;
/// An array goes round after calls have moved this many times its bytes, including the call that is
/// about to begin.
const CALL_BYTES_PER_PROBE_BYTE: usize = 32;
/// Time of a round that is long enough to end the measurement, in seconds.
const LONG_ENOUGH_S: f32 = 2e-3;

/// Measurements of a communicator.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    pub(super) links: LinkFacts,
    pub(super) trials: Trials,
    /// The running call, if it is a trial.
    trial: Option<TimedCall>,
}

/// A call of an automatic plan whose choice depends on measurements, as they count it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedCall {
    /// Bytes of the array, if the choice depends on links.
    n_bytes: Option<usize>,
    /// Kind of the call, if exact and compressed calls are expected to take about as long.
    kind: Option<CallKind>,
}

impl Measurements {
    /// Counts a kept call. Returns whether to replay it. Leaves the count to the full call if a
    /// measurement is due before it, or if its kind has been forgotten: counting it then drops
    /// another kind, and with it kept calls. So every rank counts the same calls and drops the same
    /// results, whether it replays calls or plans them anew.
    pub(super) fn count_replay(&mut self, call: &CountedCall) -> bool {
        let mut links = self.links;
        let is_probe_due = call.n_bytes.is_some_and(|n_bytes| links.count_call(n_bytes));
        let needs_full_call = |kind| !self.trials.knows(&kind) || self.trials.is_due(&kind);
        if is_probe_due || call.kind.is_some_and(needs_full_call) {
            return false;
        }
        self.links = links;
        if let Some(kind) = call.kind {
            self.trials.count(&kind);
        }
        true
    }
}

/// Measured properties of a communicator's links.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkFacts {
    /// Rate of a link in bytes per second, the same on all ranks; 0 if unknown.
    rate: f32,
    /// Bytes of all calls that were counted so far.
    n_bytes: usize,
    /// Shortest time of the previous length, in seconds.
    previous_s: f32,
    /// Time of the first round of the current length, in seconds.
    shortest_s: f32,
    /// Number of rounds so far; `u8::MAX` once a round took [`LONG_ENOUGH_S`].
    n_rounds: u8,
}

impl LinkFacts {
    /// Rate of a link in bytes per second, the same on all ranks; `None` if unknown.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0).then_some(self.rate.into())
    }

    /// Returns the length of the next array in bytes, if a round is due.
    fn next(&self) -> Option<usize> {
        let n_bytes = *LENGTHS.get(usize::from(self.n_rounds / N_REPEATS))?;
        (self.n_bytes >= n_bytes.saturating_mul(CALL_BYTES_PER_PROBE_BYTE)).then_some(n_bytes)
    }

    /// Counts a call of this many bytes. Returns whether to measure before it begins.
    fn count_call(&mut self, n_bytes: usize) -> bool {
        self.n_bytes = self.n_bytes.saturating_add(n_bytes);
        self.next().is_some()
    }

    /// Records the longest time that any of `size` ranks took for a round.
    fn note(&mut self, size: usize, seconds: f32) {
        let nth = usize::from(self.n_rounds / N_REPEATS);
        self.n_rounds += 1;
        if !self.n_rounds.is_multiple_of(N_REPEATS) {
            self.shortest_s = seconds;
            return;
        }
        let seconds = seconds.min(self.shortest_s);
        let sent = |nth: usize| LENGTHS[nth] as f64 * (size as f64 - 1.0) / size as f64;
        let (n_bytes, n_before) = (sent(nth), nth.checked_sub(1).map_or(0.0, sent));
        let more = f64::from(seconds - self.previous_s);
        // If the longer array was not slower, something disturbed the shorter one: ignore the
        // shorter one.
        let rate =
            if more > 0.0 { (n_bytes - n_before) / more } else { n_bytes / f64::from(seconds) };
        self.rate = if rate.is_finite() { rate as f32 } else { 0.0 };
        self.previous_s = seconds;
        if seconds >= LONG_ENOUGH_S {
            self.n_rounds = u8::MAX;
        }
    }
}

/// A measurement in progress.
pub(super) struct Probe {
    /// The automatic plan that chooses afterwards.
    plan: Plan,
    step: ProbeStep,
}

/// A step of a measurement, with the values that ranks exchange.
enum ProbeStep {
    /// Ranks wait for each other.
    Barrier([f64; 1]),
    /// The array goes round. The round began at this time.
    Ring { array: Vec<f64>, began: Duration },
    /// Ranks agree on the longest time in seconds that any rank took for the round. The array is
    /// kept for its memory.
    Agree { seconds: [f64; 1], array: Vec<f64> },
    /// Before a trial, ranks wait for each other, and agree on how many seconds the previous call
    /// of the same kind took.
    Trial { seconds: [f64; 1] },
}

impl Probe {
    /// Returns the values that ranks exchange.
    pub(super) fn exchanged(&mut self) -> &mut [f64] {
        match &mut self.step {
            ProbeStep::Ring { array, .. } => array,
            ProbeStep::Barrier(value) => value,
            ProbeStep::Agree { seconds, .. } | ProbeStep::Trial { seconds } => seconds,
        }
    }
}

/// A trial call, which is timed.
#[derive(Debug)]
struct TimedCall {
    kind: CallKind,
    mode: Mode,
    /// Time at which the call began.
    began: Duration,
}

impl<X: Transport> Communicator<X> {
    /// Mode of the running call, if it is a trial.
    pub(super) fn trial_mode(&self) -> Option<Mode> {
        self.state.measured.trial.as_ref().map(|trial| trial.mode)
    }

    /// Records the duration of the call that has just ended, if it was a trial.
    pub(super) fn end_trial(&mut self) {
        if let Some(TimedCall { kind, began, .. }) = self.state.measured.trial.take() {
            let seconds = self.transport.now().saturating_sub(began).as_secs_f32();
            self.state.measured.trials.end(&kind, seconds);
        }
    }

    /// Returns how measurements count a call, if its choice depends on them.
    pub(super) fn counted(
        &self,
        choice: Option<&Choice>,
        request: &Request<'_>,
        plan: &Plan,
    ) -> Option<CountedCall> {
        let choice = choice.filter(|_| self.declared_link_rate().is_none())?;
        // True also of a choice of exact calls: a measurement may change the choice.
        let n_bytes = choice.depends_on_links().then(|| request.n_bytes());
        let kind = choice.is_close().then(|| request.kind(plan));
        Some(CountedCall { n_bytes, kind })
    }

    /// Drops the trial of a failed call, which has no meaningful time.
    pub(super) fn forget_trial(&mut self) {
        self.state.measured.trial = None;
    }
}

impl Request<'_> {
    /// Returns the kind of this call. Calls of one kind take about equally long.
    pub(super) fn kind(&self, plan: &Plan) -> CallKind {
        CallKind {
            collective: self.collective,
            op: self.op,
            dtype: self.dtype,
            bound: plan.bound,
            log2_bytes: self.n_bytes().max(1).ilog2(),
        }
    }
}

impl FullCall<'_> {
    /// Starts a measurement of links.
    #[cold]
    #[inline(never)]
    pub(super) fn start_probe<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> Result<(), Error> {
        self.run_probe(comm, plan, ProbeStep::Barrier([0.0]))
    }

    fn run_probe<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        plan: &Plan,
        step: ProbeStep,
    ) -> Result<(), Error> {
        let (spec, n_bytes) = match &step {
            ProbeStep::Ring { array, .. } => {
                (self.spec.for_probe(array.len()), array.len() * f64::BYTES)
            }
            ProbeStep::Barrier(_) | ProbeStep::Agree { .. } | ProbeStep::Trial { .. } => {
                (self.spec.for_data_scan(1), 0)
            }
        };
        let codec = comm.sizes(&spec, Quantum::LOSSLESS);
        let header = self.spec.header(StepQuantity::Links, n_bytes as f64);
        let program = comm.program(&spec, &codec, header)?;
        self.run(comm, program, program.report(), Phase::Probe(Probe { plan: *plan, step }));
        Ok(())
    }

    /// Continues after a step: with the next step, or with the call. If the measurement is
    /// complete, chooses the call's plan anew.
    #[cold]
    #[inline(never)]
    pub(super) fn end_probe<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        Probe { plan, step }: Probe,
    ) -> Result<(), Error> {
        let mut array = match step {
            ProbeStep::Trial { seconds: [longest] } => {
                let kind = self.request.kind(&plan);
                let mode = comm.state.measured.trials.note(&kind, longest as f32);
                if mode.is_none() {
                    comm.forget_calls();
                }
                self.spec = comm.spec_with(&self.request, &plan, None, mode)?;
                let began = comm.transport.now();
                comm.state.measured.trial = mode.map(|mode| TimedCall { kind, mode, began });
                return self.begin_with_links(comm, work, &plan);
            }
            ProbeStep::Ring { array, began } => {
                let seconds = [comm.transport.now().saturating_sub(began).as_secs_f64()];
                return self.run_probe(comm, &plan, ProbeStep::Agree { seconds, array });
            }
            ProbeStep::Agree { seconds: [longest], array } => {
                comm.state.measured.links.note(comm.size(), longest as f32);
                comm.forget_calls();
                array
            }
            ProbeStep::Barrier(_) => Vec::new(),
        };
        let Some(n_bytes) = comm.state.measured.links.next() else {
            self.spec = comm.spec(&self.request, &plan)?;
            return self.begin_with_links(comm, work, &plan);
        };
        // Allocate before the clock starts: it may take longer than copying the array.
        array.resize(n_bytes / f64::BYTES, 0.0);
        let began = comm.transport.now();
        self.run_probe(comm, &plan, ProbeStep::Ring { array, began })
    }

    /// Starts a trial. The ranks first wait for each other.
    #[cold]
    #[inline(never)]
    pub(super) fn start_trial<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> Result<(), Error> {
        let seconds = [comm.state.measured.trials.last(&self.request.kind(plan)).into()];
        self.run_probe(comm, plan, ProbeStep::Trial { seconds })
    }

    /// Counts the call, unless it should be a trial. Returns whether it should.
    pub(super) fn is_trial_due<X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> bool {
        let counted = comm.counted(self.spec.choice.as_ref(), &self.request, plan);
        let Some(kind) = counted.and_then(|counted| counted.kind) else { return false };
        let trials = &mut comm.state.measured.trials;
        if trials.is_due(&kind) {
            return true;
        }
        if trials.count(&kind) {
            comm.forget_calls();
        }
        false
    }

    /// Counts the call. Returns whether to measure links before it.
    pub(super) fn should_measure<X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> bool {
        let counted = comm.counted(self.spec.choice.as_ref(), &self.request, plan);
        let n_bytes = counted.and_then(|counted| counted.n_bytes);
        n_bytes.is_some_and(|n_bytes| comm.state.measured.links.count_call(n_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::DType;
    use crate::op::OpCode;
    use crate::schedule::Collective;

    /// Returns what a measurement finds. 4 ranks have links of this rate, and messages cost
    /// `latency` seconds. Every second round is disturbed.
    fn measured_links(rate: f64, latency: f64) -> LinkFacts {
        let mut links = LinkFacts::default();
        assert!(!links.count_call(LENGTHS[0] * CALL_BYTES_PER_PROBE_BYTE - 1));
        assert!(links.count_call(LENGTHS[2] * CALL_BYTES_PER_PROBE_BYTE));
        let mut nth = 0;
        while let Some(n_bytes) = links.next() {
            let seconds = 3.0 * latency + n_bytes as f64 * 0.75 / rate;
            links.note(4, (seconds * [3.0, 1.0][nth % 2]) as f32);
            nth += 1;
        }
        links
    }

    #[test]
    fn rates_are_found_beside_latencies_and_disturbed_rounds() {
        for (rate, latency, n_lengths) in [(1.25e7, 1e-5, 1), (1.25e8, 1e-4, 2), (2e10, 2e-5, 3)] {
            let links = measured_links(rate, latency);
            let off = links.rate().expect("a rate") / rate - 1.0;
            // The rate of a single length includes the latency.
            assert!(off.abs() < if n_lengths == 1 { 0.02 } else { 1e-3 }, "{rate}: {off}");
            let is_settled = links.n_rounds == u8::MAX;
            assert!(is_settled || links.n_rounds == n_lengths * N_REPEATS, "{links:?}");
            assert_eq!(is_settled, n_lengths < 3);
        }
    }

    #[test]
    fn replayed_calls_are_counted_until_a_measurement_is_due() {
        let kind = CallKind {
            collective: Collective::AllReduce,
            op: OpCode::Sum,
            dtype: DType::F32,
            bound: None,
            log2_bytes: 14,
        };
        let n_bytes = 16 << 10;
        let n_calls = LENGTHS[0] * CALL_BYTES_PER_PROBE_BYTE / n_bytes;
        let depends_on_links = CountedCall { n_bytes: Some(n_bytes), kind: None };
        let mut measured = Measurements::default();
        // The first call of a kind is never replayed.
        measured.trials.count(&kind);
        let replayed = |measured: &mut Measurements, call| {
            (0..2 * n_calls).take_while(|_| measured.count_replay(&call)).count()
        };
        assert_eq!(replayed(&mut measured, depends_on_links), n_calls - 1);
        // The full call counts the call that was not replayed.
        assert_eq!(measured.links.n_bytes, (n_calls - 1) * n_bytes);
        assert!(measured.links.count_call(n_bytes));

        let is_close = CountedCall { n_bytes: None, kind: Some(kind) };
        let n_before_trial = replayed(&mut measured, is_close);
        assert!(n_before_trial > 0 && measured.trials.is_due(&kind), "{n_before_trial}");
        let depends_on_nothing = CountedCall { n_bytes: None, kind: None };
        assert_eq!(replayed(&mut measured, depends_on_nothing), 2 * n_calls);
    }

    /// A replay must not drop a kind, since calls that other ranks keep may depend on it.
    #[test]
    fn calls_of_a_forgotten_kind_are_not_replayed() {
        let kind = |log2_bytes| CallKind {
            collective: Collective::AllReduce,
            op: OpCode::Sum,
            dtype: DType::F32,
            bound: None,
            log2_bytes,
        };
        let call = |log2_bytes| CountedCall { n_bytes: Some(1000), kind: Some(kind(log2_bytes)) };
        let mut measured = Measurements::default();
        // Trials remember 16 kinds.
        for log2_bytes in 0..16 {
            for _ in 0..11 {
                if measured.trials.is_due(&kind(log2_bytes)) {
                    measured.trials.note(&kind(log2_bytes), 1.0);
                } else {
                    measured.trials.count(&kind(log2_bytes));
                }
            }
        }
        let has_all = |measured: &Measurements| {
            (0..16).all(|log2_bytes| measured.trials.found(&kind(log2_bytes)).is_some())
        };
        assert!(has_all(&measured) && !measured.count_replay(&call(16)));
        assert!(has_all(&measured) && measured.links.n_bytes == 0);
        assert!(measured.count_replay(&call(15)) && measured.links.n_bytes == 1000);
        // The full call counts it, and drops the oldest kind.
        assert!(measured.trials.count(&kind(16)) && !has_all(&measured));
        assert!(measured.count_replay(&call(16)));
    }

    #[test]
    fn times_that_mean_nothing_give_no_rate() {
        for seconds in [0.0, f32::NAN, -1.0] {
            let mut links = LinkFacts::default();
            links.count_call(LENGTHS[0] * CALL_BYTES_PER_PROBE_BYTE);
            links.note(2, seconds);
            links.note(2, seconds);
            assert_eq!(links.rate(), None, "{seconds}");
        }
    }
}
