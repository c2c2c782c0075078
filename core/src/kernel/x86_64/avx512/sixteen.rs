//! Values of 16 bits with AVX-512, loaded and stored as `f32`.

use super::convert::Sixteen;
use crate::element::{bf16, f16};
use core::arch::x86_64::*;

/// Rounding mode: to nearest, ties to even.
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// SAFETY: the methods load and store sixteen values.
unsafe impl Sixteen for f16 {
    #[inline(always)]
    unsafe fn load(src: *const Self) -> __m512 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(src.cast())) }
    }

    #[inline(always)]
    unsafe fn store(wide: __m512, dst: *mut Self) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { _mm256_storeu_si256(dst.cast(), _mm512_cvtps_ph::<NEAREST>(wide)) };
    }
}

/// Rounds each number to the nearest `bf16`, in the upper half of its lane. The lower halves are
/// unspecified.
///
/// Numbers must not be NaN, except for the canonical NaN, which does not change.
///
/// # Safety
/// Requires AVX-512.
#[inline(always)]
unsafe fn round_to_bf16(wide: __m512) -> __m512i {
    // SAFETY: the caller guarantees AVX-512.
    unsafe {
        let bits = _mm512_castps_si512(wide);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)))
    }
}

// SAFETY: the methods load and store sixteen values.
unsafe impl Sixteen for bf16 {
    #[inline(always)]
    unsafe fn load(src: *const Self) -> __m512 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            let narrow = _mm512_cvtepu16_epi32(_mm256_loadu_si256(src.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(narrow))
        }
    }

    #[inline(always)]
    unsafe fn store(wide: __m512, dst: *mut Self) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            let narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(round_to_bf16(wide)));
            _mm256_storeu_si256(dst.cast(), narrow);
        }
    }
}
