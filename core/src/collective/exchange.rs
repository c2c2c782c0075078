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

use super::operation::Step;
use super::{Communicator, Terms, survey};
use crate::bound::Quantum;
use crate::budget::{Budget, check_bound, resolve};
use crate::codec::{AnyCodec, CodecParams, Raw};
use crate::element::Element;
use crate::engine::{
    Content, LAST_WORDS, Limits, Message, check_fields, check_source, rest_after, tell,
    transport_error,
};
use crate::error::{Buffer, Error, Field, Reason, Value};
use crate::frame::{CallHeader, FrameError, HEADER_BYTES, Header, Kind, MESSAGE};
use crate::kernel::CHUNK;
use crate::layout::{Shares, Window, max_segment};
use crate::op::OpCode;
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::{Call, Collective, Linear};
use crate::transport::{MAX_LANES, Rank, Tag, Transport, TransportErrorKind};
use crate::wait::Wait;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use heapless::Vec;

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
    cursor: Cursor,
    codec: AnyCodec<T>,
    quantum: Quantum,
    /// Values of a segment.
    segment: usize,
}

impl<'d, T: Element> Outgoing<'d, T> {
    /// These values to `to`.
    #[must_use]
    pub const fn new(to: Rank, tag: u32, data: &'d [T]) -> Self {
        let (codec, quantum) = (AnyCodec::Raw(Raw::new()), Quantum::LOSSLESS);
        let cursor = Cursor { n_values: 0, n_segments: 0, is_done: false };
        Self { to, tag, data, cursor, codec, quantum, segment: CHUNK }
    }
}

/// Room for an array that a rank sends with this tag, of exactly this length.
#[derive(Debug)]
pub struct Incoming<'d, T: Element> {
    from: Rank,
    tag: u32,
    data: &'d mut [T],
    cursor: Cursor,
}

impl<'d, T: Element> Incoming<'d, T> {
    /// What `from` sends goes here.
    #[must_use]
    pub const fn new(from: Rank, tag: u32, data: &'d mut [T]) -> Self {
        let cursor = Cursor { n_values: 0, n_segments: 0, is_done: false };
        Self { from, tag, data, cursor }
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
        check_bound(plan, OpCode::None)?;
        let size = self.size();
        let peers = sends.iter().map(|send| send.to).chain(recvs.iter().map(|recv| recv.from));
        if let Some(rank) = peers.into_iter().find(|rank| rank.index() >= size) {
            return Err(Error::Peer { rank, size });
        }
        let mut report = Report::default();
        for send in sends.iter_mut() {
            let budget = self.prepare_message(send, plan)?;
            let bound = report.bound.max(budget.bound);
            (report.bound, report.worst_case) = (bound, Some(bound));
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
        let data = send.data;
        let is_short = size_of_val(data) < plan.exact_below;
        let plan = if is_short { plan.exactly() } else { *plan };
        let call = Call::new(Collective::AllToAll, 2, Rank(0));
        let (shares, window) = (Shares::Even(data.len()), Window::Own);
        let (op, dtype, lanes) = (OpCode::None, T::DTYPE, 1);
        let terms = Terms { schedule: &Linear, call, op, plan, dtype, lanes, shares, window };
        let look =
            |sampled| survey::conclude(survey::look(data, self.config.level, sampled), sampled);
        let extent = if plan.needs_extent() {
            look(plan.samples(data.len())).or_else(|| look(false)).flatten()
        } else {
            None
        };
        let budget = resolve::<T>(&terms, extent)?;
        send.cursor = Cursor::default();
        send.quantum = budget.quantum;
        send.codec = self.codec(&terms, budget.quantum);
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
        if recv.data.len() != send.data.len() {
            return Err(Error::Length {
                buffer: Buffer::Recv,
                need: send.data.len(),
                have: recv.data.len(),
            });
        }
        recv.data.copy_from_slice(send.data);
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

    fn try_advance(&mut self) -> Result<Step, Error> {
        let ours = self.ours();
        self.comm.transport.progress().map_err(transport_error)?;
        let moved = match self.move_all() {
            Err(
                error @ Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(peer) },
            ) => {
                let Communicator { transport, notices, .. } = &mut *self.comm;
                return Err(match notices.last_words(transport, &ours, peer) {
                    Poll::Ready(Some(told)) => told,
                    _ => error,
                });
            }
            moved => moved?,
        };
        let is_done = self.sends.iter().all(|send| send.cursor.is_done)
            && self.recvs.iter().all(|recv| recv.cursor.is_done);
        let transport = &mut self.comm.transport;
        let undelivered = if is_done { transport.undelivered() } else { None };
        if is_done && undelivered.is_none() {
            self.report.total = transport.now().saturating_sub(self.started);
            return Ok(Step::Finished(self.report));
        }
        let now = transport.now();
        let (rank, step) = self.blamed(undelivered);
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(Error::Deadline { rank, step });
        }
        if moved {
            self.wait = Wait::default();
            return Ok(Step::Moved);
        }
        let awaited: Vec<Rank, N_AWAITED> = self.awaited().take(N_AWAITED).collect();
        let Communicator { transport, notices, .. } = &mut *self.comm;
        if notices.listen(transport, &ours, &awaited)? {
            return Ok(Step::Moved);
        }
        let stall = self.limits.stall;
        let waited = self.wait.look(now, stall);
        if waited < stall - stall / 8 {
            notices.listen_in_turn(transport, &ours)?;
        }
        if waited > stall {
            return Err(Error::Stalled { rank, step });
        }
        // Who waits for this rank in a collective call sends nothing before it makes that. What was
        // sent earlier may still be on its way, though.
        let is_awaited =
            |rank: &Rank| self.recvs.iter().any(|recv| recv.from == *rank && !recv.cursor.is_done);
        match notices.asked_by().filter(is_awaited) {
            Some(rank) if waited > LAST_WORDS.min(stall / 2) => {
                let [ours, theirs] =
                    ["message", "collective call"].map(|word| Value::word(MESSAGE, word));
                Err(Error::Mismatch { rank, field: Field::Collective, ours, theirs })
            }
            _ => Ok(Step::Waiting),
        }
    }

