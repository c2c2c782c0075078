//! `--overlap`: measures how much of a call a rank can hide behind its own computation, like
//! osu_iallreduce of the OSU benchmarks.
//!
//! Three times are measured alternately:
//!
//! - the call alone;
//! - a computation alone, on all ranks at once, that takes about as long as the call;
//! - the call started, the same computation, and the wait for the call.
//!
//! The computation stops at regular points to poll the call. The hidden part of the call is 100·(1
//! − (total − computation) / call) %, but at least 0 % and at most 100 %. A call makes progress
//! only while it is polled, and its codec computes on the same cores. So there is little to hide if
//! links are as fast as memory.
//!
//! The length of the computation is found by trial. All ranks run it at once, which takes longer if
//! they share cores. The slowest rank's time corrects the length.

use std::hint::black_box;

/// Dependent multiplications and additions in a unit of work, which takes well under a microsecond.
const UNIT: usize = 64;
/// Units in the first trial.
const FIRST_TRIAL: usize = 100;
/// Number of corrections of the length.
pub(super) const N_TRIALS: usize = 3;
/// Number of runs for a correction, which uses their median.
pub(super) const N_RUNS: usize = 3;

/// Computation that does not access memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OverlapWork {
    n_units: usize,
    n_polls: usize,
}

impl OverlapWork {
    /// Returns work of an arbitrary first length.
    pub(super) fn trial(n_polls: usize) -> Self {
        Self { n_units: FIRST_TRIAL, n_polls }
    }

    /// Returns work that should take `wanted` seconds, given that this work took `took` seconds.
    pub(super) fn lasting(self, wanted: f64, took: f64) -> Self {
        let n_units = self.n_units as f64 * wanted / took.max(1e-9);
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

/// Returns the hidden part of a call, in percent.
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
