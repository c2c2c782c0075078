//! Writing results past the caches.
//!
//! A store to memory that no cache holds first reads the line that it overwrites. A non-temporal
//! store does not, and leaves in the caches what is there: worth it where an array is larger than
//! they are, and only there, as whoever reads it next takes it from memory. Processors gather such
//! stores by lines, so a line must be written in one go. On a virtual machine with Sapphire Rapids
//! cores this writes 22 GB/s on each of two cores instead of 10. On other architectures it is a
//! copy.

use super::BLOCK;

/// Where results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stores {
    /// Into the caches, as usual.
    #[default]
    Cached,
    /// Past them: for outputs that are larger. Changes no result.
    PastCaches,
}

/// Its end makes what this thread has written past the caches visible before all that it stores
/// later. Non-temporal stores are weakly ordered: without it another thread could be told of
/// results before it can see them.
#[derive(Debug)]
pub(crate) struct Fence(());

impl Fence {
    pub(crate) fn at_end() -> Self {
        Self(())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: SSE is part of x86-64.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies `src` past the caches.
///
/// # Panics
/// If the lengths differ.
#[cfg(target_arch = "x86_64")]
pub(crate) fn copy(src: &[u8], dst: &mut [u8], _: &Fence) {
    const LINE: usize = 64;
    assert_eq!(src.len(), dst.len());
    // Whole lines, so that the gathering of stores never ends early.
    let head = dst.as_ptr().align_offset(LINE).min(dst.len());
    let (src_head, src) = src.split_at(head);
    let (dst_head, dst) = dst.split_at_mut(head);
    dst_head.copy_from_slice(src_head);
    let (mut from, mut to) = (src.chunks_exact(LINE), dst.chunks_exact_mut(LINE));
    for (from, to) in from.by_ref().zip(to.by_ref()) {
        // SAFETY: both have 64 bytes; `to` begins at a multiple of 64.
        unsafe { stream::<LINE>(from.as_ptr(), to.as_mut_ptr()) };
    }
    to.into_remainder().copy_from_slice(from.remainder());
}

/// Copies `src`.
///
/// # Panics
/// If the lengths differ.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn copy(src: &[u8], dst: &mut [u8], _: &Fence) {
    dst.copy_from_slice(src);
}

/// Whether blocks can be written past the caches, the first of them at `at`.
pub(super) fn can_stream<T>(at: *const T) -> bool {
    cfg!(target_arch = "x86_64") && at.cast::<u8>().align_offset(VECTOR) == 0
}

/// Bytes of a vector store, and its alignment. Rust's allocators align long arrays so; a line that
/// two blocks share is complete before the processor gives up gathering it.
const VECTOR: usize = 16;

/// Copies one block.
///
/// # Safety
/// Both must be valid for 32 values; `dst` must pass [`can_stream`].
#[inline(always)]
pub(super) unsafe fn block<T>(src: *const T, dst: *mut T) {
    // SAFETY: by the caller's promise; a block of values of 2, 4 or 8 bytes is 1, 2 or 4 lines.
    unsafe {
        for line in 0..BLOCK * size_of::<T>() / 64 {
            stream::<64>(src.cast::<u8>().add(64 * line), dst.cast::<u8>().add(64 * line));
        }
    }
}

/// Copies `N` bytes, a multiple of 16, past the caches.
///
/// # Safety
/// Both must be valid for them; `dst` must be aligned to 16 bytes.
#[inline(always)]
unsafe fn stream<const N: usize>(src: *const u8, dst: *mut u8) {
    for at in (0..N).step_by(VECTOR) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by the caller's promise; SSE2 is part of x86-64.
        unsafe {
            use core::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
            _mm_stream_si128(dst.add(at).cast(), _mm_loadu_si128(src.add(at).cast()));
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: by the caller's promise.
        unsafe {
            dst.add(at).copy_from_nonoverlapping(src.add(at), VECTOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn copies_every_byte_and_no_other_at_any_alignment_and_length() {
        let src: Vec<u8> = (0..400u32).map(|i| (i * 7 + 1) as u8).collect();
        for from in [0, 1, 8] {
            for to in 0..70 {
                for n in [0, 1, 15, 63, 64, 65, 127, 128, 129, 250] {
                    let mut dst = vec![0xee; 400];
                    copy(&src[from..from + n], &mut dst[to..to + n], &Fence::at_end());
                    assert!(dst[to..to + n] == src[from..from + n], "from {from}, to {to}, {n}");
                    let mut others = dst[..to].iter().chain(&dst[to + n..]);
                    assert!(others.all(|&byte| byte == 0xee), "from {from}, to {to}, {n}");
                }
            }
        }
    }
}
