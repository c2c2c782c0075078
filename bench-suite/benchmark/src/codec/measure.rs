//! Measurement of one codec on one field at one bound: checks every value, then times every
//! operation.
//!
//! The field is one operand. The other operand is the field rotated by half its length. So both
//! have the same statistics and value range, but corresponding blocks differ.
//!
//! - `fold` adds the field to the encoding of the other operand, in the codec's own way.
//! - `refold` does the same by decompressing, adding and compressing.
//! - `combine` adds the two encodings.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use foldwire::codec::{AnyCodec, BlockStats, Codec, CodecError, CodecExt, CodecParams, Loss};
use foldwire::{Float, Op, Quantum};
use foldwire_arguments::coding::CodecArg;
use foldwire_workbench::infinite;
use foldwire_workbench::memory::{self, Memcpy};
use foldwire_workbench::quality::{self, Quality};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

/// Number of operands whose sum codes must be able to represent, as in a call of this many ranks.
const MAX_OPERANDS: u32 = 8;

/// Least duration of a timing. Shorter work is repeated, because the clock's resolution and
/// interrupts would distort its time.
const SHORTEST_TIMING: Duration = Duration::from_millis(2);

/// Results of a measurement. Speeds are in 1e9 bytes of the field per second.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct CodecMeasurements {
    /// Size of the encoding.
    pub(super) encoded_bytes: usize,
    /// Size of the field over size of the encoding.
    pub(super) ratio: f64,
    pub(super) encode_gbps: f64,
    pub(super) decode_gbps: f64,
    pub(super) fold_gbps: f64,
    /// Speed of decompressing, adding and compressing.
    pub(super) refold_gbps: f64,
    /// `None` for a codec that does not combine its encodings.
    pub(super) combine_gbps: Option<f64>,
    pub(super) memcpy_gbps: f64,
    pub(super) read_gbps: f64,
    /// Largest |x − decoded| of finite values, divided by the bound, also for a codec that keeps no
    /// bound; 0 if no value changed.
    #[serde(serialize_with = "infinite::serialize")]
    pub(super) max_err_over_bound: f64,
    /// Peak signal-to-noise ratio; `None` if no value changed or all values are equal.
    pub(super) psnr_db: Option<f64>,
    /// Root mean square error / value range.
    pub(super) nrmse: Option<f64>,
    /// Blocks that were stored unchanged.
    pub(super) verbatim_blocks: u64,
    pub(super) values_over_bound: usize,
    /// NaNs and infinities whose bits changed.
    pub(super) mismatched_nonfinite: usize,
    /// Block pairs that `combine` processed.
    pub(super) paths: CombinePaths,
    /// Sums of two operands whose error exceeds twice the bound plus rounding.
    #[serde(skip)]
    pub(super) sums_over_bound: usize,
    /// True if `fold` and `combine` returned different bytes.
    #[serde(skip)]
    pub(super) fold_differs: bool,
    /// Hash of all bytes that were encoded, folded and combined, the same for every level.
    #[serde(skip)]
    pub(super) digest: u64,
}

/// Numbers of block pairs, by which of the two blocks are constant. `left` and `right` count pairs
/// in which only that block is not constant.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct CombinePaths {
    both_constant: u64,
    left: u64,
    right: u64,
    neither_constant: u64,
}

impl CombinePaths {
    /// Returns the fractions of pairs on each path: both blocks constant, only the left one not
    /// constant, only the right one, neither constant. `None` if nothing was combined.
    pub(crate) fn shares(self) -> Option<[f64; 4]> {
        let of = [self.both_constant, self.left, self.right, self.neither_constant];
        let all: u64 = of.iter().sum();
        (all > 0).then(|| of.map(|n| n as f64 / all as f64))
    }
}

impl From<BlockStats> for CombinePaths {
    fn from(blocks: BlockStats) -> Self {
        let BlockStats { both_constant, left, right, neither_constant, .. } = blocks;
        Self { both_constant, left, right, neither_constant }
    }
}

