//! Encoded sizes of values whose type is a run-time argument.

use super::{CodecExt, CodecId, CodecParams};
use crate::element::{DType, with_type};

/// Sizes that a codec needs for values of one type.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    codec: CodecId,
    dtype: DType,
    params: CodecParams,
}

impl Sizes {
    /// Makes the sizes for the codec that [`CodecId::instance`] makes from these parameters.
    #[must_use]
    pub const fn new(codec: CodecId, dtype: DType, params: CodecParams) -> Self {
        Self { codec, dtype, params }
    }

    /// Returns the codec in use: raw for types that `codec` does not [support](CodecId::is_for).
    #[must_use]
    pub const fn id(&self) -> CodecId {
        if self.codec.is_for(self.dtype) { self.codec } else { CodecId::Raw }
    }

    /// Returns the bytes of a value.
    #[must_use]
    pub const fn bytes_per_value(&self) -> usize {
        self.dtype.n_bytes()
    }

    /// Same as [`Codec::max_encoded_len`](super::Codec::max_encoded_len).
    #[must_use]
    pub fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        let Self { codec, params, .. } = self;
        with_type!(self.dtype, T => {
            codec.instance::<T>(params).as_dyn().max_encoded_len(n_values)
        })
    }

    /// Returns the number of threads that share the work on `n_values` values.
    pub(crate) fn n_threads(&self, n_values: usize) -> usize {
        let Self { codec, params, .. } = self;
        with_type!(self.dtype, T => codec.instance::<T>(params).as_dyn().n_threads(n_values))
    }
}
