//! What callers of codecs need beside [`Codec`] itself.

use super::{Codec, CodecError, DecodeError, Homomorphic, Pace, Source, Stores, Written, chunked};
use crate::element::Element;
use crate::op::Op;
use crate::values::Values;

/// The methods of [`Codec`] for those who want all of an array at once and need not know how far it
/// has come. All codecs have them.
pub trait CodecExt<T: Element>: Codec<T> {
    /// Encodes own values.
    ///
    /// # Errors
    /// [`EncodeError`](super::EncodeError) for the destination.
    fn encode(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.encode_paced(Source::Own(src), dst, &())
    }

    /// Encodes partial results.
    ///
    /// # Errors
    /// [`EncodeError`](super::EncodeError) for the destination.
    fn encode_partial(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.encode_paced(Source::Partial(src), dst, &())
    }

    /// Decodes a whole encoding, each value divided by `divisor`.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding of exactly `dst.len()` values.
    fn decode(&self, src: &[u8], divisor: u32, dst: &mut [T]) -> Result<(), DecodeError> {
        self.store(src, divisor, dst, Stores::Cached, &())
    }

    /// As [`decode`](Self::decode) into a caller's output, telling how far it has come.
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

    /// Decodes values `start..start + dst.len()`, as [`Codec::decode_paced`].
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is no valid encoding of at least that many values.
    fn decode_from(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
    ) -> Result<(), DecodeError> {
        self.decode_paced(src, start, divisor, dst, Stores::Cached, &())
    }

    /// acc ← acc ⊕ decoded, in floats; `acc` are partial results.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn reduce(&self, op: &Op<'_, T>, src: &[u8], acc: &mut [T]) -> Result<(), DecodeError> {
        self.reduce_paced(op, src, acc, &())
    }

    /// Frame ⊕ own values → frame.
    ///
    /// # Errors
    /// If `src` is invalid, `dst` too small, or the operands do not match.
    fn fold(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.fold_paced(op, src, Values::unstored(local), 1, dst, &())
    }

    /// As [`fold`](Self::fold), and the result, each value divided by `divisor`, into the output.
    ///
    /// # Errors
    /// As [`fold`](Self::fold); [`DecodeError::Count`] if the output has room for another number of
    /// values.
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

    /// As [`fold`](Self::fold), always by decompressing, operating on floats and compressing, chunk
    /// by chunk.
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

    /// Decodes and encodes again, as a rank does that compresses each hop anew.
    ///
    /// # Errors
    /// If `src` is not a valid encoding of `n_values` values, or `dst` is too small.
    fn recode(&self, src: &[u8], n_values: usize, dst: &mut [u8]) -> Result<Written, CodecError> {
        self.recode_paced(src, n_values, None, dst, &())
    }

    /// Frame ⊕ frame → frame, without decoding.
    ///
    /// # Errors
    /// If an operand is invalid, they do not match each other or this codec, or `dst` is too small.
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

    /// How many threads share the work on so many values.
    fn n_threads(&self, n_values: usize) -> usize {
        let threads = self.threads();
        if chunked::is_divided(n_values, threads) { threads.n_threads() } else { 1 }
    }

    /// [`DecodeError::Count`] unless `src` holds `expected` values.
    ///
    /// # Errors
    /// That, or what [`n_values`](Codec::n_values) finds.
    fn expect_values(&self, src: &[u8], expected: usize) -> Result<(), DecodeError> {
        let found = self.n_values(src)?;
        if found == expected { Ok(()) } else { Err(DecodeError::Count { found, expected }) }
    }
}

impl<T: Element, C: Codec<T> + ?Sized> CodecExt<T> for C {}
