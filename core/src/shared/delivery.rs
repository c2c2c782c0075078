//! A message in progress, as the shared transport drives it.

use super::mailbox::Mailbox;
use super::message_endpoint::MessageEndpoint;
use super::pending::{BufferOwner, PendingWork};
use crate::collective::Communicator;
use crate::engine::{MAX_AWAITED, Waiter, Watchdog, check_fields, transport_error};
use crate::error::{AbortReason, Error, Field};
use crate::handle::Progress;
use crate::report::Report;
use crate::shared_transport::{Drive, Port};
use crate::transport::{Rank, Transport};
use crate::wait::Limits;
use alloc::rc::Rc;
use core::time::Duration;

/// Longest time that a send waits for the network to deliver its last frames. Some networks move
/// frames only while they are polled. Without this wait, the receiver would have to wait for this
/// rank's next call.
const LINGER: Duration = Duration::from_millis(10);

/// A message in progress, as the shared transport drives it.
pub(super) struct Delivery<'a, X: Transport, E> {
    mailbox: Rc<Mailbox<'a, X>>,
    endpoint: E,
    report: Report,
    limits: Limits,
    started: Duration,
    watchdog: Watchdog,
    /// True once the caller has waited for the message or polled it. Timeouts count only from then
    /// on.
    is_awaited: bool,
    /// Time at which the endpoint had sent, or received, the whole message.
    left: Option<Duration>,
    outcome: Option<Result<Report, Error>>,
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> Delivery<'a, X, E> {
    /// Starts a message that has been checked.
    pub(super) fn start(
        mailbox: &Rc<Mailbox<'a, X>>,
        comm: &mut Communicator<Port<'a, X>>,
        mut endpoint: E,
        report: Report,
    ) -> Result<Self, Error> {
        comm.use_lanes()?;
        mailbox.admit(E::IS_SENT)?;
        let begun = {
            let mut peers = mailbox.peers.borrow_mut();
            let peer = peers.entry(endpoint.peer()).or_default();
            endpoint.begin(comm, peer, mailbox.next_receive())
        };
        begun.inspect_err(|_| mailbox.dismiss(E::IS_SENT))?;
        let (started, config) = (comm.transport.now(), &comm.config);
        let deadline = config.deadline.map(|left| started.saturating_add(left));
        let mut delivery = Self {
            mailbox: Rc::clone(mailbox),
            report,
            limits: Limits { stall: config.timeout, deadline },
            started,
            watchdog: Watchdog::default(),
            is_awaited: false,
            left: None,
            outcome: None,
            endpoint,
        };
        if delivery.endpoint.cursor().is_done {
            delivery.end(Ok(report));
        }
        Ok(delivery)
    }

    fn end(&mut self, outcome: Result<Report, Error>) {
        if self.outcome.is_none() {
            self.mailbox.dismiss(E::IS_SENT);
            self.outcome = Some(outcome);
        }
    }

    fn advance(&mut self, comm: &mut Communicator<Port<'a, X>>) -> Result<Progress, Error> {
        if comm.is_poisoned() {
            return Err(self.mailbox.call_slot.failure().unwrap_or(Error::Poisoned));
        }
        let ours = comm.next_call_header::<E::Value>();
        if self.watchdog.lost().is_some() {
            let Communicator { transport, notices, .. } = comm;
            // Receive no more segments from the lost rank. Only its abort notice matters.
            let take_nothing = |_: &mut _, _: &mut _| Ok(true);
            return self.watchdog.explain((transport, notices), &ours, self.limits, take_nothing);
        }
        comm.transport.progress().map_err(transport_error)?;
        let (rank, step) = (self.endpoint.peer(), self.endpoint.cursor().n_segments as usize);
        let mut peers = self.mailbox.peers.try_borrow_mut().map_err(|_| Error::Internal)?;
        let peer = peers.entry(rank).or_default();
        let moved = match self.left {
            None => self.endpoint.advance(comm, peer, &mut self.report),
            Some(_) => Ok(false),
        };
        let now = comm.transport.now();
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) => {
                self.watchdog.lose(error, now)?;
                return Ok(Progress::Moved);
            }
        };
        if self.endpoint.cursor().is_done {
            let left = *self.left.get_or_insert(now);
            // Do not wait longer than `LINGER`: a message may stay in transit until its receive
            // starts.
            let lingers = E::IS_SENT && now.saturating_sub(left) < LINGER;
            if lingers && comm.transport.undelivered().is_some() {
                return Ok(if moved { Progress::Moved } else { Progress::Waiting });
            }
            self.report.total = now.saturating_sub(self.started);
            return Ok(Progress::Finished);
        }
        let is_polled = self.is_awaited;
        let waiter = PeerWaiting { rank, step, own: comm.rank(), is_polled };
        let Communicator { transport, notices, .. } = comm;
        let limits = self.limits;
        match self.watchdog.settle(moved, &waiter, (transport, notices), &ours, limits) {
            Err(Error::Stalled { rank, step }) => match self.endpoint.mismatched_tags(peer) {
                Some([ours, theirs]) => {
                    let tags = [(Field::Tag, ours.into(), theirs.into())];
                    check_fields(rank, &tags).and(Err(Error::Internal))
                }
                None => Err(Error::Stalled { rank, step }),
            },
            settled => settled,
        }
    }

    /// Ends the message, and poisons the communicator.
    fn fail(&mut self, comm: &mut Communicator<Port<'a, X>>, error: Option<Error>) {
        if !comm.is_poisoned() {
            comm.give_messages_up::<E::Value>(error.as_ref(), true);
            // The calls of the communicator report an abort instead of a mismatch, whose fields
            // would describe this message.
            let reported = error.map(|error| match error {
                Error::Mismatch { rank: culprit, .. } => {
                    Error::Aborted { rank: comm.rank(), culprit, reason: AbortReason::Message }
                }
                error => error,
            });
            self.mailbox.call_slot.leave(comm, reported.as_ref());
        }
        self.end(Err(error.unwrap_or(Error::Poisoned)));
    }
}

