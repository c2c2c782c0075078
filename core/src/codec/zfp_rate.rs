//! Codec `zfp-rate`: zfp at a fixed rate. Each block of four values takes the same number of bits.
//!
//! Source: Lindstrom, "Fixed-rate compressed floating-point arrays", TVCG 2014. Zhou et al.
//! (IPDPS'21) compress messages with it. Bits and values equal those of the C library (1.0) for
//! one-dimensional arrays, except where that library's numbers overflow. The rate, in bits per
//! value, is the setting. A block is coded as `zfp` describes, and bits that exceed the rate are
//! dropped.
//!
//! Each block has a fixed place, so blocks do not depend on each other. Vectors code many of them
//! side by side, if a block has at most 64 bits (rates up to 16), and all blocks of `f32`.

use super::CodecId;
use super::bits::BitWriter;
use super::coder::{Coded, Coder, CoderParams};
use super::zfp::lanes::{Codes, LaneReader, LaneWriter};
use super::zfp::planes::{LANES, MAX_WORDS, PLANES_PER_WORD, PlaneReader, PlaneWriter, ROOM};
use super::zfp::{BATCH, BLOCK, BlockBatch, exponent_bits, n_planes};
use crate::element::Float;
use crate::element::sealed::Word;
use bytemuck::pod_read_unaligned;

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
        if self.0 == T::Bits::BITS {
            // Never shorter than the values.
            return None;
        }
        let dst = dst.get_mut(..self.n_bytes::<T>(values.len()))?;
        match self.block_bits::<T>() {
            block_bits @ ..=32 => encode_side_by_side::<T, u32, u32, 1>(values, dst, block_bits),
            block_bits @ 33..=64 => {
                encode_side_by_side::<T, T::Bits, u64, 1>(values, dst, block_bits)
            }
            block_bits if T::Bits::BITS == 32 => {
                encode_side_by_side::<T, u32, u64, 2>(values, dst, block_bits)
            }
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
            ..=32 => decode_side_by_side::<T, u32, 1>(src, values, block_bits),
            33..=64 => decode_side_by_side::<T, u64, 1>(src, values, block_bits),
            _ if T::Bits::BITS == 32 => decode_side_by_side::<T, u64, 2>(src, values, block_bits),
            _ => decode_long(src, values, block_bits),
        }
    }
}

/// Encodes blocks of up to N words. D has the bits of the digits that can be coded.
#[inline(always)]
fn encode_side_by_side<T: Float, D: Word, W: Word, const N: usize>(
    values: &[T],
    dst: &mut [u8],
    block_bits: u32,
) -> Option<usize> {
    let mut batch = BlockBatch::<T>::NEW;
    let mut lanes = LaneWriter::<D, W, N>::NEW;
    let mut room = [0; ROOM];
    let batches = values.chunks(BATCH * BLOCK);
    // A batch takes a whole number of bytes.
    for (values, dst) in batches.zip(dst.chunks_mut(BATCH * block_bits as usize / 8)) {
        batch.transform(values);
        if !batch.are_finite() {
            return None;
        }
        batch.write_words(&mut lanes, block_bits);
        let words = &lanes.codes;
        match block_bits {
            16 => store::<W, 2>(&words[0], dst),
            32 => store::<W, 4>(&words[0], dst),
            64 => store::<W, 8>(&words[0], dst),
            _ => {
                pack(words, block_bits, &mut room);
                dst.copy_from_slice(&room[..dst.len()]);
            }
        }
    }
    Some(dst.len())
}

/// Inverse of [`encode_side_by_side`].
#[inline(always)]
fn decode_side_by_side<T: Float, W: Word, const N: usize>(
    src: &[u8],
    values: &mut [T],
    block_bits: u32,
) -> Option<()> {
    let mut batch = BlockBatch::<T>::NEW;
    let mut lanes = LaneReader::<W, N>::NEW;
    let mut room = [0; ROOM];
    let batches = values.chunks_mut(BATCH * BLOCK);
    for (values, src) in batches.zip(src.chunks(BATCH * block_bits as usize / 8)) {
        if values.len() < BATCH * BLOCK {
            lanes.codes = [[W::ZERO; BATCH]; N];
        }
        let words = &mut lanes.codes;
        match block_bits {
            16 => load::<W, 2>(src, &mut words[0]),
            32 => load::<W, 4>(src, &mut words[0]),
            64 => load::<W, 8>(src, &mut words[0]),
            _ => {
                let (used, unused) = room.split_at_mut(src.len());
                used.copy_from_slice(src);
                if values.len() < BATCH * BLOCK {
                    unused.fill(0);
                }
                unpack(&room, block_bits, words);
            }
        }
        batch.read_words(&mut lanes, block_bits)?;
        batch.transform_back(values);
    }
    Some(())
}

