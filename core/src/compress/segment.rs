//! Codes a segment of a compressed array by the codec that makes it shortest.

use super::CompressError;
use super::fill::{self, Prepared};
use super::interp::{self, Choice};
use super::numbers::{self, NumberForm, Numbers};
use crate::bound::Quantum;
use crate::codec::{CodecExt, CodecId, CodecParams, Loss};
use crate::element::{DType, Element, with_type};
use crate::plan::Plan;
use crate::threads::Threads;
use alloc::vec::Vec;

/// Codecs that are tried for a plan that leaves the choice open. Interp is shortest on most fields,
/// fz-light where most values are equal. The exact codec is tried if the others save less
/// than half: at rel:1e-7 it is shortest on ccsm.
const BOUNDED: &[CodecId] =
    &[CodecId::Interp, CodecId::Dense, CodecId::FzNd, CodecId::FzLight, CodecId::Lossless];
/// The same without a bound. fz-light then stores repeated values once.
const EXACT: &[CodecId] = &[CodecId::Lossless, CodecId::FzLight];

/// Values of a segment's sample, at most.
const SAMPLE: usize = 1 << 15;
/// A codec whose sample is this much longer, compared with the shortest payload so far, is not
/// tried on the segment.
const CLOSE: f64 = 1.25;

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

/// Settings that hold for all segments of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) dtype: DType,
    pub(super) codecs: Codecs,
    pub(super) params: CodecParams,
    pub(super) fill: Option<f64>,
}

/// Payloads by different codecs.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// True once interp has tried a segment.
    pub(super) has_tried_interp: bool,
    /// How interp predicts this array.
    pub(super) scheme: Option<Choice>,
    pub(super) best: Vec<u8>,
    trial: Vec<u8>,
}

/// How a segment is stored; its payload is the front of [`Trials::best`] unless it is raw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded {
    pub(super) codec: CodecId,
    pub(super) n_bytes: usize,
    pub(super) is_marked: bool,
    pub(super) form: Option<NumberForm>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Codecs {
    Bounded,
    Exact,
    Only(CodecId),
}

impl Codecs {
    pub(super) fn as_slice(&self) -> &[CodecId] {
        match self {
            Self::Bounded => BOUNDED,
            Self::Exact => EXACT,
            Self::Only(codec) => core::slice::from_ref(codec),
        }
    }

    pub(super) fn loss(self) -> Loss {
        match self {
            Self::Bounded => Loss::Bound,
            Self::Exact => Loss::None,
            Self::Only(codec) => codec.loss(),
        }
    }
}

impl Settings {
    /// The same with other threads.
    pub(super) const fn on(self, threads: Threads) -> Self {
        Self { params: self.params.on(threads), ..self }
    }

    /// Encodes a segment of these values; exactly, if one of them might be decoded as a fill value
    /// otherwise.
    pub(super) fn encode(&self, values: &[u8], trials: &mut Trials) -> Coded {
        let Self { dtype, params, fill, .. } = *self;
        let bound = params.quantum.bound();
        if bound > 0.0 && fill.is_some_and(|fill| fill::may_arise(dtype, fill, bound, values)) {
            let params = CodecParams { quantum: Quantum::LOSSLESS, ..params };
            return Self { codecs: Codecs::Exact, params, ..*self }
                .encode_by_shortest(values, trials);
        }
        self.encode_by_shortest(values, trials)
    }

    /// Encodes a segment by the codec that makes it shortest. The function is compiled once, in
    /// this crate.
    fn encode_by_shortest(&self, values: &[u8], trials: &mut Trials) -> Coded {
        let (mut codec, mut shortest) = (CodecId::Raw, values.len());
        let extended = extended(self.dtype, values);
        let prepared = self.fill.map(|fill| fill::prepare(self.dtype, fill, values));
        let input = match (&prepared, &extended) {
            (Some(Prepared::Marked(marked)), _) => marked.bytes(),
            (_, Some(extended)) => bytemuck::cast_slice(extended),
            _ => values,
        };
        let codecs = match prepared {
            Some(Prepared::Ambiguous) => Codecs::Only(CodecId::Raw),
            _ => self.codecs,
        };
        for &candidate in codecs.as_slice() {
            let is_bounded = matches!(codecs, Codecs::Bounded);
            if is_bounded && candidate.is_exact() && 2 * shortest < values.len() {
                continue;
            }
            let is_choice = is_bounded && codec != CodecId::Raw;
            if is_choice && !self.may_be_shorter(candidate, input, shortest, trials) {
                continue;
            }
            let n_bytes = self.encode_trial(candidate, input, trials).unwrap_or(usize::MAX);
            if n_bytes < shortest {
                (codec, shortest) = (candidate, n_bytes);
                trials.swap();
            }
        }
        let mut form = None;
        if matches!(codecs, Codecs::Exact) {
            let input = if extended.is_some() { values } else { input };
            for numbers in Numbers::of(self.dtype, input) {
                let n_bytes = self.encode_numbers(&numbers, trials).unwrap_or(usize::MAX);
                if n_bytes < shortest {
                    (codec, shortest, form) = (OF_NUMBERS, n_bytes, Some(numbers.form));
                    trials.swap();
                }
            }
        }
        let is_marked = codec != CodecId::Raw && matches!(prepared, Some(Prepared::Marked(_)));
        Coded { codec, n_bytes: shortest, is_marked, form }
    }

