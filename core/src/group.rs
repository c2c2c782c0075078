//! Ranks of a transport that form a communicator, as a [`Transport`] that other code need not
//! distrust.
//!
//! *Members.* At first the group has all ranks, and nothing is translated. A communicator of
//! survivors has a set of members. They are numbered `0..n` in the order of the transport's ranks.
//!
//! *Checks.* Rank, size and capacity must not change while a communicator lives. They are queried
//! and checked once. Every frame that the transport returns is checked. If it is short or
//! misaligned, it is recycled, and the call fails with [`TransportErrorKind::Misuse`]. The same
//! holds for a message longer than its frame. A frame could still shrink later, so other code
//! accesses its bytes with `get`.
//!
//! Cost: a few comparisons per frame. With a set, each translation of a rank visits at most all 64
//! words of the set.

mod rank_set;

pub use rank_set::MAX_RANKS;
pub(crate) use rank_set::RankSet;

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

/// A transport between the members of a group, and the properties that it reported at first.
#[derive(Debug)]
pub(crate) struct Group<X> {
    inner: X,
    rank: Rank,
    size: usize,
    capacity: usize,
    n_channels: usize,
    /// The members; `None` means all ranks.
    members: Option<RankSet>,
}

impl<X: Transport> Group<X> {
    /// Creates a group of all ranks.
    ///
    /// # Errors
    /// If the properties that the transport reports break its contract.
    pub(crate) fn all(inner: X) -> Result<Self, Error> {
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
        Ok(Self { inner, rank, size, capacity, n_channels, members: None })
    }

    /// Makes the group one of these ranks of the transport, which include this rank, or of all.
    pub(crate) const fn set_members(&mut self, members: Option<RankSet>) {
        self.members = members;
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

    /// Returns the members as ranks of the transport. Incomplete if the transport has more than
    /// [`MAX_RANKS`] ranks.
    pub(crate) fn members(&self) -> RankSet {
        self.members.unwrap_or_else(|| RankSet::first(self.size.min(MAX_RANKS)))
    }

    /// Returns a member's rank in the transport. A rank that is not a member keeps its number, so
    /// that the transport refuses it if it is out of range.
    pub(crate) fn outer(&self, rank: Rank) -> Rank {
        self.members.and_then(|members| members.nth(rank.index())).unwrap_or(rank)
    }

    /// Returns the member with this rank in the transport.
    pub(crate) fn member(&self, outer: Rank) -> Option<Rank> {
        match &self.members {
            None => Some(outer),
            Some(members) => members.member(outer),
        }
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
    pub(crate) fn n_available(&mut self, need: usize) -> usize {
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

    /// Returns the member to which frames are in transit. A rank that does not exist is replaced by
    /// this rank, so that the frame still counts as undelivered.
    fn undelivered_to(&self, peer: Option<Rank>) -> Option<Rank> {
        let known = |peer: Rank| if peer.index() < self.size { peer } else { self.rank };
        self.member(known(peer?))
    }

    fn failure(&self, error: &X::Error) -> TransportFailure {
        let peer = error.peer().filter(|peer| peer.index() < self.size);
        TransportFailure { kind: error.kind(), peer: peer.and_then(|peer| self.member(peer)) }
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

impl<X: Transport> Transport for Group<X> {
    type Frame = X::Frame;
    type Error = TransportFailure;

    fn rank(&self) -> Rank {
        self.member(self.rank).unwrap_or(self.rank)
    }

    fn size(&self) -> usize {
        self.members.as_ref().map_or(self.size, RankSet::len)
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
        let to = self.outer(to);
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
        let to = self.outer(to);
        self.inner.send(to, tag, frame, n_bytes).map_err(|error| self.failure(&error))
    }

    #[inline(always)]
    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(X::Frame, usize), TransportFailure>> {
        let from = self.outer(from);
        match self.inner.poll_recv(from, tag) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok((frame, n_bytes))) => {
                Poll::Ready(self.checked_frame(frame, n_bytes).map(|frame| (frame, n_bytes)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.failure(&error))),
        }
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        self.inner.expect(self.outer(from), tag);
    }

    fn forget(&mut self, peer: Rank) {
        self.inner.forget(self.outer(peer));
    }

    #[inline(always)]
    fn recycle(&mut self, frame: X::Frame) {
        self.inner.recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        self.undelivered_to(self.inner.undelivered())
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        self.undelivered_to(self.inner.undelivered_of(channel))
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
        self.inner.distance(self.outer(peer))
    }

    fn needs_checksum(&self) -> bool {
        self.inner.needs_checksum()
    }
}
