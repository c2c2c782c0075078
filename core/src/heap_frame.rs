//! Frames in heap memory, for transports that need no special memory.

use crate::page_lock::PageLocks;
use crate::transport::FRAME_ALIGN;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Page size. A load and an earlier store look alike to the processor if their addresses differ by
/// a multiple of it.
///
/// Processors first compare only the low 12 bits of the two addresses, and delay the load if the
/// bits match (Intel's optimization manual: "4-KByte memory aliasing"). Allocators start all large
/// blocks at the same offset in a page. Without staggering, all operands of a fold would have
/// matching addresses, and the fold would take twice as long.
const PAGE: usize = 4096;
/// Frames of at least this many bytes begin at staggered offsets in a page.
const STAGGERED_FROM: usize = 4 * PAGE;
/// Offsets in a page at which staggered frames begin. Large arrays of callers begin near the start
/// of a page, so no offset is near it.
const PAGE_OFFSETS: [usize; 3] = [PAGE / 4, PAGE / 2, PAGE - PAGE / 4];

/// Approximate number of staggered frames so far. Threads may race: any offset is correct.
static N_STAGGERED: AtomicUsize = AtomicUsize::new(0);

/// Message buffer of fixed size and address, aligned as [`Transport::Frame`] requires.
///
/// The buffer is slightly larger than the frame, which starts at the first aligned byte. Moving a
/// `HeapFrame` does not move its bytes. Pages of a large frame are locked for devices that ask for
/// it (`device::lock_frames`).
///
/// # Examples
/// ```
/// use foldwire::HeapFrame;
///
/// let mut frame = HeapFrame::new(65_536);
/// frame.as_mut()[..5].copy_from_slice(b"hello");
/// assert_eq!(frame.as_ref().len(), 65_536);
/// ```
///
/// [`Transport::Frame`]: crate::Transport::Frame
pub struct HeapFrame {
    /// Dropped before the memory.
    _locks: PageLocks,
    /// Ends where the frame ends.
    storage: Vec<u8>,
    start: usize,
}

impl HeapFrame {
    /// Allocates a frame of `n_bytes` zeros. Writing the zeros touches every page, so that the
    /// first call that uses the frame does not have to.
    ///
    /// # Panics
    /// If memory runs out.
    #[must_use]
    pub fn new(n_bytes: usize) -> Self {
        Self::try_new(n_bytes).expect("not enough memory for another frame")
    }

    /// Allocates a frame as [`new`](Self::new) does. Returns `None` if memory runs out.
    #[must_use]
    pub fn try_new(n_bytes: usize) -> Option<Self> {
        // The address of the frame, modulo `modulus`, is `offset`.
        let (offset, modulus) = if n_bytes < STAGGERED_FROM {
            (0, FRAME_ALIGN)
        } else {
            let nth = N_STAGGERED.load(Ordering::Relaxed);
            N_STAGGERED.store(nth.wrapping_add(1), Ordering::Relaxed);
            (PAGE_OFFSETS[nth % PAGE_OFFSETS.len()], PAGE)
        };
        let is_locked = n_bytes >= STAGGERED_FROM && PageLocks::are_wanted();
        let n_pages_bytes = offset.checked_add(n_bytes)?.checked_next_multiple_of(PAGE)?;
        let n_kept = if is_locked { n_pages_bytes } else { n_bytes };
        let n_stored = n_kept.checked_add(modulus - 1)?;
        let mut storage = Vec::new();
        storage.try_reserve_exact(n_stored).ok()?;
        storage.resize(n_stored, 0);
        let mut start = offset.wrapping_sub(storage.as_ptr().addr()) % modulus;
        let mut locks = PageLocks::default();
        if is_locked {
            // Whole pages, on which nothing but the frame lies.
            let first = storage.as_ptr().addr().wrapping_neg() % PAGE;
            locks = PageLocks::of(&storage[first..first + n_pages_bytes]);
            start = first + offset;
        }
        storage.truncate(start + n_bytes);
        Some(Self { _locks: locks, storage, start })
    }
}

impl AsRef<[u8]> for HeapFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.storage[self.start..]
    }
}

impl AsMut<[u8]> for HeapFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..]
    }
}

impl fmt::Debug for HeapFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapFrame").field("n_bytes", &self.as_ref().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    #[test]
    fn a_frame_is_aligned_and_has_its_length() {
        for n_bytes in [0, 1, 63, 64, 65, 4096, 100_001] {
            let mut frame = HeapFrame::new(n_bytes);
            assert_eq!(frame.as_ref().len(), n_bytes);
            assert_eq!(frame.as_mut().as_ptr().addr() % FRAME_ALIGN, 0);
            let place = frame.as_ref().as_ptr();
            let moved = Box::new(frame);
            assert_eq!((*moved).as_ref().as_ptr(), place);
        }
        assert!(HeapFrame::try_new(usize::MAX).is_none());
    }

    #[test]
    fn large_frames_begin_at_different_places_of_a_page() {
        // Other tests allocate frames at the same time, so offsets may repeat or be skipped.
        let frames: Vec<_> = (0..100).map(|_| HeapFrame::new(STAGGERED_FROM)).collect();
        let place = |frame: &HeapFrame| frame.as_ref().as_ptr().addr() % PAGE;
        for at in PAGE_OFFSETS {
            assert!(frames.iter().any(|frame| place(frame) == at), "{at}");
        }
    }
}
