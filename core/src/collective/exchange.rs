//! Messages between two ranks: arrays that a rank sends to some others, and receives from some.
//!
//! Nothing is agreed on first. What a sender chooses (bound, codec) its messages say, so a receiver
//! needs only room for the values. A message is an array's segments, of which each fits a frame; a
//! short array is one frame. All sends and receives of an exchange go on side by side, so ranks
//! that send each other arrays of any length do not wait for each other in a circle.
//!
//! *Order.* Messages from one rank to another come in the order in which they were sent, and so do
//! the collective calls between them: all travel with the communicator's first tag. Receives of one
//! exchange may stand in any order. Messages have no numbers, since a rank would have to remember
//! one for each other rank: a transport that delivers a frame twice gives its receiver two
//! messages.
//!
//! Source of the one message, without another before it that says its length: Q. Zhou et al.,
//! "Designing high-performance MPI libraries with on-the-fly compression for modern GPU clusters",
//! IPDPS 2021.

mod pass;
mod rows;

pub use rows::Rows;

use super::operation::Step;
use super::{Communicator, Terms, survey};
use crate::bound::{Extent, Quantum};
use crate::budget::{Budget, check_plan, resolve};
use crate::codec::{AnyCodec, CodecId};
use crate::element::Element;
use crate::engine::{Limits, rest_after};
use crate::error::{Buffer, Error};
use crate::frame::CallHeader;
use crate::kernel::{CHUNK, Level};
use crate::layout::{Shares, Window, max_segment};
use crate::op::OpCode;
use crate::plan::Plan;
use crate::report::Report;
use crate::rounding;
use crate::schedule::{Call, Collective, Linear};
use crate::transport::{MAX_LANES, Rank, Tag, Transport};
use crate::wait::Wait;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// What messages travel with.
const TAG: Tag = Tag(0);
/// Most ranks that are listened to at every look while they are waited for.
const N_AWAITED: usize = MAX_LANES + 1;

/// How far a message has come.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    n_values: usize,
    n_segments: u32,
    is_done: bool,
}

impl Cursor {
    const fn is_under_way(&self) -> bool {
        self.n_segments > 0 && !self.is_done
    }

    /// One more segment of an array of `count` values.
    const fn advance(&mut self, n_values: usize, count: usize) {
        self.n_values += n_values;
        self.n_segments += 1;
        self.is_done = self.n_values == count;
    }
}

/// An array to send to a rank, with a tag that the receiver names.
#[derive(Debug)]
pub struct Outgoing<'d, T: Element> {
    to: Rank,
    tag: u32,
    data: &'d [T],
    rows: Rows,
    cursor: Cursor,
    codec: AnyCodec<T>,
    quantum: Quantum,
    /// Values of a segment.
    segment: usize,
}

impl<'d, T: Element> Outgoing<'d, T> {
    /// These values to `to`.
    #[must_use]
    pub fn new(to: Rank, tag: u32, data: &'d [T]) -> Self {
        let (codec, quantum) = (AnyCodec::raw(T::ONE), Quantum::LOSSLESS);
        let (rows, cursor) = (Rows::one(data.len()), Cursor::default());
        Self { to, tag, data, rows, cursor, codec, quantum, segment: CHUNK }
    }

    /// Of `data`, the values in these rows, which begin where `data` begins, to `to`. They need no
    /// copy but in frames. The message is the same as of values one after the other.
    #[must_use]
    pub fn of_rows(to: Rank, tag: u32, data: &'d [T], rows: Rows) -> Self {
        Self { rows, ..Self::new(to, tag, data) }
    }

    /// The extent of its values; `None` if a sample does not show it. Rows are looked at in full.
    fn look(&self, level: Level, sampled: bool) -> Option<Option<Extent>> {
        let count = self.rows.n_values();
        if let Some(run) = self.rows.together(&(0..count)) {
            return survey::conclude(T::look(&self.data[run], level, sampled), sampled);
        }
        let rows = self.rows.runs(0..count).map(|run| T::look(&self.data[run], level, false));
        let nothing = T::look(&[], level, false);
        let all = rows.fold(nothing, |a, b| core::array::from_fn(|i| a[i].max(b[i])));
        survey::conclude(all, false)
    }
}

