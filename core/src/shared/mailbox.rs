//! Messages in progress between this rank and its peers.
//!
//! Messages have a separate channel. The first segment of a message is its *opening*. Openings
//! travel with the first tag, in the order in which the messages were started. They leave without
//! waiting for a receive. A receive takes openings off that link until the opening that it waits
//! for arrives. It holds the others in memory for later receives, so no message blocks another.
//!
//! The rest of a message leaves after the receiver has sent a *grant*. The rest travels with
//! another tag, one message after the other in the order of grants. The receive has started by
//! then, so it takes each frame at once.
//!
//! Openings are short, so holding many needs little memory. A rank holds up to [`MAX_MESSAGES`]
//! from each peer. Further openings wait in the network.
//!
//! Messages between two ranks are numbered. The numbers detect a frame that arrives twice, or
//! that was left by another communicator on this channel.
//!
//! Source: eager and rendezvous protocols of MPI libraries; matching as in MPI 4.1, §3.5.

use crate::collective::{Communicator, Incoming, Outgoing, SegmentLabel, Sending, copy_to_self};
use crate::element::Element;
use crate::engine::{check_fields, check_source};
use crate::error::{Error, Field};
use crate::frame::{CallHeader, FrameError, Header, MessageKind};
use crate::heap_frame::HeapFrame;
use crate::kernel::CHUNK;
use crate::shared_transport::CallSlot;
use crate::transport::{Rank, Tag, Transport, TransportErrorKind};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};

/// Largest number of sends in progress on a communicator, of receives in progress, and of openings
/// held from one rank.
pub(super) const MAX_MESSAGES: usize = 1024;
/// Largest number of values in an opening.
pub(super) const MAX_OPENING: usize = 4 * CHUNK;
/// Tags of openings, of the segments after them, and of grants.
pub(super) const OPENING: Tag = Tag(0);
pub(super) const REST: Tag = Tag(1);
pub(super) const GRANT: Tag = Tag(2);
/// Largest number of frames that one poll takes off a link.
const FRAMES_PER_POLL: usize = 16;

pub(super) const NO_MEMORY: Error =
    Error::Transport { kind: TransportErrorKind::OutOfFrames, peer: None };

/// Messages of a communicator.
pub(super) struct Mailbox<'a, X: Transport> {
    pub(super) call_slot: Rc<CallSlot<'a, X>>,
    /// Number of receives and of sends in progress.
    n_running: [Cell<usize>; 2],
    /// Number of receives that were started.
    n_receives: Cell<u64>,
    pub(super) peers: RefCell<BTreeMap<Rank, PeerMessages>>,
}

impl<'a, X: Transport> Mailbox<'a, X> {
    pub(super) fn new(call_slot: Rc<CallSlot<'a, X>>) -> Self {
        let (n_running, n_receives, peers) = Default::default();
        Self { call_slot, n_running, n_receives, peers }
    }

