//! Codec `zfp-rate`: zfp at a fixed rate. Each block of four values takes the same number of bits.
//!
//! Source: Lindstrom, "Fixed-rate compressed floating-point arrays", TVCG 2014. Zhou et al.
//! (IPDPS'21) compress messages with it. Bits and values equal those of the C library (1.0) for
//! one-dimensional arrays, except where that library's numbers overflow. The rate, in bits per
//! value, is the setting. The steps for each block are:
//!
//! 1. Multiply all values by a power of two that depends on the largest exponent, and convert them
//!    to integers.
//! 2. Transform: compute the mean, and differences that are small for smooth values.
//! 3. Convert the integers to base −2, so that the high bits of small ones are 0, whatever their
//!    sign.
//! 4. Code the bits of these coefficients plane by plane, from the highest. Each coefficient that
//!    had a 1 in a higher plane writes its bit. The other bits of the plane are likely to be 0, so
//!    one bit first says whether any of them is 1.
//! 5. Drop the bits that exceed the rate.
//!
//! A plane has four bits, so a table gives its code. A 64-bit word holds 16 planes. Steps 1 to 3,
//! and the conversion from integers to planes, process many blocks side by side in vectors. In the
//! remaining steps, a processor overlaps blocks because they do not depend on each other.

mod planes;

use super::CodecId;
use super::bits::BitWriter;
use super::coder::{Coded, Coder, CoderParams};
use crate::element::Float;
use crate::element::sealed::{Wide, Word};
use crate::kernel::Code;
use planes::{LANES, PLANES_PER_WORD, PlaneReader, PlaneWriter, ROOM, gather, spread};

/// The codec `zfp-rate`.
pub type ZfpRate<T> = Coded<T, ZfpRateCoder>;

/// Coder of [`ZfpRate`]: the bits per value.
#[derive(Clone, Copy, Debug)]
pub struct ZfpRateCoder(u32);

/// Values in a block.
const BLOCK: usize = 4;
/// Blocks that are transformed side by side.
const BATCH: usize = 32;
/// Maximum words of planes in a block: 64 planes.
const MAX_WORDS: usize = 64 / PLANES_PER_WORD;

impl ZfpRateCoder {
    /// Returns the bits of a block. As in zfp, a block has at least the bits of its exponent.
    #[inline(always)]
    fn block_bits<T: Float>(self) -> u32 {
        (BLOCK as u32 * self.0).max(1 + exponent_bits::<T>())
    }

    /// Returns the bytes of `n_values` values.
    #[inline(always)]
    fn n_bytes<T: Float>(self, n_values: usize) -> usize {
        (n_values.div_ceil(BLOCK) * self.block_bits::<T>() as usize).div_ceil(8)
    }
}

impl<T: Float> Coder<T> for ZfpRateCoder {
    const ID: CodecId = CodecId::ZfpRate;

    fn new(params: &CoderParams) -> Self {
        Self(params.setting.into())
    }

    fn parameter(&self) -> f64 {
        self.0.into()
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        let rate = parameter as u32;
        let is_valid = f64::from(rate) == parameter && (1..=T::Bits::BITS).contains(&rate);
        is_valid.then_some(Self(rate))
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let has_non_finite = values.iter().fold(false, |any, x| any | !x.finite());
        if has_non_finite || self.n_bytes::<T>(values.len()) > dst.len() {
            return None;
        }
        let mut writer = BitWriter::new(dst);
        let (block_bits, header_bits) = (self.block_bits::<T>(), 1 + exponent_bits::<T>());
        let n_words = words_for::<T>(block_bits - header_bits);
        let mut batch = BlockBatch::<T>::NEW;
        for values in values.chunks(BATCH * BLOCK) {
            batch.transform(values);
            batch.make_planes(n_words);
            for i in 0..values.len().div_ceil(BLOCK) {
                let mut block = PlaneWriter::new(block_bits);
                let exponent = batch.exponents[i].to_u64();
                if exponent != 0 {
                    block.put(exponent << 1 | 1, header_bits);
                    let planes: [_; MAX_WORDS] =
                        core::array::from_fn(|nth| [batch.planes[nth][i], batch.before[nth][i]]);
                    block.put_planes(&planes[..n_words], n_planes::<T>(exponent));
                }
                for (word, n_bits) in block.finish() {
                    writer.put_long(word, n_bits)?;
                }
            }
        }
        writer.finish()
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        if src.len() != self.n_bytes::<T>(values.len()) {
            return None;
        }
        let (block_bits, header_bits) = (self.block_bits::<T>(), 1 + exponent_bits::<T>());
        let n_words = words_for::<T>(block_bits - header_bits);
        let n_left = values.len().div_ceil(BLOCK) * block_bits as usize % 8;
        if n_left != 0 && src.last()? >> n_left != 0 {
            return None;
        }
        let mut batch = BlockBatch::<T>::NEW;
        let mut room = [0; ROOM];
        // A batch takes a whole number of bytes.
        let sources = src.chunks(BATCH * block_bits as usize / 8);
        for (src, values) in sources.zip(values.chunks_mut(BATCH * BLOCK)) {
            let (used, unused) = room.split_at_mut(src.len());
            used.copy_from_slice(src);
            if values.len() < BATCH * BLOCK {
                unused.fill(0);
            }
            for first in (0..values.len().div_ceil(BLOCK)).step_by(LANES) {
                let mut blocks = PlaneReader::new(&room, first, block_bits);
                for lane in 0..LANES {
                    let exponent = blocks.exponent(lane, header_bits)?;
                    batch.exponents[first + lane] = T::Bits::from_u64(exponent);
                }
                let mut planes = [[0; LANES]; MAX_WORDS];
                blocks.take_planes(&mut planes[..n_words]);
                for (words, planes) in batch.planes.iter_mut().zip(planes) {
                    words[first..first + LANES].copy_from_slice(&planes);
                }
            }
            batch.take_planes(n_words);
            batch.transform_back(values);
        }
        Some(())
    }
}

