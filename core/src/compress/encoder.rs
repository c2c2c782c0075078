//! Writes a compressed array segment by segment, each with the codec that makes it shortest.

use super::fill::{self, Prepared};
use super::interp::{self, Choice};
use super::numbers::{self, NumberForm, Numbers};
use super::{CompressError, Info, Layout, SEGMENT, SEGMENT_HEAD};
use crate::bound::{Quantum, Scope, ValueRange};
use crate::codec::{CodecExt, CodecId, CodecParams, Loss, strides};
use crate::element::{DType, Element, with_float, with_type};
use crate::plan::{Plan, Rounding};
use alloc::vec::Vec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Codecs that are tried for a plan that leaves the choice open. Interp is shortest on most fields,
/// fz-light where most values are equal. The exact codec is tried if the others save less
/// than half: at rel:1e-7 it is shortest on ccsm.
const BOUNDED: &[CodecId] =
    &[CodecId::Interp, CodecId::Dense, CodecId::FzNd, CodecId::FzLight, CodecId::Lossless];
/// The same without a bound. fz-light then stores repeated values once.
const EXACT: &[CodecId] = &[CodecId::Lossless, CodecId::FzLight];

/// Codec of [`Numbers`] in place of values.
const OF_NUMBERS: CodecId = CodecId::Dense;

/// Returns the type whose codecs code values of this type. Integers are coded exactly, as floats of
/// the same bits; those of 8 and 16 bits are first extended to 32 bits.
pub(super) const fn coded_as(dtype: DType) -> DType {
    match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => dtype,
        DType::I64 | DType::U64 => DType::F64,
        _ => DType::F32,
    }
}

/// Evaluates `$body` with `$N` as the integer of 8 or 16 bits that `$dtype` names.
macro_rules! with_narrow {
    ($dtype:expr, $N:ident => $body:expr, else $none:expr) => {
        $crate::element::with_type!(
            $dtype, $N, $body; I8 i8, U8 u8, I16 i16, U16 u16; _ => $none
        )
    };
}
pub(super) use with_narrow;

/// Extends integers of 8 or 16 bits; `None` for other types.
fn extended(dtype: DType, values: &[u8]) -> Option<Vec<i32>> {
    with_narrow!(dtype, N => {
        let values: &[N] = bytemuck::cast_slice(values);
        Some(values.iter().map(|&value| value.into()).collect())
    }, else None)
}

/// Writes a compressed array.
///
/// # Examples
/// ```
/// use foldwire::compress::{Decoder, Encoder, Layout, SEGMENT};
/// use foldwire::{Bound, DType, Plan};
///
/// let mut bytes = Vec::new();
/// let plan = Plan::auto(Bound::Absolute(1e-3));
/// let mut encoder = Encoder::new(DType::F32, &Layout::stream(), &plan, None, &mut bytes)?;
/// for piece in 0..3 {
///     // A program would write the bytes to a file and clear them.
///     encoder.encode(&vec![piece as f32; SEGMENT], &mut bytes);
/// }
/// encoder.finish(&mut bytes)?;
///
/// let (mut decoder, mut rest, mut values) = (Decoder::new(), &bytes[..], Vec::<f32>::new());
/// while !decoder.is_finished() {
///     // `decoder.n_bytes()` says how many bytes to read from a file.
///     if let Some(payload) = decoder.read(&mut rest)? {
///         payload.append_to(&mut values)?;
///     }
/// }
/// assert_eq!(values.len(), 3 * SEGMENT);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Encoder {
    dtype: DType,
    codecs: Codecs,
    params: CodecParams,
    fill: Option<f64>,
    /// Value range that determines the bound. Fill values are searched for in its parts.
    searched: Option<ValueRange>,
    suspected_fill: Option<f64>,
    checksum: u64,
    n_values: u64,
    expected: Option<u64>,
    /// Bytes of the values of a full segment.
    segment_bytes: usize,
    /// Values of a segment that is not full yet, as words, so that they are aligned.
    pending: Vec<u64>,
    n_pending: usize,
    /// How interp predicts this array.
    scheme: Option<Choice>,
    best: Vec<u8>,
    trial: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Codecs {
    Bounded,
    Exact,
    Only(CodecId),
}

