//! Blocks with exceptions, which are values that are not on the lattice. The other values of such a
//! block have codes.
//!
//! The encoding of a value does not depend on other values: an exception keeps its bits, and other
//! values have the same codes as in a block without exceptions. So a few NaN do not turn the values
//! between them into exceptions, and codes are still added as integers, in any order. Residuals
//! skip exceptions: each is the difference of a code to the previous code.
//!
//! In most data, most blocks have no exceptions. So this code is out of line ([`OutOfLine`]), and
//! the loops over codes keep their registers. Its speed still matters: if 5 % of the values are NaN
//! at random places, 80 % of the blocks have exceptions. Cost: 5 bytes for each block with
//! exceptions, and the exceptions' own bytes. Exceptions at the end of a block are not stored if
//! they repeat the exception before them.

use super::super::chunk::{AGAIN, MASK_BYTES, MIXED, MIXED_HEAD, REPEAT, VERBATIM};
use super::super::chunk::{every, residuals_len};
use super::super::scalar::is_on_lattice;
use super::super::{BLOCK, Code, Lattice, PAD, STORE_SLACK, Scale, max_chunk_len};
use super::Convert;
use crate::element::Float;
use crate::element::sealed::Wide;
use crate::op::{self, LatticeOp, divide, quotient, weigh};

/// Block in which some or all values are exceptions.
#[derive(Clone, Copy)]
pub(in super::super) struct MixedBlock<T: Float> {
    /// Mask: bit i is set if value i is an exception. If the block is short, the bits after its
    /// values are unspecified.
    exceptions: u32,
    /// Exceptions; the other places are unspecified.
    values: [T; BLOCK],
    /// Codes of the other values; the places of exceptions are unspecified.
    codes: [T::Code; BLOCK],
}

/// Last code and last exception of a chunk that precede a block. The block's first residual and its
/// repeated exceptions refer to them.
#[derive(Clone, Copy)]
pub(in super::super) struct PrecedingCodes<T: Float> {
    /// Last code.
    pub(super) code: T::Code,
    /// Last exception.
    pub(super) exception: T,
}

/// Block that has been read from a chunk.
pub(in super::super) struct LoadedBlock<T: Float> {
    pub(super) block: MixedBlock<T>,
    pub(super) n_bytes: usize,
    /// Last code and exception up to the end of this block.
    pub(super) after: PrecedingCodes<T>,
}

/// Description of a block that has been written to a chunk.
#[derive(Clone, Copy)]
pub(in super::super) struct StoredBlock<T: Float> {
    pub(super) width: u8,
    pub(super) n_bytes: usize,
    pub(super) n_exceptions: u32,
    /// First and last code, if the block has codes.
    pub(super) codes: Option<(T::Code, T::Code)>,
    pub(super) last_exception: T,
}