#[inline(always)]
fn exponent_bits<T: Float>() -> u32 {
    T::Bits::BITS - 1 - T::FRACTION_BITS
}

/// Returns the bias of exponents.
#[inline(always)]
fn bias<T: Float>() -> u32 {
    (1 << (exponent_bits::<T>() - 1)) - 1
}

/// Returns the number of words of planes that can have bits among the first `n_bits`. Each plane
/// takes at least one bit.
#[inline(always)]
fn words_for<T: Float>(n_bits: u32) -> usize {
    n_bits.min(T::Bits::BITS).div_ceil(PLANES_PER_WORD as u32) as usize
}

/// Returns the number of planes that zfp codes for a block with this exponent: all but those below
/// 2⁻¹⁰⁷⁴.
#[inline(always)]
fn n_planes<T: Float>(exponent: u64) -> u32 {
    if T::Bits::BITS == 64 { (exponent as u32 + 55).min(64) } else { T::Bits::BITS }
}

/// Returns two factors with the product 2^n, because 2^n itself may exceed the type. `biased` is n
/// plus twice the exponents' bias.
#[inline(always)]
fn halves_of_power<T: Float>(biased: T::Bits) -> [T; 2] {
    let first = biased >> 1;
    [first, biased.minus(first)].map(|half| T::from_bits(half << T::FRACTION_BITS))
}

/// Blocks side by side: row i holds value i of each block.
#[derive(Clone, Copy)]
struct BlockBatch<T: Float> {
    /// Exponent e of each block, whose values are all below 2^(e − bias); 0 if they are all 0.
    exponents: [T::Bits; BATCH],
    /// Coefficients in base −2.
    digits: [[T::Bits; BATCH]; BLOCK],
    /// Bit planes of the coefficients, with the highest planes in row 0.
    planes: [[u64; BATCH]; MAX_WORDS],
    /// For each plane, the OR of all higher planes.
    before: [[u64; BATCH]; MAX_WORDS],
}

impl<T: Float> BlockBatch<T> {
    const NEW: Self = Self {
        exponents: [T::Bits::ZERO; BATCH],
        digits: [[T::Bits::ZERO; BATCH]; BLOCK],
        planes: [[0; BATCH]; MAX_WORDS],
        before: [[0; BATCH]; MAX_WORDS],
    };

    /// Transforms values to coefficients. Pads the last block as zfp does.
    #[inline(always)]
    fn transform(&mut self, values: &[T]) {
        let mut rows = [[T::ZERO; BATCH]; BLOCK];
        let (blocks, rest) = values.as_chunks::<BLOCK>();
        for (i, block) in blocks.iter().enumerate() {
            for (row, x) in rows.iter_mut().zip(block) {
                row[i] = *x;
            }
        }
        if let Some(&first) = rest.first() {
            let second = rest.get(1).copied().unwrap_or(first);
            let third = rest.get(2).copied().unwrap_or(second);
            for (row, x) in rows.iter_mut().zip([first, second, third, first]) {
                row[blocks.len()] = x;
            }
        }
        for i in 0..BATCH {
            let magnitude = |row: &[T; BATCH]| row[i].bits() << 1;
            let [a, b, c, d] = rows.each_ref().map(magnitude);
            let largest = a.max(b).max(c).max(d);
            let next = (largest >> (T::FRACTION_BITS + 1)).plus(word::<T>(1));
            self.exponents[i] = if largest == T::Bits::ZERO { T::Bits::ZERO } else { next };
        }
        let [xs, ys, zs, ws] = &mut self.digits;
        for i in 0..BATCH {
            // Values of W bits below 2^(e − bias) become integers below 2^(W − 2).
            let power = word::<T>(3 * bias::<T>() + T::Bits::BITS - 2).minus(self.exponents[i]);
            let halves = halves_of_power::<T>(power);
            let integer = |row: &[T; BATCH]| {
                let code = (row[i] * halves[0] * halves[1]).widen().to_code();
                T::Bits::from_u64(code.bits())
            };
            let [mut x, mut y, mut z, mut w] = rows.each_ref().map(integer);
            x = x.plus(w).halved();
            w = w.minus(x);
            z = z.plus(y).halved();
            y = y.minus(z);
            x = x.plus(z).halved();
            z = z.minus(x);
            w = w.plus(y).halved();
            y = y.minus(w);
            w = w.plus(y.halved());
            y = y.minus(w.halved());
            let odd = odd_places::<T>();
            xs[i] = x.plus(odd) ^ odd;
            ys[i] = y.plus(odd) ^ odd;
            zs[i] = z.plus(odd) ^ odd;
            ws[i] = w.plus(odd) ^ odd;
        }
    }

