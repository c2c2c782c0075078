//! Measuring links in the first calls of automatic plans, where nobody tells their rate.
//!
//! Ranks meet, send an array round a ring as it is, and agree on the longest time that took any of
//! them; they do so twice, and the shorter time counts. The first array is short; one eight times
//! as long follows until that takes long enough to be measured. What a message costs beside its
//! bytes is in all of these times, so the *difference* of two lengths counts:
//!
//! ```text
//! rate = (bytes sent − those of the last length) / (seconds − those of the last length)
//! ```
//!
//! A length waits until calls have had many times its bytes, so that it never costs much of what it
//! is to save.
//!
//! Before a call that is a [trial](crate::select::trials) ranks meet, too, and agree on how long
//! the one before took.

use super::full_call::{FullCall, Phase};
use super::operands::Operands;
use super::{Communicator, Request};
use crate::bound::Quantum;
use crate::element::Element;
use crate::error::Error;
use crate::frame::StepQuantity;
use crate::plan::Plan;
use crate::select::automatic::Mode;
use crate::select::trials::{CallKind, Trials};
use crate::transport::Transport;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// Bytes of the arrays that go round, and how often each does.
const LENGTHS: [usize; 3] = [64 << 10, 512 << 10, 4 << 20];
const N_REPEATS: u8 = 2;
/// A length is for calls that have had so many times its bytes, the next one included.
const CALL_BYTES_PER_PROBE_BYTE: usize = 32;
/// Calls of fewer bytes do not count. Ranks may keep them or not, each for itself, and who keeps a
/// call would not count it.
pub(super) const MIN_COUNTED_BYTES: usize = 4096;
/// Seconds after which a round was long enough.
const LONG_ENOUGH_S: f32 = 2e-3;

/// What a communicator has measured.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    pub(super) links: LinkFacts,
    pub(super) trials: Trials,
    /// The call under way is one.
    trial: Option<TimedCall>,
}

/// What a communicator has learnt of its links.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkFacts {
    /// Bytes per second and link, the same on all ranks; 0 if nothing is known.
    rate: f32,
    /// Bytes of all calls so far that could have measured.
    n_bytes: usize,
    /// Seconds of the length before, and of this one if it has been round once.
    previous_s: f32,
    shortest_s: f32,
    n_rounds: u8,
}

impl LinkFacts {
    /// Bytes per second and link, the same on all ranks.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0).then_some(self.rate.into())
    }

    /// Bytes of the array of the next round, if it is time for one.
    fn next(&self) -> Option<usize> {
        let n_bytes = *LENGTHS.get(usize::from(self.n_rounds / N_REPEATS))?;
        (self.n_bytes >= n_bytes.saturating_mul(CALL_BYTES_PER_PROBE_BYTE)).then_some(n_bytes)
    }

    /// Whether nothing is measured any more.
    pub(super) const fn is_settled(&self) -> bool {
        (self.n_rounds / N_REPEATS) as usize >= LENGTHS.len()
    }

    /// Whether a call of so many bytes should measure before it begins.
    pub(super) fn count_call(&mut self, n_bytes: usize) -> bool {
        self.n_bytes = self.n_bytes.saturating_add(n_bytes);
        self.next().is_some()
    }

    /// Each of so many ranks has taken at most so many seconds for this round.
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
        // Where a longer array took no longer the shorter one was disturbed.
        let rate =
            if more > 0.0 { (n_bytes - n_before) / more } else { n_bytes / f64::from(seconds) };
        self.rate = if rate.is_finite() { rate as f32 } else { 0.0 };
        self.previous_s = seconds;
        if seconds >= LONG_ENOUGH_S {
            self.n_rounds = u8::MAX;
        }
    }
}

/// A measurement under way.
#[derive(Default)]
pub(super) struct Probe {
    /// What goes round, or the seconds that it took.
    pub(super) values: Vec<f64>,
    step: ProbeStep,
    /// What went round, whose memory is there by now.
    array: Vec<f64>,
}

#[derive(Default)]
enum ProbeStep {
    /// Ranks wait for each other.
    #[default]
    Barrier,
    /// The array goes round, since then.
    Ring(Duration),
    /// Ranks exchange how long it took.
    Agree,
    /// Ranks meet for a trial, and exchange how long the last call of its kind took.
    Trial,
}

/// A call that is timed.
#[derive(Debug)]
struct TimedCall {
    kind: CallKind,
    mode: Mode,
    /// Since when.
    began: Duration,
}

impl<X: Transport> Communicator<X> {
    /// How the call under way is made, if it is a trial.
    pub(super) fn trial_mode(&self) -> Option<Mode> {
        self.state.measured.trial.as_ref().map(|trial| trial.mode)
    }

    /// Notes how long the call took that has ended, if it was a trial.
    pub(super) fn end_trial(&mut self) {
        if let Some(TimedCall { kind, began, .. }) = self.state.measured.trial.take() {
            let seconds = self.transport.now().saturating_sub(began).as_secs_f32();
            self.state.measured.trials.end(&kind, seconds);
        }
    }

