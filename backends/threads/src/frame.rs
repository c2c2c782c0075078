//! The message buffer: a fixed number of bytes on the heap, aligned, passed on by ownership.
//!
//! A frame is allocated once, goes round between pool, ranks and links, and is freed with its world.
//! Alignment comes from allocating a little more and starting at the first aligned byte, which keeps
//! this file free of `unsafe`.

use std::fmt;
use std::sync::Weak;

use foldwire::transport::FRAME_ALIGN;

use crate::Error;
use crate::pool::Pool;

/// A message buffer of the world's frame size, aligned to 64 bytes.
///
/// Taken from [`poll_frame`](foldwire::transport::Transport::poll_frame) or received; given back by
/// sending or recycling it. Dropping it frees its memory and lets the pool allocate another.
pub struct Frame {
    storage: Box<[u8]>,
    /// First aligned byte of `storage`.
    start: usize,
    /// Weak, because the pool owns idle frames.
    home: Weak<Pool>,
}

impl Frame {
    /// Allocates a frame. Writing the zeros touches every page now rather than in the first encoder.
    pub(crate) fn allocate(n_bytes: usize, home: Weak<Pool>) -> Result<Self, Error> {
        let n_stored = n_bytes + FRAME_ALIGN - 1;
        let mut storage = Vec::new();
        storage.try_reserve_exact(n_stored).map_err(|_| Error::OutOfMemory { need: n_bytes })?;
        storage.resize(n_stored, 0);
        let storage = storage.into_boxed_slice();
        let start = storage.as_ptr().addr().wrapping_neg() % FRAME_ALIGN;
        Ok(Self { storage, start, home })
    }

    fn n_bytes(&self) -> usize {
        self.storage.len() - (FRAME_ALIGN - 1)
    }

    /// Whether this frame came from the pool that `pool` points to.
    pub(crate) fn belongs_to(&self, pool: *const Pool) -> bool {
        std::ptr::eq(self.home.as_ptr(), pool)
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.n_bytes()]
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.n_bytes();
        &mut self.storage[self.start..end]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(pool) = self.home.upgrade() {
            pool.forget_one();
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("n_bytes", &self.n_bytes()).finish_non_exhaustive()
    }
}
