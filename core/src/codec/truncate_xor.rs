//! Codec `truncate-xor`: drops the N low bits of each value, then XORs each with the previous one.
//!
//! It joins CAM's lossy and intra-step lossless compression (Kumar et al., Parallel Computing 2008)
//! within a message. CAM's own combination takes the XOR with the previous time step instead, which
//! needs the caller ([`InterStep::dropping`](crate::InterStep::dropping)). N is the setting, as for
//! [`truncate`](super::truncate), which describes the loss. The rest is [`xor_lz`](super::xor_lz)
//! with words of 8·B − N bits, where B is the number of bytes of a value. A value takes at most
//! half a byte more than a truncated one, and much less in smooth fields.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::truncate::TruncateCoder;
use super::xor_lz;
use crate::element::Float;

/// The codec `truncate-xor`.
pub type TruncateXor<T> = Coded<T, TruncateXorCoder>;

/// Coder of [`TruncateXor`].
#[derive(Clone, Copy, Debug)]
pub struct TruncateXorCoder(TruncateCoder);

impl<T: Float> Coder<T> for TruncateXorCoder {
    const ID: CodecId = CodecId::TruncateXor;

    fn new(params: &CoderParams) -> Self {
        Self(Coder::<T>::new(params))
    }

    fn parameter(&self) -> f64 {
        Coder::<T>::parameter(&self.0)
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        <TruncateCoder as Coder<T>>::of_parameter(parameter).map(Self)
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        if self.0.loses_any(values) { None } else { xor_lz::encode(values, self.0.n_bits(), dst) }
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        xor_lz::decode(src, self.0.n_bits(), values)
    }
}
