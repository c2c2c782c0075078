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

use std::collections::VecDeque;
use std::mem;

use foldwire::transport::{MAX_CHANNELS, Rank, Tag};

use crate::Event;
use crate::ffi::ring::{RingMessage, RingReceiver, RingSender, SHORT_BYTES};
use crate::ffi::shared::RingRef;
use crate::frame::{FrameMemory, MessageFrame, SlotId};
pub(crate) use crate::node_memory::SharedFrame;
use crate::node_memory::{MemoryOffer, NodeMemory};

/// Flag in a message's word, above the bits of the tag: the send completes only when a slot comes
/// back.
const NOTIFY: u32 = 1 << 16;
/// Flag: the frame was sent `matched`.
const MATCHED: u32 = 1 << 17;
/// Flag: the message returns a slot in exchange for a sent frame.
const RETURNED: u32 = 1 << 18;
/// Flag: the message is short. Its bytes are in the ring's entry, and no slot changes hands.
const SHORT: u32 = 1 << 19;
/// Flag: the message is an announcement. The message layer carries what it announces.
const ANNOUNCED: u32 = 1 << 20;

/// Slot of a message that passes none.
const NO_SLOT: SlotId = SlotId { owner: 0, index: 0 };

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
    /// Messages to the peer that wait for space in the ring.
    unsent: VecDeque<RingMessage>,
    /// Words (flags and tag) of sent messages that the peer must answer and has not answered.
    unanswered: Vec<u32>,
    is_lost: bool,
}

/// Message that has arrived. `B` holds the bytes of a short one.
struct Arrived<B> {
    content: Content<B>,
    n_bytes: usize,
    tag: Tag,
    /// Flags of the message.
    flags: u32,
}

enum Content<B> {
    Frame(SharedFrame),
    Short(B),
    Announced,
}

/// A message that no correct rank sends.
struct InvalidMessage;

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
        // Without a spare frame, the send completes when the peer returns a slot.
        let notify = if spare.is_some() { 0 } else { NOTIFY };
        let word = u32::from(tag.0) | notify | if matched { MATCHED } else { 0 };
        let message = RingMessage { slot: sent.slot(), n_bytes: n_bytes as u64, word };
        if let Some(peer) = self.peer(to) {
            if !peer.sender.push(message, &[]) {
                return Err(shared(sent));
            }
            peer.unanswered.push(word);
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
        let word = u32::from(tag.0) | ANNOUNCED;
        let message = RingMessage { slot: NO_SLOT, n_bytes: n_bytes as u64, word };
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
                    let arrived = decode(memory, *frame_bytes, message, short)?;
                    if message.carries_answer() {
                        events.push_back(peer.answered(message.slot.owner)?);
                    }
                    events.extend(peer.take(arrived, &mut memory.free, to_post)?);
                    Ok(())
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
            Some(answer) if self.unsent.len() == 1 && answer.word & SHORT != 0 => answer.word,
            _ => 0,
        };
        let can_send = if answer == 0 { self.can_send() } else { self.sender.has_room() };
        let word = u32::from(tag.0) | SHORT | if matched { MATCHED } else { 0 };
        let slot = SlotId { owner: answer, index: 0 };
        let message = RingMessage { slot, n_bytes: n_bytes as u64, word };
        if !can_send || !self.sender.push(message, &frame.as_ref()[..n_bytes]) {
            return Err(frame);
        }
        if answer != 0 {
            self.unsent.clear();
        }
        if matched {
            self.unanswered.push(word);
        }
        Ok(Event::Released { to: self.rank, tag, buffer: frame, matched: false })
    }

    /// Takes the peer's answer to a short `matched` message.
    fn answered(&mut self, answer: u32) -> Result<Event<MessageFrame>, InvalidMessage> {
        self.forget_unanswered(answer)?;
        Ok(Event::Matched { to: self.rank, tag: Tag(answer as u16) })
    }

    /// Removes the sent message that the peer answers. One answer is valid for each.
    fn forget_unanswered(&mut self, answer: u32) -> Result<(), InvalidMessage> {
        let at = self.unanswered.iter().position(|&word| word | RETURNED == answer);
        self.unanswered.swap_remove(at.ok_or(InvalidMessage)?);
        Ok(())
    }

    /// Takes a message of the peer, or the peer's answer to one.
    #[inline]
    fn take(
        &mut self,
        arrived: Arrived<&[u8]>,
        free: &mut Vec<SharedFrame>,
        to_post: &mut Vec<AnnouncedReceive>,
    ) -> Result<Option<Event<MessageFrame>>, InvalidMessage> {
        let Arrived { tag, flags, .. } = arrived;
        if flags & RETURNED == 0 {
            return Ok(match self.posted.iter().position(|&(posted, _)| posted == tag) {
                Some(at) => {
                    let (_, buffer) = self.posted.swap_remove(at);
                    self.receive(arrived, buffer, to_post)
                }
                None => {
                    self.arrived.push_back(arrived.into_owned());
                    None
                }
            });
        }
        let answer = u32::from(tag.0) | flags;
        let to = self.rank;
        Ok(match arrived.content {
            Content::Short(_) => Some(self.answered(answer)?),
            Content::Announced => return Err(InvalidMessage),
            Content::Frame(frame) => {
                self.forget_unanswered(answer)?;
                if flags & NOTIFY == 0 {
                    free.push(frame);
                    return Ok(None);
                }
                let buffer = MessageFrame(FrameMemory::Shared(frame));
                Some(Event::Released { to, tag, buffer, matched: flags & MATCHED != 0 })
            }
        })
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
        let Arrived { content, n_bytes, tag, flags } = arrived;
        let word = u32::from(tag.0) | flags | RETURNED;
        let answer = |slot| RingMessage { slot, n_bytes: 0, word };
        match content {
            Content::Short(bytes) => {
                buffer.as_mut()[..n_bytes].copy_from_slice(bytes.as_ref());
                if flags & MATCHED != 0 {
                    self.unsent.push_back(answer(NO_SLOT));
                }
            }
            Content::Frame(frame) => {
                let slot = match &mut buffer.0 {
                    FrameMemory::Shared(mine) => mem::replace(mine, frame).slot(),
                    FrameMemory::Heap(mine) => {
                        mine.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
                        frame.slot()
                    }
                };
                self.unsent.push_back(answer(slot));
                self.send_unsent();
            }
            Content::Announced => {
                to_post.push(AnnouncedReceive { from: self.rank, tag, buffer });
                return None;
            }
        }
        Some(Event::Received { from: self.rank, tag, buffer, n_bytes })
    }

    /// Sends the waiting messages that the ring has space for.
    #[inline]
    fn send_unsent(&mut self) {
        while let Some(&message) = self.unsent.front()
            && self.sender.push(message, &[])
        {
            self.unsent.pop_front();
        }
    }
}

