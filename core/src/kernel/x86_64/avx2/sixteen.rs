//! Values of 16 bits with AVX2, loaded and stored as `f32`.

use super::convert::Eight;
use crate::element::{bf16, f16};
use core::arch::x86_64::*;

// SAFETY: the methods load eight values and store sixteen.
unsafe impl Eight for f16 {
    #[inline(always)]
    unsafe fn load(src: *const Self) -> __m256 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(src.cast())) }
    }

    #[inline(always)]
    unsafe fn store(wide: [__m256; 2], dst: *mut Self) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            let [low, high] = wide;
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(low);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(high);
            _mm256_storeu_si256(dst.cast(), _mm256_set_m128i(high, low));
        }
    }
}

/// Rounds each number to the nearest `bf16`, in the upper half of its lane. The lower halves are
/// unspecified.
///
/// Numbers must not be NaN, except for the canonical NaN, which does not change.
///
/// # Safety
/// Requires AVX2.
#[inline(always)]
unsafe fn round_to_bf16(wide: __m256) -> __m256i {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let bits = _mm256_castps_si256(wide);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)))
    }
}

// SAFETY: the methods load eight values and store sixteen.
unsafe impl Eight for bf16 {
    #[inline(always)]
    unsafe fn load(src: *const Self) -> __m256 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            let narrow = _mm256_cvtepu16_epi32(_mm_loadu_si128(src.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(narrow))
        }
    }

    #[inline(always)]
    unsafe fn store(wide: [__m256; 2], dst: *mut Self) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            let [low, high] = wide;
            let low = _mm256_srli_epi32::<16>(round_to_bf16(low));
            let high = _mm256_srli_epi32::<16>(round_to_bf16(high));
            let packed = _mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(low, high));
            _mm256_storeu_si256(dst.cast(), packed);
        }
    }
}