    /// Returns whether this codec may encode a segment in fewer bytes, by a sample in its middle.
    fn may_be_shorter(
        &self,
        codec: CodecId,
        values: &[u8],
        shortest: usize,
        trials: &mut Trials,
    ) -> bool {
        let n_bytes = self.dtype.n_bytes();
        let n_values = values.len() / n_bytes;
        if n_values < 8 * SAMPLE {
            return true;
        }
        let part = part_within(SAMPLE, self.params.strides);
        let n_sampled = SAMPLE - SAMPLE % part;
        let start = (n_values - n_sampled) / 2 / part * part;
        let sample = &values[start * n_bytes..][..n_sampled * n_bytes];
        let len = trials.encode_floats(codec, self.dtype, self.params, sample);
        let most = CLOSE * shortest as f64 * n_sampled as f64 / n_values as f64;
        len.is_some_and(|len| len as f64 <= most)
    }

    /// Encodes values with this codec. Returns the number of bytes; `None` if the codec does not
    /// support the type or the number of values.
    fn encode_trial(&self, codec: CodecId, values: &[u8], trials: &mut Trials) -> Option<usize> {
        if codec == CodecId::Interp {
            let CodecParams { strides, quantum, .. } = self.params;
            trials.has_tried_interp = true;
            trials.trial =
                interp::encode(self.dtype, values, strides, quantum, &mut trials.scheme)?;
            return Some(trials.trial.len());
        }
        trials.encode_floats(codec, coded_as(self.dtype), self.params, values)
    }

    /// Encodes numbers in place of values. Returns the number of bytes.
    fn encode_numbers(&self, numbers: &Numbers, trials: &mut Trials) -> Option<usize> {
        let params = CodecParams::new(numbers::quantum()).on(self.params.threads);
        let params = params.with_strides(self.params.strides);
        let values = bytemuck::cast_slice(&numbers.values);
        trials.encode_floats(OF_NUMBERS, DType::F64, params, values)
    }
}

impl Trials {
    /// No trials yet, for an array that interp predicts in this way.
    pub(super) fn of_scheme(scheme: Option<Choice>) -> Self {
        Self { scheme, ..Self::default() }
    }

    /// Takes the last trial as the best.
    const fn swap(&mut self) {
        core::mem::swap(&mut self.best, &mut self.trial);
    }

    /// Encodes floats of this type, as [`Settings::encode_trial`] does.
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
}

/// Returns the size of a plane, or else of a row, of at most this many values; 1 if there is none.
pub(super) fn part_within(most: usize, strides: [u32; 2]) -> usize {
    let [row, plane] = strides.map(|stride| stride as usize);
    [plane, row].into_iter().find(|part| (1..=most).contains(part)).unwrap_or(1)
}

/// Returns the codecs that a plan lets the encoder choose from.
pub(super) fn codecs(dtype: DType, plan: &Plan) -> Result<Codecs, CompressError> {
    let Plan { codec, setting, .. } = *plan;
    // Only the choice of codecs that lose nothing depends on how integers are coded.
    let coded = if codec.is_exact() { coded_as(dtype) } else { dtype };
    Ok(match codec {
        _ if plan.is_auto && dtype.is_float() => Codecs::Bounded,
        _ if plan.is_auto => Codecs::Exact,
        _ if codec != CodecId::Lossless && !codec.is_for(coded) => {
            return Err(CompressError::Type { codec, dtype });
        }
        _ if codec.setting(dtype, setting).is_none() => {
            return Err(CompressError::Setting { codec, setting, dtype });
        }
        CodecId::Lossless => Codecs::Exact,
        _ => Codecs::Only(codec),
    })
}