impl CodecMeasurements {
    /// Returns descriptions of the guarantees that were broken.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut count = |n: usize, what: &str| {
            if n > 0 {
                faults.push(format!("{n} {what}"));
            }
        };
        count(
            self.values_over_bound,
            &format!("values beyond the bound, by up to {:.6} of it", self.max_err_over_bound),
        );
        count(self.mismatched_nonfinite, "NaNs or infinities that did not come back as they were");
        count(self.sums_over_bound, "sums of two operands beyond twice the bound");
        if self.fold_differs {
            faults.push("fold and combine gave different bytes".to_owned());
        }
        faults
    }
}

/// A field and the buffers for measurements. All their pages are mapped.
pub(super) struct CodecBench<'a, T> {
    pub(super) values: &'a [T],
    pub(super) rotated: Vec<T>,
    pub(super) decoded: Vec<T>,
    memcpy: Memcpy<'a, T>,
    /// Destination of every encoding.
    pub(super) scratch: Vec<u8>,
    pub(super) n_rounds: usize,
}

impl<'a, T: Float + Into<f64>> CodecBench<'a, T> {
    /// Returns the largest number of bytes that measuring these codecs needs in addition to the
    /// field. These are three arrays of the same length, the scratch buffer, and encodings of both
    /// operands and their sum. Returns `None` if one frame cannot hold the values.
    pub(super) fn n_bytes(n_values: usize, codings: &[CodecArg]) -> Option<u128> {
        let longest = max_encoded_len::<T>(n_values, codings)?;
        Some(3 * (n_values * T::BYTES) as u128 + 4 * longest as u128)
    }

    /// Allocates the buffers. Each operation is timed `n_rounds` times, and the median is used.
    ///
    /// # Panics
    ///
    /// If one frame cannot hold the values.
    pub(super) fn new(values: &'a [T], codings: &[CodecArg], n_rounds: usize) -> Self {
        let mut rotated = values.to_vec();
        rotated.rotate_left(values.len() / 2);
        let max_len = max_encoded_len::<T>(values.len(), codings);
        let (decoded, memcpy) = (values.to_vec(), Memcpy::new(values));
        // Not zeros: the system maps zeroed memory only when it is first written.
        let scratch = vec![1; max_len.expect("the caller has checked the length")];
        Self { values, rotated, decoded, memcpy, scratch, n_rounds }
    }

    /// Checks and times the codec with these parameters. `bound` is in the unit of the data.
    pub(super) fn run(
        &mut self,
        coding: CodecArg,
        bound: f64,
        params: CodecParams,
    ) -> Result<CodecMeasurements, CodecError> {
        let codec = instance::<T>(coding, params);
        let codec = codec.as_dyn();
        let [own, other] = self.encoded(codec)?;
        let mut measured = self.check(codec, bound, &own, &other)?;
        self.time(codec, &own, &other, &mut measured);
        Ok(measured)
    }

    /// Checks the codec like [`run`](Self::run), but does not time it.
    pub(super) fn check_only(
        &mut self,
        coding: CodecArg,
        bound: f64,
        params: CodecParams,
    ) -> Result<CodecMeasurements, CodecError> {
        let codec = instance::<T>(coding, params);
        let [own, other] = self.encoded(codec.as_dyn())?;
        self.check(codec.as_dyn(), bound, &own, &other)
    }

    /// Returns the encodings of the field and of the other operand.
    pub(super) fn encoded(&mut self, codec: &dyn Codec<T>) -> Result<[Vec<u8>; 2], CodecError> {
        let n_bytes = codec.encode(self.values, &mut self.scratch)?.n_bytes;
        let own = self.scratch[..n_bytes].to_vec();
        let n_bytes = codec.encode(&self.rotated, &mut self.scratch)?.n_bytes;
        Ok([own, self.scratch[..n_bytes].to_vec()])
    }

