//! Chunk loops, written once over the traits [`Isa`] and [`Convert`].
//!
//! An encoding loop reads blocks of 32 values, converts them to residuals of lattice codes and
//! passes these to a [`ChunkWriter`]. A decoding loop reads the blocks of a [`ChunkView`] and
//! converts their residuals to values. Only the operations on one block in registers depend on
//! the instruction set: quantization, differences, prefix sum and bit packing.
//!
//! `fold` and `combine` have a fast loop for sums without [exceptions](mixed). It adds residuals,
//! because the sum of two differences is the difference of the sums. It needs no prefix sum, and a
//! constant block costs nothing. All other cases (minimum, maximum, exceptions) use [`merge`],
//! which works on absolute codes.
//!
//! Every function here is `inline(always)` into the entry points that [`kernels`] makes with the
//! level's target features. There the intrinsics of the `Isa` become single instructions.

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

/// Operations of an instruction set on a block of 32 codes in registers. They depend on the code
/// type, but not on the element type.
///
/// # Safety
/// All methods require the instruction set. A packed block of width c has 4·c bytes; `pack` may
/// write [`STORE_SLACK`](super::STORE_SLACK) bytes past them, and `unpack` may read
/// [`PAD`](super::PAD) bytes past them. In memory, a `Block` must be its 32 codes in order.
pub(super) unsafe trait Isa<C: Code>: Copy {
    /// Registers with 32 codes, residuals or zig-zag residuals.
    type Block: Copy;
    /// One code, in the form that `diff` and `scan` need.
    type Carry: Copy;

