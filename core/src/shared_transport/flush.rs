//! Flush: clears a channel's links of frames that earlier communicators left.
//!
//! Most links need no flush, because a receiver recognizes an earlier communicator's frames by
//! their epoch. But a frame contains only 16 bits of its epoch, so two epochs that are [`WINDOW`]
//! or more apart cannot be ordered. And a call that failed may have left segments. So members flush
//! such a channel before they use it. With each tag, each member sends every other member a
//! message, and drops what arrives before the other's message.
//!
//! *Which links.* If a member reports in the split that a channel may hold segments, all its links
//! are flushed. Otherwise a link is flushed if its two ranks have not flushed it for `WINDOW`
//! epochs. Both ranks store the epoch of the last flush. Each stores it when the other's last
//! message has arrived. If one of them does not get that message, its flush fails. It then reports
//! in later splits that the channel may hold segments.
//!
//! *Tags* are flushed one after another, so that one frame of credit per link is enough. The
//! control tag comes first, because a rank that is done may make calls, and a transport may drop
//! control messages that are not received.
//!
//! Cost: one message of 64 bytes each way for each of the nine tags of a link, once in 2¹⁵ groups.
//!
//! Source: the flush of group communication (Birman and Joseph, 1987).

use super::{CallSlot, Port, SharedTransport};
use crate::collective::Communicator;
use crate::engine::transport_error;
use crate::error::Error;
use crate::frame::{CallHeader, Header, MessageKind};
use crate::handle::Progress;
use crate::transport::{Rank, Tag, Transport};
use crate::wait::{Limits, Wait, rest};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::task::Poll;
use core::time::Duration;

/// Epochs that are less than this apart can be ordered by the 16 bits in a frame.
pub(super) const WINDOW: u64 = 1 << 15;
/// Most messages taken from one link in one pass.
const MESSAGES_PER_PASS: usize = 16;

/// Links being flushed, before their communicator is used.
pub(crate) struct Flush<'a, X: Transport> {
    call_slots: Rc<[Rc<CallSlot<'a, X>>]>,
    links: Vec<FlushedLink>,
    limits: Limits,
    wait: Wait,
}

/// All tags of a channel between this rank and another.
struct FlushedLink {
    /// Index of the call slot.
    call_slot: usize,
    /// The peer's rank in the communicator.
    peer: Rank,
    /// The peer's rank in the transport.
    outer: Rank,
    /// Number of tags with which this rank has sent its flush. It differs from `n_received` by at
    /// most one.
    n_sent: usize,
    /// Number of tags with which the peer's flush has arrived.
    n_received: usize,
}

impl<'a, X: Transport> Flush<'a, X> {
    /// Creates the flush of a communicator's call slots. `members` are ranks of the transport. It
    /// flushes all links of the channels for which `is_due` is true, and other links that need it.
    pub(crate) fn new(
        shared: &SharedTransport<'a, X>,
        call_slots: &Rc<[Rc<CallSlot<'a, X>>]>,
        members: &[Rank],
        is_due: impl Fn(usize) -> bool,
    ) -> Self {
        let mut links = Vec::new();
        for (at, call_slot) in call_slots.iter().enumerate() {
            for (peer, &outer) in members.iter().enumerate() {
                let is_due = || is_due(call_slot.channel) || shared.is_due(call_slot, outer);
                if outer != shared.rank() && is_due() {
                    let peer = Rank::new(peer);
                    links.push(FlushedLink {
                        call_slot: at,
                        peer,
                        outer,
                        n_sent: 0,
                        n_received: 0,
                    });
                }
            }
        }
        let deadline = shared.config.deadline.filter(|_| !links.is_empty());
        let deadline = deadline.map(|left| shared.now().saturating_add(left));
        let limits = Limits { stall: shared.config.timeout, deadline };
        Self { call_slots: Rc::clone(call_slots), links, limits, wait: Wait::default() }
    }

    /// Advances the flush, and all calls of the shared transport.
    ///
    /// # Errors
    /// The reason why the flush failed. The communicator has then ended.
    pub(crate) fn advance(&mut self) -> Result<Progress, Error> {
        let advanced = self.try_advance();
        match &advanced {
            Ok(Progress::Finished) => self.links.clear(),
            Ok(_) => {}
            Err(error) => self.give_up(Some(error)),
        }
        advanced
    }

    /// Returns how long to rest before the next poll.
    pub(crate) fn rest(&self, now: Duration) -> Duration {
        self.limits.rest_from(now, rest(self.limits.stall))
    }

    fn try_advance(&mut self) -> Result<Progress, Error> {
        if self.links.is_empty() {
            return Ok(Progress::Finished);
        }
        let (mut moved, mut is_done, mut now) = (false, true, Duration::ZERO);
        for (at, call_slot) in self.call_slots.iter().enumerate() {
            let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
            let comm = comm.as_mut().ok_or(Error::Poisoned)?;
            if at == 0 {
                comm.transport.progress().map_err(transport_error)?;
                now = comm.transport.now();
            }
            for link in
                self.links.iter_mut().filter(|link| link.call_slot == at && !link.is_clear())
            {
                moved |= link.advance(comm, call_slot.epoch)?;
                is_done &= link.is_clear();
                if link.is_clear() {
                    call_slot.shared.note_flush(call_slot, link.outer);
                }
            }
            // A receiver would wait forever for a message that has not left.
            is_done = is_done && comm.transport.undelivered().is_none();
        }
        if is_done {
            return Ok(Progress::Finished);
        }
        if moved {
            self.wait.restart(now);
            return Ok(Progress::Moved);
        }
        self.listen()?;
        self.check_time(now)?;
        Ok(Progress::Waiting)
    }

    /// Fails if a rank has aborted. Does not receive from a rank whose control link is not clear
    /// yet.
    fn listen(&self) -> Result<(), Error> {
        let mut comm = self.call_slots[0].comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let Some(Communicator { transport, notices, context, epoch, .. }) = comm.as_mut() else {
            return Ok(());
        };
        let is_clear = |rank: &Rank| {
            let mut links = self.links.iter().filter(|link| link.call_slot == 0);
            *rank != transport.rank() && links.all(|link| link.peer != *rank || link.n_received > 0)
        };
        let clear: Vec<Rank> =
            (0..transport.size()).map(Rank::new).filter(|rank| is_clear(rank)).collect();
        let ours = CallHeader::of_no_call(*context, *epoch);
        notices.listen(transport, &ours, &clear).map(drop)
    }

    fn check_time(&mut self, now: Duration) -> Result<(), Error> {
        let waits = self.links.iter().find(|link| !link.is_clear());
        let (rank, step) = waits.map_or((Rank(0), 0), |link| (link.peer, link.n_received));
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(Error::Deadline { rank, step });
        }
        let is_stalled = self.wait.look(now, self.limits.stall) > self.limits.stall;
        if is_stalled { Err(Error::Stalled { rank, step }) } else { Ok(()) }
    }

