//! Frames between ranks of one node, in memory that they share.
//!
//! A message names the slot of its frame, so no bytes are copied. In exchange, the receiver sends
//! back the slot of the frame with which it posted the receive. So frames move between ranks, and
//! each rank keeps the same number of frames.
//!
//! ```text
//!   sender                 ring of the receiver             receiver
//!   frame in slot 3   ──▶  «slot 3, 1000 bytes, tag 0» ──▶  keeps slot 3, gives slot 8
//!   gets slot 8       ◀──  «returned: slot 8»          ◀──  by the ring of the sender
//! ```
//!
//! A send that is not `matched` completes at once, and returns a free frame in place of the sent
//! one. If there is no free frame, the send completes when the receiver's slot comes back. A
//! `matched` send completes when the receiver has posted the receive, as with `MPI_Issend`. So no
//! rank waits for another to poll, and credit works as over other layers.
//!
//! Slots can run out, since many calls or long frames may need more than a file has. Then
//! [`SharedMemory::allocate`] returns `None`, and frames come from the heap. Such a frame is copied
//! to a free slot, and sent from there. If no slot is free, the sender puts an *announcement* in
//! the ring, and the message layer carries the message. The receiver posts the receive in the
//! message layer only when it has read the announcement. So messages of a link match in the order
//! sent, by whichever way they travel.
//!
//! *No deadlock.* A send waits for one resource: room in the receiver's ring. The receiver makes
//! room in each poll, and waits for nothing to do so: it keeps a message that matches no posted
//! receive, and credit bounds those. Its answers wait in `unsent` for room in the sender's ring,
//! which the sender makes in the same way. No send waits for a slot, and no copy of a receive does.
//! An accepted message waits only for its own receive, in whichever slot or memory it is. Until
//! then it may hold credit of its own link, and delays no other link.
//!
//! A short message, of a header and at most 1 KiB, is copied into the ring, and no slot changes
//! hands. Header and values then cross to the other core together, and nothing comes back. Only a
//! `matched` one is answered: the sender has its frame at once, and credit when the answer comes,
//! in the receiver's next short message to it or when the receiver polls next.
//!
//! Abort notices travel by the message layer, and so do all messages between ranks that cannot
//! share memory.

mod message;

use std::collections::VecDeque;
use std::mem;

use foldwire::transport::{Rank, Tag};

use crate::Event;
use crate::ffi::ring::{RingReceiver, RingSender, SHORT_BYTES};
use crate::ffi::shared::RingRef;
use crate::frame::{FrameMemory, MessageFrame};
pub(crate) use crate::node_memory::SharedFrame;
use crate::node_memory::{MemoryOffer, NodeMemory};
use message::{Completes, InvalidMessage, Message};

/// Limit on the messages taken from one rank in one poll.
const MESSAGES_PER_PASS: usize = 16;

/// Memory that this rank shares with the other ranks of its node.
pub(crate) struct SharedMemory {
    memory: NodeMemory,
    frame_bytes: usize,
    peers: Vec<NodePeer>,
    /// Receiving ends of the rings from `peers`.
    receivers: Vec<RingReceiver<RingRef>>,
    /// Index in `peers` of each rank of the node.
    peer_indices: Vec<Option<usize>>,
    /// Receives of announced messages, which the message layer must post.
    to_post: Vec<AnnouncedReceive>,
}

/// Receive of an announced message.
pub(crate) struct AnnouncedReceive {
    pub(crate) from: Rank,
    pub(crate) tag: Tag,
    pub(crate) buffer: MessageFrame,
}

/// Send that a ring has accepted.
#[derive(Debug)]
pub(crate) enum AcceptedSend {
    /// Shared memory carries the message. The event, if there is one, completes the send.
    Shared(Option<Event<MessageFrame>>),
    /// The message is announced. The message layer must now send this frame.
    Announced(MessageFrame),
}

