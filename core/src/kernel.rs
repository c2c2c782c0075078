//! Safe entry points to the codec's inner loops, and the one place where an instruction set is
//! chosen.
//!
//! Layers, after memchr: `scalar` is the specification; `generic` holds every chunk loop, written
//! once over the `generic::Isa` trait; `x86_64` implements that trait for AVX2+BMI2 and for
//! AVX-512. All levels give identical bytes; `tests` below forces each level the machine has.
//!
//! Unit of work: one *chunk* of up to 4096 values, whose layout is in `chunk` and docs/format.md.

#![allow(unsafe_code)]

pub mod at_level;
pub(crate) mod chunk;
pub(crate) mod error;
mod generic;
pub(crate) mod prefetch;
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

/// Values in a block: the unit that has one bit width.
pub const BLOCK: usize = 32;
/// Values in a chunk: the unit of random access, parallelism and damage.
pub const CHUNK: usize = 4096;
/// Blocks in a full chunk.
pub(crate) const BLOCKS: usize = CHUNK / BLOCK;
/// Readable bytes that must follow a chunk: vector loads reach past its last block.
pub(crate) const PAD: usize = 64;

/// Largest encoding of a chunk of `n_values`, with room for the vector stores that reach past its
/// end.
#[must_use]
pub(crate) const fn max_chunk_len<T: Float>(n_values: usize) -> usize {
    let blocks = n_values.div_ceil(BLOCK);
    let code = size_of::<<T as OnLattice>::Code>();
    1 + code + blocks * (max_block_len::<T>() + 1) + blocks.div_ceil(8) + STORE_SLACK
}

/// Room that [`Kernel::pack`] needs for so many blocks.
#[must_use]
pub(crate) const fn packed_room<T: Float>(n_blocks: usize) -> usize {
    n_blocks * BLOCK / 8 * <T as OnLattice>::Code::BITS as usize + STORE_SLACK
}

/// How two chunks are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// Each pair of blocks as little as it needs: hZCCL's "hZ-dynamic".
    Dynamic,
    /// Each is unpacked to codes, and their sum is packed: its baseline.
    Static,
}

/// Bytes that a vector store may write beyond the encoded end.
const STORE_SLACK: usize = 64;

/// What a type's lattice has as codes.
type CodeOf<T> = <T as OnLattice>::Code;

/// An instruction set that the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Portable Rust; the specification.
    Scalar,
    /// x86-64 with AVX2, BMI1, BMI2, LZCNT and F16C (2013 on; fast BMI2 on AMD from Zen 3).
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VBMI (Ice Lake, Zen 4 and later).
    Avx512,
}

impl Level {
    /// All levels, slowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// Whether this machine has the instructions.
    #[must_use]
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

    /// The fastest level this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|level| level.is_available()).unwrap_or(Self::Scalar)
    }

    /// The levels this machine has, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| level.is_available())
    }

    /// The name in lower case: `scalar`, `avx2`, `avx512`.
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

/// Integer codes: `i64` for `f64`, `i32` for the other types. All arithmetic wraps: head-room keeps
/// honest sums in range, and a hostile frame must not be able to cause a panic.
pub trait Code: bytemuck::Pod + Ord + fmt::Debug {
    /// Bits, and so the largest width of a zig-zag residual.
    const BITS: u32;
    /// 0.
    const ZERO: Self;
    /// self + other, wrapping.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// self − other, wrapping.
    #[must_use]
    fn minus(self, other: Self) -> Self;
    /// 0, −1, 1, −2, … → 0, 1, 2, 3, …
    #[must_use]
    fn zigzag(self) -> u64;
    /// Inverse of [`zigzag`](Self::zigzag).
    #[must_use]
    fn unzigzag(bits: u64) -> Self;
    /// The code's bit pattern, zero-extended.
    #[must_use]
    fn bits(self) -> u64;
    /// The code whose bit pattern is the low bits of `bits`.
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

/// A lattice k·step, and when a value counts as represented by it. Codes are computed in the type
/// that `T` is widened to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lattice<T: Float> {
    /// Spacing Δ.
    pub(crate) step: T::Wide,
    /// 1/Δ, rounded.
    pub(crate) inverse: T::Wide,
    /// Largest |code| that one operand may have; negative: nothing is on the lattice.
    pub(crate) limit: T::Wide,
    /// |x − decoded(x)| must be *below* this. Strictly: the subtraction rounds, and rounding is
    /// monotonic, so a rounded difference below the bound proves the exact one is.
    pub(crate) bound: T::Wide,
    /// What exceptions are multiplied by, and decoded codes that meet them:
    /// 1, or the weight of an average's operands.
    pub(crate) weight: T,
}

