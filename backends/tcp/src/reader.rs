//! Parser of one connection's bytes, without a socket.
//!
//! A read puts the rest of a started message into its frame, and the following bytes into a short
//! buffer, which holds the next header. So at most the first few KiB of a frame are copied.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use foldwire_messaging::MessageFrame;

use crate::error::PeerLoss;
use crate::header::{HEADER_BYTES, MessageHeader, ProtocolViolation};

/// Bytes that are read beyond the current message.
const SHORT_BUFFER_BYTES: usize = 4096;

/// Consumer of parsed messages.
pub(crate) trait MessageSink {
    /// Checks a header, and returns a frame: for the message that follows, or with the message.
    fn admit(&mut self, header: MessageHeader) -> Result<Option<MessageFrame>, PeerLoss>;
    /// Takes a complete message in the frame that `admit` returned, or a header without a message.
    fn take(&mut self, header: MessageHeader, frame: Option<MessageFrame>) -> Result<(), PeerLoss>;
}

/// A message that has not arrived completely.
struct PartialMessage {
    header: MessageHeader,
    frame: MessageFrame,
    n_bytes: usize,
    n_here: usize,
}

/// State of the parser.
pub(crate) struct MessageReader {
    short_buffer: Box<[u8; SHORT_BUFFER_BYTES]>,
    /// Part of `short_buffer` that is not yet parsed.
    unread: Range<usize>,
    partial: Option<PartialMessage>,
    frame_bytes: usize,
    /// Number of slots that the peer has returned on this connection.
    n_returned: u32,
    /// True after the peer's goodbye.
    pub(crate) has_ended: bool,
}

impl MessageReader {
    /// Creates a parser for messages of at most `frame_bytes`.
    pub(crate) fn new(frame_bytes: usize) -> Self {
        Self {
            short_buffer: Box::new([0; SHORT_BUFFER_BYTES]),
            unread: 0..0,
            partial: None,
            frame_bytes,
            n_returned: 0,
            has_ended: false,
        }
    }

    /// Calls `read` once. All bytes of earlier reads must have been [parsed](Self::parse). Returns
    /// the number of bytes read, and whether they filled the buffers.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        // The unparsed rest is shorter than a header.
        self.short_buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let body = match &mut self.partial {
            Some(PartialMessage { frame, n_bytes, n_here, .. }) => {
                &mut frame.as_mut()[*n_here..*n_bytes]
            }
            None => &mut [],
        };
        let n_body = body.len();
        let rest = &mut self.short_buffer[self.unread.end..];
        let n_room = n_body + rest.len();
        let n_bytes = read(&mut [IoSliceMut::new(body), IoSliceMut::new(rest)])?;
        if let Some(partial) = &mut self.partial {
            partial.n_here += n_bytes.min(n_body);
        }
        self.unread.end += n_bytes.saturating_sub(n_body);
        Ok((n_bytes, n_bytes == n_room))
    }

    /// Parses the bytes read so far, and passes complete messages to `sink`.
    pub(crate) fn parse(&mut self, sink: &mut impl MessageSink) -> Result<(), PeerLoss> {
        loop {
            if let Some(partial) = &mut self.partial {
                let n_missing = partial.n_bytes - partial.n_here;
                let n_here = n_missing.min(self.unread.len());
                let from = self.unread.start..self.unread.start + n_here;
                partial.frame.as_mut()[partial.n_here..][..n_here]
                    .copy_from_slice(&self.short_buffer[from]);
                partial.n_here += n_here;
                self.unread.start += n_here;
                if n_here < n_missing {
                    return Ok(());
                }
                if let Some(PartialMessage { header, frame, .. }) = self.partial.take() {
                    sink.take(header, Some(frame))?;
                }
            }
            let unread = &self.short_buffer[self.unread.clone()];
            let Some((bytes, _)) = unread.split_first_chunk() else { return Ok(()) };
            let header = MessageHeader::decode(*bytes, self.frame_bytes)?;
            self.unread.start += HEADER_BYTES;
            match (sink.admit(header)?, header) {
                (Some(frame), MessageHeader::Message { n_bytes, slot: None, .. }) => {
                    self.partial = Some(PartialMessage { header, frame, n_bytes, n_here: 0 });
                }
                (_, MessageHeader::Goodbye) => self.has_ended = true,
                // If it came twice, the slot would have two owners.
                (_, MessageHeader::Returned { number, .. }) if number != self.n_returned => {
                    return Err(ProtocolViolation::UnexpectedSlot.into());
                }
                (_, MessageHeader::Returned { .. }) => {
                    self.n_returned = self.n_returned.wrapping_add(1);
                    sink.take(header, None)?;
                }
                (frame, _) => sink.take(header, frame)?,
            }
        }
    }
}
