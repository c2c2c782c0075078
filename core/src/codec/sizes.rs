//! What a codec makes of values whose type is known only when the program runs.

use super::{CodecExt, CodecId, CodecParams};
use crate::element::{DType, with_type};

/// How many bytes a codec needs for values of a type.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    codec: CodecId,
    dtype: DType,
    params: CodecParams,
}

impl Sizes {
    /// Those of the codec that [`CodecId::instance`] makes.
    #[must_use]
    pub const fn new(codec: CodecId, dtype: DType, params: CodecParams) -> Self {
        Self { codec, dtype, params }
    }

    /// The codec: raw for types that it is not [for](CodecId::is_for).
    #[must_use]
    pub const fn id(&self) -> CodecId {
        if self.codec.is_for(self.dtype) { self.codec } else { CodecId::Raw }
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn bytes_per_value(&self) -> usize {
        self.dtype.n_bytes()
    }

    /// As [`Codec::max_encoded_len`](super::Codec::max_encoded_len).
    #[must_use]
    pub fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        let Self { codec, params, .. } = self;
        with_type!(self.dtype, T => {
            codec.instance::<T>(params).as_dyn().max_encoded_len(n_values)
        })
    }

    /// How many threads compute with so many values.
    pub(crate) fn n_threads(&self, n_values: usize) -> usize {
        let Self { codec, params, .. } = self;
        with_type!(self.dtype, T => codec.instance::<T>(params).as_dyn().n_threads(n_values))
    }
}