/// Room for an array that a rank sends with this tag, of exactly this length.
#[derive(Debug)]
pub struct Incoming<'d, T: Element> {
    from: Rank,
    tag: u32,
    data: &'d mut [T],
    rows: Rows,
    cursor: Cursor,
}

impl<'d, T: Element> Incoming<'d, T> {
    /// What `from` sends goes here.
    #[must_use]
    pub const fn new(from: Rank, tag: u32, data: &'d mut [T]) -> Self {
        let cursor = Cursor { n_values: 0, n_segments: 0, is_done: false };
        Self { from, tag, rows: Rows::one(data.len()), data, cursor }
    }

    /// What `from` sends goes into these rows of `data`, which begin where `data` begins; what lies
    /// between them is unchanged.
    #[must_use]
    pub const fn of_rows(from: Rank, tag: u32, data: &'d mut [T], rows: Rows) -> Self {
        Self { rows, ..Self::new(from, tag, data) }
    }
}

impl<X: Transport> Communicator<X> {
    /// Sends values to a rank, which [receives](Self::recv) as many of the type with this tag.
    /// Returns when they have left; that they have come it does not say. The bound is this rank's
    /// alone, and relative to these values; the plan's codec and bound matter, and below how many
    /// bytes values go as they are ([`Plan::with_exact_below`]).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Communicator, Error, Plan, Rank, Transport};
    ///
    /// fn pass_on<X: Transport>(
    ///     comm: &mut Communicator<X>,
    ///     field: &mut [f32],
    /// ) -> Result<(), Error> {
    ///     let (rank, size) = (comm.rank().index(), comm.size());
    ///     if rank > 0 {
    ///         comm.recv(field, Rank::new(rank - 1), 7)?;
    ///     }
    ///     if rank + 1 < size {
    ///         comm.send(field, Rank::new(rank + 1), 7, &Plan::foldwire(Bound::Relative(1e-4)))?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn send<T: Element>(
        &mut self,
        data: &[T],
        to: Rank,
        tag: u32,
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.exchange(&mut [Outgoing::new(to, tag, data)], &mut [], plan)
    }

    /// Receives what a rank [sends](Self::send) with this tag, within the sender's bound, which is
    /// in the report.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn recv<T: Element>(
        &mut self,
        data: &mut [T],
        from: Rank,
        tag: u32,
    ) -> Result<Report, Error> {
        self.exchange(&mut [], &mut [Incoming::new(from, tag, data)], &Plan::raw())
    }

    /// Sends one array and receives another, in no order, as from one neighbour to the next.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn send_recv<'d, T: Element>(
        &mut self,
        send: Outgoing<'d, T>,
        recv: Incoming<'d, T>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.exchange(&mut [send], &mut [recv], plan)
    }

    /// Sends arrays to some ranks and receives arrays from some, all side by side: what a stencil
    /// code does with its halos. Only the ranks concerned take part. A rank that sends to itself
    /// gets a copy.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    ///
    /// # Examples
    /// Rows of a field that is divided among ranks, with one row more at each end:
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

    /// Starts what [`exchange`](Self::exchange) does.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    pub fn start_exchange<'a, 'd, T: Element>(
        &'a mut self,
        sends: &'a mut [Outgoing<'d, T>],
        recvs: &'a mut [Incoming<'d, T>],
        plan: &Plan,
    ) -> Result<Exchange<'a, 'd, X, T>, Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        check_plan(plan, OpCode::None, T::DTYPE)?;
        rounding::refuse(&plan.for_values(T::DTYPE))?;
        let size = self.size();
        let peers = sends.iter().map(|send| send.to).chain(recvs.iter().map(|recv| recv.from));
        if let Some(rank) = peers.into_iter().find(|rank| rank.index() >= size) {
            return Err(Error::Peer { rank, size });
        }
        for send in sends.iter() {
            send.rows.check(Buffer::Send, send.data.len())?;
        }
        for recv in recvs.iter() {
            recv.rows.check(Buffer::Recv, recv.data.len())?;
        }
        let mut report = Report::default();
        for send in sends.iter_mut() {
            let budget = self.prepare_message(send, plan)?;
            let bound = report.bound.max(budget.bound);
            (report.bound, report.worst_case) = (bound, Some(bound));
            if report.codec == CodecId::Raw {
                report.codec = send.codec.as_dyn().id();
            }
        }
        recvs.iter_mut().for_each(|recv| recv.cursor = Cursor::default());
        copy_to_itself(self.rank(), sends, recvs)?;
        self.use_lanes()?;
        for recv in recvs.iter().filter(|recv| !recv.cursor.is_done) {
            self.transport.expect(recv.from, TAG);
        }
        let now = self.transport.now();
        let deadline = self.config.deadline.map(|left| now.saturating_add(left));
        let limits = Limits { stall: self.config.timeout, deadline };
        let (started, wait, is_over) = (now, Wait::default(), false);
        Ok(Exchange { comm: self, sends, recvs, report, limits, started, wait, is_over })
    }

    /// Chooses codec and segments of a message.
    fn prepare_message<T: Element>(
        &self,
        send: &mut Outgoing<'_, T>,
        plan: &Plan,
    ) -> Result<Budget, Error> {
        let count = send.rows.n_values();
        let is_short = count * T::BYTES < plan.exact_below;
        let plan = if is_short { plan.exactly() } else { plan.for_values(T::DTYPE) };
        let call = Call::new(Collective::AllToAll, 2, Rank(0));
        let (shares, window) = (Shares::Even(count), Window::Own);
        let (op, dtype, lanes) = (OpCode::None, T::DTYPE, 1);
        let terms = Terms {
            schedule: &Linear,
            call,
            op,
            plan,
            choice: None,
            asks: false,
            dtype,
            lanes,
            shortest: 1,
            shares,
            window,
            rounds_first: false,
        };
        let look = |sampled| send.look(self.config.level, sampled);
        let extent = if plan.needs_extent() {
            look(plan.samples(count)).or_else(|| look(false)).flatten()
        } else {
            None
        };
        // Receivers know the bound by the lattice's spacing alone.
        let extent = extent.map(|extent| Extent { grid: 0.0, increment: 0.0, ..extent });
        let budget = resolve(&terms, extent)?;
        send.cursor = Cursor::default();
        send.quantum = budget.quantum;
        let own = send.rows.together(&(0..count)).map_or(&[][..], |run| &send.data[run]);
        send.codec = self.codec(&terms, budget.quantum, own);
        let segment = max_segment(send.codec.as_dyn(), self.transport.frame_capacity(), 1)?;
        send.segment = if segment > CHUNK { segment / CHUNK * CHUNK } else { segment };
        Ok(budget)
    }

    /// What all messages of this rank's say.
    fn of_message<T: Element>(&self) -> CallHeader {
        let none = CallHeader::of_no_call(self.context, self.epoch);
        CallHeader { dtype: T::DTYPE, ..none }
    }
}

