//! Messages between two ranks of a communicator that may have calls in progress.

use super::delivery::Delivery;
use super::mailbox::Mailbox;
use super::message_endpoint::{ReceivingEndpoint, SendingEndpoint};
use super::{Pending, SharedCommunicator};
use crate::collective::{Incoming, Outgoing, Receiving, Rows, Sending, copy_to_self};
use crate::element::Element;
use crate::error::Error;
use crate::plan::Plan;
use crate::report::Report;
use crate::shared_transport::Drive;
use crate::transport::{Rank, Transport};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::mem;

/// Blocking messages. Calls in progress continue while a rank waits here.
///
/// Without a channel for messages, a message uses the channel of the next call. Both ranks must
/// therefore exchange it between the same two calls, while fewer than [`n_calls`](Self::n_calls)
/// calls are in progress. A program whose messages have no fixed order relative to its calls should
/// use a [duplicate](Self::duplicate), or a channel for messages
/// ([`Config::messages`](crate::Config::messages)).
///
/// With a channel for messages, blocking messages match with [started](Self::start_send) ones.
impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Same as [`Communicator::exchange`](crate::Communicator::exchange).
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    ///
    /// # Examples
    /// Sum a dot product while neighbours exchange the halo for the next step:
    /// ```
    /// use foldwire::{
    ///     Call, Error, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator, Transport,
    /// };
    ///
    /// fn step<X: Transport>(
    ///     world: &SharedCommunicator<'_, X>,
    ///     dot: f64,
    ///     edge: &[f64],
    ///     halo: &mut [f64],
    ///     plan: &Plan,
    /// ) -> Result<f64, Error> {
    ///     let (rank, size) = (world.rank().index(), world.size());
    ///     let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    ///     let sum = world.start(Call::all_reduce([dot], Op::Sum), &Plan::raw())?;
    ///     let (send, recv) = (Outgoing::new(after, 0, edge), Incoming::new(before, 0, halo));
    ///     world.send_recv(send, recv, plan)?;
    ///     let ([sum], _) = sum.wait().into_result()?;
    ///     Ok(sum)
    /// }
    /// ```
    pub fn exchange<'d, T: Element>(
        &self,
        sends: &mut [Outgoing<'d, T>],
        recvs: &mut [Incoming<'d, T>],
        plan: &Plan,
    ) -> Result<Report, Error> {
        match &self.mailbox {
            None if self.is_checking() => Err(self.checked(|comm| {
                comm.prepare_exchange(sends, recvs, plan)?;
                copy_to_self(self.rank, sends, recvs, true)
            })),
            // Do not advance to the next slot: the other ranks do not know of the message.
            None => self.on_slot(|comm| comm.exchange(sends, recvs, plan)),
            Some(mailbox) => self.exchange_by_mailbox(mailbox, sends, recvs, plan),
        }
    }

    /// Runs an exchange over the channel for messages.
    fn exchange_by_mailbox<T: Element>(
        &self,
        mailbox: &Rc<Mailbox<'a, X>>,
        sends: &mut [Outgoing<'_, T>],
        recvs: &mut [Incoming<'_, T>],
        plan: &Plan,
    ) -> Result<Report, Error> {
        let (start, own) = (self.shared.now(), self.rank);
        let mut running: Vec<Box<dyn Drive + '_>> = Vec::new();
        let mut report = mailbox.call_slot.with(|comm| {
            // Check all messages before any of them starts.
            let report = comm.prepare_exchange(sends, recvs, plan)?;
            // Messages of this rank to itself are copied, unless older ones come first.
            let starts = |peer| peer != own || mailbox.has_any_own(own);
            let n_recvs = recvs.iter().filter(|recv| starts(recv.from())).count();
            let n_sends = sends.iter().filter(|send| starts(send.to())).count();
            mailbox.check_room([n_recvs, n_sends])?;
            mailbox.copy_own(own, sends, recvs, self.is_checking())?;
            if self.is_checking() {
                return Err(self.checked(|_| Ok(())));
            }
            let (mut receiving, mut sending) = (Vec::new(), Vec::new());
            for (data, message) in recvs.iter_mut().map(Incoming::parts) {
                let &mut Receiving { from, tag, rows, cursor } = message;
                if !cursor.is_done {
                    receiving.push(ReceivingEndpoint::new(
                        comm,
                        data,
                        Receiving::new(from, tag, rows),
                    )?);
                }
            }
            for (data, message) in sends.iter_mut().map(Outgoing::parts) {
                let Sending { to, tag, rows, cursor, .. } = *message;
                if !cursor.is_done {
                    let message = mem::replace(message, Sending::new(to, tag, rows));
                    sending.push(SendingEndpoint::new(data, message));
                }
            }
            for endpoint in receiving {
                let delivery = Delivery::start(mailbox, comm, endpoint, Report::default())?;
                running.push(Box::new(delivery));
            }
            for endpoint in sending {
                let delivery = Delivery::start(mailbox, comm, endpoint, Report::default())?;
                running.push(Box::new(delivery));
            }
            Ok(report)
        })?;
        running.iter_mut().for_each(|one| one.note_wait());
        while running.iter().any(|one| !one.is_finished()) {
            if let Some(rest) = self.shared.pass_with(&mut running)? {
                self.shared.idle(rest);
            }
        }
        let codec = report.codec;
        for one in &running {
            report += one.outcome().unwrap_or(Err(Error::Internal))?;
        }
        (report.codec, report.total) = (codec, self.shared.now().saturating_sub(start));
        Ok(report)
    }
}

/// Messages in progress, on communicators with a channel for them
/// ([`Config::messages`](crate::Config::messages)).
///
/// *Matching.* Messages match as in MPI. Messages from one rank to another with the same tag match
/// receives in the order in which they were started. Messages of other ranks and tags, and
/// collective calls, may be started and waited for in any order. A receive may start long before
/// its send, and a send long before its receive. Blocking messages of such a communicator match in
/// the same way.
///
/// *Progress.* Messages advance whenever any call over the same transport is waited for. Timeouts
/// count only while the caller waits for the message or polls it. A message that fails, or is
/// dropped unfinished, poisons the communicator and ends all messages on it. A call that fails does
/// the same.
///
/// *Memory.* A message that fits a frame and has at most 16384 values leaves as soon as it is
/// started. A longer message first sends its opening, which is its first segment. The rest follows
/// once the receive has started. A rank holds up to [`MAX_MESSAGES`](Self::MAX_MESSAGES) short
/// messages and openings from each other rank that arrived before their receives. Further messages
/// wait in the network, and so do all messages after them.
///
/// *Timeouts.* A receive without its message fails after the timeout. The error is
/// [`Error::Mismatch`] of [`Field::Tag`](crate::error::Field::Tag) if another message arrived that
/// has no receive, and otherwise [`Error::Stalled`].
impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Largest number of sends, and of receives, that can be in progress on a communicator.
    pub const MAX_MESSAGES: usize = super::mailbox::MAX_MESSAGES;

    /// Starts to send values to a rank, which must [receive](Self::start_recv) the same number of
    /// values of this type with this tag.
    ///
    /// The send has finished when the values have left this rank, which does not mean that they
    /// have arrived. Values that a rank sends to itself are copied at once.
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`]. Among the former are
    /// [`Error::NoMessages`] without a channel for messages, and [`Error::TooManyMessages`] if too
    /// many messages are in progress.
    ///
    /// # Examples
    /// Exchange edges with neighbours while the inner part is computed:
    /// ```
    /// use foldwire::{Error, Plan, Rank, SharedCommunicator, Transport};
    ///
    /// fn step<X: Transport>(
    ///     world: &SharedCommunicator<'_, X>,
    ///     edge: Vec<f64>,
    ///     plan: &Plan,
    ///     mut inner: impl FnMut(),
    /// ) -> Result<Vec<f64>, Error> {
    ///     let (rank, size) = (world.rank().index(), world.size());
    ///     let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    ///     let halo = world.start_recv(vec![0.0; edge.len()], before, 0)?;
    ///     let sent = world.start_send(edge, after, 0, plan)?;
    ///     inner();
    ///     let (halo, _) = halo.wait().into_result()?;
    ///     sent.wait().into_result()?;
    ///     Ok(halo)
    /// }
    /// ```
    pub fn start_send<T: Element, S: AsRef<[T]> + 'a>(
        &self,
        data: S,
        to: Rank,
        tag: u32,
        plan: &Plan,
    ) -> Result<Pending<'a, X, S>, Error> {
        let mailbox = self.mailbox()?;
        let delivery = mailbox.call_slot.with(|comm| {
            comm.check_messages::<T>([to], plan)?;
            let mut report = Report::default();
            let mut message = Sending::new(to, tag, Rows::one(data.as_ref().len()));
            comm.prepare_message(&mut message, data.as_ref(), plan, &mut report)?;
            mailbox.check_room([0, 1])?;
            mailbox.check_held(self.rank, usize::from(to == self.rank))?;
            if self.is_checking() {
                return Err(self.checked(|_| Ok(())));
            }
            Delivery::start(mailbox, comm, SendingEndpoint::new(data, message), report)
        })?;
        Ok(Pending::of(Rc::clone(&self.shared), delivery))
    }

    /// Starts to receive the values that a rank [sends](Self::start_send) with this tag. Their
    /// number must equal the length of `data`. The report holds the sender's bound. For a
    /// message of zeros under a relative bound, the sender reports the bound 0, and the receiver
    /// the bound of the lattice that encodes them, 1.
    ///
    /// # Errors
    /// As [`start_send`](Self::start_send).
    pub fn start_recv<T: Element, R: AsMut<[T]> + 'a>(
        &self,
        mut data: R,
        from: Rank,
        tag: u32,
    ) -> Result<Pending<'a, X, R>, Error> {
        let mailbox = self.mailbox()?;
        let delivery = mailbox.call_slot.with(|comm| {
            comm.check_messages::<T>([from], &Plan::raw())?;
            mailbox.check_room([1, 0])?;
            if self.is_checking() {
                return Err(self.checked(|_| Ok(())));
            }
            let message = Receiving::new(from, tag, Rows::one(data.as_mut().len()));
            let endpoint = ReceivingEndpoint::new(comm, data, message)?;
            Delivery::start(mailbox, comm, endpoint, Report::default())
        })?;
        Ok(Pending::of(Rc::clone(&self.shared), delivery))
    }

    pub(super) fn mailbox(&self) -> Result<&Rc<Mailbox<'a, X>>, Error> {
        self.mailbox.as_ref().ok_or(Error::NoMessages)
    }
}
