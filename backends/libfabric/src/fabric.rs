//! The message layer: turns libfabric's completions into events of messages between ranks.
//!
//! *Lost ranks.* Providers report little. With `tcp`, a send fails if it is made just when the
//! connection breaks, and later sends are refused as busy for ever. With `sockets`, later sends
//! fail too. The providers of devices fail sends with errors of their own choice, so a send that
//! fails counts as the loss of its receiver, unless this rank is at fault. `shm` reports nothing.
//! With all of them, a receive from a lost rank stays pending for ever. So the layer relies on the
//! exchange by which the ranks joined, and polls it every [`CHECK_INTERVAL`]. The provider keeps
//! pending sends to a lost rank until the endpoint closes.

use std::collections::VecDeque;
use std::fmt;
use std::process;
use std::time::{Duration, Instant};

use foldwire::transport::{Distance, Rank, Tag};
use foldwire_bootstrap::Exchange;
use foldwire_messaging::{Backoff, Event, Net, Refused, Source, on_wire};

use crate::acks::{Acks, PLAIN, WANTS_ACK};
use crate::any_source::AnySourceReceive;
use crate::ffi::{CompletedRequest, MessageBuffer, RdmEndpoint};
use crate::{Errno, Error, JoinError, Settings, join, tags};

/// Interval between polls for lost ranks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Longest time in which a dropped layer tries to send its last acknowledgements.
const LAST_ACKS: Duration = Duration::from_secs(1);

/// Operation that a request to libfabric carries out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FabricRequest {
    /// Sends a message. A `matched` one requests an acknowledgement, and its buffer is released
    /// when that has arrived ([`acks`](crate::acks)).
    Send { to: Rank, tag: Tag, matched: bool },
    /// Receives a message.
    Receive { from: Rank, tag: Tag },
    /// Receives a notice from one rank, as a part of a receive from [`Source::Any`]
    /// ([`any_source`](crate::any_source)).
    Notice { from: Rank },
    /// Sends an acknowledgement.
    SendAck { to: Rank },
    /// Receives an acknowledgement.
    ReceiveAck { from: Rank, tag: Tag },
}

/// Returns ranks that have ended, one at a time.
pub(crate) type LostRankPoll = Box<dyn FnMut() -> Option<Rank>>;

/// Facts about the group and its network, found by [`join`](crate::join).
pub(crate) struct GroupInfo {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) provider: String,
    /// Messages pass through shared memory.
    pub(crate) is_in_memory: bool,
    /// Messages pass through sockets of the system.
    pub(crate) is_on_ip: bool,
    /// For each rank, true if it is on this rank's host.
    pub(crate) is_near: Vec<bool>,
    pub(crate) poll_lost: LostRankPoll,
}

/// Messages between ranks over one libfabric endpoint.
pub struct Fabric {
    /// Id of the process that made the endpoint.
    creator: u32,
    // Declared before `group`, so that the endpoint closes first. When `group` is dropped, the
    // exchange in its `poll_lost` may report to the other ranks that this one ended in good order.
    rdm: RdmEndpoint<FabricRequest>,
    group: GroupInfo,
    acks: Acks,
    any_source: AnySourceReceive,
    lost: Vec<bool>,
    events: VecDeque<Event<MessageBuffer>>,
    next_check: Instant,
    backoff: Backoff,
}

impl Fabric {
    pub(crate) fn new(rdm: RdmEndpoint<FabricRequest>, group: GroupInfo) -> Self {
        Self {
            creator: process::id(),
            rdm,
            acks: Acks::default(),
            any_source: AnySourceReceive::default(),
            lost: vec![false; group.size],
            group,
            events: VecDeque::new(),
            next_check: Instant::now() + CHECK_INTERVAL,
            backoff: Backoff::default(),
        }
    }

