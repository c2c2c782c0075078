//! Access for fuzzing to everything that parses bytes of peers, without sockets. Not part of the
//! public interface.

#[cfg(feature = "noise")]
mod encrypted;
mod offers;

use foldwire::HeapFrame;
use foldwire::transport::{Rank, Tag};
use foldwire_bootstrap::Token;
use foldwire_messaging::{Event, MessageFrame};

use crate::error::PeerLoss;
use crate::handshake::{HandshakeError, HandshakeSide, Hello};
use crate::header::MessageHeader;
use crate::incoming::{IncomingMessages, PeerReceiver};
use crate::reader::MessageReader;
use crate::secret::SessionSecret;

#[cfg(feature = "noise")]
pub use encrypted::EncryptedEnd;
pub use offers::{ExpectedConnections, OpaqueOffer, hello, reencode_hello};

const PEER: Rank = Rank(0);

/// Encodes the header of a message. `matched` requests an answer from the receiver.
#[must_use]
pub fn message(tag: Tag, n_bytes: usize, number: u32, matched: bool) -> Vec<u8> {
    MessageHeader::Message { tag, n_bytes, number, matched, slot: None }.encode().to_vec()
}

/// Encodes the header that answers a `matched` message.
#[must_use]
pub fn answer(tag: Tag) -> Vec<u8> {
    MessageHeader::Answer { tag }.encode().to_vec()
}

/// Encodes the last header of a connection.
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

/// Result of a peer's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A posted receive got a message.
    Message(Tag, Vec<u8>),
    /// The peer answered a `matched` message.
    Answer(Tag),
}

impl PeerInput {
    /// Creates the state for a peer with this number of connections, frame size and credit.
    #[must_use]
    pub fn new(n_streams: usize, frame_bytes: usize, link_depth: usize) -> Self {
        let readers = (0..n_streams).map(|_| MessageReader::new(frame_bytes)).collect();
        Self { readers, incoming: IncomingMessages::new(1, frame_bytes, link_depth) }
    }

    /// Posts a receive for a message or a notice, if none is posted.
    pub fn post(&mut self, tag: Tag) {
        let frame = MessageFrame::from(HeapFrame::new(self.incoming.frame_bytes));
        if tag.is_control() {
            self.incoming.notice_buffer.get_or_insert(frame);
            self.incoming.deliver_notice();
        } else {
            self.incoming.links[PEER.index()].of(tag).posted.get_or_insert(frame);
            self.incoming.deliver(PEER, tag);
        }
    }

    /// Records that a `matched` message was sent to the peer.
    pub fn sent_matched(&mut self, tag: Tag) {
        let frame = MessageFrame::from(HeapFrame::new(self.incoming.frame_bytes));
        self.incoming.links[PEER.index()].of(tag).awaits = Some(frame);
    }

    /// Processes bytes received on a connection.
    ///
    /// # Errors
    /// If the peer violates the protocol, which ends its connections.
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
            assert!(filled.is_ok_and(|(n_bytes, _)| n_bytes > 0), "there is always space");
            readers[stream].parse(&mut PeerReceiver { peer: PEER, incoming })?;
        }
        Ok(())
    }

    /// Takes the next result.
    pub fn next_event(&mut self) -> Option<PeerEvent> {
        match self.incoming.events.pop_front()? {
            Event::Received { tag, buffer, n_bytes, .. } => {
                Some(PeerEvent::Message(tag, buffer.as_ref()[..n_bytes].to_vec()))
            }
            Event::Released { tag, .. } => Some(PeerEvent::Answer(tag)),
            other => unreachable!("received bytes do not cause {other:?}"),
        }
    }
}

/// One side of a handshake.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct HandshakeEnd {
    side: HandshakeSide,
    encrypts: bool,
    secret: SessionSecret,
}

impl HandshakeEnd {
    /// Creates the connector's side or the acceptor's. With `encrypts` (feature `noise`), both
    /// sides must encrypt.
    #[must_use]
    pub fn new(connects: bool, encrypts: bool, token: &Token) -> Self {
        let hello = Hello { from: Rank(2), to: Rank(1), stream: 0, encrypts };
        let side = if connects { HandshakeSide::connect(hello) } else { HandshakeSide::accept() };
        Self { side, encrypts, secret: SessionSecret::new(Some(token), b"a group") }
    }

    /// Length in bytes of the next message, or `None` after the end.
    #[must_use]
    pub const fn n_needed(&self) -> Option<usize> {
        self.side.n_needed(self.encrypts)
    }

    /// Processes a message of that length and returns the reply, or `None` if the peer is
    /// untrusted.
    pub fn receive(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.side.receive(bytes, &self.secret, self.encrypts) {
            Ok(()) => Some(std::mem::take(&mut self.side.outbox)),
            Err(HandshakeError::Untrusted) => None,
            Err(HandshakeError::Io(error)) => panic!("no random numbers: {error}"),
        }
    }

    /// Returns whether the handshake has ended and the peer has proven to know the secret. True
    /// only once.
    pub fn trusts(&mut self) -> bool {
        self.side.take_end().is_some()
    }
}
