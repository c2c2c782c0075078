//! The chunk loops, written once over [`Isa`] and [`Convert`].
//!
//! A loop reads blocks of 32 values, turns them into residuals of lattice codes and hands them to a
//! [`ChunkWriter`]; or walks a [`ChunkView`] the other way. What is specific to an instruction set
//! is one block in registers: quantise, difference, prefix sum, bit packing.
//!
//! `fold` and `combine` have a fast loop, entered when no block has [exceptions](mixed), which for
//! sums stays in the residual domain: differences add like the values do, so no prefix sum is
//! needed and a constant block costs nothing. Everything else (minimum, maximum, exceptions) goes
//! through [`merge`], which works on absolute codes.
//!
//! Every function here is `inline(always)` into the level's `#[target_feature]` entry points, where
//! the intrinsics of the `Isa` become single instructions.

mod fold_store;
mod merge;
pub(super) mod mixed;
pub(super) mod packed;
mod reader;
mod writer;

use super::chunk::ChunkView;
use super::prefetch::{self, AHEAD};
use super::{BLOCK, Code, Encoded, Lattice, Paths, Scale, Stores};
use crate::element::Float;
use crate::op::{self, LatticeOp};
pub(super) use fold_store::fold_store;
use merge::merge;
use mixed::OutOfLine;
use reader::{BlockOutput, BlockSource, ChunkReader, FromChunk, FromFloats, padded};
use writer::ChunkWriter;

/// One block of 32 codes in an instruction set's registers. It knows the code type, not the
/// element.
///
/// # Safety
/// All methods require the instruction set. `pack` may write
/// [`STORE_SLACK`](super::STORE_SLACK) bytes past the 4·c it fills, `unpack` may read
/// [`PAD`](super::PAD) bytes past them. A block lies in memory as its codes in order.
pub(super) unsafe trait Isa<C: Code>: Copy {
    /// 32 codes, residuals or zig-zag residuals.
    type Block: Copy;
    /// One code in a form that `diff` and `scan` can use.
    type Carry: Copy;