/// Functions of [`MixedBlock`], compiled out of line for each level.
///
/// This is a trait because generic loops cannot otherwise call functions with target features.
/// [`out_of_line`] implements it.
///
/// # Safety
/// All methods require the instruction set, and have the requirements of the functions of
/// [`MixedBlock`] with the same names.
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
        // SAFETY: the functions enable the features of the instruction set; the caller guarantees
        // everything else.
        unsafe impl<$($generics)*> OutOfLine<$float> for $isa {
            $(#[target_feature(enable = $features)])?
            #[cold]
            #[inline(never)]
            unsafe fn of_values(
                src: *const $float,
                lattice: &Lattice<$float>,
            ) -> MixedBlock<$float> {
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
    /// Block of codes without exceptions.
    #[inline(always)]
    pub(super) fn of_codes(codes: [T::Code; BLOCK]) -> Self {
        Self { exceptions: 0, values: [T::ZERO; BLOCK], codes }
    }

    /// Block of exceptions without codes.
    #[inline(always)]
    fn of_exceptions(values: [T; BLOCK]) -> Self {
        Self { exceptions: u32::MAX, values, codes: [T::Code::ZERO; BLOCK] }
    }

    /// Encodes 32 values of this rank's input. Exceptions are multiplied by the weight.
    ///
    /// # Safety
    /// Requires the level's instruction set; `src` must be readable for 32 values.
    #[inline(always)]
    pub(in super::super) unsafe fn of_values<S: Convert<T>>(
        src: *const T,
        lattice: &Lattice<T>,
    ) -> Self {
        // SAFETY: guaranteed by the caller.
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
    /// Requires the level's instruction set. `src` must point to a block of this width byte, which
    /// is at least [`MIXED`]. The block's head must have been checked, and [`PAD`] readable bytes
    /// must follow the block.
    #[inline(always)]
    pub(in super::super) unsafe fn load<S: Convert<T>>(
        width: u8,
        n: usize,
        src: *const u8,
        mut before: PrecedingCodes<T>,
    ) -> LoadedBlock<T> {
        // All values are exceptions.
        if width >= AGAIN {
            let n_stored = match width {
                AGAIN => 0,
                REPEAT => 1,
                _ => n,
            };
            // SAFETY: the block has `n_stored` values.
            let (block, last) =
                unsafe { read_exceptions(src, n_stored, u32::MAX, before.exception) };
            before.exception = last;
            let block = Self::of_exceptions(block);
            return LoadedBlock { block, n_bytes: n_stored * T::BYTES, after: before };
        }
        // SAFETY: the head is readable and was checked, and it gives the length of the block; PAD
        // bytes follow.
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

    /// Combines two blocks. If either value is an exception, so is the result, which is computed in
    /// `T`.
    ///
    /// # Safety
    /// Requires the level's instruction set.
    #[inline(always)]
    pub(in super::super) unsafe fn join<S: Convert<T>>(
        op: LatticeOp,
        x: &Self,
        y: &Self,
        lattice: &Lattice<T>,
    ) -> Self {
        let step = lattice.step * lattice.weight.widen();
        // SAFETY: guaranteed by the caller.
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
    /// Requires the level's instruction set; `dst` must be writable for `n` values.
    #[inline(always)]
    pub(in super::super) unsafe fn decode<S: Convert<T>>(
        &self,
        scale: &Scale<T>,
        n: usize,
        dst: *mut T,
    ) {
        // SAFETY: guaranteed by the caller.
        let mut values = unsafe { self.values::<S>(scale.of_codes) };
        if self.exceptions == u32::MAX {
            divide(&mut values, scale.divisor);
        } else if scale.divisor != T::Wide::ONE {
            for i in set_bits(self.exceptions) {
                values[i] = quotient(values[i], scale.divisor);
            }
        }
        // SAFETY: guaranteed by the caller; n ≤ 32.
        unsafe { dst.copy_from_nonoverlapping(values.as_ptr(), n) };
    }

    /// Returns the values: exceptions unchanged, and codes times `step`.
    ///
    /// # Safety
    /// Requires the level's instruction set.
    #[inline(always)]
    unsafe fn values<S: Convert<T>>(&self, step: T::Wide) -> [T; BLOCK] {
        if self.exceptions == u32::MAX {
            return self.values;
        }
        let mut values = [T::ZERO; BLOCK];
        // SAFETY: guaranteed by the caller; `values` has space for 32 values.
        unsafe { S::dequantise(S::from_array(self.codes), step, values.as_mut_ptr()) };
        for i in set_bits(self.exceptions) {
            values[i] = self.values[i];
        }
        values
    }

    /// Writes the block, of `n` values. At least one of them must be an exception. `code` and
    /// `exception` are the last code and the last exception before the block; `code` is `None` if
    /// there is no code before it.
    ///
    /// # Safety
    /// Requires the level's instruction set. `dst` must be valid for the bytes that
    /// [`max_chunk_len`] counts for a block and for everything after it.
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
            // SAFETY: `dst` has space for 32 codes, and no type is wider than its codes.
            unsafe { dst.copy_from_nonoverlapping(self.values.as_ptr().cast(), n_bytes) };
            return StoredBlock { width, n_bytes, n_exceptions, codes: None, last_exception: last };
        }
        let is_code = !exceptions & every(n);
        // SAFETY: the caller guarantees the instruction set. Packing writes the head, 32 residuals
        // and at most STORE_SLACK bytes. As asserted, these fit the bytes that `max_chunk_len`
        // counts from a block to the end, even for a chunk of one block. Everything before the
        // block takes no more bytes than `max_chunk_len` counts for it.
        unsafe {
            const {
                let last = max_chunk_len::<T>(1) - 1;
                assert!(MIXED_HEAD + BLOCK * size_of::<T::Code>() + STORE_SLACK <= last);
            }
            // There are fewer than 32 codes. The last one fills the rest, so that the residuals
            // there are 0.
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

/// Returns the mask with bit i set if `is_set[i]`.
#[inline(always)]
fn mask_of(is_set: [bool; BLOCK]) -> u32 {
    // For eight bytes of 0 or 1, bit i of the product's highest byte is byte i.
    is_set.map(u8::from).as_chunks().0.iter().rev().fold(0, |mask, &eight| {
        let bits = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask << 8 | bits as u32
    })
}

/// Iterates over the indices of the set bits, in ascending order.
#[inline(always)]
fn set_bits(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < BLOCK).then_some(bit)
    })
}

/// Unpacks a block's residuals, of `width` bits each and `n_bytes` in all, to codes. The block has
/// fewer than 32 residuals; the codes after them are unspecified.
///
/// # Safety
/// Requires the level's instruction set; `src` must be readable for `n_bytes` and [`PAD`] more.
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
    // Unpacking reads 32 residuals, so copy the block's residuals to a buffer for 32.
    let mut packed = [0u8; BLOCK * size_of::<u64>() + PAD];
    // SAFETY: fewer than 32 residuals take less than 256 bytes. Pieces of PAD bytes reach less than
    // PAD past them in `src` and in the buffer. The buffer has the bytes of 32 residuals and PAD
    // more, which unpacking may read.
    unsafe {
        for at in (0..n_bytes).step_by(PAD) {
            let piece = src.add(at).cast::<[u8; PAD]>().read_unaligned();
            packed.as_mut_ptr().add(at).cast::<[u8; PAD]>().write_unaligned(piece);
        }
        let residuals = S::unzigzag(S::unpack(packed.as_ptr(), width));
        S::to_array(S::scan(residuals, S::splat(before)))
    }
}

/// Reads the exceptions of a block. Returns them, and the last one.
///
/// `n_stored` exceptions are read from `src`. The others repeat the last stored one, or `before` if
/// none is stored.
///
/// # Safety
/// `src` must be readable for `n_stored` values.
#[inline(always)]
unsafe fn read_exceptions<T: Float>(
    src: *const u8,
    n_stored: usize,
    exceptions: u32,
    before: T,
) -> ([T; BLOCK], T) {
    let (mut values, mut last) = ([before; BLOCK], before);
    if exceptions == u32::MAX {
        // SAFETY: guaranteed by the caller; at most 32 values are stored.
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
                // SAFETY: guaranteed by the caller.
                last = unsafe { src.cast::<T>().add(nth).read_unaligned() };
            }
            values[i] = last;
        }
    }
    (values, last)
}

/// Writes a block's exceptions, and returns the number of stored ones: all but the trailing ones
/// that repeat the exception before them. `before` is the last exception before the block.
///
/// # Safety
/// `dst` must be writable for all exceptions.
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
        // SAFETY: guaranteed by the caller.
        unsafe { dst.cast::<T>().add(nth).write_unaligned(value) };
        if value.bits() != last.bits() {
            (last, n_stored) = (value, nth + 1);
        }
    }
    n_stored
}
