//! One pass over an exchange: what moves, what is heard meanwhile, and how a message is sent,
//! checked and taken.

use super::super::operation::Step;
use super::{Communicator, Cursor, Exchange, Incoming, N_AWAITED, Outgoing, TAG};
use crate::bound::Quantum;
use crate::codec::{CodecParams, Stores};
use crate::element::Element;
use crate::engine::{
    Content, Looks, Message, check_fields, check_source, floats_mut, misuse, tell, transport_error,
};
use crate::error::{Error, Field, Reason, Value};
use crate::frame::{CallHeader, FrameError, HEADER_BYTES, Header, Kind, MESSAGE};
use crate::transport::{Rank, Transport, TransportErrorKind};
use crate::wait::Wait;
use core::ops::Range;
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;

/// A message that is so long behind its sender's next call, or half the time limit, will not come.
const TOO_LATE: Duration = Duration::from_secs(150);

/// Values of these runs, one after the other in a frame.
fn gather<'f, T: Element>(
    data: &[T],
    runs: impl Iterator<Item = Range<usize>>,
    frame: &'f mut [u8],
    n_values: usize,
) -> Result<&'f [T], Error> {
    let room = floats_mut::<T>(frame.get_mut(HEADER_BYTES..).unwrap_or_default(), n_values)?;
    let mut at = 0;
    for run in runs {
        room[at..at + run.len()].copy_from_slice(&data[run.clone()]);
        at += run.len();
    }
    Ok(room)
}

