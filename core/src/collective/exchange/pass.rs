//! One pass over an exchange: what moves, and what is heard meanwhile.

use super::{Communicator, Exchange, Incoming, N_AWAITED, Outgoing, TAG, Way};
use crate::advance::Step;
use crate::element::Element;
use crate::engine::{Loss, check_fields, transport_error};
use crate::error::{Error, Field, Value};
use crate::frame::{FrameError, MESSAGE};
use crate::report::Report;
use crate::transport::{Rank, Transport};
use crate::wait::Wait;
use core::mem;
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;

/// A message that is so long behind its sender's next call, or half the time limit, will not come.
const TOO_LATE: Duration = Duration::from_secs(150);

impl<X: Transport, T: Element> Exchange<'_, '_, X, T> {
    pub(super) fn try_advance(&mut self) -> Result<Step<Report>, Error> {
        let ours = self.comm.beside_messages::<T>();
        if let Some(loss) = self.lost {
            // That the network as a whole fails is no news.
            let _ = self.comm.transport.progress();
            let Communicator { transport, notices, .. } = &mut *self.comm;
            loss.explain(transport, notices, &ours, self.limits, true)?;
            return Ok(Step::Waiting);
        }
        self.comm.transport.progress().map_err(transport_error)?;
        let moved = match self.move_all() {
            Ok(moved) => moved,
            Err(error) => {
                self.lost = Some(Loss::of(error, self.comm.transport.now())?);
                return Ok(Step::Moved);
            }
        };
        let is_done = self.sends.iter().all(|send| send.message.cursor.is_done)
            && self.recvs.iter().all(|recv| recv.message.cursor.is_done);
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
        let is_awaited = |rank: &Rank| self.recvs.iter().any(|recv| is_open(recv, *rank));
        match notices.asked_by().filter(is_awaited) {
            Some(rank) if waited > TOO_LATE.min(stall / 2) => {
                let [ours, theirs] =
                    ["message", "collective call"].map(|word| Value::word(MESSAGE, word));
                Err(Error::Mismatch { rank, field: Field::Collective, ours, theirs })
            }
            _ => Ok(Step::Waiting),
        }
    }

    /// The ranks that are waited for: what they send first.
    fn awaited(&self) -> impl Iterator<Item = Rank> {
        let recvs = self.recvs.iter().map(|recv| &recv.message);
        let recvs = recvs.filter(|recv| !recv.cursor.is_done).map(|recv| recv.from);
        let sends = self.sends.iter().map(|send| &send.message);
        recvs.chain(sends.filter(|send| !send.cursor.is_done).map(|send| send.to))
    }

    /// The rank that an error of time names, and the segment.
    fn blamed(&self, undelivered: Option<Rank>) -> (Rank, usize) {
        let rank = self.awaited().next().or(undelivered).unwrap_or(self.comm.rank());
        let cursors = self.recvs.iter().map(|recv| recv.message.cursor);
        let recv = cursors.into_iter().find(|cursor| !cursor.is_done);
        (rank, recv.map_or(0, |cursor| cursor.n_segments as usize))
    }

    /// Moves each message as far as it goes at once. Whether one moved.
    fn move_all(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        for index in 0..self.sends.len() {
            let (before, [Outgoing { message: send, .. }, ..]) = self.sends.split_at(index) else {
                continue;
            };
            // Messages to a rank leave one after the other.
            let waits =
                |Outgoing { message, .. }: &_| message.to == send.to && !message.cursor.is_done;
            if !send.cursor.is_done && !before.iter().any(waits) {
                self.look_after(moved);
                let Outgoing { data, message } = &mut self.sends[index];
                let way = Way { tag: TAG, number: 0 };
                moved |= self.comm.send_segment(way, message, data, &mut self.report)?;
            }
        }
        for index in 0..self.recvs.len() {
            let (before, [Incoming { message: recv, .. }, ..]) = self.recvs.split_at(index) else {
                continue;
            };
            let from = recv.from;
            if !recv.cursor.is_done && !before.iter().any(|other| is_open(other, from)) {
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

    /// Takes the next segment of what a rank sends, if it is there.
    fn receive_segment(&mut self, from: Rank) -> Result<bool, Error> {
        let Self { comm, recvs, report, .. } = self;
        let mut scratch = None;
        if recvs.iter().any(|recv| is_open(recv, from) && recv.message.is_apart()) {
            let Poll::Ready(frame) = comm.transport.poll_frame().map_err(transport_error)? else {
                return Ok(false);
            };
            scratch = Some(frame);
        }
        let taken = comm.take_frame(from, TAG, |comm, message| {
            let room = scratch.as_mut().map(AsMut::as_mut).unwrap_or_default();
            take(comm, recvs, from, message, room, report)
        });
        scratch.into_iter().for_each(|frame| comm.transport.recycle(frame));
        if taken?.is_none() {
            return Ok(false);
        }
        if recvs.iter().any(|recv| is_open(recv, from)) {
            comm.transport.expect(from, TAG);
        }
        Ok(true)
    }

    /// Tells the other ranks, and makes the communicator refuse further calls.
    pub(super) fn give_up(&mut self, error: Option<&Error>) {
        if !mem::replace(&mut self.is_over, true) {
            self.comm.give_messages_up::<T>(error, false);
        }
    }
}

/// Whether more of a message is to come from a rank.
fn is_open<T: Element>(recv: &Incoming<'_, T>, from: Rank) -> bool {
    recv.message.from == from && !recv.message.cursor.is_done
}

/// Takes a segment of the message under way, or else of any that it may be of.
fn take<X: Transport, T: Element>(
    comm: &mut Communicator<X>,
    recvs: &mut [Incoming<'_, T>],
    rank: Rank,
    message: &[u8],
    scratch: &mut [u8],
    report: &mut Report,
) -> Result<(), Error> {
    let header = comm.read_message(rank, message)?;
    comm.check_message::<T>(rank, 0, &header)?;
    let open = |recv: &Incoming<'_, T>| is_open(recv, rank);
    let is_begun = |recv: &Incoming<'_, T>| open(recv) && recv.message.cursor.is_under_way();
    let of_tag = |recv: &Incoming<'_, T>| open(recv) && recv.message.tag == header.part;
    let under_way = recvs.iter().position(is_begun);
    let Some(index) = under_way.or_else(|| recvs.iter().position(of_tag)) else {
        let ours = recvs.iter().find(|recv| open(recv)).map_or(0, |recv| recv.message.tag);
        let tags = (Field::Tag, ours.into(), header.part.into());
        let damaged = Error::Frame { rank, error: FrameError::Damaged };
        return check_fields(rank, &[tags]).and(Err(damaged));
    };
    let Incoming { data, message: recv } = &mut recvs[index];
    comm.take_segment(recv, data, (&header, message), scratch, report)
}
