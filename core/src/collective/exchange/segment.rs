//! Segments of messages: how they are prepared, sent, checked and received.

use super::super::{CallSpec, Communicator, value_range};
use super::Rows;
use crate::bound::{Quantum, ValueRange};
use crate::budget::{check_plan, resolve};
use crate::codec::{AnyCodec, CodecExt, CodecId, CodecParams, Loss, Sizes, Source, Stores};
use crate::element::Element;
use crate::engine::{
    NoticeBody, NoticeMessage, ProgressHook, check_fields, check_source, floats_mut, misuse, tell,
    transport_error,
};
use crate::error::{AbortReason, Error, Field, FillError, Value};
use crate::frame::{CallHeader, FrameError, HEADER_BYTES, Header, MESSAGE, MessageKind};
use crate::kernel::{CHUNK, Level};
use crate::layout::{Shares, Window, max_segment};
use crate::op::OpCode;
use crate::plan::{Overlap, Plan};
use crate::report::Report;
use crate::rounding;
use crate::schedule::{Collective, Linear, ProgramSpec};
use crate::transport::{Rank, Tag, Transport};
use core::ops::Range;
use core::task::Poll;

/// Progress of a message: the values and segments that this rank has sent or received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) n_values: usize,
    pub(crate) n_segments: u32,
    pub(crate) is_done: bool,
}

impl Cursor {
    pub(crate) const fn is_in_progress(&self) -> bool {
        self.n_segments > 0 && !self.is_done
    }

    /// Counts a segment of `n_values` values. The message has `count` values.
    const fn advance(&mut self, n_values: usize, count: usize) {
        self.n_values += n_values;
        self.n_segments += 1;
        self.is_done = self.n_values == count;
    }
}

/// A message to send, without its values.
#[derive(Debug)]
pub(crate) struct Sending<T: Element> {
    pub(crate) to: Rank,
    pub(crate) tag: u32,
    pub(crate) rows: Rows,
    pub(crate) cursor: Cursor,
    codec: AnyCodec<T>,
    quantum: Quantum,
    /// Largest number of values in the next segment.
    pub(crate) segment: usize,
}

impl<T: Element> Sending<T> {
    pub(crate) fn new(to: Rank, tag: u32, rows: Rows) -> Self {
        let (codec, quantum) = (AnyCodec::raw(), Quantum::LOSSLESS);
        Self { to, tag, rows, cursor: Cursor::default(), codec, quantum, segment: CHUNK }
    }

    /// Returns the value range of the message. `None` means that a sample does not suffice, the
    /// inner `None` that no value is finite. Rows that are not consecutive are scanned in full.
    fn scan_values(&self, data: &[T], level: Level, sampled: bool) -> Option<Option<ValueRange>> {
        let count = self.rows.n_values();
        if let Some(run) = self.rows.contiguous(&(0..count)) {
            return value_range::read_extremes(
                value_range::scan_values(&data[run], level, sampled, None),
                sampled,
            );
        }
        let rows = self
            .rows
            .runs(0..count)
            .map(|run| value_range::scan_values(&data[run], level, false, None));
        let nothing = value_range::scan_values::<T>(&[], level, false, None);
        let all = rows.fold(nothing, |a, b| core::array::from_fn(|i| a[i].max(b[i])));
        value_range::read_extremes(all, false)
    }
}

/// A message to receive, without the space for its values.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) from: Rank,
    pub(crate) tag: u32,
    pub(crate) rows: Rows,
    pub(crate) cursor: Cursor,
}

impl Receiving {
    pub(crate) const fn new(from: Rank, tag: u32, rows: Rows) -> Self {
        let cursor = Cursor { n_values: 0, n_segments: 0, is_done: false };
        Self { from, tag, rows, cursor }
    }

    /// Resets the progress, so that the next segment is the first one.
    pub(crate) const fn rewind(&mut self) {
        self.cursor = Cursor { n_values: 0, n_segments: 0, is_done: false };
    }

