//! Frames on the heap, for transports that need no special memory.

use crate::transport::FRAME_ALIGN;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Processors compare addresses of loads and of stores before them by these many bytes' bits first,
/// and take those of equal ones for the same (Intel's optimization manual: "4-KByte memory
/// aliasing"). Large blocks of an allocator begin at the same place of a page, so that all of a
/// fold's operands do: it then takes twice as long.
const PAGE: usize = 4096;
/// Frames of so many bytes or more begin at different places of a page.
const STAGGERED_FROM: usize = 4 * PAGE;
/// Where in a page: not near its beginning, where large arrays of callers begin.
const PAGE_OFFSETS: [usize; 3] = [PAGE / 4, PAGE / 2, PAGE - PAGE / 4];

/// How many staggered frames there have been, or about as many: any place is right.
static N_STAGGERED: AtomicUsize = AtomicUsize::new(0);

/// A message buffer of fixed size and place, aligned as [`Transport::Frame`] must be.
///
/// Alignment comes from allocating a little more and starting at the first aligned byte, which
/// needs no `unsafe`. Moving the frame leaves its bytes where they are.
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
    storage: Box<[u8]>,
    start: usize,
    n_bytes: usize,
}

impl HeapFrame {
    /// A frame of `n_bytes` zeros. Writing them touches every page now rather than in the first
    /// encoder.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn new(n_bytes: usize) -> Self {
        Self::try_new(n_bytes).expect("memory for another frame")
    }

    /// As [`new`](Self::new); `None` without memory.
    #[must_use]
    pub fn try_new(n_bytes: usize) -> Option<Self> {
        let (place, grid) = if n_bytes < STAGGERED_FROM {
            (0, FRAME_ALIGN)
        } else {
            let nth = N_STAGGERED.load(Ordering::Relaxed);
            N_STAGGERED.store(nth.wrapping_add(1), Ordering::Relaxed);
            (PAGE_OFFSETS[nth % PAGE_OFFSETS.len()], PAGE)
        };
        let n_stored = n_bytes.checked_add(grid - 1)?;
        let mut storage = Vec::new();
        storage.try_reserve_exact(n_stored).ok()?;
        storage.resize(n_stored, 0);
        let storage = storage.into_boxed_slice();
        let start = place.wrapping_sub(storage.as_ptr().addr()) % grid;
        Some(Self { storage, start, n_bytes })
    }
}

impl AsRef<[u8]> for HeapFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.n_bytes]
    }
}

impl AsMut<[u8]> for HeapFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.n_bytes]
    }
}

impl fmt::Debug for HeapFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapFrame").field("n_bytes", &self.n_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Other tests make frames, too.
        let frames: Vec<_> = (0..100).map(|_| HeapFrame::new(STAGGERED_FROM)).collect();
        let place = |frame: &HeapFrame| frame.as_ref().as_ptr().addr() % PAGE;
        for at in PAGE_OFFSETS {
            assert!(frames.iter().any(|frame| place(frame) == at), "{at}");
        }
    }
}
