//! `--overlap`: how much of a call a rank can hide behind its own computation, as the OSU
//! benchmarks measure it (osu_iallreduce).
//!
//! The work is made to last by trial: all ranks run it at once, which takes longer where they share
//! cores, and correct its length by the slowest rank's time.
//!
//! Three times are taken in turn. The call alone; a computation alone, by all ranks at once, that
//! is made to take about as long; and the call started, the same computation, and the call waited
//! for. The computation stops so many times to poll the call. What of the call is hidden is
//! 100·(1 − (total − computation) / call) %, from 0 to 100. A call moves only while it is polled,
//! and its work is the same cores': where links are as fast as memory there is little to hide.

use std::hint::black_box;

/// Dependent multiplications and additions in a unit of work: well under a microsecond.
const UNIT: usize = 64;
/// Units at first.
const FIRST_TRIAL: usize = 100;
/// How often its length is corrected, and of how many runs the median counts for that.
pub(super) const N_TRIALS: usize = 3;
pub(super) const N_RUNS: usize = 3;

/// Computation that touches no memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OverlapWork {
    n_units: usize,
    n_polls: usize,
}

impl OverlapWork {
    /// Work of any length.
    pub(super) fn trial(n_polls: usize) -> Self {
        Self { n_units: FIRST_TRIAL, n_polls }
    }

    /// The same of another length, where this one has taken `took` seconds and should `last`.
    pub(super) fn lasting(self, last: f64, took: f64) -> Self {
        let n_units = self.n_units as f64 * last / took.max(1e-9);
        Self { n_units: (n_units.round() as usize).max(1), ..self }
    }

    /// Computes, and calls `poll` between equal parts.
    pub(super) fn run(&self, mut poll: impl FnMut()) {
        let n_parts = self.n_polls + 1;
        for part in 0..n_parts {
            compute((part + 1) * self.n_units / n_parts - part * self.n_units / n_parts);
            if part < self.n_polls {
                poll();
            }
        }
    }
}

fn compute(n_units: usize) {
    let mut x = black_box(1.0_f64);
    for _ in 0..n_units * UNIT {
        x = x * 0.999_999 + 1e-6;
    }
    black_box(x);
}

/// What part of a call was hidden, in percent.
pub(super) fn percent(call: f64, compute: f64, total: f64) -> f64 {
    (100.0 * (1.0 - (total - compute) / call.max(1e-12))).clamp(0.0, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_what_the_total_lacks() {
        assert_eq!(percent(10.0, 10.0, 20.0), 0.0);
        assert_eq!(percent(10.0, 10.0, 15.0), 50.0);
        assert_eq!(percent(10.0, 10.0, 10.0), 100.0);
        assert_eq!([percent(10.0, 10.0, 9.0), percent(10.0, 10.0, 31.0)], [100.0, 0.0]);
    }

    #[test]
    fn work_is_done_between_polls() {
        let mut n = 0;
        OverlapWork { n_units: 7, n_polls: 3 }.run(|| n += 1);
        assert_eq!(n, 3);
        let work = OverlapWork::trial(5).lasting(1e-3, 1e-4);
        assert_eq!(work, OverlapWork { n_units: 10 * FIRST_TRIAL, n_polls: 5 });
    }
}
