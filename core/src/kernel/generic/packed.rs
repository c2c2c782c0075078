//! Bit packing of blocks of codes, or of their differences, without the rest of a chunk.

use super::Isa;
use crate::kernel::{BLOCK, Code};

/// Packs blocks as fZ-light does, and writes the width of each to `widths`. Returns the number of
/// bytes written.
///
/// If `before` is `Some`, packs the difference of each code to the previous one instead. The code
/// in `before` precedes the first one.
///
/// # Safety
/// Requires the level's instruction set. `dst` must have 4·[`BITS`](Code::BITS) bytes for each
/// block and [`STORE_SLACK`](super::super::STORE_SLACK) more.
#[inline(always)]
pub(in super::super) unsafe fn pack<C: Code, S: Isa<C>>(
    codes: &[[C; BLOCK]],
    before: Option<C>,
    widths: &mut [u8],
    dst: &mut [u8],
) -> usize {
    let start = dst.as_mut_ptr();
    let mut at = start;
    // SAFETY: guaranteed by the caller; no width is above BITS.
    unsafe {
        let mut last = before.map(|code| S::splat(code));
        for (&block, to) in codes.iter().zip(widths) {
            let mut block = S::from_array(block);
            if let Some(last) = &mut last {
                let codes = block;
                block = S::diff(codes, *last);
                *last = S::last(codes);
            }
            let zigzags = S::zigzag(block);
            let width = S::width(zigzags);
            *to = width as u8;
            if width > 0 {
                S::pack(zigzags, width, at);
                at = at.add(4 * width as usize);
            }
        }
        at.offset_from_unsigned(start)
    }
}

/// Inverse of [`pack`].
///
/// # Safety
/// Requires the level's instruction set. No width may be above [`BITS`](Code::BITS); `src` must
/// have the 4 · width bytes of all blocks and [`PAD`](super::super::PAD) more.
#[inline(always)]
pub(in super::super) unsafe fn unpack<C: Code, S: Isa<C>>(
    src: &[u8],
    widths: &[u8],
    before: Option<C>,
    codes: &mut [[C; BLOCK]],
) {
    let mut at = src.as_ptr();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut last = before.map(|code| S::splat(code));
        for (to, &width) in codes.iter_mut().zip(widths) {
            let mut block = S::fill(S::splat(C::ZERO));
            if width > 0 {
                block = S::unzigzag(S::unpack(at, width.into()));
                at = at.add(4 * usize::from(width));
            }
            if let Some(last) = &mut last {
                block = S::scan(block, *last);
                *last = S::last(block);
            }
            *to = S::to_array(block);
        }
    }
}

/// Replaces each code by the prefix sum up to it, starting from `before`.
///
/// # Safety
/// Requires the level's instruction set.
#[inline(always)]
pub(in super::super) unsafe fn scan<C: Code, S: Isa<C>>(codes: &mut [[C; BLOCK]], before: C) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut last = S::splat(before);
        for block in codes {
            let sums = S::scan(S::from_array(*block), last);
            last = S::last(sums);
            *block = S::to_array(sums);
        }
    }
}