    /// Copies the messages that a rank sends to itself in an exchange.
    ///
    /// If older sends or receives of the rank with itself wait for a match, they come first. This
    /// function then copies nothing, as if `only_checks` were set: it only checks that each message
    /// and receive will find a match.
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
        self.check_held(own, sends.iter().filter(|send| send.to() == own).count())?;
        let tags = |is_sent: bool| {
            let sent = sends.iter().filter(|send| is_sent && send.to() == own).map(Outgoing::tag);
            let recv = recvs.iter().filter(|recv| !is_sent && recv.from() == own);
            sent.chain(recv.map(Incoming::tag)).collect::<Vec<u32>>()
        };
        let (sent, received) = (tags(true), tags(false));
        let n =
            |tags: &[u32], tag| tags.iter().filter(|&&other| other == tag).count().cast_signed();
        let n_lacking = |tag| peer.n_lacking(tag) + n(&received, tag) - n(&sent, tag);
        // Each receive of the exchange must find a message, and each message a receive.
        let unmatched = received
            .iter()
            .find(|&&tag| n_lacking(tag) > 0)
            .or_else(|| sent.iter().find(|&&tag| n_lacking(tag) < peer.n_lacking(tag).min(0)));
        unmatched.map_or(Ok(()), |&tag| Err(Error::ToItself { tag }))
    }

    /// Returns whether older sends or receives of this rank with itself wait for a match.
    pub(super) fn has_any_own(&self, own: Rank) -> bool {
        self.peers.borrow().get(&own).is_some_and(PeerMessages::has_any)
    }

    /// Checks that this many more messages of this rank to itself may start. They are held until a
    /// receive takes them.
    pub(super) fn check_held(&self, own: Rank, n_more: usize) -> Result<(), Error> {
        let n_held = self.peers.borrow().get(&own).map_or(0, |peer| peer.held.len());
        let fit = n_held + n_more <= MAX_MESSAGES;
        if fit { Ok(()) } else { Err(Error::TooManyMessages { max: MAX_MESSAGES }) }
    }

    /// Checks that this many more receives and sends may start.
    pub(super) fn check_room(&self, n_more: [usize; 2]) -> Result<(), Error> {
        let fits = |(now, more): (&Cell<usize>, usize)| now.get() + more <= MAX_MESSAGES;
        let fit = self.n_running.iter().zip(n_more).all(fits);
        if fit { Ok(()) } else { Err(Error::TooManyMessages { max: MAX_MESSAGES }) }
    }

    /// Counts one more send or receive, if there is space for it.
    pub(super) fn admit(&self, is_sent: bool) -> Result<(), Error> {
        let n_running = &self.n_running[usize::from(is_sent)];
        if n_running.get() >= MAX_MESSAGES {
            return Err(Error::TooManyMessages { max: MAX_MESSAGES });
        }
        n_running.set(n_running.get() + 1);
        Ok(())
    }

    /// Removes one send or receive from the count.
    pub(super) fn dismiss(&self, is_sent: bool) {
        let n_running = &self.n_running[usize::from(is_sent)];
        n_running.set(n_running.get().saturating_sub(1));
    }

    /// Returns the number of the next receive, in the order of starts.
    pub(super) fn next_receive(&self) -> u64 {
        self.n_receives.set(self.n_receives.get() + 1);
        self.n_receives.get()
    }
}

/// Messages between this rank and one peer, which may be this rank itself.
#[derive(Default)]
pub(super) struct PeerMessages {
    /// Number of messages to the peer that were started.
    n_sent: u32,
    /// Number of messages to the peer whose opening has left.
    n_opened: u32,
    /// Messages whose opening has left and that wait for a grant.
    opened: VecDeque<u32>,
    /// Messages that have a grant, in the order of grants.
    granted: VecDeque<u32>,
    /// Number of openings that have arrived from the peer.
    n_received: u32,
    /// Openings that arrived before their receive was started.
    held: VecDeque<HeldOpening>,
    /// Receives without an opening yet, in the order of starts: number and tag.
    awaited: VecDeque<(u64, u32)>,
    /// Messages from the peer for which this rank must send a grant: number and tag.
    grants_due: VecDeque<(u32, u32)>,
    /// Messages from the peer whose rest has not arrived completely, in the order of grants.
    rest_order: VecDeque<u32>,
}

/// An opening without a receive yet.
pub(super) struct HeldOpening {
    pub(super) header: Header,
    pub(super) content: OpeningContent,
}

/// Contents of a held opening.
pub(super) enum OpeningContent {
    /// A copy of the frame's message.
    Frame(HeapFrame),
    /// All values of a message from this rank to itself: a vector of its element type.
    Own(Box<dyn Any>),
}

/// An opening that a receive was waiting for.
pub(super) enum Opening {
    /// It was held.
    Held(HeldOpening),
    /// It was in a frame, and its values have been decoded.
    Taken(Header),
}

impl PeerMessages {
    /// Returns the number of the next message to send.
    pub(super) const fn start_send(&mut self) -> u32 {
        self.n_sent = self.n_sent.wrapping_add(1);
        self.n_sent
    }

    /// Returns whether the opening of this message is the next one to leave.
    pub(super) const fn opens_next(&self, number: u32) -> bool {
        self.n_opened.wrapping_add(1) == number
    }

    /// Records that the opening of the next message has left. `is_done` is true if the opening was
    /// the whole message, which then needs no grant.
    pub(super) fn has_opened(&mut self, number: u32, is_done: bool) {
        self.n_opened = number;
        if !is_done {
            self.opened.push_back(number);
        }
    }

    /// Returns whether the rest of this message is next to leave.
    pub(super) fn may_send_rest(&self, number: u32) -> bool {
        self.granted.front() == Some(&number)
    }

    /// Ends the turn of the message whose rest has left.
    pub(super) fn finish_send(&mut self) {
        self.granted.pop_front();
    }

