//! A message in progress.

use super::driven::{Driven, SlotWork};
use super::mailbox::Mailbox;
use super::message_endpoint::MessageEndpoint;
use crate::collective::{Communicator, MessageDriver, Messages};
use crate::engine::{MAX_AWAITED, Waiter, check_fields};
use crate::error::{AbortReason, Error, Field};
use crate::handle::Progress;
use crate::report::Report;
use crate::shared_transport::Port;
use crate::transport::{Rank, Transport};
use crate::wait::Limits;
use alloc::rc::Rc;
use core::time::Duration;

/// Longest time that a send waits for the network to deliver its last frames. Some networks move
/// frames only while they are polled. Without this wait, the receiver would have to wait for this
/// rank's next call.
const LINGER: Duration = Duration::from_millis(10);

/// One endpoint of a message in progress.
pub(super) struct Delivery<'a, X: Transport, E> {
    message: MailboxMessage<'a, X, E>,
    driver: MessageDriver,
}

/// One endpoint of a message that matches in a mailbox.
struct MailboxMessage<'a, X: Transport, E> {
    mailbox: Rc<Mailbox<'a, X>>,
    endpoint: E,
    /// True once the caller has waited for the message or polled it. Timeouts count only from then
    /// on.
    is_awaited: bool,
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> Delivery<'a, X, E> {
    /// Starts a message that has been checked.
    pub(super) fn start(
        mailbox: &Rc<Mailbox<'a, X>>,
        comm: &mut Communicator<Port<'a, X>>,
        mut endpoint: E,
        report: Report,
    ) -> Result<Driven<'a, X, Self>, Error> {
        comm.use_lanes()?;
        mailbox.admit(E::IS_SENT)?;
        let begun = {
            let mut peers = mailbox.peers.borrow_mut();
            let peer = peers.entry(endpoint.peer()).or_default();
            endpoint.begin(comm, peer, mailbox.next_receive())
        };
        begun.inspect_err(|_| mailbox.dismiss(E::IS_SENT))?;
        let is_done = endpoint.cursor().is_done;
        if is_done {
            mailbox.dismiss(E::IS_SENT);
        }
        let driver = MessageDriver::start(comm, report);
        let mailbox = Rc::clone(mailbox);
        let call_slot = Rc::clone(&mailbox.call_slot);
        let message = MailboxMessage { mailbox, endpoint, is_awaited: false };
        Ok(Driven::new(&call_slot, Self { message, driver }, is_done.then_some(Ok(report))))
    }
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> Messages<Port<'a, X>>
    for MailboxMessage<'a, X, E>
{
    type Value = E::Value;

    fn advance(
        &mut self,
        comm: &mut Communicator<Port<'a, X>>,
        report: &mut Report,
    ) -> Result<bool, Error> {
        if self.endpoint.cursor().is_done {
            return Ok(false);
        }
        let mut peers = self.mailbox.peers.try_borrow_mut().map_err(|_| Error::Internal)?;
        let peer = peers.entry(self.endpoint.peer()).or_default();
        self.endpoint.advance(comm, peer, report)
    }

    fn is_done(&self) -> bool {
        self.endpoint.cursor().is_done
    }

    /// A message may stay in transit until its receive starts.
    fn linger(&self) -> Option<Duration> {
        Some(if E::IS_SENT { LINGER } else { Duration::ZERO })
    }

    fn waiter(&self, own: Rank, _: Option<Rank>) -> impl Waiter {
        let (rank, step) = (self.endpoint.peer(), self.endpoint.cursor().n_segments as usize);
        PeerWaiting { rank, step, own, is_polled: self.is_awaited }
    }

    /// If another message has arrived that has no receive, the tags differ.
    fn review(
        &self,
        _: &Communicator<Port<'a, X>>,
        settled: Result<Progress, Error>,
        _: Duration,
        _: Limits,
    ) -> Result<Progress, Error> {
        let Err(Error::Stalled { rank, .. }) = settled else { return settled };
        let peers = self.mailbox.peers.try_borrow().map_err(|_| Error::Internal)?;
        let tags = peers.get(&rank).and_then(|peer| self.endpoint.mismatched_tags(peer));
        let Some([ours, theirs]) = tags else { return settled };
        check_fields(rank, &[(Field::Tag, ours.into(), theirs.into())])?;
        settled
    }
}

impl<'a, X: Transport, E: MessageEndpoint<Port<'a, X>>> SlotWork<Port<'a, X>>
    for Delivery<'a, X, E>
{
    type Given = E::Buffer;

    fn advance(&mut self, comm: &mut Communicator<Port<'a, X>>) -> Result<Progress, Error> {
        if comm.is_poisoned() {
            return Err(self.message.mailbox.call_slot.failure().unwrap_or(Error::Poisoned));
        }
        self.driver.advance(comm, &mut self.message)
    }

    fn finish(&mut self, _: &mut Communicator<Port<'a, X>>) -> Report {
        self.message.mailbox.dismiss(E::IS_SENT);
        self.driver.report
    }

    /// Also poisons the communicator. Its calls report an abort instead of a mismatch, whose fields
    /// would describe this message.
    fn give_up(
        &mut self,
        comm: &mut Communicator<Port<'a, X>>,
        error: Option<Error>,
    ) -> Option<Error> {
        self.message.mailbox.dismiss(E::IS_SENT);
        if comm.is_poisoned() {
            return error;
        }
        comm.give_messages_up::<E::Value>(error.as_ref(), true);
        error.map(|error| match error {
            Error::Mismatch { rank: culprit, .. } => {
                Error::Aborted { rank: comm.rank(), culprit, reason: AbortReason::Message }
            }
            error => error,
        })
    }

    fn limits(&mut self) -> &mut Limits {
        &mut self.driver.limits
    }

    fn note_wait(&mut self) {
        self.message.is_awaited = true;
    }

    fn rest(&self, now: Duration) -> Duration {
        self.driver.limits.rest_from(now, self.driver.rest())
    }

    fn into_given(self) -> E::Buffer {
        self.message.endpoint.into_buffer()
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
