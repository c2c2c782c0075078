//! The owner's step of an all-reduce: folds a chunk, writes it and decodes it, in one pass.
//!
//! A block of the result is decoded while it is in registers, which spares unpacking it from the
//! frame, and the arithmetic hides how long the memory takes to give the output's lines. A decoder
//! needs absolute codes, so these are summed here, not residuals as in
//! [`fold_sum`](super::fold_sum). The bytes are the same, as every encoder here writes 0 for the
//! residual of a chunk's first code. Cost: 2/3 to 5/6 of [`fold`](super::fold) and
//! [`decode`](super::decode).

use super::super::chunk::ChunkView;
use super::super::prefetch::{self, AHEAD};
use super::super::{BLOCK, Encoded, Lattice, Scale};
use super::Convert;
use super::merge::join;
use super::reader::{BlockSource, FromChunk, FromFloats};
use super::writer::ChunkWriter;
use crate::element::Float;
use crate::op::LatticeOp;

/// # Safety
/// The level's instruction set; `dst` of `max_chunk_len` bytes; `local` readable and `output`
/// writable for the view's number of values, both from one slice or each from its own.
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
    // SAFETY: by the caller's promise; each block is passed once, in order.
    unsafe {
        let mut pass = FoldStorePass::<T, S> {
            op,
            incoming: FromChunk::new(view),
            own: FromFloats { values: local, lattice },
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

struct FoldStorePass<'a, T: Float, S: Convert<T>> {
    op: LatticeOp,
    incoming: FromChunk<'a, T, S>,
    own: FromFloats<'a, T>,
    frame: ChunkWriter<T, S>,
    scale: &'a Scale<T>,
    output: *mut T,
}

impl<T: Float, S: Convert<T>> FoldStorePass<'_, T, S> {
    /// One block of `n` values. Own ones have been read when their place is written.
    ///
    /// # Safety
    /// The level's instruction set; call once for each block, in order.
    #[inline(always)]
    unsafe fn block(&mut self, block: usize, n: usize) {
        // SAFETY: by the caller's promise; the output has room for the block.
        unsafe {
            let (x, y) = (self.incoming.next(block, n), self.own.next(block, n));
            let result = join::<T, S>(self.op, x, y, self.own.lattice);
            self.frame.block(block, n, &result);
            result.store(self.scale, n, self.output.add(block * BLOCK));
        }
    }
}
