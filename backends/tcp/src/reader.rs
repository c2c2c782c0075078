//! Bytes of one connection into messages, whoever reads them.
//!
//! A read puts the rest of a frame into that frame, and what follows into a short buffer, where the
//! next header is found. So only the first few KiB of a frame are ever copied.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use foldwire::HeapFrame;

use crate::error::Loss;
use crate::header::{HEADER_BYTES, Header};

/// Bytes that are read before it is known what they are.
const INBOX_BYTES: usize = 4096;

/// Who takes what comes.
pub(crate) trait Receiver {
    /// Looks at a header, and gives a frame if a message follows.
    fn admit(&mut self, header: Header) -> Result<Option<HeapFrame>, Loss>;
    /// Takes what the header announced; with a message the frame that was given for it.
    fn take(&mut self, header: Header, frame: Option<HeapFrame>) -> Result<(), Loss>;
}

/// A message of which some is here.
struct Incoming {
    header: Header,
    frame: HeapFrame,
    n_bytes: usize,
    n_here: usize,
}

/// What a connection has read.
pub(crate) struct Reader {
    inbox: Box<[u8; INBOX_BYTES]>,
    /// What of the inbox is to be looked at.
    unread: Range<usize>,
    incoming: Option<Incoming>,
    frame_bytes: usize,
    /// The other side has said that nothing more comes.
    pub(crate) said_goodbye: bool,
}

impl Reader {
    /// For a peer whose frames have so many bytes.
    pub(crate) fn new(frame_bytes: usize) -> Self {
        Self {
            inbox: Box::new([0; INBOX_BYTES]),
            unread: 0..0,
            incoming: None,
            frame_bytes,
            said_goodbye: false,
        }
    }

    /// Reads once, after all that was read has been [parsed](Self::parse). How many bytes, and
    /// whether there was no room for more.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        // What is left of the inbox is less than a header.
        self.inbox.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let body = match &mut self.incoming {
            Some(Incoming { frame, n_bytes, n_here, .. }) => &mut frame.as_mut()[*n_here..*n_bytes],
            None => &mut [],
        };
        let n_body = body.len();
        let rest = &mut self.inbox[self.unread.end..];
        let n_room = n_body + rest.len();
        let n_bytes = read(&mut [IoSliceMut::new(body), IoSliceMut::new(rest)])?;
        if let Some(incoming) = &mut self.incoming {
            incoming.n_here += n_bytes.min(n_body);
        }
        self.unread.end += n_bytes.saturating_sub(n_body);
        Ok((n_bytes, n_bytes == n_room))
    }

    /// Makes messages of what was read.
    pub(crate) fn parse(&mut self, receiver: &mut impl Receiver) -> Result<(), Loss> {
        loop {
            if let Some(incoming) = &mut self.incoming {
                let n_missing = incoming.n_bytes - incoming.n_here;
                let n_here = n_missing.min(self.unread.len());
                let from = self.unread.start..self.unread.start + n_here;
                incoming.frame.as_mut()[incoming.n_here..][..n_here]
                    .copy_from_slice(&self.inbox[from]);
                incoming.n_here += n_here;
                self.unread.start += n_here;
                if n_here < n_missing {
                    return Ok(());
                }
                if let Some(Incoming { header, frame, .. }) = self.incoming.take() {
                    receiver.take(header, Some(frame))?;
                }
            }
            let unread = &self.inbox[self.unread.clone()];
            let Some((bytes, _)) = unread.split_first_chunk() else { return Ok(()) };
            let header = Header::decode(*bytes, self.frame_bytes)?;
            self.unread.start += HEADER_BYTES;
            match (receiver.admit(header)?, header) {
                (Some(frame), Header::Message { n_bytes, .. }) => {
                    self.incoming = Some(Incoming { header, frame, n_bytes, n_here: 0 });
                }
                (_, Header::Goodbye) => self.said_goodbye = true,
                _ => receiver.take(header, None)?,
            }
        }
    }
}