impl<X: Transport, T: Element> Exchange<'_, '_, X, T> {
    pub(super) fn try_advance(&mut self) -> Result<Step, Error> {
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
            Some(rank) if waited > TOO_LATE.min(stall / 2) => {
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
                self.look_after(moved);
                moved |= self.send_segment(index)?;
            }
        }
        for index in 0..self.recvs.len() {
            let (before, [recv, ..]) = self.recvs.split_at(index) else { continue };
            let is_asked =
                |other: &Incoming<'_, T>| other.from == recv.from && !other.cursor.is_done;
            if !recv.cursor.is_done && !before.iter().any(is_asked) {
                let from = recv.from;
                self.look_after(moved);
                moved |= self.receive_segment(from)?;
            }
        }
        Ok(moved)
    }

    /// Looks at the network if a message has moved since it was last looked at: what its codec
    /// passed is not counted in the next one's.
    fn look_after(&mut self, moved: bool) {
        if moved {
            self.comm.transport.nudge();
        }
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
        let count = send.rows.n_values();
        let values = start..count.min(start + send.segment);
        let (n_values, together) = (values.len(), send.rows.together(&values));
        let mut scratch = None;
        if together.is_none() {
            let Poll::Ready(Ok(second)) = transport.poll_frame() else {
                // Whatever is the matter, the next pass finds it with the first.
                transport.recycle(frame);
                return Ok(false);
            };
            scratch = Some(second);
        }
        let (codec, begun) = (send.codec.as_dyn(), transport.now());
        let room = frame.as_mut().get_mut(HEADER_BYTES..).unwrap_or_default();
        let looks = Looks::on(transport);
        let encode = |values: &[T], room: &mut [u8]| {
            codec.encode_paced(values, room, &looks).map_err(Error::from)
        };
        let written = match (together, &mut scratch) {
            (Some(run), _) => encode(&send.data[run], room),
            (None, Some(scratch)) => {
                gather(send.data, send.rows.runs(values), scratch.as_mut(), n_values)
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
        let header = Header {
            kind: Kind::Message,
            call: CallHeader {
                codec: codec.id(),
                count: count as u64,
                step: send.quantum.step(),
                // No other rank takes it for its own.
                root: send.to.0,
                ..call
            },
            as_floats: false,
            from,
            part: send.tag,
            round: n_segments,
            n_values: n_values as u32,
            n_bytes: written.n_bytes as u32,
            operands: 1,
        };
        header.emit(frame.as_mut(), checksum);
        let encode = transport.now().saturating_sub(begun);
        let n_bytes = HEADER_BYTES + written.n_bytes;
        transport.send(send.to, TAG, frame, n_bytes).map_err(transport_error)?;
        send.cursor.advance(n_values, count);
        let report = &mut self.report;
        report.encode = report.encode.saturating_add(encode);
        report.blocks += written.blocks;
        report.raw_bytes += (n_values * T::BYTES) as u64;
        report.wire_bytes += n_bytes as u64;
        report.n_messages += 1;
        Ok(true)
    }

    /// Takes the next segment of what a rank sends, if it is there.
    fn receive_segment(&mut self, from: Rank) -> Result<bool, Error> {
        let transport = &mut self.comm.transport;
        let is_open = |recv: &Incoming<'_, T>| recv.from == from && !recv.cursor.is_done;
        let is_apart =
            |recv: &Incoming<'_, T>| recv.rows.together(&(0..recv.rows.n_values())).is_none();
        let mut scratch = None;
        if self.recvs.iter().any(|recv| is_open(recv) && is_apart(recv)) {
            let Poll::Ready(frame) = transport.poll_frame().map_err(transport_error)? else {
                return Ok(false);
            };
            scratch = Some(frame);
        }
        let received = transport.poll_recv(from, TAG).map_err(transport_error);
        let taken = match received {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok((frame, n_bytes))) => {
                let room = scratch.as_mut().map(AsMut::as_mut).unwrap_or_default();
                let taken = match frame.as_ref().get(..n_bytes) {
                    Some(message) => self.take(from, message, room),
                    None => Err(misuse()),
                };
                self.comm.transport.recycle(frame);
                taken.map(|()| true)
            }
            Poll::Ready(Err(error)) => Err(error),
        };
        scratch.into_iter().for_each(|frame| self.comm.transport.recycle(frame));
        if !taken? {
            return Ok(false);
        }
        if self.recvs.iter().any(is_open) {
            self.comm.transport.expect(from, TAG);
        }
        Ok(true)
    }

    /// Checks a segment, and decodes it into its place: where that is several rows, by way of
    /// `scratch`, a frame.
    fn take(&mut self, rank: Rank, message: &[u8], scratch: &mut [u8]) -> Result<(), Error> {
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
        if !is_sound || header.as_floats || !theirs.codec.is_for(T::DTYPE) {
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
        let config = &self.comm.config;
        let params = CodecParams::new(Quantum::LOSSLESS).at(config.level).on(config.threads);
        let codec = theirs.codec.instance::<T>(&params);
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let begun = self.comm.transport.now();
        codec.as_dyn().expect_values(payload, n_values)?;
        let values = cursor.n_values..cursor.n_values + n_values;
        let looks = Looks::on(&mut self.comm.transport);
        let decode =
            |decoded: &mut [T]| codec.as_dyn().store(payload, 1, decoded, Stores::Cached, &looks);
        if let Some(run) = rows.together(&values) {
            decode(&mut recv.data[run])?;
        } else {
            let room = scratch.get_mut(HEADER_BYTES..).unwrap_or_default();
            let mut decoded = floats_mut::<T>(room, n_values)?;
            decode(decoded)?;
            for run in rows.runs(values) {
                let (row, rest) = decoded.split_at_mut(run.len());
                recv.data[run].copy_from_slice(row);
                decoded = rest;
            }
        }
        cursor.advance(n_values, count);
        let decode = self.comm.transport.now().saturating_sub(begun);
        let report = &mut self.report;
        report.decode = report.decode.saturating_add(decode);
        let bound = report.bound.max(Quantum::bound_of_step(theirs.step));
        (report.bound, report.worst_case) = (bound, Some(bound));
        Ok(())
    }

    /// Tells the other ranks, and makes the communicator refuse further calls.
    pub(super) fn give_up(&mut self, error: Option<&Error>) {
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
