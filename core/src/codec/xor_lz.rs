//! Codec `xor-lz`: XORs each value with the previous one and drops leading zero nibbles.
//!
//! Source: CAM's intra-step lossless compression (Kumar et al., Parallel Computing 2008).
//! Neighbours in a smooth field share sign, exponent and the first digits. Counts and nibbles are
//! stored separately (`nibbles`), so a reader knows the lengths of all values before it reads the
//! first.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::nibbles::{BATCH, NibbleReader, NibbleWriter};
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec `xor-lz`.
pub type XorLz<T> = Coded<T, XorLzCoder>;

/// Coder of [`XorLz`].
#[derive(Clone, Copy, Debug)]
pub struct XorLzCoder;

impl<T: Float> Coder<T> for XorLzCoder {
    const ID: CodecId = CodecId::XorLz;

    fn new(_: &CoderParams) -> Self {
        Self
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        encode(values, 0, dst)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        decode(src, 0, values)
    }
}

/// Writes values without their `n_dropped` low bits; `None` if there is no space.
#[inline(always)]
pub(super) fn encode<T: Float>(values: &[T], n_dropped: u32, dst: &mut [u8]) -> Option<usize> {
    let n_nibbles = (T::Bits::BITS - n_dropped).div_ceil(4);
    let mut writer = NibbleWriter::new(n_nibbles, values.len(), dst)?;
    let mut before = T::Bits::ZERO;
    let mut words = [T::Bits::ZERO; BATCH];
    for values in values.chunks(BATCH) {
        let words = &mut words[..values.len()];
        words[0] = values[0].bits() >> n_dropped ^ before;
        for (word, pair) in words[1..].iter_mut().zip(values.windows(2)) {
            *word = (pair[0].bits() ^ pair[1].bits()) >> n_dropped;
        }
        before = values[values.len() - 1].bits() >> n_dropped;
        writer.put(words)?;
    }
    writer.finish(values.len())
}

/// Reads values that [`encode`] wrote; `None` if no writer writes such bytes.
#[inline(always)]
pub(super) fn decode<T: Float>(src: &[u8], n_dropped: u32, values: &mut [T]) -> Option<()> {
    let n_nibbles = (T::Bits::BITS - n_dropped).div_ceil(4);
    let mut reader = NibbleReader::new(n_nibbles, values.len(), src)?;
    let mut bits = T::Bits::ZERO;
    let mut words = [T::Bits::ZERO; BATCH];
    for values in values.chunks_mut(BATCH) {
        let words = &mut words[..values.len()];
        reader.take(words);
        for (x, word) in values.iter_mut().zip(&*words) {
            bits = bits ^ *word;
            *x = T::from_bits(bits << n_dropped);
        }
    }
    Some(())
}
