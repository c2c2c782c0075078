//! Safe entry points to the inner loops of codec `fz-light` and of sums, and dispatch to an
//! instruction set.
//!
//! The layers follow those of memchr: `scalar` is the specification. `generic` has every chunk
//! loop, written once over the trait `generic::Isa`. `x86_64` implements that trait for AVX2 with
//! BMI2 and for AVX-512. All levels give identical bytes; the tests run each level that the machine
//! supports.
//!
//! The unit of work is a *chunk* of up to 4096 values. `chunk` and docs/format.md specify its
//! layout.

#![allow(unsafe_code)]

pub mod at_level;
pub(crate) mod chunk;
pub(crate) mod error;
mod generic;
pub(crate) mod prefetch;
#[cfg(feature = "alloc")]
pub(crate) mod rans;
pub mod sample;
mod scalar;
pub(crate) mod stores;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(test)]
mod tests;

use crate::element::sealed::{OnLattice, Wide};
use crate::element::{Float, bf16, f16};
use crate::op::{LatticeOp, divisor_of_sums};
use crate::values::Values;
use chunk::{ChunkView, max_block_len};
use core::fmt;
use stores::Stores;

/// Number of values in a block, the unit with one bit width.
pub const BLOCK: usize = 32;
/// Number of values in a chunk, the unit of random access and of parallelism.
pub const CHUNK: usize = 4096;
/// Number of blocks in a full chunk.
pub(crate) const BLOCKS: usize = CHUNK / BLOCK;
/// Number of readable bytes that must follow a chunk, because vector loads reach past its last
/// block.
pub(crate) const PAD: usize = 64;

/// Buffer size for the encoding of a chunk of `n_values`: the worst case, and space for vector
/// stores that reach past its end.
#[must_use]
pub(crate) const fn max_chunk_len<T: Float>(n_values: usize) -> usize {
    let blocks = n_values.div_ceil(BLOCK);
    let code = size_of::<<T as OnLattice>::Code>();
    1 + code + blocks * (max_block_len::<T>() + 1) + blocks.div_ceil(8) + STORE_SLACK
}

/// Buffer size that [`Kernel::pack`] needs for `n_blocks`.
#[must_use]
pub(crate) const fn packed_room<T: Float>(n_blocks: usize) -> usize {
    n_blocks * BLOCK / 8 * <T as OnLattice>::Code::BITS as usize + STORE_SLACK
}

/// Method of adding two chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// Does the least work for each pair of blocks: hZCCL's "hZ-dynamic".
    Dynamic,
    /// Unpacks all blocks to codes and packs the sums: hZCCL's baseline.
    Static,
}

/// Number of bytes that a vector store may write past the end of the encoding.
const STORE_SLACK: usize = 64;

/// Instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Portable Rust; the specification of all levels.
    Scalar,
    /// x86-64 with AVX2, BMI1, BMI2, LZCNT and F16C (since 2013; AMD has fast BMI2 since Zen 3).
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VBMI (since Ice Lake and Zen 4).
    Avx512,
}

impl Level {
    /// All levels, from slowest to fastest.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// Returns whether this machine has the instructions.
    #[must_use]
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86_64::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86_64::has_avx512(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Returns the fastest level that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|level| level.is_available()).unwrap_or(Self::Scalar)
    }

    /// Returns the levels that this machine has, from slowest to fastest.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| level.is_available())
    }

    /// Name in lower case: `scalar`, `avx2`, `avx512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Integer codes on a lattice: `i64` for `f64`, `i32` for the other types.
///
/// All arithmetic wraps. Codes leave headroom, so sums of valid frames stay in range. Sums of
/// hostile frames may leave the range but must not cause a panic.
pub trait Code: bytemuck::Pod + Ord + fmt::Debug {
    /// Number of bits, and so the largest width of a zig-zag residual.
    const BITS: u32;
    /// The code 0.
    const ZERO: Self;
    /// self + other, wrapping.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// self − other, wrapping.
    #[must_use]
    fn minus(self, other: Self) -> Self;
    /// Maps 0, −1, 1, −2, … to 0, 1, 2, 3, …
    #[must_use]
    fn zigzag(self) -> u64;
    /// Inverse of [`zigzag`](Self::zigzag).
    #[must_use]
    fn unzigzag(bits: u64) -> Self;
    /// Returns the code's bit pattern, zero-extended.
    #[must_use]
    fn bits(self) -> u64;
    /// Returns the code with the low bits of `bits`.
    #[must_use]
    fn from_bits(bits: u64) -> Self;
}

