//! Codec `zfp-rate`: zfp at a fixed rate. Each block of four values takes the same number of bits.
//!
//! Source: Lindstrom, "Fixed-rate compressed floating-point arrays", TVCG 2014. Zhou et al.
//! (IPDPS'21) compress messages with it. Bits and values equal those of the C library (1.0) for
//! one-dimensional arrays, except where that library's numbers overflow. The rate, in bits per
//! value, is the setting. A block is coded as `zfp` describes, and bits that exceed the rate are
//! dropped.
//!
//! Each block has a fixed place, so blocks do not depend on each other. If a block has at most 64
//! bits (rates up to 16), vectors code many of them side by side.

use super::CodecId;
use super::bits::{BitReader, BitWriter};
use super::coder::{Coded, Coder, CoderParams};
use super::zfp::planes::{LANES, MAX_WORDS, PLANES_PER_WORD, PlaneReader, PlaneWriter, ROOM};
use super::zfp::{BATCH, BLOCK, BlockBatch, exponent_bits, n_planes};
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec `zfp-rate`.
pub type ZfpRate<T> = Coded<T, ZfpRateCoder>;

/// Coder of [`ZfpRate`]: the bits per value.
#[derive(Clone, Copy, Debug)]
pub struct ZfpRateCoder(u32);

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
        let dst = dst.get_mut(..self.n_bytes::<T>(values.len()))?;
        match self.block_bits::<T>() {
            block_bits @ ..=32 => encode_short::<T, u32>(values, dst, block_bits),
            block_bits @ 33..=64 => encode_short::<T, u64>(values, dst, block_bits),
            block_bits => encode_long(values, dst, block_bits),
        }
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        if src.len() != self.n_bytes::<T>(values.len()) {
            return None;
        }
        let block_bits = self.block_bits::<T>();
        let n_left = values.len().div_ceil(BLOCK) * block_bits as usize % 8;
        if n_left != 0 && src.last()? >> n_left != 0 {
            return None;
        }
        match block_bits {
            ..=32 => decode_short::<T, u32>(src, values, block_bits),
            33..=64 => decode_short::<T, u64>(src, values, block_bits),
            _ => decode_long(src, values, block_bits),
        }
    }
}

/// Encodes blocks that fit a word.
#[inline(always)]
fn encode_short<T: Float, W: Word>(values: &[T], dst: &mut [u8], block_bits: u32) -> Option<usize> {
    let mut batch = BlockBatch::<T>::NEW;
    let mut words = [W::ZERO; BATCH];
    let batches = values.chunks(BATCH * BLOCK);
    if !is_aligned(block_bits) {
        let mut writer = BitWriter::new(dst);
        for values in batches {
            batch.transform(values);
            if !batch.are_finite() {
                return None;
            }
            batch.write_words(&mut words, block_bits);
            for word in &words[..values.len().div_ceil(BLOCK)] {
                writer.put_long(word.to_u64(), block_bits)?;
            }
        }
        return writer.finish();
    }
    for (values, dst) in batches.zip(dst.chunks_mut(BATCH * block_bits as usize / 8)) {
        batch.transform(values);
        if !batch.are_finite() {
            return None;
        }
        batch.write_words(&mut words, block_bits);
        match block_bits {
            16 => store::<W, 2>(&words, dst),
            32 => store::<W, 4>(&words, dst),
            _ => store::<W, 8>(&words, dst),
        }
    }
    Some(dst.len())
}

/// Inverse of [`encode_short`].
#[inline(always)]
fn decode_short<T: Float, W: Word>(src: &[u8], values: &mut [T], block_bits: u32) -> Option<()> {
    let mut batch = BlockBatch::<T>::NEW;
    let mut words = [W::ZERO; BATCH];
    let batches = values.chunks_mut(BATCH * BLOCK);
    if !is_aligned(block_bits) {
        let mut reader = BitReader::new(src);
        for values in batches {
            let n_blocks = values.len().div_ceil(BLOCK);
            words.fill_with(|| W::ZERO);
            words[..n_blocks].fill_with(|| W::from_u64(reader.take_long(block_bits)));
            batch.read_words(&words, block_bits)?;
            batch.transform_back(values);
        }
        return Some(());
    }
    for (values, src) in batches.zip(src.chunks(BATCH * block_bits as usize / 8)) {
        if values.len() < BATCH * BLOCK {
            words = [W::ZERO; BATCH];
        }
        match block_bits {
            16 => load::<W, 2>(src, &mut words),
            32 => load::<W, 4>(src, &mut words),
            _ => load::<W, 8>(src, &mut words),
        }
        batch.read_words(&words, block_bits)?;
        batch.transform_back(values);
    }
    Some(())
}

/// Returns whether blocks are as long as an integer.
#[inline(always)]
fn is_aligned(block_bits: u32) -> bool {
    matches!(block_bits, 16 | 32 | 64)
}

/// Writes the low N bytes of each word.
#[inline(always)]
fn store<W: Word, const N: usize>(words: &[W; BATCH], dst: &mut [u8]) {
    for (dst, word) in dst.as_chunks_mut::<N>().0.iter_mut().zip(words) {
        dst.copy_from_slice(&word.to_u64().to_le_bytes()[..N]);
    }
}

/// Inverse of [`store`].
#[inline(always)]
fn load<W: Word, const N: usize>(src: &[u8], words: &mut [W; BATCH]) {
    for (src, word) in src.as_chunks::<N>().0.iter().zip(words) {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(src);
        *word = W::from_u64(u64::from_le_bytes(bytes));
    }
}

/// Returns the number of words of planes that can have bits in a block. Each plane takes at least
/// one bit.
#[inline(always)]
fn n_words<T: Float>(block_bits: u32) -> usize {
    let n_bits = block_bits - (1 + exponent_bits::<T>());
    n_bits.min(T::Bits::BITS).div_ceil(PLANES_PER_WORD as u32) as usize
}

/// Encodes blocks plane by plane.
#[inline(always)]
fn encode_long<T: Float>(values: &[T], dst: &mut [u8], block_bits: u32) -> Option<usize> {
    let mut writer = BitWriter::new(dst);
    let n_words = n_words::<T>(block_bits);
    let mut batch = BlockBatch::<T>::NEW;
    for values in values.chunks(BATCH * BLOCK) {
        batch.transform(values);
        if !batch.are_finite() {
            return None;
        }
        batch.make_planes(n_words);
        for i in 0..values.len().div_ceil(BLOCK) {
            let mut block = PlaneWriter::new(block_bits);
            let exponent = batch.exponents[i].to_u64();
            if exponent != 0 {
                block.put(exponent << 1 | 1, 1 + exponent_bits::<T>());
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

/// Inverse of [`encode_long`].
#[inline(always)]
fn decode_long<T: Float>(src: &[u8], values: &mut [T], block_bits: u32) -> Option<()> {
    let n_words = n_words::<T>(block_bits);
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
                let exponent = blocks.exponent(lane, 1 + exponent_bits::<T>())?;
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
