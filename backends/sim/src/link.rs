//! The link for one (sender, receiver, tag): frames in flight, and credit.

use std::collections::VecDeque;

use crate::Frame;

/// Nanoseconds of virtual time.
pub(crate) type Nanos = u64;
/// A time later than any event.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// A frame between its sender and its receiver.
#[derive(Debug)]
pub(crate) struct InFlightFrame {
    pub(crate) frame: Frame,
    pub(crate) n_bytes: usize,
    pub(crate) arrival: Nanos,
    /// True if the sender spent credit on this frame. The receiver returns the credit when it takes
    /// the frame.
    pub(crate) is_credited: bool,
}

/// Frames from one sender to one receiver with one tag, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct LinkQueue {
    queue: VecDeque<InFlightFrame>,
    /// Number of frames for which the sender's credit has not returned.
    n_under_way: usize,
    /// Times at which credit returns, in order.
    returns: VecDeque<Nanos>,
    /// Frame that a fault holds back until the next frame has been queued.
    swapped: Option<InFlightFrame>,
    /// Copies of frames that faults deliver again. Each entry has the number of frames to queue
    /// before the copy, the index of the fault, and the copy.
    repeats: Vec<(usize, usize, InFlightFrame)>,
}

impl LinkQueue {
    /// Returns whether the sender has credit for another frame at time `now`: there are fewer than
    /// `depth` frames for which credit has not returned.
    pub(crate) fn has_space(&mut self, depth: usize, now: Nanos) -> bool {
        while self.returns.front().is_some_and(|&at| at <= now) {
            self.returns.pop_front();
            self.n_under_way -= 1;
        }
        self.n_under_way < depth
    }

    /// Spends the credit for one frame.
    pub(crate) fn spend(&mut self) {
        self.n_under_way += 1;
    }

    /// Appends a frame, then the frame that a fault has held back, then a copy that has become due.
    /// Returns the index of the fault that made the copy, if a copy was due.
    pub(crate) fn push(&mut self, in_flight: InFlightFrame) -> Option<usize> {
        self.enqueue(in_flight);
        if let Some(in_flight) = self.swapped.take() {
            self.enqueue(in_flight);
        }
        for (behind, ..) in &mut self.repeats {
            *behind = behind.saturating_sub(1);
        }
        let due = self.repeats.iter().position(|(behind, ..)| *behind == 0)?;
        let (_, fault, in_flight) = self.repeats.swap_remove(due);
        self.enqueue(in_flight);
        Some(fault)
    }

    /// Appends a frame. Delays its arrival if it would overtake the frame before.
    fn enqueue(&mut self, mut in_flight: InFlightFrame) {
        let last = self.queue.back().map_or(0, |last| last.arrival);
        in_flight.arrival = in_flight.arrival.max(last);
        self.queue.push_back(in_flight);
    }

    /// Holds a frame back until another frame has been queued, so that the two arrive swapped.
    pub(crate) fn swap(&mut self, in_flight: InFlightFrame) {
        match self.swapped.replace(in_flight) {
            None => {}
            Some(earlier) => self.enqueue(earlier),
        }
    }

    /// Makes [`push`](Self::push) append a copy after the next frame and `behind` more frames.
    pub(crate) fn repeat(&mut self, behind: usize, fault: usize, in_flight: InFlightFrame) {
        self.repeats.push((behind + 1, fault, in_flight));
    }

    /// Takes the next frame that has arrived by `now`.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<InFlightFrame> {
        self.queue.pop_front_if(|in_flight| in_flight.arrival <= now)
    }

    /// Returns the credit for a received frame at time `at`.
    pub(crate) fn refund(&mut self, at: Nanos) {
        let last = self.returns.back().copied().unwrap_or(0);
        self.returns.push_back(at.max(last));
    }

    /// Returns whether no queued frame is in flight or waits to be received. Frames held back and
    /// copies to be delivered later do not count.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes all frames out, including those held back and copies to be delivered later.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> {
        let repeats = self.repeats.drain(..).map(|(.., in_flight)| in_flight);
        self.queue
            .drain(..)
            .chain(self.swapped.take())
            .chain(repeats)
            .map(|in_flight| in_flight.frame)
    }
}
