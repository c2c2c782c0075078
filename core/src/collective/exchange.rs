//! Messages between two ranks: a rank sends arrays to some ranks and receives arrays from some.
//!
//! No handshake comes first. The sender chooses bound and codec, and the message states them. The
//! receiver only needs space for the values. A message is a sequence of segments, each in its own
//! frame, and a short array is a single frame. All sends and receives of an exchange progress side
//! by side. Ranks that send each other arrays of any length therefore do not deadlock.
//!
//! *Order.* Messages from one rank to another arrive in the order in which they were sent. They
//! share the communicator's first tag with collective calls, so two ranks must make their messages
//! and calls in the same order. The receives of one exchange may be listed in any order.
//!
//! Messages have no numbers, since a rank would have to remember one for each peer. If a transport
//! delivers a frame twice, the receiver therefore gets two messages. A rank that aborts an exchange
//! sends notices about its next call, because only calls have numbers.
//!
//! Source for sending the values without an earlier message that carries their compressed length:
//! Q. Zhou et al., "Designing high-performance MPI libraries with on-the-fly compression for modern
//! GPU clusters", IPDPS 2021.

mod driver;
mod pass;
mod rows;
mod segment;

pub(crate) use driver::MessageDriver;
#[cfg(feature = "alloc")]
pub(crate) use driver::Messages;
pub use rows::Rows;
#[cfg(feature = "alloc")]
pub(crate) use segment::Cursor;
pub(crate) use segment::{Receiving, SegmentLabel, Sending};

use super::Communicator;
use crate::element::Element;
use crate::error::{Buffer, Error};
use crate::handle::{Advance, Handle, Limited, Progress};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::{Rank, Tag, Transport};
use crate::wait::Limits;
use core::fmt;
use core::mem;
use core::task::Waker;
use core::time::Duration;
use pass::ExchangedMessages;

/// Tag of all frames of messages.
const TAG: Tag = Tag(0);

/// An array to send to a rank. The receive must name the same tag.
#[derive(Debug)]
pub struct Outgoing<'d, T: Element> {
    data: &'d [T],
    message: Sending<T>,
}

impl<'d, T: Element> Outgoing<'d, T> {
    /// Describes a message of these values to `to`.
    #[must_use]
    pub fn new(to: Rank, tag: u32, data: &'d [T]) -> Self {
        Self::of_rows(to, tag, data, Rows::one(data.len()))
    }

    /// Describes a message to `to` of the values in these rows of `data`. The first row begins
    /// where `data` begins.
    ///
    /// The values are copied only into frames. The receiver gets the same message as if the values
    /// were consecutive.
    #[must_use]
    pub fn of_rows(to: Rank, tag: u32, data: &'d [T], rows: Rows) -> Self {
        Self { data, message: Sending::new(to, tag, rows) }
    }
}

/// Buffer for an array that a rank sends with the same tag and exactly this length.
#[derive(Debug)]
pub struct Incoming<'d, T: Element> {
    data: &'d mut [T],
    message: Receiving,
}

impl<'d, T: Element> Incoming<'d, T> {
    /// Describes a receive from `from` into `data`.
    #[must_use]
    pub const fn new(from: Rank, tag: u32, data: &'d mut [T]) -> Self {
        let rows = Rows::one(data.len());
        Self::of_rows(from, tag, data, rows)
    }

    /// Describes a receive from `from` into these rows of `data`. The first row begins where `data`
    /// begins. The values between the rows are unchanged.
    #[must_use]
    pub const fn of_rows(from: Rank, tag: u32, data: &'d mut [T], rows: Rows) -> Self {
        Self { data, message: Receiving::new(from, tag, rows) }
    }
}

#[cfg(feature = "alloc")]
impl<'d, T: Element> Outgoing<'d, T> {
    pub(crate) const fn to(&self) -> Rank {
        self.message.to
    }

    pub(crate) const fn tag(&self) -> u32 {
        self.message.tag
    }

    pub(crate) const fn parts(&mut self) -> (&'d [T], &mut Sending<T>) {
        (self.data, &mut self.message)
    }
}

#[cfg(feature = "alloc")]
impl<T: Element> Incoming<'_, T> {
    pub(crate) const fn from(&self) -> Rank {
        self.message.from
    }

    pub(crate) const fn tag(&self) -> u32 {
        self.message.tag
    }

    pub(crate) const fn parts(&mut self) -> (&mut [T], &mut Receiving) {
        (self.data, &mut self.message)
    }
}