    /// What notices are compared with, and what the others are told of: the next call, which this
    /// rank will not make.
    fn ours(&self) -> CallHeader {
        let sequence = self.comm.sequence.wrapping_add(1);
        CallHeader { sequence, ..self.comm.of_message::<T>() }
    }

    /// The ranks that are waited for: what they send first.
    fn awaited(&self) -> impl Iterator<Item = Rank> {
        let recvs = self.recvs.iter().filter(|recv| !recv.cursor.is_done).map(|recv| recv.from);
        let sends = self.sends.iter().filter(|send| !send.cursor.is_done).map(|send| send.to);
        recvs.chain(sends)
    }

    /// The rank that an error of time names, and the segment.
    fn blamed(&self, undelivered: Option<Rank>) -> (Rank, usize) {
        let rank = self.awaited().next().or(undelivered).unwrap_or(self.comm.rank());
        let recv = self.recvs.iter().find(|recv| !recv.cursor.is_done);
        (rank, recv.map_or(0, |recv| recv.cursor.n_segments as usize))
    }

    /// Moves each message as far as it goes at once. Whether one moved.
    fn move_all(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        for index in 0..self.sends.len() {
            let (before, [send, ..]) = self.sends.split_at(index) else { continue };
            // Messages to a rank leave one after the other.
            let waits = |other: &Outgoing<'_, T>| other.to == send.to && !other.cursor.is_done;
            if !send.cursor.is_done && !before.iter().any(waits) {
                moved |= self.send_segment(index)?;
            }
        }
        for index in 0..self.recvs.len() {
            let (before, [recv, ..]) = self.recvs.split_at(index) else { continue };
            let is_asked =
                |other: &Incoming<'_, T>| other.from == recv.from && !other.cursor.is_done;
            if !recv.cursor.is_done && !before.iter().any(is_asked) {
                moved |= self.receive_segment(recv.from)?;
            }
        }
        Ok(moved)
    }

    /// Sends a message's next segment, if there is room.
    fn send_segment(&mut self, index: usize) -> Result<bool, Error> {
        let (call, checksum) = (self.comm.of_message::<T>(), self.comm.checksum());
        let (from, transport) = (self.comm.rank(), &mut self.comm.transport);
        let send = &mut self.sends[index];
        if transport.poll_ready(send.to, TAG).map_err(transport_error)?.is_pending() {
            return Ok(false);
        }
        let Poll::Ready(mut frame) = transport.poll_frame().map_err(transport_error)? else {
            return Ok(false);
        };
        let Cursor { n_values: start, n_segments, .. } = send.cursor;
        let values = &send.data[start..send.data.len().min(start + send.segment)];
        let (codec, begun) = (send.codec.as_dyn(), transport.now());
        let room = frame.as_mut().get_mut(HEADER_BYTES..).unwrap_or_default();
        let written = match codec.encode(values, room) {
            Ok(written) => written,
            Err(error) => {
                transport.recycle(frame);
                return Err(error.into());
            }
        };
        let header = Header {
            kind: Kind::Message,
            call: CallHeader {
                codec: codec.id(),
                count: send.data.len() as u64,
                step: send.quantum.step(),
                // No other rank takes it for its own.
                root: send.to.0,
                ..call
            },
            as_floats: false,
            from,
            part: send.tag,
            round: n_segments,
            n_values: values.len() as u32,
            n_bytes: written.n_bytes as u32,
            operands: 1,
        };
        header.emit(frame.as_mut(), checksum);
        let encode = transport.now().saturating_sub(begun);
        let n_bytes = HEADER_BYTES + written.n_bytes;
        transport.send(send.to, TAG, frame, n_bytes).map_err(transport_error)?;
        send.cursor.advance(values.len(), send.data.len());
        let report = &mut self.report;
        report.encode = report.encode.saturating_add(encode);
        report.blocks += written.blocks;
        report.raw_bytes += size_of_val(values) as u64;
        report.wire_bytes += n_bytes as u64;
        report.n_messages += 1;
        Ok(true)
    }

