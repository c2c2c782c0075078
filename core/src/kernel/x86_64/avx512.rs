//! AVX-512 with VBMI. A block of 32-bit codes is two registers of sixteen codes; a block of 64-bit
//! codes is four registers of eight codes.
//!
//! Residuals of up to 16 bits are packed and unpacked in vector registers, with tables instead of
//! branches on the width, because the widths of neighbouring blocks are hard to predict. Wider
//! residuals are rare: scalar code packs them, and vector code unpacks most of their widths.
//!
//! - To pack, shifts join neighbours to pairs, fours and eights, and `vpermb` closes the gaps.
//! - To unpack, `vpermb` moves each group of values into a 64-bit lane. `vpmultishiftqb` takes
//!   every byte of the result from any bit position of that lane. A mask clears the neighbours'
//!   bits.

mod convert;
mod sixteen;

use super::super::BLOCK;
use super::super::generic::{Isa, kernels};
use super::super::scalar::{pack_bits, unpack_bits};
use core::arch::x86_64::*;

/// AVX-512 with codes of 32 bits.
#[derive(Clone, Copy)]
pub(in super::super) struct I32;

/// AVX-512 with codes of 64 bits.
#[derive(Clone, Copy)]
pub(in super::super) struct I64;

kernels!("avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi");

/// Permutation and shifts that spread packed values of one width over 64-bit lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct UnpackTable {
    /// Index of the input byte for each byte of the lanes.
    bytes: [u8; 64],
    /// First bit of each output byte, as a position in its lane.
    bits: [u8; 64],
}

/// Tables for widths 0 to 32. Output elements have 16 bits up to width 16 and 32 bits above, so
/// that a lane holds 4 or 2 elements.
static UNPACK_TABLES: [UnpackTable; 33] = {
    let mut table = [UnpackTable { bytes: [0; 64], bits: [0; 64] }; 33];
    let mut width = 1;
    while width <= 32 {
        let element_bytes = if width <= 16 { 2 } else { 4 };
        let per_lane = 8 / element_bytes;
        let mut byte = 0;
        while byte < 64 {
            let (lane, within) = (byte / 8, byte % 8);
            let start = lane * per_lane * width;
            // The last bytes of a lane may lie past its values, or past the loaded bytes. They are
            // not used.
            table[width].bytes[byte] = ((start / 8 + within) % 64) as u8;
            let bit = within / element_bytes * width + within % element_bytes * 8;
            table[width].bits[byte] = ((start % 8 + bit) % 64) as u8;
            byte += 1;
        }
        width += 1;
    }
    table
};

/// Permutation and shifts that join values of one width, up to 16, to packed bytes.
///
/// A *pair* is two joined values, and a *four* is two joined pairs, in the low bits of a lane.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct PackTable {
    /// Index of the input byte for each packed byte. Each 128-bit lane holds eight values.
    bytes: [u8; 64],
    /// Left shifts, applied after the two fours of each 128-bit lane were swapped. In an even
    /// 64-bit lane, the shift moves the odd four up next to the even one. In an odd lane, a shift
    /// by 64 clears the lane.
    up: [i64; 8],
    /// Right shifts, applied to the fours in their own lanes. In an odd 64-bit lane, the shift
    /// moves down those bits of the odd four that do not fit the even lane.
    down: [i64; 8],
    /// Right shift that joins odd values to even ones.
    value: i64,
    /// Right shift that joins odd pairs to even ones.
    pair: i64,
}

/// Tables for widths 0 to 16. The shifts are in memory, because loads broadcast them at no cost.
static PACK_TABLES: [PackTable; 17] = {
    let mut table = [PackTable { bytes: [0; 64], up: [0; 8], down: [0; 8], value: 0, pair: 0 }; 17];
    let mut width = 1;
    while width <= 16 {
        let join = &mut table[width];
        let mut byte = 0;
        while byte < 4 * width {
            join.bytes[byte] = (16 * (byte / width) + byte % width) as u8;
            byte += 1;
        }
        let bits = width as i64;
        (join.value, join.pair) = (32 - bits, 32 - 2 * bits);
        let mut lane = 0;
        while lane < 8 {
            (join.up[lane], join.up[lane + 1]) = (4 * bits, 64);
            (join.down[lane], join.down[lane + 1]) = (0, 64 - 4 * bits);
            lane += 2;
        }
        width += 1;
    }
    table
};