macro_rules! code {
    ($signed:ident, $unsigned:ident) => {
        impl Code for $signed {
            const BITS: u32 = $signed::BITS;
            const ZERO: Self = 0;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn zigzag(self) -> u64 {
                u64::from(((self << 1) ^ (self >> (Self::BITS - 1))) as $unsigned)
            }

            #[inline(always)]
            fn unzigzag(bits: u64) -> Self {
                let bits = bits as $unsigned;
                (bits >> 1) as $signed ^ -((bits & 1) as $signed)
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $signed
            }
        }
    };
}
code!(i32, u32);
code!(i64, u64);

/// Lattice of the points k·step, and the condition for a value to be on it. Codes k are computed in
/// the wide type of `T`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lattice<T: Float> {
    /// Spacing Δ.
    pub(crate) step: T::Wide,
    /// 1/Δ, rounded.
    pub(crate) inverse: T::Wide,
    /// Largest |code| of one operand; negative if no value is on the lattice.
    pub(crate) limit: T::Wide,
    /// Strict upper limit of |x − decoded(x)|.
    ///
    /// The subtraction rounds, and rounding is monotonic. A rounded difference strictly below the
    /// bound therefore proves that the exact difference is below it.
    pub(crate) bound: T::Wide,
    /// Factor for exceptions, and for decoded codes that are combined with them: 1, or the weight
    /// of an average's operands.
    pub(crate) weight: T,
}

impl<T: Float> Lattice<T> {
    /// Returns whether a value can be on the lattice.
    pub(crate) fn has_points(&self) -> bool {
        self.limit >= T::ZERO.widen()
    }

    /// Returns the lattice for values that have been multiplied by the weight. They get the same
    /// codes as the unweighted values on this lattice.
    pub(crate) fn of_partial_results(self) -> Self {
        let Self { step, inverse, limit, bound, weight } = self;
        let factor = weight.widen();
        Self {
            step: step * factor,
            inverse: inverse / factor,
            limit,
            bound: bound * factor,
            weight: T::ONE,
        }
    }
}

/// Scaling in a decoder, which multiplies codes by `of_codes` and divides exceptions by `divisor`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale<T: Float> {
    of_codes: T::Wide,
    divisor: T::Wide,
}

impl<T: Float> Scale<T> {
    /// Scaling that divides sums on a lattice of this step by `divisor`. If `divisor` is 1, decoded
    /// codes are multiplied by `weight`, as exceptions were when they were encoded.
    pub(crate) fn new(step: f64, divisor: u32, weight: T) -> Self {
        let step = T::Wide::nearest(step);
        let of_codes = if divisor == 1 {
            step * weight.widen()
        } else {
            step / T::Wide::nearest(divisor.into())
        };
        Self { of_codes, divisor: divisor_of_sums(divisor, weight) }
    }
}

impl<T: Float> Scale<T> {
    /// Factor of codes.
    pub(crate) fn of_codes(&self) -> T::Wide {
        self.of_codes
    }

    /// Divisor of exceptions.
    pub(crate) fn divisor(&self) -> T::Wide {
        self.divisor
    }
}

/// Size of one encoded chunk, and statistics of its exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) n_bytes: usize,
    /// Number of blocks with exceptions.
    pub(crate) verbatim_blocks: u32,
    pub(crate) exceptions: u32,
}