    unsafe fn splat(code: C) -> Self::Carry;
    unsafe fn first(codes: Self::Block) -> C;
    unsafe fn last(codes: Self::Block) -> Self::Carry;
    /// Every code equal to the carry.
    unsafe fn fill(code: Self::Carry) -> Self::Block;
    /// Each code minus the one before; the carry stands before the first.
    unsafe fn diff(codes: Self::Block, before: Self::Carry) -> Self::Block;
    /// Inverse of `diff`.
    unsafe fn scan(residuals: Self::Block, before: Self::Carry) -> Self::Block;
    unsafe fn add(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn min(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn max(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn zigzag(residuals: Self::Block) -> Self::Block;
    unsafe fn unzigzag(bits: Self::Block) -> Self::Block;
    /// Bits of the largest value, 0 if all are zero.
    unsafe fn width(zigzags: Self::Block) -> u32;
    /// Writes 32 values of `width` ≥ 1 bits, 4·`width` bytes.
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8);
    unsafe fn unpack(src: *const u8, width: u32) -> Self::Block;
    /// The codes.
    #[inline(always)]
    unsafe fn to_array(codes: Self::Block) -> [C; BLOCK] {
        const { assert!(size_of::<Self::Block>() == size_of::<[C; BLOCK]>()) };
        // SAFETY: by the trait's contract that is what a block is; any bits are codes.
        unsafe { core::mem::transmute_copy(&codes) }
    }
    #[inline(always)]
    unsafe fn from_array(codes: [C; BLOCK]) -> Self::Block {
        const { assert!(size_of::<Self::Block>() == size_of::<[C; BLOCK]>()) };
        // SAFETY: as above.
        unsafe { core::mem::transmute_copy(&codes) }
    }
    /// Those codes whose bit is set, at least one, and behind them the last again.
    #[inline(always)]
    unsafe fn dense(codes: &[C; BLOCK], chosen: u32) -> [C; BLOCK] {
        let (mut dense, mut n) = ([C::ZERO; BLOCK], 0);
        for (i, &code) in codes.iter().enumerate() {
            dense[n % BLOCK] = code;
            n += (chosen >> i & 1) as usize;
        }
        let last = dense[(n - 1) % BLOCK];
        dense.iter_mut().skip(n).for_each(|code| *code = last);
        dense
    }
    /// Inverse of `dense`; other codes may be anything.
    #[inline(always)]
    unsafe fn spread(dense: &[C; BLOCK], chosen: u32) -> [C; BLOCK] {
        let mut n = 0;
        core::array::from_fn(|i| {
            let code = dense[n % BLOCK];
            n += (chosen >> i & 1) as usize;
            code
        })
    }
}

/// From 32 values to their codes and back: all that an instruction set knows of an element type.
///
/// # Safety
/// All methods require the instruction set. Pointers must be valid for 32 values, unaligned.
pub(super) unsafe trait Convert<T: Float>: Isa<T::Code> + OutOfLine<T> {
    /// Codes of 32 values, and whether every value is on the lattice (docs/guarantees.md, "Check"):
    /// q = round-to-even(x·inverse); |q| ≤ limit; |x − q·step| < bound. (Rounding q·step to `T`
    /// changes nothing: what passes is a value.)
    unsafe fn quantise(src: *const T, lattice: &Lattice<T>) -> (Self::Block, bool);
    /// dst = codes · scale, rounded to `T`.
    unsafe fn dequantise(codes: Self::Block, scale: T::Wide, dst: *mut T);
    /// acc ← acc + other, 32 values each, as [`op::sum`](crate::op::sum).
    unsafe fn sum(acc: *mut T, other: *const T) {
        for i in 0..BLOCK {
            // SAFETY: both have 32 values.
            unsafe { *acc.add(i) = op::sum(*acc.add(i), *other.add(i)) };
        }
    }
}

/// # Safety
/// The level's instruction set; `dst` of `max_chunk_len` bytes; 1…4096 values.
#[inline(always)]
pub(super) unsafe fn encode<T: Float, S: Convert<T>>(
    src: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    let full = src.len() / BLOCK;
    // SAFETY: full blocks have 32 values, the padded one too; the writer writes what `dst` has room
    // for.
    unsafe {
        let mut out = ChunkWriter::<T, S>::new(dst.as_mut_ptr());
        for block in 0..full {
            prefetch::block(src.as_ptr().wrapping_add((block + AHEAD) * BLOCK));
            encode_block(&mut out, block, src.as_ptr().add(block * BLOCK), BLOCK, lattice);
        }
        if src.len() > full * BLOCK {
            let values = padded(src, full);
            encode_block(&mut out, full, values.as_ptr(), src.len() - full * BLOCK, lattice);
        }
        out.finish(src.len().div_ceil(BLOCK))
    }
}

/// # Safety
/// As for [`ChunkWriter::codes`]; 32 values, the first `n` of them the chunk's.
#[inline(always)]
unsafe fn encode_block<T: Float, S: Convert<T>>(
    out: &mut ChunkWriter<T, S>,
    block: usize,
    values: *const T,
    n: usize,
    lattice: &Lattice<T>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let (codes, on_lattice) = S::quantise(values, lattice);
        if on_lattice {
            out.codes(block, codes);
        } else {
            out.mixed(block, n, &S::of_values(values, lattice));
        }
    }
}

/// # Safety
/// The level's instruction set; `dst.len()` equals the view's number of values.
#[inline(always)]
pub(super) unsafe fn decode<T: Float, S: Convert<T>>(
    view: &ChunkView<'_, T>,
    scale: &Scale<T>,
    dst: &mut [T],
    stores: Stores,
) {
    let full = dst.len() / BLOCK;
    // SAFETY: `dst` has room for the blocks, of which the last may be short.
    unsafe {
        let mut src = FromChunk::<T, S>::new(view);
        let output = BlockOutput::new(dst.as_mut_ptr(), stores);
        for block in 0..full {
            output.prepare(block + AHEAD);
            output.put(block, BLOCK, src.next(block, BLOCK), scale);
        }
        let rest = dst.len() - full * BLOCK;
        if rest > 0 {
            output.put(full, rest, src.next(full, rest), scale);
        }
    }
}

/// # Safety
/// As for [`encode`] and [`decode`].
#[inline(always)]
pub(super) unsafe fn fold<T: Float, S: Convert<T>>(
    op: LatticeOp,
    view: &ChunkView<'_, T>,
    local: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    // SAFETY: the caller's promises are the callees' requirements.
    unsafe {
        if op == LatticeOp::Sum
            && !view.is_special()
            && let Some(encoded) = fold_sum::<T, S>(view, local, lattice, dst)
        {
            return encoded;
        }
        let a = FromChunk::<T, S>::new(view);
        let b = FromFloats { values: local.as_ptr(), lattice };
        merge::<T, S>(op, a, b, lattice, local.len(), dst)
    }
}

/// The residuals of `local` plus those of the chunk; `None` if a local block is not on the lattice.
///
/// # Safety
/// As for [`fold`]; the view has no exceptions.
#[inline(always)]
unsafe fn fold_sum<T: Float, S: Convert<T>>(
    view: &ChunkView<'_, T>,
    local: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Option<Encoded> {
    let full = local.len() / BLOCK;
    // SAFETY: as in `encode` and `decode`.
    unsafe {
        let start = padded(&local[..local.len().min(BLOCK)], 0);
        let first = S::first(S::quantise(start.as_ptr(), lattice).0);
        let mut state = FoldSum::<T, S> {
            reader: ChunkReader::new(view),
            before: S::splat(first),
            out: ChunkWriter::new(dst.as_mut_ptr()),
        };
        state.out.first = first.plus(view.first());
        for block in 0..full {
            prefetch::block(local.as_ptr().wrapping_add((block + AHEAD) * BLOCK));
            if !state.block(block, local.as_ptr().add(block * BLOCK), lattice) {
                return None;
            }
        }
        if local.len() > full * BLOCK {
            let values = padded(local, full);
            if !state.block(full, values.as_ptr(), lattice) {
                return None;
            }
        }
        Some(state.out.finish(local.len().div_ceil(BLOCK)))
    }
}

struct FoldSum<'a, T: Float, S: Convert<T>> {
    reader: ChunkReader<'a, T>,
    before: S::Carry,
    out: ChunkWriter<T, S>,
}

impl<T: Float, S: Convert<T>> FoldSum<'_, T, S> {
    /// Adds one block; `false` if its values are not on the lattice.
    ///
    /// # Safety
    /// The level's instruction set; 32 values; call once for each block, in order.
    #[inline(always)]
    unsafe fn block(&mut self, block: usize, values: *const T, lattice: &Lattice<T>) -> bool {
        // SAFETY: by the caller's promise; the view's sizes add up.
        unsafe {
            let (codes, on_lattice) = S::quantise(values, lattice);
            if !on_lattice {
                return false;
            }
            let mut residuals = S::diff(codes, self.before);
            self.before = S::last(codes);
            let width = self.reader.width(block);
            if width > 0 {
                let at = self.reader.take(4 * usize::from(width));
                residuals = S::add(residuals, S::unzigzag(S::unpack(at, u32::from(width))));
            }
            self.out.residuals(block, residuals);
            true
        }
    }
}