/// Returns the prefix sum of sixteen lanes.
///
/// # Safety
/// Requires AVX-512F.
#[inline(always)]
unsafe fn scan16(v: __m512i) -> __m512i {
    // SAFETY: the caller guarantees AVX-512.
    unsafe {
        let zero = _mm512_setzero_si512();
        let v = _mm512_add_epi32(v, _mm512_alignr_epi32::<15>(v, zero));
        let v = _mm512_add_epi32(v, _mm512_alignr_epi32::<14>(v, zero));
        let v = _mm512_add_epi32(v, _mm512_alignr_epi32::<12>(v, zero));
        _mm512_add_epi32(v, _mm512_alignr_epi32::<8>(v, zero))
    }
}

/// Returns the prefix sum of eight lanes.
///
/// # Safety
/// Requires AVX-512F.
#[inline(always)]
unsafe fn scan8(v: __m512i) -> __m512i {
    // SAFETY: the caller guarantees AVX-512.
    unsafe {
        let zero = _mm512_setzero_si512();
        let v = _mm512_add_epi64(v, _mm512_alignr_epi64::<7>(v, zero));
        let v = _mm512_add_epi64(v, _mm512_alignr_epi64::<6>(v, zero));
        _mm512_add_epi64(v, _mm512_alignr_epi64::<4>(v, zero))
    }
}

/// Immediate of a ternary logic instruction: a | (b & c).
const OR_AND: i32 = 0xf8;

/// Packs 32 zig-zag residuals of at most 32 bits.
///
/// # Safety
/// Requires AVX-512 with VBMI; `dst` must be valid for 4·`width` + 64 bytes.
#[inline(always)]
unsafe fn pack32(z: [__m512i; 2], width: u32, dst: *mut u8) {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        if width <= 16 {
            pack16(z, width, dst);
        } else {
            let mut values = [0u32; BLOCK];
            _mm512_storeu_si512(values.as_mut_ptr().cast(), z[0]);
            _mm512_storeu_si512(values.as_mut_ptr().add(16).cast(), z[1]);
            pack_bits(&values.map(u64::from), width, dst);
        }
    }
}

/// Packs 32 zig-zag residuals of c = `width` ≤ 16 bits: joins neighbours three times, then closes
/// the gaps.
///
/// # Safety
/// Requires AVX-512 with VBMI; `dst` must be valid for 64 bytes.
#[inline(always)]
unsafe fn pack16(z: [__m512i; 2], width: u32, dst: *mut u8) {
    let join = &PACK_TABLES[(width as usize).min(16)];
    // SAFETY: the caller guarantees AVX-512 and 64 bytes, which are stored; the tables are aligned
    // to 64 bytes, and each array that is loaded has 64 bytes.
    unsafe {
        let low = _mm512_set1_epi64(0xffff_ffff);
        // Pairs: 2c bits in each 64-bit lane. The shift of the odd value by 32 − c drops the even
        // value, because that has only c ≤ 32 − c bits.
        let pairs = unroll!(2, |i| {
            let odd = _mm512_srlv_epi64(z[i], _mm512_set1_epi64(join.value));
            _mm512_ternarylogic_epi64::<OR_AND>(odd, z[i], low)
        });
        let even_lanes =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let pairs = _mm512_permutex2var_epi32(pairs[0], even_lanes, pairs[1]);
        // Fours: 4c bits in each 64-bit lane.
        let odd = _mm512_andnot_si512(low, pairs);
        let odd = _mm512_srlv_epi64(odd, _mm512_set1_epi64(join.pair));
        let fours = _mm512_ternarylogic_epi64::<OR_AND>(odd, pairs, low);
        // Eights: 8c bits in each 128-bit lane. The low bits of the odd four join the lane of the
        // even four; its high bits move down in their own lane.
        let swapped = _mm512_shuffle_epi32::<0b01_00_11_10>(fours);
        let up = _mm512_sllv_epi64(swapped, _mm512_load_si512(join.up.as_ptr().cast()));
        let down = _mm512_srlv_epi64(fours, _mm512_load_si512(join.down.as_ptr().cast()));
        let eights = _mm512_or_si512(up, down);
        let order = _mm512_load_si512(join.bytes.as_ptr().cast());
        _mm512_storeu_si512(dst.cast(), _mm512_permutexvar_epi8(order, eights));
    }
}

