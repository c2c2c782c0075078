//! Messages received from all peers, and the events that result.
//!
//! Bytes are read into frames of this layer. When a message has arrived and its receive is posted,
//! the endpoint gets the frame, and this layer keeps the receive's buffer in exchange.

use std::collections::VecDeque;

use foldwire::HeapFrame;
use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag};
use foldwire_messaging::Event;

use crate::error::{Error, PeerLoss};
use crate::header::{MessageHeader, ProtocolViolation};
use crate::link::{PeerLinks, ReceivedMessage};
use crate::reader::MessageSink;

/// Most undelivered notices kept for each rank. After that, the oldest is dropped.
const NOTICES_PER_RANK: usize = 1024;
/// Most spare frames kept for later messages.
const MAX_SPARE: usize = 32;

/// Received messages and resulting events.
pub(crate) struct IncomingMessages {
    pub(crate) links: Vec<PeerLinks>,
    pub(crate) events: VecDeque<Event<HeapFrame>>,
    /// Matched messages that were delivered to their receives and must be answered.
    pub(crate) to_answer: Vec<(Rank, Tag)>,
    notices: VecDeque<(Rank, HeapFrame, usize)>,
    /// The posted receive for a notice.
    pub(crate) notice_buffer: Option<HeapFrame>,
    spare: Vec<HeapFrame>,
    pub(crate) frame_bytes: usize,
    pub(crate) failed: Option<Error>,
}

/// Receiver of one peer's messages.
pub(crate) struct PeerReceiver<'a> {
    pub(crate) peer: Rank,
    pub(crate) incoming: &'a mut IncomingMessages,
}

impl MessageSink for PeerReceiver<'_> {
    fn admit(&mut self, header: MessageHeader) -> Result<Option<HeapFrame>, PeerLoss> {
        let MessageHeader::Message { tag, number, .. } = header else { return Ok(None) };
        if tag.is_control() {
            return Ok(Some(HeapFrame::try_new(MIN_FRAME_BYTES).ok_or(PeerLoss::NoMemory)?));
        }
        self.incoming.links[self.peer.index()].admit(tag, number)?;
        let frame_bytes = self.incoming.frame_bytes;
        let frame = self.incoming.spare.pop().or_else(|| HeapFrame::try_new(frame_bytes));
        Ok(Some(frame.ok_or(PeerLoss::NoMemory)?))
    }

    fn take(&mut self, header: MessageHeader, frame: Option<HeapFrame>) -> Result<(), PeerLoss> {
        let Self { peer, incoming } = self;
        let (peer, links) = (*peer, &mut incoming.links[peer.index()]);
        match (header, frame) {
            (MessageHeader::Message { tag, n_bytes, .. }, Some(frame)) if tag.is_control() => {
                incoming.keep_notice(peer, frame, n_bytes);
            }
            (MessageHeader::Message { tag, n_bytes, number, matched }, Some(frame)) => {
                links.store(tag, number, ReceivedMessage { frame, n_bytes, matched })?;
                incoming.deliver(peer, tag);
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
        }
    }

    /// Delivers the next message of a link, if it has arrived and a receive is posted.
    pub(crate) fn deliver(&mut self, from: Rank, tag: Tag) {
        let Some((mut posted, arrived)) = self.links[from.index()].of(tag).take() else { return };
        let ReceivedMessage { frame, n_bytes, matched } = arrived;
        if matched {
            self.to_answer.push((from, tag));
        }
        let have = posted.as_ref().len();
        let buffer = if have == frame.as_ref().len() {
            self.keep(posted);
            frame
        } else if n_bytes <= have {
            posted.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
            self.keep(frame);
            posted
        } else {
            self.failed = Some(Error::Truncated { from, n_bytes, have });
            self.events.push_back(Event::Returned { buffer: posted });
            return self.keep(frame);
        };
        self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
    }

    /// Keeps a frame for later messages, unless its size is wrong or enough are kept.
    fn keep(&mut self, frame: HeapFrame) {
        if frame.as_ref().len() == self.frame_bytes && self.spare.len() < MAX_SPARE {
            self.spare.push(frame);
        }
    }

    fn keep_notice(&mut self, from: Rank, frame: HeapFrame, n_bytes: usize) {
        let is_theirs = |notice: &(Rank, HeapFrame, usize)| notice.0 == from;
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