/// # Safety
/// The level's instruction set; both views have the same number of values; `dst` of `max_chunk_len`
/// bytes.
#[inline(always)]
pub(super) unsafe fn combine<T: Float, S: Convert<T>>(
    paths: Paths,
    op: LatticeOp,
    a: &ChunkView<'_, T>,
    b: &ChunkView<'_, T>,
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    // SAFETY: the caller's promises are the callees' requirements.
    unsafe {
        let is_dynamic = paths == Paths::Dynamic;
        if is_dynamic && op == LatticeOp::Sum && !a.is_special() && !b.is_special() {
            return combine_sum::<T, S>(a, b, dst);
        }
        let n_values = a.n_values();
        let (a, b) = (FromChunk::<T, S>::new(a), FromChunk::<T, S>::new(b));
        merge::<T, S>(op, a, b, lattice, n_values, dst)
    }
}

/// hZCCL's four paths (SC'24, "hZ-dynamic"), visiting only blocks that are occupied on some side.
///
/// # Safety
/// As for [`combine`]; no view has exceptions.
#[inline(always)]
unsafe fn combine_sum<T: Float, S: Convert<T>>(
    a: &ChunkView<'_, T>,
    b: &ChunkView<'_, T>,
    dst: &mut [u8],
) -> Encoded {
    let (mut from_a, mut from_b) = (ChunkReader::new(a), ChunkReader::new(b));
    // SAFETY: as in `encode` and `decode`; copied blocks have PAD bytes after them in a view.
    unsafe {
        let mut out = ChunkWriter::<T, S>::new(dst.as_mut_ptr());
        out.first = a.first().plus(b.first());
        for word in 0..2 {
            let mut either = a.occupied()[word] | b.occupied()[word];
            while either != 0 {
                let block = 64 * word + either.trailing_zeros() as usize;
                either &= either - 1;
                let (width_a, width_b) = (from_a.width(block), from_b.width(block));
                let at_a = from_a.take(4 * usize::from(width_a));
                let at_b = from_b.take(4 * usize::from(width_b));
                if width_b == 0 {
                    out.copy(block, width_a, at_a);
                } else if width_a == 0 {
                    out.copy(block, width_b, at_b);
                } else {
                    let left = S::unzigzag(S::unpack(at_a, u32::from(width_a)));
                    let right = S::unzigzag(S::unpack(at_b, u32::from(width_b)));
                    out.residuals(block, S::add(left, right));
                }
            }
        }
        out.finish(a.n_values().div_ceil(BLOCK))
    }
}

