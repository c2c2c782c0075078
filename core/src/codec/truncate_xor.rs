//! The N low bits of each value dropped, then each XOR the one before: lossy and lossless in one.
//!
//! What CAM calls both (Kumar et al., Parallel Computing 2008), within a message: N is the setting,
//! as of [`truncate`](super::truncate), which says what it costs; the rest is
//! [`xor_lz`](super::xor_lz) of words of 8·B − N bits. So a value takes half a byte more at most
//! than a truncated one, and where fields are smooth much less.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::truncate::Dropped;
use super::xor_lz;
use crate::element::Float;

/// The codec.
pub type TruncateXor<T> = Coded<T, DroppedXor>;

/// Its coder.
#[derive(Clone, Copy, Debug)]
pub struct DroppedXor(Dropped);

impl<T: Float> Coder<T> for DroppedXor {
    const ID: CodecId = CodecId::TruncateXor;

    fn new(params: &CoderParams) -> Self {
        Self(Coder::<T>::new(params))
    }

    fn parameter(&self) -> f64 {
        Coder::<T>::parameter(&self.0)
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        <Dropped as Coder<T>>::of_parameter(parameter).map(Self)
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