    /// Inverse of [`transform`](Self::transform). Limits results to the type's finite range,
    /// because the block's values were finite.
    #[inline(always)]
    fn transform_back(&self, values: &mut [T]) {
        let mut rows = [[T::ZERO; BATCH]; BLOCK];
        let [xs, ys, zs, ws] = &mut rows;
        for i in 0..BATCH {
            let odd = odd_places::<T>();
            let integer = |digits: &[T::Bits; BATCH]| (digits[i] ^ odd).minus(odd);
            let [mut x, mut y, mut z, mut w] = self.digits.each_ref().map(integer);
            y = y.plus(w.halved());
            w = w.minus(y.halved());
            y = y.plus(w);
            w = (w << 1).minus(y);
            z = z.plus(x);
            x = (x << 1).minus(z);
            y = y.plus(z);
            z = (z << 1).minus(y);
            w = w.plus(x);
            x = (x << 1).minus(w);
            let power =
                self.exponents[i].plus(word::<T>(bias::<T>())).minus(word::<T>(T::Bits::BITS - 2));
            let halves = halves_of_power::<T>(power);
            let value = |integer: T::Bits| {
                let code = <T::Code as Code>::from_bits(integer.to_u64());
                let value = T::narrow(T::Wide::from_code(code)) * halves[0] * halves[1];
                let value = if value > T::MAX { T::MAX } else { value };
                if value < T::MIN { T::MIN } else { value }
            };
            xs[i] = value(x);
            ys[i] = value(y);
            zs[i] = value(z);
            ws[i] = value(w);
        }
        for (i, block) in values.chunks_mut(BLOCK).enumerate() {
            for (x, row) in block.iter_mut().zip(&rows) {
                *x = row[i];
            }
        }
    }

    /// Computes the first `n_words` words of `planes` and `before` from `digits`.
    #[inline(always)]
    fn make_planes(&mut self, n_words: usize) {
        let [xs, ys, zs, ws] = &self.digits;
        let mut above = [0; BATCH];
        let words = self.planes[..n_words].iter_mut().zip(&mut self.before);
        for (nth, (words, before)) in words.enumerate() {
            let shift = T::Bits::BITS - (nth + 1) as u32 * PLANES_PER_WORD as u32;
            for i in 0..BATCH {
                let part = |digits: &[T::Bits; BATCH]| spread((digits[i] >> shift).to_u64());
                let planes = part(xs) | part(ys) << 1 | part(zs) << 2 | part(ws) << 3;
                words[i] = planes;
                let mut any = planes | above[i] << 60;
                any |= any >> 4;
                any |= any >> 8;
                any |= any >> 16;
                any |= any >> 32;
                before[i] = any >> 4 | above[i] << 60;
                above[i] = any & 15;
            }
        }
    }

    /// Computes `digits` from the first `n_words` words of `planes`.
    #[inline(always)]
    fn take_planes(&mut self, n_words: usize) {
        for (value, digits) in self.digits.iter_mut().enumerate() {
            *digits = [T::Bits::ZERO; BATCH];
            for (nth, words) in self.planes[..n_words].iter().enumerate() {
                let shift = T::Bits::BITS - (nth + 1) as u32 * PLANES_PER_WORD as u32;
                for (digits, word) in digits.iter_mut().zip(words) {
                    *digits = *digits | T::Bits::from_u64(gather(word >> value)) << shift;
                }
            }
        }
    }
}

#[inline(always)]
fn word<T: Float>(number: u32) -> T::Bits {
    T::Bits::from_u64(number.into())
}

/// Returns the mask of the binary places whose weights are negative in base −2.
#[inline(always)]
fn odd_places<T: Float>() -> T::Bits {
    T::Bits::from_u64(0xaaaa_aaaa_aaaa_aaaa)
}