    /// Joins the ranks, and returns only the message layer, without frames and credit. For a
    /// transport see [`join`](crate::join).
    ///
    /// # Errors
    /// As [`join`](crate::join).
    pub fn join<X: Exchange + 'static>(
        settings: &Settings,
        exchange: X,
    ) -> Result<Self, JoinError> {
        join::join(settings, exchange, |mut exchange| Box::new(move || exchange.poll_lost()))
    }

    /// Returns the name of libfabric's provider with its layers, such as `tcp;ofi_rxm`.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.group.provider
    }

    fn is_lost(&self, peer: Rank) -> bool {
        self.lost.get(peer.index()) == Some(&true)
    }

    /// Returns whether this rank exchanges no more messages with `peer`.
    fn is_gone(&self, peer: Rank) -> bool {
        self.is_lost(peer) || self.acks.is_forgotten(peer)
    }

    fn lose(&mut self, peer: Rank) {
        if let Some(lost @ false) = self.lost.get_mut(peer.index()) {
            *lost = true;
            self.forget(peer);
            self.events.push_back(Event::Lost { peer });
        }
    }

    fn check_lost(&mut self) {
        let now = Instant::now();
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_INTERVAL;
        while let Some(peer) = (self.group.poll_lost)() {
            self.lose(peer);
        }
    }

    /// Sends queued acknowledgements and posts missing receives.
    fn retry_pending(&mut self) -> Result<(), Error> {
        let acks_sent = self.acks.send_queued(&mut self.rdm, self.group.rank);
        let posted = self.any_source.post_missing(&mut self.rdm);
        let acks_sent = acks_sent.or_else(|(peer, errno)| self.fail_send(peer, errno));
        let posted = posted.or_else(|(peer, errno)| self.fail(peer, errno));
        acks_sent.and(posted)
    }

    /// Queues the events of a completion.
    fn handle(&mut self, completion: CompletedRequest<FabricRequest>) -> Result<(), Error> {
        let CompletedRequest { request, buffer, outcome } = completion;
        match (request, outcome) {
            (FabricRequest::Send { to, tag, matched }, outcome) => {
                let must_wait = matched && outcome.is_ok();
                let done =
                    if must_wait { self.acks.note_sent(to, tag, buffer) } else { Some(buffer) };
                // `matched` is the argument of the send, even if the send has failed.
                self.events.extend(done.map(|buffer| Event::Released { to, tag, buffer, matched }));
                outcome.map_or_else(|errno| self.fail_send(to, errno), |_| Ok(()))
            }
            (FabricRequest::Receive { from, tag }, Ok(n_arrived)) => {
                self.handle_message(from, tag, buffer, n_arrived)
            }
            (FabricRequest::Receive { from, .. }, Err(errno)) => {
                self.events.push_back(Event::Returned { buffer });
                if errno == Errno::CANCELED { Ok(()) } else { self.fail(from, errno) }
            }
            (FabricRequest::Notice { from }, Ok(n_arrived)) => {
                let (n_bytes, _) = buffer.contents(n_arrived).ok_or(Error::Malformed { from })?;
                self.any_source.note_arrived(from, buffer, n_bytes);
                self.deliver_notice();
                self.retry_pending()
            }
            (FabricRequest::SendAck { to }, outcome) => {
                self.acks.note_ack_sent(to, buffer);
                outcome.map_or_else(|errno| self.fail_send(to, errno), |_| Ok(()))
            }
            (FabricRequest::ReceiveAck { from, tag }, Ok(_)) => {
                let done = self.acks.note_ack_received(from, tag, buffer);
                self.events.extend(done.map(|buffer| Event::Released {
                    to: from,
                    tag,
                    buffer,
                    matched: true,
                }));
                Ok(())
            }
            (
                FabricRequest::Notice { .. } | FabricRequest::ReceiveAck { .. },
                Err(Errno::CANCELED),
            ) => Ok(()),
            (
                FabricRequest::Notice { from } | FabricRequest::ReceiveAck { from, .. },
                Err(errno),
            ) => self.fail(from, errno),
        }
    }

    fn handle_message(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: MessageBuffer,
        n_arrived: usize,
    ) -> Result<(), Error> {
        let Some((n_bytes, mark)) = buffer.contents(n_arrived) else {
            self.events.push_back(Event::Returned { buffer });
            return Err(Error::Malformed { from });
        };
        self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
        if mark == WANTS_ACK {
            self.acks.queue_ack(from, tag);
            self.retry_pending()?;
        }
        Ok(())
    }

    fn deliver_notice(&mut self) {
        if let Some((from, tag, buffer, n_bytes)) = self.any_source.deliver() {
            self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
        }
    }

    /// Handles a failed send: the receiver is lost, or the layer has failed.
    fn fail_send(&mut self, to: Rank, errno: Errno) -> Result<(), Error> {
        if errno.is_of_sender() || self.is_gone(to) {
            return self.fail(to, errno);
        }
        self.lose(to);
        Ok(())
    }

    /// Handles a failed receive: the peer is lost, or the layer has failed. Requests with a rank
    /// that is gone may fail in any way.
    fn fail(&mut self, peer: Rank, errno: Errno) -> Result<(), Error> {
        if self.is_gone(peer) {
            Ok(())
        } else if errno == Errno::TRUNCATED {
            Err(Error::Truncated { from: peer })
        } else if errno.is_of_connection() || errno == Errno::CANCELED {
            // A provider cancels requests when the connection breaks.
            self.lose(peer);
            Ok(())
        } else {
            Err(Error::Message { peer, errno })
        }
    }

    /// Classifies the provider's refusal of a new send.
    fn refused_send(
        &mut self,
        to: Rank,
        buffer: MessageBuffer,
        errno: Errno,
    ) -> Refused<MessageBuffer, Error> {
        if errno == Errno::AGAIN || errno.is_of_sender() {
            return self.refusal(to, buffer, errno);
        }
        self.lose(to);
        Refused::Failed(buffer, Error::PeerLost { peer: to })
    }

    /// Classifies the provider's refusal of a new receive.
    fn refusal(
        &mut self,
        peer: Rank,
        buffer: MessageBuffer,
        errno: Errno,
    ) -> Refused<MessageBuffer, Error> {
        let error = match errno {
            Errno::AGAIN => return Refused::Busy(buffer),
            Errno::INVALID => Error::Misuse,
            errno if errno.is_of_connection() => {
                self.lose(peer);
                Error::PeerLost { peer }
            }
            errno => Error::Message { peer, errno },
        };
        Refused::Failed(buffer, error)
    }
}

