//! Reductions on absolute codes, for operands that cannot be combined as residuals: minimum,
//! maximum, and chunks with exceptions.

use super::super::{BLOCK, Encoded, Lattice};
use super::Convert;
use super::reader::{BlockSource, DecodedBlock};
use super::writer::ChunkWriter;
use crate::element::Float;
use crate::op::LatticeOp;

/// Combines two sources block by block. If either value is an exception, so is the result.
///
/// # Safety
/// Requires the level's instruction set, `dst` of `max_chunk_len` bytes, and sources of `n_values`.
#[inline(always)]
pub(super) unsafe fn merge<T: Float, S: Convert<T>>(
    op: LatticeOp,
    mut a: impl BlockSource<T, S>,
    mut b: impl BlockSource<T, S>,
    lattice: &Lattice<T>,
    n_values: usize,
    dst: &mut [u8],
) -> Encoded {
    let n_blocks = n_values.div_ceil(BLOCK);
    // SAFETY: the caller guarantees the instruction set and the sources' lengths; each source
    // returns each block once, in order. The writer writes at most `max_chunk_len` bytes, which
    // `dst` has.
    unsafe {
        let mut out = ChunkWriter::<T, S>::new(dst.as_mut_ptr());
        for block in 0..n_blocks {
            let n = block_len(n_values, block);
            let folded = join(op, a.next(block, n), b.next(block, n), lattice);
            out.block(block, n, &folded);
        }
        out.finish(n_blocks)
    }
}

/// Combines two blocks. A block is *mixed* if it has exceptions. If either block is mixed, so is
/// the result. If either value is an exception, so is the result's value, which is computed in `T`.
///
/// # Safety
/// Requires the level's instruction set.
#[inline(always)]
pub(super) unsafe fn join<T: Float, S: Convert<T>>(
    op: LatticeOp,
    x: DecodedBlock<T, S>,
    y: DecodedBlock<T, S>,
    lattice: &Lattice<T>,
) -> DecodedBlock<T, S> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (x, y) {
            (DecodedBlock::Codes(x), DecodedBlock::Codes(y)) => DecodedBlock::Codes(match op {
                LatticeOp::Sum => S::add(x, y),
                LatticeOp::Min => S::min(x, y),
                LatticeOp::Max => S::max(x, y),
            }),
            (x, y) => DecodedBlock::Mixed(S::join(op, &x.mixed(), &y.mixed(), lattice)),
        }
    }
}

/// Number of values in block `block` of a chunk of `n_values`.
#[inline(always)]
fn block_len(n_values: usize, block: usize) -> usize {
    (n_values - block * BLOCK).min(BLOCK)
}