impl Codecs {
    fn as_slice(&self) -> &[CodecId] {
        match self {
            Self::Bounded => BOUNDED,
            Self::Exact => EXACT,
            Self::Only(codec) => core::slice::from_ref(codec),
        }
    }

    fn loss(self) -> Loss {
        match self {
            Self::Bounded => Loss::Bound,
            Self::Exact => Loss::None,
            Self::Only(codec) => codec.loss(),
        }
    }
}

impl Encoder {
    /// Begins an array: appends its head to `out`. The plan counts as in
    /// [`compress_with`](super::compress_with). `value_range` is that of all values; it is not
    /// needed unless the plan [needs it](Plan::needs_value_range).
    ///
    /// # Errors
    /// As [`compress_with`](super::compress_with).
    pub fn new(
        dtype: DType,
        layout: &Layout,
        plan: &Plan,
        value_range: Option<ValueRange>,
        out: &mut Vec<u8>,
    ) -> Result<Self, CompressError> {
        layout.check()?;
        if plan.rounding != Rounding::Nearest || plan.scope != Scope::PerOperand {
            return Err(CompressError::Unsupported);
        }
        let codecs = codecs(dtype, plan)?;
        let quantum = match plan.bound {
            Some(bound) if codecs.loss() == Loss::Bound => {
                bound.check_on_operands()?;
                let eb = bound.absolute(value_range)?;
                let value_range = value_range.filter(|_| bound.needs_value_range());
                with_float!(dtype, T => {
                    let quantum = Quantum::with_spacing::<T>(eb, plan.spacing)?;
                    value_range.map_or(quantum, |of_all| quantum.suited::<T>(of_all))
                }, else Quantum::LOSSLESS)
            }
            _ => Quantum::LOSSLESS,
        };
        let bound = match codecs.loss() {
            Loss::Setting => f64::INFINITY,
            _ => quantum.bound(),
        };
        let shape = layout.slowest_first();
        let strides = if shape.len() > 1 { strides(&shape) } else { plan.strides };
        let params = CodecParams::new(quantum)
            .with_strides(strides)
            .with_setting(plan.setting)
            .with_prediction(plan.prediction);
        let fill = layout.fill_value.or_else(|| plan.fill.map(|fill| fill.value));
        // Integers are exact: no value needs a mark.
        let fill = fill.filter(|_| dtype.is_float());
        if fill.is_some() && codecs.loss() == Loss::Setting {
            return Err(CompressError::Fill { codec: plan.codec });
        }
        let layout = &Layout { fill_value: fill, ..layout.clone() };
        let info = Info { dtype, layout: layout.clone(), step: quantum.step(), bound };
        Ok(Self {
            dtype,
            codecs,
            params,
            fill,
            searched: value_range.filter(|_| fill.is_none() && bound > 0.0),
            suspected_fill: None,
            checksum: info.emit(out),
            n_values: 0,
            expected: layout.n_values(),
            segment_bytes: segment_len(strides) * dtype.n_bytes(),
            pending: Vec::new(),
            n_pending: 0,
            scheme: None,
            best: Vec::new(),
            trial: Vec::new(),
        })
    }

    /// Encodes the next values of the array, and appends full segments to `out`. The encoder keeps
    /// the values of one that is not full yet.
    ///
    /// # Panics
    /// If the values do not have the encoder's type, or memory runs out.
    pub fn encode<T: Element>(&mut self, values: &[T], out: &mut Vec<u8>) {
        assert_eq!(T::DTYPE, self.dtype, "the type that the encoder was made for");
        self.encode_bytes(bytemuck::cast_slice(values), out);
    }

