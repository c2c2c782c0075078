//! How to wait for a network that has no way to wake a thread.
//!
//! First spin, since most answers come within microseconds. Then let others have the core: where
//! ranks share cores, the one that we wait for may need ours. Only after a while sleep, so that an
//! idle rank costs next to nothing; the longer the wait so far, the longer the sleep, a small share
//! of it.

use std::thread;
use std::time::{Duration, Instant};

/// Spins before the core is offered to others.
const N_SPINS: u32 = 64;
/// How long only to offer the core.
const YIELDING: Duration = Duration::from_micros(50);
/// A sleep is at most this part of the wait so far…
const SHARE: u32 = 20;
/// … and at most this long.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Waits a little more each time.
#[derive(Debug, Default)]
pub struct Backoff {
    n_rests: u32,
    /// When the spinning ended.
    since: Option<Instant>,
}

impl Backoff {
    /// Something has happened: the next wait begins anew.
    pub fn renew(&mut self) {
        *self = Self::default();
    }

    /// Waits a moment, at most `budget`.
    pub fn rest(&mut self, budget: Duration) {
        if budget.is_zero() {
            return;
        }
        if self.n_rests < N_SPINS {
            self.n_rests += 1;
            std::hint::spin_loop();
            return;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < YIELDING {
            thread::yield_now();
        } else {
            thread::sleep(budget.min(LONGEST_SLEEP).min(waited / SHARE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rest_is_longer_than_its_budget_and_a_renewed_one_is_short() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            backoff.rest(Duration::from_micros(100));
        }
        // By now it sleeps; a budget of nothing keeps it from that.
        let start = Instant::now();
        (0..1000).for_each(|_| backoff.rest(Duration::ZERO));
        assert!(start.elapsed() < Duration::from_millis(100));
        backoff.renew();
        assert_eq!((backoff.n_rests, backoff.since), (0, None));
    }
}
