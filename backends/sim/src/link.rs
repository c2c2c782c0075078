//! One (sender, receiver, tag): frames under way, and credit.

use std::collections::VecDeque;

use crate::Frame;

/// Nanoseconds of virtual time.
pub(crate) type Nanos = u64;
/// Later than anything.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// A frame under way.
#[derive(Debug)]
pub(crate) struct InFlightFrame {
    pub(crate) frame: Frame,
    pub(crate) n_bytes: usize,
    pub(crate) arrival: Nanos,
    /// Its sender spent credit on it, and gets it back when it is received.
    pub(crate) is_credited: bool,
}

/// Frames of one sender to one receiver with one tag, in the order in which they will be received.
#[derive(Debug, Default)]
pub(crate) struct LinkQueue {
    queue: VecDeque<InFlightFrame>,
    /// Frames that the sender has no credit back for.
    n_under_way: usize,
    /// When credit comes back.
    returns: VecDeque<Nanos>,
    /// Held back to let the next one pass.
    swapped: Option<InFlightFrame>,
    /// To be delivered again: behind how many more, by which fault.
    repeats: Vec<(usize, usize, InFlightFrame)>,
}

impl LinkQueue {
    /// Whether fewer than `depth` frames are under way.
    pub(crate) fn has_space(&mut self, depth: usize, now: Nanos) -> bool {
        while self.returns.front().is_some_and(|&at| at <= now) {
            self.returns.pop_front();
            self.n_under_way -= 1;
        }
        self.n_under_way < depth
    }

    /// Takes one frame's credit.
    pub(crate) fn spend(&mut self) {
        self.n_under_way += 1;
    }

    /// Queues a frame behind those that are there; the fault by which a repeated frame came along.
    pub(crate) fn push(&mut self, parcel: InFlightFrame) -> Option<usize> {
        self.enqueue(parcel);
        if let Some(parcel) = self.swapped.take() {
            self.enqueue(parcel);
        }
        for (behind, ..) in &mut self.repeats {
            *behind = behind.saturating_sub(1);
        }
        let due = self.repeats.iter().position(|(behind, ..)| *behind == 0)?;
        let (_, fault, parcel) = self.repeats.swap_remove(due);
        self.enqueue(parcel);
        Some(fault)
    }

    /// Frames do not overtake each other.
    fn enqueue(&mut self, mut parcel: InFlightFrame) {
        let last = self.queue.back().map_or(0, |last| last.arrival);
        parcel.arrival = parcel.arrival.max(last);
        self.queue.push_back(parcel);
    }

    /// Holds a frame back until another has been queued.
    pub(crate) fn swap(&mut self, parcel: InFlightFrame) {
        match self.swapped.replace(parcel) {
            None => {}
            Some(earlier) => self.enqueue(earlier),
        }
    }

    /// Queues a copy once `behind` more frames have been queued after the one that comes next.
    pub(crate) fn repeat(&mut self, behind: usize, fault: usize, parcel: InFlightFrame) {
        self.repeats.push((behind + 1, fault, parcel));
    }

    /// The next frame that has arrived.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<InFlightFrame> {
        self.queue.pop_front_if(|parcel| parcel.arrival <= now)
    }

    /// Credit for a received frame comes back at `at`.
    pub(crate) fn refund(&mut self, at: Nanos) {
        let last = self.returns.back().copied().unwrap_or(0);
        self.returns.push_back(at.max(last));
    }

    /// Whether no frame is on its way or here.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes all frames out, whatever their state.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> {
        let repeats = self.repeats.drain(..).map(|(.., parcel)| parcel);
        self.queue.drain(..).chain(self.swapped.take()).chain(repeats).map(|parcel| parcel.frame)
    }
}
