//! A codec that puts marks in place of fill values ([`fill`](crate::fill)).
//!
//! It copies the local values of each chunk, marks the copy, and leaves the rest to another codec.
//! Segments without fill values are not copied. Frames hold marks, so the caller restores fill
//! values in what it stores.
//!
//! Folding decodes the frame, so codecs that add codes must [combine](Homomorphic) with an encoding
//! of the local values.

use super::{
    Codec, CodecError, CodecExt, CodecId, DecodeError, Homomorphic, Pace, Source, Stores, Written,
    operate_own,
};
use crate::element::Element;
use crate::fill::Marks;
use crate::kernel::CHUNK;
use crate::op::{Op, weigh};
use crate::threads::Threads;

/// Codec that marks fill values in local values.
pub(crate) struct Filled<'c, T: Element> {
    codec: &'c dyn Codec<T>,
    marks: Marks,
}

impl<'c, T: Element> Filled<'c, T> {
    pub(crate) fn new(codec: &'c dyn Codec<T>, marks: Marks) -> Self {
        Self { codec, marks }
    }

    /// Copies values and marks the copy.
    fn copy(&self, values: &[T], out: &mut [T]) {
        out.copy_from_slice(values);
        self.marks.mark(T::DTYPE, bytemuck::cast_slice_mut(out));
    }

    /// Encodes these values times `weight`, even if no fill value is among them.
    pub(crate) fn encode_marked(
        &self,
        values: &[T],
        weight: T,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let give = |start: usize, out: &mut [T]| {
            self.copy(&values[start..start + out.len()], out);
            weigh(out, weight);
            Ok(())
        };
        self.codec.encode_paced(Source::Shared(values.len(), &give), dst, pace)
    }
}

impl<T: Element> Codec<T> for Filled<'_, T> {
    fn id(&self) -> CodecId {
        self.codec.id()
    }

    fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        self.codec.max_encoded_len(n_values)
    }

    fn weight(&self) -> T {
        self.codec.weight()
    }

    fn threads(&self) -> Threads {
        self.codec.threads()
    }

    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError> {
        self.codec.n_values(src)
    }

    fn encode_paced(
        &self,
        source: Source<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        match source {
            Source::Input(values)
                if self.marks.occur_in(T::DTYPE, bytemuck::cast_slice(values)) =>
            {
                self.encode_marked(values, self.weight(), dst, pace)
            }
            source => self.codec.encode_paced(source, dst, pace),
        }
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
        self.codec.decode_paced(src, start, divisor, dst, stores, pace)
    }

    fn reduce_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        acc: &mut [T],
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        self.codec.reduce_paced(op, src, acc, pace)
    }

    fn recode_paced(
        &self,
        src: &[u8],
        n_values: usize,
        local: Option<(&Op<'_, T>, &[T])>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let Some((op, local)) = local else {
            return self.codec.recode_paced(src, n_values, None, dst, pace);
        };
        self.expect_values(src, n_values)?;
        let give = |start: usize, out: &mut [T]| {
            let mut marked = [T::ZERO; CHUNK];
            let marked = &mut marked[..out.len()];
            self.copy(&local[start..start + out.len()], marked);
            self.codec.decode_from(src, start, 1, out)?;
            operate_own(op, out, marked, self.weight());
            Ok(())
        };
        self.codec.encode_paced(Source::Shared(n_values, &give), dst, pace)
    }

    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        self.codec.homomorphic().map(|_| self as &dyn Homomorphic<T>)
    }
}

impl<T: Element> Homomorphic<T> for Filled<'_, T> {
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let codec = self.codec.homomorphic().ok_or(DecodeError::Damaged)?;
        codec.combine_paced(op, a, b, dst, pace)
    }

    fn combine_in_place(
        &self,
        op: &Op<'_, T>,
        a: &mut [u8],
        b: &[u8],
    ) -> Option<Result<(), CodecError>> {
        self.codec.homomorphic()?.combine_in_place(op, a, b)
    }

    /// Only the raw codec does this. Its frames are the values, so they divide into pieces.
    fn fold_in_place(
        &self,
        op: &Op<'_, T>,
        frame: &mut [u8],
        local: &[T],
    ) -> Option<Result<(), CodecError>> {
        let codec = self.codec.homomorphic()?;
        if let Err(error) = self.expect_values(frame, local.len()) {
            return Some(Err(error.into()));
        }
        let mut marked = [T::ZERO; CHUNK];
        for (frame, local) in frame.chunks_mut(CHUNK * T::BYTES).zip(local.chunks(CHUNK)) {
            let marked = &mut marked[..local.len()];
            self.copy(local, marked);
            if let Err(error) = codec.fold_in_place(op, frame, marked)? {
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }
}
