//! Conversion between values and codes with AVX-512.

use super::super::super::generic::Convert;
use super::super::super::generic::mixed::{
    LoadedBlock, MixedBlock, OutOfLine, PrecedingCodes, StoredBlock, out_of_line,
};
use super::super::super::{Lattice, Scale};
use super::{I32, I64};
use crate::element::Float;
use crate::op::LatticeOp;
use core::arch::x86_64::*;

/// Immediate of a range instruction: the larger of two magnitudes, without sign.
const LARGER_MAGNITUDE: i32 = 0b10_11;

/// Element type whose computations use `f32`, loaded and stored as sixteen values.
///
/// # Safety
/// All methods require AVX-512; pointers must be valid for sixteen values.
pub(super) unsafe trait Sixteen: Float<Wide = f32, Code = i32> {
    unsafe fn load(src: *const Self) -> __m512;
    /// Rounds and stores sixteen values.
    unsafe fn store(wide: __m512, dst: *mut Self);
}

// SAFETY: the methods load and store sixteen values.
unsafe impl Sixteen for f32 {
    #[inline(always)]
    unsafe fn load(src: *const Self) -> __m512 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { _mm512_loadu_ps(src) }
    }

    #[inline(always)]
    unsafe fn store(wide: __m512, dst: *mut Self) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { _mm512_storeu_ps(dst, wide) };
    }
}

// SAFETY: loads and stores cover exactly the 32 values that the trait names.
unsafe impl<T: Sixteen> Convert<T> for I32 {
    #[inline(always)]
    unsafe fn quantise(src: *const T, lattice: &Lattice<T>) -> (Self::Block, bool) {
        // SAFETY: 32 readable values; the caller guarantees AVX-512.
        unsafe {
            let step = _mm512_set1_ps(lattice.step);
            let inverse = _mm512_set1_ps(lattice.inverse);
            let limit = _mm512_set1_ps(lattice.limit);
            let bound = _mm512_set1_ps(lattice.bound);
            let x = unroll!(2, |i| T::load(src.add(16 * i)));
            let codes = unroll!(2, |i| _mm512_cvtps_epi32(_mm512_mul_ps(x[i], inverse)));
            let nearest = unroll!(2, |i| _mm512_cvtepi32_ps(codes[i]));
            let errors = unroll!(2, |i| _mm512_sub_ps(x[i], _mm512_mul_ps(nearest[i], step)));
            // NaN, infinities and values that are too large convert to the smallest integer, which
            // is beyond every limit. The maximum of the errors may lose a NaN, but the check of the
            // codes finds it.
            let largest = _mm512_range_ps::<LARGER_MAGNITUDE>(nearest[0], nearest[1]);
            let inside = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(largest, limit);
            let error = _mm512_range_ps::<LARGER_MAGNITUDE>(errors[0], errors[1]);
            (codes, _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(inside, error, bound) == !0)
        }
    }

    #[inline(always)]
    unsafe fn dequantise(codes: Self::Block, scale: f32, dst: *mut T) {
        // SAFETY: `dst` has space for 32 values; the caller guarantees AVX-512.
        unsafe {
            let scale = _mm512_set1_ps(scale);
            for i in 0..2 {
                T::store(_mm512_mul_ps(_mm512_cvtepi32_ps(codes[i]), scale), dst.add(16 * i));
            }
        }
    }

    #[inline(always)]
    unsafe fn sum(acc: *mut T, other: *const T) {
        // SAFETY: 32 values each; the caller guarantees AVX-512.
        unsafe {
            for i in [0, 16] {
                let sum = _mm512_add_ps(T::load(acc.add(i)), T::load(other.add(i)));
                let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(sum, sum);
                let nan = _mm512_set1_ps(f32::NAN);
                T::store(_mm512_mask_mov_ps(sum, is_nan, nan), acc.add(i));
            }
        }
    }
}

// SAFETY: loads and stores cover exactly the 32 values that the trait names.
unsafe impl Convert<f64> for I64 {
    #[inline(always)]
    unsafe fn quantise(src: *const f64, lattice: &Lattice<f64>) -> (Self::Block, bool) {
        // SAFETY: 32 readable values; the caller guarantees AVX-512.
        unsafe {
            let step = _mm512_set1_pd(lattice.step);
            let inverse = _mm512_set1_pd(lattice.inverse);
            let limit = _mm512_set1_pd(lattice.limit);
            let bound = _mm512_set1_pd(lattice.bound);
            let x = unroll!(4, |i| _mm512_loadu_pd(src.add(8 * i)));
            let codes = unroll!(4, |i| _mm512_cvtpd_epi64(_mm512_mul_pd(x[i], inverse)));
            let nearest = unroll!(4, |i| _mm512_cvtepi64_pd(codes[i]));
            let errors = unroll!(4, |i| _mm512_sub_pd(x[i], _mm512_mul_pd(nearest[i], step)));
            // As for `f32`, the check of the codes finds NaN.
            let mut inside = !0;
            for pair in [0, 2] {
                let largest = _mm512_range_pd::<LARGER_MAGNITUDE>(nearest[pair], nearest[pair + 1]);
                inside = _mm512_mask_cmp_pd_mask::<_CMP_LE_OQ>(inside, largest, limit);
                let error = _mm512_range_pd::<LARGER_MAGNITUDE>(errors[pair], errors[pair + 1]);
                inside = _mm512_mask_cmp_pd_mask::<_CMP_LT_OQ>(inside, error, bound);
            }
            (codes, inside == !0)
        }
    }

    #[inline(always)]
    unsafe fn dequantise(codes: Self::Block, scale: f64, dst: *mut f64) {
        // SAFETY: `dst` has space for 32 values; the caller guarantees AVX-512.
        unsafe {
            let scale = _mm512_set1_pd(scale);
            for i in 0..4 {
                let q = codes[i];
                _mm512_storeu_pd(dst.add(8 * i), _mm512_mul_pd(_mm512_cvtepi64_pd(q), scale));
            }
        }
    }
}

out_of_line!(
    [T: Sixteen] T,
    I32,
    "avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
);
out_of_line!(
    [] f64,
    I64,
    "avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
);
