//! Codec `lz`: drops leading zero nibbles of each value, independent of other values.
//!
//! It suits values that are differences which the caller has computed, such as CAM's differences to
//! the previous time step ([`InterStep`](crate::InterStep)). Such differences are mostly leading
//! zeros, and another XOR with the neighbour would only mix them. Words are written as in
//! [`xor_lz`](super::xor_lz). Values that are not differences have no leading zeros and keep their
//! size.
//!
//! Source: CAM's inter-step lossless compression (Kumar et al., Parallel Computing 2008).

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::nibbles::{BATCH, NibbleReader, NibbleWriter};
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec `lz`.
pub type Lz<T> = Coded<T, LzCoder>;

/// Coder of [`Lz`].
#[derive(Clone, Copy, Debug)]
pub struct LzCoder;

impl<T: Float> Coder<T> for LzCoder {
    const ID: CodecId = CodecId::Lz;

    fn new(_: &CoderParams) -> Self {
        Self
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let mut writer = NibbleWriter::new(T::Bits::BITS / 4, values.len(), dst)?;
        let mut words = [T::Bits::ZERO; BATCH];
        for values in values.chunks(BATCH) {
            let words = &mut words[..values.len()];
            words.iter_mut().zip(values).for_each(|(word, x)| *word = x.bits());
            writer.put(words)?;
        }
        writer.finish(values.len())
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        let mut reader = NibbleReader::new(T::Bits::BITS / 4, values.len(), src)?;
        let mut words = [T::Bits::ZERO; BATCH];
        for values in values.chunks_mut(BATCH) {
            let words = &mut words[..values.len()];
            reader.take(words);
            values.iter_mut().zip(&*words).for_each(|(x, word)| *x = T::from_bits(*word));
        }
        Some(())
    }
}
