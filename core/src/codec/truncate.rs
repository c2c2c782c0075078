//! Codec `truncate`: drops the N low bits of each value. Receivers put zeros in their place.
//!
//! Source: CAM's DP-Lossy_N (Kumar et al., Parallel Computing 2008), which uses N = 32 and 40. Here
//! N is the setting. The remaining bits of the values are packed without gaps. A value moves
//! towards zero by less than 2^(N − 52) of itself (`f32`: 2^(N − 23)). A chunk stays unchanged if a
//! NaN would become another NaN or an infinity.

use super::CodecId;
use super::bits::{BitReader, BitWriter};
use super::coder::{Coded, Coder, CoderParams};
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec `truncate`.
pub type Truncate<T> = Coded<T, TruncateCoder>;

/// Coder of [`Truncate`]: the number of bits that it drops from each value.
#[derive(Clone, Copy, Debug)]
pub struct TruncateCoder(u32);

impl TruncateCoder {
    pub(super) const fn n_bits(self) -> u32 {
        self.0
    }

    /// Returns whether dropping the bits would change any NaN or infinity.
    #[inline(always)]
    pub(super) fn loses_any<T: Float>(self, values: &[T]) -> bool {
        // The loop has no early exit, so that it is vectorized.
        values
            .iter()
            .fold(false, |any, x| any | (!x.finite() & (x.bits() >> self.0 << self.0 != x.bits())))
    }
}

impl<T: Float> Coder<T> for TruncateCoder {
    const ID: CodecId = CodecId::Truncate;

    fn new(params: &CoderParams) -> Self {
        Self(params.setting.into())
    }

    fn parameter(&self) -> f64 {
        self.0.into()
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        let n_bits = parameter as u32;
        let is_valid = f64::from(n_bits) == parameter && (1..T::FRACTION_BITS).contains(&n_bits);
        is_valid.then_some(Self(n_bits))
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let n_kept = T::Bits::BITS - self.0;
        if self.loses_any(values) {
            return None;
        }
        let mut writer = BitWriter::new(dst);
        for x in values {
            writer.put_long((x.bits() >> self.0).to_u64(), n_kept)?;
        }
        writer.finish()
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        let n_kept = T::Bits::BITS - self.0;
        let mut reader = BitReader::new(src);
        for x in values {
            *x = T::from_bits(T::Bits::from_u64(reader.take_long(n_kept)) << self.0);
        }
        reader.finish()
    }
}
