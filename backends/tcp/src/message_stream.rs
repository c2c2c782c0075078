//! One connection between two ranks: a queue of messages to send, and a parser of received bytes
//! (`reader`).
//!
//! One system call sends several headers and frames without copies. The owner of the stream gets a
//! frame back when the system has taken all of its bytes.
//!
//! `mio` reports readiness once for each change, so a stream remembers it until a call would block.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};

use foldwire::transport::{Rank, Tag};
use foldwire_messaging::{Event, MessageFrame, SlotId};

use crate::byte_stream::ByteStream;
use crate::error::PeerLoss;
use crate::header::{HEADER_BYTES, MessageHeader, ProtocolViolation};
use crate::reader::{MessageReader, MessageSink};

/// Bytes to read from one connection before others are served.
const BYTES_AT_ONCE: usize = 512 << 10;
/// Most messages sent in one system call.
const MESSAGES_AT_ONCE: usize = 8;

/// A message to be sent.
pub(crate) struct QueuedMessage {
    pub(crate) tag: Tag,
    pub(crate) frame: MessageFrame,
    /// Bytes of the frame to send after the header: none if the message is in shared memory.
    pub(crate) n_bytes: usize,
    pub(crate) matched: bool,
}

impl QueuedMessage {
    /// Returns the event that gives the frame back to the user.
    pub(crate) fn released(self, to: Rank) -> Event<MessageFrame> {
        let Self { tag, frame: buffer, matched, .. } = self;
        Event::Released { to, tag, buffer, matched }
    }
}

/// An entry of the send queue: a header, and a message if one follows it.
struct QueueEntry {
    header: [u8; HEADER_BYTES],
    message: Option<QueuedMessage>,
}

impl QueueEntry {
    fn body(&self) -> &[u8] {
        self.message.as_ref().map_or(&[], |message| &message.frame.as_ref()[..message.n_bytes])
    }

    fn n_bytes(&self) -> usize {
        HEADER_BYTES + self.body().len()
    }
}

/// One connection.
pub(crate) struct MessageStream {
    pub(crate) connection: ByteStream,
    is_readable: bool,
    is_writable: bool,
    /// True if the peer has closed its side. Then reading must go on after a short read, to find
    /// the end of the connection.
    is_ending: bool,
    queue: VecDeque<QueueEntry>,
    /// Bytes written of the first entry in the queue.
    n_written: usize,
    /// Bytes in the queue that are not yet written.
    n_queued: usize,
    /// Number of slots returned to the peer.
    n_returned: u32,
    /// Messages that `connection` has taken, but the system has not.
    handed_on: VecDeque<QueuedMessage>,
    pub(crate) reader: MessageReader,
}

impl MessageStream {
    pub(crate) fn new(connection: ByteStream, frame_bytes: usize) -> Self {
        Self {
            connection,
            is_readable: true,
            is_writable: true,
            is_ending: false,
            queue: VecDeque::new(),
            n_written: 0,
            n_queued: 0,
            n_returned: 0,
            handed_on: VecDeque::new(),
            reader: MessageReader::new(frame_bytes),
        }
    }

    /// Records readiness that the system reports.
    pub(crate) const fn note_readiness(
        &mut self,
        is_readable: bool,
        is_writable: bool,
        is_ending: bool,
    ) {
        self.is_readable |= is_readable;
        self.is_writable |= is_writable;
        self.is_ending |= is_ending;
    }

    /// Returns whether there may be bytes to read.
    pub(crate) const fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Bytes in the queue that are not yet written.
    pub(crate) const fn n_queued(&self) -> usize {
        self.n_queued
    }