/// Inverse of [`pack32`].
///
/// # Safety
/// Requires AVX-512 with VBMI; `src` must be valid for 4·`width` + 64 bytes.
#[inline(always)]
unsafe fn unpack32(src: *const u8, width: u32) -> [__m512i; 2] {
    let spread = &UNPACK_TABLES[(width as usize).min(32)];
    // SAFETY: the caller guarantees AVX-512. Arrays of the tables have 64 bytes and are aligned to
    // 64. Loads from `src` read 64 bytes and start inside the block.
    unsafe {
        if width <= 16 {
            let packed = _mm512_loadu_si512(src.cast());
            let order = _mm512_load_si512(spread.bytes.as_ptr().cast());
            let lanes = _mm512_permutexvar_epi8(order, packed);
            let from = _mm512_load_si512(spread.bits.as_ptr().cast());
            let words = _mm512_multishift_epi64_epi8(from, lanes);
            let words = _mm512_and_si512(words, _mm512_set1_epi16(((1u32 << width) - 1) as i16));
            [
                _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)),
                _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64::<1>(words)),
            ]
        } else if width <= 29 || width == 32 {
            // A lane is loaded from a whole byte on. Its two values start 0, 2, 4 or 6 bits later,
            // so they end within the lane's 64 bits if they have at most 29 bits each. Values of 32
            // bits start at a whole byte and fill the lane.
            let mask = _mm512_set1_epi32((u32::MAX >> (32 - width)) as i32);
            let order = _mm512_load_si512(spread.bytes.as_ptr().cast());
            let from = _mm512_load_si512(spread.bits.as_ptr().cast());
            unroll!(2, |half| {
                let packed = _mm512_loadu_si512(src.add(half * 2 * width as usize).cast());
                let lanes = _mm512_permutexvar_epi8(order, packed);
                _mm512_and_si512(_mm512_multishift_epi64_epi8(from, lanes), mask)
            })
        } else {
            let values = unpack_bits(src, width).map(|value| value as u32);
            unroll!(2, |half| _mm512_loadu_si512(values.as_ptr().add(16 * half).cast()))
        }
    }
}

/// Methods of [`Isa`] that move chosen codes, a register of codes at a time. `$mask` has a bit for
/// each of them; the others are instructions.
macro_rules! compressing {
    (
        $code:ty, $mask:ty, $splat:ident, $compress:ident, $expand:ident, $blend:ident
    ) => {
        #[inline(always)]
        unsafe fn dense(codes: &[$code; BLOCK], chosen: u32) -> [$code; BLOCK] {
            const LANES: usize = <$mask>::BITS as usize;
            let (mut dense, mut n) = ([0; BLOCK + LANES], 0);
            // SAFETY: the caller guarantees AVX-512. When codes are stored at n, n ≤ 32, and
            // `dense` has space for 32 and a register.
            unsafe {
                for at in (0..BLOCK).step_by(LANES) {
                    let mask = (chosen >> at) as $mask;
                    let codes = _mm512_loadu_si512(codes.as_ptr().add(at).cast());
                    let packed = $compress(mask, codes);
                    _mm512_storeu_si512(dense.as_mut_ptr().add(n).cast(), packed);
                    n += mask.count_ones() as usize;
                }
                let last = $splat(dense[n - 1]);
                let kept = u32::MAX >> (BLOCK - n);
                let mut filled = [0; BLOCK];
                for at in (0..BLOCK).step_by(LANES) {
                    let mask = (kept >> at) as $mask;
                    let codes = _mm512_loadu_si512(dense.as_ptr().add(at).cast());
                    let codes = $blend(mask, last, codes);
                    _mm512_storeu_si512(filled.as_mut_ptr().add(at).cast(), codes);
                }
                filled
            }
        }

        #[inline(always)]
        unsafe fn spread(dense: &[$code; BLOCK], chosen: u32) -> [$code; BLOCK] {
            const LANES: usize = <$mask>::BITS as usize;
            let (mut codes, mut n) = ([0; BLOCK], 0);
            // SAFETY: the caller guarantees AVX-512. When a register is loaded from n, n ≤ `at`,
            // and a register of codes is left from `at` on.
            unsafe {
                for at in (0..BLOCK).step_by(LANES) {
                    let mask = (chosen >> at) as $mask;
                    let packed = _mm512_loadu_si512(dense.as_ptr().add(n).cast());
                    let spread = $expand(mask, packed);
                    _mm512_storeu_si512(codes.as_mut_ptr().add(at).cast(), spread);
                    n += mask.count_ones() as usize;
                }
            }
            codes
        }
    };
}

