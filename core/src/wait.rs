//! Time that a rank has waited without progress, while it polled the network.
//!
//! Time that a rank spends on other work between two polls is not a wait: messages may have arrived
//! meanwhile, or may arrive as soon as the rank polls again. So a wait begins with the first poll,
//! not when a call or a shrink was started. A gap between two polls counts as at most a quarter of
//! the limit. So even a rank that polls rarely does so several times before it counts another rank
//! as silent, but it does not wait forever.

use core::time::Duration;

/// Longest rest between two checks of the clock.
const MAX_REST: Duration = Duration::from_millis(20);
/// A gap between two polls counts as at most the limit divided by this.
const GAPS_PER_LIMIT: u32 = 4;

/// Time limits of a call or an exchange of messages.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest time without any progress, from the first poll on.
    pub(crate) stall: Duration,
    /// Time at which the call or exchange must be finished, on the transport's clock.
    pub(crate) deadline: Option<Duration>,
}

impl Limits {
    /// Returns how long to rest, which is at most `rest`.
    pub(crate) fn rest_from(&self, now: Duration, rest: Duration) -> Duration {
        self.deadline.map_or(rest, |at| at.saturating_sub(now).min(rest))
    }
}

/// A wait that starts again whenever something moves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// Time of the last poll; `None` before the first one.
    last_poll: Option<Duration>,
    waited: Duration,
}

impl Wait {
    /// Records that something moved.
    pub(crate) fn restart(&mut self, now: Duration) {
        *self = Self { last_poll: Some(now), waited: Duration::ZERO };
    }

    /// Returns for how long nothing had moved at the last poll.
    pub(crate) const fn waited(&self) -> Duration {
        self.waited
    }

    /// Records that nothing moved. Returns for how long nothing has moved. This exceeds `limit`
    /// after [`GAPS_PER_LIMIT`] gaps of at least a quarter of it.
    pub(crate) fn look(&mut self, now: Duration, limit: Duration) -> Duration {
        let gap = now.saturating_sub(self.last_poll.unwrap_or(now));
        // Rounded up, so that `GAPS_PER_LIMIT` of the longest gaps exceed the limit.
        let longest = (limit / GAPS_PER_LIMIT).saturating_add(Duration::from_nanos(1));
        self.last_poll = Some(now);
        self.waited = self.waited.saturating_add(gap.min(longest));
        self.waited
    }
}

/// Returns how long to rest before the next poll. The gap is then short enough to count in full.
pub(crate) fn rest(limit: Duration) -> Duration {
    MAX_REST.min(limit / GAPS_PER_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(103);

    #[test]
    fn what_is_done_before_the_first_look_does_not_count() {
        let mut wait = Wait::default();
        assert_eq!(wait.look(50 * LIMIT, LIMIT), Duration::ZERO);
        wait.restart(60 * LIMIT);
        assert_eq!(wait.look(60 * LIMIT + LIMIT / 5, LIMIT), LIMIT / 5);
    }

    #[test]
    fn short_gaps_count_in_full() {
        let mut wait = Wait::default();
        let waited = (0..=100).map(|ms| wait.look(Duration::from_millis(ms), LIMIT)).last();
        assert_eq!(waited, Some(Duration::from_millis(100)));
    }

    #[test]
    fn one_long_gap_is_no_silence_but_some_are() {
        for limit in [Duration::ZERO, Duration::from_nanos(3), LIMIT, Duration::MAX / 8] {
            let mut wait = Wait::default();
            let mut waited = (0..).map(|n| wait.look(n * (limit + LIMIT), limit));
            let n_looks = waited.position(|waited| waited > limit).map(|n| n as u32);
            assert!(
                n_looks == Some(GAPS_PER_LIMIT) || limit < LIMIT && n_looks.is_some(),
                "{n_looks:?}"
            );
        }
    }
}
