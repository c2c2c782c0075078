//! How long a rank has waited in vain, in time in which it looked for what others sent.
//!
//! Who does something else between two polls has not waited meanwhile: what others sent is there,
//! or comes as soon as the network gets attention again. So a wait begins with the first look, not
//! when a call or a shrink was started, and a gap between two looks counts for a quarter of the
//! limit at most. A rank thus looks several times before it thinks another silent, however rarely
//! it is polled, but not without end.

use core::time::Duration;

/// Longest rest between two looks at the clock.
const MAX_REST: Duration = Duration::from_millis(20);
/// A gap between two looks counts for the limit divided by this at most.
const GAPS_PER_LIMIT: u32 = 4;

/// How long a call, or an exchange of messages, may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without any progress, from the first poll on.
    pub(crate) stall: Duration,
    /// In all: when it must be over, on the transport's clock.
    pub(crate) deadline: Option<Duration>,
}

impl Limits {
    /// How long to rest, `rest` at most.
    pub(crate) fn rest_from(&self, now: Duration, rest: Duration) -> Duration {
        self.deadline.map_or(rest, |at| at.saturating_sub(now).min(rest))
    }
}

/// A wait that begins anew whenever something moves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// When it was last looked for something; `None` before the first time.
    last_poll: Option<Duration>,
    waited: Duration,
}

impl Wait {
    /// Something moved.
    pub(crate) fn restart(&mut self, now: Duration) {
        *self = Self { last_poll: Some(now), waited: Duration::ZERO };
    }

    /// How long nothing had moved when it was last looked.
    pub(crate) const fn waited(&self) -> Duration {
        self.waited
    }

    /// Nothing moved: how long that has been so. It exceeds `limit` after [`PARTS`] gaps, if each
    /// is long enough.
    pub(crate) fn look(&mut self, now: Duration, limit: Duration) -> Duration {
        let gap = now.saturating_sub(self.last_poll.unwrap_or(now));
        // Not rounded down: so many of the longest gaps exceed the limit.
        let longest = (limit / GAPS_PER_LIMIT).saturating_add(Duration::from_nanos(1));
        self.last_poll = Some(now);
        self.waited = self.waited.saturating_add(gap.min(longest));
        self.waited
    }
}

/// How long to rest before the next look, so that a gap never counts for less than it took.
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