    /// Ends the communicator, and notifies its other ranks.
    fn give_up(&mut self, error: Option<&Error>) {
        self.links.clear();
        if let Some(call_slot) = self.call_slots.first() {
            call_slot.fail(error);
        }
        // Drop the communicators, so that their channels count as holding segments, even if no rank
        // could be notified.
        for call_slot in self.call_slots.iter() {
            if let Ok(mut comm) = call_slot.comm.try_borrow_mut() {
                comm.take();
            }
        }
    }
}

impl<X: Transport> Drop for Flush<'_, X> {
    fn drop(&mut self) {
        if !self.links.is_empty() {
            self.give_up(None);
        }
    }
}

impl FlushedLink {
    const fn is_clear(&self) -> bool {
        self.n_sent == Tag::COUNT && self.n_received == Tag::COUNT
    }

    /// Sends if there is credit, and takes what has arrived. Returns whether anything moved.
    fn advance<X: Transport>(
        &mut self,
        comm: &mut Communicator<Port<'_, X>>,
        epoch: u64,
    ) -> Result<bool, Error> {
        let mut moved = false;
        if self.n_sent <= self.n_received && self.n_sent < Tag::COUNT {
            moved = self.send(comm, epoch)?;
        }
        for _ in 0..MESSAGES_PER_PASS {
            // Receive with a tag once this rank has sent with all tags before it. Do not wait until
            // it has sent with the tag itself: both directions of the link may be full, so
            // leftovers must be taken before there is credit to send.
            if self.n_received > self.n_sent || self.n_received == Tag::COUNT {
                break;
            }
            let received = comm.transport.poll_recv(self.peer, nth_tag(self.n_received));
            let Poll::Ready((frame, n_bytes)) = received.map_err(transport_error)? else { break };
            let message = frame.as_ref().get(..n_bytes).unwrap_or_default();
            // Drop everything except the peer's flush.
            let header = Header::parse(message, comm.checksum());
            let expected = header_of(comm, self.peer, comm.rank(), epoch);
            self.n_received += usize::from(header == Ok(expected));
            comm.transport.recycle(frame);
            moved = true;
        }
        Ok(moved)
    }

    fn send<X: Transport>(
        &mut self,
        comm: &mut Communicator<Port<'_, X>>,
        epoch: u64,
    ) -> Result<bool, Error> {
        let tag = nth_tag(self.n_sent);
        let header = header_of(comm, comm.rank(), self.peer, epoch);
        if !comm.send_header(self.peer, tag, &header)? {
            return Ok(false);
        }
        comm.transport.expect(self.peer, tag);
        self.n_sent += 1;
        Ok(true)
    }
}

/// Returns the tag that is flushed after `n` others.
const fn nth_tag(n: usize) -> Tag {
    if n == 0 { Tag::CONTROL } else { Tag(n as u16 - 1) }
}

/// Returns the header that a member sends to another with each tag.
fn header_of<X: Transport>(comm: &Communicator<X>, from: Rank, to: Rank, epoch: u64) -> Header {
    // `count` holds all bits of the epoch, because a failed flush of an earlier epoch may have left
    // its message.
    let of_none = CallHeader::of_no_call(comm.context, comm.epoch());
    let call = CallHeader { root: to.0, count: epoch, ..of_none };
    Header::without_values(MessageKind::Flush, call, from)
}