    /// Checks the codec, and returns all measurements except the speeds. `own` and `other` are the
    /// encodings of the field and of the other operand.
    pub(super) fn check(
        &mut self,
        codec: &dyn Codec<T>,
        bound: f64,
        own: &[u8],
        other: &[u8],
    ) -> Result<CodecMeasurements, CodecError> {
        let Self { values, rotated, decoded, scratch, .. } = self;
        let allowed = match codec.id().loss() {
            Loss::None => 0.0,
            Loss::Bound => bound,
            _ => f64::INFINITY,
        };
        let written = codec.encode(values, scratch)?;
        codec.decode(own, 1, decoded)?;
        let quality = Quality::of(decoded, values);
        let pairs = || values.iter().zip(&*decoded).map(|(&x, &y)| (x, y));
        let differs = |x: &T, y: &T| bytemuck::bytes_of(x) != bytemuck::bytes_of(y);
        let is_exact = codec.id().is_exact();
        // The sign of a zero counts, too.
        let is_over = |x: &T, y: &T| if is_exact { differs(x, y) } else { error(*x, *y) > allowed };
        let over = |(x, y): &(T, T)| x.to_f64().is_finite() && is_over(x, y);
        let changed = |(x, y): &(T, T)| !x.to_f64().is_finite() && differs(x, y);
        let mut measured = CodecMeasurements {
            encoded_bytes: own.len(),
            ratio: size_of_val(*values) as f64 / own.len() as f64,
            max_err_over_bound: match quality.max_error {
                0.0 => 0.0,
                error => error / bound,
            },
            psnr_db: quality.psnr_db,
            nrmse: quality.nrmse,
            verbatim_blocks: written.blocks.verbatim,
            values_over_bound: pairs().filter(over).count(),
            mismatched_nonfinite: pairs().filter(changed).count(),
            ..CodecMeasurements::default()
        };

        let folded = codec.fold(&Op::Sum, other, values, scratch)?;
        let folded = scratch[..folded.n_bytes].to_vec();
        codec.decode(&folded, 1, decoded)?;
        let operands = values.iter().zip(&*rotated);
        let is_off = |&((&x, &y), &sum): &((&T, &T), &T)| !is_sum(sum, x, y, allowed);
        measured.sums_over_bound = operands.zip(&*decoded).filter(is_off).count();
        let mut combined = &folded[..];
        if let Some(codec) = codec.homomorphic() {
            let written = codec.combine(&Op::Sum, other, own, scratch)?;
            measured.paths = written.blocks.into();
            combined = &scratch[..written.n_bytes];
            measured.fold_differs = folded != combined;
        }
        measured.digest = [own, &folded, combined]
            .iter()
            .fold(0, |all: u64, &one| all.rotate_left(1) ^ xxh3_64(one));
        Ok(measured)
    }

    /// Fills in the speeds.
    fn time(
        &mut self,
        codec: &dyn Codec<T>,
        own: &[u8],
        other: &[u8],
        measured: &mut CodecMeasurements,
    ) {
        const CHECKED: &str = "the check has done the same";
        let Self { values, decoded, memcpy, scratch, .. } = self;
        let scratch = RefCell::new(scratch);
        let mut encode = repeated(|| {
            let dst = &mut scratch.borrow_mut()[..];
            black_box(codec.encode(black_box(values), dst).expect(CHECKED));
        });
        let mut decode = repeated(|| {
            codec.decode(black_box(own), 1, decoded).expect(CHECKED);
            black_box(&*decoded);
        });
        let mut fold = repeated(|| {
            let dst = &mut scratch.borrow_mut()[..];
            black_box(codec.fold(&Op::Sum, black_box(other), values, dst).expect(CHECKED));
        });
        let mut refold = repeated(|| {
            let dst = &mut scratch.borrow_mut()[..];
            black_box(codec.refold(&Op::Sum, black_box(other), values, dst).expect(CHECKED));
        });
        let mut combine = repeated(|| {
            let Some(codec) = codec.homomorphic() else { return };
            let dst = &mut scratch.borrow_mut()[..];
            black_box(codec.combine(&Op::Sum, black_box(other), own, dst).expect(CHECKED));
        });
        let mut copy = repeated(|| {
            memcpy.run();
        });
        let mut read = repeated(|| {
            memory::read(values);
        });
        let times = memory::alternate(
            self.n_rounds,
            &mut [
                &mut encode,
                &mut decode,
                &mut fold,
                &mut refold,
                &mut combine,
                &mut copy,
                &mut read,
            ],
        );
        let gbps = |at: usize| memory::gbps(size_of_val(*values), memory::median(&times[at]));
        measured.encode_gbps = gbps(0);
        measured.decode_gbps = gbps(1);
        measured.fold_gbps = gbps(2);
        measured.refold_gbps = gbps(3);
        measured.combine_gbps = codec.homomorphic().map(|_| gbps(4));
        measured.memcpy_gbps = gbps(5);
        measured.read_gbps = gbps(6);
    }
}