/// Another rank of the node.
struct NodePeer {
    rank: Rank,
    sender: RingSender<RingRef>,
    /// Posted receives, at most one for each tag.
    posted: Vec<(Tag, MessageFrame)>,
    /// Messages that arrived before their receive was posted.
    arrived: VecDeque<Arrived<Box<[u8]>>>,
    /// Answers to the peer that wait for space in the ring.
    unsent: VecDeque<Message>,
    /// Sent messages that the peer must answer and has not answered.
    unanswered: Vec<Unanswered>,
    is_lost: bool,
}

/// A sent message that the peer must answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unanswered {
    Frame(Tag, Completes),
    /// A short `matched` message.
    Short(Tag),
}

/// Message that has arrived. `B` holds the bytes of a short one.
struct Arrived<B> {
    content: Content<B>,
    n_bytes: usize,
    tag: Tag,
}

enum Content<B> {
    Frame(SharedFrame, Completes),
    Short { bytes: B, matched: bool },
    Announced,
}

impl SharedMemory {
    /// Shares memory with the other ranks of this node. Returns `None` if any of them cannot, or if
    /// there are no others. All ranks call it together. `nodes` holds the node of each rank.
    ///
    /// # Errors
    /// The errors of `all_gather`, which returns the input of each rank.
    pub(crate) fn join<E>(
        own: Rank,
        nodes: &[i64],
        frame_bytes: usize,
        mut all_gather: impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Option<Self>, E> {
        let size = nodes.len();
        let on_this_node = |rank: Rank| nodes.get(rank.index()) == nodes.get(own.index());
        let all_ranks = || (0..size).map(Rank::new);
        let is_useful = all_ranks().filter(|&rank| on_this_node(rank)).count() > 1;
        let offer = if is_useful { MemoryOffer::with_rings(own, frame_bytes, size) } else { None };
        let bytes = offer.as_ref().map_or(Vec::new(), MemoryOffer::to_bytes);
        let offers = all_gather(&bytes)?;
        let mut shared = offer.and_then(|offer| {
            let all = all_ranks().zip(offers.iter().map(Vec::as_slice));
            let memory = offer.open(all.filter(|&(rank, _)| on_this_node(rank)))?;
            Self::over(memory, own, frame_bytes, size)
        });
        let all = all_gather(&[u8::from(shared.is_some())])?;
        let mut of_node = all_ranks().zip(&all).filter(|&(rank, _)| on_this_node(rank));
        if !of_node.all(|(_, can_share)| *can_share == [1]) {
            shared = None;
        }
        if let Some(shared) = &mut shared {
            shared.memory.close();
        }
        Ok(shared)
    }

    /// Makes the rings between `size` ranks that are on one node.
    fn over(memory: NodeMemory, own: Rank, frame_bytes: usize, size: usize) -> Option<Self> {
        let (mut peers, mut receivers) = (Vec::new(), Vec::new());
        let mut peer_indices = vec![None; size];
        for rank in (0..size).map(Rank::new).filter(|&rank| rank != own) {
            let Some(theirs) = memory.region(rank) else { continue };
            peer_indices[rank.index()] = Some(peers.len());
            receivers.push(memory.region(own)?.receiver(rank.index())?);
            peers.push(NodePeer {
                rank,
                sender: theirs.sender(own.index())?,
                posted: Vec::new(),
                arrived: VecDeque::new(),
                unsent: VecDeque::new(),
                unanswered: Vec::new(),
                is_lost: false,
            });
        }
        Some(Self { memory, frame_bytes, peers, receivers, peer_indices, to_post: Vec::new() })
    }

    /// Returns whether messages to and from `peer` use shared memory.
    pub(crate) fn contains(&self, peer: Rank) -> bool {
        matches!(self.peer_indices.get(peer.index()), Some(Some(_)))
    }

    /// Number of other ranks that share memory with this one.
    pub(crate) const fn n_peers(&self) -> usize {
        self.peers.len()
    }

    /// Allocates a frame that can be sent without a copy, if `n_bytes` is the shared frame size and
    /// a frame is left.
    pub(crate) fn allocate(&mut self, n_bytes: usize) -> Option<SharedFrame> {
        if n_bytes == self.frame_bytes { self.memory.take() } else { None }
    }

    /// Returns whether a frame lies in this memory, and not in that of another group.
    pub(crate) fn owns(&self, frame: &SharedFrame) -> bool {
        self.memory.owns(frame)
    }

    fn peer(&mut self, rank: Rank) -> Option<&mut NodePeer> {
        let index = *self.peer_indices.get(rank.index())?;
        self.peers.get_mut(index?)
    }

    /// Sends a frame, or gives it back if the peer's ring is full.
    pub(crate) fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: MessageFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<AcceptedSend, MessageFrame> {
        let Some(peer) = self.peer(to) else { return Err(frame) };
        if n_bytes <= SHORT_BYTES {
            let done = peer.send_short(tag, frame, n_bytes, matched)?;
            return Ok(AcceptedSend::Shared(Some(done)));
        }
        if !peer.can_send() {
            return Err(frame);
        }
        let sent = match frame {
            MessageFrame(FrameMemory::Shared(frame)) => frame,
            // The frame was allocated when no slot was free. A free one takes its place.
            MessageFrame(FrameMemory::Heap(heap)) => match self.memory.take() {
                Some(mut copy) => {
                    copy.as_mut()[..n_bytes].copy_from_slice(&heap.as_ref()[..n_bytes]);
                    copy
                }
                None => return self.announce(to, tag, heap.into(), n_bytes),
            },
        };
        let shared = |frame| MessageFrame(FrameMemory::Shared(frame));
        let spare = if matched { None } else { self.memory.take().map(shared) };
        let completes =
            if spare.is_some() { Completes::Nothing } else { Completes::Send { matched } };
        let message = Message::Frame { tag, slot: sent.slot(), n_bytes, completes };
        if let Some(peer) = self.peer(to) {
            if !peer.sender.push(message.encode(), &[]) {
                return Err(shared(sent));
            }
            peer.unanswered.push(Unanswered::Frame(tag, completes));
        }
        let done = spare.map(|buffer| Event::Released { to, tag, buffer, matched });
        Ok(AcceptedSend::Shared(done))
    }

    /// Announces a message that the message layer carries. The message layer knows whether it is
    /// `matched`, so the receiver does not answer.
    fn announce(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: MessageFrame,
        n_bytes: usize,
    ) -> Result<AcceptedSend, MessageFrame> {
        let message = Message::Announced { tag, n_bytes }.encode();
        let is_sent = self.peer(to).is_some_and(|peer| peer.sender.push(message, &[]));
        if is_sent { Ok(AcceptedSend::Announced(frame)) } else { Err(frame) }
    }

    /// Removes the receives that the message layer must post now, in their order.
    pub(crate) fn take_receives(&mut self) -> impl Iterator<Item = AnnouncedReceive> {
        self.to_post.drain(..)
    }

    /// Posts a receive. Returns an event if its message has arrived already. If that message was
    /// announced, the receive is among the next [`take_receives`](Self::take_receives).
    pub(crate) fn recv(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: MessageFrame,
    ) -> Option<Event<MessageFrame>> {
        let index = (*self.peer_indices.get(from.index())?)?;
        let peer = self.peers.get_mut(index)?;
        match peer.arrived.iter().position(|arrived| arrived.tag == tag) {
            Some(at) => {
                let arrived = peer.arrived.remove(at)?;
                peer.receive(arrived, buffer, &mut self.to_post)
            }
            None => {
                peer.posted.push((tag, buffer));
                None
            }
        }
    }

    /// Returns whether a message has arrived.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        let mut all = self.peers.iter().zip(&self.receivers);
        all.any(|(peer, receiver)| !peer.is_lost && receiver.has_next())
    }

