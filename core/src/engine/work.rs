//! Computation of a lane: the codec applied to the caller's buffers and to frames.
//!
//! Nothing here waits or sends. [`Buffers::own`] reads the caller's values. [`Buffers::output`]
//! receives final results only; partial results live in frames. So in-place calls need no copy, and
//! ranks without a receive buffer can still take part in a reduction.

use super::compute::Compute;
use super::lane::misuse;
use super::slots::Payloads;
#[cfg(feature = "alloc")]
use crate::codec::operate;
use crate::codec::{Codec, CodecExt, CodecId, DecodeError, ErasedCodec, Filled, Pace};
use crate::codec::{Raw, Source, Stores, Values, Written};
use crate::element::{DType, Element};
use crate::error::Error;
use crate::fill::Marks;
use crate::kernel::stores::{self, Fence};
use crate::layout::{Segment, Window};
use crate::op::{Op, weigh};
use crate::primitive::{Primitive, Slot};
use crate::report::Report;
#[cfg(feature = "alloc")]
use alloc::vec::Vec;
use core::ops::Range;
use core::task::Poll;

/// Outputs of more bytes are written past the caches. Smaller ones may still be cached when the
/// caller reads them.
const CACHED_BYTES: usize = 16 << 20;

/// Returns the values in a frame's payload.
fn floats<T: Element>(bytes: &[u8]) -> Result<&[T], Error> {
    bytemuck::try_cast_slice(bytes).map_err(|_| misuse())
}

/// Returns space for `n` values at the start of a frame's buffer.
pub(crate) fn floats_mut<T: Element>(buffer: &mut [u8], n: usize) -> Result<&mut [T], Error> {
    let bytes = buffer.get_mut(..n * T::BYTES).ok_or_else(misuse)?;
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| misuse())
}

/// The caller's buffers in a call.
#[derive(Debug)]
pub enum Buffers<'b, T> {
    /// This rank's input, which results overwrite.
    InPlace(&'b mut [T]),
    /// Separate buffers for input and results.
    Split {
        /// This rank's input.
        send: &'b [T],
        /// Buffer for results.
        recv: &'b mut [T],
    },
    /// This rank's input, without a buffer for results.
    ReadOnly(&'b [T]),
}

impl<'b, T> From<&'b mut [T]> for Buffers<'b, T> {
    fn from(data: &'b mut [T]) -> Self {
        Self::InPlace(data)
    }
}

impl<'b, T> From<(&'b [T], &'b mut [T])> for Buffers<'b, T> {
    fn from((send, recv): (&'b [T], &'b mut [T])) -> Self {
        Self::Split { send, recv }
    }
}

impl<'b, T> From<&'b [T]> for Buffers<'b, T> {
    fn from(send: &'b [T]) -> Self {
        Self::ReadOnly(send)
    }
}

impl<T: Element> Buffers<'_, T> {
    /// Returns which part of the array the buffers hold.
    pub(crate) const fn window(&self) -> Window {
        match self {
            Self::InPlace(_) => Window::Whole,
            Self::Split { .. } => Window::Own,
            Self::ReadOnly(_) => Window::Input,
        }
    }

    /// Returns the number of values to send, and the capacity for results.
    pub(crate) const fn lengths(&self) -> [usize; 2] {
        match self {
            Self::InPlace(data) => [data.len(); 2],
            Self::Split { send, recv } => [send.len(), recv.len()],
            Self::ReadOnly(send) => [send.len(), 0],
        }
    }

    /// Borrows the buffers. With `is_in_place`, `Split` becomes `InPlace`, because `recv` already
    /// holds the input.
    pub(crate) const fn lent(&mut self, is_in_place: bool) -> Buffers<'_, T> {
        match self {
            Self::InPlace(data) => Buffers::InPlace(data),
            Self::Split { send, recv } => {
                if is_in_place {
                    Buffers::InPlace(recv)
                } else {
                    Buffers::Split { send, recv }
                }
            }
            Self::ReadOnly(send) => Buffers::ReadOnly(send),
        }
    }

    /// Returns the whole local input.
    pub(crate) fn all_own(&self) -> &[T] {
        match self {
            Self::InPlace(data) => data,
            Self::Split { send, .. } | Self::ReadOnly(send) => send,
        }
    }

    /// Returns the local input of a segment.
    fn own(&self, segment: &Segment) -> Result<&[T], Error> {
        within(self.all_own(), segment.in_input())
    }

    fn output(&mut self, segment: &Segment) -> Result<&mut [T], Error> {
        let recv: &mut [T] = match self {
            Self::InPlace(data) => data,
            Self::Split { recv, .. } => recv,
            Self::ReadOnly(_) => &mut [],
        };
        within_mut(recv, segment.in_output())
    }

    /// Returns how to write results: past the caches if they would not stay there anyway. But
    /// results that overwrite input in place find its cache lines loaded, because the input was
    /// read a moment ago (`over_own`).
    fn stores(&self, over_own: bool) -> Stores {
        let (output, in_place) = match self {
            Self::InPlace(data) => (&**data, true),
            Self::Split { recv, .. } => (&**recv, false),
            Self::ReadOnly(_) => (&[][..], false),
        };
        if output.len() * T::BYTES > CACHED_BYTES && !(in_place && over_own) {
            Stores::PastCaches
        } else {
            Stores::Cached
        }
    }

    /// Returns local input and output of a segment. In place both are at the same position,
    /// wherever a step needs both.
    #[inline(always)]
    fn values(&mut self, segment: &Segment) -> Result<Values<'_, T>, Error> {
        Ok(match self {
            Self::InPlace(data) => Values::InPlace(within_mut(data, segment.in_output())?),
            Self::Split { send, recv } => Values::Apart {
                local: within(send, segment.in_input())?,
                output: within_mut(recv, segment.in_output())?,
            },
            Self::ReadOnly(_) => return Err(Error::Internal),
        })
    }

    /// Copies the local input of a segment to the output.
    #[inline(always)]
    fn copy_own(&mut self, segment: &Segment, stores: Stores) -> Result<&mut [T], Error> {
        Ok(match self.values(segment)? {
            Values::InPlace(values) => values,
            Values::Apart { local, output } => {
                match stores {
                    Stores::Cached => output.copy_from_slice(local),
                    Stores::PastCaches => {
                        let (from, to) =
                            (bytemuck::cast_slice(local), bytemuck::cast_slice_mut(output));
                        stores::copy(from, to, &Fence::at_end());
                    }
                }
                output
            }
        })
    }
}

