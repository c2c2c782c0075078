//! Common parts of the zfp codecs: blocks of four values, and their transform to coefficients whose
//! high bits are 0 if the values are smooth.
//!
//! Source: Lindstrom, "Fixed-rate compressed floating-point arrays", TVCG 2014. The steps for each
//! block are:
//!
//! 1. Multiply all values by a power of two that depends on the largest exponent, and convert them
//!    to integers.
//! 2. Transform: compute the mean, and differences that are small for smooth values.
//! 3. Convert the integers to base −2, so that the high bits of small ones are 0, whatever their
//!    sign.
//! 4. Code the bits of these coefficients plane by plane, from the highest. Each coefficient that
//!    had a 1 in a higher plane writes its bit. The other bits of the plane are likely to be 0, so
//!    one bit first says whether any of them is 1.
//!
//! The codecs differ in the planes that they drop. Steps 1 to 3 process many blocks side by side in
//! vectors. Step 4 has two forms that write the same bits: `planes` takes one plane after the other
//! from a table and is the specification; `lanes` is faster, for codes of up to two words.

pub(super) mod lanes;
pub(super) mod planes;

use crate::element::Float;
use crate::element::sealed::{Wide, Word};
use crate::kernel::Code;
use lanes::{LaneReader, LaneWriter};
use planes::{MAX_WORDS, PLANES_PER_WORD, gather, spread};

/// Values in a block.
pub(super) const BLOCK: usize = 4;
/// Blocks that are transformed side by side.
pub(super) const BATCH: usize = 32;

#[inline(always)]
pub(super) fn exponent_bits<T: Float>() -> u32 {
    T::Bits::BITS - 1 - T::FRACTION_BITS
}

/// Returns the bias of exponents.
#[inline(always)]
pub(super) fn bias<T: Float>() -> u32 {
    (1 << (exponent_bits::<T>() - 1)) - 1
}