    /// Receives the peer's grants. Returns whether any arrived.
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
        if header.is_left_over(&own_header(comm)) {
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

    /// Holds a message of this rank to itself, after [`check_held`](Mailbox::check_held).
    pub(super) fn hold_own<X: Transport, T: Element>(
        &mut self,
        comm: &Communicator<X>,
        send: &Sending<T>,
        data: &[T],
    ) {
        self.n_received = self.n_received.wrapping_add(1);
        let header = comm.header_of(send, SegmentLabel { tag: OPENING, number: self.n_received });
        self.held.push_back(HeldOpening {
            header,
            content: OpeningContent::Own(Box::new(data.to_vec())),
        });
    }

    /// Records a new receive.
    pub(super) fn start_receive(&mut self, number: u64, tag: u32) {
        self.awaited.push_back((number, tag));
    }

    /// Returns whether any opening is held or awaited.
    fn has_any(&self) -> bool {
        !self.held.is_empty() || !self.awaited.is_empty()
    }

    /// Number of waiting receives with this tag, minus the number of held openings with it.
    pub(super) fn n_lacking(&self, tag: u32) -> isize {
        let n_awaited = self.awaited.iter().filter(|awaited| awaited.1 == tag).count();
        let n_held = self.held.iter().filter(|held| held.header.part == tag).count();
        n_awaited.cast_signed() - n_held.cast_signed()
    }

    /// Returns the tag of the first held message that has no receive.
    pub(super) fn unexpected_tag(&self) -> Option<u32> {
        let tags = self.held.iter().map(|held| held.header.part);
        tags.into_iter().find(|&tag| self.n_lacking(tag) < 0)
    }

    /// Returns whether the next message with this tag belongs to this receive.
    fn is_for(&self, number: u64, tag: u32) -> bool {
        self.awaited.iter().find(|awaited| awaited.1 == tag) == Some(&(number, tag))
    }

    /// Returns the opening that a receive waits for, if it has arrived, and whether any frame
    /// arrived. Calls `take` with an opening that is still in a frame.
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
            // Do not stop at exactly the limit: the next opening may be the awaited one.
            if self.held.len() > MAX_MESSAGES {
                return Ok((None, n_taken > 0));
            }
            let taken = comm.take_frame(from, OPENING, |comm, message| {
                let Some(header) = comm.read_message(from, message)? else { return Ok(None) };
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

    /// Queues a grant for a message whose opening was taken. The rest of the message then arrives
    /// after the rest of the messages queued before.
    pub(super) fn expect_rest(&mut self, number: u32, tag: u32) {
        self.grants_due.push_back((number, tag));
        self.rest_order.push_back(number);
    }

    /// Sends grants while the link has credit and the pool has frames. Returns whether it sent any.
    pub(super) fn send_grants<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        to: Rank,
    ) -> Result<bool, Error> {
        let mut moved = false;
        while let Some(&due) = self.grants_due.front() {
            let grant = grant(comm, to, due, comm.rank());
            if !comm.send_header(to, GRANT, &grant)? {
                break;
            }
            comm.transport.expect(to, REST);
            self.grants_due.pop_front();
            moved = true;
        }
        Ok(moved)
    }

    /// Returns whether the rest of this message is next to arrive.
    pub(super) fn rest_is_next(&self, number: u32) -> bool {
        self.rest_order.front() == Some(&number)
    }

    /// Ends the turn of the message whose rest has arrived.
    pub(super) fn finish_receive(&mut self) {
        self.rest_order.pop_front();
    }
}

/// Returns the header fields that all messages of this rank share, whatever their type.
const fn own_header<X: Transport>(comm: &Communicator<X>) -> CallHeader {
    CallHeader::of_no_call(comm.context, comm.epoch())
}

/// Returns the header of a grant by `from` for a message that `to` sends.
fn grant<X: Transport>(
    comm: &Communicator<X>,
    to: Rank,
    (number, tag): (u32, u32),
    from: Rank,
) -> Header {
    let call = CallHeader { sequence: number, root: to.0, ..own_header(comm) };
    Header { part: tag, ..Header::without_values(MessageKind::Grant, call, from) }
}

/// Copies a frame's message to the heap.
fn copy_opening(header: Header, message: &[u8]) -> Result<HeldOpening, Error> {
    let mut frame = HeapFrame::try_new(message.len()).ok_or(NO_MEMORY)?;
    frame.as_mut().copy_from_slice(message);
    Ok(HeldOpening { header, content: OpeningContent::Frame(frame) })
}

#[cfg(test)]
mod tests;
