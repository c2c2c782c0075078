//! Bit packing with BMI2, for the AVX2 level.
//!
//! `pext` with the low c bits of every byte selected turns eight bytes into 8·c bits, which is c
//! bytes exactly; with the low c bits of every 16-bit lane, four lanes into 4·c bits. `pdep` is the
//! inverse. Cost: one `pext` and one store for 8 (4) values.

use core::arch::x86_64::{_pdep_u64, _pext_u64};

/// The low `width` bits of every byte.
#[inline(always)]
fn bytes_mask(width: u32) -> u64 {
    0x0101_0101_0101_0101 * ((1u64 << width) - 1)
}

/// The low `width` bits of every 16-bit lane.
#[inline(always)]
fn lanes_mask(width: u32) -> u64 {
    0x0001_0001_0001_0001 * ((1u64 << width) - 1)
}

/// 32 values of `width` ≤ 8 bits, one a byte.
///
/// # Safety
/// BMI2; `dst` valid for 4·`width` + 8 bytes.
#[inline(always)]
pub(super) unsafe fn pack_bytes(words: [u64; 4], width: u32, dst: *mut u8) {
    let mask = bytes_mask(width);
    for i in 0..4 {
        // SAFETY: word i fills `width` bytes at i·width and spills less than 8.
        unsafe {
            let packed = _pext_u64(words[i], mask);
            dst.add(i * width as usize).cast::<u64>().write_unaligned(packed);
        }
    }
}

/// Inverse of [`pack_bytes`].
///
/// # Safety
/// BMI2; `src` valid for 4·`width` + 8 bytes.
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

/// 32 values of `width` in 9…16 bits, four 16-bit lanes a word.
///
/// # Safety
/// BMI2; `dst` valid for 4·`width` + 16 bytes.
#[inline(always)]
pub(super) unsafe fn pack_lanes(words: [u64; 8], width: u32, dst: *mut u8) {
    let mask = lanes_mask(width);
    for i in 0..4 {
        // SAFETY: two words fill 8·width bits = `width` bytes at i·width and spill less than 16.
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
/// BMI2; `src` valid for 4·`width` + 16 bytes.
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
