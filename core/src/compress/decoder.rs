//! Reads a compressed array segment by segment.

use super::encoder::checksum;
use super::head::{self, Info};
use super::numbers::{self, NumberForm};
use super::segment::{coded_as, with_narrow};
use super::{DecompressError, SEGMENT, SEGMENT_HEAD, interp};
use crate::bound::Quantum;
use crate::codec::{CodecExt, CodecId, CodecParams, DecodeError};
use crate::element::{DType, Element, with_type};
use crate::fill::Marks;
use crate::threads::Threads;
use alloc::vec::Vec;

/// Reads a compressed array from bytes that arrive in pieces. [`Encoder`](super::Encoder) has an
/// example.
///
/// No part of an array is longer than [`SEGMENT`] values, so a reader needs memory for one segment
/// only, whatever the bytes claim.
#[derive(Debug, Default)]
pub struct Decoder {
    next: Part,
    info: Option<Info>,
    checksum: u64,
    n_values: u64,
}

/// The part that comes next.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Start,
    Head {
        n_bytes: usize,
        start: [u8; head::START],
    },
    Segment,
    Payload {
        head: [u8; SEGMENT_HEAD],
        codec: CodecId,
    },
    Nothing,
}

fn word(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word) as usize)
}

impl Decoder {
    /// A decoder before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the head; `None` before it has been read.
    #[must_use]
    pub fn info(&self) -> Option<&Info> {
        self.info.as_ref()
    }

    pub(super) fn into_info(self) -> Option<Info> {
        self.info
    }

    /// Returns whether the whole array has been read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.next, Part::Nothing)
    }

    /// Returns whether the next part is a payload.
    #[must_use]
    pub fn is_at_payload(&self) -> bool {
        matches!(self.next, Part::Payload { .. })
    }

    /// Number of bytes that the next call of [`read`](Self::read) takes: at most 8 MiB.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        match &self.next {
            Part::Start => head::START,
            Part::Head { n_bytes, .. } => n_bytes - head::START,
            Part::Segment => SEGMENT_HEAD,
            Part::Payload { head, .. } => word(&head[4..]),
            Part::Nothing => 0,
        }
    }

    /// Reads the next part from the front of `bytes`, and removes it there. Returns a payload if
    /// the part is one. Checksums are verified, but payloads are not decoded yet.
    ///
    /// # Errors
    /// [`DecompressError`] if there are fewer than [`n_bytes`](Self::n_bytes), or if they are
    /// damaged. The decoder then cannot go on.
    pub fn read<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<Payload<'a>>, DecompressError> {
        let (need, have) = (self.n_bytes(), bytes.len());
        let Some((part, rest)) = bytes.split_at_checked(need) else {
            if matches!(self.next, Part::Start) {
                Info::check_start(bytes)?;
            }
            return Err(DecodeError::Truncated { need, have }.into());
        };
        *bytes = rest;
        match &self.next {
            Part::Start => {
                let n_bytes = Info::check_start(part)?;
                let mut start = [0; head::START];
                start.copy_from_slice(part);
                self.next = Part::Head { n_bytes, start };
            }
            Part::Head { start, .. } => {
                let (info, checksum) = Info::parse(&[start, part].concat())?;
                (self.info, self.checksum, self.next) = (Some(info), checksum, Part::Segment);
            }
            Part::Segment => {
                let mut head = [0; SEGMENT_HEAD];
                head.copy_from_slice(part);
                let codec = self.check_segment(&head)?;
                self.next = Part::Payload { head, codec };
                if word(&head) == 0 {
                    self.finish(&head)?;
                }
            }
            &Part::Payload { ref head, codec } => {
                let (n_values, is_marked, form) = (word(head), head[9] != 0, head[10]);
                self.checksum = verified(head, part, self.checksum)?;
                self.n_values += n_values as u64;
                self.next = Part::Segment;
                let info = self.info.as_ref();
                let dtype = info.map_or(DType::U8, |info| info.dtype);
                let form = NumberForm::of_code(form, dtype);
                let fill = info.and_then(|info| info.layout.fill_value).filter(|_| is_marked);
                return Ok(Some(Payload { dtype, codec, fill, form, n_values, bytes: part }));
            }
            Part::Nothing => {}
        }
        Ok(None)
    }

    fn check_segment(&self, head: &[u8; SEGMENT_HEAD]) -> Result<CodecId, DecompressError> {
        let Some(info) = &self.info else { return Err(DecodeError::Damaged.into()) };
        let (n_values, n_bytes, code) = (word(head), word(&head[4..]), head[8]);
        let codec = CodecId::from_array_code(code).ok_or(DecompressError::UnknownCodec { code })?;
        if n_values > SEGMENT {
            return Err(DecodeError::Damaged.into());
        }
        let n_raw = n_values * info.dtype.n_bytes();
        let coded = if head[10] == 0 { coded_as(info.dtype) } else { DType::F64 };
        let has_size = match codec {
            CodecId::Raw => n_bytes == n_raw,
            _ => codec.is_for(coded) && (1..n_raw).contains(&n_bytes),
        };
        let form = NumberForm::of_code(head[10], info.dtype);
        let has_form = head[10] == 0 || codec.has_lattice() && form.is_some();
        let left = info.n_values() - self.n_values;
        let is_marked = head[9] != 0;
        let may_be_marked = info.layout.fill_value.is_some() && codec != CodecId::Raw;
        let is_flagged = head[9] <= 1 && (may_be_marked || !is_marked);
        let has_flags = is_flagged && has_form && head[11..16] == [0; 5];
        if !has_flags || n_values as u64 > left || !has_size {
            return Err(DecodeError::Damaged.into());
        }
        Ok(codec)
    }

    /// Reads the segment without values, which ends the array.
    fn finish(&mut self, head: &[u8; SEGMENT_HEAD]) -> Result<(), DecompressError> {
        self.checksum = verified(head, &[], self.checksum)?;
        if let Some(info) = &mut self.info {
            if info.layout.is_stream() {
                info.layout.shape = [self.n_values].into();
            } else if info.n_values() != self.n_values {
                return Err(DecodeError::Damaged.into());
            }
        }
        self.next = Part::Nothing;
        Ok(())
    }
}

