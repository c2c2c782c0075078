//! Buffers on the heap, for layers that need no registered memory.

use foldwire::transport::FRAME_ALIGN;

/// A buffer of fixed size and place, aligned for frames.
///
/// Alignment comes from allocating a little more and starting at the first aligned byte, which
/// needs no `unsafe`.
pub struct Memory {
    storage: Box<[u8]>,
    start: usize,
    n_bytes: usize,
}

impl Memory {
    /// Allocates `n_bytes`; `None` without memory. Writing the zeros touches every page now rather
    /// than in the first encoder.
    #[must_use]
    pub fn allocate(n_bytes: usize) -> Option<Self> {
        let n_stored = n_bytes.checked_add(FRAME_ALIGN - 1)?;
        let mut storage = Vec::new();
        storage.try_reserve_exact(n_stored).ok()?;
        storage.resize(n_stored, 0);
        let storage = storage.into_boxed_slice();
        let start = storage.as_ptr().addr().wrapping_neg() % FRAME_ALIGN;
        Some(Self { storage, start, n_bytes })
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.n_bytes]
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.n_bytes]
    }
}

impl core::fmt::Debug for Memory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Memory").field("n_bytes", &self.n_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_has_its_length() {
        for n_bytes in [0, 1, 63, 64, 65, 4096, 100_001] {
            let mut memory = Memory::allocate(n_bytes).unwrap();
            assert_eq!(memory.as_ref().len(), n_bytes);
            assert_eq!(memory.as_mut().as_ptr().addr() % FRAME_ALIGN, 0);
        }
        assert!(Memory::allocate(usize::MAX).is_none());
    }
}