    /// Handles messages that have arrived.
    #[inline]
    pub(crate) fn poll(&mut self, events: &mut VecDeque<Event<MessageFrame>>) {
        let Self { memory, frame_bytes, peers, receivers, to_post, .. } = self;
        let all = peers.iter_mut().zip(receivers);
        for (peer, receiver) in all.filter(|(peer, _)| !peer.is_lost) {
            peer.send_unsent();
            for _ in 0..MESSAGES_PER_PASS {
                let taken = receiver.pop(|message, short| {
                    let message = Message::decode(message, *frame_bytes)?;
                    peer.take(message, short, memory, to_post, events)
                });
                match taken {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(InvalidMessage)) => {
                        peer.is_lost = true;
                        events.push_back(Event::Lost { peer: peer.rank });
                        break;
                    }
                }
            }
        }
    }

    /// Cancels the posted receives.
    pub(crate) fn cancel(&mut self, events: &mut VecDeque<Event<MessageFrame>>) {
        let posted = self.peers.iter_mut().flat_map(|peer| peer.posted.drain(..));
        let posted = posted.map(|(_, buffer)| buffer);
        let buffers = posted.chain(self.to_post.drain(..).map(|receive| receive.buffer));
        events.extend(buffers.map(|buffer| Event::Returned { buffer }));
    }

    /// Ignores further messages of `peer`.
    pub(crate) fn forget(&mut self, peer: Rank) {
        if let Some(peer) = self.peer(peer) {
            peer.is_lost = true;
        }
    }
}

