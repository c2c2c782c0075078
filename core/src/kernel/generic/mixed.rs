//! Blocks with exceptions: values that are on no lattice, beside the codes of the others.
//!
//! What a value becomes depends on no other value: an exception keeps its bits, all others have the
//! codes that they would have anywhere, and the chain of codes passes over exceptions. Most blocks
//! have none, so all of it is out of line ([`OutOfLine`]), and the loops over codes keep their
//! registers. Cost: 5 bytes a block, and an exception's own bytes unless it repeats.

use super::super::chunk::{AGAIN, MASK_BYTES, MIXED, MIXED_HEAD, REPEAT, VERBATIM};
use super::super::chunk::{every, residuals_len};
use super::super::scalar::is_on_lattice;
use super::super::{BLOCK, Code, Lattice, PAD, STORE_SLACK, Scale, max_chunk_len};
use super::Convert;
use crate::element::Float;
use crate::element::sealed::Wide;
use crate::op::{self, LatticeOp, divide, quotient, weigh};

/// A block in which some values, or all, are exceptions.
#[derive(Clone, Copy)]
pub(in super::super) struct MixedBlock<T: Float> {
    /// Bit i: value i is one. Bits beyond the block's values may be anything.
    exceptions: u32,
    /// Exceptions as they are, and anything.
    values: [T; BLOCK],
    /// Codes of the others, and anything.
    codes: [T::Code; BLOCK],
}

/// What stands before a block in its chunk: what its first residual and its exceptions refer to.
#[derive(Clone, Copy)]
pub(in super::super) struct PrecedingCodes<T: Float> {
    /// The last code.
    pub(super) code: T::Code,
    /// The last exception.
    pub(super) exception: T,
}

/// A block that was read.
pub(in super::super) struct LoadedBlock<T: Float> {
    pub(super) block: MixedBlock<T>,
    pub(super) n_bytes: usize,
    /// What stands before the next one.
    pub(super) after: PrecedingCodes<T>,
}

/// What storing a block came to.
#[derive(Clone, Copy)]
pub(in super::super) struct StoredBlock<T: Float> {
    pub(super) width: u8,
    pub(super) n_bytes: usize,
    pub(super) n_exceptions: u32,
    /// The first code and the last, if it has one.
    pub(super) codes: Option<(T::Code, T::Code)>,
    pub(super) last_exception: T,
}

/// The functions of this module as each level compiles them. A trait, because only so generic loops
/// can call functions with target features; [`out_of_line`] implements it.
///
/// # Safety
/// All methods require the instruction set, and what the functions of [`MixedBlock`] by these names do.
pub(in super::super) unsafe trait OutOfLine<T: Float> {
    unsafe fn of_values(src: *const T, lattice: &Lattice<T>) -> MixedBlock<T>;
    unsafe fn load(
        width: u8,
        n: usize,
        src: *const u8,
        before: PrecedingCodes<T>,
    ) -> LoadedBlock<T>;
    unsafe fn join(
        op: LatticeOp,
        x: &MixedBlock<T>,
        y: &MixedBlock<T>,
        lattice: &Lattice<T>,
    ) -> MixedBlock<T>;
    unsafe fn decode(block: &MixedBlock<T>, scale: &Scale<T>, n: usize, dst: *mut T);
    unsafe fn store(
        block: &MixedBlock<T>,
        n: usize,
        code: Option<T::Code>,
        exception: T,
        dst: *mut u8,
    ) -> StoredBlock<T>;
}

