//! Bit packing with BMI2, for the AVX2 level.
//!
//! `pext` extracts the low c bits of every byte or 16-bit lane. From eight bytes it makes 8·c bits,
//! which are exactly c bytes. From four lanes it makes 4·c bits. `pdep` is the inverse. Cost: one
//! `pext` for 8 bytes or 4 lanes, and one store for 8 values.

use core::arch::x86_64::{_pdep_u64, _pext_u64};

/// Mask of the low `width` bits of every byte.
#[inline(always)]
fn bytes_mask(width: u32) -> u64 {
    0x0101_0101_0101_0101 * ((1u64 << width) - 1)
}

/// Mask of the low `width` bits of every 16-bit lane.
#[inline(always)]
fn lanes_mask(width: u32) -> u64 {
    0x0001_0001_0001_0001 * ((1u64 << width) - 1)
}

/// Packs 32 values of `width` ≤ 8 bits, each in a byte of `words`.
///
/// # Safety
/// Requires BMI2; `dst` must be valid for 4·`width` + 8 bytes.
#[inline(always)]
pub(super) unsafe fn pack_bytes(words: [u64; 4], width: u32, dst: *mut u8) {
    let mask = bytes_mask(width);
    for i in 0..4 {
        // SAFETY: word i fills `width` bytes at i·width; the store reaches less than 8 bytes past
        // them.
        unsafe {
            let packed = _pext_u64(words[i], mask);
            dst.add(i * width as usize).cast::<u64>().write_unaligned(packed);
        }
    }
}

/// Inverse of [`pack_bytes`].
///
/// # Safety
/// Requires BMI2; `src` must be valid for 4·`width` + 8 bytes.
#[inline(always)]
pub(super) unsafe fn unpack_bytes(src: *const u8, width: u32) -> [u64; 4] {
    let mask = bytes_mask(width);
    // SAFETY: as in `pack_bytes`.
    unsafe {
        unroll!(4, |i| {
            _pdep_u64(src.add(i * width as usize).cast::<u64>().read_unaligned(), mask)
        })
    }
}

/// Packs 32 values of `width` bits, 9 to 16, each in a 16-bit lane of `words`.
///
/// # Safety
/// Requires BMI2; `dst` must be valid for 4·`width` + 16 bytes.
#[inline(always)]
pub(super) unsafe fn pack_lanes(words: [u64; 8], width: u32, dst: *mut u8) {
    let mask = lanes_mask(width);
    for i in 0..4 {
        // SAFETY: two words fill 8·width bits, which are `width` bytes, at i·width; the store
        // reaches less than 16 bytes past them.
        unsafe {
            let low = u128::from(_pext_u64(words[2 * i], mask));
            let high = u128::from(_pext_u64(words[2 * i + 1], mask));
            let packed = low | high << (4 * width);
            dst.add(i * width as usize).cast::<u128>().write_unaligned(packed);
        }
    }
}

/// Inverse of [`pack_lanes`].
///
/// # Safety
/// Requires BMI2; `src` must be valid for 4·`width` + 16 bytes.
#[inline(always)]
pub(super) unsafe fn unpack_lanes(src: *const u8, width: u32) -> [u64; 8] {
    let mask = lanes_mask(width);
    let mut words = [0; 8];
    for i in 0..4 {
        // SAFETY: as in `pack_lanes`.
        unsafe {
            let packed = src.add(i * width as usize).cast::<u128>().read_unaligned();
            words[2 * i] = _pdep_u64(packed as u64, mask);
            words[2 * i + 1] = _pdep_u64((packed >> (4 * width)) as u64, mask);
        }
    }
    words
}