    /// Returns whether the system has taken everything.
    pub(crate) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.handed_on.is_empty() && self.connection.is_flushed()
    }

    /// Returns whether the peer's system has everything.
    pub(crate) fn is_delivered(&self) -> bool {
        self.is_flushed() && self.connection.is_delivered()
    }

    /// Queues a slot for the peer, ahead of messages that the stream has not begun to send.
    pub(crate) fn return_slot(&mut self, slot: SlotId) {
        let header = MessageHeader::Returned { slot, number: self.n_returned };
        self.n_returned = self.n_returned.wrapping_add(1);
        self.push(header, None, true);
    }

    /// Queues a header and its message. With `first`, they pass ordinary messages that the stream
    /// has not begun to send.
    pub(crate) fn push(
        &mut self,
        header: MessageHeader,
        message: Option<QueuedMessage>,
        first: bool,
    ) {
        let outgoing = QueueEntry { header: header.encode(), message };
        self.n_queued += outgoing.n_bytes();
        // Earlier urgent entries stay in front, which keeps the order within each tag.
        let is_urgent = |outgoing: &QueueEntry| {
            outgoing.message.as_ref().is_none_or(|message| message.tag.is_control())
        };
        let at = match first {
            false => self.queue.len(),
            true => {
                let n_begun = usize::from(self.n_written > 0);
                let urgent = self.queue.iter().skip(n_begun).take_while(|each| is_urgent(each));
                n_begun + urgent.count()
            }
        };
        self.queue.insert(at, outgoing);
    }

    /// Sends as much as the system takes, and passes completely sent messages to `on_sent`.
    pub(crate) fn write(&mut self, mut on_sent: impl FnMut(QueuedMessage)) -> Result<(), PeerLoss> {
        while self.is_writable && !self.is_flushed() {
            // The peer may answer a message as soon as it has the last record of it. So that record
            // ends, and its messages are passed on, before another one begins.
            let written = match self.queue.is_empty() || !self.connection.is_flushed() {
                true => self.connection.flush().map(|()| 0),
                false => self.write_some(),
            };
            match written {
                Ok(n_bytes) => self.advance(n_bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(PeerLoss::Broken(error.kind())),
            }
            if self.connection.is_flushed() {
                self.handed_on.drain(..).for_each(&mut on_sent);
            }
        }
        Ok(())
    }

    fn write_some(&mut self) -> std::io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); 2 * MESSAGES_AT_ONCE];
        let mut n_skipped = self.n_written;
        let parts = self.queue.iter().flat_map(|outgoing| [&outgoing.header[..], outgoing.body()]);
        let mut n_slices = 0;
        for (slice, part) in slices.iter_mut().zip(parts) {
            let n_left_out = n_skipped.min(part.len());
            n_skipped -= n_left_out;
            *slice = IoSlice::new(&part[n_left_out..]);
            n_slices += 1;
        }
        self.connection.write(&slices[..n_slices])
    }

    fn advance(&mut self, n_bytes: usize) {
        self.n_written += n_bytes;
        self.n_queued -= n_bytes;
        while let Some(first) = self.queue.front()
            && self.n_written >= first.n_bytes()
        {
            self.n_written -= first.n_bytes();
            let sent = self.queue.pop_front();
            self.handed_on.extend(sent.and_then(|outgoing| outgoing.message));
        }
    }

    /// Stops sending for good, and returns the messages that were not completely sent. The peer
    /// may have the beginning of one, so it must take no other bytes for the rest.
    pub(crate) fn discard_unsent(&mut self) -> impl Iterator<Item = QueuedMessage> {
        self.connection.finish();
        self.is_writable = false;
        (self.n_written, self.n_queued) = (0, 0);
        let queued = self.queue.drain(..).filter_map(|outgoing| outgoing.message);
        self.handed_on.drain(..).chain(queued)
    }

    /// Reads the available bytes, up to about [`BYTES_AT_ONCE`].
    ///
    /// # Errors
    /// If the connection has ended, or the peer has violated the protocol.
    pub(crate) fn read(&mut self, sink: &mut impl MessageSink) -> Result<(), PeerLoss> {
        let Self { connection, reader, .. } = self;
        let mut n_read = 0;
        loop {
            reader.parse(sink)?;
            if !self.is_readable || n_read >= BYTES_AT_ONCE {
                return Ok(());
            }
            match reader.fill(|slices| connection.read(slices)) {
                Ok((0, _)) => return Err(PeerLoss::Ended),
                Ok((n_bytes, is_full)) => {
                    n_read += n_bytes;
                    // A short read has emptied the socket. An encrypted channel may still have
                    // bytes.
                    if !is_full && connection.is_plain() && !self.is_ending {
                        self.is_readable = false;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => self.is_readable = false,
                    ErrorKind::Interrupted => {}
                    ErrorKind::InvalidData => return Err(ProtocolViolation::Forged.into()),
                    kind => return Err(PeerLoss::Broken(kind)),
                },
            }
        }
    }
}
