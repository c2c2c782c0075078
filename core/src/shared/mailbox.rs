//! What two ranks know of the messages between them that are under way.
//!
//! Messages have a channel of the communicator's to themselves. The first segment of each, its
//! *opening*, travels with the first tag, in the order in which messages were started, and leaves
//! whether it is awaited or not. Who waits for a message takes openings off that link until its own
//! is there, and holds those of others in memory, each for the receive that will name its tag. So
//! none is in the way of another. What follows an opening leaves when the receiver has asked for it
//! by a *grant*, and on a tag of its own, one message after the other in the order of grants: what
//! is there is taken at once, by the receive that it is for.
//!
//! An opening is short, so a rank that holds many needs little memory. Of each rank it holds
//! [`MAX_MESSAGES`]; further ones wait in the network.
//!
//! Messages between two ranks have numbers. A frame that comes twice, or was left by another
//! communicator on this channel, is told apart.
//!
//! Source: eager and rendezvous protocols of MPI libraries; matching as in MPI 4.1, §3.5.

use crate::collective::{Communicator, Incoming, Outgoing, SegmentCoding, Sending, copy_to_self};
use crate::element::Element;
use crate::engine::{check_fields, check_source, transport_error};
use crate::error::{Error, Field};
use crate::frame::{CallHeader, FrameError, HEADER_BYTES, Header, MessageKind};
use crate::heap_frame::HeapFrame;
use crate::kernel::CHUNK;
use crate::node::{CallSlot, Port};
use crate::transport::{Rank, Tag, Transport, TransportErrorKind};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::task::Poll;

/// Most sends under way on a communicator, most receives, and most messages of one rank that came
/// before they were to be received.
pub(super) const MAX_MESSAGES: usize = 1024;
/// Most values of an opening.
pub(super) const MAX_OPENING: usize = 4 * CHUNK;
/// With what openings travel, what follows them, and grants.
pub(super) const OPENING: Tag = Tag(0);
pub(super) const REST: Tag = Tag(1);
pub(super) const GRANT: Tag = Tag(2);
/// Frames that are taken off a link in one look.
const FRAMES_PER_POLL: usize = 16;

/// The messages of a communicator.
pub(super) struct Mailbox<'a, X: Transport> {
    pub(super) call_slot: Rc<CallSlot<'a, X>>,
    /// Receives and sends.
    n_running: [Cell<usize>; 2],
    n_receives: Cell<u64>,
    pub(super) peers: RefCell<BTreeMap<Rank, PeerMessages>>,
}

impl<'a, X: Transport> Mailbox<'a, X> {
    pub(super) fn new(call_slot: Rc<CallSlot<'a, X>>) -> Self {
        let (n_running, n_receives, peers) = Default::default();
        Self { call_slot, n_running, n_receives, peers }
    }