/// Table of the kernels of one element type at one level.
///
/// Every destination must have `max_chunk_len` bytes for the number of values.
#[derive(Clone, Copy)]
#[allow(clippy::type_complexity)]
pub struct Kernels<T: Float> {
    encode: unsafe fn(&[T], &Lattice<T>, &mut [u8]) -> Encoded,
    decode: unsafe fn(&ChunkView<'_, T>, &Scale<T>, &mut [T], Stores),
    fold: unsafe fn(LatticeOp, &ChunkView<'_, T>, &[T], &Lattice<T>, &mut [u8]) -> Encoded,
    fold_store: unsafe fn(
        LatticeOp,
        &ChunkView<'_, T>,
        *const T,
        &Lattice<T>,
        &mut [u8],
        &Scale<T>,
        *mut T,
    ) -> Encoded,
    combine: unsafe fn(
        Paths,
        LatticeOp,
        &ChunkView<'_, T>,
        &ChunkView<'_, T>,
        &Lattice<T>,
        &mut [u8],
    ) -> Encoded,
    value_range: unsafe fn(&[T]) -> (T, T),
    sum: unsafe fn(&mut [T], &[T]),
    pack: unsafe fn(&[[T::Code; BLOCK]], Option<T::Code>, &mut [u8], &mut [u8]) -> usize,
    unpack: unsafe fn(&[u8], &[u8], Option<T::Code>, &mut [[T::Code; BLOCK]]),
    scan: unsafe fn(&mut [[T::Code; BLOCK]], T::Code),
}

/// Kernels of a level that this machine has: the only constructor checks it.
#[derive(Clone, Copy)]
pub(crate) struct Kernel<T: Float> {
    table: &'static Kernels<T>,
}

impl<T: Float> fmt::Debug for Kernel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}

impl<T: Float> Kernel<T> {
    /// Returns the kernels of `level`, or of the fastest level below it that the machine has.
    pub(crate) fn at(level: Level) -> Self {
        let usable = Level::available().filter(|&available| available <= level);
        Self { table: T::kernels(usable.last().unwrap_or(Level::Scalar)) }
    }

    /// Encodes 1…4096 values into `dst`.
    #[inline]
    pub(crate) fn encode(self, src: &[T], lattice: &Lattice<T>, dst: &mut [u8]) -> Encoded {
        check_chunk::<T>(src.len(), dst.len());
        // SAFETY: the level is available (see `at`); the sizes were checked above.
        unsafe { (self.table.encode)(src, lattice, dst) }
    }

    /// Decodes a chunk.
    #[inline]
    pub(crate) fn decode(
        self,
        src: &ChunkView<'_, T>,
        scale: &Scale<T>,
        dst: &mut [T],
        stores: Stores,
    ) {
        assert_eq!(src.n_values(), dst.len());
        // SAFETY: the level is available; the view is valid by construction; sizes agree.
        unsafe { (self.table.decode)(src, scale, dst, stores) }
    }

    /// Folds this rank's input into a chunk. Writes the resulting chunk to `dst`.
    #[inline]
    pub(crate) fn fold(
        self,
        op: LatticeOp,
        src: &ChunkView<'_, T>,
        local: &[T],
        lattice: &Lattice<T>,
        dst: &mut [u8],
    ) -> Encoded {
        check_chunk::<T>(local.len(), dst.len());
        assert_eq!(src.n_values(), local.len());
        // SAFETY: as in `encode` and `decode`.
        unsafe { (self.table.fold)(op, src, local, lattice, dst) }
    }

    /// Folds this rank's input into a chunk. Writes the resulting chunk to `dst`, and decodes it
    /// into the output of `values`.
    #[inline]
    pub(crate) fn fold_store(
        self,
        op: LatticeOp,
        src: &ChunkView<'_, T>,
        mut values: Values<'_, T>,
        lattice: &Lattice<T>,
        dst: &mut [u8],
        scale: &Scale<T>,
    ) -> Encoded {
        check_chunk::<T>(src.n_values(), dst.len());
        assert_eq!(src.n_values(), values.local().len());
        assert_eq!(src.n_values(), values.output().len());
        let (local, output) = match values {
            Values::InPlace(values) => {
                let at = values.as_mut_ptr();
                (at.cast_const(), at)
            }
            Values::Apart { local, output } => (local.as_ptr(), output.as_mut_ptr()),
        };
        // SAFETY: as in `encode` and `decode`. Both pointers come from one slice of that length, or
        // from two slices that do not overlap.
        unsafe { (self.table.fold_store)(op, src, local, lattice, dst, scale, output) }
    }

