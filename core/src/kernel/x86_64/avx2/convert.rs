//! Conversion between values and codes with AVX2.
//!
//! AVX2 cannot convert between `f64` and 64-bit integers. Quantization adds the same magic number
//! as the scalar level; the low mantissa bits of the sum *are* the code. Dequantization splits a
//! code into 32-bit halves, which are exact in `f64`, and adds them with one rounding.

use super::super::super::generic::Convert;
use super::super::super::generic::mixed::{
    LoadedBlock, MixedBlock, OutOfLine, PrecedingCodes, StoredBlock, out_of_line,
};
use super::super::super::{Lattice, Scale};
use super::{I32, I64};
use crate::element::{Float, sealed::Wide};
use crate::op::LatticeOp;
use core::arch::x86_64::*;

/// Element type whose computations use `f32`, loaded as eight values and stored as sixteen.
///
/// # Safety
/// All methods require AVX2 and F16C. `src` must be readable for 8 values, `dst` writable for 16.
pub(super) unsafe trait Eight: Float<Wide = f32, Code = i32> {
    unsafe fn load(src: *const Self) -> __m256;
    /// Rounds and stores sixteen values.
    unsafe fn store(wide: [__m256; 2], dst: *mut Self);
}

// SAFETY: the methods load eight values and store sixteen.
unsafe impl Eight for f32 {
    #[inline(always)]
    unsafe fn load(src: *const Self) -> __m256 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { _mm256_loadu_ps(src) }
    }

    #[inline(always)]
    unsafe fn store(wide: [__m256; 2], dst: *mut Self) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            _mm256_storeu_ps(dst, wide[0]);
            _mm256_storeu_ps(dst.add(8), wide[1]);
        }
    }
}

// SAFETY: loads and stores cover exactly the 32 values that the trait names.
unsafe impl<T: Eight> Convert<T> for I32 {
    #[inline(always)]
    unsafe fn quantise(src: *const T, lattice: &Lattice<T>) -> (Self::Block, bool) {
        // SAFETY: 32 readable values; the caller guarantees AVX2 and F16C.
        unsafe {
            let step = _mm256_set1_ps(lattice.step);
            let inverse = _mm256_set1_ps(lattice.inverse);
            let limit = _mm256_set1_ps(lattice.limit);
            let bound = _mm256_set1_ps(lattice.bound);
            let magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fff_ffff));
            let mut good = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
            let mut codes = [_mm256_setzero_si256(); 4];
            for i in 0..4 {
                let x = T::load(src.add(8 * i));
                // NaN, infinities and values that are too large convert to the smallest integer,
                // which is beyond every limit.
                let q = _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
                let nearest = _mm256_cvtepi32_ps(q);
                let error = _mm256_sub_ps(x, _mm256_mul_ps(nearest, step));
                let error = _mm256_and_ps(error, magnitude);
                let inside = _mm256_cmp_ps::<_CMP_LE_OQ>(_mm256_and_ps(nearest, magnitude), limit);
                let close = _mm256_cmp_ps::<_CMP_LT_OQ>(error, bound);
                good = _mm256_and_ps(good, _mm256_and_ps(inside, close));
                codes[i] = q;
            }
            (codes, _mm256_movemask_ps(good) == 0xff)
        }
    }

    #[inline(always)]
    unsafe fn dequantise(codes: Self::Block, scale: f32, dst: *mut T) {
        // SAFETY: `dst` has space for 32 values; the caller guarantees AVX2 and F16C.
        unsafe {
            let scale = _mm256_set1_ps(scale);
            for i in [0, 2] {
                let low = _mm256_mul_ps(_mm256_cvtepi32_ps(codes[i]), scale);
                let high = _mm256_mul_ps(_mm256_cvtepi32_ps(codes[i + 1]), scale);
                T::store([low, high], dst.add(8 * i));
            }
        }
    }

    #[inline(always)]
    unsafe fn sum(acc: *mut T, other: *const T) {
        // SAFETY: 32 values each; the caller guarantees AVX2 and F16C.
        unsafe {
            for i in [0, 16] {
                let sums = unroll!(2, |half| {
                    let at = i + 8 * half;
                    let sum = _mm256_add_ps(T::load(acc.add(at)), T::load(other.add(at)));
                    let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(sum, sum);
                    _mm256_blendv_ps(sum, _mm256_set1_ps(f32::NAN), is_nan)
                });
                T::store(sums, acc.add(i));
            }
        }
    }
}

