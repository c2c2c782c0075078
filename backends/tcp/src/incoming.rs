//! Messages received from all peers, and the events that result.
//!
//! Bytes are read into frames of this layer. When a message has arrived and its receive is posted,
//! the endpoint gets the frame, and this layer keeps the receive's buffer in exchange.

use std::collections::VecDeque;

use foldwire::HeapFrame;
use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag};
use foldwire_messaging::{Event, MessageFrame, NodeMemory, SlotId};

use crate::error::{Error, PeerLoss};
use crate::header::{MessageHeader, ProtocolViolation};
use crate::link::{PeerLinks, ReceivedMessage};
use crate::reader::MessageSink;

/// Most undelivered notices kept for each rank. After that, the oldest is dropped.
const NOTICES_PER_RANK: usize = 1024;
/// Slots that are sent back by themselves, if no message comes along.
const SLOTS_AT_ONCE: usize = 8;
/// Most spare frames kept for later messages.
const MAX_SPARE: usize = 32;

/// Received messages and resulting events.
pub(crate) struct IncomingMessages {
    pub(crate) links: Vec<PeerLinks>,
    pub(crate) events: VecDeque<Event<MessageFrame>>,
    /// Answers to send: to matched messages that were delivered to their receives. `None`: no
    /// answer, but the slots that wait for one.
    pub(crate) to_answer: Vec<(Rank, Option<MessageHeader>)>,
    notices: VecDeque<(Rank, MessageFrame, usize)>,
    /// The posted receive for a notice.
    pub(crate) notice_buffer: Option<MessageFrame>,
    spare: Vec<MessageFrame>,
    pub(crate) frame_bytes: usize,
    pub(crate) failed: Option<Error>,
    /// Memory that this rank shares with the ranks of its node.
    pub(crate) memory: Option<NodeMemory>,
    /// By peer, slots exchanged with it.
    pub(crate) exchanged: Vec<ExchangedSlots>,
}

/// Slots of shared memory that are exchanged with one peer.
#[derive(Default)]
pub(crate) struct ExchangedSlots {
    /// Number of slots sent for which none has come back.
    pub(crate) n_lent: usize,
    /// Slots to send back, along with the next message.
    pub(crate) to_return: Vec<SlotId>,
}

/// Receiver of one peer's messages.
pub(crate) struct PeerReceiver<'a> {
    pub(crate) peer: Rank,
    pub(crate) incoming: &'a mut IncomingMessages,
}

impl MessageSink for PeerReceiver<'_> {
    fn admit(&mut self, header: MessageHeader) -> Result<Option<MessageFrame>, PeerLoss> {
        let MessageHeader::Message { tag, number, slot, .. } = header else { return Ok(None) };
        if tag.is_control() {
            let frame = HeapFrame::try_new(MIN_FRAME_BYTES).ok_or(PeerLoss::NoMemory)?;
            return Ok(Some(frame.into()));
        }
        let Self { peer, incoming } = self;
        incoming.links[peer.index()].admit(tag, number)?;
        if let Some(slot) = slot {
            let memory = incoming.memory.as_ref().filter(|memory| memory.contains(*peer));
            let frame = memory.and_then(|memory| memory.frame(slot));
            return Ok(Some(frame.ok_or(ProtocolViolation::UnexpectedSlot)?));
        }
        let frame = incoming.spare.pop().or_else(|| incoming.allocate(incoming.frame_bytes));
        Ok(Some(frame.ok_or(PeerLoss::NoMemory)?))
    }

    fn take(&mut self, header: MessageHeader, frame: Option<MessageFrame>) -> Result<(), PeerLoss> {
        let Self { peer, incoming } = self;
        let (peer, links) = (*peer, &mut incoming.links[peer.index()]);
        match (header, frame) {
            (MessageHeader::Message { tag, n_bytes, .. }, Some(frame)) if tag.is_control() => {
                incoming.keep_notice(peer, frame, n_bytes);
            }
            (MessageHeader::Message { tag, n_bytes, number, matched, slot }, Some(frame)) => {
                let is_senders = slot.is_some();
                links.store(
                    tag,
                    number,
                    ReceivedMessage { frame, n_bytes, matched, is_senders },
                )?;
                incoming.deliver(peer, tag);
            }
            (MessageHeader::Returned { slot, .. }, _) => {
                let IncomingMessages { memory, exchanged, .. } = &mut **incoming;
                let n_lent = &mut exchanged[peer.index()].n_lent;
                let n_left = n_lent.checked_sub(1).ok_or(ProtocolViolation::UnexpectedSlot)?;
                let memory = memory.as_mut().ok_or(ProtocolViolation::UnexpectedSlot)?;
                let frame = memory.frame(slot).ok_or(ProtocolViolation::UnexpectedSlot)?;
                memory.release(frame);
                *n_lent = n_left;
            }
            (MessageHeader::Answer { tag }, _) => {
                let buffer =
                    links.of(tag).awaits.take().ok_or(ProtocolViolation::UnexpectedAnswer)?;
                let matched = true;
                incoming.events.push_back(Event::Released { to: peer, tag, buffer, matched });
            }
            _ => {}
        }
        Ok(())
    }
}

