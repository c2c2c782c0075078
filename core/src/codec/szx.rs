//! Codec `szx`: SZx (Yu et al., HPDC 2022), the codec of C-Coll. It codes a block of 128 values as
//! its midpoint, or as the leading bits of the differences to the midpoint.
//!
//! For each block, `radius = (max − min)/2` and `middle = min + radius`:
//!
//! - If all values are within the bound of `middle`, only `middle` is stored.
//! - Otherwise the differences to `middle` are stored. Each keeps only its leading bits, whose
//!   number follows from the exponents of `radius` and bound. Up to three of its leading bytes are
//!   left out if the previous difference has the same bytes.
//! - If a value is not finite, or would miss the bound because of rounding, the block's values keep
//!   all bits. Only repeated bytes are left out.
//!
//! A block of decoded values has another midpoint, so encoding it again moves the values. Cost: two
//! passes over a block in the first-level cache, and a store of a few bytes for each value.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams, padded};
use crate::element::Float;
use crate::element::sealed::{OnLattice, Word};

/// The codec `szx`.
pub type Szx<T> = Coded<T, SzxCoder<T>>;

/// Coder of [`Szx`]: the exclusive limit of errors; 0 if there is no bound.
#[derive(Clone, Copy, Debug)]
pub struct SzxCoder<T>(T);

/// Values in a block.
const BLOCK: usize = 128;
/// Maximum bytes of a difference that are left out because the previous difference has the same.
const MAX_REPEATED: usize = 3;

/// Masks of the low 0 to 8 bytes.
const LOW_BYTES: [u64; 9] = [
    0,
    0xff,
    0xffff,
    0xff_ffff,
    u32::MAX as u64,
    u64::MAX >> 24,
    u64::MAX >> 16,
    u64::MAX >> 8,
    !0,
];

type BitsOf<T> = <T as OnLattice>::Bits;

impl<T: Float> Coder<T> for SzxCoder<T> {
    const ID: CodecId = CodecId::Szx;

    fn new(params: &CoderParams) -> Self {
        Self(T::narrow(params.limit_of_errors::<T>()))
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        if self.0 == T::ZERO {
            return None;
        }
        let n_state_bytes = values.len().div_ceil(BLOCK).div_ceil(8);
        let (states, dst) = dst.split_at_mut_checked(n_state_bytes)?;
        states.fill(0);
        let mut n_bytes = 0;
        for (i, values) in values.chunks(BLOCK).enumerate() {
            let block: [T; BLOCK] = padded(values);
            let (min, max) = value_range(&block);
            let radius = (max - min) / T::from_f64(2.0);
            let middle = min + radius;
            if self.keeps_bound(&block, |x| (x, middle)) {
                let end = n_bytes + T::BYTES;
                dst.get_mut(n_bytes..end)?.copy_from_slice(bytemuck::bytes_of(&middle));
                n_bytes = end;
                continue;
            }
            states[i / 8] |= 1 << (i % 8);
            let n_kept = self.n_kept(radius);
            let cut = T::Bits::BITS - n_kept.min(T::Bits::BITS);
            let rest = |x: T| (x - middle).bits() >> cut;
            let is_within = n_kept < T::Bits::BITS
                && self.keeps_bound(&block, |x| (x, T::from_bits(rest(x) << cut) + middle));
            let mut numbers = [T::Bits::ZERO; BLOCK];
            if is_within {
                numbers.iter_mut().zip(&block).for_each(|(number, x)| *number = rest(*x));
                let end = n_bytes + 1 + T::BYTES;
                let head = dst.get_mut(n_bytes..end)?;
                head[0] = n_kept as u8;
                head[1..].copy_from_slice(bytemuck::bytes_of(&middle));
                n_bytes = end;
            } else {
                numbers.iter_mut().zip(&block).for_each(|(number, x)| *number = x.bits());
                *dst.get_mut(n_bytes)? = T::Bits::BITS as u8;
                n_bytes += 1;
            }
            let n_kept = if is_within { n_kept } else { T::Bits::BITS };
            n_bytes += put::<T>(&numbers, values.len(), n_kept, &mut dst[n_bytes..])?;
        }
        Some(n_state_bytes + n_bytes)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        let n_blocks = values.len().div_ceil(BLOCK);
        let (states, mut src) = src.split_at_checked(n_blocks.div_ceil(8))?;
        if !n_blocks.is_multiple_of(8) && states[n_blocks / 8] >> (n_blocks % 8) != 0 {
            return None;
        }
        for (i, values) in values.chunks_mut(BLOCK).enumerate() {
            if states[i / 8] >> (i % 8) & 1 == 0 {
                values.fill(take_float(&mut src)?);
                continue;
            }
            let (&n_kept, rest) = src.split_first()?;
            src = rest;
            let n_kept = u32::from(n_kept);
            if n_kept <= head_bits::<T>() || n_kept > T::Bits::BITS {
                return None;
            }
            let mut numbers = [T::Bits::ZERO; BLOCK];
            let mut block = [T::ZERO; BLOCK];
            if n_kept == T::Bits::BITS {
                take::<T>(&mut src, values.len(), n_kept, &mut numbers)?;
                block.iter_mut().zip(numbers).for_each(|(x, bits)| *x = T::from_bits(bits));
            } else {
                let middle: T = take_float(&mut src)?;
                take::<T>(&mut src, values.len(), n_kept, &mut numbers)?;
                let cut = T::Bits::BITS - n_kept;
                for (x, number) in block.iter_mut().zip(numbers) {
                    *x = T::from_bits(number << cut) + middle;
                }
            }
            values.copy_from_slice(&block[..values.len()]);
        }
        src.is_empty().then_some(())
    }
}