impl<T: Float> Lattice<T> {
    /// Whether anything is on it.
    pub(crate) fn has_points(&self) -> bool {
        self.limit >= T::ZERO.widen()
    }

    /// The lattice of values that have been multiplied by the weight. Codes are the same.
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

/// What decoding makes of a chunk: codes times `of_codes`, exceptions divided by `divisor`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale<T: Float> {
    of_codes: T::Wide,
    divisor: T::Wide,
}

impl<T: Float> Scale<T> {
    /// Sums of values on a lattice of this step, each divided by `divisor`; by 1 they keep the
    /// weight that exceptions have.
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
    /// What codes are multiplied by.
    pub(crate) fn of_codes(&self) -> T::Wide {
        self.of_codes
    }

    /// What exceptions are divided by.
    pub(crate) fn divisor(&self) -> T::Wide {
        self.divisor
    }
}

/// Size of one encoded chunk, and its exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) n_bytes: usize,
    /// Blocks that have some.
    pub(crate) verbatim_blocks: u32,
    pub(crate) exceptions: u32,
}

/// The chunk kernels of one element type at one level.
///
/// Every destination must hold `max_chunk_len` bytes for the number of values.
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

/// A kernel table's level is proven available: the only constructor checks it.
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
    /// The kernels of `level`, or of the best level below it that the machine has.
    pub(crate) fn at(level: Level) -> Self {
        let usable = Level::available().filter(|&available| available <= level);
        Self { table: T::kernels(usable.last().unwrap_or(Level::Scalar)) }
    }

    /// Encodes 1…4096 values into `dst`.
    #[inline]
    pub(crate) fn encode(self, src: &[T], lattice: &Lattice<T>, dst: &mut [u8]) -> Encoded {
        check_chunk::<T>(src.len(), dst.len());
        // SAFETY: the level is available (`at`); sizes were checked above.
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

    /// Chunk ⊕ floats → chunk.
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

    /// Chunk ⊕ own values → chunk, decoded into their output too.
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
        // SAFETY: as in `encode` and `decode`; the pointers come from slices of that length, both
        // from one or each from its own.
        unsafe { (self.table.fold_store)(op, src, local, lattice, dst, scale, output) }
    }

    /// Chunk ⊕ chunk → chunk.
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

    /// Smallest and largest finite value; (+MAX, −MAX) if there is none.
    #[inline]
    pub(crate) fn value_range(self, src: &[T]) -> (T, T) {
        // SAFETY: the level is available; any slice will do.
        unsafe { (self.table.value_range)(src) }
    }

    /// acc ← acc + other, value by value, as [`op::sum`](crate::op::sum).
    #[inline]
    pub(crate) fn sum(self, acc: &mut [T], other: &[T]) {
        assert_eq!(acc.len(), other.len());
        // SAFETY: the level is available; the lengths are equal.
        unsafe { (self.table.sum)(acc, other) }
    }

    /// Writes the widths of blocks of codes, and the blocks to the front of `dst`, which has
    /// [`packed_room`] for them; into how many bytes. If a code is before them, the difference of
    /// each to the one before is written.
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
        // SAFETY: the level is available; there is room.
        unsafe { (self.table.pack)(codes, before, widths, dst) }
    }

    /// Inverse of [`pack`](Self::pack); of how many bytes. `None` if no writer wrote it. Vector
    /// loads reach up to [`PAD`] bytes further, which must be there.
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
        // SAFETY: the level is available; all bytes are there.
        unsafe { (self.table.unpack)(src, widths, before, codes) };
        Some(n_bytes)
    }

    /// Makes each code the sum of those up to it and the one before all.
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
    ($float:ident, $scalar:ident, $avx2:ident, $avx512:ident) => {
        /// The table for this type; the level must be available.
        pub(crate) fn $float(level: Level) -> &'static Kernels<$float> {
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => &x86_64::$avx512,
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => &x86_64::$avx2,
                _ => &scalar::$scalar,
            }
        }
    };
}
tables!(f32, F32, AVX2_F32, AVX512_F32);
tables!(f64, F64, AVX2_F64, AVX512_F64);
tables!(f16, F16, AVX2_F16, AVX512_F16);
tables!(bf16, BF16, AVX2_BF16, AVX512_BF16);
