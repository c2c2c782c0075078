//! Writer of a chunk: blocks in order, then the trailer.

use super::super::chunk::{CONSTANT, DENSE, FIRST_SIZE_SHIFT, SPECIAL};
use super::super::{BLOCKS, Code, Encoded};
use super::Convert;
use super::mixed::MixedBlock;
use super::reader::DecodedBlock;
use crate::element::Float;

/// Writes a chunk block by block.
pub(super) struct ChunkWriter<T: Float, S: Convert<T>> {
    start: *mut u8,
    /// End of the payload so far.
    payload: *mut u8,
    /// Code before the first residual.
    pub(super) first: T::Code,
    /// Last code so far.
    before: Option<S::Carry>,
    /// Last exception so far.
    exception: T,
    occupied: [u64; 2],
    widths: [u8; BLOCKS],
    n_widths: usize,
    verbatim_blocks: u32,
    exceptions: u32,
}

impl<T: Float, S: Convert<T>> ChunkWriter<T, S> {
    /// # Safety
    /// `dst` must be writable for the [`max_chunk_len`](super::max_chunk_len) of the chunk.
    #[inline(always)]
    pub(super) unsafe fn new(dst: *mut u8) -> Self {
        Self {
            start: dst,
            // SAFETY: the caller guarantees that `dst` has more than one byte.
            payload: unsafe { dst.add(1) },
            first: T::Code::ZERO,
            before: None,
            exception: T::QUIET_NAN,
            occupied: [0; 2],
            widths: [0; BLOCKS],
            n_widths: 0,
            verbatim_blocks: 0,
            exceptions: 0,
        }
    }

    /// Marks the block as occupied and records its width byte.
    #[inline(always)]
    pub(super) fn occupy(&mut self, block: usize, width: u8) {
        self.occupied[(block / 64) & 1] |= 1 << (block % 64);
        self.widths[self.n_widths & (BLOCKS - 1)] = width;
        self.n_widths += 1;
    }

    /// Writes block `block` from its codes.
    ///
    /// # Safety
    /// Requires the level's instruction set. Each block of the chunk must be written at most once,
    /// in order.
    #[inline(always)]
    pub(super) unsafe fn codes(&mut self, block: usize, codes: S::Block) {
        // SAFETY: the caller guarantees the instruction set and the order of blocks.
        unsafe {
            let before = match self.before {
                Some(before) => before,
                None => {
                    self.first = S::first(codes);
                    S::splat(self.first)
                }
            };
            self.before = Some(S::last(codes));
            self.residuals(block, S::diff(codes, before));
        }
    }

    /// Writes block `block`, of `n` values.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    #[inline(always)]
    pub(super) unsafe fn block(&mut self, block: usize, n: usize, content: &DecodedBlock<T, S>) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match content {
                DecodedBlock::Codes(codes) => self.codes(block, *codes),
                DecodedBlock::Mixed(content) => self.mixed(block, n, content),
            }
        }
    }

    /// Writes block `block` from its residuals. The caller sets `first`.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    #[inline(always)]
    pub(super) unsafe fn residuals(&mut self, block: usize, residuals: S::Block) {
        // SAFETY: the caller guarantees the instruction set. A block takes at most 4·BITS bytes,
        // and packing may write STORE_SLACK more; `max_chunk_len` counts both.
        unsafe {
            let zigzags = S::zigzag(residuals);
            let width = S::width(zigzags);
            if width == 0 {
                return;
            }
            self.occupy(block, width as u8);
            S::pack(zigzags, width, self.payload);
            self.payload = self.payload.add(4 * width as usize);
        }
    }

    /// Writes block `block` as a copy of a packed block.
    ///
    /// # Safety
    /// `src` must be readable for the block and [`PAD`](super::PAD) bytes more.
    #[inline(always)]
    pub(super) unsafe fn copy(&mut self, block: usize, width: u8, src: *const u8) {
        let n_bytes = 4 * usize::from(width);
        self.occupy(block, width);
        // SAFETY: pieces of 32 bytes reach less than PAD past the block in `src` and less than
        // STORE_SLACK in the destination.
        unsafe {
            let mut at = 0;
            while at < n_bytes {
                self.payload
                    .add(at)
                    .cast::<[u8; 32]>()
                    .write_unaligned(src.add(at).cast::<[u8; 32]>().read_unaligned());
                at += 32;
            }
            self.payload = self.payload.add(n_bytes);
        }
    }

    /// Writes block `block`, of `n` values, with exceptions. Residuals skip the exceptions.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    #[inline(always)]
    pub(super) unsafe fn mixed(&mut self, block: usize, n: usize, content: &MixedBlock<T>) {
        self.verbatim_blocks += 1;
        // SAFETY: the caller guarantees the instruction set; `max_chunk_len` counts the largest
        // block with exceptions.
        unsafe {
            let before = self.before.map(|code| S::first(S::fill(code)));
            let stored = S::store(content, n, before, self.exception, self.payload);
            self.occupy(block, stored.width);
            self.payload = self.payload.add(stored.n_bytes);
            self.exceptions += stored.n_exceptions;
            self.exception = stored.last_exception;
            if let Some((first, last)) = stored.codes {
                if self.before.is_none() {
                    self.first = first;
                }
                self.before = Some(S::splat(last));
            }
        }
    }

    /// Writes the tag and the trailer.
    ///
    /// # Safety
    /// The chunk must have `n_blocks` blocks. Blocks that were not written count as constant.
    #[inline(always)]
    pub(super) unsafe fn finish(self, n_blocks: usize) -> Encoded {
        let dense = self.n_widths == n_blocks;
        let mut tag = if self.verbatim_blocks > 0 { SPECIAL } else { 0 };
        tag |= match self.n_widths {
            0 => CONSTANT,
            n if n == n_blocks => DENSE,
            _ => 0,
        };
        // The first code takes 1, 2, 4 or 8 bytes, depending on its significant bits and sign.
        let significant = u64::BITS - self.first.zigzag().leading_zeros();
        let first_size = significant.div_ceil(8).max(1).next_power_of_two();
        tag |= (first_size.trailing_zeros() << FIRST_SIZE_SHIFT) as u8;
        // SAFETY: `max_chunk_len` counts the tag and the trailer; `widths` has n_widths ≤ BLOCKS
        // bytes. The bitmap and the code are written at full size; the bytes past their actual
        // lengths are within the slack.
        unsafe {
            self.start.write(tag);
            let mut end = self.payload;
            end.copy_from_nonoverlapping(self.widths.as_ptr(), self.n_widths);
            end = end.add(self.n_widths);
            if self.n_widths > 0 && !dense {
                let words = self.occupied.map(u64::to_le);
                end.cast::<[u64; 2]>().write_unaligned(words);
                end = end.add(n_blocks.div_ceil(8));
            }
            end.cast::<[u8; 8]>().write_unaligned(self.first.bits().to_le_bytes());
            end = end.add(first_size as usize);
            let n_bytes = end.offset_from_unsigned(self.start);
            let Self { verbatim_blocks, exceptions, .. } = self;
            Encoded { n_bytes, verbatim_blocks, exceptions }
        }
    }
}