    /// Same as [`encode`](Self::encode), for the memory of values of the encoder's type.
    ///
    /// # Panics
    /// If the bytes are not aligned for the type, or not a whole number of values.
    pub fn encode_bytes(&mut self, values: &[u8], out: &mut Vec<u8>) {
        if let Some(range) = self.searched {
            let bound = self.params.quantum.bound();
            self.suspected_fill = range.suspected_fill_of_bytes(self.dtype, values, bound);
            self.searched = self.searched.filter(|_| self.suspected_fill.is_none());
        }
        let mut left = values;
        if self.n_pending > 0 {
            let n_missing = self.segment_bytes - self.n_pending;
            left = self.keep(left, n_missing);
            if self.n_pending == self.segment_bytes {
                self.flush(out);
            }
        }
        let segments = left.chunks_exact(self.segment_bytes);
        let rest = segments.remainder();
        for segment in segments {
            self.segment(segment, out);
        }
        self.keep(rest, rest.len());
    }

    /// Moves at most this many bytes to the pending values, and returns the others.
    fn keep<'v>(&mut self, values: &'v [u8], n_most: usize) -> &'v [u8] {
        let (kept, others) = values.split_at(n_most.min(values.len()));
        let end = self.n_pending + kept.len();
        self.pending.resize(self.pending.len().max(end.div_ceil(8)), 0);
        let pending: &mut [u8] = bytemuck::cast_slice_mut(&mut self.pending);
        pending[self.n_pending..end].copy_from_slice(kept);
        self.n_pending = end;
        others
    }

    /// Appends the pending values as a segment.
    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.n_pending > 0 {
            let pending = core::mem::take(&mut self.pending);
            self.segment(&bytemuck::cast_slice(&pending)[..self.n_pending], out);
            (self.pending, self.n_pending) = (pending, 0);
        }
    }

    /// Returns a value that sets the range of a relative bound and seems to be a fill value, if
    /// there is one among the values so far and the layout names none
    /// ([`ValueRange::suspected_fill`]).
    #[must_use]
    pub const fn suspected_fill(&self) -> Option<f64> {
        self.suspected_fill
    }

    /// Ends the array.
    ///
    /// # Errors
    /// [`CompressError::Count`] if there were more or fewer values than the layout says.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), CompressError> {
        self.flush(out);
        match self.expected {
            Some(expected) if expected != self.n_values => {
                Err(CompressError::Count { found: self.n_values, expected })
            }
            _ => {
                self.append(0, (CodecId::Raw, false, None), &[], out);
                Ok(())
            }
        }
    }

    /// Appends a segment of these values. The function is compiled once, in this crate.
    fn segment(&mut self, values: &[u8], out: &mut Vec<u8>) {
        let n_values = values.len() / self.dtype.n_bytes();
        self.n_values += n_values as u64;
        let (mut codec, mut shortest) = (CodecId::Raw, values.len());
        let extended = extended(self.dtype, values);
        let prepared = self.fill.map(|fill| fill::prepare(self.dtype, fill, values));
        let input = match (&prepared, &extended) {
            (Some(Prepared::Marked(marked)), _) => marked,
            (_, Some(extended)) => bytemuck::cast_slice(extended),
            _ => values,
        };
        let codecs = match prepared {
            Some(Prepared::Ambiguous) => Codecs::Only(CodecId::Raw),
            _ => self.codecs,
        };
        for &candidate in codecs.as_slice() {
            let is_last_resort = candidate.is_exact() && !self.params.quantum.is_lossless();
            if is_last_resort && 2 * shortest < values.len() {
                continue;
            }
            let n_bytes = self.encode_trial(candidate, input).unwrap_or(usize::MAX);
            if n_bytes < shortest {
                (codec, shortest) = (candidate, n_bytes);
                core::mem::swap(&mut self.best, &mut self.trial);
            }
        }
        let mut form = None;
        if matches!(codecs, Codecs::Exact) {
            let input = if extended.is_some() { values } else { input };
            for numbers in Numbers::of(self.dtype, input) {
                let n_bytes = self.encode_numbers(&numbers).unwrap_or(usize::MAX);
                if n_bytes < shortest {
                    (codec, shortest, form) = (OF_NUMBERS, n_bytes, Some(numbers.form));
                    core::mem::swap(&mut self.best, &mut self.trial);
                }
            }
        }
        let best = core::mem::take(&mut self.best);
        let payload = if codec == CodecId::Raw { values } else { &best[..shortest] };
        let is_marked = codec != CodecId::Raw && matches!(prepared, Some(Prepared::Marked(_)));
        self.append(n_values, (codec, is_marked, form), payload, out);
        self.best = best;
    }

    /// Encodes values with this codec. Returns the number of bytes; `None` if the codec does not
    /// support the type or the number of values.
    fn encode_trial(&mut self, codec: CodecId, values: &[u8]) -> Option<usize> {
        if codec == CodecId::Interp {
            let CodecParams { strides, quantum, .. } = self.params;
            self.trial = interp::encode(self.dtype, values, strides, quantum, &mut self.scheme)?;
            return Some(self.trial.len());
        }
        self.encode_floats(codec, coded_as(self.dtype), self.params, values)
    }

    /// Encodes numbers in place of values. Returns the number of bytes.
    fn encode_numbers(&mut self, numbers: &Numbers) -> Option<usize> {
        let params = CodecParams::new(numbers::quantum()).with_strides(self.params.strides);
        let values = bytemuck::cast_slice(&numbers.values);
        self.encode_floats(OF_NUMBERS, DType::F64, params, values)
    }

    /// Encodes floats of this type, as [`encode_trial`](Self::encode_trial) does.
    fn encode_floats(
        &mut self,
        codec: CodecId,
        dtype: DType,
        params: CodecParams,
        values: &[u8],
    ) -> Option<usize> {
        with_type!(dtype, T => {
            let values: &[T] = bytemuck::cast_slice(values);
            let params =
                if codec.takes_shape() { params.with_shape_of(values) } else { params };
            let codec = codec.is_for(T::DTYPE).then(|| codec.instance::<T>(&params))?;
            let room = codec.as_dyn().max_encoded_len(values.len())?;
            if self.trial.len() < room {
                self.trial = alloc::vec![0; room];
            }
            codec.as_dyn().encode(values, &mut self.trial).ok().map(|written| written.n_bytes)
        })
    }

    fn append(
        &mut self,
        n_values: usize,
        (codec, is_marked, form): (CodecId, bool, Option<NumberForm>),
        payload: &[u8],
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.reserve(SEGMENT_HEAD + payload.len());
        out.extend_from_slice(&(n_values as u32).to_le_bytes());
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        let form = form.map_or(0, NumberForm::code);
        out.extend_from_slice(&[codec as u8, u8::from(is_marked), form, 0, 0, 0, 0, 0]);
        self.checksum = checksum(&out[start..], payload, self.checksum);
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.extend_from_slice(payload);
    }
}

