//! Messages between two ranks of a communicator that has calls under way.

use super::delivery::Delivery;
use super::mailbox::Mailbox;
use super::message_endpoint::{ReceivingEndpoint, SendingEndpoint};
use super::pending::NodeWork;
use super::{Pending, SharedCommunicator};
use crate::collective::{Incoming, Outgoing, Receiving, Rows, Sending};
use crate::element::Element;
use crate::error::Error;
use crate::node::Drive;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::mem;

/// Calls that are under way go on while a rank waits here. A message has the channel of the next
/// call to itself, so it is made between the same two calls on both ranks, and while fewer than
/// [`n_calls`](Self::n_calls) are under way. A program whose messages keep no order with its calls
/// makes them on a [duplicate](Self::duplicate), or with a channel for messages
/// ([`Config::messages`](crate::Config::messages)): then they are as those that
/// [are started](Self::start_send), and match with them.
impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// As [`Communicator::send`](crate::Communicator::send).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn send<T: Element>(
        &self,
        data: &[T],
        to: Rank,
        tag: u32,
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.exchange(&mut [Outgoing::new(to, tag, data)], &mut [], plan)
    }

    /// As [`Communicator::recv`](crate::Communicator::recv).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn recv<T: Element>(&self, data: &mut [T], from: Rank, tag: u32) -> Result<Report, Error> {
        self.exchange(&mut [], &mut [Incoming::new(from, tag, data)], &Plan::raw())
    }

    /// As [`Communicator::send_recv`](crate::Communicator::send_recv).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn send_recv<'d, T: Element>(
        &self,
        send: Outgoing<'d, T>,
        recv: Incoming<'d, T>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.exchange(&mut [send], &mut [recv], plan)
    }

    /// As [`Communicator::exchange`](crate::Communicator::exchange).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    ///
    /// # Examples
    /// A dot product is summed up while neighbours exchange what the next step needs:
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
            // The seat stays the next one: only the ranks concerned know of a message.
            None if self.is_checking() => {
                Err(self.checked(|comm| comm.check_exchange(sends, recvs, plan)))
            }
            None => self.call(|comm, _| comm.exchange(sends, recvs, plan)),
            Some(mailbox) => self.exchange_by_mailbox(mailbox, sends, recvs, plan),
        }
    }

    /// The same by way of the channel for messages.
    fn exchange_by_mailbox<T: Element>(
        &self,
        mailbox: &Rc<Mailbox<'a, X>>,
        sends: &mut [Outgoing<'_, T>],
        recvs: &mut [Incoming<'_, T>],
        plan: &Plan,
    ) -> Result<Report, Error> {
        let (start, own) = (self.node.now(), self.rank);
        let mut report = Report::default();
        let mut running: Vec<Box<dyn NodeWork + '_>> = Vec::new();
        mailbox
            .with(|comm| {
                // What is wrong with one shows before another has begun.
                comm.check_exchange(sends, recvs, plan)?;
                for send in sends.iter_mut() {
                    let (data, message) = send.parts();
                    comm.prepare_message(message, data, plan, &mut report)?;
                }
                recvs.iter_mut().for_each(|recv| recv.parts().1.rewind());
                let n_recvs = recvs.iter().filter(|recv| recv.from() != own).count();
                let n_sends = sends.iter().filter(|send| send.to() != own).count();
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
                mailbox.check_room([receiving.len(), sending.len()])?;
                for endpoint in receiving {
                    let delivery = Delivery::start(mailbox, comm, endpoint, Report::default())?;
                    running.push(Box::new(delivery));
                }
                for endpoint in sending {
                    let delivery = Delivery::start(mailbox, comm, endpoint, Report::default())?;
                    running.push(Box::new(delivery));
                }
                Ok(())
            })
            // Nothing stays half started.
            .inspect_err(|_| running.iter_mut().for_each(|one| one.abandon()))?;
        self.drive(&mut running)?;
        let codec = report.codec;
        for one in &running {
            report += one.outcome().unwrap_or(Err(Error::Internal))?;
        }
        (report.codec, report.total) = (codec, self.node.now().saturating_sub(start));
        Ok(report)
    }

    /// Drives messages until all are over, or one has failed, and they with it.
    fn drive(&self, running: &mut [Box<dyn NodeWork + '_>]) -> Result<(), Error> {
        running.iter_mut().for_each(|one| one.note_wait());
        while running.iter().any(|one| !one.is_finished()) {
            let own = running.iter_mut().map(|one| -> &mut dyn Drive { &mut **one });
            if !self.node.pass_with(own) {
                let now = self.node.now();
                let open = running.iter().filter(|one| !one.is_finished());
                let rest = open.map(|one| one.rest(now)).min();
                self.node.idle(rest.unwrap_or_default());
            }
            if let Some(Err(error)) =
                running.iter().filter_map(|one| one.outcome()).find(Result::is_err)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Messages under way, on communicators that have a channel for them
/// ([`Config::messages`](crate::Config::messages)).
///
/// They match as in MPI: of the messages from one rank to another with the same tag, the first that
/// was started is received by the first receive that was started. Besides, ranks may start and wait
/// for messages of other tags and ranks, and collective calls, in any order. A receive may be
/// started long before its send, and a send long before its receive. Blocking messages of such a
/// communicator are started and waited for, and match in the same way.
///
/// They move whenever any call over the same transport is waited for. Time counts while its caller
/// waits for a message, or polls it. One that fails or is dropped unfinished ends the communicator,
/// and so the other messages under way on it; a call that fails does the same.
///
/// Long messages leave when their receive was started. Of shorter ones, up to 16384 values or a
/// frame, and of the beginnings of long ones, a rank holds [`MAX_MESSAGES`](Self::MAX_MESSAGES) of
/// each other rank's that came before their receive was started; more wait in the network, and
/// whatever comes after them. A receive that waits in vain fails after the time limit, with
/// [`Error::Mismatch`] of [`Field::Tag`](crate::error::Field::Tag) where a message came that no
/// receive was for, else with [`Error::Stalled`].
impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Most sends, and most receives, that are under way at once on a communicator.
    pub const MAX_MESSAGES: usize = super::mailbox::MAX_MESSAGES;

    /// Starts to send values to a rank, which [receives](Self::start_recv) as many of the type with
    /// this tag. It is done when they have left; that they have come it does not say. What a rank
    /// sends itself is copied at once.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`]. Without a channel for messages
    /// [`Error::NoMessages`]; if as many are under way as there may be, [`Error::TooManyMessages`].
    ///
    /// # Examples
    /// Neighbours exchange edges while the inner part is computed:
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
    ) -> Result<Pending<'a, X, T, S>, Error> {
        let mailbox = self.mailbox()?;
        let delivery = mailbox.with(|comm| {
            comm.check_messages::<T>([to], plan)?;
            let mut report = Report::default();
            let mut message = Sending::new(to, tag, Rows::one(data.as_ref().len()));
            comm.prepare_message(&mut message, data.as_ref(), plan, &mut report)?;
            mailbox.check_room([0, 1])?;
            if self.is_checking() {
                return Err(self.checked(|_| Ok(())));
            }
            Delivery::start(mailbox, comm, SendingEndpoint::new(data, message), report)
        })?;
        Ok(Pending::of(Rc::clone(&self.node), delivery))
    }

    /// Starts to receive what a rank [sends](Self::start_send) with this tag, as many values as
    /// `data` has, within the sender's bound, which is in the report.
    ///
    /// # Errors
    /// As [`start_send`](Self::start_send).
    pub fn start_recv<T: Element, R: AsMut<[T]> + 'a>(
        &self,
        mut data: R,
        from: Rank,
        tag: u32,
    ) -> Result<Pending<'a, X, T, R>, Error> {
        let mailbox = self.mailbox()?;
        let delivery = mailbox.with(|comm| {
            comm.check_messages::<T>([from], &Plan::raw())?;
            mailbox.check_room([1, 0])?;
            if self.is_checking() {
                return Err(self.checked(|_| Ok(())));
            }
            let message = Receiving::new(from, tag, Rows::one(data.as_mut().len()));
            let endpoint = ReceivingEndpoint::new(comm, data, message)?;
            Delivery::start(mailbox, comm, endpoint, Report::default())
        })?;
        Ok(Pending::of(Rc::clone(&self.node), delivery))
    }

    pub(super) fn mailbox(&self) -> Result<&Rc<Mailbox<'a, X>>, Error> {
        self.mailbox.as_ref().ok_or(Error::NoMessages)
    }
}