// SAFETY: loads and stores cover exactly the 32 values that the trait names.
unsafe impl Convert<f64> for I64 {
    #[inline(always)]
    unsafe fn quantise(src: *const f64, lattice: &Lattice<f64>) -> (Self::Block, bool) {
        // SAFETY: 32 readable values; the caller guarantees AVX2.
        unsafe {
            let step = _mm256_set1_pd(lattice.step);
            let inverse = _mm256_set1_pd(lattice.inverse);
            let limit = _mm256_set1_pd(lattice.limit);
            let bound = _mm256_set1_pd(lattice.bound);
            let rounder = _mm256_set1_pd(f64::ROUNDER);
            let magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(i64::MAX));
            let mut good = _mm256_castsi256_pd(_mm256_set1_epi64x(-1));
            let mut codes = [_mm256_setzero_si256(); 8];
            for i in 0..8 {
                let x = _mm256_loadu_pd(src.add(4 * i));
                let t = _mm256_mul_pd(x, inverse);
                let raised = _mm256_add_pd(t, rounder);
                let nearest = _mm256_sub_pd(raised, rounder);
                let error =
                    _mm256_and_pd(_mm256_sub_pd(x, _mm256_mul_pd(nearest, step)), magnitude);
                let inside = _mm256_cmp_pd::<_CMP_LE_OQ>(_mm256_and_pd(nearest, magnitude), limit);
                let close = _mm256_cmp_pd::<_CMP_LT_OQ>(error, bound);
                good = _mm256_and_pd(good, _mm256_and_pd(inside, close));
                // raised = rounder + q exactly, because the ulp is 1 in that binade.
                codes[i] =
                    _mm256_sub_epi64(_mm256_castpd_si256(raised), _mm256_castpd_si256(rounder));
            }
            (codes, _mm256_movemask_pd(good) == 0xf)
        }
    }

    #[inline(always)]
    unsafe fn dequantise(codes: Self::Block, scale: f64, dst: *mut f64) {
        // SAFETY: `dst` has space for 32 values; the caller guarantees AVX2.
        unsafe {
            let scale = _mm256_set1_pd(scale);
            // The high half is 2^84 + 2^63 with the upper 32 bits (sign flipped) in its mantissa.
            // The low half is 2^52 with the lower 32 bits in its mantissa.
            let high_magic = _mm256_set1_epi64x(0x4530_0000_8000_0000);
            let low_magic = _mm256_set1_epi64x(0x4330_0000_0000_0000);
            let both = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530_0000_8010_0000));
            for i in 0..8 {
                let q = codes[i];
                let high = _mm256_xor_si256(_mm256_srli_epi64::<32>(q), high_magic);
                let low = _mm256_blend_epi32::<0b0101_0101>(low_magic, q);
                let high = _mm256_sub_pd(_mm256_castsi256_pd(high), both);
                let value = _mm256_add_pd(high, _mm256_castsi256_pd(low));
                _mm256_storeu_pd(dst.add(4 * i), _mm256_mul_pd(value, scale));
            }
        }
    }
}

out_of_line!([T: Eight] T, I32, "avx2,bmi1,bmi2,f16c,lzcnt,popcnt");
out_of_line!([] f64, I64, "avx2,bmi1,bmi2,f16c,lzcnt,popcnt");
