//! Writes a compressed array segment by segment, each with the codec that makes it shortest.

mod suspected;

use super::numbers::NumberForm;
use super::segment::{Codecs, Coded, Settings, Trials, codecs, part_within};
use super::threads;
use super::{CompressError, Info, Layout, SEGMENT, SEGMENT_HEAD};
use crate::bound::{FillSearch, Quantum, Scope, ValueRange};
use crate::codec::{CodecId, CodecParams, Loss, strides};
use crate::element::{DType, Element, with_float};
use crate::plan::{Plan, Rounding};
use crate::threads::Threads;
use alloc::vec::Vec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Fewest rows of a plane that is found in a flat array.
const MIN_ROWS: u32 = 4;

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
    settings: Settings,
    /// Search for a fill value that sets the range of the bound.
    search: Option<FillSearch>,
    /// True if the search is over before values are encoded.
    is_searched: bool,
    /// True if a suspected fill value is an error.
    refuses_fill: bool,
    checksum: u64,
    n_values: u64,
    expected: Option<u64>,
    /// True until the shape is known: told, found, or of no use.
    is_shape_open: bool,
    /// Bytes of the values of a full segment.
    segment_bytes: usize,
    /// Values of a segment that is not full yet, as words, so that they are aligned.
    pending: Vec<u64>,
    n_pending: usize,
    trials: Trials,
}

impl Encoder {
    /// Begins an array: appends its head to `out`. The plan counts as in
    /// [`compress_with`](super::compress_with). `value_range` is that of all values but the fill
    /// value, which the layout names, or else the plan. It is not needed unless the plan
    /// [needs it](Plan::needs_value_range).
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
        // A bound that keeps all bits leaves the same choice as no bound.
        let codecs = match codecs {
            Codecs::Bounded if quantum.is_lossless() => Codecs::Exact,
            codecs => codecs,
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
        let layout = layout.filled_by(plan);
        // Integers are exact: no value needs a mark.
        let fill = layout.fill_value.filter(|_| dtype.is_float());
        if fill.is_some() && codecs.loss() == Loss::Setting {
            return Err(CompressError::Fill { codec: plan.codec });
        }
        let is_bool = layout.is_bool && dtype == DType::U8;
        let layout = Layout { fill_value: fill, is_bool, ..layout };
        let (expected, step) = (layout.n_values(), quantum.step());
        let info = Info { dtype, layout, step, bound };
        let may_search = fill.is_none() && bound > 0.0 && plan.may_suspect_fill();
        let range = value_range.filter(|_| may_search);
        Ok(Self {
            settings: Settings { dtype, codecs, params, fill },
            search: range.map(|range| FillSearch::new(range, bound)),
            is_searched: false,
            refuses_fill: plan.refuses_fill,
            checksum: info.emit(out),
            n_values: 0,
            expected,
            is_shape_open: strides == [0; 2] && codecs.as_slice().contains(&CodecId::Interp),
            segment_bytes: segment_len(strides) * dtype.n_bytes(),
            pending: Vec::new(),
            n_pending: 0,
            trials: Trials::default(),
        })
    }

    /// Encodes on these threads, in place of all of rayon's pool (feature `rayon`) or one. The
    /// bytes do not depend on them. Segments of values that are passed together go on several
    /// threads; each thread needs memory of its own.
    #[must_use]
    pub fn on(mut self, threads: Threads) -> Self {
        self.settings = self.settings.on(threads);
        self
    }

    /// Encodes the next values of the array, and appends full segments to `out`. The encoder keeps
    /// the values of one that is not full yet.
    ///
    /// # Panics
    /// If the values do not have the encoder's type, or memory runs out.
    pub fn encode<T: Element>(&mut self, values: &[T], out: &mut Vec<u8>) {
        assert_eq!(T::DTYPE, self.settings.dtype, "the type that the encoder was made for");
        self.encode_bytes(bytemuck::cast_slice(values), out);
    }

    /// Same as [`encode`](Self::encode), for the memory of values of the encoder's type.
    ///
    /// # Panics
    /// If the bytes are not aligned for the type, or not a whole number of values.
    pub fn encode_bytes(&mut self, values: &[u8], out: &mut Vec<u8>) {
        if !self.is_searched {
            self.add_to_search(values);
        }
        if !self.is_shape_open {
            self.feed(values, out);
        } else if self.n_pending == 0 && values.len() >= self.segment_bytes {
            self.find_shape(&values[..self.segment_bytes]);
            self.feed(values, out);
        } else {
            let left = self.keep(values, self.segment_bytes - self.n_pending);
            if self.n_pending == self.segment_bytes {
                self.feed_first(out);
                self.feed(left, out);
            }
        }
    }