    /// A call that has failed has no time.
    pub(super) fn forget_trial(&mut self) {
        self.state.measured.trial = None;
    }
}

impl Request<'_> {
    /// Which calls by this plan take as long as this one.
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
    /// Begins to measure links.
    #[cold]
    #[inline(never)]
    pub(super) fn start_probe<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
    ) -> Result<(), Error> {
        self.run_probe(comm, Probe { values: vec![0.0], ..Probe::default() })
    }

    fn run_probe<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        probe: Probe,
    ) -> Result<(), Error> {
        let n_values = probe.values.len();
        let (spec, n_bytes) = match probe.step {
            ProbeStep::Ring(_) => (self.spec.of_round(n_values), n_values * f64::BYTES),
            ProbeStep::Barrier | ProbeStep::Agree | ProbeStep::Trial => {
                (self.spec.of_look(n_values), 0)
            }
        };
        let codec = comm.sizes(&spec, Quantum::LOSSLESS);
        let header = self.spec.header(StepQuantity::Links, n_bytes as f64);
        let program = comm.program(&spec, &codec, header)?;
        self.run(comm, program);
        self.phase = Phase::Probe(probe);
        Ok(())
    }

    /// Begins what follows a step that is done: another, or if links are as known as they can be
    /// now the call, by a plan that is chosen anew.
    #[cold]
    #[inline(never)]
    pub(super) fn advance_probe<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        probe: Probe,
    ) -> Result<(), Error> {
        let next = match probe.step {
            ProbeStep::Trial => {
                let plan = self.undecided.ok_or(Error::Internal)?;
                let kind = self.request.kind(&plan);
                let longest = probe.values.first().map_or(0.0, |&seconds| seconds as f32);
                let mode = comm.state.measured.trials.note(&kind, longest);
                self.spec = comm.spec_with(&self.request, &plan, None, mode)?;
                let began = comm.transport.now();
                comm.state.measured.trial = mode.map(|mode| TimedCall { kind, mode, began });
                return self.begin_with_links(comm, work, &plan);
            }
            ProbeStep::Ring(began) => {
                let seconds = comm.transport.now().saturating_sub(began).as_secs_f64();
                let array = probe.values;
                Some(Probe { values: vec![seconds], step: ProbeStep::Agree, array })
            }
            ProbeStep::Barrier | ProbeStep::Agree => {
                if let (ProbeStep::Agree, Some(&seconds)) = (probe.step, probe.values.first()) {
                    comm.state.measured.links.note(comm.size(), seconds as f32);
                    comm.forget_calls();
                }
                comm.state.measured.links.next().map(|n_bytes| {
                    let mut values = probe.array;
                    // The clock starts when there is memory, which may take longer than a copy.
                    values.resize(n_bytes / f64::BYTES, 0.0);
                    let step = ProbeStep::Ring(comm.transport.now());
                    Probe { values, step, ..Probe::default() }
                })
            }
        };
        if let Some(next) = next {
            return self.run_probe(comm, next);
        }
        let plan = self.undecided.ok_or(Error::Internal)?;
        self.spec = comm.spec(&self.request, &plan)?;
        self.begin_with_links(comm, work, &plan)
    }

    /// Counts the call. Whether it should be a trial.
    pub(super) fn is_trial_due<X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> bool {
        let is_close = self.spec.choice.is_some_and(|choice| choice.is_close());
        is_close
            && comm.declared_link_rate().is_none()
            && comm.state.measured.trials.is_due(self.request.kind(plan))
    }

    /// Begins a trial: ranks meet.
    #[cold]
    #[inline(never)]
    pub(super) fn start_trial<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> Result<(), Error> {
        let values = vec![comm.state.measured.trials.last(&self.request.kind(plan)).into()];
        self.run_probe(comm, Probe { values, step: ProbeStep::Trial, ..Probe::default() })
    }

    /// Whether it is time to measure links before this call.
    pub(super) fn should_measure<X: Transport>(&self, comm: &mut Communicator<X>) -> bool {
        let n_bytes = self.request.n_bytes();
        // Also where a call is exact by what is known so far, which may be wrong.
        let depends = self.spec.choice.is_some_and(|choice| choice.depends_on_links());
        depends
            && n_bytes >= MIN_COUNTED_BYTES
            && comm.declared_link_rate().is_none()
            && comm.state.measured.links.count_call(n_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is learnt of links of this rate between 4 ranks, where messages cost so many seconds
    /// and every second round is disturbed.
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
            // One length alone has the latency in it.
            assert!(off.abs() < if n_lengths == 1 { 0.02 } else { 1e-3 }, "{rate}: {off}");
            let is_settled = links.n_rounds == u8::MAX;
            assert!(is_settled || links.n_rounds == n_lengths * N_REPEATS, "{links:?}");
            assert_eq!(is_settled, n_lengths < 3);
        }
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