fn verified(
    head: &[u8; SEGMENT_HEAD],
    payload: &[u8],
    before: u64,
) -> Result<u64, DecompressError> {
    let (head, expected) = head.split_at(SEGMENT_HEAD - 8);
    let found = checksum(head, payload, before);
    if found.to_le_bytes() == *expected { Ok(found) } else { Err(DecompressError::Checksum) }
}

/// A segment whose checksum was correct.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    dtype: DType,
    codec: CodecId,
    /// The fill value, if marks stand for it.
    fill: Option<f64>,
    /// How numbers stand for the values, if they do.
    form: Option<NumberForm>,
    n_values: usize,
    bytes: &'a [u8],
}

impl Payload<'_> {
    /// The codec that made it.
    #[must_use]
    pub const fn codec(&self) -> CodecId {
        self.codec
    }

    /// Number of its values, at most [`SEGMENT`].
    #[must_use]
    pub const fn n_values(&self) -> usize {
        self.n_values
    }

    /// Number of bytes of its values.
    #[must_use]
    pub const fn n_bytes(&self) -> usize {
        self.n_values * self.dtype.n_bytes()
    }

    /// Decodes the values and appends them, all or none.
    ///
    /// # Errors
    /// [`DecompressError`] if the payload is damaged, has another type, or memory runs out.
    pub fn append_to<T: Element>(&self, values: &mut Vec<T>) -> Result<(), DecompressError> {
        if self.dtype != T::DTYPE {
            let (found, expected) = (self.dtype as u8, T::DTYPE);
            return Err(DecodeError::Type { found, expected }.into());
        }
        let start = values.len();
        values.try_reserve(self.n_values).map_err(|_| {
            let n_values = (start + self.n_values) as u64;
            DecompressError::Memory { n_values }
        })?;
        values.resize(start + self.n_values, T::ZERO);
        let decoded = self.decode_bytes(bytemuck::cast_slice_mut(&mut values[start..]));
        if decoded.is_err() {
            values.truncate(start);
        }
        Ok(decoded?)
    }

    /// Decodes into the memory of [`n_values`](Self::n_values) values of the array's type.
    ///
    /// # Errors
    /// [`DecodeError`] if the payload is damaged.
    ///
    /// # Panics
    /// If the memory is not aligned for the type, or has another length.
    pub fn decode_bytes(&self, values: &mut [u8]) -> Result<(), DecodeError> {
        assert_eq!(values.len(), self.n_values * self.dtype.n_bytes(), "memory for all values");
        self.decode_on(Threads::default(), values)
    }

    /// The same on these threads.
    pub(super) fn decode_on(&self, threads: Threads, values: &mut [u8]) -> Result<(), DecodeError> {
        if self.codec == CodecId::Raw {
            values.copy_from_slice(self.bytes);
            return Ok(());
        }
        if let Some(form) = self.form {
            let mut numbers = alloc::vec![0.0_f64; self.n_values];
            let params = CodecParams::new(Quantum::LOSSLESS).on(threads);
            let codec = self.codec.instance::<f64>(&params);
            codec.as_dyn().decode(self.bytes, 1, &mut numbers)?;
            numbers::restore(self.dtype, form, &numbers, values)?;
            self.restore_fill(values);
            return Ok(());
        }
        with_narrow!(self.dtype, N => {
            let mut extended = alloc::vec![0_i32; self.n_values];
            self.decode_floats(threads, bytemuck::cast_slice_mut(&mut extended))?;
            let values: &mut [N] = bytemuck::cast_slice_mut(values);
            for (value, extended) in values.iter_mut().zip(extended) {
                *value = extended.try_into().map_err(|_| DecodeError::Damaged)?;
            }
            Ok(())
        }, else {
            self.decode_floats(threads, values)?;
            self.restore_fill(values);
            Ok(())
        })
    }

    /// Replaces marks by the fill value.
    fn restore_fill(&self, values: &mut [u8]) {
        if let Some(fill) = self.fill {
            Marks::of(fill).restore(self.dtype, values);
        }
    }

    fn decode_floats(&self, threads: Threads, values: &mut [u8]) -> Result<(), DecodeError> {
        if self.codec == CodecId::Interp {
            return interp::decode(self.dtype, self.bytes, values);
        }
        with_type!(coded_as(self.dtype), T => {
            let params = CodecParams::new(Quantum::LOSSLESS).on(threads);
            let codec = self.codec.instance::<T>(&params);
            codec.as_dyn().decode(self.bytes, 1, bytemuck::cast_slice_mut(values))
        })
    }
}