/// Copies what a rank sends to itself.
fn copy_to_itself<T: Element>(
    own: Rank,
    sends: &mut [Outgoing<'_, T>],
    recvs: &mut [Incoming<'_, T>],
) -> Result<(), Error> {
    for send in sends.iter_mut().filter(|send| send.to == own) {
        let is_its = |recv: &&mut Incoming<'_, T>| {
            recv.from == own && recv.tag == send.tag && !recv.cursor.is_done
        };
        let recv = recvs.iter_mut().find(is_its).ok_or(Error::ToItself { tag: send.tag })?;
        let [need, have] = [send.rows, recv.rows].map(|rows| rows.n_values());
        if need != have {
            return Err(Error::Length { buffer: Buffer::Recv, need, have });
        }
        let sent = send.rows.runs(0..need).flat_map(|run| &send.data[run]);
        let places = recv.rows.runs(0..need).flatten();
        places.zip(sent).for_each(|(place, value)| recv.data[place] = *value);
        (recv.cursor.is_done, send.cursor.is_done) = (true, true);
    }
    let left = recvs.iter().find(|recv| recv.from == own && !recv.cursor.is_done);
    left.map_or(Ok(()), |recv| Err(Error::ToItself { tag: recv.tag }))
}

/// Sends and receives under way.
///
/// Drive it with [`poll`](Self::poll), [`wait`](Self::wait), or `.await` it. Dropping it unfinished
/// ends the communicator on all ranks, as with an [`Operation`](crate::Operation).
#[must_use = "nothing moves unless the exchange is polled or waited for"]
pub struct Exchange<'a, 'd, X: Transport, T: Element> {
    comm: &'a mut Communicator<X>,
    sends: &'a mut [Outgoing<'d, T>],
    recvs: &'a mut [Incoming<'d, T>],
    report: Report,
    limits: Limits,
    started: Duration,
    wait: Wait,
    /// Its result has been returned.
    is_over: bool,
}