/// Returns a range of values. An empty range may lie outside them.
fn within<T>(values: &[T], range: Range<usize>) -> Result<&[T], Error> {
    if range.is_empty() { Ok(&[]) } else { values.get(range).ok_or(Error::Internal) }
}

fn within_mut<T>(values: &mut [T], range: Range<usize>) -> Result<&mut [T], Error> {
    if range.is_empty() { Ok(&mut []) } else { values.get_mut(range).ok_or(Error::Internal) }
}

/// Codec and divisor of a call, with the element type erased.
#[derive(Clone, Debug)]
pub(crate) struct Coding {
    codec: ErasedCodec,
    /// Codec of each array, if several arrays follow each other in the buffers.
    #[cfg(feature = "alloc")]
    codecs: Vec<ErasedCodec>,
    /// Divisor of an average when the result is stored; 1 otherwise.
    divisor: u32,
    /// True if the buffer for results already holds the input.
    is_in_place: bool,
    /// Treatment of fill values, if there is a fill value.
    marks: Option<Marks>,
}

impl Coding {
    /// Creates the coding of a call that moves and reduces uncompressed values.
    pub(crate) const fn raw(dtype: DType) -> Self {
        Self::by(ErasedCodec::raw(dtype), 1, false)
    }

    /// Creates the coding with this codec. `divisor` is the number of ranks for an average,
    /// otherwise 1.
    pub(crate) const fn by(codec: ErasedCodec, divisor: u32, is_in_place: bool) -> Self {
        Self {
            codec,
            #[cfg(feature = "alloc")]
            codecs: Vec::new(),
            divisor,
            is_in_place,
            marks: None,
        }
    }

    /// Returns the same coding with this treatment of fill values.
    pub(crate) fn with_marks(self, marks: Option<Marks>) -> Self {
        Self { marks, ..self }
    }

    /// Creates the coding with a codec for each of several arrays. `None` if there is no array.
    #[cfg(feature = "alloc")]
    pub(crate) fn by_each(codecs: Vec<ErasedCodec>, divisor: u32) -> Option<Self> {
        let first = *codecs.first()?;
        Some(Self { codecs, ..Self::by(first, divisor, false) })
    }

    /// Returns the codec of a segment, which belongs to one of the arrays that end at `ends`.
    fn codec(&self, _segment: &Segment, _ends: &[usize]) -> &ErasedCodec {
        #[cfg(feature = "alloc")]
        if let Some(last) = self.codecs.len().checked_sub(1) {
            // An empty segment may use the codec of any array.
            let at = _ends.partition_point(|&end| end <= _segment.input);
            return &self.codecs[at.min(last)];
        }
        &self.codec
    }

    /// Divisor of an average when the result is stored; 1 otherwise.
    #[cfg(feature = "alloc")]
    pub(crate) const fn divisor(&self) -> u32 {
        self.divisor
    }

