//! AVX2 and BMI2. A block of 32-bit codes is four registers of eight codes; a block of 64-bit codes
//! is eight registers of four codes.
//!
//! AVX2 has no 64-bit arithmetic shift, minimum or maximum: comparisons replace them.

mod convert;
mod sixteen;

use super::super::BLOCK;
use super::super::generic::{Isa, kernels};
use super::super::scalar::{pack_bits, unpack_bits};
use super::bits;
use core::arch::x86_64::*;

/// AVX2 with codes of 32 bits.
#[derive(Clone, Copy)]
pub(in super::super) struct I32;

/// AVX2 with codes of 64 bits.
#[derive(Clone, Copy)]
pub(in super::super) struct I64;

kernels!("avx2,bmi1,bmi2,f16c,lzcnt,popcnt");

/// Moves every 32-bit lane up by one, and the last lane to the front.
macro_rules! rotate_up {
    ($v:expr) => {
        _mm256_permutevar8x32_epi32($v, _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6))
    };
}

/// Returns the prefix sum of eight lanes.
///
/// # Safety
/// Requires AVX2.
#[inline(always)]
unsafe fn scan8(v: __m256i) -> __m256i {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let v = _mm256_add_epi32(v, _mm256_slli_si256::<4>(v));
        let v = _mm256_add_epi32(v, _mm256_slli_si256::<8>(v));
        // Add the low half's total to the high half.
        let low_total = _mm256_shuffle_epi32::<0xff>(_mm256_permute2x128_si256::<0x08>(v, v));
        _mm256_add_epi32(v, low_total)
    }
}

/// Packs 32 zig-zag residuals of at most 32 bits.
///
/// # Safety
/// Requires AVX2 and BMI2; `dst` must be valid for 4·`width` + 16 bytes.
#[inline(always)]
unsafe fn pack32(z: [__m256i; 4], width: u32, dst: *mut u8) {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        if width <= 8 {
            // Values below 256 pass the saturating packs unchanged. Packs interleave 128-bit
            // halves, and the last permutation undoes that.
            let low = _mm256_packus_epi32(z[0], z[1]);
            let high = _mm256_packus_epi32(z[2], z[3]);
            let bytes = _mm256_packus_epi16(low, high);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            bits::pack_bytes(words(_mm256_permutevar8x32_epi32(bytes, order)), width, dst);
        } else if width <= 16 {
            let low = words(_mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(z[0], z[1])));
            let high = words(_mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(z[2], z[3])));
            let all = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
            bits::pack_lanes(all, width, dst);
        } else {
            let mut values = [0u32; BLOCK];
            for i in 0..4 {
                _mm256_storeu_si256(values.as_mut_ptr().add(8 * i).cast(), z[i]);
            }
            pack_bits(&values.map(u64::from), width, dst);
        }
    }
}

/// Inverse of [`pack32`].
///
/// # Safety
/// Requires AVX2 and BMI2; `src` must be valid for 4·`width` + 16 bytes.
#[inline(always)]
unsafe fn unpack32(src: *const u8, width: u32) -> [__m256i; 4] {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        if width <= 8 {
            let w = bits::unpack_bytes(src, width);
            unroll!(4, |i| _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(w[i] as i64)))
        } else if width <= 16 {
            let w = bits::unpack_lanes(src, width).map(|word| word as i64);
            unroll!(4, |i| _mm256_cvtepu16_epi32(_mm_set_epi64x(w[2 * i + 1], w[2 * i])))
        } else {
            let values = unpack_bits(src, width).map(|value| value as u32);
            unroll!(4, |i| _mm256_loadu_si256(values.as_ptr().add(8 * i).cast()))
        }
    }
}

/// Returns the four 64-bit words of a register.
///
/// # Safety
/// Requires AVX2.
#[inline(always)]
unsafe fn words(v: __m256i) -> [u64; 4] {
    let mut words = [0; 4];
    // SAFETY: the array has 32 bytes; the caller guarantees AVX2.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), v) };
    words
}

// SAFETY: a block in memory is its 32 codes in order. Loads and stores cover the bytes that the
// trait allows: packing and unpacking reach at most 16 bytes past the block, and STORE_SLACK and
// PAD are 64.
unsafe impl Isa<i32> for I32 {
    type Block = [__m256i; 4];
    /// The code in all lanes.
    type Carry = __m256i;

