//! Bytes that have come, and messages made of them.

use std::mem;

use crate::message::{self, Malformed, Message};

/// Bytes asked of a connection at a time.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// What one connection has brought and nobody has taken yet.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    /// Room that stays. From `n_taken` up to `n_read` it holds an incomplete message, or messages
    /// that nobody has taken.
    bytes: Vec<u8>,
    n_taken: usize,
    n_read: usize,
}

impl ReceiveBuffer {
    /// Lets `read` fill some of [`CHUNK_BYTES`]; it says how many, and so does this.
    ///
    /// # Errors
    /// Those of `read`, which has then filled nothing.
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

    /// The next whole message, for one who accepts none of more than `longest` bytes.
    ///
    /// # Errors
    /// When what has come is none; the connection is of no more use.
    pub fn next(&mut self, longest: usize) -> Result<Option<Message<'_>>, Malformed> {
        let waiting = &self.bytes[self.n_taken..self.n_read];
        let found = message::parse_within(waiting, longest)?;
        Ok(found.map(|(message, n_bytes)| {
            self.n_taken += n_bytes;
            message
        }))
    }

    /// Bytes that wait.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.n_read - self.n_taken
    }

    /// Throws away what waits.
    pub fn clear(&mut self) {
        self.n_taken = 0;
        self.n_read = 0;
    }
}
