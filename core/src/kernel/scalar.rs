//! Scalar level, which specifies the others: a block is an array, and all loops are plain.
//!
//! Other levels must give the same bytes. Speed: about 1 to 2 GB/s of uncompressed `f32` per core.

use super::generic::mixed::{
    LoadedBlock, MixedBlock, OutOfLine, PrecedingCodes, StoredBlock, out_of_line,
};
use super::generic::{Convert, Isa, kernels};
use super::{BLOCK, Code, Lattice, Scale};
use crate::element::Float;
use crate::element::sealed::Wide;
use crate::op::LatticeOp;
use core::array;

/// Portable Rust, for any code type.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

// SAFETY: needs no instruction set; every pointer access stays within the blocks that the trait
// names.
unsafe impl<T: Float> Convert<T> for Scalar {
    #[inline(always)]
    unsafe fn quantise(src: *const T, lattice: &Lattice<T>) -> (Self::Block, bool) {
        // SAFETY: the caller guarantees 32 readable values.
        let values = unsafe { src.cast::<[T; BLOCK]>().read_unaligned() };
        let mut codes = [T::Code::ZERO; BLOCK];
        let mut on_lattice = true;
        for (code, x) in codes.iter_mut().zip(values) {
            let (nearest, is_code) = nearest(x, lattice);
            on_lattice &= is_code;
            *code = nearest.to_code();
        }
        (codes, on_lattice)
    }

    #[inline(always)]
    unsafe fn dequantise(codes: Self::Block, scale: T::Wide, dst: *mut T) {
        let values = codes.map(|q| T::narrow(T::Wide::from_code(q) * scale));
        // SAFETY: the caller guarantees space for 32 values.
        unsafe { dst.cast::<[T; BLOCK]>().write_unaligned(values) };
    }
}

kernels!();

out_of_line!([T: Float] T, Scalar);

// SAFETY: as above.
unsafe impl<C: Code> Isa<C> for Scalar {
    type Block = [C; BLOCK];
    type Carry = C;

    #[inline(always)]
    unsafe fn splat(code: C) -> C {
        code
    }

    #[inline(always)]
    unsafe fn first(codes: Self::Block) -> C {
        codes[0]
    }

    #[inline(always)]
    unsafe fn last(codes: Self::Block) -> C {
        codes[BLOCK - 1]
    }

    #[inline(always)]
    unsafe fn fill(code: C) -> Self::Block {
        [code; BLOCK]
    }

    #[inline(always)]
    unsafe fn diff(codes: Self::Block, before: C) -> Self::Block {
        array::from_fn(|i| codes[i].minus(if i == 0 { before } else { codes[i - 1] }))
    }

    #[inline(always)]
    unsafe fn scan(mut residuals: Self::Block, before: C) -> Self::Block {
        let mut code = before;
        for residual in &mut residuals {
            code = code.plus(*residual);
            *residual = code;
        }
        residuals
    }

    #[inline(always)]
    unsafe fn add(a: Self::Block, b: Self::Block) -> Self::Block {
        array::from_fn(|i| a[i].plus(b[i]))
    }

    #[inline(always)]
    unsafe fn min(a: Self::Block, b: Self::Block) -> Self::Block {
        array::from_fn(|i| a[i].min(b[i]))
    }

    #[inline(always)]
    unsafe fn max(a: Self::Block, b: Self::Block) -> Self::Block {
        array::from_fn(|i| a[i].max(b[i]))
    }

    #[inline(always)]
    unsafe fn zigzag(residuals: Self::Block) -> Self::Block {
        residuals.map(|d| C::from_bits(d.zigzag()))
    }

    #[inline(always)]
    unsafe fn unzigzag(bits: Self::Block) -> Self::Block {
        bits.map(|z| C::unzigzag(z.bits()))
    }

    #[inline(always)]
    unsafe fn width(zigzags: Self::Block) -> u32 {
        let all = zigzags.iter().fold(0, |all, z| all | z.bits());
        u64::BITS - all.leading_zeros()
    }

    #[inline(always)]
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8) {
        let values = zigzags.map(Code::bits);
        // SAFETY: the caller guarantees space for 4·width bytes and STORE_SLACK more.
        unsafe { pack_bits(&values, width, dst) };
    }

    #[inline(always)]
    unsafe fn unpack(src: *const u8, width: u32) -> Self::Block {
        // SAFETY: the caller guarantees 4·width readable bytes and PAD more.
        unsafe { unpack_bits(src, width) }.map(C::from_bits)
    }
}

/// Returns the code of a value, still as a float, and whether the value is on the lattice
/// (docs/guarantees.md, "The check").
#[inline(always)]
fn nearest<T: Float>(x: T, lattice: &Lattice<T>) -> (T::Wide, bool) {
    let x = x.widen();
    let t = x * lattice.inverse;
    let nearest = (t + T::Wide::ROUNDER) - T::Wide::ROUNDER;
    let error = (x - nearest * lattice.step).abs();
    (nearest, (nearest.abs() <= lattice.limit) & (error < lattice.bound))
}

/// Returns whether a value is on the lattice.
#[inline(always)]
pub(super) fn is_on_lattice<T: Float>(x: T, lattice: &Lattice<T>) -> bool {
    nearest(x, lattice).1
}

/// Packs 32 values of `width` bits to 4·`width` bytes: value i starts at bit i·`width`,
/// little-endian. Writes whole words of 8 bytes.
///
/// # Safety
/// `dst` must be valid for 4·`width` + 8 bytes.
#[inline(always)]
pub(super) unsafe fn pack_bits(values: &[u64; BLOCK], width: u32, dst: *mut u8) {
    let (mut word, mut filled, mut at) = (0u64, 0, 0);
    for &value in values {
        word |= value << filled;
        filled += width;
        if filled >= u64::BITS {
            // SAFETY: 64·(at+1) bits have been filled of 32·width, so 8·(at+1) ≤ 4·width.
            unsafe { dst.cast::<[u8; 8]>().add(at).write_unaligned(word.to_le_bytes()) };
            at += 1;
            filled -= u64::BITS;
            // Keep the bits of `value` that did not fit. A shift by 64 would overflow.
            word = if filled == 0 { 0 } else { value >> (width - filled) };
        }
    }
    // SAFETY: 8·at ≤ 4·width, so the word ends at most 8 bytes past the packed values.
    unsafe { dst.cast::<[u8; 8]>().add(at).write_unaligned(word.to_le_bytes()) };
}

/// Inverse of [`pack_bits`].
///
/// # Safety
/// `src` must be valid for 4·`width` + 16 bytes.
#[inline(always)]
pub(super) unsafe fn unpack_bits(src: *const u8, width: u32) -> [u64; BLOCK] {
    let mask = u64::MAX >> (u64::BITS - width);
    array::from_fn(|i| {
        let bit = i * width as usize;
        // SAFETY: bit / 8 is below 4·width, and 16 bytes are readable after those.
        let window = unsafe { src.add(bit / 8).cast::<[u8; 16]>().read_unaligned() };
        (u128::from_le_bytes(window) >> (bit % 8)) as u64 & mask
    })
}
