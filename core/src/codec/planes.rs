//! Bit planes of a block of 32 numbers: plane j is 4 bytes, and its bit i is bit j of number i. The
//! coders `ompszp` and `cuszp` use them. The kernels of fz-light have their own packing.
//!
//! One byte of each number makes eight planes. Four words of 64 bits hold these bytes, and each
//! word is transposed as a square of 8 × 8 bits by swapping ever larger squares of bits (Warren,
//! Hacker's Delight, 7-3).

use super::lattice::{BLOCKS, Codes, GROUP};
use crate::element::Float;
use crate::element::sealed::{OnLattice, Word};
use crate::kernel::{BLOCK, Code};

/// Eight planes of a block.
type Octet = [u8; OCTET];

/// Numbers of a group: the sign in the lowest bit, the magnitude above it.
pub(super) type SignedMagnitudes<T> = [<T as OnLattice>::Bits; GROUP];

/// Bytes of one plane.
pub(super) const PLANE: usize = BLOCK / 8;
/// Bytes of eight planes.
const OCTET: usize = 8 * PLANE;

/// Converts codes to signs and magnitudes. The signs become the first plane.
#[inline(always)]
pub(super) fn to_signed_magnitudes<T: Float>(codes: &Codes<T>, numbers: &mut SignedMagnitudes<T>) {
    let zero = <T::Code as Code>::ZERO;
    for (number, code) in numbers.iter_mut().zip(codes) {
        let is_negative = *code < zero;
        let magnitude = if is_negative { zero.minus(*code) } else { *code };
        *number = T::Bits::from_u64(magnitude.bits()) << 1 | T::Bits::from_u64(is_negative.into());
    }
}

/// Inverse of [`to_signed_magnitudes`].
#[inline(always)]
pub(super) fn to_codes<T: Float>(numbers: &SignedMagnitudes<T>, codes: &mut Codes<T>) {
    for (code, number) in codes.iter_mut().zip(numbers) {
        // All ones if negative: then −m = !m + 1.
        let sign = T::Bits::ZERO.minus(*number & T::Bits::from_u64(1));
        *code = T::Code::from_bits(((*number >> 1) ^ sign).minus(sign).to_u64());
    }
}

/// Returns the number of bits of the largest magnitude.
#[inline(always)]
pub(super) fn width<T: Float>(numbers: &[T::Bits]) -> u32 {
    let mut lanes = [T::Bits::ZERO; 8];
    let mut eights = numbers.chunks_exact(lanes.len());
    for eight in &mut eights {
        for (lane, number) in lanes.iter_mut().zip(eight) {
            *lane = *lane | *number;
        }
    }
    let all = lanes.iter().chain(eights.remainder());
    let all = all.fold(T::Bits::ZERO, |all, number| all | *number);
    T::Bits::BITS - (all >> 1).leading_zeros()
}

/// Bit planes of a group's numbers.
pub(super) struct Planes {
    /// Element i holds planes 8·i to 8·i + 7 of each block.
    octets: [[Octet; BLOCKS]; 8],
}

impl Planes {
    /// Makes planes of zeros.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { octets: [[[0; OCTET]; BLOCKS]; 8] }
    }

    /// Computes the lowest `n_planes` planes of the numbers, and the rest of the last octet.
    #[inline(always)]
    pub(super) fn set<T: Float>(&mut self, numbers: &SignedMagnitudes<T>, n_planes: u32) {
        for (i, octet) in self.octets[..n_octets::<T>(n_planes)].iter_mut().enumerate() {
            let mut bytes = [0; GROUP];
            for (byte, number) in bytes.iter_mut().zip(numbers) {
                *byte = (*number >> (8 * i as u32)).to_u64() as u8;
            }
            transpose(&mut bytes);
            for (planes, bytes) in octet.iter_mut().zip(bytes.chunks_exact(OCTET)) {
                for (i, byte) in planes.iter_mut().enumerate() {
                    *byte = bytes[8 * (i % PLANE) + i / PLANE];
                }
            }
        }
    }

    /// Writes the lowest `n_planes` planes of a block to the front of `dst`; `None` if there is no
    /// space. May also overwrite bytes after them.
    #[inline(always)]
    pub(super) fn put(&self, block: usize, n_planes: u32, dst: &mut [u8]) -> Option<()> {
        let n_bytes = PLANE * n_planes as usize;
        if dst.len() < n_bytes {
            return None;
        }
        let octets = dst.chunks_mut(OCTET).take(n_bytes.div_ceil(OCTET));
        for (dst, octet) in octets.zip(&self.octets) {
            match <&mut Octet>::try_from(&mut *dst) {
                Ok(dst) => *dst = octet[block],
                Err(_) => dst.copy_from_slice(&octet[block][..dst.len()]),
            }
        }
        Some(())
    }

    /// Sets the lowest `n_planes` planes of each block to 0.
    #[inline(always)]
    pub(super) fn clear<T: Float>(&mut self, n_planes: u32) {
        self.octets[..n_octets::<T>(n_planes)].fill([[0; OCTET]; BLOCKS]);
    }

    /// Reads the lowest `n_planes` planes of a block from the front of `src`; `None` if `src` is
    /// too short.
    #[inline(always)]
    pub(super) fn take(&mut self, block: usize, n_planes: u32, src: &[u8]) -> Option<()> {
        let n_bytes = PLANE * n_planes as usize;
        if src.len() < n_bytes {
            return None;
        }
        let octets = src.chunks(OCTET).take(n_bytes.div_ceil(OCTET));
        for (i, (src, octet)) in octets.zip(&mut self.octets).enumerate() {
            let n_used = (n_bytes - i * OCTET).min(OCTET);
            let planes = &mut octet[block];
            match <&Octet>::try_from(src) {
                Ok(src) => *planes = lowest_planes(*src, n_used / PLANE),
                Err(_) => planes[..n_used].copy_from_slice(&src[..n_used]),
            }
        }
        Some(())
    }

    /// Computes the numbers from their planes. No block may have more than `n_planes`.
    #[inline(always)]
    pub(super) fn numbers<T: Float>(&self, n_planes: u32, numbers: &mut SignedMagnitudes<T>) {
        numbers.fill(T::Bits::ZERO);
        for (i, octet) in self.octets[..n_octets::<T>(n_planes)].iter().enumerate() {
            let mut bytes = [0; GROUP];
            for (bytes, planes) in bytes.as_chunks_mut().0.iter_mut().zip(octet) {
                *bytes = by_eight_numbers(*planes);
            }
            transpose(&mut bytes);
            for (number, byte) in numbers.iter_mut().zip(bytes) {
                *number = *number | T::Bits::from_u64(byte.into()) << (8 * i as u32);
            }
        }
    }
}

