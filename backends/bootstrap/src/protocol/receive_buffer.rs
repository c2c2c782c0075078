//! Buffer of received bytes, from which messages are parsed.

use std::mem;

use crate::message::{self, Malformed, Message};

/// Maximum bytes of one read from a connection.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// Bytes received on one connection and not yet taken as messages.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    /// Buffer that never shrinks. `n_taken..n_read` holds messages not yet taken; the last one may
    /// be incomplete.
    bytes: Vec<u8>,
    n_taken: usize,
    n_read: usize,
}

impl ReceiveBuffer {
    /// Lets `read` fill a buffer of [`CHUNK_BYTES`], and returns the number of bytes that it
    /// reports.
    ///
    /// # Errors
    /// If `read` fails; it must then have filled nothing.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.bytes.copy_within(self.n_taken..self.n_read, 0);
        self.n_read -= mem::take(&mut self.n_taken);
        let room = self.n_read..self.n_read + CHUNK_BYTES;
        if self.bytes.len() < room.end {
            self.bytes.resize(room.end, 0);
        }
        let n_bytes = read(&mut self.bytes[room])?;
        self.n_read += n_bytes.min(CHUNK_BYTES);
        Ok(n_bytes)
    }

    /// Takes the next complete message, of at most `longest` bytes.
    ///
    /// # Errors
    /// If the bytes are no message. The connection cannot be used after that.
    pub fn next(&mut self, longest: usize) -> Result<Option<Message<'_>>, Malformed> {
        let waiting = &self.bytes[self.n_taken..self.n_read];
        let found = message::parse_within(waiting, longest)?;
        Ok(found.map(|(message, n_bytes)| {
            self.n_taken += n_bytes;
            message
        }))
    }

    /// Bytes not yet taken.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.n_read - self.n_taken
    }

    /// Discards the bytes not yet taken.
    pub fn clear(&mut self) {
        self.n_taken = 0;
        self.n_read = 0;
    }
}