impl<T: Float> SzxCoder<T> {
    /// Returns whether each value of the block keeps the bound. `decoded` returns the value itself
    /// and the value to which it decodes. The comparison is strict because differences are rounded
    /// (docs/guarantees.md, "The check").
    #[inline(always)]
    fn keeps_bound(&self, block: &[T; BLOCK], decoded: impl Fn(T) -> (T, T)) -> bool {
        let mut is_within = true;
        for x in block {
            let (x, decoded) = decoded(*x);
            is_within &= (x - decoded).abs() < self.0;
        }
        is_within
    }

    /// Returns the number of leading bits that the bound requires of a difference of at most
    /// `radius`: sign, exponent, and a part of the fraction. The dropped bits amount to less than
    /// half of the largest power of two that does not exceed the bound.
    #[inline(always)]
    fn n_kept(&self, radius: T) -> u32 {
        let exponent = |x: T| (x.bits() >> T::FRACTION_BITS).to_u64() as u32;
        head_bits::<T>() + exponent(radius.abs()).saturating_sub(exponent(self.0)) + 1
    }
}

/// Returns the number of sign and exponent bits.
#[inline(always)]
fn head_bits<T: Float>() -> u32 {
    T::Bits::BITS - T::FRACTION_BITS
}

/// Returns minimum and maximum. They may miss a NaN, but all later checks reject it.
#[inline(always)]
fn value_range<T: Float>(block: &[T; BLOCK]) -> (T, T) {
    let min = picked(block, |a, b| if a < b { a } else { b });
    let max = picked(block, |a, b| if a > b { a } else { b });
    (min, max)
}

/// Reduces a block to one value with `pick`. It folds the second half onto the first, so that
/// vectors pick from many pairs at once.
#[inline(always)]
fn picked<T: Float>(block: &[T; BLOCK], pick: impl Fn(T, T) -> T) -> T {
    let left: [T; 64] = halved(block, &pick);
    let left: [T; 32] = halved(&left, &pick);
    let left: [T; 16] = halved(&left, &pick);
    let left: [T; 8] = halved(&left, &pick);
    let left: [T; 4] = halved(&left, &pick);
    let [left, right] = halved(&left, &pick);
    pick(left, right)
}

/// Folds the second half onto the first.
#[inline(always)]
fn halved<T: Float, const N: usize, const HALF: usize>(
    values: &[T; N],
    pick: &impl Fn(T, T) -> T,
) -> [T; HALF] {
    core::array::from_fn(|i| pick(values[i], values[HALF + i]))
}

/// Returns the bytes of a number of `n_kept` bits.
#[inline(always)]
const fn n_bytes_of(n_kept: u32) -> usize {
    n_kept.div_ceil(8) as usize
}

/// Writes the counts of repeated bytes, 2 bits each, then the other bytes of numbers of `n_kept`
/// bits, low bytes first. Returns the number of bytes written.
#[inline(always)]
fn put<T: Float>(
    numbers: &[BitsOf<T>; BLOCK],
    n_values: usize,
    n_kept: u32,
    dst: &mut [u8],
) -> Option<usize> {
    let width = n_bytes_of(n_kept);
    // A number has one leading zero byte for each of these limits above it.
    let mut limits = [T::Bits::ZERO; MAX_REPEATED];
    for (i, limit) in limits.iter_mut().enumerate().take(width) {
        *limit = T::Bits::from_u64(1) << (8 * (width - 1 - i) as u32);
    }
    let mut repeated = [0; BLOCK];
    let mut before = [T::Bits::ZERO; BLOCK];
    before[1..].copy_from_slice(&numbers[..BLOCK - 1]);
    for ((repeated, number), before) in repeated.iter_mut().zip(numbers).zip(&before) {
        let change = *number ^ *before;
        *repeated = limits.iter().map(|limit| u8::from(change < *limit)).sum::<u8>();
    }
    repeated[n_values..].fill(0);

    let n_count_bytes = n_values.div_ceil(4);
    let (counts, dst) = dst.split_at_mut_checked(n_count_bytes)?;
    for (byte, four) in counts.iter_mut().zip(repeated.chunks_exact(4)) {
        *byte = four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6;
    }
    let mut room = [0; BLOCK * 8];
    let mut n_bytes = 0;
    for (number, repeated) in numbers[..n_values].iter().zip(repeated) {
        let end = n_bytes + T::BYTES;
        room[n_bytes..end].copy_from_slice(bytemuck::bytes_of(number));
        n_bytes += width - usize::from(repeated);
    }
    dst.get_mut(..n_bytes)?.copy_from_slice(&room[..n_bytes]);
    Some(n_count_bytes + n_bytes)
}