    /// Returns whether values are neither encoded, nor divided, nor rounded before, nor marked.
    #[cfg(feature = "alloc")]
    pub(super) fn is_raw(&self) -> bool {
        // Without a divisor, operands have no weight.
        let is_plain = self.divisor == 1 && !self.is_in_place && self.marks.is_none();
        self.codec.id() == CodecId::Raw && is_plain
    }

    pub(super) const fn bytes_per_value(&self) -> usize {
        self.codec.dtype().n_bytes()
    }

    /// Returns the number of values that a received payload of this codec claims to hold. With a
    /// codec for each array, the first one can read the number for all.
    pub(super) fn n_values(&self, codec: CodecId, payload: &[u8]) -> Result<usize, DecodeError> {
        self.codec.n_values(codec, payload)
    }
}

/// Operation and buffers of a call.
#[expect(missing_debug_implementations, reason = "no name leads to it")]
pub struct Work<'b, 's, T: Element> {
    pub(crate) op: Op<'s, T>,
    pub(crate) buffers: Buffers<'b, T>,
    /// Residues for error feedback: what rounding lost of each value of the local input in earlier
    /// calls.
    pub(crate) residues: Option<&'b mut [T::Residue]>,
    /// End of each array, if there are several.
    pub(crate) ends: &'s [usize],
}

impl<'b, 's, T: Element> Work<'b, 's, T> {
    /// Creates the work on one array, without error feedback.
    pub(crate) fn new(op: Op<'s, T>, buffers: Buffers<'b, T>) -> Self {
        Self { op, buffers, residues: None, ends: &[] }
    }
}

