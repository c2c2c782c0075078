//! One pass over an exchange: moves each message by at most one segment.

use super::driver::Messages;
use super::{Communicator, Incoming, Outgoing, SegmentLabel, TAG};
use crate::element::Element;
use crate::engine::{MAX_AWAITED, Waiter, check_fields, transport_error};
use crate::error::{Error, Field, Value};
use crate::frame::{FrameError, MESSAGE};
use crate::handle::Progress;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use crate::wait::Limits;
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;

/// Longest time to wait for a message whose sender already waits for this rank in a collective
/// call. Half the timeout also ends the wait, if that is shorter.
const LATE_AFTER: Duration = Duration::from_secs(150);

/// Sends and receives of an exchange.
pub(super) struct ExchangedMessages<'a, 'd, T: Element> {
    pub(super) sends: &'a mut [Outgoing<'d, T>],
    pub(super) recvs: &'a mut [Incoming<'d, T>],
}

impl<X: Transport, T: Element> Messages<X> for ExchangedMessages<'_, '_, T> {
    type Value = T;

    fn advance(&mut self, comm: &mut Communicator<X>, report: &mut Report) -> Result<bool, Error> {
        let mut moved = false;
        for index in 0..self.sends.len() {
            let (before, [Outgoing { message: send, .. }, ..]) = self.sends.split_at(index) else {
                continue;
            };
            // Messages to a rank leave one after the other.
            let waits =
                |Outgoing { message, .. }: &_| message.to == send.to && !message.cursor.is_done;
            if !send.cursor.is_done && !before.iter().any(waits) {
                poll_network_after(moved, comm);
                let Outgoing { data, message } = &mut self.sends[index];
                let coding = SegmentLabel { tag: TAG, number: 0 };
                moved |= comm.send_segment(coding, message, data, report)?;
            }
        }
        for index in 0..self.recvs.len() {
            let (before, [Incoming { message: recv, .. }, ..]) = self.recvs.split_at(index) else {
                continue;
            };
            let from = recv.from;
            if !recv.cursor.is_done && !before.iter().any(|other| is_open(other, from)) {
                poll_network_after(moved, comm);
                moved |= receive_segment(comm, self.recvs, from, report)?;
            }
        }
        Ok(moved)
    }

    fn is_done(&self) -> bool {
        self.sends.iter().all(|send| send.message.cursor.is_done)
            && self.recvs.iter().all(|recv| recv.message.cursor.is_done)
    }

    fn linger(&self) -> Option<Duration> {
        None
    }

    fn waiter(&self, own: Rank, undelivered: Option<Rank>) -> impl Waiter {
        MessagesWaiting { sends: self.sends, recvs: self.recvs, undelivered, own }
    }

    /// A rank that waits for this rank in a collective call sends no further message until that
    /// call ends. But an earlier message may still be in transit, so this does not fail at once.
    fn review(
        &self,
        comm: &Communicator<X>,
        settled: Result<Progress, Error>,
        waited: Duration,
        limits: Limits,
    ) -> Result<Progress, Error> {
        let step = settled?;
        let is_awaited = |rank: &Rank| self.recvs.iter().any(|recv| is_open(recv, *rank));
        match comm.notices.queried_by().filter(is_awaited) {
            Some(rank)
                if step == Progress::Waiting && waited > LATE_AFTER.min(limits.stall / 2) =>
            {
                let [ours, theirs] =
                    ["message", "collective call"].map(|word| Value::word(MESSAGE, word));
                Err(Error::Mismatch { rank, field: Field::Collective, ours, theirs })
            }
            _ => Ok(step),
        }
    }
}

/// Polls the network if a message has moved. The codec of the next message polls it only after a
/// number of values, which it counts from its own start.
fn poll_network_after<X: Transport>(moved: bool, comm: &mut Communicator<X>) {
    if moved {
        comm.transport.nudge();
    }
}

/// Takes the next segment from a rank, if it has arrived. Returns whether a frame has arrived,
/// which may be one that an earlier communicator left.
fn receive_segment<X: Transport, T: Element>(
    comm: &mut Communicator<X>,
    recvs: &mut [Incoming<'_, T>],
    from: Rank,
    report: &mut Report,
) -> Result<bool, Error> {
    let mut scratch = None;
    if recvs.iter().any(|recv| is_open(recv, from) && recv.message.is_strided()) {
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

/// Messages of an exchange while none of them moves.
struct MessagesWaiting<'e, 'd, T: Element> {
    sends: &'e [Outgoing<'d, T>],
    recvs: &'e [Incoming<'d, T>],
    /// Rank to which frames are still in transit, if all messages are done.
    undelivered: Option<Rank>,
    own: Rank,
}

impl<T: Element> MessagesWaiting<'_, '_, T> {
    /// Ranks that this rank waits for: first the senders of open receives, then the receivers of
    /// unfinished sends.
    fn all(&self) -> impl Iterator<Item = Rank> {
        let recvs = self.recvs.iter().map(|recv| &recv.message);
        let recvs = recvs.filter(|recv| !recv.cursor.is_done).map(|recv| recv.from);
        let sends = self.sends.iter().map(|send| &send.message);
        recvs.chain(sends.filter(|send| !send.cursor.is_done).map(|send| send.to))
    }
}

impl<T: Element> Waiter for MessagesWaiting<'_, '_, T> {
    fn awaited(&self) -> Vec<Rank, MAX_AWAITED> {
        self.all().take(MAX_AWAITED).collect()
    }

    /// Returns the rank to blame, and the index of the segment that the first open receive waits
    /// for, or 0 if there is none.
    fn blamed(&self) -> (Rank, usize) {
        let rank = self.all().next().or(self.undelivered).unwrap_or(self.own);
        let cursors = self.recvs.iter().map(|recv| recv.message.cursor);
        let recv = cursors.into_iter().find(|cursor| !cursor.is_done);
        (rank, recv.map_or(0, |cursor| cursor.n_segments as usize))
    }
}

/// Returns whether a rank still has to send a part of this message.
fn is_open<T: Element>(recv: &Incoming<'_, T>, from: Rank) -> bool {
    recv.message.from == from && !recv.message.cursor.is_done
}

/// Decodes a segment into the receive that is in progress, or else into the first receive with the
/// segment's tag. Drops a frame of an earlier communicator.
fn take<X: Transport, T: Element>(
    comm: &mut Communicator<X>,
    recvs: &mut [Incoming<'_, T>],
    rank: Rank,
    message: &[u8],
    scratch: &mut [u8],
    report: &mut Report,
) -> Result<(), Error> {
    let Some(header) = comm.read_message(rank, message)? else { return Ok(()) };
    comm.check_message::<T>(rank, 0, &header)?;
    let open = |recv: &Incoming<'_, T>| is_open(recv, rank);
    let is_begun = |recv: &Incoming<'_, T>| open(recv) && recv.message.cursor.is_in_progress();
    let of_tag = |recv: &Incoming<'_, T>| open(recv) && recv.message.tag == header.part;
    let in_progress = recvs.iter().position(is_begun);
    let Some(index) = in_progress.or_else(|| recvs.iter().position(of_tag)) else {
        let ours = recvs.iter().find(|recv| open(recv)).map_or(0, |recv| recv.message.tag);
        let tags = (Field::Tag, ours.into(), header.part.into());
        let damaged = Error::Frame { rank, error: FrameError::Damaged };
        return check_fields(rank, &[tags]).and(Err(damaged));
    };
    let Incoming { data, message: recv } = &mut recvs[index];
    comm.take_segment(recv, data, (&header, message), scratch, report)
}
