//! Frames, and the pool that counts them.
//!
//! The pool hands out frames, takes them back, and counts frames that were dropped instead. On
//! networks with registered memory a dropped frame is a leak, so tests require that
//! [`SimPool::n_dropped`] is 0.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem;
use std::rc::Rc;

use foldwire::HeapFrame;

/// A message buffer of the simulated network, aligned as [`Transport`](foldwire::Transport)
/// requires.
pub struct Frame {
    /// `None` only after the pool has taken the memory back.
    memory: Option<HeapFrame>,
    pool: Rc<SimPool>,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], AsMut::as_mut)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("n_bytes", &self.as_ref().len()).finish_non_exhaustive()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.memory.is_some() {
            self.pool.n_dropped.set(self.pool.n_dropped.get() + 1);
        }
    }
}

/// Pool of all frames of a [`World`](crate::World).
#[derive(Debug)]
pub(crate) struct SimPool {
    n_bytes: usize,
    free: RefCell<Vec<HeapFrame>>,
    n_allocated: Cell<usize>,
    n_dropped: Cell<usize>,
}

impl SimPool {
    /// Creates a pool of frames of `n_bytes` bytes, without allocating any.
    pub(crate) fn new(n_bytes: usize) -> Rc<Self> {
        let (n_allocated, n_dropped) = (Cell::new(0), Cell::new(0));
        Rc::new(Self { n_bytes, free: RefCell::new(Vec::new()), n_allocated, n_dropped })
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Takes a frame. Its content is left over from its last use.
    ///
    /// # Panics
    /// If the process has no memory left.
    pub(crate) fn take(self: &Rc<Self>) -> Frame {
        let memory = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.n_allocated.set(self.n_allocated.get() + 1);
            HeapFrame::new(self.n_bytes)
        });
        Frame { memory: Some(memory), pool: Rc::clone(self) }
    }

    /// Takes a frame back. A frame of another pool is dropped and counts as dropped there.
    pub(crate) fn give(self: &Rc<Self>, mut frame: Frame) {
        if Rc::ptr_eq(self, &frame.pool) {
            self.free.borrow_mut().extend(mem::take(&mut frame.memory));
        }
    }

    /// Frames that ranks hold or that are in the network.
    pub(crate) fn n_in_use(&self) -> usize {
        self.n_allocated.get() - self.free.borrow().len() - self.n_dropped.get()
    }

    /// Frames that were dropped instead of returned.
    pub(crate) fn n_dropped(&self) -> usize {
        self.n_dropped.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::transport::FRAME_ALIGN;

    #[test]
    fn frames_are_aligned_counted_and_used_again() {
        let pool = SimPool::new(1024);
        let mut frames: Vec<Frame> = (0..3).map(|_| pool.take()).collect();
        assert!(frames.iter().all(|f| f.as_ref().as_ptr().addr() % FRAME_ALIGN == 0));
        frames[2].as_mut()[7] = 9;
        assert_eq!((pool.n_in_use(), pool.n_dropped()), (3, 0));
        pool.give(frames.pop().unwrap());
        assert_eq!(pool.take().as_ref()[7], 9);
        assert_eq!((pool.n_in_use(), pool.n_dropped()), (2, 1));
        SimPool::new(1024).give(frames.pop().unwrap());
        assert_eq!((pool.n_in_use(), pool.n_dropped()), (1, 2));
    }
}