/// Implements [`OutOfLine`] with these target features.
macro_rules! out_of_line {
    ([$($generics:tt)*] $float:ty, $isa:ty $(, $features:literal)?) => {
        // SAFETY: the features are those of the instruction set; the rest is the caller's promise.
        unsafe impl<$($generics)*> OutOfLine<$float> for $isa {
            $(#[target_feature(enable = $features)])?
            #[cold]
            #[inline(never)]
            unsafe fn of_values(src: *const $float, lattice: &Lattice<$float>) -> MixedBlock<$float> {
                // SAFETY: as above.
                unsafe { MixedBlock::of_values::<Self>(src, lattice) }
            }

            $(#[target_feature(enable = $features)])?
            #[cold]
            #[inline(never)]
            unsafe fn load(
                width: u8,
                n: usize,
                src: *const u8,
                before: PrecedingCodes<$float>,
            ) -> LoadedBlock<$float> {
                // SAFETY: as above.
                unsafe { MixedBlock::load::<Self>(width, n, src, before) }
            }

            $(#[target_feature(enable = $features)])?
            #[cold]
            #[inline(never)]
            unsafe fn join(
                op: LatticeOp,
                x: &MixedBlock<$float>,
                y: &MixedBlock<$float>,
                lattice: &Lattice<$float>,
            ) -> MixedBlock<$float> {
                // SAFETY: as above.
                unsafe { MixedBlock::join::<Self>(op, x, y, lattice) }
            }

            $(#[target_feature(enable = $features)])?
            #[cold]
            #[inline(never)]
            unsafe fn decode(
                block: &MixedBlock<$float>,
                scale: &Scale<$float>,
                n: usize,
                dst: *mut $float,
            ) {
                // SAFETY: as above.
                unsafe { block.decode::<Self>(scale, n, dst) }
            }

            $(#[target_feature(enable = $features)])?
            #[cold]
            #[inline(never)]
            unsafe fn store(
                block: &MixedBlock<$float>,
                n: usize,
                code: Option<<$float as crate::element::sealed::OnLattice>::Code>,
                exception: $float,
                dst: *mut u8,
            ) -> StoredBlock<$float> {
                // SAFETY: as above.
                unsafe { block.store::<Self>(n, code, exception, dst) }
            }
        }
    };
}
pub(in super::super) use out_of_line;

impl<T: Float> MixedBlock<T> {
    /// Codes only.
    #[inline(always)]
    pub(super) fn of_codes(codes: [T::Code; BLOCK]) -> Self {
        Self { exceptions: 0, values: [T::ZERO; BLOCK], codes }
    }

    /// Exceptions only.
    #[inline(always)]
    fn of_exceptions(values: [T; BLOCK]) -> Self {
        Self { exceptions: u32::MAX, values, codes: [T::Code::ZERO; BLOCK] }
    }

    /// 32 own values; exceptions enter by their weight.
    ///
    /// # Safety
    /// The level's instruction set; `src` must be readable for 32 values.
    #[inline(always)]
    pub(in super::super) unsafe fn of_values<S: Convert<T>>(
        src: *const T,
        lattice: &Lattice<T>,
    ) -> Self {
        // SAFETY: by the caller's promise.
        let mut values = unsafe { src.cast::<[T; BLOCK]>().read_unaligned() };
        let mut block = Self::of_exceptions(values);
        if lattice.has_points() {
            // SAFETY: as above.
            block.codes = unsafe { S::to_array(S::quantise(src, lattice).0) };
            block.exceptions = mask_of(values.map(|x| !is_on_lattice(x, lattice)));
        }
        weigh(&mut values, lattice.weight);
        Self { values, ..block }
    }

    /// Reads a block of `n` values.
    ///
    /// # Safety
    /// The level's instruction set; `src` must be a block of this width, [`MIXED`] at least, whose
    /// head has been checked, with [`PAD`] bytes behind it.
    #[inline(always)]
    pub(in super::super) unsafe fn load<S: Convert<T>>(
        width: u8,
        n: usize,
        src: *const u8,
        mut before: PrecedingCodes<T>,
    ) -> LoadedBlock<T> {
        if width >= AGAIN {
            let n_stored = match width {
                AGAIN => 0,
                REPEAT => 1,
                _ => n,
            };
            // SAFETY: as many values are there.
            let (block, last) =
                unsafe { read_exceptions(src, n_stored, u32::MAX, before.exception) };
            before.exception = last;
            let block = Self::of_exceptions(block);
            return LoadedBlock { block, n_bytes: n_stored * T::BYTES, after: before };
        }
        // SAFETY: the head is there and says how long the block is.
        unsafe {
            let exceptions = u32::from_le_bytes(src.cast::<[u8; MASK_BYTES]>().read());
            let n_stored = usize::from(src.add(MASK_BYTES).read());
            let n_exceptions = exceptions.count_ones() as usize;
            let width = width - MIXED;
            let packed = src.add(MIXED_HEAD);
            let n_packed = residuals_len(width.into(), n_exceptions);
            let dense = unpack::<T, S>(packed, width.into(), n_packed, before.code);
            before.code = dense[BLOCK - 1 - n_exceptions];
            let exact = packed.add(n_packed);
            let (values, last) = read_exceptions(exact, n_stored, exceptions, before.exception);
            before.exception = last;
            let block = Self { exceptions, values, codes: S::spread(&dense, !exceptions) };
            let n_bytes = MIXED_HEAD + n_packed + n_stored * T::BYTES;
            LoadedBlock { block, n_bytes, after: before }
        }
    }

    /// x ⊕ y. An exception of either is one of the result, computed in `T`.
    ///
    /// # Safety
    /// The level's instruction set.
    #[inline(always)]
    pub(in super::super) unsafe fn join<S: Convert<T>>(
        op: LatticeOp,
        x: &Self,
        y: &Self,
        lattice: &Lattice<T>,
    ) -> Self {
        let step = lattice.step * lattice.weight.widen();
        // SAFETY: by the caller's promise.
        unsafe {
            let (mut values, others) = (x.values::<S>(step), y.values::<S>(step));
            let pairs = values.iter_mut().zip(others);
            let (a, b) = (S::from_array(x.codes), S::from_array(y.codes));
            let codes = match op {
                LatticeOp::Sum => {
                    S::sum(values.as_mut_ptr(), others.as_ptr());
                    S::add(a, b)
                }
                LatticeOp::Min => {
                    pairs.for_each(|(x, y)| *x = op::minimum(*x, y));
                    S::min(a, b)
                }
                LatticeOp::Max => {
                    pairs.for_each(|(x, y)| *x = op::maximum(*x, y));
                    S::max(a, b)
                }
            };
            let exceptions = x.exceptions | y.exceptions;
            Self { exceptions, values, codes: S::to_array(codes) }
        }
    }

    /// Decodes the block, of `n` values, to `dst`.
    ///
    /// # Safety
    /// The level's instruction set; `dst` must be valid for the values.
    #[inline(always)]
    pub(in super::super) unsafe fn decode<S: Convert<T>>(
        &self,
        scale: &Scale<T>,
        n: usize,
        dst: *mut T,
    ) {
        // SAFETY: by the caller's promise.
        let mut values = unsafe { self.values::<S>(scale.of_codes) };
        if self.exceptions == u32::MAX {
            divide(&mut values, scale.divisor);
        } else if scale.divisor != T::Wide::ONE {
            for i in set_bits(self.exceptions) {
                values[i] = quotient(values[i], scale.divisor);
            }
        }
        // SAFETY: by the caller's promise; n ≤ 32.
        unsafe { dst.copy_from_nonoverlapping(values.as_ptr(), n) };
    }

    /// Exceptions as they are, codes times `step`.
    ///
    /// # Safety
    /// The level's instruction set.
    #[inline(always)]
    unsafe fn values<S: Convert<T>>(&self, step: T::Wide) -> [T; BLOCK] {
        if self.exceptions == u32::MAX {
            return self.values;
        }
        let mut values = [T::ZERO; BLOCK];
        // SAFETY: by the caller's promise; room for 32 values.
        unsafe { S::dequantise(S::from_array(self.codes), step, values.as_mut_ptr()) };
        for i in set_bits(self.exceptions) {
            values[i] = self.values[i];
        }
        values
    }

    /// Writes the block, of `n` values, at least one of them an exception, behind the last `code`
    /// and the last `exception` before it.
    ///
    /// # Safety
    /// The level's instruction set; `dst` must be valid for what [`max_chunk_len`] counts for a
    /// block and all that stands behind it.
    #[inline(always)]
    pub(in super::super) unsafe fn store<S: Convert<T>>(
        &self,
        n: usize,
        code: Option<T::Code>,
        exception: T,
        dst: *mut u8,
    ) -> StoredBlock<T> {
        let exceptions = self.exceptions & every(n);
        let n_exceptions = exceptions.count_ones();
        if exceptions == every(n) {
            let last = self.values[n - 1];
            let is_last = |value: &T| value.bits() == last.bits();
            let (width, n_stored) = match self.values[..n].iter().all(is_last) {
                true if is_last(&exception) => (AGAIN, 0),
                true => (REPEAT, 1),
                false => (VERBATIM, n),
            };
            let n_bytes = n_stored * T::BYTES;
            // SAFETY: no type is wider than its codes, so the values fit.
            unsafe { dst.copy_from_nonoverlapping(self.values.as_ptr().cast(), n_bytes) };
            return StoredBlock { width, n_bytes, n_exceptions, codes: None, last_exception: last };
        }
        let is_code = !exceptions & every(n);
        // SAFETY: the instruction set is the caller's. The head, 32 residuals and what packing them
        // may write past that is in bounds, as asserted: whatever stands before the block takes no
        // more than it is counted with.
        unsafe {
            const {
                let last = max_chunk_len::<T>(1) - 1;
                assert!(MIXED_HEAD + BLOCK * size_of::<T::Code>() + STORE_SLACK <= last);
            }
            // Fewer than 32 codes, filled up with the last, whose residuals are 0.
            let dense = S::dense(&self.codes, is_code);
            let (first, last) = (dense[0], dense[BLOCK - 1]);
            let before = S::splat(code.unwrap_or(first));
            let zigzags = S::zigzag(S::diff(S::from_array(dense), before));
            let width = S::width(zigzags);
            let packed = dst.add(MIXED_HEAD);
            if width > 0 {
                S::pack(zigzags, width, packed);
            }
            let n_packed = residuals_len(width as usize, n_exceptions as usize);
            let n_stored =
                write_exceptions(&self.values, exceptions, exception, packed.add(n_packed));
            dst.cast::<[u8; MASK_BYTES]>().write(exceptions.to_le_bytes());
            dst.add(MASK_BYTES).write(n_stored as u8);
            StoredBlock {
                width: MIXED + width as u8,
                n_bytes: MIXED_HEAD + n_packed + n_stored * T::BYTES,
                n_exceptions,
                codes: Some((first, last)),
                last_exception: self.values[exceptions.ilog2() as usize],
            }
        }
    }
}

/// Bit i: `is_set[i]`.
#[inline(always)]
fn mask_of(is_set: [bool; BLOCK]) -> u32 {
    // Eight bytes of 0 or 1: the product's highest byte has byte i as its bit i.
    is_set.map(u8::from).as_chunks().0.iter().rev().fold(0, |mask, &eight| {
        let bits = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask << 8 | bits as u32
    })
}

/// The numbers of the bits that are set.
#[inline(always)]
fn set_bits(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < BLOCK).then_some(bit)
    })
}

/// 32 codes of `width` bits each; `n_bytes` of residuals are the block's, and what they decode to
/// beyond is anything.
///
/// # Safety
/// The level's instruction set; `src` must be valid for `n_bytes` and [`PAD`] more.
#[inline(always)]
unsafe fn unpack<T: Float, S: Convert<T>>(
    src: *const u8,
    width: u32,
    n_bytes: usize,
    before: T::Code,
) -> [T::Code; BLOCK] {
    if width == 0 {
        return [before; BLOCK];
    }
    // Unpacking reads as if all 32 were there.
    let mut packed = [0u8; BLOCK * size_of::<u64>() + PAD];
    // SAFETY: fewer than 32 residuals are less than 256 bytes; pieces of PAD reach less than PAD
    // past them in both. The buffer has what 32 take and PAD.
    unsafe {
        for at in (0..n_bytes).step_by(PAD) {
            let piece = src.add(at).cast::<[u8; PAD]>().read_unaligned();
            packed.as_mut_ptr().add(at).cast::<[u8; PAD]>().write_unaligned(piece);
        }
        let residuals = S::unzigzag(S::unpack(packed.as_ptr(), width));
        S::to_array(S::scan(residuals, S::splat(before)))
    }
}

/// Reads the exceptions of a block, of which `n_stored` are there and the others repeat the last of
/// them, or the one `before`; and the last of all.
///
/// # Safety
/// `src` must be valid for the values.
#[inline(always)]
unsafe fn read_exceptions<T: Float>(
    src: *const u8,
    n_stored: usize,
    exceptions: u32,
    before: T,
) -> ([T; BLOCK], T) {
    let (mut values, mut last) = ([before; BLOCK], before);
    if exceptions == u32::MAX {
        // SAFETY: by the caller's promise; at most 32 are stored.
        unsafe {
            let bytes = values.as_mut_ptr().cast::<u8>();
            bytes.copy_from_nonoverlapping(src, n_stored * T::BYTES);
        }
        if n_stored > 0 {
            last = values[n_stored - 1];
            values[n_stored..].fill(last);
        }
    } else {
        for (nth, i) in set_bits(exceptions).enumerate() {
            if nth < n_stored {
                // SAFETY: by the caller's promise.
                last = unsafe { src.cast::<T>().add(nth).read_unaligned() };
            }
            values[i] = last;
        }
    }
    (values, last)
}

/// Writes a block's exceptions without those that repeat at its end; how many are left.
///
/// # Safety
/// `dst` must be valid for all of them.
#[inline(always)]
unsafe fn write_exceptions<T: Float>(
    values: &[T; BLOCK],
    exceptions: u32,
    before: T,
    dst: *mut u8,
) -> usize {
    let (mut last, mut n_stored) = (before, 0);
    for (nth, i) in set_bits(exceptions).enumerate() {
        let value = values[i];
        // SAFETY: by the caller's promise.
        unsafe { dst.cast::<T>().add(nth).write_unaligned(value) };
        if value.bits() != last.bits() {
            (last, n_stored) = (value, nth + 1);
        }
    }
    n_stored
}