impl<X: Transport> Communicator<X> {
    /// Sends arrays to some ranks and receives arrays from some, all side by side, as a stencil
    /// code does with its halos.
    ///
    /// Only the ranks named take part. A rank that sends to itself gets a copy.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    ///
    /// # Examples
    /// Exchange the edge rows of a field that is divided among ranks. Each rank has one extra row
    /// at each end:
    /// ```
    /// use foldwire::{Bound, Communicator, Error, Incoming, Outgoing, Plan, Rank, Transport};
    ///
    /// fn halo<X: Transport>(
    ///     comm: &mut Communicator<X>,
    ///     rows: &mut [Vec<f32>],
    ///     plan: &Plan,
    /// ) -> Result<(), Error> {
    ///     let (rank, size) = (comm.rank().index(), comm.size());
    ///     let above = Rank::new((rank + size - 1) % size);
    ///     let below = Rank::new((rank + 1) % size);
    ///     let [first, inner @ .., last] = rows else { return Ok(()) };
    ///     let [top, bottom] = [&inner[0], &inner[inner.len() - 1]];
    ///     comm.exchange(
    ///         &mut [Outgoing::new(above, 0, top), Outgoing::new(below, 1, bottom)],
    ///         &mut [Incoming::new(above, 1, first), Incoming::new(below, 0, last)],
    ///         plan,
    ///     )?;
    ///     Ok(())
    /// }
    /// ```
    pub fn exchange<'d, T: Element>(
        &mut self,
        sends: &mut [Outgoing<'d, T>],
        recvs: &mut [Incoming<'d, T>],
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.start_exchange(sends, recvs, plan)?.wait()
    }

    /// Starts an [`exchange`](Self::exchange).
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`].
    pub fn start_exchange<'a, 'd, T: Element>(
        &'a mut self,
        sends: &'a mut [Outgoing<'d, T>],
        recvs: &'a mut [Incoming<'d, T>],
        plan: &Plan,
    ) -> Result<Exchange<'a, 'd, X, T>, Error> {
        let report = self.prepare_exchange(sends, recvs, plan)?;
        copy_to_self(self.rank(), sends, recvs, false)?;
        self.use_lanes()?;
        for recv in recvs.iter().filter(|recv| !recv.message.cursor.is_done) {
            self.transport.expect(recv.message.from, TAG);
        }
        let driver = MessageDriver::start(self, report);
        let messages = ExchangedMessages { sends, recvs };
        Ok(Handle(RunningExchange { comm: self, messages, driver, is_over: false }))
    }

    /// Checks peers, plan and buffers of an exchange, and readies its messages.
    pub(crate) fn prepare_exchange<T: Element>(
        &self,
        sends: &mut [Outgoing<'_, T>],
        recvs: &mut [Incoming<'_, T>],
        plan: &Plan,
    ) -> Result<Report, Error> {
        let to = sends.iter().map(|send| send.message.to);
        let from = recvs.iter().map(|recv| recv.message.from);
        self.check_messages::<T>(to.chain(from), plan)?;
        for send in sends.iter() {
            send.message.rows.check(Buffer::Send, send.data.len())?;
        }
        for recv in recvs.iter() {
            recv.message.rows.check(Buffer::Recv, recv.data.len())?;
        }
        let mut report = Report::default();
        for send in sends {
            self.prepare_message(&mut send.message, send.data, plan, &mut report)?;
        }
        recvs.iter_mut().for_each(|recv| recv.message.rewind());
        Ok(report)
    }
}

/// Copies the messages that a rank sends to itself. With `only_checks`, it only checks that each
/// has a match. It copies nothing unless all have one.
pub(crate) fn copy_to_self<T: Element>(
    own: Rank,
    sends: &mut [Outgoing<'_, T>],
    recvs: &mut [Incoming<'_, T>],
    only_checks: bool,
) -> Result<(), Error> {
    let is_open = |recv: &Receiving| recv.from == own && !recv.cursor.is_done;
    for send in sends.iter().filter(|send| send.message.to == own) {
        let tag = send.message.tag;
        let matches =
            |recv: &&mut Incoming<'_, T>| is_open(&recv.message) && recv.message.tag == tag;
        let matched = recvs.iter_mut().find(matches).ok_or(Error::ToItself { tag });
        let checked = matched.and_then(|recv| {
            recv.message.cursor.is_done = true;
            let [need, have] = [send.message.rows, recv.message.rows].map(|rows| rows.n_values());
            let error = Error::Length { buffer: Buffer::Recv, need, have };
            if need == have { Ok(()) } else { Err(error) }
        });
        checked.inspect_err(|_| reopen(own, recvs))?;
    }
    let left = recvs.iter().find(|recv| is_open(&recv.message));
    let complete = left.map_or(Ok(()), |recv| Err(Error::ToItself { tag: recv.message.tag }));
    reopen(own, recvs);
    complete?;
    if only_checks {
        return Ok(());
    }
    for send in sends.iter_mut().filter(|send| send.message.to == own) {
        let tag = send.message.tag;
        let matches =
            |recv: &&mut Incoming<'_, T>| is_open(&recv.message) && recv.message.tag == tag;
        let recv = recvs.iter_mut().find(matches).ok_or(Error::ToItself { tag })?;
        let (sends, takes) = (send.message.rows, recv.message.rows);
        let sent = sends.runs(0..sends.n_values()).flat_map(|run| &send.data[run]);
        let positions = takes.runs(0..takes.n_values()).flatten();
        positions.zip(sent).for_each(|(position, value)| recv.data[position] = *value);
        (recv.message.cursor.is_done, send.message.cursor.is_done) = (true, true);
    }
    Ok(())
}

/// Resets the receives of a rank's messages to itself, which a check has marked as done.
fn reopen<T: Element>(own: Rank, recvs: &mut [Incoming<'_, T>]) {
    let own = recvs.iter_mut().filter(|recv| recv.message.from == own);
    own.for_each(|recv| recv.message.cursor.is_done = false);
}

/// Sends and receives in progress. Poll it, wait for it, or `.await` it.
///
/// Dropping an unfinished exchange poisons the communicator on all ranks, as with an
/// [`Operation`](crate::Operation).
pub type Exchange<'a, 'd, X, T> = Handle<RunningExchange<'a, 'd, X, T>>;

/// Sends and receives in progress, with the communicator.
pub struct RunningExchange<'a, 'd, X: Transport, T: Element> {
    comm: &'a mut Communicator<X>,
    messages: ExchangedMessages<'a, 'd, T>,
    driver: MessageDriver,
    /// True once the exchange has finished or failed.
    is_over: bool,
}

impl<X: Transport, T: Element> Advance for RunningExchange<'_, '_, X, T> {
    type Output = Result<Report, Error>;

    fn advance(&mut self) -> Result<Progress, Error> {
        if self.is_over {
            return Err(Error::Finished);
        }
        let result = self.driver.advance(self.comm, &mut self.messages);
        match &result {
            Err(error) => self.give_up(Some(error)),
            Ok(Progress::Finished) => self.is_over = true,
            Ok(_) => {}
        }
        result
    }

    fn output(&mut self, ended: Result<(), Error>) -> Self::Output {
        ended.map(|()| self.driver.report)
    }

    fn idle(&mut self) {
        self.comm.idle(self.driver.limits, self.driver.rest());
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.comm.transport.register(waker)
    }
}

impl<X: Transport, T: Element> Limited for RunningExchange<'_, '_, X, T> {
    fn change_limits(&mut self, change: impl FnOnce(&mut Limits, Duration)) {
        change(&mut self.driver.limits, self.comm.transport.now());
    }
}

impl<X: Transport, T: Element> RunningExchange<'_, '_, X, T> {
    /// Aborts the exchange unless it is over: notifies the other ranks and poisons the
    /// communicator.
    fn give_up(&mut self, error: Option<&Error>) {
        if !mem::replace(&mut self.is_over, true) {
            self.comm.give_messages_up::<T>(error, false);
        }
    }
}

impl<X: Transport, T: Element> Drop for RunningExchange<'_, '_, X, T> {
    fn drop(&mut self) {
        self.give_up(None);
    }
}

impl<X: Transport, T: Element> fmt::Debug for RunningExchange<'_, '_, X, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sends, {} receives", self.messages.sends.len(), self.messages.recvs.len())
    }
}