/// Returns the number of values of a full segment: whole planes or rows, if their distances are
/// known.
fn segment_len(strides: [u32; 2]) -> usize {
    let [row, plane] = strides.map(|stride| stride as usize);
    let is_part = |&part: &usize| (1..=SEGMENT).contains(&part);
    let part = [plane, row].into_iter().find(is_part).unwrap_or(1);
    SEGMENT - SEGMENT % part
}

/// Returns the checksum of a segment, seeded with that of the segment before it, or of the head.
pub(super) fn checksum(head: &[u8], payload: &[u8], before: u64) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64_with_seed(head, before))
}

/// Returns the codecs that a plan lets the encoder choose from.
fn codecs(dtype: DType, plan: &Plan) -> Result<Codecs, CompressError> {
    let Plan { codec, setting, .. } = *plan;
    // Only the choice of codecs that lose nothing depends on how integers are coded.
    let coded = if codec.is_exact() { coded_as(dtype) } else { dtype };
    Ok(match codec {
        _ if plan.is_auto && dtype.is_float() => Codecs::Bounded,
        _ if plan.is_auto => Codecs::Exact,
        CodecId::Lossless => Codecs::Exact,
        _ if !codec.is_for(coded) => return Err(CompressError::Type { codec, dtype }),
        _ if codec.setting(dtype, setting).is_none() => {
            return Err(CompressError::Setting { codec, setting, dtype });
        }
        _ => Codecs::Only(codec),
    })
}
