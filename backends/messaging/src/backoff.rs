//! Waiting for a network that cannot wake a thread.
//!
//! Spin first, since most answers come within microseconds. Then yield the core: where ranks share
//! cores, the awaited rank may need this one. Sleep only after a longer wait, so that an idle rank
//! costs next to nothing. The sleep is a small share of the wait so far.

use std::thread;
use std::time::{Duration, Instant};

/// Spins before the first yield.
const N_SPINS: u32 = 64;
/// Time to yield before the first sleep.
const YIELDING: Duration = Duration::from_micros(50);
/// A sleep lasts at most the wait so far, divided by this number.
const SHARE: u32 = 20;
/// Longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Spins, then yields, then sleeps longer and longer.
#[derive(Debug, Default)]
pub struct Backoff {
    /// Number of spins so far.
    n_spins: u32,
    /// Time at which spinning ended.
    since: Option<Instant>,
    has_slept: bool,
}

impl Backoff {
    /// Starts again with spinning. Call it after each event.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns whether a wait has slept since the last reset.
    pub(crate) const fn has_slept(&self) -> bool {
        self.has_slept
    }

    /// Waits a moment, at most `budget`.
    pub fn wait(&mut self, budget: Duration) {
        if budget.is_zero() {
            return;
        }
        if self.n_spins < N_SPINS {
            self.n_spins += 1;
            std::hint::spin_loop();
            return;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < YIELDING {
            thread::yield_now();
        } else {
            self.has_slept = true;
            thread::sleep(budget.min(LONGEST_SLEEP).min(waited / SHARE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_budget_prevents_sleep_and_a_reset_starts_again() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            backoff.wait(Duration::from_micros(100));
        }
        // It sleeps by now, but a zero budget prevents that.
        let start = Instant::now();
        (0..1000).for_each(|_| backoff.wait(Duration::ZERO));
        assert!(start.elapsed() < Duration::from_millis(100));
        backoff.reset();
        assert_eq!((backoff.n_spins, backoff.since, backoff.has_slept()), (0, None, false));
    }
}