/// Reads numbers that [`put`] wrote.
#[inline(always)]
fn take<T: Float>(
    src: &mut &[u8],
    n_values: usize,
    n_kept: u32,
    numbers: &mut [BitsOf<T>; BLOCK],
) -> Option<()> {
    let width = n_bytes_of(n_kept);
    let (counts, rest) = src.split_at_checked(n_values.div_ceil(4))?;
    let mut repeated = [0; BLOCK];
    for (four, byte) in repeated.chunks_exact_mut(4).zip(counts) {
        for (i, repeated) in four.iter_mut().enumerate() {
            *repeated = byte >> (2 * i) & 3;
        }
    }
    if repeated[n_values..].iter().any(|count| *count != 0) {
        return None;
    }
    let repeated = &repeated[..n_values];
    let most = repeated.iter().fold(0, |most, count| most.max(*count));
    if usize::from(most) > width {
        return None;
    }
    let n_bytes =
        n_values * width - repeated.iter().map(|count| usize::from(*count)).sum::<usize>();
    let bytes = rest.get(..n_bytes)?;
    let mut room = [0; BLOCK * 8 + 8];
    room[..n_bytes].copy_from_slice(bytes);
    let mut at = 0;
    let mut before = T::Bits::ZERO;
    for (number, repeated) in numbers.iter_mut().zip(repeated) {
        let n_new = width - usize::from(*repeated);
        let word: BitsOf<T> = bytemuck::pod_read_unaligned(&room[at..at + T::BYTES]);
        let is_new = T::Bits::from_u64(LOW_BYTES[n_new]);
        before = (word & is_new) | (before & !is_new);
        *number = before;
        at += n_new;
    }
    *src = &rest[n_bytes..];
    Some(())
}

#[inline(always)]
fn take_float<T: Float>(src: &mut &[u8]) -> Option<T> {
    let (bytes, rest) = src.split_at_checked(T::BYTES)?;
    *src = rest;
    Some(bytemuck::pod_read_unaligned(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn encoded<T: Float>(values: &[T], bound: f64) -> Vec<u8> {
        let coder = SzxCoder::<T>::new(&CoderParams { bound, step: bound, setting: 0 });
        let mut dst = vec![0xa5; size_of_val(values)];
        let n_bytes = coder.encode(values, &mut dst).unwrap();
        dst.truncate(n_bytes);
        let mut decoded = vec![T::ONE; values.len()];
        coder.decode(&dst, &mut decoded).unwrap();
        for (x, y) in values.iter().zip(decoded) {
            assert!((*x - y).abs() <= T::from_f64(bound) || x.bits() == y.bits(), "{x:?} {y:?}");
        }
        dst
    }

    /// The expected bytes come from another encoder, written from docs/format.md.
    #[test]
    fn bytes_are_those_of_the_format() {
        let mut values = vec![2.5_f32; 127];
        values.extend([2.625, 1.0, 1.5, 2.0, 2.015625, -3.0, 4.0]);
        let expected = [
            0x02, 0x00, 0x00, 0x24, 0x40, 0x0d, 0x00, 0x00, 0x00, 0x3f, 0x94, 0x00, 0xe0, 0x07,
            0xf0, 0xf8, 0x0c, 0x18, 0x0c, 0x08,
        ];
        assert_eq!(encoded(&values, 0.25), expected);

        let values = [f32::NAN, f32::NAN, 1.0, 1.0, -0.0];
        let expected = [
            0x01, 0x20, 0xcc, 0x00, 0x00, 0x00, 0xc0, 0x7f, 0x00, 0x00, 0x00, 0x80, 0x3f, 0x00,
            0x00, 0x00, 0x00, 0x80,
        ];
        assert_eq!(encoded(&values, 0.25), expected);

        let values = [100.0_f64, 101.0, 101.0, 350.0];
        let expected = [
            0x01, 0x1d, 0x00, 0x00, 0x00, 0x00, 0x00, 0x20, 0x6c, 0x40, 0x38, 0x00, 0xe8, 0x0b,
            0x18, 0x00, 0xe0, 0x00, 0x00, 0xe8, 0x0b, 0x08,
        ];
        assert_eq!(encoded(&values, 2f64.powi(-10)), expected);
    }

    #[test]
    fn blocks_that_need_all_bits_keep_them() {
        let of_two_scales: Vec<f32> = (0..128).map(|i| [1e8, 1.9][i / 64]).collect();
        let with_nan: Vec<f32> = (0..128).map(|i| if i == 99 { f32::NAN } else { 1.5 }).collect();
        let mut near_the_largest = vec![f32::MAX; 128];
        near_the_largest[0] = f32::MIN;
        for values in [of_two_scales, with_nan, near_the_largest] {
            assert_eq!(encoded(&values, 0.5)[..2], [1, 32]);
        }
    }
}
