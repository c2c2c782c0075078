//! Puts batches through a case's codec, at every level, and checks the decoded values.

use super::judge::{Guarantee, ReferenceQuantizer};
use super::{BATCH, PatternCase, PatternOrder, PatternTally, Requirement};
use foldwire::bound::ValueRange;
use foldwire::codec::{AnyCodec, CodecExt, CodecId, CodecParams, Written};
use foldwire::kernel::Level;
use foldwire::{Bound, Quantum, Spacing};
use std::fmt;

/// A broken guarantee.
#[derive(Clone, Debug)]
pub struct PatternFailure {
    case: PatternCase,
    order: PatternOrder,
    start: u32,
    what: String,
}

impl fmt::Display for PatternFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, order, start, what } = self;
        let order = order.name();
        writeln!(f, "{case}, {order} from {start}: {what}")?;
        write!(f, "to replay it: cargo xtask patterns --case '{case}' --order {order} ")?;
        write!(f, "--from {start} --to {}", u64::from(*start) + BATCH as u64)
    }
}

/// A case under test, with its buffers.
#[derive(Debug)]
pub struct Trial<'a> {
    case: PatternCase,
    levels: &'a [Level],
    /// The codecs, if they do not depend on each batch's value range.
    fixed: Option<CodecSet>,
    values: Vec<f32>,
    decoded: Vec<f32>,
    /// Values that are decoded from `others`.
    again: Vec<f32>,
    /// Encoding of `values` at the first level.
    bytes: Vec<u8>,
    /// Encoding at another level, or of decoded values.
    others: Vec<u8>,
}

/// Codecs that encode a batch, one for each level, and the guarantee for its values.
#[derive(Clone, Debug)]
struct CodecSet {
    quantum: Quantum,
    codecs: Vec<AnyCodec<f32>>,
    guarantee: Guarantee,
}

impl CodecSet {
    fn new(case: &PatternCase, levels: &[Level], quantum: Quantum, spacing: Spacing) -> Self {
        let params = CodecParams::new(quantum).for_sums_of(case.n_operands);
        let params = params.with_setting(case.setting);
        let codecs = levels.iter().map(|&level| case.codec.instance(&params.at(level))).collect();
        let guarantee = match case.codec {
            _ if quantum.is_lossless() => Guarantee::Bits,
            CodecId::FzLight | CodecId::FzStatic | CodecId::Dense | CodecId::FzNd => {
                Guarantee::Quantized(ReferenceQuantizer::new(quantum, spacing, case.n_operands))
            }
            _ => Guarantee::Within(quantum.bound()),
        };
        Self { quantum, codecs, guarantee }
    }
}

impl<'a> Trial<'a> {
    /// Makes a trial at these levels. The other levels are compared with the first.
    #[must_use]
    pub fn new(case: &PatternCase, levels: &'a [Level]) -> Self {
        let quantum = match case.requirement {
            Requirement::Exact => Some((Quantum::LOSSLESS, Spacing::Widest)),
            Requirement::Within(bound, spacing) => {
                let quantum = Quantum::with_spacing::<f32>(bound, spacing);
                Some((quantum.expect("a positive bound"), spacing))
            }
            Requirement::OfData(_) => None,
        };
        let fixed = quantum.map(|(quantum, spacing)| CodecSet::new(case, levels, quantum, spacing));
        let [values, decoded, again] = [(); 3].map(|()| vec![0.0; BATCH]);
        let (bytes, others) = (Vec::new(), Vec::new());
        Self { case: *case, levels, fixed, values, decoded, again, bytes, others }
    }

    /// Tries the [`BATCH`] patterns that begin at this position. Positions wrap around.
    ///
    /// # Errors
    /// The guarantee that was broken.
    pub fn batch(
        &mut self,
        order: PatternOrder,
        start: u32,
    ) -> Result<PatternTally, PatternFailure> {
        let places = (0..BATCH as u32).map(|i| start.wrapping_add(i));
        for (value, place) in self.values.iter_mut().zip(places) {
            *value = f32::from_bits(order.pattern(place));
        }
        let Self { case, .. } = *self;
        self.try_values().map_err(|what| PatternFailure { case, order, start, what })
    }