/// Returns the number of threads that share the work on `n_values` values.
pub(super) fn n_threads<T: Float>(coding: CodecArg, params: CodecParams, n_values: usize) -> usize {
    instance::<T>(coding, params).as_dyn().n_threads(n_values)
}

/// Returns the codec with these parameters and the setting that `coding` holds.
pub(crate) fn instance<T: Float>(coding: CodecArg, params: CodecParams) -> AnyCodec<T> {
    coding.codec.instance(&params_of(coding, params))
}

/// Returns these parameters with the setting that `coding` holds, and room for sums.
pub(super) fn params_of(coding: CodecArg, params: CodecParams) -> CodecParams {
    coding.of_params(params).for_sums_of(MAX_OPERANDS)
}

/// Returns the longest encoding by one of these codecs, or `None` if one frame cannot hold it.
fn max_encoded_len<T: Float>(n_values: usize, codings: &[CodecArg]) -> Option<usize> {
    let mut lengths = codings.iter().filter(|coding| coding.is_for(T::DTYPE)).map(|coding| {
        let params = coding.of_params(CodecParams::new(Quantum::LOSSLESS));
        coding.codec.instance::<T>(&params).as_dyn().max_encoded_len(n_values)
    });
    lengths.try_fold(0, |longest, length| Some(longest.max(length?)))
}

/// Returns a function that times `work`, averaged over enough runs to last [`SHORTEST_TIMING`].
pub(crate) fn repeated(mut work: impl FnMut()) -> impl FnMut() -> Duration {
    let mut once = memory::time(&mut work);
    for _ in 0..2 {
        // Long work need not be timed again.
        once = if once < SHORTEST_TIMING { once.min(memory::time(&mut work)) } else { once };
    }
    let n_runs = SHORTEST_TIMING.as_nanos().div_ceil(once.as_nanos().max(1)) as u32;
    move || memory::time(|| (0..n_runs).for_each(|_| work())) / n_runs
}

/// Returns |value − exact|, or infinity if the value is not finite.
fn error<T: Float>(exact: T, value: T) -> f64 {
    let value = value.to_f64();
    if value.is_finite() { (value - exact.to_f64()).abs() } else { f64::INFINITY }
}