impl<T: Element> Compute for Work<'_, '_, T> {
    fn compute(
        &mut self,
        _lane: usize,
        primitive: Primitive,
        payloads: &mut Payloads<'_>,
        segment: &Segment,
        (coding, pace): (&Coding, &dyn Pace),
        report: &mut Report,
    ) -> Poll<Result<(), Error>> {
        let (op, &Coding { divisor, is_in_place, marks, .. }) = (self.op, coding);
        let erased = coding.codec(segment, self.ends);
        let (id, codec) = (erased.id(), erased.of::<T>());
        let is_raw = id == CodecId::Raw;
        // For raw payloads in a call by another codec. Its operands of averages have the same
        // weight.
        let raw: &dyn Codec<T> = &Raw::with_weight(if is_raw { T::ONE } else { codec.weight() });
        let filled = marks.map(|marks| [codec, raw].map(|codec| Filled::new(codec, marks)));
        let [codec, raw] = match &filled {
            Some([codec, raw]) => [codec as &dyn Codec<T>, raw],
            None => [codec, raw],
        };
        let by = |other| if other == id { codec } else { raw };
        // The call's codec, if it folds and combines in place; else only floats do.
        let in_place = || if id.is_in_place() { codec } else { raw };
        let restore = |output: &mut [T]| {
            if let Some(marks) = marks {
                marks.restore(T::DTYPE, bytemuck::cast_slice_mut(output));
            }
        };
        let buffers = &mut self.buffers.lent(is_in_place);
        let n = segment.len;
        let mut written = Written::default();
        match primitive {
            Primitive::EncodeOwn { to, codec } => {
                let own = Source::Input(buffers.own(segment)?);
                written = by(codec).encode_paced(own, payloads.buffer(to), pace)?;
            }
            Primitive::Transcode { from, to, codecs } => {
                let (src, dst) = payloads.to(from, to)?;
                written = match codecs {
                    [CodecId::Raw, to] => {
                        by(to).encode_paced(Source::Partial(floats(src)?), dst, pace)?
                    }
                    [from, CodecId::Raw] => {
                        by(from).store(src, 1, floats_mut(dst, n)?, Stores::Cached, pace)?;
                        Written { n_bytes: n * T::BYTES, ..Written::default() }
                    }
                    [_, to] => by(to).recode_paced(src, n, None, dst, pace)?,
                };
            }
            Primitive::Fold => {
                let (src, dst) = payloads.to(Slot::In, Slot::Out)?;
                let own = Values::unstored(buffers.own(segment)?);
                written = codec.fold_paced(&op, src, own, 1, dst, pace)?;
            }
            Primitive::FoldInPlace => {
                let frame = payloads.of_mut(Slot::In)?;
                written.n_bytes = frame.len();
                let own = buffers.own(segment)?;
                let codec = in_place().homomorphic().ok_or(Error::Internal)?;
                codec.fold_in_place(&op, frame, own).ok_or(Error::Internal)??;
            }
            Primitive::FoldStore => {
                let (src, dst) = payloads.to(Slot::In, Slot::Out)?;
                let values = buffers.values(segment)?;
                written = codec.fold_paced(&op, src, values, divisor, dst, pace)?;
                restore(buffers.output(segment)?);
            }
            Primitive::Refold => {
                let (src, dst) = payloads.to(Slot::In, Slot::Out)?;
                let own = Some((&op, buffers.own(segment)?));
                written = codec.recode_paced(src, n, own, dst, pace)?;
            }
            Primitive::Combine { with } => {
                let ([a, b], dst) = payloads.both_to([Slot::In, with], Slot::Out)?;
                let codec = codec.homomorphic().ok_or(Error::Internal)?;
                written = codec.combine_paced(&op, a, b, dst, pace)?;
            }
            Primitive::CombineInPlace { with } => {
                let (b, a) = payloads.into(with, Slot::In)?;
                written.n_bytes = a.len();
                let codec = in_place().homomorphic().ok_or(Error::Internal)?;
                codec.combine_in_place(&op, a, b).ok_or(Error::Internal)??;
            }
            Primitive::Reduce { into } => {
                let (src, dst) = payloads.to(Slot::In, into)?;
                codec.reduce_paced(&op, src, floats_mut(dst, n)?, pace)?;
                written.n_bytes = n * T::BYTES;
            }
            Primitive::ReduceStore { codec: from } => {
                let weight = codec.weight();
                let output = buffers.copy_own(segment, Stores::Cached)?;
                if let Some(marks) = marks {
                    marks.mark(T::DTYPE, bytemuck::cast_slice_mut(output));
                }
                weigh(output, weight);
                by(from).reduce_paced(&op, payloads.of(Slot::In)?, output, pace)?;
                T::divide(output, divisor, weight);
                restore(output);
            }
            Primitive::Store { from, codec, over_own }
            | Primitive::StoreWhole { from, codec, over_own } => {
                let is_whole = matches!(primitive, Primitive::StoreWhole { .. });
                let divisor = if is_whole { 1 } else { divisor };
                let stores = buffers.stores(over_own);
                let (src, output) = (payloads.of(from)?, buffers.output(segment)?);
                by(codec).store(src, divisor, output, stores, pace)?;
                // The sum of an average is not final: it is divided later.
                if !is_whole || coding.divisor == 1 {
                    restore(output);
                }
            }
            Primitive::EncodeStored { to, codec } => {
                let (stored, dst) = (buffers.output(segment)?, payloads.buffer(to));
                written = match marks {
                    Some(marks) => {
                        let codec = Filled::new(by(codec), marks);
                        codec.encode_marked(stored, T::ONE, dst, pace)?
                    }
                    None => by(codec).encode_paced(Source::Partial(stored), dst, pace)?,
                };
            }
            Primitive::Divide => {
                let output = buffers.output(segment)?;
                T::divide(output, divisor, codec.weight());
                restore(output);
            }
            Primitive::StoreOwn => {
                let output = buffers.copy_own(segment, buffers.stores(true))?;
                if let Some(marks) = marks {
                    marks.mark(T::DTYPE, bytemuck::cast_slice_mut(output));
                    restore(output);
                }
            }
            // The lane itself carries these out.
            Primitive::Copy { .. }
            | Primitive::Move { .. }
            | Primitive::Join { .. }
            | Primitive::Replace { .. } => return Poll::Ready(Err(Error::Internal)),
        }
        payloads.note(primitive, written, report);
        Poll::Ready(Ok(()))
    }

    #[cfg(feature = "alloc")]
    fn compute_raw(
        &mut self,
        primitive: Primitive,
        (buffer, n_bytes): (&mut [u8], usize),
        other: &[u8],
        segment: &Segment,
    ) -> Option<usize> {
        if let Primitive::EncodeOwn { .. } = primitive {
            let own = bytemuck::cast_slice(self.buffers.own(segment).ok()?);
            buffer.get_mut(..own.len())?.copy_from_slice(own);
            return Some(own.len());
        }
        let payload: &mut [T] = bytemuck::try_cast_slice_mut(buffer.get_mut(..n_bytes)?).ok()?;
        if payload.len() != segment.len {
            return None;
        }
        match primitive {
            Primitive::FoldInPlace => {
                let own = self.buffers.own(segment).ok()?;
                (own.len() == payload.len()).then(|| operate(&self.op, payload, own))?;
            }
            Primitive::CombineInPlace { .. } => {
                let other = floats(other).ok()?;
                (other.len() == payload.len()).then(|| operate(&self.op, payload, other))?;
            }
            Primitive::Store { .. } => {
                let output = self.buffers.output(segment).ok()?;
                (output.len() == payload.len()).then(|| output.copy_from_slice(payload))?;
            }
            Primitive::ReduceStore { .. } => {
                let output = self.buffers.copy_own(segment, Stores::Cached).ok()?;
                operate(&self.op, output, payload);
            }
            _ => return None,
        }
        Some(n_bytes)
    }
}