impl<X: Transport, T: Element> Exchange<'_, '_, X, T> {
    /// As [`Operation::with_timeout`](crate::Operation::with_timeout).
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.limits.stall = timeout;
        self
    }

    /// As [`Operation::with_deadline`](crate::Operation::with_deadline).
    pub fn with_deadline(mut self, left: Duration) -> Self {
        self.limits.deadline = Some(self.comm.transport.now().saturating_add(left));
        self
    }

    /// Gives it up: the other ranks get [`Error::Aborted`] in their next call, and the communicator
    /// is poisoned. Dropping it unfinished does the same.
    pub fn cancel(self) {
        drop(self);
    }

    /// Advances each message by at most one segment.
    ///
    /// # Errors
    /// [`Error`]; the communicator is then unusable, here and on all other ranks.
    /// [`Error::Finished`] once the result has been returned.
    pub fn poll(&mut self) -> Poll<Result<Report, Error>> {
        match self.advance() {
            Ok(Step::Moved | Step::Waiting) => Poll::Pending,
            Ok(Step::Finished(report)) => Poll::Ready(Ok(report)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Drives it to its end.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<Report, Error> {
        loop {
            match self.advance()? {
                Step::Finished(report) => return Ok(report),
                Step::Moved => {}
                Step::Waiting => self.idle(),
            }
        }
    }

    /// Rests until something comes, or until it is time to look.
    fn idle(&mut self) {
        let (stall, transport) = (self.limits.stall, &mut self.comm.transport);
        let rest = rest_after(&self.wait, stall);
        let left = self.limits.deadline.map(|at| at.saturating_sub(transport.now()));
        transport.idle(left.map_or(rest, |left| left.min(rest)));
    }

    fn advance(&mut self) -> Result<Step, Error> {
        if self.is_over {
            return Err(Error::Finished);
        }
        let result = self.try_advance();
        match &result {
            Err(error) => self.give_up(Some(error)),
            Ok(Step::Finished(_)) => self.is_over = true,
            Ok(_) => {}
        }
        result
    }
}

impl<X: Transport, T: Element> Drop for Exchange<'_, '_, X, T> {
    fn drop(&mut self) {
        self.give_up(None);
    }
}

/// Nothing in an exchange is ever pinned, whatever its elements and frames are.
impl<X: Transport, T: Element> Unpin for Exchange<'_, '_, X, T> {}

impl<X: Transport, T: Element> Future for Exchange<'_, '_, X, T> {
    type Output = Result<Report, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut pass = self.advance();
        if let Ok(Step::Waiting) = pass
            && self.comm.transport.register(context.waker())
        {
            // What came before it was registered is found now.
            pass = self.advance();
            if let Ok(Step::Waiting) = pass {
                return Poll::Pending;
            }
        }
        match pass {
            Ok(Step::Moved | Step::Waiting) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Step::Finished(report)) => Poll::Ready(Ok(report)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<X: Transport, T: Element> fmt::Debug for Exchange<'_, '_, X, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sends, {} receives", self.sends.len(), self.recvs.len())
    }
}