    /// Combines two chunks. Writes the resulting chunk to `dst`.
    #[inline]
    pub(crate) fn combine(
        self,
        paths: Paths,
        op: LatticeOp,
        a: &ChunkView<'_, T>,
        b: &ChunkView<'_, T>,
        lattice: &Lattice<T>,
        dst: &mut [u8],
    ) -> Encoded {
        check_chunk::<T>(a.n_values(), dst.len());
        assert_eq!(a.n_values(), b.n_values());
        // SAFETY: as in `encode` and `decode`.
        unsafe { (self.table.combine)(paths, op, a, b, lattice, dst) }
    }

    /// Returns the smallest and largest finite value; (+MAX, −MAX) if there is none.
    #[inline]
    pub(crate) fn value_range(self, src: &[T]) -> (T, T) {
        // SAFETY: the level is available; the kernel accepts any slice.
        unsafe { (self.table.value_range)(src) }
    }

    /// Adds `other` to `acc`, value by value, as [`op::sum`](crate::op::sum) does.
    #[inline]
    pub(crate) fn sum(self, acc: &mut [T], other: &[T]) {
        assert_eq!(acc.len(), other.len());
        // SAFETY: the level is available; the lengths are equal.
        unsafe { (self.table.sum)(acc, other) }
    }

    /// Packs blocks of codes to the front of `dst`, which must have [`packed_room`] bytes, and
    /// writes the width of each block to `widths`. Returns the number of bytes written.
    ///
    /// If `before` is `Some`, packs the difference of each code to the previous one instead. The
    /// code in `before` precedes the first one.
    #[inline]
    pub(crate) fn pack(
        self,
        codes: &[[T::Code; BLOCK]],
        before: Option<T::Code>,
        widths: &mut [u8],
        dst: &mut [u8],
    ) -> usize {
        assert_eq!(codes.len(), widths.len());
        assert!(dst.len() >= packed_room::<T>(codes.len()));
        // SAFETY: the level is available; the sizes were checked above.
        unsafe { (self.table.pack)(codes, before, widths, dst) }
    }

    /// Unpacks what [`pack`](Self::pack) wrote. Returns the number of bytes read.
    ///
    /// Returns `None` if a width is invalid or `src` is too short. `src` must have [`PAD`] bytes
    /// after the blocks, because vector loads reach past them.
    #[inline]
    pub(crate) fn unpack(
        self,
        src: &[u8],
        widths: &[u8],
        before: Option<T::Code>,
        codes: &mut [[T::Code; BLOCK]],
    ) -> Option<usize> {
        let n_bytes = 4 * widths.iter().map(|&width| usize::from(width)).sum::<usize>();
        let are_widths = widths.iter().all(|&width| u32::from(width) <= T::Code::BITS);
        if codes.len() != widths.len() || !are_widths || src.len() < n_bytes + PAD {
            return None;
        }
        // SAFETY: the level is available; the widths and the length of `src` were checked above.
        unsafe { (self.table.unpack)(src, widths, before, codes) };
        Some(n_bytes)
    }

    /// Replaces each code by the prefix sum up to it, starting from `before`.
    #[inline]
    pub(crate) fn scan(self, codes: &mut [[T::Code; BLOCK]], before: T::Code) {
        // SAFETY: the level is available.
        unsafe { (self.table.scan)(codes, before) }
    }
}

fn check_chunk<T: Float>(n_values: usize, capacity: usize) {
    assert!((1..=CHUNK).contains(&n_values), "a chunk has 1 to {CHUNK} values");
    assert!(capacity >= max_chunk_len::<T>(n_values), "destination below max_chunk_len");
}

macro_rules! tables {
    ($float:ident, $isa:ident) => {
        /// Kernel table for this type. The level must be available.
        pub(crate) fn $float(level: Level) -> &'static Kernels<$float> {
            #[cfg(target_arch = "x86_64")]
            use x86_64::{avx2, avx512};
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => {
                    const {
                        // SAFETY: listing kernels executes none of the level's instructions.
                        &unsafe { avx512::kernels::<_, avx512::$isa>() }
                    }
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => {
                    const {
                        // SAFETY: as above.
                        &unsafe { avx2::kernels::<_, avx2::$isa>() }
                    }
                }
                _ => const { &scalar::kernels::<_, scalar::Scalar>() },
            }
        }
    };
}
tables!(f32, I32);
tables!(f64, I64);
tables!(f16, I32);
tables!(bf16, I32);
