//! Codec `raw`: the values themselves, little-endian. It is exact, and the baseline for the other
//! codecs.
//!
//! Reductions happen in place in the received frame. A reduce step thus reads the local values once
//! and otherwise touches only the frame that it sends on. Copies and additions finish before
//! polling the network would pay off, so a [`Pace`] receives all values in one report.

use super::{
    Codec, CodecError, CodecExt, CodecId, CodecParams, DecodeError, EncodeError, Homomorphic, Pace,
    Source, Values, Written, operate, operate_own, store_folded,
};
use crate::element::Element;
use crate::kernel::CHUNK;
use crate::kernel::stores::{self, Fence, Stores};
use crate::op::{Op, with_op};

/// Codec that stores values unchanged, except that operands of averages are multiplied by a weight.
#[derive(Clone, Copy, Debug)]
pub struct Raw<T> {
    weight: T,
}

impl<T: Element> Raw<T> {
    /// Makes the codec for all operations but averages. It needs no parameters.
    #[must_use]
    pub const fn new() -> Self {
        Self { weight: T::ONE }
    }

    /// Makes the codec for averages whose operands are multiplied by this weight.
    pub(crate) const fn with_weight(weight: T) -> Self {
        Self { weight }
    }

    pub(super) fn from_params(params: &CodecParams) -> Self {
        let n_operands = if params.averages { params.max_operands } else { 1 };
        Self { weight: T::weight(n_operands) }
    }
}

impl<T: Element> Default for Raw<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the number of values in `src`, if it is a whole number.
fn count<T: Element>(src: &[u8]) -> Result<usize, DecodeError> {
    if src.len().is_multiple_of(T::BYTES) {
        Ok(src.len() / T::BYTES)
    } else {
        Err(DecodeError::Damaged)
    }
}

/// Returns the bytes of `n_values` values; `None` if a header cannot hold that size.
fn n_bytes<T: Element>(n_values: usize) -> Option<usize> {
    n_values.checked_mul(T::BYTES).filter(|&n_bytes| u32::try_from(n_bytes).is_ok())
}

/// Returns the front of `dst` with space for exactly `n_values` values.
fn payload_space<T: Element>(n_values: usize, dst: &mut [u8]) -> Result<&mut [u8], EncodeError> {
    let need = n_bytes::<T>(n_values).ok_or(EncodeError::TooLong { n_values })?;
    let have = dst.len();
    dst.get_mut(..need).ok_or(EncodeError::Capacity { need, have })
}

/// Passes the values in `bytes` to `body`, with the index of the first one. Calls `body` once if
/// the bytes are aligned, as in a frame's payload, and otherwise once for each copied piece.
fn for_each_piece<T: Element>(bytes: &[u8], mut body: impl FnMut(usize, &[T])) {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => body(0, values),
        Err(_) => for_each_copy(bytes, &mut body),
    }
}

/// Same as [`for_each_piece`], for bytes that are not aligned. It is not inlined, so that the
/// aligned path does not reserve its buffer on the stack.
#[cold]
#[inline(never)]
fn for_each_copy<T: Element>(bytes: &[u8], body: &mut dyn FnMut(usize, &[T])) {
    let mut buffer = [T::ZERO; CHUNK];
    for (i, piece) in bytes.chunks(CHUNK * T::BYTES).enumerate() {
        let values = &mut buffer[..piece.len() / T::BYTES];
        bytemuck::cast_slice_mut(values).copy_from_slice(piece);
        body(i * CHUNK, values);
    }
}

/// Same as [`for_each_piece`], but `body` may change the values in `bytes`.
fn for_each_piece_mut<T: Element>(bytes: &mut [u8], mut body: impl FnMut(usize, &mut [T])) {
    if let Ok(values) = bytemuck::try_cast_slice_mut(bytes) {
        return body(0, values);
    }
    for_each_copy_mut(bytes, &mut body);
}

/// Same as [`for_each_copy`], but copies the values back.
#[cold]
#[inline(never)]
fn for_each_copy_mut<T: Element>(bytes: &mut [u8], body: &mut dyn FnMut(usize, &mut [T])) {
    let mut buffer = [T::ZERO; CHUNK];
    for (i, piece) in bytes.chunks_mut(CHUNK * T::BYTES).enumerate() {
        let values = &mut buffer[..piece.len() / T::BYTES];
        bytemuck::cast_slice_mut(values).copy_from_slice(piece);
        body(i * CHUNK, values);
        piece.copy_from_slice(bytemuck::cast_slice(values));
    }
}

/// Writes the values of a source piece by piece. It is not inlined, so that other paths do not
/// reserve its buffer on the stack.
#[cold]
#[inline(never)]
fn fill<T: Element>(source: Source<'_, T>, dst: &mut [u8]) -> Result<(), DecodeError> {
    let mut buffer = [T::ZERO; CHUNK];
    for (i, piece) in dst.chunks_mut(CHUNK * T::BYTES).enumerate() {
        let values = &mut buffer[..piece.len() / T::BYTES];
        source.fill(i * CHUNK, values, T::ONE)?;
        piece.copy_from_slice(bytemuck::cast_slice(values));
    }
    Ok(())
}

impl<T: Element> Codec<T> for Raw<T> {
    fn id(&self) -> CodecId {
        CodecId::Raw
    }

    fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        n_bytes::<T>(n_values)
    }

    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError> {
        count::<T>(src)
    }

    fn weight(&self) -> T {
        self.weight
    }

    fn encode_paced(
        &self,
        source: Source<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let n_values = source.n_values();
        let dst = payload_space::<T>(n_values, dst)?;
        match source {
            Source::Input(src) if self.weight != T::ONE => {
                for_each_piece_mut::<T>(dst, |start, out| {
                    for (out, &x) in out.iter_mut().zip(&src[start..]) {
                        *out = x.weighted(self.weight);
                    }
                });
            }
            Source::Input(src) | Source::Partial(src) => {
                dst.copy_from_slice(bytemuck::cast_slice(src));
            }
            source => fill(source, dst)?,
        }
        pace.passed(n_values);
        Ok(Written { n_bytes: dst.len(), ..Written::default() })
    }

    fn decode_paced(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let found = count::<T>(src)?;
        let end = start + dst.len();
        if found < end {
            return Err(DecodeError::Count { found, expected: end });
        }
        let (src, bytes) =
            (&src[start * T::BYTES..end * T::BYTES], bytemuck::cast_slice_mut::<T, u8>(dst));
        if divisor != 1 || stores == Stores::Cached {
            bytes.copy_from_slice(src);
            T::divide(dst, divisor, self.weight);
        } else {
            stores::copy(src, bytes, &Fence::at_end());
        }
        pace.passed(dst.len());
        Ok(())
    }

    fn reduce_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        acc: &mut [T],
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        self.expect_values(src, acc.len())?;
        for_each_piece(src, |start, values| {
            operate(op, &mut acc[start..start + values.len()], values);
        });
        pace.passed(acc.len());
        Ok(())
    }

    fn fold_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let local = values.local();
        self.expect_values(src, local.len())?;
        let frame = payload_space::<T>(local.len(), dst)?;
        for_each_piece_mut::<T>(frame, |start, out| {
            let n = out.len();
            if op.on_slices().is_some() {
                out.copy_from_slice(&local[start..start + n]);
                let src = &src[start * T::BYTES..(start + n) * T::BYTES];
                return for_each_piece(src, |offset, values| {
                    operate(op, &mut out[offset..offset + values.len()], values);
                });
            }
            let pieces = out.iter_mut().zip(&local[start..start + n]);
            let src = src[start * T::BYTES..(start + n) * T::BYTES].chunks_exact(T::BYTES);
            let (weight, read) = (self.weight, bytemuck::pod_read_unaligned::<T>);
            if weight == T::ONE {
                with_op!(op, |f| for ((out, &a), b) in pieces.zip(src) {
                    *out = f(a, read(b));
                });
            } else {
                with_op!(op, |f| for ((out, &a), b) in pieces.zip(src) {
                    *out = f(a.weighted(weight), read(b));
                });
            }
        });
        pace.passed(local.len());
        let written = Written { n_bytes: frame.len(), ..Written::default() };
        store_folded(self, written, values, divisor, dst, pace)
    }

    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        Some(self)
    }
}

impl<T: Element> Homomorphic<T> for Raw<T> {
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let dst = payload_space::<T>(count::<T>(a)?, dst)?;
        dst.copy_from_slice(a);
        self.add(op, dst, b)?;
        pace.passed(dst.len() / T::BYTES);
        Ok(Written { n_bytes: dst.len(), ..Written::default() })
    }

    fn combine_in_place(
        &self,
        op: &Op<'_, T>,
        a: &mut [u8],
        b: &[u8],
    ) -> Option<Result<(), CodecError>> {
        Some(self.add(op, a, b))
    }

    fn fold_in_place(
        &self,
        op: &Op<'_, T>,
        frame: &mut [u8],
        local: &[T],
    ) -> Option<Result<(), CodecError>> {
        if let Err(error) = self.expect_values(frame, local.len()) {
            return Some(Err(error.into()));
        }
        for_each_piece_mut(frame, |start, acc| {
            let n = acc.len();
            operate_own(op, acc, &local[start..start + n], self.weight);
        });
        Some(Ok(()))
    }
}

impl<T: Element> Raw<T> {
    /// Reduces in place: a ← a ⊕ b.
    fn add(&self, op: &Op<'_, T>, a: &mut [u8], b: &[u8]) -> Result<(), CodecError> {
        self.expect_values(b, count::<T>(a)?)?;
        for_each_piece_mut::<T>(a, |start, acc| {
            let n = acc.len();
            for_each_piece(&b[start * T::BYTES..(start + n) * T::BYTES], |offset, values| {
                operate(op, &mut acc[offset..offset + values.len()], values);
            });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Quantum;
    use crate::codec::{CodecParams, Sizes};
    use crate::element::DType;
    use crate::frame::HEADER_BYTES;
    use crate::layout::max_segment;

    /// Payloads of this size exist only on 64-bit machines.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn payloads_are_no_longer_than_a_header_can_say() {
        let most = u32::MAX as usize / 8;
        let codec = Raw::<f64>::new();
        assert_eq!(codec.max_encoded_len(most), Some(8 * most));
        assert_eq!(codec.max_encoded_len(most + 1), None);
        assert_eq!(codec.max_encoded_len(usize::MAX), None);
        let params = CodecParams::new(Quantum::LOSSLESS);
        let sizes = Sizes::new(CodecId::Raw, DType::F64, params);
        assert_eq!(max_segment(&sizes, 1 << 40, 1), Ok(most));
        assert_eq!(max_segment(&sizes, HEADER_BYTES + 8000, 1), Ok(1000));
        let too_long = EncodeError::TooLong { n_values: most + 1 };
        assert_eq!(payload_space::<f64>(most + 1, &mut []), Err(too_long));
    }
}