/// acc ← acc + other, value by value.
///
/// # Safety
/// The level's instruction set; both are of one length.
#[inline(always)]
pub(super) unsafe fn sum<T: Float, S: Convert<T>>(acc: &mut [T], other: &[T]) {
    let full = acc.len() / BLOCK;
    for block in 0..full {
        // SAFETY: full blocks have 32 values.
        unsafe { S::sum(acc.as_mut_ptr().add(block * BLOCK), other.as_ptr().add(block * BLOCK)) };
    }
    for (acc, &other) in acc.iter_mut().zip(other).skip(full * BLOCK) {
        *acc = op::sum(*acc, other);
    }
}

/// Smallest and largest finite value, (+MAX, −MAX) if there is none.
///
/// One comparison a side suffices unless the data have infinities: a piece whose extremes are not
/// finite is looked at again. (A comparison with NaN is false.) From the end to the start, so that
/// the start, where the codec will begin, is what the caches hold in the end.
#[inline(always)]
pub(super) fn value_range<T: Float>(src: &[T]) -> (T, T) {
    const PIECE: usize = 4096;
    let (lowest, highest) = (T::MIN.widen(), T::MAX.widen());
    let (mut min, mut max) = (highest, lowest);
    for piece in src.rchunks(PIECE) {
        let (low, high) = extremes(piece, PIECE);
        if low >= lowest && high <= highest {
            min = if low < min { low } else { min };
            max = if high > max { high } else { max };
        } else {
            for x in piece.iter().filter(|x| x.finite()).map(|x| x.widen()) {
                min = if x < min { x } else { min };
                max = if x > max { x } else { max };
            }
        }
    }
    (T::narrow(min), T::narrow(max))
}

/// Smallest and largest value that is not NaN, but at most MAX and at least −MAX. Many running
/// extremes, so that the loop is bound by memory, of which it asks for what stands `before` values
/// before, and not by the latency of a comparison.
#[inline(always)]
fn extremes<T: Float>(src: &[T], before: usize) -> (T::Wide, T::Wide) {
    const LANES: usize = 2 * BLOCK;
    let mut low = [T::MAX.widen(); LANES];
    let mut high = [T::MIN.widen(); LANES];
    let lower = |x: T::Wide, low: T::Wide| if x < low { x } else { low };
    let higher = |x: T::Wide, high: T::Wide| if x > high { x } else { high };
    let mut rows = src.chunks_exact(LANES);
    for row in &mut rows {
        let earlier = row.as_ptr().wrapping_sub(before);
        prefetch::block(earlier);
        prefetch::block(earlier.wrapping_add(BLOCK));
        for i in 0..LANES {
            low[i] = lower(row[i].widen(), low[i]);
            high[i] = higher(row[i].widen(), high[i]);
        }
    }
    let rest = rows.remainder().iter().map(|x| x.widen());
    let min = low.into_iter().chain(rest.clone()).fold(T::MAX.widen(), |min, x| lower(x, min));
    let max = high.into_iter().chain(rest).fold(T::MIN.widen(), |max, x| higher(x, max));
    (min, max)
}