    /// Returns whether the values are not consecutive. They are then decoded into a frame first.
    pub(crate) fn is_strided(&self) -> bool {
        self.rows.contiguous(&(0..self.rows.n_values())).is_none()
    }
}

/// Tag and message number of a segment's frame. They depend on whether messages share a channel
/// with calls or have their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentLabel {
    /// Tag of the frame.
    pub(crate) tag: Tag,
    /// Number of the message; 0 if messages have no numbers.
    pub(crate) number: u32,
}

/// Copies the values of these runs into a frame, one after the other.
fn gather<'f, T: Element>(
    data: &[T],
    runs: impl Iterator<Item = Range<usize>>,
    frame: &'f mut [u8],
    n_values: usize,
) -> Result<&'f [T], Error> {
    let gathered = floats_mut::<T>(frame.get_mut(HEADER_BYTES..).unwrap_or_default(), n_values)?;
    let mut at = 0;
    for run in runs {
        gathered[at..at + run.len()].copy_from_slice(&data[run.clone()]);
        at += run.len();
    }
    Ok(gathered)
}

impl<X: Transport> Communicator<X> {
    /// Checks that messages with this plan and these ranks are possible.
    pub(crate) fn check_messages<T: Element>(
        &self,
        peers: impl IntoIterator<Item = Rank>,
        plan: &Plan,
    ) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        check_plan(plan, OpCode::None, T::DTYPE)?;
        if plan.fill.is_some() {
            return Err(FillError::Message.into());
        }
        rounding::refuse(&plan.for_values(T::DTYPE))?;
        let size = self.size();
        match peers.into_iter().find(|rank| rank.index() >= size) {
            Some(rank) => Err(Error::Peer { rank, size }),
            None => Ok(()),
        }
    }

    /// Chooses the codec and the segments of a message, and records its bound in `report`.
    pub(crate) fn prepare_message<T: Element>(
        &self,
        send: &mut Sending<T>,
        data: &[T],
        plan: &Plan,
        report: &mut Report,
    ) -> Result<(), Error> {
        let count = send.rows.n_values();
        let is_short = count * T::BYTES < plan.exact_below;
        let plan = if is_short { plan.exactly() } else { plan.for_values(T::DTYPE) };
        let plan = self.with_scan(plan);
        let call = ProgramSpec::new(Collective::AllToAll, 2, Rank(0));
        let (shares, window) = (Shares::Even(count), Window::Own);
        let (op, dtype, lanes) = (OpCode::None, T::DTYPE, 1);
        let spec = CallSpec {
            schedule: &Linear,
            call,
            op,
            plan,
            choice: None,
            needs_samples: false,
            dtype,
            lanes,
            shortest: 1,
            shares,
            window,
            rounds_first: false,
            is_searched: false,
        };
        let scan = |sampled| send.scan_values(data, self.config.level, sampled);
        let value_range = if plan.needs_value_range() {
            scan(plan.samples(count)).or_else(|| scan(false)).flatten()
        } else {
            None
        };
        // Do not adapt the lattice to a grid of the values: receivers derive the bound from the
        // spacing of the lattice alone.
        let value_range =
            value_range.map(|value_range| ValueRange { grid: 0.0, increment: 0.0, ..value_range });
        let budget = resolve(&spec, value_range)?;
        send.cursor = Cursor::default();
        send.quantum = budget.quantum;
        let searched = send.rows.contiguous(&(0..count)).map_or(&[][..], |run| &data[run]);
        let mut params = self.params(&spec, budget.quantum);
        if spec.finds_shape_in(searched.len()) {
            params = params.with_shape_of(searched);
        }
        send.codec = spec.plan.codec.instance(&params);
        let codec = Sizes::new(spec.plan.codec, spec.dtype, params);
        let segment = max_segment(&codec, self.transport.frame_capacity(), 1)?;
        send.segment = if segment > CHUNK { segment / CHUNK * CHUNK } else { segment };
        report.add_message(budget.bound);
        let range = value_range.filter(|_| plan.may_suspect_fill());
        let runs = send.rows.runs(0..count).map(|run| &data[run]);
        let suspected = value_range::suspect_fill(runs, range, budget.bound);
        if let Some(value) = suspected.filter(|_| plan.refuses_fill) {
            return Err(FillError::Suspected { value }.into());
        }
        report.suspected_fill = report.suspected_fill.or(suspected);
        if report.codec == CodecId::Raw {
            report.codec = send.codec.as_dyn().id();
        }
        Ok(())
    }

    /// Returns the header fields that all messages of this rank share.
    pub(crate) fn message_header<T: Element>(&self) -> CallHeader {
        let none = CallHeader::of_no_call(self.context, self.epoch);
        CallHeader { dtype: T::DTYPE, ..none }
    }

    /// Returns a header with the number of the next call, for notices that are sent or received
    /// while messages are in progress. Messages have no call number, and after a failed message
    /// this rank makes no further call.
    pub(crate) fn next_call_header<T: Element>(&self) -> CallHeader {
        CallHeader { sequence: self.sequence.wrapping_add(1), ..self.message_header::<T>() }
    }

    /// Returns the header of a message's next segment.
    pub(crate) fn header_of<T: Element>(&self, send: &Sending<T>, coding: SegmentLabel) -> Header {
        let call = CallHeader {
            sequence: coding.number,
            codec: send.codec.as_dyn().id(),
            count: send.rows.n_values() as u64,
            step: send.quantum.step(),
            // Names the receiver, so that no other rank accepts the segment.
            root: send.to.0,
            ..self.message_header::<T>()
        };
        Header {
            part: send.tag,
            round: send.cursor.n_segments,
            operands: 1,
            ..Header::without_values(MessageKind::Message, call, self.rank())
        }
    }

    /// Returns a frame for a message to this rank, if the link has credit and the pool has a frame.
    fn frame_to(&mut self, to: Rank, tag: Tag) -> Result<Option<X::Frame>, Error> {
        if self.transport.poll_ready(to, tag).map_err(transport_error)?.is_pending() {
            return Ok(None);
        }
        match self.transport.poll_frame().map_err(transport_error)? {
            Poll::Ready(frame) => Ok(Some(frame)),
            Poll::Pending => Ok(None),
        }
    }

    /// Sends a message without values if the link has credit and the pool has a frame. Returns
    /// whether it sent it.
    #[cfg(feature = "alloc")]
    pub(crate) fn send_header(
        &mut self,
        to: Rank,
        tag: Tag,
        header: &Header,
    ) -> Result<bool, Error> {
        let Some(mut frame) = self.frame_to(to, tag)? else { return Ok(false) };
        header.emit(frame.as_mut(), self.checksum());
        self.transport.send(to, tag, frame, HEADER_BYTES).map_err(transport_error)?;
        Ok(true)
    }

    /// Sends a message's next segment if the link has credit and the pool has the frames that it
    /// needs. Returns whether it sent one.
    pub(crate) fn send_segment<T: Element>(
        &mut self,
        coding: SegmentLabel,
        send: &mut Sending<T>,
        data: &[T],
        report: &mut Report,
    ) -> Result<bool, Error> {
        let (header, checksum) = (self.header_of(send, coding), self.checksum());
        let Some(mut frame) = self.frame_to(send.to, coding.tag)? else { return Ok(false) };
        let transport = &mut self.transport;
        let start = send.cursor.n_values;
        let count = send.rows.n_values();
        let values = start..count.min(start + send.segment);
        let (n_values, contiguous) = (values.len(), send.rows.contiguous(&values));
        let mut scratch = None;
        if contiguous.is_none() {
            let Poll::Ready(Ok(second)) = transport.poll_frame() else {
                // If the pool has failed, the next pass gets the error with its first frame.
                transport.recycle(frame);
                return Ok(false);
            };
            scratch = Some(second);
        }
        let (codec, begun) = (send.codec.as_dyn(), transport.now());
        let room = frame.as_mut().get_mut(HEADER_BYTES..).unwrap_or_default();
        let progress_hook = ProgressHook::on(transport, Overlap::Segments.values_per_poll());
        let encode = |values: &[T], room: &mut [u8]| {
            codec.encode_paced(Source::Input(values), room, &progress_hook).map_err(Error::from)
        };
        let written = match (contiguous, &mut scratch) {
            (Some(run), _) => encode(&data[run], room),
            (None, Some(scratch)) => {
                gather(data, send.rows.runs(values), scratch.as_mut(), n_values)
                    .and_then(|gathered| encode(gathered, room))
            }
            (None, None) => Err(Error::Internal),
        };
        scratch.into_iter().for_each(|frame| transport.recycle(frame));
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                transport.recycle(frame);
                return Err(error);
            }
        };
        let (n_values, n_bytes) = (n_values as u32, written.n_bytes as u32);
        Header { n_values, n_bytes, ..header }.emit(frame.as_mut(), checksum);
        let encode = transport.now().saturating_sub(begun);
        let n_bytes = HEADER_BYTES + written.n_bytes;
        transport.send(send.to, coding.tag, frame, n_bytes).map_err(transport_error)?;
        send.cursor.advance(n_values as usize, count);
        report.encode = report.encode.saturating_add(encode);
        report.blocks += written.blocks;
        report.raw_bytes += (n_values as usize * T::BYTES) as u64;
        report.wire_bytes += n_bytes as u64;
        report.n_messages += 1;
        Ok(true)
    }

    /// Calls `take` with the next frame from a rank, if one has arrived, and recycles the frame.
    pub(crate) fn take_frame<R>(
        &mut self,
        from: Rank,
        tag: Tag,
        take: impl FnOnce(&mut Self, &[u8]) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        match self.transport.poll_recv(from, tag).map_err(transport_error)? {
            Poll::Pending => Ok(None),
            Poll::Ready((frame, n_bytes)) => {
                let taken = match frame.as_ref().get(..n_bytes) {
                    Some(message) => take(self, message),
                    None => Err(misuse()),
                };
                self.transport.recycle(frame);
                taken.map(Some)
            }
        }
    }

    /// Parses a frame that should be a segment of a message. Rejects frames of all other kinds.
    /// `None` if the frame belongs to an earlier communicator on this channel.
    pub(crate) fn read_message(&self, rank: Rank, message: &[u8]) -> Result<Option<Header>, Error> {
        let damaged = Error::Frame { rank, error: FrameError::Damaged };
        let header = Header::parse(message, self.checksum())
            .map_err(|error| Error::Frame { rank, error })?;
        if header.is_left_over(&CallHeader::of_no_call(self.context, self.epoch)) {
            return Ok(None);
        }
        match header.kind {
            MessageKind::Message => {}
            MessageKind::Data => {
                let [ours, theirs] = [("message", MESSAGE), (header.call.collective.name(), 0)]
                    .map(|(word, number)| Value::word(number, word));
                return Err(Error::Mismatch { rank, field: Field::Collective, ours, theirs });
            }
            // The rank has begun to form a group of survivors.
            MessageKind::View | MessageKind::Fence => {
                return Err(Error::Aborted { rank, culprit: rank, reason: AbortReason::Left });
            }
            MessageKind::Abort | MessageKind::Call | MessageKind::Grant | MessageKind::Flush => {
                return Err(damaged);
            }
        }
        check_source(rank, &header)?;
        Ok(Some(header))
    }

    /// Checks that a segment belongs to a message to this rank, with this type and number.
    pub(crate) fn check_message<T: Element>(
        &self,
        rank: Rank,
        number: u32,
        header: &Header,
    ) -> Result<(), Error> {
        let theirs = header.call;
        // Take the fields that a sender may choose from its header, so that only the others can
        // differ.
        let expected = CallHeader {
            sequence: number,
            codec: theirs.codec,
            count: theirs.count,
            step: theirs.step,
            root: self.rank().0,
            ..self.message_header::<T>()
        };
        expected.mismatch(rank, &theirs).map_or(Ok(()), Err)?;
        let is_sound = theirs.step.is_finite() && theirs.step >= 0.0 && header.operands == 1;
        if !is_sound || header.as_floats || !theirs.codec.is_for(T::DTYPE) {
            return Err(Error::Frame { rank, error: FrameError::Damaged });
        }
        Ok(())
    }

    /// Checks that a segment is the next one of a message, and decodes it into place. If its values
    /// are not consecutive, it decodes them into the frame `scratch` first.
    pub(crate) fn take_segment<T: Element>(
        &mut self,
        recv: &mut Receiving,
        data: &mut [T],
        (header, message): (&Header, &[u8]),
        scratch: &mut [u8],
        report: &mut Report,
    ) -> Result<(), Error> {
        let (rank, theirs) = (recv.from, &header.call);
        let (rows, cursor) = (recv.rows, &mut recv.cursor);
        let count = rows.n_values();
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
        let config = &self.config;
        let params = CodecParams::new(Quantum::LOSSLESS).at(config.level).on(config.threads);
        let codec = theirs.codec.instance::<T>(&params);
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let begun = self.transport.now();
        codec.as_dyn().expect_values(payload, n_values)?;
        let values = cursor.n_values..cursor.n_values + n_values;
        let values_per_poll = Overlap::Segments.values_per_poll();
        let progress_hook = ProgressHook::on(&mut self.transport, values_per_poll);
        let decode = |decoded: &mut [T]| {
            codec.as_dyn().store(payload, 1, decoded, Stores::Cached, &progress_hook)
        };
        if let Some(run) = rows.contiguous(&values) {
            decode(&mut data[run])?;
        } else {
            let room = scratch.get_mut(HEADER_BYTES..).unwrap_or_default();
            let mut decoded = floats_mut::<T>(room, n_values)?;
            decode(decoded)?;
            for run in rows.runs(values) {
                let (row, rest) = decoded.split_at_mut(run.len());
                data[run].copy_from_slice(row);
                decoded = rest;
            }
        }
        cursor.advance(n_values, count);
        let decode = self.transport.now().saturating_sub(begun);
        report.decode = report.decode.saturating_add(decode);
        report.add_message(match theirs.codec.loss() {
            Loss::None => 0.0,
            Loss::Bound => Quantum::bound_of_step(theirs.step),
            Loss::Setting => f64::INFINITY,
        });
        Ok(())
    }

    /// Notifies the other ranks that a message failed with `error`, or was dropped, and poisons the
    /// communicator. `are_apart` is true if only messages use this channel.
    pub(crate) fn give_messages_up<T: Element>(&mut self, error: Option<&Error>, are_apart: bool) {
        let own = self.rank();
        let is_received = matches!(error, Some(Error::Aborted { .. }));
        let (reason, culprit) = match error.map(|error| AbortReason::of(error, own)) {
            None => (AbortReason::Dropped, own),
            // The fields of a mismatch mean nothing to ranks that do not take part in the message.
            // On a channel of messages, a mismatch received from another rank is forwarded
            // unchanged.
            Some((AbortReason::Mismatch(_), culprit)) if !(is_received && are_apart) => {
                (AbortReason::Message, culprit)
            }
            Some(cause) => cause,
        };
        let content = NoticeBody::GaveUp { reason, culprit, culprit_value: 0 };
        let notice = NoticeMessage { call: self.next_call_header::<T>(), content };
        let checksum = self.checksum();
        tell(&mut self.transport, &notice, Rank(0), checksum);
        self.poisoned = true;
    }
}