impl RingMessage {
    /// Returns whether this message also carries an answer, in place of a slot's owner.
    const fn carries_answer(&self) -> bool {
        self.word & (SHORT | RETURNED) == SHORT && self.slot.owner != 0
    }
}

impl Arrived<&[u8]> {
    /// Copies the bytes of a short message, whose entry is about to be used again.
    fn into_owned(self) -> Arrived<Box<[u8]>> {
        let Self { content, n_bytes, tag, flags } = self;
        let content = match content {
            Content::Frame(frame) => Content::Frame(frame),
            Content::Short(bytes) => Content::Short(bytes.into()),
            Content::Announced => Content::Announced,
        };
        Arrived { content, n_bytes, tag, flags }
    }
}

/// Decodes a message. `short` holds the bytes of a short one.
#[inline]
fn decode<'a>(
    memory: &NodeMemory,
    frame_bytes: usize,
    message: RingMessage,
    short: &'a [u8; SHORT_BYTES],
) -> Result<Arrived<&'a [u8]>, InvalidMessage> {
    let RingMessage { slot, n_bytes, word } = message;
    let (tag, flags) = (Tag(word as u16), word & !0xffff);
    let n_bytes = usize::try_from(n_bytes).map_err(|_| InvalidMessage)?;
    let known = match flags & (SHORT | ANNOUNCED) {
        0 => NOTIFY | MATCHED | RETURNED,
        SHORT => SHORT | MATCHED | RETURNED,
        // Shared memory answers no announcement.
        _ => ANNOUNCED,
    };
    if n_bytes > frame_bytes || tag.channel() >= MAX_CHANNELS || flags & !known != 0 {
        return Err(InvalidMessage);
    }
    let content = match flags & (SHORT | ANNOUNCED) {
        0 => memory.shared_frame(slot).map(Content::Frame),
        SHORT => short.get(..n_bytes).map(Content::Short),
        _ => Some(Content::Announced),
    };
    Ok(Arrived { content: content.ok_or(InvalidMessage)?, n_bytes, tag, flags })
}

#[cfg(all(test, not(loom)))]
mod tests;