/// Returns the number of octets that hold `n_planes` planes, limited to the planes of a number.
#[inline(always)]
fn n_octets<T: Float>(n_planes: u32) -> usize {
    n_planes.div_ceil(8).min(T::Bits::BITS / 8) as usize
}

/// Transposes bits: bit j of byte 8·m + i becomes bit i of byte 8·m + j.
#[inline(always)]
fn transpose(bytes: &mut [u8; GROUP]) {
    for bytes in bytes.as_chunks_mut().0 {
        let word = u64::from_le_bytes(*bytes);
        let word = swapped(word, 7, 0x00aa_00aa_00aa_00aa);
        let word = swapped(word, 14, 0x0000_cccc_0000_cccc);
        *bytes = swapped(word, 28, 0x0000_0000_f0f0_f0f0).to_le_bytes();
    }
}

/// Returns the bytes in another order: byte 0 of each plane, byte 1 of each plane, and so on.
/// Planes are passed by value, so that they cannot overlap the result.
#[inline(always)]
fn by_eight_numbers(planes: Octet) -> Octet {
    let mut bytes = [0; OCTET];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = planes[PLANE * (i % 8) + i / 8];
    }
    bytes
}

/// Returns the planes with all but the lowest `n_planes` set to zero.
#[inline(always)]
fn lowest_planes(planes: Octet, n_planes: usize) -> Octet {
    let mut pairs: [u64; OCTET / 8] = bytemuck::cast(planes);
    for (i, pair) in pairs.iter_mut().enumerate() {
        let kept = match n_planes.saturating_sub(2 * i) {
            0 => 0,
            1 => u64::from(u32::MAX),
            _ => u64::MAX,
        };
        *pair = (u64::from_le(*pair) & kept).to_le();
    }
    bytemuck::cast(pairs)
}

/// Swaps the bits of `mask` with the bits `distance` places above them.
#[inline(always)]
const fn swapped(word: u64, distance: u32, mask: u64) -> u64 {
    let difference = (word ^ (word >> distance)) & mask;
    word ^ difference ^ (difference << distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_bits_of_numbers_and_give_them_back() {
        let mut state = 1_u64;
        for n_planes in 1..=54 {
            let codes: Codes<f64> = core::array::from_fn(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let magnitude = (state >> 11) as i64 & ((1 << (n_planes - 1)) - 1);
                if state & (1 << 10) == 0 { magnitude } else { -magnitude }
            });
            let mut numbers = [0; GROUP];
            to_signed_magnitudes::<f64>(&codes, &mut numbers);
            assert!(width::<f64>(&numbers) < n_planes);
            let mut planes = Planes::new();
            planes.set::<f64>(&numbers, n_planes);
            let mut read = Planes::new();
            read.octets.fill([[0xa5; OCTET]; BLOCKS]);
            read.clear::<f64>(n_planes);
            let n_bytes = PLANE * n_planes as usize;
            for (block, numbers) in numbers.chunks(BLOCK).enumerate() {
                for room in [n_bytes, n_bytes + 3, n_bytes + OCTET] {
                    let mut dst = [0xa5; 300];
                    assert_eq!(planes.put(block, n_planes, &mut dst[..room]), Some(()));
                    for (j, plane) in dst[..n_bytes].chunks(PLANE).enumerate() {
                        for (i, number) in numbers.iter().enumerate() {
                            let bit = plane[i / 8] >> (i % 8) & 1;
                            assert_eq!(u64::from(bit), number >> j & 1, "plane {j}, number {i}");
                        }
                    }
                    assert_eq!(read.take(block, n_planes, &dst[..room]), Some(()));
                }
                let short = &mut [0; 300][..n_bytes - 1];
                assert_eq!(planes.put(block, n_planes, short), None);
                assert_eq!(read.take(block, n_planes, short), None);
            }
            let mut again = [1; GROUP];
            read.numbers::<f64>(n_planes, &mut again);
            assert_eq!(again, numbers);
            let mut decoded = [1; GROUP];
            to_codes::<f64>(&again, &mut decoded);
            assert_eq!(decoded, codes);
        }
    }
}