impl NodePeer {
    /// Returns whether the ring has room for one more message. Sends the waiting ones first.
    fn can_send(&mut self) -> bool {
        self.send_unsent();
        self.unsent.is_empty() && self.sender.has_room()
    }

    /// Sends at most [`SHORT_BYTES`] by a copy in the ring, so the frame stays here. The message
    /// carries along an answer that waits, which would delay it as a message of its own.
    fn send_short(
        &mut self,
        tag: Tag,
        frame: MessageFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<Event<MessageFrame>, MessageFrame> {
        let answer = match self.unsent.front() {
            Some(&Message::Matched { tag }) if self.unsent.len() == 1 => Some(tag),
            _ => None,
        };
        let can_send = if answer.is_none() { self.can_send() } else { self.sender.has_room() };
        let message = Message::Short { tag, n_bytes, matched, answer }.encode();
        if !can_send || !self.sender.push(message, &frame.as_ref()[..n_bytes]) {
            return Err(frame);
        }
        if answer.is_some() {
            self.unsent.clear();
        }
        if matched {
            self.unanswered.push(Unanswered::Short(tag));
        }
        Ok(Event::Released { to: self.rank, tag, buffer: frame, matched: false })
    }

    /// Takes the peer's answer to a short `matched` message.
    fn matched(&mut self, tag: Tag) -> Result<Event<MessageFrame>, InvalidMessage> {
        self.forget(Unanswered::Short(tag))?;
        Ok(Event::Matched { to: self.rank, tag })
    }

    /// Removes the sent message that the peer answers. One answer is valid for each.
    fn forget(&mut self, answered: Unanswered) -> Result<(), InvalidMessage> {
        let at = self.unanswered.iter().position(|&sent| sent == answered);
        self.unanswered.swap_remove(at.ok_or(InvalidMessage)?);
        Ok(())
    }

    /// Takes a message of the peer, or the peer's answer to one. `entry` begins with the bytes of a
    /// short message.
    #[inline]
    fn take(
        &mut self,
        message: Message,
        entry: &[u8; SHORT_BYTES],
        memory: &mut NodeMemory,
        to_post: &mut Vec<AnnouncedReceive>,
        events: &mut VecDeque<Event<MessageFrame>>,
    ) -> Result<(), InvalidMessage> {
        let frame = |slot| memory.shared_frame(slot).ok_or(InvalidMessage);
        let (content, n_bytes, tag) = match message {
            Message::Frame { tag, slot, n_bytes, completes } => {
                (Content::Frame(frame(slot)?, completes), n_bytes, tag)
            }
            Message::Short { tag, n_bytes, matched, answer } => {
                if let Some(tag) = answer {
                    events.push_back(self.matched(tag)?);
                }
                (Content::Short { bytes: &entry[..n_bytes], matched }, n_bytes, tag)
            }
            Message::Announced { tag, n_bytes } => (Content::Announced, n_bytes, tag),
            Message::Matched { tag } => {
                events.push_back(self.matched(tag)?);
                return Ok(());
            }
            Message::Slot { tag, slot, completes } => {
                let frame = frame(slot)?;
                self.forget(Unanswered::Frame(tag, completes))?;
                match completes {
                    Completes::Nothing => memory.free.push(frame),
                    Completes::Send { matched } => {
                        let (to, buffer) = (self.rank, MessageFrame(FrameMemory::Shared(frame)));
                        events.push_back(Event::Released { to, tag, buffer, matched });
                    }
                }
                return Ok(());
            }
        };
        let arrived = Arrived { content, n_bytes, tag };
        match self.posted.iter().position(|&(posted, _)| posted == tag) {
            Some(at) => {
                let (_, buffer) = self.posted.swap_remove(at);
                events.extend(self.receive(arrived, buffer, to_post));
            }
            None => self.arrived.push_back(arrived.into_owned()),
        }
        Ok(())
    }

    /// Completes a receive that was posted with `buffer`. For a frame, the sender gets that
    /// buffer's slot in exchange. A buffer on the heap has no slot: the bytes are copied, and the
    /// sender gets the arrived slot back. A short message is copied too. If it was sent `matched`,
    /// the next short message to its sender carries the answer, or the next poll sends it. The
    /// receive of an announced message goes to `to_post`.
    #[inline]
    fn receive<B: AsRef<[u8]>>(
        &mut self,
        arrived: Arrived<B>,
        mut buffer: MessageFrame,
        to_post: &mut Vec<AnnouncedReceive>,
    ) -> Option<Event<MessageFrame>> {
        let Arrived { content, n_bytes, tag } = arrived;
        match content {
            Content::Short { bytes, matched } => {
                buffer.as_mut()[..n_bytes].copy_from_slice(bytes.as_ref());
                if matched {
                    self.unsent.push_back(Message::Matched { tag });
                }
            }
            Content::Frame(frame, completes) => {
                let slot = match &mut buffer.0 {
                    FrameMemory::Shared(mine) => mem::replace(mine, frame).slot(),
                    FrameMemory::Heap(mine) => {
                        mine.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
                        frame.slot()
                    }
                };
                self.unsent.push_back(Message::Slot { tag, slot, completes });
                self.send_unsent();
            }
            Content::Announced => {
                to_post.push(AnnouncedReceive { from: self.rank, tag, buffer });
                return None;
            }
        }
        Some(Event::Received { from: self.rank, tag, buffer, n_bytes })
    }

    /// Sends the waiting answers that the ring has space for.
    #[inline]
    fn send_unsent(&mut self) {
        while let Some(&message) = self.unsent.front()
            && self.sender.push(message.encode(), &[])
        {
            self.unsent.pop_front();
        }
    }
}

impl Arrived<&[u8]> {
    /// Copies the bytes of a short message, whose entry is about to be used again.
    fn into_owned(self) -> Arrived<Box<[u8]>> {
        let Self { content, n_bytes, tag } = self;
        let content = match content {
            Content::Frame(frame, completes) => Content::Frame(frame, completes),
            Content::Short { bytes, matched } => Content::Short { bytes: bytes.into(), matched },
            Content::Announced => Content::Announced,
        };
        Arrived { content, n_bytes, tag }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
