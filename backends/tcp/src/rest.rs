//! How a rank waits: it yields its core for a moment, and then it sleeps.

use std::thread;
use std::time::{Duration, Instant};

/// Time to yield the core to other threads before sleeping. Most answers arrive within this time.
const YIELD_LIMIT: Duration = Duration::from_micros(50);
/// A yield that takes as long shows that another thread wants this core.
const CROWDED_YIELD: Duration = Duration::from_micros(20);
/// Time without yields after such a one.
const CROWDED_TIME: Duration = Duration::from_millis(100);
/// Shortest sleep, since `poll` counts its timeout in milliseconds.
pub(crate) const LEAST_SLEEP: Duration = Duration::from_millis(1);

/// The waits of a rank.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Start of the current wait.
    since: Option<Instant>,
    /// Time of the last yield that another thread took up.
    crowded_since: Option<Instant>,
}

impl Rest {
    /// Ends a wait: something has happened.
    pub(crate) const fn end(&mut self) {
        self.since = None;
    }

    /// Yields the core, unless it is time to sleep. Returns whether it did.
    pub(crate) fn yields(&mut self, budget: Duration) -> bool {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        // A yield gives the core to a busy process for a whole slice of its time. A rank that
        // sleeps is woken as soon as a message arrives, and its core goes to whoever wants it.
        let is_crowded = self.crowded_since.is_some_and(|at| now - at < CROWDED_TIME);
        let yields = budget < LEAST_SLEEP || now - since < YIELD_LIMIT && !is_crowded;
        if yields {
            thread::yield_now();
            if now.elapsed() > CROWDED_YIELD {
                self.crowded_since = Some(now);
            }
        }
        yields
    }
}
