//! What a rank reads of others, without sockets, as fuzzing needs it. No part of the interface.

#[cfg(feature = "noise")]
mod encrypted;
mod offers;

use foldwire::HeapFrame;
use foldwire::transport::{Rank, Tag};
use foldwire_bootstrap::Token;
use foldwire_messaging::Event;

use crate::error::PeerLoss;
use crate::handshake::{HandshakeError, HandshakeSide, Hello};
use crate::header::MessageHeader;
use crate::incoming::{IncomingMessages, PeerReceiver};
use crate::reader::MessageReader;
use crate::secret::{NONCE_BYTES, SessionSecret};

#[cfg(feature = "noise")]
pub use encrypted::EncryptedEnd;
pub use offers::{ExpectedConnections, OpaqueOffer, hello, reencode_hello};

const PEER: Rank = Rank(0);

/// The header of a message.
#[must_use]
pub fn message(tag: Tag, n_bytes: usize, number: u32, matched: bool) -> Vec<u8> {
    MessageHeader::Message { tag, n_bytes, number, matched }.encode().to_vec()
}

/// The header that answers a matched message.
#[must_use]
pub fn answer(tag: Tag) -> Vec<u8> {
    MessageHeader::Answer { tag }.encode().to_vec()
}

/// The last header of a connection.
#[must_use]
pub fn goodbye() -> Vec<u8> {
    MessageHeader::Goodbye.encode().to_vec()
}

/// A rank's side of its connections with one peer.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct PeerInput {
    readers: Vec<MessageReader>,
    incoming: IncomingMessages,
}

/// What came of what a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A message for a receive that was posted.
    Message(Tag, Vec<u8>),
    /// A matched message was answered.
    Answer(Tag),
}

impl PeerInput {
    /// Of a peer with these connections and frames.
    #[must_use]
    pub fn new(n_streams: usize, frame_bytes: usize, link_depth: usize) -> Self {
        let readers = (0..n_streams).map(|_| MessageReader::new(frame_bytes)).collect();
        Self { readers, incoming: IncomingMessages::new(1, frame_bytes, link_depth) }
    }

    /// Posts a receive, if none is posted, and one for a notice likewise.
    pub fn post(&mut self, tag: Tag) {
        let frame = HeapFrame::new(self.incoming.frame_bytes);
        if tag.is_control() {
            self.incoming.notice_buffer.get_or_insert(frame);
            self.incoming.deliver_notice();
        } else {
            self.incoming.links[PEER.index()].of(tag).posted.get_or_insert(frame);
            self.incoming.deliver(PEER, tag);
        }
    }

    /// Notes that a matched message has been sent to the peer.
    pub fn sent_matched(&mut self, tag: Tag) {
        let frame = HeapFrame::new(self.incoming.frame_bytes);
        self.incoming.links[PEER.index()].of(tag).awaits = Some(frame);
    }

    /// Reads bytes of a connection.
    ///
    /// # Errors
    /// Why the peer is cut off.
    pub fn receive(&mut self, stream: usize, mut bytes: &[u8]) -> Result<(), PeerLoss> {
        let Self { readers, incoming } = self;
        while !bytes.is_empty() {
            let filled = readers[stream].fill(|slices| {
                let before = bytes.len();
                for slice in slices {
                    let (here, rest) = bytes.split_at(slice.len().min(bytes.len()));
                    slice[..here.len()].copy_from_slice(here);
                    bytes = rest;
                }
                Ok(before - bytes.len())
            });
            assert!(filled.is_ok_and(|(n_bytes, _)| n_bytes > 0), "there is always room");
            readers[stream].parse(&mut PeerReceiver { peer: PEER, incoming })?;
        }
        Ok(())
    }

    /// The next thing that came of it.
    pub fn next_event(&mut self) -> Option<PeerEvent> {
        match self.incoming.events.pop_front()? {
            Event::Received { tag, buffer, n_bytes, .. } => {
                Some(PeerEvent::Message(tag, buffer.as_ref()[..n_bytes].to_vec()))
            }
            Event::Released { tag, .. } => Some(PeerEvent::Answer(tag)),
            other => unreachable!("{other:?} comes of no bytes"),
        }
    }
}

/// One side of a greeting.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct HandshakeEnd {
    side: HandshakeSide,
    encrypts: bool,
    secret: SessionSecret,
}

impl HandshakeEnd {
    /// The side that connects, or the other, with a session's secret. Both encrypt (feature
    /// `noise`), or neither.
    #[must_use]
    pub fn new(connects: bool, encrypts: bool, token: &Token) -> Self {
        let hello = Hello { from: Rank(2), to: Rank(1), stream: 0, encrypts };
        let side = if connects { HandshakeSide::connect(hello) } else { HandshakeSide::accept() };
        Self { side, encrypts, secret: SessionSecret::new(Some(token), &[[7; NONCE_BYTES]]) }
    }

    /// Bytes that it waits for; none if it is over.
    #[must_use]
    pub const fn n_needed(&self) -> Option<usize> {
        self.side.n_needed(self.encrypts)
    }

    /// Hears so many bytes, and says something; `None` if they are a stranger's.
    pub fn receive(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.side.receive(bytes, &self.secret, self.encrypts) {
            Ok(()) => Some(std::mem::take(&mut self.side.outbox)),
            Err(HandshakeError::Untrusted) => None,
            Err(HandshakeError::Io(error)) => panic!("no random numbers: {error}"),
        }
    }

    /// Whether the other side has shown that it knows the secret.
    pub fn trusts(&mut self) -> bool {
        self.side.take_end().is_some()
    }
}