    /// Lends its communicator.
    pub(super) fn with<R>(
        &self,
        then: impl FnOnce(&mut Communicator<Port<'a, X>>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut comm = self.call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        then(comm.as_mut().ok_or(Error::Poisoned)?)
    }

    /// Copies what a rank sends itself in an exchange. Where it has sent itself something before,
    /// or awaits it, that comes first: then, or if it `only_checks`, only sees that all will find
    /// its match.
    pub(super) fn copy_own<T: Element>(
        &self,
        own: Rank,
        sends: &mut [Outgoing<'_, T>],
        recvs: &mut [Incoming<'_, T>],
        only_checks: bool,
    ) -> Result<(), Error> {
        let peers = self.peers.borrow();
        let Some(peer) = peers.get(&own).filter(|peer| peer.has_any()) else {
            return copy_to_self(own, sends, recvs, only_checks);
        };
        let tags = |is_sent: bool| {
            let sent = sends.iter().filter(|send| is_sent && send.to() == own).map(Outgoing::tag);
            let recv = recvs.iter().filter(|recv| !is_sent && recv.from() == own);
            sent.chain(recv.map(Incoming::tag)).collect::<Vec<u32>>()
        };
        let (sent, received) = (tags(true), tags(false));
        let n =
            |tags: &[u32], tag| tags.iter().filter(|&&other| other == tag).count().cast_signed();
        let n_lacking = |tag| peer.n_lacking(tag) + n(&received, tag) - n(&sent, tag);
        let fails = received
            .iter()
            .find(|&&tag| n_lacking(tag) > 0)
            .or_else(|| sent.iter().find(|&&tag| n_lacking(tag) < peer.n_lacking(tag).min(0)));
        fails.map_or(Ok(()), |&tag| Err(Error::ToItself { tag }))
    }

    /// Whether there may be so many more receives and sends.
    pub(super) fn check_room(&self, n_more: [usize; 2]) -> Result<(), Error> {
        let fits = |(now, more): (&Cell<usize>, usize)| now.get() + more <= MAX_MESSAGES;
        let fit = self.n_running.iter().zip(n_more).all(fits);
        if fit { Ok(()) } else { Err(Error::TooManyMessages { max: MAX_MESSAGES }) }
    }

    /// Counts one more send or receive, if there may be one.
    pub(super) fn admit(&self, is_sent: bool) -> Result<(), Error> {
        let n_running = &self.n_running[usize::from(is_sent)];
        if n_running.get() >= MAX_MESSAGES {
            return Err(Error::TooManyMessages { max: MAX_MESSAGES });
        }
        n_running.set(n_running.get() + 1);
        Ok(())
    }

    /// One is over.
    pub(super) fn dismiss(&self, is_sent: bool) {
        let n_running = &self.n_running[usize::from(is_sent)];
        n_running.set(n_running.get().saturating_sub(1));
    }

    /// The number of a receive, in the order of starts.
    pub(super) fn next_receive(&self) -> u64 {
        self.n_receives.set(self.n_receives.get() + 1);
        self.n_receives.get()
    }
}

/// The messages between this rank and another, or itself.
#[derive(Default)]
pub(super) struct PeerMessages {
    /// How many were started to it, and of how many the opening has left.
    n_sent: u32,
    n_opened: u32,
    /// Of these, those that more of will follow, once the other rank grants it; and those it has
    /// granted, in its order.
    opened: VecDeque<u32>,
    granted: VecDeque<u32>,
    /// How many have come from it.
    n_received: u32,
    /// Those that came before they were to be received.
    held: VecDeque<HeldOpening>,
    /// Receives that nothing has come for, in the order of starts: number and tag.
    awaited: VecDeque<(u64, u32)>,
    /// Messages of which more follows, with their tags: those to be granted, and those granted.
    grants_due: VecDeque<(u32, u32)>,
    rest_order: VecDeque<u32>,
}

/// An opening that nobody has asked for.
pub(super) struct HeldOpening {
    pub(super) header: Header,
    pub(super) content: OpeningContent,
}

/// What it holds.
pub(super) enum OpeningContent {
    /// A frame.
    Frame(HeapFrame),
    /// All values of a message to the rank itself: a vector of its element type.
    Own(Box<dyn Any>),
}

/// An opening that has come, for the receive that asked.
pub(super) enum Opening {
    /// One that was held.
    Held(HeldOpening),
    /// It was in a frame, and has been taken.
    Taken(Header),
}

impl PeerMessages {
    /// Numbers a message that is to be sent.
    pub(super) const fn start_send(&mut self) -> u32 {
        self.n_sent = self.n_sent.wrapping_add(1);
        self.n_sent
    }

    /// Whether the opening of this message leaves next.
    pub(super) const fn opens_next(&self, number: u32) -> bool {
        self.n_opened.wrapping_add(1) == number
    }

    /// The opening of the next message has left.
    pub(super) fn has_opened(&mut self, number: u32, is_done: bool) {
        self.n_opened = number;
        if !is_done {
            self.opened.push_back(number);
        }
    }

    /// Whether the rest of this message is next to leave.
    pub(super) fn may_send_rest(&self, number: u32) -> bool {
        self.granted.front() == Some(&number)
    }

    /// The rest of the message whose turn it was has left.
    pub(super) fn finish_send(&mut self) {
        self.granted.pop_front();
    }

    /// Takes in what the other rank grants. Whether it did.
    pub(super) fn receive_grants<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        to: Rank,
    ) -> Result<bool, Error> {
        for n_taken in 0..FRAMES_PER_POLL {
            let received =
                comm.take_frame(to, GRANT, |comm, message| self.receive_grant(comm, to, message))?;
            if received.is_none() {
                return Ok(n_taken > 0);
            }
        }
        Ok(true)
    }

    fn receive_grant<X: Transport>(
        &mut self,
        comm: &Communicator<X>,
        rank: Rank,
        message: &[u8],
    ) -> Result<(), Error> {
        let damaged = Error::Frame { rank, error: FrameError::Damaged };
        let header = Header::parse(message, comm.checksum())
            .map_err(|error| Error::Frame { rank, error })?;
        if is_left_over(comm, &header) {
            return Ok(());
        }
        let number = header.call.sequence;
        let position = self.opened.iter().position(|&opened| opened == number);
        match position.filter(|_| header == grant(comm, comm.rank(), (number, header.part), rank)) {
            Some(position) => {
                self.opened.remove(position);
                self.granted.push_back(number);
                Ok(())
            }
            None => check_source(rank, &header).and(Err(damaged)),
        }
    }

    /// Keeps a message of this rank to itself.
    pub(super) fn hold_own<X: Transport, T: Element>(
        &mut self,
        comm: &Communicator<X>,
        send: &Sending<T>,
        data: &[T],
    ) -> Result<(), Error> {
        if self.held.len() >= MAX_MESSAGES {
            return Err(Error::TooManyMessages { max: MAX_MESSAGES });
        }
        self.n_received = self.n_received.wrapping_add(1);
        let header = comm.header_of(send, SegmentCoding { tag: OPENING, number: self.n_received });
        self.held.push_back(HeldOpening {
            header,
            content: OpeningContent::Own(Box::new(data.to_vec())),
        });
        Ok(())
    }

    /// Notes a receive that begins.
    pub(super) fn start_receive(&mut self, number: u64, tag: u32) {
        self.awaited.push_back((number, tag));
    }

    /// Whether any is held or awaited.
    fn has_any(&self) -> bool {
        !self.held.is_empty() || !self.awaited.is_empty()
    }

    /// How many receives with this tag more there are than messages held for them, or fewer.
    pub(super) fn n_lacking(&self, tag: u32) -> isize {
        let n_awaited = self.awaited.iter().filter(|awaited| awaited.1 == tag).count();
        let n_held = self.held.iter().filter(|held| held.header.part == tag).count();
        n_awaited.cast_signed() - n_held.cast_signed()
    }

    /// The tag of the first message that came and that no receive is for.
    pub(super) fn unexpected_tag(&self) -> Option<u32> {
        let tags = self.held.iter().map(|held| held.header.part);
        tags.into_iter().find(|&tag| self.n_lacking(tag) < 0)
    }

    /// Whether the next message with this tag is for this receive.
    fn is_for(&self, number: u64, tag: u32) -> bool {
        self.awaited.iter().find(|awaited| awaited.1 == tag) == Some(&(number, tag))
    }

    /// The opening that a receive waits for, if it has come; and whether something came. What is
    /// still in a frame is lent to `take`.
    pub(super) fn take_opening<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        (from, number, tag): (Rank, u64, u32),
        mut take: impl FnMut(&mut Communicator<X>, &Header, &[u8]) -> Result<(), Error>,
    ) -> Result<(Option<Opening>, bool), Error> {
        if !self.is_for(number, tag) {
            return Ok((None, false));
        }
        if let Some(position) = self.held.iter().position(|held| held.header.part == tag) {
            self.awaited.retain(|awaited| awaited.0 != number);
            return Ok((self.held.remove(position).map(Opening::Held), true));
        }
        if from == comm.rank() {
            return Ok((None, false));
        }
        for n_taken in 0..FRAMES_PER_POLL {
            // With as many as may be held, the next one may still be the one.
            if self.held.len() > MAX_MESSAGES {
                return Ok((None, n_taken > 0));
            }
            let taken = comm.take_frame(from, OPENING, |comm, message| {
                let header = comm.read_message(from, message)?;
                if is_left_over(comm, &header) {
                    return Ok(None);
                }
                self.n_received = self.n_received.wrapping_add(1);
                let (ours, theirs) = (own_header(comm), header.call);
                check_fields(
                    from,
                    &[
                        (Field::Context, ours.context.into(), theirs.context.into()),
                        (Field::Epoch, ours.epoch.into(), theirs.epoch.into()),
                        (Field::Sequence, self.n_received.into(), theirs.sequence.into()),
                    ],
                )?;
                if header.part != tag {
                    self.held.push_back(copy_opening(header, message)?);
                    return Ok(None);
                }
                take(comm, &header, message)?;
                Ok(Some(header))
            })?;
            match taken {
                None => return Ok((None, n_taken > 0)),
                Some(None) => {}
                Some(Some(header)) => {
                    self.awaited.retain(|awaited| awaited.0 != number);
                    return Ok((Some(Opening::Taken(header)), true));
                }
            }
        }
        Ok((None, true))
    }

    /// More is to follow of a message whose opening was taken.
    pub(super) fn expect_rest(&mut self, number: u32, tag: u32) {
        self.grants_due.push_back((number, tag));
        self.rest_order.push_back(number);
    }

    /// Sends grants, as far as there is room. Whether it did.
    pub(super) fn send_grants<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        to: Rank,
    ) -> Result<bool, Error> {
        let mut moved = false;
        while let Some(&due) = self.grants_due.front() {
            let (own, checksum) = (comm.rank(), comm.checksum());
            if comm.transport.poll_ready(to, GRANT).map_err(transport_error)?.is_pending() {
                break;
            }
            let Poll::Ready(mut frame) = comm.transport.poll_frame().map_err(transport_error)?
            else {
                break;
            };
            grant(comm, to, due, own).emit(frame.as_mut(), checksum);
            comm.transport.send(to, GRANT, frame, HEADER_BYTES).map_err(transport_error)?;
            comm.transport.expect(to, REST);
            self.grants_due.pop_front();
            moved = true;
        }
        Ok(moved)
    }

