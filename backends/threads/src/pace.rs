//! The rate limit: computes when a frame would have arrived over a real link.
//!
//! Every rank has one full-duplex link to the network, with `B` bytes per second in each direction.
//! For a frame of `n` bytes that is sent at time `t`:
//!
//! ```text
//! start   = max(t, egress free)                  egress free  = start + n/B
//! arrival = max(start + latency, ingress free) + n/B      ingress free = arrival
//! ```
//!
//! The sender computes `start` and stores it beside the frame. The receiver computes `arrival`, and
//! hands a frame out no earlier. It processes frames in order of `start` over all its links,
//! whatever the order in which it polls them. A frame enters the ingress only once its first byte
//! has arrived (`start + latency <= now`). So a frame that its sender has queued for later does not
//! delay other frames.
//!
//! Times are durations since the world's creation. Cost: two heap operations per frame with a
//! limit, none without.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Speed and latency of every rank's link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkPace {
    seconds_per_byte: f64,
    latency: Duration,
}

impl LinkPace {
    /// Creates a link of `bytes_per_second`; `None` means infinitely fast.
    pub(crate) fn new(bytes_per_second: Option<f64>, latency: Duration) -> Self {
        Self { seconds_per_byte: bytes_per_second.map_or(0.0, f64::recip), latency }
    }

    /// Returns the bytes per second, or `None` if infinite.
    pub(crate) fn rate(self) -> Option<f64> {
        (self.seconds_per_byte > 0.0).then(|| self.seconds_per_byte.recip())
    }

    /// Returns the time for which `n_bytes` occupy the link.
    fn crossing(&self, n_bytes: usize) -> Duration {
        Duration::try_from_secs_f64(n_bytes as f64 * self.seconds_per_byte).unwrap_or(Duration::MAX)
    }
}

/// The sender's half of the model.
#[derive(Debug)]
pub(crate) struct Departures {
    pace: LinkPace,
    free_at: Duration,
}

impl Departures {
    pub(crate) const fn new(pace: LinkPace) -> Self {
        Self { pace, free_at: Duration::ZERO }
    }

    /// Returns when the first byte of a frame sent at `now` leaves.
    pub(crate) fn next_start(&self, now: Duration) -> Duration {
        self.free_at.max(now)
    }

    /// Occupies the link with a frame that leaves at `start`.
    pub(crate) fn depart(&mut self, start: Duration, n_bytes: usize) {
        self.free_at = start.saturating_add(self.pace.crossing(n_bytes));
    }
}

/// A frame in a ring whose first byte, by the model, has not arrived yet.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExpectedFrame {
    start: Duration,
    /// Number of frames that the receiver found before this one. Orders frames with the same start.
    order: u64,
    link: usize,
    n_bytes: usize,
}

/// The receiver's half of the model.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pace: LinkPace,
    free_at: Duration,
    expected: BinaryHeap<Reverse<ExpectedFrame>>,
    n_expected: u64,
    /// Arrival times of scheduled frames for which the caller has not polled, ascending.
    unannounced: VecDeque<Duration>,
}

impl Arrivals {
    pub(crate) const fn new(pace: LinkPace) -> Self {
        Self {
            pace,
            free_at: Duration::ZERO,
            expected: BinaryHeap::new(),
            n_expected: 0,
            unannounced: VecDeque::new(),
        }
    }

    /// Adds a frame that left at `start` and that the receiver found in the ring of `link`, behind
    /// all frames that it found there before.
    pub(crate) fn expect(&mut self, link: usize, start: Duration, n_bytes: usize) {
        self.expected.push(Reverse(ExpectedFrame { start, order: self.n_expected, link, n_bytes }));
        self.n_expected += 1;
    }

    /// Schedules every expected frame whose first byte has arrived by `now`. Calls `schedule(link,
    /// arrival)` for each, in order of sending on each link.
    pub(crate) fn admit(&mut self, now: Duration, mut schedule: impl FnMut(usize, Duration)) {
        while let Some(Reverse(first)) = self.expected.peek() {
            if first.start.saturating_add(self.pace.latency) > now {
                return;
            }
            let (link, arrival) = (first.link, self.arrival(first));
            self.expected.pop();
            self.free_at = arrival;
            self.unannounced.push_back(arrival);
            schedule(link, arrival);
        }
    }