/// Returns whether `sum` is x + y within twice the bound plus rounding.
///
/// There are four rounding errors: in `T` of both operands and of the sum, and in f64 of the exact
/// sum computed here. Together they are less than 4 u (|x| + |y| + 2·bound), with the unit roundoff
/// u of `T`. A sum that may exceed the range of `T` may be infinite.
fn is_sum<T: Float>(sum: T, x: T, y: T, bound: f64) -> bool {
    let (sum, x, y) = (sum.to_f64(), x.to_f64(), y.to_f64());
    if !(x.is_finite() && y.is_finite()) {
        let exact = x + y;
        return sum == exact || (sum.is_nan() && exact.is_nan());
    }
    // Everything is halved, because the sum of two very large values exceeds the range of f64.
    let exact = x / 2.0 + y / 2.0;
    let off = bound + 4.0 * T::UNIT_ROUNDOFF * (x.abs() / 2.0 + y.abs() / 2.0 + bound);
    if sum.is_infinite() {
        // An infinite sum must have the right sign, unless every value is allowed.
        let is_beyond = exact.abs() + off >= quality::largest::<T>() / 2.0;
        return is_beyond
            && (sum.is_sign_positive() == exact.is_sign_positive() || off.is_infinite());
    }
    sum == T::from_f64(x + y).to_f64() || (sum / 2.0 - exact).abs() <= off
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::DType;
    use foldwire::codec::CodecId;
    use foldwire::kernel::Level;

    #[test]
    fn a_field_with_everything_in_it_is_measured_and_keeps_its_promises() {
        let mut values: Vec<f32> = (0..10_001_u16).map(|i| (f32::from(i) * 1e-3).sin()).collect();
        values[77] = f32::from_bits(0x7fc0_1234);
        values[5000] = f32::NEG_INFINITY;
        values[9000..9100].fill(9.969_21e36);
        let codings: Vec<CodecArg> = CodecArg::all().collect();
        let mut bench = CodecBench::new(&values, &codings, 1);
        let params = CodecParams::new(Quantum::new::<f32>(1e-3).unwrap());
        for coding in codings.into_iter().filter(|coding| coding.is_for(DType::F32)) {
            for level in Level::available() {
                let measured = bench.run(coding, 1e-3, params.at(level)).unwrap();
                let context = format!("{coding} at {level}: {measured:?}");
                assert!(measured.faults().is_empty(), "{context}");
                assert!(measured.encode_gbps > 0.0 && measured.read_gbps > 0.0, "{context}");
                let is_exact = coding.codec.loss() == Loss::None;
                assert_eq!(measured.max_err_over_bound == 0.0, is_exact, "{context}");
                if coding.codec == CodecId::FzLight {
                    assert!(measured.ratio > 1.0 && measured.verbatim_blocks >= 5, "{context}");
                    assert!(measured.max_err_over_bound > 0.5, "{context}");
                }
            }
        }
    }

    #[test]
    fn a_constant_field_comes_back_as_it_was() {
        let codings: Vec<CodecArg> = "fz-light".parse().into_iter().collect();
        let mut bench = CodecBench::new(&[2.5_f64; 100], &codings, 1);
        let measured = bench.run(codings[0], 0.0, CodecParams::new(Quantum::LOSSLESS)).unwrap();
        assert!(measured.faults().is_empty());
        assert_eq!((measured.max_err_over_bound, measured.psnr_db), (0.0, None));
    }

    #[test]
    fn sums_may_be_off_by_two_bounds_and_rounding() {
        assert!(is_sum(3.2_f32, 1.0, 2.0, 0.1));
        assert!(!is_sum(3.201_f32, 1.0, 2.0, 0.1));
        assert!(is_sum(f32::INFINITY, 3e38, 3e38, 0.1));
        // The exact sum is just within the range, and the allowed error extends beyond it; and the
        // converse.
        assert!(
            is_sum(f32::INFINITY, 2e38, 1.4e38, 1e37) && is_sum(3.3e38_f32, 2e38, 1.5e38, 1e37)
        );
        assert!(
            !is_sum(f32::NEG_INFINITY, 3e38, 3e38, 0.1) && !is_sum(f32::INFINITY, 2e38, 1e38, 1.0)
        );
        assert!(
            is_sum(f64::INFINITY, 1.7e308, 1.7e308, 1.0)
                && !is_sum(f64::NAN, 1.7e308, 1.7e308, 1.0)
        );
        assert!(is_sum(f64::MAX, 1e308, 8e307, 1e306));
        assert!(is_sum(f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1));
        assert!(!is_sum(0.0, f64::NAN, 0.0, 0.1) && !is_sum(f64::NAN, 1.0, 2.0, 0.1));
        assert!(!is_sum(f64::MAX, f64::INFINITY, 0.0, 0.1));
    }

    #[test]
    fn short_work_is_repeated() {
        let mut n_runs = 0;
        repeated(|| n_runs += 1)();
        assert!(n_runs > 1000, "{n_runs}");
    }
}