    /// Searches the first values of an array for rows and planes. Interp takes only whole rows, so
    /// the length of segments depends on them. Other codecs search in each segment.
    fn find_shape(&mut self, values: &[u8]) {
        let Settings { dtype, ref mut params, .. } = self.settings;
        // Within a coarse bound, the values before predict a smooth field so well that rows, or any
        // number of them, save nothing, but for interp. Finer bounds show them, if noise does not
        // hide them there.
        let found = [1024.0, 32.0, 1.0].into_iter().find_map(|finer| {
            let bound = params.quantum.bound() / finer;
            let quantum = with_float!(dtype, T => Quantum::new::<T>(bound).ok()?, else return None);
            let params = CodecParams::new(quantum).with_shape_of_bytes(dtype, values);
            match params.strides {
                [0, _] => None,
                // The other one only helps to predict.
                [row, plane] if !plane.is_multiple_of(row) => Some([plane, 0]),
                // A second difference along the rows' dimension.
                [row, plane] if plane < MIN_ROWS * row => Some([row, 0]),
                found => Some(found),
            }
        });
        *params = params.with_strides(found.unwrap_or_default());
        self.segment_bytes = segment_len(params.strides) * dtype.n_bytes();
        self.is_shape_open = false;
    }

    /// Finds the shape by the pending values, and encodes these.
    fn feed_first(&mut self, out: &mut Vec<u8>) {
        let pending = core::mem::take(&mut self.pending);
        let values = &bytemuck::cast_slice(&pending)[..core::mem::take(&mut self.n_pending)];
        self.find_shape(values);
        self.feed(values, out);
    }

    /// Appends full segments of the pending values and these, and keeps the rest.
    fn feed(&mut self, values: &[u8], out: &mut Vec<u8>) {
        let mut left = values;
        if self.n_pending > 0 {
            left = self.keep(left, self.segment_bytes - self.n_pending);
            if self.n_pending < self.segment_bytes {
                return;
            }
        }
        let pending = core::mem::take(&mut self.pending);
        let first = &bytemuck::cast_slice(&pending)[..core::mem::take(&mut self.n_pending)];
        let (segments, rest) = left.split_at(left.len() - left.len() % self.segment_bytes);
        let first = Some(first).filter(|first| !first.is_empty());
        self.segments(first.into_iter().chain(segments.chunks_exact(self.segment_bytes)), out);
        self.pending = pending;
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

    /// Ends the array.
    ///
    /// # Errors
    /// [`CompressError::Count`] if there were more or fewer values than the layout says;
    /// [`CompressError::SuspectedFill`] if the plan refuses the values.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), CompressError> {
        self.check_fill()?;
        if self.is_shape_open {
            self.feed_first(out);
        }
        self.flush(out);
        match self.expected {
            Some(expected) if expected != self.n_values => {
                Err(CompressError::Count { found: self.n_values, expected })
            }
            _ => {
                let (codec, n_bytes) = (CodecId::Raw, 0);
                self.append(&[], Coded { codec, n_bytes, is_marked: false, form: None }, &[], out);
                Ok(())
            }
        }
    }

    /// Appends segments of these values.
    fn segments<'v>(&mut self, segments: impl Iterator<Item = &'v [u8]>, out: &mut Vec<u8>) {
        let mut segments = segments;
        // How interp predicts depends on the first segment that it can take, not on which thread is
        // the first.
        let has_interp = self.settings.codecs.as_slice().contains(&CodecId::Interp);
        while has_interp
            && !self.trials.has_tried_interp
            && let Some(segment) = segments.next()
        {
            self.segment(segment, out);
        }
        let (segments, threads) = (segments.collect::<Vec<_>>(), self.settings.params.threads);
        if !threads::are_for(threads, segments.len()) {
            segments.into_iter().for_each(|segment| self.segment(segment, out));
            return;
        }
        let (settings, scheme) = (self.settings.on(Threads::ONE), self.trials.scheme);
        let begin = || Trials::of_scheme(scheme);
        let encode = |trials: &mut Trials, segment: &[u8]| {
            let coded = settings.encode(segment, trials);
            (coded, trials.best[..coded.n_bytes.min(trials.best.len())].to_vec())
        };
        let all = threads::map(threads, segments.clone(), &begin, &encode);
        for (segment, (coded, payload)) in segments.into_iter().zip(all) {
            self.append(segment, coded, &payload, out);
        }
    }

    /// Appends a segment of these values.
    fn segment(&mut self, values: &[u8], out: &mut Vec<u8>) {
        let coded = self.settings.encode(values, &mut self.trials);
        let best = core::mem::take(&mut self.trials.best);
        self.append(values, coded, &best, out);
        self.trials.best = best;
    }

    /// Appends a segment of these values, with its payload in front of `best` unless it is raw.
    fn append(&mut self, values: &[u8], coded: Coded, best: &[u8], out: &mut Vec<u8>) {
        let Coded { codec, n_bytes, is_marked, form } = coded;
        let payload = if codec == CodecId::Raw { values } else { &best[..n_bytes] };
        let n_values = values.len() / self.settings.dtype.n_bytes();
        self.n_values += n_values as u64;
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
    SEGMENT - SEGMENT % part_within(SEGMENT, strides)
}

/// Returns the checksum of a segment, seeded with that of the segment before it, or of the head.
pub(super) fn checksum(head: &[u8], payload: &[u8], before: u64) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64_with_seed(head, before))
}