    fn arrival(&self, frame: &ExpectedFrame) -> Duration {
        frame
            .start
            .saturating_add(self.pace.latency)
            .max(self.free_at)
            .saturating_add(self.pace.crossing(frame.n_bytes))
    }

    /// Forgets arrivals up to `now`. The caller is about to poll all links, so these arrivals need
    /// not wake it.
    pub(crate) fn announce(&mut self, now: Duration) {
        while self.unannounced.front().is_some_and(|&arrival| arrival <= now) {
            self.unannounced.pop_front();
        }
    }

    /// Returns the arrival time of the next frame for which the caller has not polled.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        let scheduled = self.unannounced.front().copied();
        scheduled.or_else(|| self.expected.peek().map(|Reverse(first)| self.arrival(first)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::{Arrivals, Departures, LinkPace};

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// 1 byte per microsecond, and a latency of 5 microseconds.
    fn pace() -> LinkPace {
        LinkPace::new(Some(1e6), us(5))
    }

    fn admit(arrivals: &mut Arrivals, now: Duration) -> Vec<(usize, Duration)> {
        let mut scheduled = Vec::new();
        arrivals.admit(now, |link, at| scheduled.push((link, at)));
        scheduled
    }

    /// Frames leave one after the other, and an idle link starts at once.
    #[test]
    fn egress_is_serial() {
        let mut departures = Departures::new(pace());
        for (now, n_bytes, start) in [(10, 100, 10), (20, 50, 110), (160, 1, 160), (200, 1, 200)] {
            assert_eq!(departures.next_start(us(now)), us(start));
            departures.depart(us(start), n_bytes);
        }
    }

    /// Frames arrive one after the other in order of departure, whatever the order in which the
    /// links were polled.
    #[test]
    fn ingress_is_serial_in_order_of_departure() {
        let mut arrivals = Arrivals::new(pace());
        arrivals.expect(7, us(30), 100);
        arrivals.expect(3, us(10), 100);
        arrivals.expect(3, us(500), 10);
        let scheduled = admit(&mut arrivals, us(1000));
        assert_eq!(scheduled, [(3, us(115)), (7, us(215)), (3, us(515))]);
    }

    /// A frame that leaves late does not delay a frame that leaves before it but was found after
    /// it.
    #[test]
    fn queued_frames_hold_up_nobody() {
        let mut arrivals = Arrivals::new(pace());
        arrivals.expect(0, us(400), 100);
        assert_eq!(admit(&mut arrivals, us(50)), []);
        assert_eq!(arrivals.next_arrival(), Some(us(505)));
        arrivals.expect(1, us(100), 10);
        assert_eq!(admit(&mut arrivals, us(105)), [(1, us(115))]);
        assert_eq!(admit(&mut arrivals, us(405)), [(0, us(505))]);
    }

    /// An arrival remains a reason to wake until a pass has begun after it.
    #[test]
    fn arrivals_wake_until_announced() {
        let mut arrivals = Arrivals::new(pace());
        assert_eq!(arrivals.next_arrival(), None);
        arrivals.expect(0, us(0), 10);
        arrivals.expect(0, us(10), 10);
        admit(&mut arrivals, us(100));
        arrivals.announce(us(14));
        assert_eq!(arrivals.next_arrival(), Some(us(15)));
        arrivals.announce(us(15));
        assert_eq!(arrivals.next_arrival(), Some(us(25)));
        arrivals.announce(us(25));
        assert_eq!(arrivals.next_arrival(), None);
    }

    /// Without a rate only the latency counts. With an absurdly low rate nothing overflows.
    #[test]
    fn extreme_rates() {
        let mut arrivals = Arrivals::new(LinkPace::new(None, us(5)));
        arrivals.expect(0, us(1), usize::MAX);
        assert_eq!(admit(&mut arrivals, us(6)), [(0, us(6))]);

        let mut departures = Departures::new(LinkPace::new(Some(1e-300), us(5)));
        departures.depart(us(1), 1);
        assert_eq!(departures.next_start(us(2)), Duration::MAX);
        departures.depart(Duration::MAX, 1);
    }
}