/// Peer of a message while the message does not move.
struct PeerWaiting {
    rank: Rank,
    /// Number of the segment.
    step: usize,
    own: Rank,
    is_polled: bool,
}

impl Waiter for PeerWaiting {
    fn awaited(&self) -> heapless::Vec<Rank, MAX_AWAITED> {
        Some(self.rank).filter(|rank| *rank != self.own).into_iter().collect()
    }

    fn blamed(&self) -> (Rank, usize) {
        (self.rank, self.step)
    }

    fn is_polled(&self) -> bool {
        self.is_polled
    }
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> Drive for Delivery<'a, X, E> {
    fn drive(&mut self) -> bool {
        if self.is_finished() {
            return false;
        }
        let mailbox = Rc::clone(&self.mailbox);
        let Ok(mut comm) = mailbox.call_slot.comm.try_borrow_mut() else { return false };
        let Some(comm) = comm.as_mut() else {
            self.end(Err(Error::Poisoned));
            return true;
        };
        match self.advance(comm) {
            Ok(Progress::Moved) => true,
            Ok(Progress::Waiting) => false,
            Ok(Progress::Finished) => {
                self.end(Ok(self.report));
                true
            }
            Err(error) => {
                self.fail(comm, Some(error));
                true
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.outcome.is_some()
    }

    fn channel(&self) -> usize {
        self.mailbox.call_slot.channel
    }

    fn abandon(&mut self) {
        let mailbox = Rc::clone(&self.mailbox);
        if let Ok(mut comm) = mailbox.call_slot.comm.try_borrow_mut()
            && let Some(comm) = comm.as_mut()
        {
            self.fail(comm, None);
        }
        self.end(Err(Error::Poisoned));
    }
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> PendingWork for Delivery<'a, X, E> {
    fn outcome(&self) -> Option<Result<Report, Error>> {
        self.outcome
    }

    fn limits(&mut self) -> &mut Limits {
        &mut self.limits
    }

    fn note_wait(&mut self) {
        self.is_awaited = true;
    }

    fn rest(&self, now: Duration) -> Duration {
        self.limits.rest_from(now, self.watchdog.rest(self.limits))
    }
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> BufferOwner<E::Buffer>
    for Delivery<'a, X, E>
{
    fn give_back(&mut self) -> Option<E::Buffer> {
        self.endpoint.give_back()
    }
}
