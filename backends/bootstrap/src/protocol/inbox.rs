//! Bytes that have come, and messages made of them.

use crate::message::{self, Malformed, Message};

/// Bytes asked of a connection at a time.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// What one connection has brought and nobody has taken yet.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Read up to `n_read`, the rest an incomplete message or one that nobody has taken.
    bytes: Vec<u8>,
    n_read: usize,
}

impl Inbox {
    /// Lets `read` fill some of [`CHUNK_BYTES`]; it says how many, and so does this.
    ///
    /// # Errors
    /// Those of `read`, which has then filled nothing.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.bytes.drain(..self.n_read);
        self.n_read = 0;
        let n_before = self.bytes.len();
        self.bytes.resize(n_before + CHUNK_BYTES, 0);
        let result = read(&mut self.bytes[n_before..]);
        self.bytes.truncate(n_before + *result.as_ref().unwrap_or(&0));
        result
    }

    /// The next whole message, for one who accepts none of more than `longest` bytes.
    ///
    /// # Errors
    /// When what has come is none; the connection is of no more use.
    pub fn next(&mut self, longest: usize) -> Result<Option<Message<'_>>, Malformed> {
        let found = message::parse_within(&self.bytes[self.n_read..], longest)?;
        Ok(found.map(|(message, n_bytes)| {
            self.n_read += n_bytes;
            message
        }))
    }

    /// Bytes that wait.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.bytes.len() - self.n_read
    }

    /// Throws away what waits.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.n_read = 0;
    }
}