    unsafe fn splat(code: C) -> Self::Carry;
    unsafe fn first(codes: Self::Block) -> C;
    unsafe fn last(codes: Self::Block) -> Self::Carry;
    /// Returns a block with every code equal to the carry.
    unsafe fn fill(code: Self::Carry) -> Self::Block;
    /// Returns each code minus the previous one; `before` precedes the first code.
    unsafe fn diff(codes: Self::Block, before: Self::Carry) -> Self::Block;
    /// Inverse of `diff`.
    unsafe fn scan(residuals: Self::Block, before: Self::Carry) -> Self::Block;
    unsafe fn add(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn min(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn max(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn zigzag(residuals: Self::Block) -> Self::Block;
    unsafe fn unzigzag(bits: Self::Block) -> Self::Block;
    /// Number of bits of the largest value; 0 if all are zero.
    unsafe fn width(zigzags: Self::Block) -> u32;
    /// Writes 32 values of `width` ≥ 1 bits to 4·`width` bytes.
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8);
    /// Inverse of `pack`.
    unsafe fn unpack(src: *const u8, width: u32) -> Self::Block;
    #[inline(always)]
    unsafe fn to_array(codes: Self::Block) -> [C; BLOCK] {
        const { assert!(size_of::<Self::Block>() == size_of::<[C; BLOCK]>()) };
        // SAFETY: by the trait's contract, a block in memory is its codes in order, and the sizes
        // are equal; any bits are valid codes.
        unsafe { core::mem::transmute_copy(&codes) }
    }
    #[inline(always)]
    unsafe fn from_array(codes: [C; BLOCK]) -> Self::Block {
        const { assert!(size_of::<Self::Block>() == size_of::<[C; BLOCK]>()) };
        // SAFETY: as in `to_array`.
        unsafe { core::mem::transmute_copy(&codes) }
    }
    /// Moves the codes whose bits in `chosen` are set to the front, and fills the rest with the
    /// last of these codes. At least one bit must be set.
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
    /// Inverse of `dense`. Codes whose bits are not set are unspecified.
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

/// Conversion of 32 values to codes and back: the operations of an instruction set that depend on
/// the element type.
///
/// # Safety
/// All methods require the instruction set. Pointers must be valid for 32 values; they may be
/// unaligned.
pub(super) unsafe trait Convert<T: Float>: Isa<T::Code> + OutOfLine<T> {
    /// Returns the codes of 32 values, and whether all values are on the lattice
    /// (docs/guarantees.md, "The check").
    ///
    /// The code is q = round-to-even(x·inverse). The value is on the lattice if |q| ≤ limit and
    /// |x − q·step| < bound. For such values, rounding q·step to `T` changes nothing.
    unsafe fn quantise(src: *const T, lattice: &Lattice<T>) -> (Self::Block, bool);
    /// Writes codes · scale, rounded to `T`.
    unsafe fn dequantise(codes: Self::Block, scale: T::Wide, dst: *mut T);
    /// Adds 32 values of `other` to `acc`, as [`op::sum`](crate::op::sum) does.
    unsafe fn sum(acc: *mut T, other: *const T) {
        for i in 0..BLOCK {
            // SAFETY: the caller guarantees that both are valid for 32 values.
            unsafe { *acc.add(i) = op::sum(*acc.add(i), *other.add(i)) };
        }
    }
}

/// Defines the function `kernels`, which lists the kernels of an element type, compiled with these
/// target features. Closures have the features of the function that they are in.
macro_rules! kernels {
    ($($features:literal)?) => {
        /// Returns the kernels of this level. The level must be available when one is called.
        $(#[target_feature(enable = $features)])?
        pub(in super::super) const fn kernels<T, S>() -> $crate::kernel::Kernels<T>
        where
            T: $crate::element::Float,
            S: $crate::kernel::generic::Convert<T>,
        {
            use $crate::kernel::generic::{self, packed};

            // SAFETY: who calls a kernel guarantees what the chunk loop requires.
            unsafe {
                $crate::kernel::Kernels {
                    encode: |src, lattice, dst| generic::encode::<T, S>(src, lattice, dst),
                    decode: |view, scale, dst, stores| {
                        generic::decode::<T, S>(view, scale, dst, stores)
                    },
                    fold: |op, view, local, lattice, dst| {
                        generic::fold::<T, S>(op, view, local, lattice, dst)
                    },
                    fold_store: |op, view, local, lattice, dst, scale, output| {
                        generic::fold_store::<T, S>(op, view, local, lattice, dst, scale, output)
                    },
                    combine: |paths, op, a, b, lattice, dst| {
                        generic::combine::<T, S>(paths, op, a, b, lattice, dst)
                    },
                    value_range: |src| generic::value_range(src),
                    sum: |acc, other| generic::sum::<T, S>(acc, other),
                    pack: |codes, before, widths, dst| {
                        packed::pack::<_, S>(codes, before, widths, dst)
                    },
                    unpack: |src, widths, before, codes| {
                        packed::unpack::<_, S>(src, widths, before, codes)
                    },
                    scan: |codes, before| packed::scan::<_, S>(codes, before),
                }
            }
        }
    };
}
pub(super) use kernels;

/// Encodes a chunk.
///
/// # Safety
/// Requires the level's instruction set, `dst` of `max_chunk_len` bytes, and 1 to 4096 values.
#[inline(always)]
pub(super) unsafe fn encode<T: Float, S: Convert<T>>(
    src: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    let full = src.len() / BLOCK;
    // SAFETY: full blocks have 32 values, and so does the padded one; the writer writes at most
    // `max_chunk_len` bytes, which `dst` has.
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

/// Encodes a block. Its first `n` values belong to the chunk; the others are padding.
///
/// # Safety
/// As for [`ChunkWriter::codes`]; `values` must be readable for 32 values.
#[inline(always)]
unsafe fn encode_block<T: Float, S: Convert<T>>(
    out: &mut ChunkWriter<T, S>,
    block: usize,
    values: *const T,
    n: usize,
    lattice: &Lattice<T>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (codes, on_lattice) = S::quantise(values, lattice);
        if on_lattice {
            out.codes(block, codes);
        } else {
            out.mixed(block, n, &S::of_values(values, lattice));
        }
    }
}

/// Decodes a chunk.
///
/// # Safety
/// Requires the level's instruction set; `dst.len()` must be the view's number of values.
#[inline(always)]
pub(super) unsafe fn decode<T: Float, S: Convert<T>>(
    view: &ChunkView<'_, T>,
    scale: &Scale<T>,
    dst: &mut [T],
    stores: Stores,
) {
    let full = dst.len() / BLOCK;
    // SAFETY: `dst` has space for all blocks; the last one may be short.
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

/// Folds this rank's input into a chunk.
///
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
    // SAFETY: the caller guarantees what the callees require.
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

/// Adds the residuals of `local` to those of the chunk. Returns `None` if a value of `local` is not
/// on the lattice.
///
/// # Safety
/// As for [`fold`]; the view must have no exceptions.
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

/// State of [`fold_sum`] between two blocks.
struct FoldSum<'a, T: Float, S: Convert<T>> {
    reader: ChunkReader<'a, T>,
    /// Last code of the local values so far.
    before: S::Carry,
    out: ChunkWriter<T, S>,
}

impl<T: Float, S: Convert<T>> FoldSum<'_, T, S> {
    /// Adds one block. Returns `false` if a value is not on the lattice.
    ///
    /// # Safety
    /// Requires the level's instruction set and 32 values. Must be called once for each block, in
    /// order.
    #[inline(always)]
    unsafe fn block(&mut self, block: usize, values: *const T, lattice: &Lattice<T>) -> bool {
        // SAFETY: guaranteed by the caller; the sizes of the view's blocks add up to its payload.
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

/// Combines two chunks.
///
/// # Safety
/// Requires the level's instruction set, views with the same number of values, and `dst` of
/// `max_chunk_len` bytes.
#[inline(always)]
pub(super) unsafe fn combine<T: Float, S: Convert<T>>(
    paths: Paths,
    op: LatticeOp,
    a: &ChunkView<'_, T>,
    b: &ChunkView<'_, T>,
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    // SAFETY: the caller guarantees what the callees require.
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

/// Adds two chunks by hZCCL's four paths (SC'24, "hZ-dynamic"). It visits only blocks that are
/// occupied in at least one chunk.
///
/// # Safety
/// As for [`combine`]; the views must have no exceptions.
#[inline(always)]
unsafe fn combine_sum<T: Float, S: Convert<T>>(
    a: &ChunkView<'_, T>,
    b: &ChunkView<'_, T>,
    dst: &mut [u8],
) -> Encoded {
    let (mut from_a, mut from_b) = (ChunkReader::new(a), ChunkReader::new(b));
    // SAFETY: as in `encode` and `decode`; in a view, at least PAD bytes follow copied blocks.
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

/// Adds `other` to `acc`, value by value.
///
/// # Safety
/// Requires the level's instruction set and slices of equal length.
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

/// Returns the smallest and largest finite value; (+MAX, −MAX) if there is none.
///
/// Each value needs two comparisons. Only a piece whose extremes are not finite is scanned again.
/// Comparisons with NaN are false, so NaN is ignored. The scan runs from the last piece to the
/// first, so that the caches then hold the start of the array, where the codec begins.
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

/// Returns the smallest and largest value, ignoring NaN; (+MAX, −MAX) if there is none.
///
/// The loop keeps `LANES` running extremes, so that only memory limits its speed and not the
/// latency of comparisons. It prefetches the values that lie `distance` places earlier, which are
/// scanned next.
#[inline(always)]
fn extremes<T: Float>(src: &[T], distance: usize) -> (T::Wide, T::Wide) {
    const LANES: usize = 2 * BLOCK;
    let mut low = [T::MAX.widen(); LANES];
    let mut high = [T::MIN.widen(); LANES];
    let lower = |x: T::Wide, low: T::Wide| if x < low { x } else { low };
    let higher = |x: T::Wide, high: T::Wide| if x > high { x } else { high };
    let mut rows = src.chunks_exact(LANES);
    for row in &mut rows {
        let earlier = row.as_ptr().wrapping_sub(distance);
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
