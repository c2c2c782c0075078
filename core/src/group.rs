//! Ranks of a transport that form a communicator: a [`Transport`] between some ranks of another
//! one.
//!
//! At first the group has all ranks, and nothing is translated. A communicator of survivors has a
//! set of members. They are numbered `0..n` in the order of the transport's ranks.
//!
//! Cost: none for a group of all ranks. With a set, each translation of a rank visits at most all
//! 64 words of the set.

mod checked;
mod rank_set;

pub use rank_set::MAX_RANKS;
pub(crate) use rank_set::RankSet;

use crate::error::Error;
use crate::transport::{Distance, Rank, Tag, Transport};
pub(crate) use checked::{CheckedTransport, TransportFailure};
use core::task::{Poll, Waker};
use core::time::Duration;

/// A transport between the members of a group.
#[derive(Debug)]
pub(crate) struct Group<X> {
    inner: CheckedTransport<X>,
    /// The members; `None` means all ranks.
    members: Option<RankSet>,
}

impl<X: Transport> Group<X> {
    /// Creates a group of all ranks.
    ///
    /// # Errors
    /// If the properties that the transport reports break its contract.
    pub(crate) fn all(transport: X) -> Result<Self, Error> {
        Ok(Self { inner: CheckedTransport::new(transport)?, members: None })
    }

    /// Restricts the group to some of the transport's ranks, which include this rank.
    pub(crate) fn among(self, members: RankSet) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Returns how many frames the pool has, at most `need`. This rank must hold none, and have
    /// none in transit. Returns `need` if the number cannot be found.
    pub(crate) fn n_available(&mut self, need: usize) -> usize {
        self.inner.n_available(need)
    }

    /// Returns the transport between all ranks.
    pub(crate) const fn whole(&self) -> &CheckedTransport<X> {
        &self.inner
    }

    /// Returns the transport between all ranks.
    pub(crate) const fn whole_mut(&mut self) -> &mut CheckedTransport<X> {
        &mut self.inner
    }

    pub(crate) const fn inner(&self) -> &X {
        self.inner.inner()
    }

    pub(crate) const fn inner_mut(&mut self) -> &mut X {
        self.inner.inner_mut()
    }

    pub(crate) fn into_inner(self) -> X {
        self.inner.into_inner()
    }

    /// Returns the members as ranks of the transport. Incomplete if the transport has more than
    /// [`MAX_RANKS`] ranks.
    pub(crate) fn members(&self) -> RankSet {
        self.members.unwrap_or_else(|| RankSet::first(self.inner.size().min(MAX_RANKS)))
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
            Some(members) => members.contains(outer).then(|| Rank::new(members.n_below(outer))),
        }
    }

    /// Returns the failure with its peer translated to a member.
    fn error(&self, failure: TransportFailure) -> TransportFailure {
        TransportFailure { peer: failure.peer.and_then(|peer| self.member(peer)), ..failure }
    }
}

impl<X: Transport> Transport for Group<X> {
    type Frame = X::Frame;
    type Error = TransportFailure;

    fn rank(&self) -> Rank {
        let own = self.inner.rank();
        self.member(own).unwrap_or(own)
    }

    fn size(&self) -> usize {
        self.members.as_ref().map_or_else(|| self.inner.size(), RankSet::len)
    }

    fn frame_capacity(&self) -> usize {
        self.inner.frame_capacity()
    }

    fn n_channels(&self) -> usize {
        self.inner.n_channels()
    }

    #[inline(always)]
    fn poll_frame(&mut self) -> Poll<Result<X::Frame, TransportFailure>> {
        self.inner.poll_frame().map_err(|error| self.error(error))
    }

    fn n_frames(&self) -> Option<usize> {
        self.inner.n_frames()
    }

    #[inline(always)]
    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), TransportFailure>> {
        let to = self.outer(to);
        self.inner.poll_ready(to, tag).map_err(|error| self.error(error))
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
        self.inner.send(to, tag, frame, n_bytes).map_err(|error| self.error(error))
    }

    #[inline(always)]
    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(X::Frame, usize), TransportFailure>> {
        let from = self.outer(from);
        self.inner.poll_recv(from, tag).map_err(|error| self.error(error))
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
        self.inner.undelivered().and_then(|peer| self.member(peer))
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        self.inner.undelivered_of(channel).and_then(|peer| self.member(peer))
    }

    fn progress(&mut self) -> Result<(), TransportFailure> {
        self.inner.progress().map_err(|error| self.error(error))
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
