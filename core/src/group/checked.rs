//! A wrapper that checks a transport's contract, so that other code need not trust the transport.
//!
//! Rank, size and capacity must not change while a communicator lives. They are queried and checked
//! once. Every frame that the transport returns is checked. If it is short or misaligned, it is
//! recycled, and the call fails with [`TransportErrorKind::Misuse`]. The same holds for a message
//! longer than its frame. A frame could still shrink later, so other code accesses its bytes with
//! `get`.
//!
//! Cost: a few comparisons per frame.

use crate::error::Error;
use crate::transport::{
    Distance, FRAME_ALIGN, FRAMES_PER_LANE, MAX_CHANNELS, MAX_LANES, MAX_SIZE, MIN_FRAME_BYTES,
    Rank, Tag, Transport, TransportError, TransportErrorKind,
};
use core::task::{Poll, Waker};
use core::time::Duration;
use heapless::Vec;

/// Time after which a pool without a free frame counts as empty, for a rank that has no frame in
/// transit. Pools may take a moment to make frames.
const REFUSED_FOR: Duration = Duration::from_millis(100);
/// Number of polls after which the pool counts as empty, in case the clock stands still.
const MAX_REFUSED: usize = 1000;

/// A transport, and the properties that it reported at first.
#[derive(Debug)]
pub(crate) struct CheckedTransport<X> {
    inner: X,
    rank: Rank,
    size: usize,
    capacity: usize,
    n_channels: usize,
}

impl<X: Transport> CheckedTransport<X> {
    pub(crate) fn new(inner: X) -> Result<Self, Error> {
        let (rank, size, capacity) = (inner.rank(), inner.size(), inner.frame_capacity());
        if capacity < MIN_FRAME_BYTES {
            return Err(Error::FrameTooSmall { need: MIN_FRAME_BYTES, have: capacity });
        }
        let n_channels = inner.n_channels();
        let has_channels = (1..=MAX_CHANNELS).contains(&n_channels);
        if size > MAX_SIZE || rank.index() >= size || !has_channels {
            let kind = TransportErrorKind::Misuse;
            return Err(Error::Transport { kind, peer: None });
        }
        Ok(Self { inner, rank, size, capacity, n_channels })
    }

    pub(crate) const fn inner(&self) -> &X {
        &self.inner
    }

    pub(crate) const fn inner_mut(&mut self) -> &mut X {
        &mut self.inner
    }

    pub(crate) fn into_inner(self) -> X {
        self.inner
    }

    /// Returns the frame if it is valid. Otherwise recycles it and fails.
    #[inline(always)]
    fn checked_frame(
        &mut self,
        mut frame: X::Frame,
        n_bytes: usize,
    ) -> Result<X::Frame, TransportFailure> {
        let is_whole = |bytes: &[u8]| {
            bytes.len() >= self.capacity && bytes.as_ptr().align_offset(FRAME_ALIGN) == 0
        };
        if is_whole(frame.as_ref()) && is_whole(frame.as_mut()) && n_bytes <= self.capacity {
            return Ok(frame);
        }
        self.inner.recycle(frame);
        Err(TransportFailure { kind: TransportErrorKind::Misuse, peer: None })
    }

    /// Returns how many frames the pool has, at most `need`. This rank must hold none, and have
    /// none in transit. Returns `need` if the number cannot be found. The frames are taken and
    /// recycled.
    pub(super) fn n_available(&mut self, need: usize) -> usize {
        if let Some(n_frames) = self.inner.n_frames() {
            return n_frames.min(need);
        }
        let mut held = Vec::<X::Frame, { MAX_LANES * FRAMES_PER_LANE }>::new();
        let start = self.now();
        let mut n_refused = 0;
        let found = loop {
            if held.len() == need {
                break need;
            }
            match self.poll_frame() {
                Poll::Ready(Ok(frame)) => match held.push(frame) {
                    Ok(()) => continue,
                    Err(frame) => self.recycle(frame),
                },
                Poll::Ready(Err(TransportFailure {
                    kind: TransportErrorKind::OutOfFrames,
                    ..
                })) => {
                    break held.len();
                }
                // The call will get the same error, and notify the other ranks.
                Poll::Ready(Err(_)) => break need,
                Poll::Pending => {}
            }
            n_refused += 1;
            let waited = self.now().saturating_sub(start);
            if n_refused > MAX_REFUSED || waited >= REFUSED_FOR || self.progress().is_err() {
                break held.len();
            }
            self.idle(REFUSED_FOR / 100);
        };
        for frame in held {
            self.recycle(frame);
        }
        found
    }

    /// Replaces a rank that does not exist by this rank, so that the frame still counts as
    /// undelivered.
    fn known_rank(&self, peer: Rank) -> Rank {
        if peer.index() < self.size { peer } else { self.rank }
    }

    fn failure(&self, error: &X::Error) -> TransportFailure {
        let peer = error.peer().filter(|peer| peer.index() < self.size);
        TransportFailure { kind: error.kind(), peer }
    }
}

/// A transport's error as the engine sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportFailure {
    pub(crate) kind: TransportErrorKind,
    pub(crate) peer: Option<Rank>,
}

impl TransportError for TransportFailure {
    fn kind(&self) -> TransportErrorKind {
        self.kind
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}

impl<X: Transport> Transport for CheckedTransport<X> {
    type Frame = X::Frame;
    type Error = TransportFailure;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn frame_capacity(&self) -> usize {
        self.capacity
    }

    fn n_channels(&self) -> usize {
        self.n_channels
    }

    #[inline(always)]
    fn poll_frame(&mut self) -> Poll<Result<X::Frame, TransportFailure>> {
        match self.inner.poll_frame() {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(frame)) => Poll::Ready(self.checked_frame(frame, 0)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.failure(&error))),
        }
    }

    fn n_frames(&self) -> Option<usize> {
        self.inner.n_frames()
    }

    #[inline(always)]
    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), TransportFailure>> {
        self.inner.poll_ready(to, tag).map_err(|error| self.failure(&error))
    }

    #[inline(always)]
    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: X::Frame,
        n_bytes: usize,
    ) -> Result<(), TransportFailure> {
        self.inner.send(to, tag, frame, n_bytes).map_err(|error| self.failure(&error))
    }

    #[inline(always)]
    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(X::Frame, usize), TransportFailure>> {
        match self.inner.poll_recv(from, tag) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok((frame, n_bytes))) => {
                Poll::Ready(self.checked_frame(frame, n_bytes).map(|frame| (frame, n_bytes)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.failure(&error))),
        }
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        self.inner.expect(from, tag);
    }

    fn forget(&mut self, peer: Rank) {
        self.inner.forget(peer);
    }

    #[inline(always)]
    fn recycle(&mut self, frame: X::Frame) {
        self.inner.recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        self.inner.undelivered().map(|peer| self.known_rank(peer))
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        self.inner.undelivered_of(channel).map(|peer| self.known_rank(peer))
    }

    #[inline(always)]
    fn progress(&mut self) -> Result<(), TransportFailure> {
        self.inner.progress().map_err(|error| self.failure(&error))
    }

    fn nudge(&mut self) {
        self.inner.nudge();
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn idle(&mut self, budget: Duration) {
        self.inner.idle(budget);
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.inner.register(waker)
    }

    fn link_rate(&self) -> Option<f64> {
        self.inner.link_rate()
    }

    fn distance(&self, peer: Rank) -> Distance {
        self.inner.distance(peer)
    }

    fn needs_checksum(&self) -> bool {
        self.inner.needs_checksum()
    }
}
