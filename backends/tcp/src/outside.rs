//! What a rank reads of others, without sockets, as fuzzing needs it. No part of the interface.

mod offers;
#[cfg(feature = "noise")]
mod sealed;

use foldwire::HeapFrame;
use foldwire::transport::{Rank, Tag};
use foldwire_bootstrap::Token;
use foldwire_messaging::Event;

use crate::error::Loss;
use crate::greeting::{Fault, Hello, Talk};
use crate::header::Header;
use crate::inbox::{Inbox, OfPeer};
use crate::reader::Reader;
use crate::secret::{NONCE_BYTES, Secret};

pub use offers::{Offered, Waiting, hello, hello_again};
#[cfg(feature = "noise")]
pub use sealed::Sealed;

const PEER: Rank = Rank(0);

/// The header of a message.
#[must_use]
pub fn message(tag: Tag, n_bytes: usize, number: u32, matched: bool) -> Vec<u8> {
    Header::Message { tag, n_bytes, number, matched }.encode().to_vec()
}

/// The header that answers a matched message.
#[must_use]
pub fn answer(tag: Tag) -> Vec<u8> {
    Header::Answer { tag }.encode().to_vec()
}

/// The last header of a connection.
#[must_use]
pub fn goodbye() -> Vec<u8> {
    Header::Goodbye.encode().to_vec()
}

/// A rank's side of its connections with one peer.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct Hearing {
    readers: Vec<Reader>,
    inbox: Inbox,
}

/// What came of what a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message for a receive that was posted.
    Message(Tag, Vec<u8>),
    /// A matched message was answered.
    Answer(Tag),
}

impl Hearing {
    /// Of a peer with these connections and frames.
    #[must_use]
    pub fn new(n_streams: usize, frame_bytes: usize, link_depth: usize) -> Self {
        let readers = (0..n_streams).map(|_| Reader::new(frame_bytes)).collect();
        Self { readers, inbox: Inbox::new(1, frame_bytes, link_depth) }
    }

    /// Posts a receive, if none is posted, and one for a notice likewise.
    pub fn post(&mut self, tag: Tag) {
        let frame = HeapFrame::new(self.inbox.frame_bytes);
        if tag.is_control() {
            self.inbox.notice_buffer.get_or_insert(frame);
            self.inbox.deliver_notice();
        } else {
            self.inbox.links[PEER.index()].of(tag).posted.get_or_insert(frame);
            self.inbox.deliver(PEER, tag);
        }
    }

    /// Notes that a matched message has been sent to the peer.
    pub fn sent_matched(&mut self, tag: Tag) {
        let frame = HeapFrame::new(self.inbox.frame_bytes);
        self.inbox.links[PEER.index()].of(tag).awaits = Some(frame);
    }

    /// Reads bytes of a connection.
    ///
    /// # Errors
    /// Why the peer is cut off.
    pub fn hear(&mut self, stream: usize, mut bytes: &[u8]) -> Result<(), Loss> {
        let Self { readers, inbox } = self;
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
            readers[stream].parse(&mut OfPeer { peer: PEER, inbox })?;
        }
        Ok(())
    }

    /// The next thing that came of it.
    pub fn next_heard(&mut self) -> Option<Heard> {
        match self.inbox.happened.pop_front()? {
            Event::Received { tag, buffer, n_bytes, .. } => {
                Some(Heard::Message(tag, buffer.as_ref()[..n_bytes].to_vec()))
            }
            Event::Released { tag, .. } => Some(Heard::Answer(tag)),
            other => unreachable!("{other:?} comes of no bytes"),
        }
    }
}

/// One side of a greeting.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct Side {
    talk: Talk,
    encrypts: bool,
    secret: Secret,
}

impl Side {
    /// The side that connects, or the other, with a session's secret. Both encrypt (feature
    /// `noise`), or neither.
    #[must_use]
    pub fn new(connects: bool, encrypts: bool, token: &Token) -> Self {
        let hello = Hello { from: Rank(2), to: Rank(1), stream: 0, encrypts };
        let talk = if connects { Talk::connect(hello) } else { Talk::accept() };
        Self { talk, encrypts, secret: Secret::new(Some(token), &[[7; NONCE_BYTES]]) }
    }

    /// Bytes that it waits for; none if it is over.
    #[must_use]
    pub const fn n_needed(&self) -> Option<usize> {
        self.talk.n_needed(self.encrypts)
    }

    /// Hears so many bytes, and says something; `None` if they are a stranger's.
    pub fn hear(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.talk.hear(bytes, &self.secret, self.encrypts) {
            Ok(()) => Some(std::mem::take(&mut self.talk.outbox)),
            Err(Fault::Stranger) => None,
            Err(Fault::Broken(error)) => panic!("no random numbers: {error}"),
        }
    }

    /// Whether the other side has shown that it knows the secret.
    pub fn trusts(&mut self) -> bool {
        self.talk.take_end().is_some()
    }
}