impl IncomingMessages {
    /// Creates the state of one of `size` ranks.
    pub(crate) fn new(size: usize, frame_bytes: usize, link_depth: usize) -> Self {
        Self {
            links: (0..size).map(|_| PeerLinks::new(link_depth.max(1))).collect(),
            events: VecDeque::new(),
            to_answer: Vec::new(),
            notices: VecDeque::new(),
            notice_buffer: None,
            spare: Vec::new(),
            frame_bytes,
            failed: None,
            memory: None,
            exchanged: (0..size).map(|_| ExchangedSlots::default()).collect(),
        }
    }

    /// Allocates a frame, in shared memory if there is some for frames of this size.
    pub(crate) fn allocate(&mut self, n_bytes: usize) -> Option<MessageFrame> {
        let memory = self.memory.as_mut().filter(|_| n_bytes == self.frame_bytes);
        let shared = memory.and_then(NodeMemory::allocate);
        shared.or_else(|| HeapFrame::try_new(n_bytes).map(MessageFrame::from))
    }

    /// Delivers the next message of a link, if it has arrived and a receive is posted.
    pub(crate) fn deliver(&mut self, from: Rank, tag: Tag) {
        let Some((mut posted, arrived)) = self.links[from.index()].of(tag).take() else { return };
        let ReceivedMessage { frame, n_bytes, matched, is_senders } = arrived;
        if matched {
            self.to_answer.push((from, Some(MessageHeader::Answer { tag })));
        }
        let have = posted.as_ref().len();
        // A buffer on the heap cannot take the place of a frame that goes back to its sender.
        let can_swap = !is_senders || posted.slot().is_some();
        let (buffer, left) = if have == frame.as_ref().len() && can_swap {
            (frame, posted)
        } else if n_bytes <= have {
            posted.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
            (posted, frame)
        } else {
            self.failed = Some(Error::Truncated { from, n_bytes, have });
            self.events.push_back(Event::Returned { buffer: posted });
            return self.put_away(frame, from, is_senders);
        };
        self.put_away(left, from, is_senders);
        self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
    }

    /// Puts a frame away that a message has left over. It goes to the message's sender if the
    /// message came in a frame of the sender.
    fn put_away(&mut self, frame: MessageFrame, from: Rank, is_senders: bool) {
        match frame.slot() {
            Some(slot) if is_senders => {
                let to_return = &mut self.exchanged[from.index()].to_return;
                to_return.push(slot);
                if to_return.len() == SLOTS_AT_ONCE {
                    self.to_answer.push((from, None));
                }
            }
            _ => self.keep(frame),
        }
    }

    /// Keeps a frame for later messages, unless its size is wrong or enough are kept.
    fn keep(&mut self, frame: MessageFrame) {
        if frame.as_ref().len() == self.frame_bytes && self.spare.len() < MAX_SPARE {
            self.spare.push(frame);
        } else if let Some(memory) = &mut self.memory {
            memory.release(frame);
        }
    }

    /// Returns whether a frame is plain memory, or lies in the memory of this node's ranks.
    pub(crate) fn accepts(&self, frame: &MessageFrame) -> bool {
        match &self.memory {
            Some(memory) => memory.accepts(frame),
            None => frame.slot().is_none(),
        }
    }

    /// Lends the slot of a frame to a peer, if the peer shares memory with this rank. Returns the
    /// slot, and another frame in its place.
    pub(crate) fn lend(
        &mut self,
        to: Rank,
        frame: &MessageFrame,
    ) -> Option<(SlotId, MessageFrame)> {
        let slot = frame.slot()?;
        let memory = self.memory.as_mut().filter(|memory| memory.contains(to))?;
        let other = memory.allocate()?;
        self.exchanged[to.index()].n_lent += 1;
        Some((slot, other))
    }

    fn keep_notice(&mut self, from: Rank, frame: MessageFrame, n_bytes: usize) {
        let is_theirs = |notice: &(Rank, MessageFrame, usize)| notice.0 == from;
        if self.notices.len() >= NOTICES_PER_RANK
            && self.notices.iter().filter(|notice| is_theirs(notice)).count() >= NOTICES_PER_RANK
            && let Some(oldest) = self.notices.iter().position(is_theirs)
        {
            self.notices.remove(oldest);
        }
        self.notices.push_back((from, frame, n_bytes));
        self.deliver_notice();
    }

    pub(crate) fn deliver_notice(&mut self) {
        if let (Some(buffer), Some(_)) = (&mut self.notice_buffer, self.notices.front())
            && let Some((from, frame, n_bytes)) = self.notices.pop_front()
        {
            // The endpoint may post a shorter buffer, to receive only the start of a notice.
            let n_bytes = n_bytes.min(buffer.as_ref().len());
            buffer.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
            let buffer = self.notice_buffer.take();
            let received = |buffer| Event::Received { from, tag: Tag::CONTROL, buffer, n_bytes };
            self.events.extend(buffer.map(received));
        }
    }
}