    #[inline(always)]
    unsafe fn splat(code: i32) -> __m256i {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_set1_epi32(code) }
    }

    #[inline(always)]
    unsafe fn first(codes: Self::Block) -> i32 {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_cvtsi256_si32(codes[0]) }
    }

    #[inline(always)]
    unsafe fn last(codes: Self::Block) -> __m256i {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_permutevar8x32_epi32(codes[3], _mm256_set1_epi32(7)) }
    }

    #[inline(always)]
    unsafe fn fill(code: __m256i) -> Self::Block {
        [code; 4]
    }

    #[inline(always)]
    unsafe fn diff(codes: Self::Block, before: __m256i) -> Self::Block {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let rotated = unroll!(4, |i| rotate_up!(codes[i]));
            unroll!(4, |i| {
                let prior = if i == 0 { before } else { rotated[(i + 3) % 4] };
                _mm256_sub_epi32(codes[i], _mm256_blend_epi32::<1>(rotated[i], prior))
            })
        }
    }

    #[inline(always)]
    unsafe fn scan(residuals: Self::Block, before: __m256i) -> Self::Block {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            // The four scans run in parallel; only the additions wait for the carry.
            let mut codes = unroll!(4, |i| scan8(residuals[i]));
            let mut carry = before;
            for code in &mut codes {
                let total = _mm256_permutevar8x32_epi32(*code, _mm256_set1_epi32(7));
                *code = _mm256_add_epi32(*code, carry);
                carry = _mm256_add_epi32(carry, total);
            }
            codes
        }
    }

    lanewise! { 4;
        add(a, b) => _mm256_add_epi32(a, b),
        min(a, b) => _mm256_min_epi32(a, b),
        max(a, b) => _mm256_max_epi32(a, b),
        zigzag(d) => _mm256_xor_si256(_mm256_slli_epi32::<1>(d), _mm256_srai_epi32::<31>(d)),
        unzigzag(z) => {
            let sign = _mm256_and_si256(z, _mm256_set1_epi32(1));
            let sign = _mm256_sub_epi32(_mm256_setzero_si256(), sign);
            _mm256_xor_si256(_mm256_srli_epi32::<1>(z), sign)
        },
    }

    #[inline(always)]
    unsafe fn width(zigzags: Self::Block) -> u32 {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let [a, b, c, d] = zigzags;
            let all = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
            let half =
                _mm_or_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
            let pair = _mm_cvtsi128_si64(_mm_or_si128(half, _mm_unpackhi_epi64(half, half))) as u64;
            u32::BITS - ((pair | pair >> 32) as u32).leading_zeros()
        }
    }

    #[inline(always)]
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { pack32(zigzags, width, dst) };
    }

    #[inline(always)]
    unsafe fn unpack(src: *const u8, width: u32) -> Self::Block {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { unpack32(src, width) }
    }
}

// SAFETY: as for `I32`.
unsafe impl Isa<i64> for I64 {
    type Block = [__m256i; 8];
    /// The code in all lanes.
    type Carry = __m256i;

    #[inline(always)]
    unsafe fn splat(code: i64) -> __m256i {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_set1_epi64x(code) }
    }

    #[inline(always)]
    unsafe fn first(codes: Self::Block) -> i64 {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_extract_epi64::<0>(codes[0]) }
    }

    #[inline(always)]
    unsafe fn last(codes: Self::Block) -> __m256i {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_permute4x64_epi64::<0xff>(codes[7]) }
    }

    #[inline(always)]
    unsafe fn fill(code: __m256i) -> Self::Block {
        [code; 8]
    }

    #[inline(always)]
    unsafe fn diff(codes: Self::Block, before: __m256i) -> Self::Block {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let rotated = unroll!(8, |i| _mm256_permute4x64_epi64::<0b10_01_00_11>(codes[i]));
            unroll!(8, |i| {
                let prior = if i == 0 { before } else { rotated[(i + 7) % 8] };
                _mm256_sub_epi64(codes[i], _mm256_blend_epi32::<0b11>(rotated[i], prior))
            })
        }
    }

    #[inline(always)]
    unsafe fn scan(mut residuals: Self::Block, before: __m256i) -> Self::Block {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let mut carry = before;
            for d in &mut residuals {
                let pairs = _mm256_add_epi64(*d, _mm256_slli_si256::<8>(*d));
                let low = _mm256_permute4x64_epi64::<0b01_01_01_01>(pairs);
                let low = _mm256_blend_epi32::<0xf0>(_mm256_setzero_si256(), low);
                let sums = _mm256_add_epi64(pairs, low);
                *d = _mm256_add_epi64(sums, carry);
                carry = _mm256_add_epi64(carry, _mm256_permute4x64_epi64::<0xff>(sums));
            }
            residuals
        }
    }

    lanewise! { 8;
        add(a, b) => _mm256_add_epi64(a, b),
        min(a, b) => _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)),
        max(a, b) => _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)),
        zigzag(d) => {
            let negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), d);
            _mm256_xor_si256(_mm256_add_epi64(d, d), negative)
        },
        unzigzag(z) => {
            let sign = _mm256_and_si256(z, _mm256_set1_epi64x(1));
            let sign = _mm256_sub_epi64(_mm256_setzero_si256(), sign);
            _mm256_xor_si256(_mm256_srli_epi64::<1>(z), sign)
        },
    }

    #[inline(always)]
    unsafe fn width(zigzags: Self::Block) -> u32 {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let mut all = zigzags[0];
            for i in 1..8 {
                all = _mm256_or_si256(all, zigzags[i]);
            }
            let [a, b, c, d] = words(all);
            u64::BITS - (a | b | c | d).leading_zeros()
        }
    }

    #[inline(always)]
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            if width <= 32 {
                // Join the low halves of the eight codes in two registers to one register.
                let even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
                let narrow = unroll!(4, |i| {
                    let low = _mm256_permutevar8x32_epi32(zigzags[2 * i], even);
                    let high = _mm256_permutevar8x32_epi32(zigzags[2 * i + 1], even);
                    _mm256_blend_epi32::<0xf0>(low, high)
                });
                pack32(narrow, width, dst);
            } else {
                let mut values = [0u64; BLOCK];
                for i in 0..8 {
                    _mm256_storeu_si256(values.as_mut_ptr().add(4 * i).cast(), zigzags[i]);
                }
                pack_bits(&values, width, dst);
            }
        }
    }

    #[inline(always)]
    unsafe fn unpack(src: *const u8, width: u32) -> Self::Block {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            if width <= 32 {
                let narrow = unpack32(src, width);
                unroll!(8, |i| {
                    let eight = narrow[i / 2];
                    let half = if i & 1 == 0 {
                        _mm256_castsi256_si128(eight)
                    } else {
                        _mm256_extracti128_si256::<1>(eight)
                    };
                    _mm256_cvtepu32_epi64(half)
                })
            } else {
                let values = unpack_bits(src, width);
                unroll!(8, |i| _mm256_loadu_si256(values.as_ptr().add(4 * i).cast()))
            }
        }
    }
}
