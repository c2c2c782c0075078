//! A transport between two ranks on one thread: a queue of frames for each direction and tag.
//!
//! The queues are in cells because the same thread drives both ends. Between an interrupt and a
//! main loop, they would be the two halves of a `heapless::spsc::Queue`.

use crate::pool::{FRAME_BYTES, FreeFrames, StaticFrame};
use core::array::from_fn;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::Poll;
use core::time::Duration;
use foldwire::transport::{TransportError, TransportErrorKind};
use foldwire::{Rank, Tag, Transport};
use heapless::Deque;

/// Number of lanes of the communicators.
pub const LANES: usize = 2;
/// Number of frames that a link can hold.
pub const LINK_DEPTH: usize = 1;

type FrameQueue = RefCell<Deque<(StaticFrame, usize), LINK_DEPTH>>;

/// Links between the two ranks, and the frames that they share.
pub struct LoopbackNet {
    free: RefCell<FreeFrames>,
    /// Indexed by receiver, then by tag.
    links: [[FrameQueue; Tag::COUNT]; 2],
    ticks: Cell<u64>,
}

impl LoopbackNet {
    /// Makes a network with these free frames.
    #[must_use]
    pub fn new(free: FreeFrames) -> Self {
        let links = from_fn(|_| from_fn(|_| RefCell::new(Deque::new())));
        Self { free: RefCell::new(free), links, ticks: Cell::new(0) }
    }
}

/// One rank's endpoint.
pub struct Loopback<'a> {
    net: &'a LoopbackNet,
    rank: usize,
}

impl<'a> Loopback<'a> {
    /// Makes the endpoint of rank 0 or 1.
    ///
    /// # Panics
    /// If `rank` is neither.
    #[must_use]
    pub fn new(net: &'a LoopbackNet, rank: usize) -> Self {
        assert!(rank < 2);
        Self { net, rank }
    }

    /// Returns the queue between the two ranks that `receiver` reads.
    fn link(
        &self,
        peer: Rank,
        receiver: usize,
        tag: Tag,
    ) -> Result<&'a FrameQueue, ContractViolation> {
        if peer.index() != 1 - self.rank {
            return Err(ContractViolation);
        }
        self.net.links[receiver].get(tag.index()).ok_or(ContractViolation)
    }
}

/// The engine broke the transport's contract. No other error can occur here.
#[derive(Clone, Copy, Debug)]
pub struct ContractViolation;

impl TransportError for ContractViolation {
    fn kind(&self) -> TransportErrorKind {
        TransportErrorKind::Misuse
    }

    fn peer(&self) -> Option<Rank> {
        None
    }
}

impl fmt::Display for ContractViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl Transport for Loopback<'_> {
    type Frame = StaticFrame;
    type Error = ContractViolation;

    fn rank(&self) -> Rank {
        Rank::new(self.rank)
    }

    fn size(&self) -> usize {
        2
    }

    fn frame_capacity(&self) -> usize {
        FRAME_BYTES
    }

    fn poll_frame(&mut self) -> Poll<Result<StaticFrame, ContractViolation>> {
        self.net.free.borrow_mut().pop().map_or(Poll::Pending, |frame| Poll::Ready(Ok(frame)))
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), ContractViolation>> {
        match self.link(to, to.index(), tag) {
            Ok(link) if link.borrow().is_full() => Poll::Pending,
            Ok(_) => Poll::Ready(Ok(())),
            Err(misuse) => Poll::Ready(Err(misuse)),
        }
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: StaticFrame,
        n_bytes: usize,
    ) -> Result<(), ContractViolation> {
        if n_bytes > FRAME_BYTES {
            return Err(ContractViolation);
        }
        let link = self.link(to, to.index(), tag)?;
        link.borrow_mut().push_back((frame, n_bytes)).map_err(|_full| ContractViolation)
    }

    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(StaticFrame, usize), ContractViolation>> {
        match self.link(from, self.rank, tag) {
            Ok(link) => link.borrow_mut().pop_front().map_or(Poll::Pending, |m| Poll::Ready(Ok(m))),
            Err(misuse) => Poll::Ready(Err(misuse)),
        }
    }

    fn recycle(&mut self, frame: StaticFrame) {
        // The pool has space for all frames.
        let _ = self.net.free.borrow_mut().push(frame);
    }

    fn progress(&mut self) -> Result<(), ContractViolation> {
        self.net.ticks.set(self.net.ticks.get() + 1);
        Ok(())
    }

    /// This machine has no clock: each call of `progress` counts as a microsecond.
    fn now(&self) -> Duration {
        Duration::from_micros(self.net.ticks.get())
    }

    /// Nothing can arrive before the other rank is polled.
    fn idle(&mut self, _budget: Duration) {}
}
