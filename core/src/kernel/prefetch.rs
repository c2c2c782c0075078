//! Software prefetching of blocks that a kernel needs soon.
//!
//! Kernels walk arrays that are often larger than any cache. Hardware prefetchers follow such
//! streams, but stop at the end of each 4 KiB page, so that the kernel waits there. Lines that a
//! kernel overwrites are not fetched before its first store to them. On processors with a high
//! memory latency (many cores, a mesh, a virtual machine), these waits take half of the time of an
//! encoder. On architectures other than x86-64, the functions here do nothing.

use super::BLOCK;
#[cfg(feature = "alloc")]
use super::Level;

/// Distance from the current block to the block to prefetch: 3 KiB of `f32`, about 150 ns.
pub(super) const AHEAD: usize = 24;

/// Longest message that is [claimed](claim), in bytes: what the smallest first-level caches hold.
/// Longer messages arrive sooner by the processor's own prefetching.
#[cfg(feature = "alloc")]
const MAX_CLAIMED: usize = 32 << 10;

/// Fetches a message that another core has written into a frame, for exclusive use.
///
/// This core reads the message, and soon writes its own next message into the same frame. A plain
/// read leaves the lines shared with the other core, so each later write has to ask that core
/// again. PREFETCHW takes the lines over at once, all of them side by side. An all-reduce of 1 to
/// 16 KiB between two ranks in shared memory then takes 0.7 times as long.
///
/// Processors with AVX2 have the instruction, or ignore it (Haswell).
#[cfg(feature = "alloc")]
#[inline]
pub(crate) fn claim(message: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if message.len() <= MAX_CLAIMED && Level::Avx2.is_available() {
        for line in message.chunks(64) {
            // SAFETY: the instruction accepts any address, and changes neither memory nor flags.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) line.as_ptr(),
                    options(nostack, preserves_flags, readonly));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (message, MAX_CLAIMED);
}

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
    for i in 0..BLOCK * size_of::<T>() / 64 {
        line(at.cast::<u8>().wrapping_add(64 * i));
    }
}

/// Prefetches the line of 64 bytes at `at`, as [`block`] does.
#[inline(always)]
pub(crate) fn line<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
