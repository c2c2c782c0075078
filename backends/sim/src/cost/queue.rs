//! A queue of simulation events in order of time. No event may be scheduled for a time before the
//! event that was taken last.
//!
//! This is a *monotone radix queue* (Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the
//! shortest path problem", J. ACM 37, 1990). Times are numbers of base 64. Take the highest digit
//! in which an event's time differs from the current time: this digit selects a row, and its value
//! selects the event's bucket in that row. When no event is left for the current time, the queue
//! advances to the earliest time in the first bucket that is not empty, and distributes the
//! bucket's events anew. Each of them moves to the row of a lower digit, or becomes current.
//!
//! Events of the same time lie in the same bucket in the order in which they were scheduled.
//! Redistribution keeps that order, so such events leave first in, first out. A run is therefore
//! deterministic without further keys.
//!
//! Cost: each event moves at most 11 times, in contiguous memory, and three to four times in
//! practice.

use std::collections::VecDeque;

/// Virtual time in picoseconds, up to 213 days.
pub(super) type Picos = u64;

const DIGIT_BITS: u32 = 6;
const BASE: usize = 1 << DIGIT_BITS;
const DIGITS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

#[derive(Debug)]
pub(super) struct EventQueue<E> {
    now: Picos,
    /// Events at time `now`.
    front: VecDeque<E>,
    /// `DIGITS` rows of `BASE` buckets.
    buckets: Vec<Vec<(Picos, E)>>,
    /// Bit v of word d is set if bucket v of row d is not empty.
    occupied: [u64; DIGITS],
}

impl<E: Copy> EventQueue<E> {
    pub(super) fn new() -> Self {
        let buckets = (0..DIGITS * BASE).map(|_| Vec::new()).collect();
        Self { now: 0, front: VecDeque::new(), buckets, occupied: [0; DIGITS] }
    }

    /// Schedules `event` at `time`, which must not be before the time of the last event taken.
    pub(super) fn push(&mut self, time: Picos, event: E) {
        debug_assert!(time >= self.now, "nothing happens in the past");
        if time <= self.now {
            self.front.push_back(event);
        } else {
            let row = ((time ^ self.now).ilog2() / DIGIT_BITS) as usize;
            let value = (time >> (row as u32 * DIGIT_BITS)) as usize % BASE;
            self.occupied[row] |= 1 << value;
            self.buckets[row * BASE + value].push((time, event));
        }
    }

    /// Takes the next event, with its time.
    pub(super) fn pop(&mut self) -> Option<(Picos, E)> {
        if self.front.is_empty() {
            self.refill();
        }
        self.front.pop_front().map(|event| (self.now, event))
    }

    /// Advances to the next time that has events.
    fn refill(&mut self) {
        let Some(row) = self.occupied.iter().position(|&values| values != 0) else { return };
        let value = self.occupied[row].trailing_zeros() as usize;
        self.occupied[row] &= !(1 << value);
        let mut bucket = std::mem::take(&mut self.buckets[row * BASE + value]);
        self.now = bucket.iter().map(|&(time, _)| time).min().unwrap_or(self.now);
        for (time, event) in bucket.drain(..) {
            self.push(time, event);
        }
        // Keeps the bucket's memory for later events.
        self.buckets[row * BASE + value] = bucket;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_scheduling() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut queue = EventQueue::new();
        // The same events, in a list that is searched.
        let mut expected: Vec<(Picos, u64)> = Vec::new();
        let (mut now, mut n) = (0, 0);
        for _ in 0..20_000 {
            if random(5) < 3 {
                let distance = 1 << random(34);
                let time = now + if random(4) == 0 { 0 } else { random(distance) };
                queue.push(time, n);
                expected.push((time, n));
                n += 1;
            } else {
                let first = (0..expected.len()).min_by_key(|&i| expected[i]);
                let first = first.map(|i| expected.remove(i));
                assert_eq!(queue.pop(), first);
                now = first.map_or(now, |(time, _)| time);
            }
        }
        expected.sort_unstable();
        for event in expected {
            assert_eq!(queue.pop(), Some(event));
        }
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn the_ends_of_time_are_ordered_too() {
        let mut queue = EventQueue::new();
        for time in [Picos::MAX, 0, 1 << 63, Picos::MAX - 1, 63, 64] {
            queue.push(time, time);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(time, _)| time).collect();
        assert_eq!(order, [0, 63, 64, 1 << 63, Picos::MAX - 1, Picos::MAX]);
    }
}
