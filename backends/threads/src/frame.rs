//! The message buffer: a fixed number of aligned bytes on the heap, passed on by ownership.
//!
//! A frame is allocated once, moves between pool, ranks and links, and is freed with its world.

use std::fmt;
use std::sync::Weak;

use foldwire::HeapFrame;

use crate::Error;
use crate::pool::FramePool;

/// A message buffer of the world's frame size, aligned to 64 bytes.
///
/// A frame comes from [`poll_frame`](foldwire::transport::Transport::poll_frame) or from a receive,
/// and goes back when it is sent or recycled. Dropping it frees its memory and lets the pool
/// allocate another frame.
pub struct Frame(
    /// A pointer, because frames often move: between pool, ranks and links.
    Box<FrameBuffer>,
);

struct FrameBuffer {
    memory: HeapFrame,
    /// Weak, because the pool owns idle frames.
    home: Weak<FramePool>,
}

impl Frame {
    pub(crate) fn allocate(n_bytes: usize, home: Weak<FramePool>) -> Result<Self, Error> {
        let memory = HeapFrame::try_new(n_bytes).ok_or(Error::OutOfMemory { need: n_bytes })?;
        Ok(Self(Box::new(FrameBuffer { memory, home })))
    }

    /// Returns whether this frame came from the pool that `pool` points to.
    pub(crate) fn belongs_to(&self, pool: *const FramePool) -> bool {
        std::ptr::eq(self.0.home.as_ptr(), pool)
    }
}

impl AsRef<[u8]> for Frame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.0.memory.as_ref()
    }
}

impl AsMut<[u8]> for Frame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.memory.as_mut()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(pool) = self.0.home.upgrade() {
            pool.forget_one();
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("n_bytes", &self.as_ref().len()).finish_non_exhaustive()
    }
}
