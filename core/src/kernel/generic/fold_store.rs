//! Folds a chunk and decodes the result in one pass. In an all-reduce, the rank that completes a
//! part does this.
//!
//! Each block of the result is decoded while it is in registers, so it need not be unpacked from
//! the frame. The arithmetic hides the latency of the memory that holds the output. Decoding needs
//! absolute codes, so this module adds absolute codes, while [`fold_sum`](super::fold_sum) adds
//! residuals. The bytes are the same, because every encoder here writes 0 as the residual of a
//! chunk's first code.
//!
//! Cost: 2/3 to 5/6 of [`fold`](super::fold) followed by [`decode`](super::decode).

use super::super::chunk::ChunkView;
use super::super::prefetch::{self, AHEAD};
use super::super::{BLOCK, Encoded, Lattice, Scale};
use super::Convert;
use super::merge::join;
use super::reader::{BlockSource, FromChunk, FromFloats};
use super::writer::ChunkWriter;
use crate::element::Float;
use crate::op::LatticeOp;

/// Folds `local` into a chunk. Writes the resulting chunk to `dst`, and its values to `output`.
///
/// # Safety
/// Requires the level's instruction set and `dst` of `max_chunk_len` bytes. `local` must be
/// readable and `output` writable for the view's number of values. They must be equal or must not
/// overlap.
#[inline(always)]
pub(in super::super) unsafe fn fold_store<T: Float, S: Convert<T>>(
    op: LatticeOp,
    view: &ChunkView<'_, T>,
    local: *const T,
    lattice: &Lattice<T>,
    dst: &mut [u8],
    scale: &Scale<T>,
    output: *mut T,
) -> Encoded {
    let (full, rest) = (view.n_values() / BLOCK, view.n_values() % BLOCK);
    let in_place = core::ptr::eq(local, output);
    // SAFETY: guaranteed by the caller; each block is processed once, in order.
    unsafe {
        let mut pass = FoldStorePass::<T, S> {
            op,
            incoming: FromChunk::new(view),
            local: FromFloats { values: local, lattice },
            frame: ChunkWriter::new(dst.as_mut_ptr()),
            scale,
            output,
        };
        for block in 0..full {
            let ahead = (block + AHEAD) * BLOCK;
            prefetch::block(output.wrapping_add(ahead).cast_const());
            if !in_place {
                prefetch::block(local.wrapping_add(ahead));
            }
            pass.block(block, BLOCK);
        }
        if rest > 0 {
            pass.block(full, rest);
        }
        pass.frame.finish(full + usize::from(rest > 0))
    }
}

/// State of [`fold_store`] between two blocks.
struct FoldStorePass<'a, T: Float, S: Convert<T>> {
    op: LatticeOp,
    incoming: FromChunk<'a, T, S>,
    local: FromFloats<'a, T>,
    frame: ChunkWriter<T, S>,
    scale: &'a Scale<T>,
    output: *mut T,
}

impl<T: Float, S: Convert<T>> FoldStorePass<'_, T, S> {
    /// Processes one block of `n` values. It reads the block's input before it writes the output,
    /// which may be the same place.
    ///
    /// # Safety
    /// Requires the level's instruction set. Must be called once for each block, in order.
    #[inline(always)]
    unsafe fn block(&mut self, block: usize, n: usize) {
        // SAFETY: guaranteed by the caller; the output has space for the block.
        unsafe {
            let (x, y) = (self.incoming.next(block, n), self.local.next(block, n));
            let result = join::<T, S>(self.op, x, y, self.local.lattice);
            self.frame.block(block, n, &result);
            result.store(self.scale, n, self.output.add(block * BLOCK));
        }
    }
}
