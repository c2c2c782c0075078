//! Codec `zfp-abs`: zfp within a bound. Each block of four values takes as many planes as the bound
//! requires.
//!
//! Source: Lindstrom, "Fixed-rate compressed floating-point arrays", TVCG 2014; the mode is called
//! fixed accuracy there. ZCCL's authors compress messages with it as `ZFP(ABS)`. The bits are those
//! of the C library (1.0) for one-dimensional arrays, except for blocks that would break the bound.
//! That library does not check them: it loses values that are not finite, and its rounding can
//! exceed the tolerance if values are large. Here each value is decoded again, and such a block is
//! stored unchanged.
//!
//! A decoded block has another largest exponent, so encoding it again moves the values. Cost: the
//! transform, there and back, in vectors (`zfp`), and a table look-up for each plane.

use super::CodecId;
use super::bits::{BitReader, BitWriter};
use super::coder::{Coded, Coder, CoderParams};
use super::zfp::planes::{MAX_WORDS, PLANES_PER_WORD, PlaneWriter, take_block};
use super::zfp::{BATCH, BLOCK, BlockBatch, bias, exponent_bits};
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec `zfp-abs`.
pub type ZfpAbs<T> = Coded<T, ZfpAbsCoder<T>>;

/// Coder of [`ZfpAbs`].
#[derive(Clone, Copy, Debug)]
pub struct ZfpAbsCoder<T> {
    /// Exclusive limit of errors; 0 if there is no bound.
    limit: T,
    /// Largest power of two that does not exceed the bound; 0 if there is no bound.
    tolerance: f64,
}

/// Bits that zfp keeps below the tolerance: two for each dimension, and two.
const GUARD_BITS: i32 = 4;

impl<T: Float> ZfpAbsCoder<T> {
    /// Returns the number of planes of a block with this biased exponent.
    #[inline(always)]
    fn n_planes(&self, exponent: T::Bits) -> u32 {
        // The highest bits of a positive f64 are its exponent, with a bias of 1023.
        let least = (self.tolerance.to_bits() >> 52) as i32 - 1023;
        let exponent = exponent.to_u64() as i32 - bias::<T>() as i32;
        (exponent - least + GUARD_BITS).clamp(0, T::Bits::BITS as i32) as u32
    }

    /// Returns whether all values keep the bound. The comparison is strict because differences are
    /// rounded (docs/guarantees.md, "The check"). It is false for values that are not finite.
    #[inline(always)]
    fn keeps_bound(&self, values: &[T], decoded: &[T]) -> bool {
        let pairs = values.iter().zip(decoded);
        pairs.fold(true, |all, (x, decoded)| all & ((*x - *decoded).abs() < self.limit))
    }
}

impl<T: Float> Coder<T> for ZfpAbsCoder<T> {
    const ID: CodecId = CodecId::ZfpAbs;

    fn new(params: &CoderParams) -> Self {
        // Zeros in place of the fraction leave a power of two, unless the bound is subnormal.
        let power = f64::from_bits(params.bound.to_bits() >> 52 << 52);
        if power > T::MAX.to_f64() {
            let largest = T::from_bits(T::MAX.bits() >> T::FRACTION_BITS << T::FRACTION_BITS);
            return Self { limit: T::MAX, tolerance: largest.to_f64() };
        }
        let limit = if power > 0.0 { params.limit_of_errors::<T>() } else { T::ZERO.widen() };
        Self { limit: T::narrow(limit), tolerance: power }
    }

    fn parameter(&self) -> f64 {
        self.tolerance
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        let coder = Self { limit: T::ZERO, tolerance: parameter };
        let is_power = parameter.is_normal() && parameter.to_bits() << 12 == 0;
        (is_power || parameter == 0.0).then_some(coder)
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        if self.limit == T::ZERO {
            return None;
        }
        let header_bits = 1 + exponent_bits::<T>();
        let mut writer = BitWriter::new(dst);
        let mut batch = BlockBatch::<T>::NEW;
        let mut decoded = [T::ZERO; BATCH * BLOCK];
        for values in values.chunks(BATCH * BLOCK) {
            batch.transform(values);
            let mut n_planes = [0; BATCH];
            for (n_planes, exponent) in n_planes.iter_mut().zip(&batch.exponents) {
                *n_planes = self.n_planes(*exponent);
            }
            batch.keep_planes(&n_planes);
            batch.transform_back(&mut decoded[..values.len()]);
            let most = n_planes.iter().fold(0, |most, n| most.max(*n)) as usize;
            let n_words = most.div_ceil(PLANES_PER_WORD);
            batch.make_planes(n_words);
            let blocks = values.chunks(BLOCK).zip(decoded.chunks(BLOCK));
            for (i, (values, decoded)) in blocks.enumerate() {
                let exponent = batch.exponents[i].to_u64();
                if !self.keeps_bound(values, decoded) {
                    writer.put(1, header_bits)?;
                    for x in values {
                        writer.put_long(x.bits().to_u64(), T::Bits::BITS)?;
                    }
                } else if exponent == 0 {
                    writer.put(0, 1)?;
                } else {
                    let mut block = PlaneWriter::new(u32::MAX);
                    block.put(exponent << 1 | 1, header_bits);
                    let planes: [_; MAX_WORDS] =
                        core::array::from_fn(|nth| [batch.planes[nth][i], batch.before[nth][i]]);
                    block.put_planes(&planes[..n_words], n_planes[i]);
                    for (word, n_bits) in block.ended().finish() {
                        writer.put_long(word, n_bits)?;
                    }
                }
            }
        }
        writer.finish()
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        if self.tolerance == 0.0 {
            return None;
        }
        let mut reader = BitReader::new(src);
        for values in values.chunks_mut(BATCH * BLOCK) {
            let mut batch = BlockBatch::<T>::NEW;
            let mut stored = [None; BATCH];
            for (i, values) in values.chunks(BLOCK).enumerate() {
                if reader.take(1) == 0 {
                    continue;
                }
                let exponent = T::Bits::from_u64(reader.take(exponent_bits::<T>()));
                if exponent == T::Bits::ZERO {
                    let mut block = [T::ZERO; BLOCK];
                    for x in &mut block[..values.len()] {
                        *x = T::from_bits(T::Bits::from_u64(reader.take_long(T::Bits::BITS)));
                    }
                    stored[i] = Some(block);
                    continue;
                }
                let n_planes = self.n_planes(exponent);
                if n_planes == 0 {
                    return None;
                }
                batch.exponents[i] = exponent;
                let planes = take_block(&mut reader, n_planes);
                for (words, word) in batch.planes.iter_mut().zip(planes) {
                    words[i] = word;
                }
            }
            batch.take_planes(T::Bits::BITS as usize / PLANES_PER_WORD);
            batch.transform_back(values);
            for (values, stored) in values.chunks_mut(BLOCK).zip(stored) {
                if let Some(block) = stored {
                    values.copy_from_slice(&block[..values.len()]);
                }
            }
        }
        reader.finish()
    }
}