impl Net for Fabric {
    type Buffer = MessageBuffer;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.group.rank
    }

    fn size(&self) -> usize {
        self.group.size
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<MessageBuffer, Error> {
        self.rdm.allocate(n_bytes).map_err(|errno| Error::NoMemory { need: n_bytes, errno })
    }

    fn accepts(&self, buffer: &MessageBuffer) -> bool {
        self.rdm.accepts(buffer)
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: MessageBuffer,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<MessageBuffer, Error>> {
        if self.is_lost(to) {
            return Err(Refused::Failed(buffer, Error::PeerLost { peer: to }));
        }
        if matched && let Err(errno) = self.acks.post_receive(&mut self.rdm, to, tag) {
            return Err(self.refusal(to, buffer, errno));
        }
        let mark = if matched { WANTS_ACK } else { PLAIN };
        // Only sends convert the tag: no receive has the control tag of another channel.
        let packed = tags::message(self.group.rank, on_wire(tag));
        let request = FabricRequest::Send { to, tag, matched };
        match self.rdm.send(to.index(), packed, buffer, n_bytes, mark, request) {
            Ok(()) => {
                if matched {
                    self.acks.note_accepted(to, tag);
                }
                self.backoff.reset();
                Ok(())
            }
            Err((buffer, errno)) => Err(self.refused_send(to, buffer, errno)),
        }
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: MessageBuffer,
    ) -> Result<(), Refused<MessageBuffer, Error>> {
        match from {
            Source::Rank(from) => self
                .rdm
                .recv(tags::message(from, tag), buffer, FabricRequest::Receive { from, tag })
                .map_err(|(buffer, errno)| self.refusal(from, buffer, errno)),
            Source::Any => {
                let me = self.group.rank;
                let peers = (0..self.group.size).map(Rank::new).filter(|&peer| peer != me);
                let posted = self.any_source.post(tag, buffer, peers);
                posted.map_err(|buffer| Refused::Failed(buffer, Error::Misuse))?;
                self.deliver_notice();
                // The next poll tries again, and reports a failure.
                let _ = self.any_source.post_missing(&mut self.rdm);
                Ok(())
            }
        }
    }

    fn poll(&mut self) -> Result<Option<Event<MessageBuffer>>, Error> {
        if self.events.is_empty() {
            match self.rdm.poll().map_err(|errno| Error::Layer { errno })? {
                Some(completion) => self.handle(completion)?,
                None => {
                    self.retry_pending()?;
                    self.check_lost();
                }
            }
        }
        let event = self.events.pop_front();
        if event.is_some() {
            self.backoff.reset();
        }
        Ok(event)
    }

    /// The system moves the bytes of sockets by itself. A poll takes several system calls, which
    /// cost more than the poll gains while this rank computes (`docs/algorithms.md`).
    fn moves_by_itself(&self) -> bool {
        self.group.is_on_ip
    }

    fn cancel_receives(&mut self) {
        let wanted = self.any_source.stop();
        self.events.extend(wanted.map(|buffer| Event::Returned { buffer }));
        self.rdm.cancel(|request| {
            matches!(request, FabricRequest::Receive { .. } | FabricRequest::Notice { .. })
        });
    }

    fn forget(&mut self, peer: Rank) {
        for (tag, buffer) in self.acks.forget(peer) {
            self.events.push_back(Event::Released { to: peer, tag, buffer, matched: true });
        }
    }

    fn idle(&mut self, budget: Duration) {
        self.backoff.wait(budget);
    }

    fn distance(&self, peer: Rank) -> Distance {
        match self.group.is_near.get(peer.index()) {
            Some(true) if self.group.is_in_memory => Distance::Node,
            Some(true) => Distance::Loopback,
            _ => Distance::Network,
        }
    }

    fn needs_checksum(&self) -> bool {
        !self.group.is_in_memory
    }
}

impl Drop for Fabric {
    /// Sends the last acknowledgements, since a peer may wait for one. Does nothing in a forked
    /// child.
    fn drop(&mut self) {
        if process::id() != self.creator {
            return;
        }
        let start = Instant::now();
        while self.acks.has_unsent() && start.elapsed() < LAST_ACKS {
            if let Err((peer, _)) = self.acks.send_queued(&mut self.rdm, self.group.rank) {
                self.acks.forget(peer);
            }
            match self.rdm.poll() {
                Ok(Some(CompletedRequest {
                    request: FabricRequest::SendAck { to },
                    buffer,
                    ..
                })) => {
                    self.acks.note_ack_sent(to, buffer);
                }
                Ok(Some(_)) => {}
                Ok(None) => self.backoff.wait(CHECK_INTERVAL),
                Err(_) => return,
            }
        }
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric")
            .field("rank", &self.group.rank)
            .field("size", &self.group.size)
            .field("provider", &self.group.provider)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::task::Poll;

    use foldwire::Transport;
    use foldwire::transport::{TransportError, TransportErrorKind};
    use foldwire_messaging::{Endpoint, Options};

    use super::*;
    use crate::check;
    use crate::ffi::Domain;

    /// Returns rank 0 of three, whose peers do not exist. `None` without the provider.
    fn fabric() -> Option<Fabric> {
        let description = check::find("tcp", &Settings::default(), 3).ok()?;
        let rdm = RdmEndpoint::open(Domain::open(description).unwrap()).unwrap();
        let group = GroupInfo {
            rank: Rank(0),
            size: 3,
            provider: String::new(),
            is_in_memory: false,
            is_on_ip: true,
            is_near: vec![true; 3],
            poll_lost: Box::new(|| None),
        };
        Some(Fabric::new(rdm, group))
    }

    /// A send that a provider fails with an errno of its own choice ends the link to one rank, and
    /// not the endpoint.
    #[test]
    fn a_send_that_fails_loses_its_receiver_only() {
        for code in [5, 32, 19, 104, 253] {
            let Some(mut fabric) = fabric() else {
                let _ = writeln!(std::io::stdout(), "skipped: no provider tcp");
                return;
            };
            // A later error of the same rank changes nothing. Nor does one of a forgotten rank.
            for (peer, code) in [(1, code), (1, 22), (1, 265)] {
                let buffer = fabric.allocate(0).unwrap();
                let request = FabricRequest::SendAck { to: Rank(peer) };
                let errno = Errno::of_code(code);
                fabric.rdm.complete(CompletedRequest { request, buffer, outcome: Err(errno) });
            }
            let mut endpoint = Endpoint::new(fabric, Options::default()).unwrap();
            for _ in 0..10 {
                endpoint.progress().expect("the endpoint goes on");
            }
            let ready = endpoint.poll_ready(Rank(1), Tag(0));
            let is_lost = |error: &foldwire_messaging::Error<Error>| {
                error.kind() == TransportErrorKind::PeerLost
            };
            assert!(matches!(&ready, Poll::Ready(Err(error)) if is_lost(error)), "{ready:?}");
            assert!(matches!(endpoint.poll_ready(Rank(2), Tag(0)), Poll::Ready(Ok(()))));
        }
    }

    #[test]
    fn a_send_that_fails_by_this_ranks_fault_fails_the_endpoint() {
        let Some(mut fabric) = fabric() else { return };
        for errno in [Errno::INVALID, Errno::NO_MEMORY] {
            assert!(fabric.fail_send(Rank(1), errno).is_err());
        }
        fabric.forget(Rank(1));
        assert_eq!(fabric.fail_send(Rank(1), Errno::INVALID), Ok(()));
    }
}