/// Returns the number of planes that zfp codes for a block with this exponent: all but those below
/// 2⁻¹⁰⁷⁴.
#[inline(always)]
pub(super) fn n_planes<T: Float>(exponent: u64) -> u32 {
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
pub(super) struct BlockBatch<T: Float> {
    /// Exponent e of each block, whose values are all below 2^(e − bias); 0 if they are all 0.
    pub(super) exponents: [T::Bits; BATCH],
    /// Coefficients in base −2.
    pub(super) digits: [[T::Bits; BATCH]; BLOCK],
    /// Bit planes of the coefficients, with the highest planes in row 0.
    pub(super) planes: [[u64; BATCH]; MAX_WORDS],
    /// For each plane, the OR of all higher planes.
    pub(super) before: [[u64; BATCH]; MAX_WORDS],
}

impl<T: Float> BlockBatch<T> {
    pub(super) const NEW: Self = Self {
        exponents: [T::Bits::ZERO; BATCH],
        digits: [[T::Bits::ZERO; BATCH]; BLOCK],
        planes: [[0; BATCH]; MAX_WORDS],
        before: [[0; BATCH]; MAX_WORDS],
    };

    /// Transforms values to coefficients. Pads the last block as zfp does. Coefficients of values
    /// that are not finite have no meaning.
    #[inline(always)]
    pub(super) fn transform(&mut self, values: &[T]) {
        let mut padded = [T::ZERO; BATCH * BLOCK];
        let values = values.try_into().unwrap_or_else(|_| {
            padded[..values.len()].copy_from_slice(values);
            if let [first, rest @ ..] = values.as_chunks::<BLOCK>().1 {
                let last = rest.last().unwrap_or(first);
                padded[values.len()..][..BLOCK - 1 - rest.len()].fill(*last);
                padded[values.len().next_multiple_of(BLOCK) - 1] = *first;
            }
            &padded
        });
        let mut rows = [[T::ZERO; BATCH]; BLOCK];
        for i in 0..BATCH {
            for (k, row) in rows.iter_mut().enumerate() {
                row[i] = values[BLOCK * i + k];
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
            let integer = |k: usize| integer::<T>(rows[k][i], self.exponents[i]);
            let [mut x, mut y, mut z, mut w] = [integer(0), integer(1), integer(2), integer(3)];
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

    /// Returns whether all values that were transformed are finite.
    #[inline(always)]
    pub(super) fn are_finite(&self) -> bool {
        let largest = self.exponents.iter().fold(T::Bits::ZERO, |largest, e| largest.max(*e));
        largest < word::<T>(1 << exponent_bits::<T>())
    }

    /// Keeps this number of each block's highest planes. A block without planes becomes 0.
    #[inline(always)]
    pub(super) fn keep_planes(&mut self, n_planes: &[u32; BATCH]) {
        for (i, n_planes) in n_planes.iter().enumerate() {
            let kept = T::Bits::ONES.shifted_up(word::<T>(T::Bits::BITS - n_planes));
            for row in &mut self.digits {
                row[i] = row[i] & kept;
            }
            let is_zero = *n_planes == 0;
            self.exponents[i] = if is_zero { T::Bits::ZERO } else { self.exponents[i] };
        }
    }

    /// Inverse of [`transform`](Self::transform). Limits results to the type's finite range,
    /// because the block's values were finite.
    #[inline(always)]
    pub(super) fn transform_back(&self, values: &mut [T]) {
        let mut padded = [T::ZERO; BATCH * BLOCK];
        let n_values = values.len();
        let decoded = (&mut *values).try_into().unwrap_or(&mut padded);
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
        for i in 0..BATCH {
            for (k, row) in rows.iter().enumerate() {
                decoded[BLOCK * i + k] = row[i];
            }
        }
        if n_values < BATCH * BLOCK {
            values.copy_from_slice(&padded[..n_values]);
        }
    }

    /// Computes blocks of N words from `digits` and `exponents`. D has the bits of the digits that
    /// can be coded.
    #[inline(always)]
    pub(super) fn write_words<D: Word, W: Word, const N: usize>(
        &self,
        lanes: &mut LaneWriter<D, W, N>,
        block_bits: u32,
    ) {
        for (row, digits) in lanes.coefficients.iter_mut().zip(&self.digits) {
            for i in 0..BATCH {
                let n_planes = n_planes::<T>(self.exponents[i].to_u64());
                let kept = T::Bits::ONES << (T::Bits::BITS - n_planes);
                // Words of fewer bits than the digits take the highest planes.
                row[i] = D::from_u64((digits[i] & kept).reversed().to_u64());
            }
        }
        lanes.encode();
        let header_bits = 1 + exponent_bits::<T>();
        let n_unused = N as u32 * W::BITS - block_bits;
        for i in 0..BATCH {
            let exponent = self.exponents[i];
            let is_zero = exponent == T::Bits::ZERO;
            let mut low = W::from_u64(exponent.to_u64() << 1 | 1);
            for (nth, codes) in lanes.codes.iter_mut().enumerate() {
                let word = codes[i] << header_bits | low;
                low = codes[i] >> (W::BITS - header_bits);
                let word = if nth + 1 == N { word << n_unused >> n_unused } else { word };
                codes[i] = if is_zero { W::ZERO } else { word };
            }
        }
    }

    /// Inverse of [`write_words`](Self::write_words). `None` if a block's first bit says that it
    /// has an exponent, but the exponent is 0.
    #[inline(always)]
    pub(super) fn read_words<W: Word, const N: usize>(
        &mut self,
        lanes: &mut LaneReader<W, N>,
        block_bits: u32,
    ) -> Option<()> {
        let header_bits = 1 + exponent_bits::<T>();
        let mut is_damaged = false;
        for i in 0..BATCH {
            let is_zero = lanes.codes[0][i] & W::from_u64(1) == W::ZERO;
            let header = lanes.codes[0][i] & W::ONES >> (W::BITS - header_bits);
            is_damaged |= header == W::from_u64(1);
            let exponent = if is_zero { W::ZERO } else { header >> 1 };
            self.exponents[i] = T::Bits::from_u64(exponent.to_u64());
            let mut high = W::ZERO;
            for codes in lanes.codes.iter_mut().rev() {
                let code = codes[i] >> header_bits | high << (W::BITS - header_bits);
                high = codes[i];
                codes[i] = if is_zero { W::ZERO } else { code };
            }
        }
        lanes.decode(block_bits - header_bits);
        for (digits, row) in self.digits.iter_mut().zip(&lanes.coefficients) {
            for i in 0..BATCH {
                digits[i] = T::Bits::from_u64(row[i].to_u64()).reversed();
            }
        }
        (!is_damaged).then_some(())
    }

    /// Computes the first `n_words` words of `planes` and `before` from `digits`.
    #[inline(always)]
    pub(super) fn make_planes(&mut self, n_words: usize) {
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
    pub(super) fn take_planes(&mut self, n_words: usize) {
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

/// Returns a value below 2^(e − bias) as an integer below 2^(W − 2), rounded towards zero. The type
/// has W bits, and `exponent` is e.
#[inline(always)]
fn integer<T: Float>(x: T, exponent: T::Bits) -> T::Bits {
    let magnitude = x.bits() << 1 >> 1;
    let own = magnitude >> T::FRACTION_BITS;
    let one = if own == T::Bits::ZERO { T::Bits::ZERO } else { word::<T>(1) };
    let significand = magnitude.minus(own << T::FRACTION_BITS) | one << T::FRACTION_BITS;
    let highest = significand << (T::Bits::BITS - 2 - T::FRACTION_BITS);
    let sign = T::Bits::ZERO.minus(x.bits() >> (T::Bits::BITS - 1));
    (highest.shifted_down(exponent.minus(own.max(word::<T>(1)))) ^ sign).minus(sign)
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
