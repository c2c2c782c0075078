//! A transport of one channel of a shared transport, between some of its ranks.

use super::SharedTransport;
#[cfg(feature = "std")]
use super::Stopper;
use crate::group::TransportFailure;
#[cfg(feature = "std")]
use crate::transport::TransportErrorKind;
use crate::transport::{Distance, FRAMES_PER_LANE, Rank, Tag, Transport};
use alloc::rc::Rc;
use core::task::{Poll, Waker};
use core::time::Duration;

/// One channel of a shared transport, as a transport between the members of a communicator.
pub(crate) struct Port<'a, X: Transport> {
    shared: Rc<SharedTransport<'a, X>>,
    channel: usize,
    /// Members in the order of their ranks, as ranks of the transport; `None` means all ranks.
    members: Option<Rc<[Rank]>>,
    own: Rank,
    #[cfg(feature = "std")]
    stopper: Stopper,
}

impl<'a, X: Transport> Port<'a, X> {
    /// Creates the port of this rank, which is one of `members`.
    pub(super) fn new(
        shared: Rc<SharedTransport<'a, X>>,
        channel: usize,
        members: Option<Rc<[Rank]>>,
        #[cfg(feature = "std")] stopper: Stopper,
    ) -> Self {
        let own = shared.rank();
        let mut port = Self {
            shared,
            channel,
            members,
            own,
            #[cfg(feature = "std")]
            stopper,
        };
        port.own = port.member(own).unwrap_or(own);
        port
    }

    /// Returns a member's rank in the transport. A rank that is not a member becomes one out of
    /// range, which the transport refuses.
    pub(crate) fn outer(&self, rank: Rank) -> Rank {
        match &self.members {
            None => rank,
            Some(members) => members.get(rank.index()).copied().unwrap_or(Rank(u32::MAX)),
        }
    }

    /// Returns the member with this rank in the transport.
    fn member(&self, outer: Rank) -> Option<Rank> {
        match &self.members {
            None => Some(outer),
            Some(members) => members.iter().position(|&rank| rank == outer).map(Rank::new),
        }
    }

    /// Returns the failure with its peer translated to a member.
    fn error(&self, failure: TransportFailure) -> TransportFailure {
        TransportFailure { peer: failure.peer.and_then(|peer| self.member(peer)), ..failure }
    }

    const fn tag(&self, tag: Tag) -> Tag {
        tag.of_channel(self.channel)
    }
}

impl<X: Transport> Transport for Port<'_, X> {
    type Frame = X::Frame;
    type Error = TransportFailure;

    fn rank(&self) -> Rank {
        self.own
    }

    fn size(&self) -> usize {
        self.members.as_ref().map_or_else(|| self.shared.size(), |members| members.len())
    }

    fn frame_capacity(&self) -> usize {
        self.shared.frame_capacity()
    }

    fn poll_frame(&mut self) -> Poll<Result<X::Frame, TransportFailure>> {
        self.shared.transport.borrow_mut().poll_frame().map_err(|error| self.error(error))
    }

    /// Returns at most the number of frames reserved for a channel.
    fn n_frames(&self) -> Option<usize> {
        let n_frames = self.shared.transport.borrow().n_frames();
        n_frames.map(|n_frames| n_frames.min(self.shared.config.lanes * FRAMES_PER_LANE))
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), TransportFailure>> {
        let (to, tag) = (self.outer(to), self.tag(tag));
        self.shared.transport.borrow_mut().poll_ready(to, tag).map_err(|error| self.error(error))
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: X::Frame,
        n_bytes: usize,
    ) -> Result<(), TransportFailure> {
        let (to, tag) = (self.outer(to), self.tag(tag));
        let sent = self.shared.transport.borrow_mut().send(to, tag, frame, n_bytes);
        sent.map_err(|error| self.error(error))
    }

    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(X::Frame, usize), TransportFailure>> {
        let (from, tag) = (self.outer(from), self.tag(tag));
        self.shared.transport.borrow_mut().poll_recv(from, tag).map_err(|error| self.error(error))
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        self.shared.transport.borrow_mut().expect(self.outer(from), self.tag(tag));
    }

    fn forget(&mut self, peer: Rank) {
        self.shared.transport.borrow_mut().forget(self.outer(peer));
    }

    fn recycle(&mut self, frame: X::Frame) {
        self.shared.transport.borrow_mut().recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        let peer = self.shared.transport.borrow().undelivered_of(self.channel)?;
        Some(self.member(peer).unwrap_or(self.own))
    }

    /// Also drives the other calls over the shared transport, unless a pass over all calls is
    /// driving this one. Every call polls here before it goes on, and so learns that it was
    /// stopped.
    fn progress(&mut self) -> Result<(), TransportFailure> {
        let is_fresh = self.shared.is_fresh.replace(false);
        let passed = if is_fresh { Ok(()) } else { self.shared.pass().map(drop) };
        #[cfg(feature = "std")]
        if self.stopper.is_stopped() {
            return Err(TransportFailure { kind: TransportErrorKind::Stopped, peer: None });
        }
        passed.map_err(|error| self.error(error))
    }

    /// Nudges the transport only, because a call that computes is in the middle of its step.
    fn nudge(&mut self) {
        self.shared.transport.borrow_mut().nudge();
    }

    fn now(&self) -> Duration {
        self.shared.transport.borrow().now()
    }

    fn idle(&mut self, budget: Duration) {
        self.shared.idle(budget);
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.shared.register(waker)
    }

    fn link_rate(&self) -> Option<f64> {
        self.shared.transport.borrow().link_rate()
    }

    fn distance(&self, peer: Rank) -> Distance {
        self.shared.transport.borrow().distance(self.outer(peer))
    }

    fn needs_checksum(&self) -> bool {
        self.shared.transport.borrow().needs_checksum()
    }
}