    /// Whether the rest of this message comes next.
    pub(super) fn rest_is_next(&self, number: u32) -> bool {
        self.rest_order.front() == Some(&number)
    }

    /// All of the message whose turn it was has come.
    pub(super) fn finish_receive(&mut self) {
        self.rest_order.pop_front();
    }
}

/// What all messages of this rank's say, whatever their type.
const fn own_header<X: Transport>(comm: &Communicator<X>) -> CallHeader {
    CallHeader::of_no_call(comm.context, comm.epoch())
}

/// Whether a frame is of a communicator that had the channel before.
const fn is_left_over<X: Transport>(comm: &Communicator<X>, header: &Header) -> bool {
    header.call.context == comm.context && own_header(comm).age_of(header.call.epoch) > 0
}

/// The grant of a message of this number and tag to `to`, by `from`.
fn grant<X: Transport>(
    comm: &Communicator<X>,
    to: Rank,
    (number, tag): (u32, u32),
    from: Rank,
) -> Header {
    Header {
        kind: MessageKind::Grant,
        call: CallHeader { sequence: number, root: to.0, ..own_header(comm) },
        as_floats: false,
        from,
        part: tag,
        round: 0,
        n_values: 0,
        n_bytes: 0,
        operands: 0,
    }
}

/// A copy of a frame's message.
fn copy_opening(header: Header, message: &[u8]) -> Result<HeldOpening, Error> {
    let none = Error::Transport { kind: TransportErrorKind::OutOfFrames, peer: None };
    let mut frame = HeapFrame::try_new(message.len()).ok_or(none)?;
    frame.as_mut().copy_from_slice(message);
    Ok(HeldOpening { header, content: OpeningContent::Frame(frame) })
}

#[cfg(test)]
mod tests;
