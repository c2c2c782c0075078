//! Software prefetching of blocks that a kernel needs soon.
//!
//! Kernels walk arrays that are often larger than any cache. Hardware prefetchers follow such
//! streams, but stop at the end of each 4 KiB page, so that the kernel waits there. Lines that a
//! kernel overwrites are not fetched before its first store to them. On processors with a high
//! memory latency (many cores, a mesh, a virtual machine), these waits take half of the time of an
//! encoder. On architectures other than x86-64, the functions here do nothing.

use super::BLOCK;

/// Distance from the current block to the block to prefetch: 3 KiB of `f32`, about 150 ns.
pub(super) const AHEAD: usize = 24;

/// Prefetches values that will be read or overwritten.
#[inline]
pub(crate) fn values<T>(values: &[T]) {
    values.chunks(BLOCK).for_each(|block| self::block(block.as_ptr()));
}

/// Prefetches the block of values at `at`, which will be read or overwritten. Any address is
/// allowed, because a prefetch cannot fault.
///
/// PREFETCHW would fetch lines for exclusive use, which suits overwriting. It is a separate target
/// feature, and without that feature compilers emit the plain prefetch instead.
#[inline(always)]
pub(super) fn block<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..BLOCK * size_of::<T>() / 64 {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = at.cast::<i8>().wrapping_add(64 * line);
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, BLOCK);
}