/// Writes the low K bytes of each word.
#[inline(always)]
fn store<W: Word, const K: usize>(words: &[W; BATCH], dst: &mut [u8]) {
    for (dst, word) in dst.as_chunks_mut::<K>().0.iter_mut().zip(words) {
        dst.copy_from_slice(&word.to_u64().to_le_bytes()[..K]);
    }
}

/// Inverse of [`store`].
#[inline(always)]
fn load<W: Word, const K: usize>(src: &[u8], words: &mut [W; BATCH]) {
    for (src, word) in src.as_chunks::<K>().0.iter().zip(words) {
        let mut bytes = [0; 8];
        bytes[..K].copy_from_slice(src);
        *word = W::from_u64(u64::from_le_bytes(bytes));
    }
}

/// Writes blocks one after the other. Their bits above `block_bits` are 0.
#[inline(always)]
fn pack<W: Word, const N: usize>(words: &Codes<W, N>, block_bits: u32, dst: &mut [u8; ROOM]) {
    let (mut at, mut begun) = (0, 0);
    for i in 0..BATCH {
        let mut block = 0_u128;
        for (nth, words) in (0..).zip(words) {
            block |= u128::from(words[i].to_u64()) << (W::BITS * nth);
        }
        // Blocks of more than 121 bits begin at bit 0 or 4, and have at most 124 bits.
        let bits = block << (at % 8) | u128::from(begun);
        let byte = at as usize / 8 % (ROOM / 2);
        dst[byte..byte + 16].copy_from_slice(&bits.to_le_bytes());
        at += block_bits;
        begun = dst[at as usize / 8 % ROOM] & ((1 << (at % 8)) - 1);
    }
}

/// Inverse of [`pack`].
#[inline(always)]
fn unpack<W: Word, const N: usize>(src: &[u8; ROOM], block_bits: u32, words: &mut Codes<W, N>) {
    for i in 0..BATCH {
        let at = i as u32 * block_bits;
        let byte = at as usize / 8 % (ROOM / 2);
        let bits: u128 = pod_read_unaligned(&src[byte..byte + 16]);
        let block = bits >> (at % 8) & u128::MAX >> (128 - block_bits);
        for (nth, words) in (0..).zip(words.iter_mut()) {
            words[i] = W::from_u64((block >> (W::BITS * nth)) as u64);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::arrays;
    use std::vec;
    use std::vec::Vec;

    /// Compares with blocks that are coded plane by plane.
    fn check<T: Float>(rates: core::ops::RangeInclusive<u32>) {
        for (name, array) in arrays::<T>(651) {
            for rate in rates.clone() {
                let (coder, values) = (ZfpRateCoder(rate), &array[..651 - rate as usize]);
                let block_bits = coder.block_bits::<T>();
                let n_bytes = coder.n_bytes::<T>(values.len());
                let (mut found, mut expected) = (vec![0xff; n_bytes], vec![0; n_bytes]);
                let n_found = coder.encode(values, &mut found);
                assert_eq!(
                    n_found,
                    encode_long(values, &mut expected, block_bits),
                    "{name}, {rate}"
                );
                assert!(n_found.is_none() || found == expected, "{name}, {rate}");
                // Any bytes are blocks too, but for the bits behind the last.
                let noise = (0..n_bytes as u32).map(|i| (i * i * rate).to_le_bytes()[1]);
                let mut noise: Vec<_> = noise.collect();
                *noise.last_mut().unwrap() = 0;
                for src in [expected, noise] {
                    let (mut found, mut expected) = (values.to_vec(), values.to_vec());
                    let is_found = coder.decode(&src, &mut found);
                    assert_eq!(is_found, decode_long(&src, &mut expected, block_bits));
                    let bits = |values: &[T]| values.iter().map(|x| x.bits()).collect();
                    let (found, expected): (Vec<_>, Vec<_>) = (bits(&found), bits(&expected));
                    assert!(is_found.is_none() || found == expected, "{name}, {rate}");
                }
            }
        }
    }

    #[test]
    fn blocks_side_by_side_are_those_coded_plane_by_plane() {
        check::<f32>(1..=31);
        check::<f64>(1..=16);
    }
}