    fn try_values(&mut self) -> Result<PatternTally, String> {
        let of_data;
        let target = match (&self.fixed, self.case.requirement) {
            (Some(target), _) => target,
            (None, Requirement::OfData(bound)) => {
                let value_range = ValueRange::of(&self.values);
                let bound = bound.absolute(value_range).map_err(|error| error.to_string())?;
                let quantum = Quantum::new::<f32>(bound).map_err(|error| error.to_string())?;
                of_data = CodecSet::new(&self.case, self.levels, quantum, Spacing::Widest);
                &of_data
            }
            (None, requirement) => return Err(format!("{requirement} has no quantum")),
        };
        let mut levels = self.levels.iter().zip(&target.codecs);
        let Some((first, codec)) = levels.next() else { return Err("no level".into()) };
        let written = round_trip(codec, &self.values, &mut self.bytes, &mut self.decoded)
            .map_err(|error| format!("{first}: {error}"))?;
        for (level, codec) in levels {
            let other = round_trip(codec, &self.values, &mut self.others, &mut self.again)
                .map_err(|error| format!("{level}: {error}"))?;
            if other != written || self.others[..other.n_bytes] != self.bytes[..written.n_bytes] {
                return Err(format!("{level} gives other bytes than {first}"));
            } else if !have_same_bits(&self.again, &self.decoded) {
                return Err(format!("{level} decodes other values than {first}"));
            }
        }
        let seen = target.guarantee.judge(&self.values, &self.decoded);
        if seen.is_broken {
            return Err(first_breach(&target.guarantee, &self.values, &self.decoded));
        }
        let quantum = target.quantum;
        self.check_bound(quantum, seen.squares)?;
        if self.case.codec.is_stable() {
            self.check_stability()?;
        }
        Ok(PatternTally {
            n_values: BATCH as u64,
            n_not_finite: seen.n_not_finite,
            n_changed: seen.n_changed,
            n_bytes: written.n_bytes as u64,
            n_blocks: written.blocks.verbatim,
            n_exceptions: written.blocks.exceptions,
            worst: if quantum.is_lossless() { 0.0 } else { seen.worst / quantum.bound() },
        })
    }

    /// Checks that the quantum keeps the requested bound, as the kind of bound defines it.
    fn check_bound(&self, quantum: Quantum, squares: f64) -> Result<(), String> {
        let finite = self.values.iter().map(|&x| f64::from(x)).filter(|x| x.is_finite());
        let range = || {
            let (min, max) = finite
                .clone()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
            if min <= max { max - min } else { 0.0 }
        };
        let is_kept = match self.case.requirement {
            Requirement::Exact => quantum.is_lossless(),
            Requirement::Within(bound, _) | Requirement::OfData(Bound::Absolute(bound)) => {
                quantum.bound() <= bound
            }
            Requirement::OfData(Bound::Relative(part)) => quantum.bound() <= part * range(),
            Requirement::OfData(Bound::Psnr(db)) => {
                let rms = (squares / finite.clone().count().max(1) as f64).sqrt();
                rms == 0.0 || 20.0 * (range() / rms).log10() >= db
            }
            Requirement::OfData(_) => {
                return Err(format!("the bound {} is of an unknown kind", self.case.requirement));
            }
        };
        if is_kept {
            Ok(())
        } else {
            Err(format!("{quantum:?} does not keep {}", self.case.requirement))
        }
    }

    /// Checks, at the last level, that encoding the decoded values again changes nothing.
    fn check_stability(&mut self) -> Result<(), String> {
        // A bound that depends on the value range gives another lattice the second time.
        let Some(codec) = self.fixed.as_ref().and_then(|target| target.codecs.last()) else {
            return Ok(());
        };
        round_trip(codec, &self.decoded, &mut self.others, &mut self.again)?;
        if have_same_bits(&self.again, &self.decoded) {
            return Ok(());
        }
        let breach = first_breach(&Guarantee::Bits, &self.decoded, &self.again);
        Err(format!("encoding again changes what was decoded: {breach}"))
    }
}

/// Encodes and decodes.
fn round_trip(
    codec: &AnyCodec<f32>,
    values: &[f32],
    bytes: &mut Vec<u8>,
    decoded: &mut [f32],
) -> Result<Written, String> {
    let codec = codec.as_dyn();
    let longest = codec.max_encoded_len(values.len()).ok_or("too long for a payload")?;
    bytes.resize(longest, 0xaa);
    let written = codec.encode(values, bytes).map_err(|error| error.to_string())?;
    let encoded = &bytes[..written.n_bytes];
    codec.decode(encoded, 1, decoded).map_err(|error| error.to_string())?;
    Ok(written)
}

fn have_same_bits(a: &[f32], b: &[f32]) -> bool {
    bytemuck::cast_slice::<f32, u32>(a) == bytemuck::cast_slice::<f32, u32>(b)
}

fn first_breach(guarantee: &Guarantee, before: &[f32], after: &[f32]) -> String {
    let pairs = before.iter().zip(after);
    let is_broken = |x: &f32, y: &f32| guarantee.judge(&[*x], &[*y]).is_broken;
    pairs
        .clone()
        .find(|(x, y)| is_broken(x, y))
        .map_or_else(|| "no value alone breaks it".into(), |(&x, &y)| guarantee.breach(x, y))
}
