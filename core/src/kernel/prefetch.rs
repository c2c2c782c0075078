//! Asking the memory for blocks that will be needed soon.
//!
//! Kernels walk arrays that are often larger than any cache. Hardware follows such streams, but not
//! across pages of 4 KiB, where it starts anew and a kernel waits; and it fetches lines that are
//! about to be overwritten no earlier than the first store. On processors with much latency (many
//! cores, a mesh, a virtual machine) that is half of the time of an encoder. On other architectures
//! this does nothing.

use super::BLOCK;

/// Blocks from the one that is worked on to the one to ask for: 3 KiB of `f32`, some 150 ns.
pub(super) const AHEAD: usize = 24;

/// Asks for these values, to read them or to overwrite them.
#[inline]
pub(crate) fn values<T>(values: &[T]) {
    values.chunks(BLOCK).for_each(|block| self::block(block.as_ptr()));
}

/// Asks for the block of values at `at`, to read it or to overwrite it, wherever that is: a
/// prefetch cannot fault.
///
/// For lines that will be overwritten PREFETCHW would ask for them alone. It is a target feature of
/// its own, and compilers give this instruction instead where they may not suppose that feature.
#[inline(always)]
pub(super) fn block<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..BLOCK * size_of::<T>() / 64 {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = at.cast::<i8>().wrapping_add(64 * line);
        // SAFETY: every x86-64 processor has the instruction, and any address will do.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, BLOCK);
}
