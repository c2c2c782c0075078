//! Convenience methods for callers of [`Codec`].

use super::{Codec, CodecError, DecodeError, Homomorphic, Pace, Source, Stores, Written};
use crate::element::Element;
use crate::op::Op;
use crate::values::Values;

/// Methods of [`Codec`] for callers that process a whole array at once and need no progress
/// reports. All codecs have them.
pub trait CodecExt<T: Element>: Codec<T> {
    /// Encodes local values.
    ///
    /// # Errors
    /// [`EncodeError`](super::EncodeError) if `dst` is too short or a frame cannot hold the result.
    fn encode(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.encode_paced(Source::Input(src), dst, &())
    }

    /// Encodes partial results.
    ///
    /// # Errors
    /// [`EncodeError`](super::EncodeError) if `dst` is too short or a frame cannot hold the result.
    fn encode_partial(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.encode_paced(Source::Partial(src), dst, &())
    }

    /// Decodes a whole encoding and divides each value by `divisor`.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding of exactly `dst.len()` values.
    fn decode(&self, src: &[u8], divisor: u32, dst: &mut [T]) -> Result<(), DecodeError> {
        self.store(src, divisor, dst, Stores::Cached, &())
    }

    /// Same as [`decode`](Self::decode), with a choice of stores and with progress reports.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn store(
        &self,
        src: &[u8],
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        self.expect_values(src, dst.len())?;
        self.decode_paced(src, 0, divisor, dst, stores, pace)
    }

    /// Decodes values `start..start + dst.len()`, as [`Codec::decode_paced`] does.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding of at least that many values.
    fn decode_from(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
    ) -> Result<(), DecodeError> {
        self.decode_paced(src, start, divisor, dst, Stores::Cached, &())
    }

    /// Decodes and reduces into an accumulator in floats: acc ← acc ⊕ decoded. `acc` holds partial
    /// results.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn reduce(&self, op: &Op<'_, T>, src: &[u8], acc: &mut [T]) -> Result<(), DecodeError> {
        self.reduce_paced(op, src, acc, &())
    }

    /// Reduces a frame with local values into a new frame: frame ⊕ local values → frame.
    ///
    /// # Errors
    /// If `src` is invalid, `dst` is too small, or the operands do not match.
    fn fold(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.fold_paced(op, src, Values::unstored(local), 1, dst, &())
    }

    /// Same as [`fold`](Self::fold), but also stores the decoded result, divided by `divisor`, in
    /// the output of `values`.
    ///
    /// # Errors
    /// As [`fold`](Self::fold); [`DecodeError::Count`] if the output has space for another number
    /// of values.
    fn fold_store(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        mut values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        let (found, expected) = (values.local().len(), values.output().len());
        if found != expected {
            return Err(DecodeError::Count { found, expected }.into());
        }
        self.fold_paced(op, src, values, divisor, dst, &())
    }

    /// Same as [`fold`](Self::fold), but always decompresses, operates on floats and compresses,
    /// chunk by chunk.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    fn refold(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.recode_paced(src, local.len(), Some((op, local)), dst, &())
    }

    /// Decodes values and encodes them again, for pipelines that compress at each hop.
    ///
    /// # Errors
    /// If `src` is not a valid encoding of `n_values` values, or `dst` is too small.
    fn recode(&self, src: &[u8], n_values: usize, dst: &mut [u8]) -> Result<Written, CodecError> {
        self.recode_paced(src, n_values, None, dst, &())
    }

    /// Reduces two frames into a new one without decoding: frame ⊕ frame → frame.
    ///
    /// # Errors
    /// If an operand is invalid, the operands do not match each other or this codec, or `dst` is
    /// too small.
    fn combine(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
    ) -> Result<Written, CodecError>
    where
        Self: Homomorphic<T>,
    {
        self.combine_paced(op, a, b, dst, &())
    }

    /// Returns the number of threads that share the work on `n_values` values.
    fn n_threads(&self, n_values: usize) -> usize {
        self.threads().n_for(n_values)
    }

    /// Checks that `src` holds `expected` values.
    ///
    /// # Errors
    /// [`DecodeError::Count`] if it holds another number; any error of
    /// [`n_values`](Codec::n_values).
    fn expect_values(&self, src: &[u8], expected: usize) -> Result<(), DecodeError> {
        let found = self.n_values(src)?;
        if found == expected { Ok(()) } else { Err(DecodeError::Count { found, expected }) }
    }
}

impl<T: Element, C: Codec<T> + ?Sized> CodecExt<T> for C {}
