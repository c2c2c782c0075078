//! A transport of one channel of a node, between some of its ranks.

use super::Node;
#[cfg(feature = "std")]
use super::Stopper;
use crate::group::Failure;
#[cfg(feature = "std")]
use crate::transport::TransportErrorKind;
use crate::transport::{Distance, FRAMES_PER_LANE, Rank, Tag, Transport};
use alloc::rc::Rc;
use core::task::{Poll, Waker};
use core::time::Duration;

pub(crate) struct Port<'a, X: Transport> {
    node: Rc<Node<'a, X>>,
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
        node: Rc<Node<'a, X>>,
        channel: usize,
        members: Option<Rc<[Rank]>>,
        #[cfg(feature = "std")] stopper: Stopper,
    ) -> Self {
        let own = node.rank();
        let mut port = Self {
            node,
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

    /// Returns the failure with its peer as a member.
    fn error(&self, failure: Failure) -> Failure {
        Failure { peer: failure.peer.and_then(|peer| self.member(peer)), ..failure }
    }

    const fn tag(&self, tag: Tag) -> Tag {
        tag.of_channel(self.channel)
    }
}

impl<X: Transport> Transport for Port<'_, X> {
    type Frame = X::Frame;
    type Error = Failure;

    fn rank(&self) -> Rank {
        self.own
    }

    fn size(&self) -> usize {
        self.members.as_ref().map_or_else(|| self.node.size(), |members| members.len())
    }

    fn frame_capacity(&self) -> usize {
        self.node.transport.borrow().frame_capacity()
    }

    fn poll_frame(&mut self) -> Poll<Result<X::Frame, Failure>> {
        self.node.transport.borrow_mut().poll_frame().map_err(|error| self.error(error))
    }

    /// Returns at most the number of frames reserved for a channel.
    fn n_frames(&self) -> Option<usize> {
        let n_frames = self.node.transport.borrow().n_frames();
        n_frames.map(|n_frames| n_frames.min(self.node.config.lanes * FRAMES_PER_LANE))
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Failure>> {
        let (to, tag) = (self.outer(to), self.tag(tag));
        self.node.transport.borrow_mut().poll_ready(to, tag).map_err(|error| self.error(error))
    }

    fn send(&mut self, to: Rank, tag: Tag, frame: X::Frame, n_bytes: usize) -> Result<(), Failure> {
        let (to, tag) = (self.outer(to), self.tag(tag));
        let sent = self.node.transport.borrow_mut().send(to, tag, frame, n_bytes);
        sent.map_err(|error| self.error(error))
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(X::Frame, usize), Failure>> {
        let (from, tag) = (self.outer(from), self.tag(tag));
        self.node.transport.borrow_mut().poll_recv(from, tag).map_err(|error| self.error(error))
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        self.node.transport.borrow_mut().expect(self.outer(from), self.tag(tag));
    }

    fn forget(&mut self, peer: Rank) {
        self.node.transport.borrow_mut().forget(self.outer(peer));
    }

    fn recycle(&mut self, frame: X::Frame) {
        self.node.transport.borrow_mut().recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        let peer = self.node.transport.borrow().undelivered_of(self.channel)?;
        Some(self.member(peer).unwrap_or(self.own))
    }

    /// Also drives the node's other calls, unless the node is driving this one. Every call polls
    /// here before it goes on, and so finds that it was stopped.
    fn progress(&mut self) -> Result<(), Failure> {
        let is_fresh = self.node.is_fresh.replace(false);
        let passed = if is_fresh { Ok(()) } else { self.node.pass().map(drop) };
        #[cfg(feature = "std")]
        if self.stopper.is_stopped() {
            return Err(Failure { kind: TransportErrorKind::Stopped, peer: None });
        }
        passed.map_err(|error| self.error(error))
    }

    /// Nudges the transport only, because a call that computes is in the middle of its step.
    fn nudge(&mut self) {
        self.node.transport.borrow_mut().nudge();
    }

    fn now(&self) -> Duration {
        self.node.transport.borrow().now()
    }

    fn idle(&mut self, budget: Duration) {
        self.node.idle(budget);
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.node.register(waker)
    }

    fn link_rate(&self) -> Option<f64> {
        self.node.transport.borrow().link_rate()
    }

    fn distance(&self, peer: Rank) -> Distance {
        self.node.transport.borrow().distance(self.outer(peer))
    }

    fn needs_checksum(&self) -> bool {
        self.node.transport.borrow().needs_checksum()
    }
}