    /// Takes the next segment of what a rank sends, if it is there.
    fn receive_segment(&mut self, from: Rank) -> Result<bool, Error> {
        let received = self.comm.transport.poll_recv(from, TAG).map_err(transport_error)?;
        let Poll::Ready((frame, n_bytes)) = received else { return Ok(false) };
        let misuse = Error::Transport { kind: TransportErrorKind::Misuse, peer: None };
        let taken = match frame.as_ref().get(..n_bytes) {
            Some(message) => self.take(from, message),
            None => Err(misuse),
        };
        self.comm.transport.recycle(frame);
        taken?;
        if self.recvs.iter().any(|recv| recv.from == from && !recv.cursor.is_done) {
            self.comm.transport.expect(from, TAG);
        }
        Ok(true)
    }

    /// Checks a segment, and decodes it into its place.
    fn take(&mut self, rank: Rank, message: &[u8]) -> Result<(), Error> {
        let damaged = Error::Frame { rank, error: FrameError::Damaged };
        let header = Header::parse(message, self.comm.checksum())
            .map_err(|error| Error::Frame { rank, error })?;
        let theirs = header.call;
        match header.kind {
            Kind::Message => {}
            Kind::Data => {
                let [ours, theirs] = [("message", MESSAGE), (theirs.collective.name(), 0)]
                    .map(|(word, number)| Value::word(number, word));
                return Err(Error::Mismatch { rank, field: Field::Collective, ours, theirs });
            }
            Kind::View | Kind::Fence => {
                return Err(Error::Aborted { rank, culprit: rank, reason: Reason::Left });
            }
            Kind::Abort | Kind::Call => return Err(damaged),
        }
        check_source(rank, &header)?;
        // What a sender may choose, and what else a message of its type says.
        let chosen = CallHeader {
            codec: theirs.codec,
            count: theirs.count,
            step: theirs.step,
            root: self.comm.rank().0,
            ..self.comm.of_message::<T>()
        };
        chosen.mismatch(rank, &theirs).map_or(Ok(()), Err)?;
        let is_sound = theirs.step.is_finite() && theirs.step >= 0.0 && header.operands == 1;
        if !is_sound || header.as_floats {
            return Err(damaged);
        }
        // The one under way, or else any that it may be.
        let open = |recv: &Incoming<'_, T>| recv.from == rank && !recv.cursor.is_done;
        let under_way = self.recvs.iter().position(|recv| open(recv) && recv.cursor.is_under_way());
        let of_tag = || self.recvs.iter().position(|recv| open(recv) && recv.tag == header.part);
        let Some(index) = under_way.or_else(of_tag) else {
            let ours = self.recvs.iter().find(|recv| open(recv)).map_or(0, |recv| recv.tag);
            let tags = (Field::Tag, ours.into(), header.part.into());
            return check_fields(rank, &[tags]).and(Err(damaged));
        };
        let recv = &mut self.recvs[index];
        let (count, cursor) = (recv.data.len(), &mut recv.cursor);
        let (n_left, n_values) = (count - cursor.n_values, header.n_values as usize);
        let is_wrong = n_values > n_left || n_values == 0 && n_left > 0;
        let possible = if is_wrong { n_left } else { n_values };
        check_fields(
            rank,
            &[
                (Field::Tag, recv.tag.into(), header.part.into()),
                (Field::Count, count as u64, theirs.count),
                (Field::Round, cursor.n_segments.into(), header.round.into()),
                (Field::Segment, possible as u64, n_values as u64),
            ],
        )?;
        let (quantum, level) = (Quantum::LOSSLESS, self.comm.config.level);
        let params = CodecParams { quantum, max_operands: 1, averages: false, level };
        let codec = theirs.codec.instance::<T>(&params);
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let begun = self.comm.transport.now();
        codec.as_dyn().expect_values(payload, n_values)?;
        let place = &mut recv.data[cursor.n_values..cursor.n_values + n_values];
        codec.as_dyn().decode(payload, 1, place)?;
        cursor.advance(n_values, count);
        let decode = self.comm.transport.now().saturating_sub(begun);
        let report = &mut self.report;
        report.decode = report.decode.saturating_add(decode);
        let bound = report.bound.max(Quantum::bound_of_step(theirs.step));
        (report.bound, report.worst_case) = (bound, Some(bound));
        Ok(())
    }

    /// Tells the other ranks, and makes the communicator refuse further calls.
    fn give_up(&mut self, error: Option<&Error>) {
        if core::mem::replace(&mut self.is_over, true) {
            return;
        }
        let own = self.comm.rank();
        let (reason, culprit) = match error.map(|error| Reason::of(error, own)) {
            None => (Reason::Dropped, own),
            // The others make no such call, and have nothing to compare.
            Some((Reason::Mismatch(_), culprit)) => (Reason::Message, culprit),
            Some(told) => told,
        };
        let content = Content::GaveUp { reason, culprit, said: 0 };
        let notice = Message { call: self.ours(), content };
        let checksum = self.comm.checksum();
        tell(&mut self.comm.transport, &notice, checksum);
        self.comm.poisoned = true;
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