// SAFETY: a block in memory is its 32 codes in order. Loads and stores cover the bytes that the
// trait allows: packing and unpacking reach at most 64 bytes past the block, and STORE_SLACK and
// PAD are 64.
unsafe impl Isa<i32> for I32 {
    type Block = [__m512i; 2];
    /// The code is in the last lane. The other lanes are unspecified.
    type Carry = __m512i;

    #[inline(always)]
    unsafe fn splat(code: i32) -> __m512i {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { _mm512_set1_epi32(code) }
    }

    #[inline(always)]
    unsafe fn first(codes: Self::Block) -> i32 {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { _mm512_cvtsi512_si32(codes[0]) }
    }

    #[inline(always)]
    unsafe fn last(codes: Self::Block) -> __m512i {
        codes[1]
    }

    #[inline(always)]
    unsafe fn fill(code: __m512i) -> Self::Block {
        // SAFETY: the caller guarantees AVX-512.
        [unsafe { _mm512_permutexvar_epi32(_mm512_set1_epi32(15), code) }; 2]
    }

    #[inline(always)]
    unsafe fn diff(codes: Self::Block, before: __m512i) -> Self::Block {
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            [
                _mm512_sub_epi32(codes[0], _mm512_alignr_epi32::<15>(codes[0], before)),
                _mm512_sub_epi32(codes[1], _mm512_alignr_epi32::<15>(codes[1], codes[0])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn scan(residuals: Self::Block, before: __m512i) -> Self::Block {
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            // Both scans run in parallel; only the additions wait for the carry.
            let last = _mm512_set1_epi32(15);
            let (low, high) = (scan16(residuals[0]), scan16(residuals[1]));
            let high = _mm512_add_epi32(high, _mm512_permutexvar_epi32(last, low));
            let before = _mm512_permutexvar_epi32(last, before);
            [_mm512_add_epi32(low, before), _mm512_add_epi32(high, before)]
        }
    }

    lanewise! { 2;
        add(a, b) => _mm512_add_epi32(a, b),
        min(a, b) => _mm512_min_epi32(a, b),
        max(a, b) => _mm512_max_epi32(a, b),
        zigzag(d) => _mm512_xor_si512(_mm512_slli_epi32::<1>(d), _mm512_srai_epi32::<31>(d)),
        unzigzag(z) => {
            let sign = _mm512_and_si512(z, _mm512_set1_epi32(1));
            let sign = _mm512_sub_epi32(_mm512_setzero_si512(), sign);
            _mm512_xor_si512(_mm512_srli_epi32::<1>(z), sign)
        },
    }

    #[inline(always)]
    unsafe fn width(zigzags: Self::Block) -> u32 {
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            let all = _mm512_or_si512(zigzags[0], zigzags[1]);
            u32::BITS - (_mm512_reduce_or_epi32(all) as u32).leading_zeros()
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

    compressing! {
        i32, u16, _mm512_set1_epi32, _mm512_maskz_compress_epi32, _mm512_maskz_expand_epi32,
        _mm512_mask_blend_epi32
    }
}

// SAFETY: as for `I32`.
unsafe impl Isa<i64> for I64 {
    type Block = [__m512i; 4];
    /// The code is in the last lane. The other lanes are unspecified.
    type Carry = __m512i;

    #[inline(always)]
    unsafe fn splat(code: i64) -> __m512i {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { _mm512_set1_epi64(code) }
    }

    #[inline(always)]
    unsafe fn first(codes: Self::Block) -> i64 {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { _mm_cvtsi128_si64(_mm512_castsi512_si128(codes[0])) }
    }

    #[inline(always)]
    unsafe fn last(codes: Self::Block) -> __m512i {
        codes[3]
    }

    #[inline(always)]
    unsafe fn fill(code: __m512i) -> Self::Block {
        // SAFETY: the caller guarantees AVX-512.
        [unsafe { _mm512_permutexvar_epi64(_mm512_set1_epi64(7), code) }; 4]
    }

    #[inline(always)]
    unsafe fn diff(codes: Self::Block, before: __m512i) -> Self::Block {
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            unroll!(4, |i| {
                let prior = if i == 0 { before } else { codes[(i + 3) % 4] };
                _mm512_sub_epi64(codes[i], _mm512_alignr_epi64::<7>(codes[i], prior))
            })
        }
    }

    #[inline(always)]
    unsafe fn scan(residuals: Self::Block, before: __m512i) -> Self::Block {
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            // The four scans run in parallel; only the additions wait for the carry.
            let last = _mm512_set1_epi64(7);
            let mut codes = unroll!(4, |i| scan8(residuals[i]));
            let mut carry = _mm512_permutexvar_epi64(last, before);
            for code in &mut codes {
                let total = _mm512_permutexvar_epi64(last, *code);
                *code = _mm512_add_epi64(*code, carry);
                carry = _mm512_add_epi64(carry, total);
            }
            codes
        }
    }

    lanewise! { 4;
        add(a, b) => _mm512_add_epi64(a, b),
        min(a, b) => _mm512_min_epi64(a, b),
        max(a, b) => _mm512_max_epi64(a, b),
        zigzag(d) => _mm512_xor_si512(_mm512_slli_epi64::<1>(d), _mm512_srai_epi64::<63>(d)),
        unzigzag(z) => {
            let sign = _mm512_and_si512(z, _mm512_set1_epi64(1));
            let sign = _mm512_sub_epi64(_mm512_setzero_si512(), sign);
            _mm512_xor_si512(_mm512_srli_epi64::<1>(z), sign)
        },
    }

    #[inline(always)]
    unsafe fn width(zigzags: Self::Block) -> u32 {
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            let [a, b, c, d] = zigzags;
            let all = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
            u64::BITS - (_mm512_reduce_or_epi64(all) as u64).leading_zeros()
        }
    }

    #[inline(always)]
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            if width <= 32 {
                let narrow = unroll!(2, |i| {
                    let low = _mm512_cvtepi64_epi32(zigzags[2 * i]);
                    let high = _mm512_cvtepi64_epi32(zigzags[2 * i + 1]);
                    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
                });
                pack32(narrow, width, dst);
            } else {
                let mut values = [0u64; BLOCK];
                for i in 0..4 {
                    _mm512_storeu_si512(values.as_mut_ptr().add(8 * i).cast(), zigzags[i]);
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
                let [low, high] = unpack32(src, width);
                [
                    _mm512_cvtepu32_epi64(_mm512_castsi512_si256(low)),
                    _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(low)),
                    _mm512_cvtepu32_epi64(_mm512_castsi512_si256(high)),
                    _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(high)),
                ]
            } else {
                let values = unpack_bits(src, width);
                unroll!(4, |i| _mm512_loadu_si512(values.as_ptr().add(8 * i).cast()))
            }
        }
    }

    compressing! {
        i64, u8, _mm512_set1_epi64, _mm512_maskz_compress_epi64, _mm512_maskz_expand_epi64,
        _mm512_mask_blend_epi64
    }
}
