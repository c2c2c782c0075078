//! Measurements of a codec on one array, and of sums of two compressed arrays.
//!
//! A sum is made in two ways: *by floats* (decompress both arrays, add, compress the sum, each a
//! pass over the whole array), and *homomorphic* (add the encodings). hZCCL compares them.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use foldwire::bound::{ValueRange, rounding};
use foldwire::codec::{Codec, CodecExt, CodecParams, Loss};
use foldwire::{Float, Op};
use foldwire_arguments::coding::CodecArg;
use foldwire_workbench::memory::{self, Stream};
use foldwire_workbench::quality::{Quality, largest};
use foldwire_workbench::threads::Pool;
use serde::Serialize;

use crate::codec::measure::{CombinePaths, instance, repeated};

/// A codec on one array. Speeds are in 1e9 bytes of the array per second.
#[derive(Debug, Serialize)]
pub(super) struct Coding {
    pub(super) encode_gbps: f64,
    pub(super) decode_gbps: f64,
    /// STREAM's rate, on arrays of the same size.
    pub(super) stream_gbps: f64,
    pub(super) ratio: f64,
    #[serde(flatten)]
    pub(super) quality: Quality,
}

impl Coding {
    /// Returns the memory traffic of an operation of this speed, as a share of STREAM's rate.
    /// Counted are the array and its encoding, each once.
    pub(super) fn share_of_stream(&self, gbps: f64) -> f64 {
        gbps * (1.0 + 1.0 / self.ratio) / self.stream_gbps
    }
}

/// One way of adding two encodings.
#[derive(Debug, Serialize)]
pub(super) struct SumResult {
    /// 1e9 bytes of one operand per second.
    pub(super) gbps: f64,
    /// Size of one operand / size of the encoded sum.
    pub(super) ratio: f64,
    #[serde(flatten)]
    pub(super) quality: Quality,
}

/// Sums of two arrays.
#[derive(Debug, Serialize)]
pub(super) struct Sums {
    pub(super) by_floats: SumResult,
    /// `None` for a codec that does not add encodings.
    pub(super) homomorphic: Option<SumResult>,
    pub(super) paths: CombinePaths,
}

/// A codec, its parameters, and how to measure it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodecSetup {
    pub(super) coding: CodecArg,
    pub(super) params: CodecParams,
    /// Absolute bound.
    pub(super) bound: f64,
    /// The threads of `params`.
    pub(super) pool: Pool,
    /// Timed runs; with 0, speeds are NaN.
    pub(super) n_rounds: usize,
}

const CHECKED: &str = "the same was done before";

/// Returns bytes that have been written, so that their pages are mapped.
fn room<T: Float>(codec: &dyn Codec<T>, n_values: usize) -> anyhow::Result<Vec<u8>> {
    let n_bytes = codec.max_encoded_len(n_values);
    Ok(vec![1; n_bytes.ok_or_else(|| anyhow::anyhow!("{n_values} values exceed one frame"))?])
}

impl CodecSetup {
    fn speed(&self, n_bytes: usize, times: &[Duration]) -> f64 {
        if times.is_empty() { f64::NAN } else { memory::gbps(n_bytes, memory::median(times)) }
    }

    /// Returns what is wrong with errors that must be within `n` bounds and the rounding of a sum.
    fn fault<T: Float>(&self, quality: &Quality, n: f64, magnitude: f64) -> Option<String> {
        let allowed = match self.coding.codec.loss() {
            Loss::None => 0.0,
            Loss::Bound => n * self.bound,
            _ => return None,
        };
        let rounding = if n > 1.0 { rounding::<T>(2, magnitude) } else { 0.0 };
        let is_broken = !quality.is_within(allowed + rounding);
        is_broken.then(|| format!("{}: error {:e} > {allowed:e}", self.coding, quality.max_error))
    }

    /// Returns the ratio, and what comes back of the values.
    pub(super) fn decoded<T: Float>(&self, values: &[T]) -> anyhow::Result<(f64, Vec<T>)> {
        let codec = instance::<T>(self.coding, self.params);
        let codec = codec.as_dyn();
        let mut encoded = room(codec, values.len())?;
        let n_bytes = codec.encode(values, &mut encoded)?.n_bytes;
        let mut decoded = values.to_vec();
        codec.decode(&encoded[..n_bytes], 1, &mut decoded)?;
        Ok((size_of_val(values) as f64 / n_bytes as f64, decoded))
    }

    /// Measures encode and decode. A fault is added to `faults`.
    pub(super) fn code<T: Float + Into<f64>>(
        &self,
        values: &[T],
        faults: &mut Vec<String>,
    ) -> anyhow::Result<Coding> {
        let codec = instance::<T>(self.coding, self.params);
        let codec = codec.as_dyn();
        let mut scratch = room(codec, values.len())?;
        let n_bytes = codec.encode(values, &mut scratch)?.n_bytes;
        let encoded = scratch[..n_bytes].to_vec();
        let mut decoded = values.to_vec();
        codec.decode(&encoded, 1, &mut decoded)?;
        let quality = Quality::of(&decoded, values);
        faults.extend(self.fault::<T>(&quality, 1.0, 0.0));
        let size = size_of_val(values);
        let mut coding = Coding {
            encode_gbps: f64::NAN,
            decode_gbps: f64::NAN,
            stream_gbps: f64::NAN,
            ratio: size as f64 / n_bytes as f64,
            quality,
        };
        if self.n_rounds > 0 {
            let stream = RefCell::new(Stream::new(size, self.pool));
            let mut encode = repeated(|| {
                black_box(codec.encode(black_box(values), &mut scratch).expect(CHECKED));
            });
            let mut decode = repeated(|| {
                codec.decode(black_box(&encoded), 1, &mut decoded).expect(CHECKED);
                black_box(&decoded);
            });
            let mut copy = || stream.borrow_mut().copy();
            let mut triad = || stream.borrow_mut().triad();
            let contenders: &mut [memory::Contender<'_>] =
                &mut [&mut encode, &mut decode, &mut copy, &mut triad];
            let times = memory::alternate(self.n_rounds, contenders);
            coding.encode_gbps = self.speed(size, &times[0]);
            coding.decode_gbps = self.speed(size, &times[1]);
            let [copy, triad] = [&times[2], &times[3]].map(|times| memory::median(times));
            coding.stream_gbps = stream.borrow().gbps(copy, triad);
        }
        Ok(coding)
    }

    /// Measures both ways of adding. Faults are added to `faults`.
    pub(super) fn add<T: Float + Into<f64>>(
        &self,
        [own, other]: [&[T]; 2],
        faults: &mut Vec<String>,
    ) -> anyhow::Result<Sums> {
        let codec = instance::<T>(self.coding, self.params);
        let codec = codec.as_dyn();
        let size = size_of_val(own);
        let mut scratch = room(codec, own.len())?;
        let mut encodings = Vec::new();
        for values in [own, other] {
            let n_bytes = codec.encode(values, &mut scratch)?.n_bytes;
            encodings.push(scratch[..n_bytes].to_vec());
        }
        let (first, second) = (&encodings[0][..], &encodings[1][..]);
        let exact: Vec<f64> =
            own.iter().zip(other).map(|(&x, &y)| x.to_f64() + y.to_f64()).collect();
        let most = largest::<T>() - 3.0 * self.bound;
        let may_overflow = |at: usize| {
            let (x, y): (f64, f64) = (own[at].into(), other[at].into());
            x.is_finite() && y.is_finite() && x.abs() + y.abs() > most
        };
        let magnitudes = [own, other]
            .map(|values| ValueRange::of(values).map_or(0.0, ValueRange::magnitude) + self.bound);
        let magnitude = magnitudes[0] + magnitudes[1];
        let mut sum = own.to_vec();
        let mut addend = own.to_vec();
        let mut check = |encoded: &[u8], n: f64, sum: &mut [T]| -> anyhow::Result<SumResult> {
            codec.decode(encoded, 1, sum)?;
            let quality = Quality::of_sums(sum, &exact, may_overflow);
            faults.extend(self.fault::<T>(&quality, n, magnitude));
            Ok(SumResult { gbps: f64::NAN, ratio: size as f64 / encoded.len() as f64, quality })
        };

        let by_floats = |sum: &mut [T], addend: &mut [T], dst: &mut [u8]| {
            codec.decode(black_box(first), 1, sum)?;
            codec.decode(black_box(second), 1, addend)?;
            self.add_floats(sum, addend);
            codec.encode(sum, dst)
        };
        let n_bytes = by_floats(&mut sum, &mut addend, &mut scratch)?.n_bytes;
        // Each operand and the sum are rounded once.
        let mut sums = Sums {
            by_floats: check(&scratch[..n_bytes], 3.0, &mut sum)?,
            homomorphic: None,
            paths: CombinePaths::default(),
        };
        if let Some(codec) = codec.homomorphic() {
            let written = codec.combine(&Op::Sum, first, second, &mut scratch)?;
            sums.homomorphic = Some(check(&scratch[..written.n_bytes], 2.0, &mut sum)?);
            sums.paths = written.blocks.into();
        }
        if self.n_rounds > 0 {
            let scratch = RefCell::new(scratch);
            let mut floats = repeated(|| {
                let dst = &mut scratch.borrow_mut()[..];
                black_box(by_floats(&mut sum, &mut addend, dst).expect(CHECKED));
            });
            let mut combine = repeated(|| {
                let Some(codec) = codec.homomorphic() else { return };
                let dst = &mut scratch.borrow_mut()[..];
                let sources = (black_box(first), black_box(second));
                black_box(codec.combine(&Op::Sum, sources.0, sources.1, dst).expect(CHECKED));
            });
            let times = memory::alternate(self.n_rounds, &mut [&mut floats, &mut combine]);
            sums.by_floats.gbps = self.speed(size, &times[0]);
            if let Some(homomorphic) = &mut sums.homomorphic {
                homomorphic.gbps = self.speed(size, &times[1]);
            }
        }
        Ok(sums)
    }

    /// Adds `addend` to `sum`.
    fn add_floats<T: Float>(&self, sum: &mut [T], addend: &[T]) {
        let n_each = sum.len().div_ceil(self.pool.n_threads()).max(1);
        let pieces = sum.chunks_mut(n_each).zip(addend.chunks(n_each));
        self.pool.on_each(pieces, |(sum, addend)| {
            for (sum, &x) in sum.iter_mut().zip(addend) {
                *sum = T::from_f64(sum.to_f64() + x.to_f64());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::Bound;

    fn setup(coding: &str, bound: f64, n_rounds: usize) -> CodecSetup {
        let quantum = Bound::Absolute(bound).quantum::<f32>(None).unwrap();
        let params = CodecParams::new(quantum);
        let pool = Pool::new(2).unwrap();
        CodecSetup { coding: coding.parse().unwrap(), params, bound, pool, n_rounds }
    }

    #[test]
    fn both_sums_are_right_and_counted_by_paths() {
        let own: Vec<f32> = (0..8192_u16).map(|i| (f32::from(i) * 1e-2).sin()).collect();
        let other: Vec<f32> =
            own.iter().enumerate().map(|(i, &x)| if i < 4096 { 0.0 } else { x }).collect();
        let mut faults = Vec::new();
        for coding in ["fz-light", "szx"] {
            let sums = setup(coding, 1e-3, 1).add([&own, &other], &mut faults).unwrap();
            assert!(sums.by_floats.quality.max_error <= 3.1e-3 && sums.by_floats.gbps > 0.0);
            let Some(homomorphic) = sums.homomorphic else {
                assert_eq!(coding, "szx");
                continue;
            };
            assert!(homomorphic.quality.max_error <= 2.1e-3 && homomorphic.gbps > 0.0);
            let [both, left, right, neither] = sums.paths.shares().unwrap();
            assert!((left, neither) == (0.5, 0.5) && both == 0.0 && right == 0.0);
        }
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn without_rounds_nothing_is_timed_and_errors_beyond_the_bound_are_faults() {
        let values: Vec<f32> = (0..5000_u16).map(|i| f32::from(i).sqrt()).collect();
        let mut faults = Vec::new();
        let coding = setup("fz-light", 1e-2, 0).code(&values, &mut faults).unwrap();
        assert!(coding.encode_gbps.is_nan() && coding.ratio > 1.0 && faults.is_empty());
        let lax = CodecSetup { bound: 1e-3, ..setup("fz-light", 1e-2, 0) };
        lax.code(&values, &mut faults).unwrap();
        assert!(faults.len() == 1 && faults[0].contains("fz-light"), "{faults:?}");
    }

    #[test]
    fn a_share_of_stream_counts_both_arrays() {
        let quality = Quality::of(&[0.0_f32], &[0.0]);
        let coding =
            Coding { encode_gbps: 8.0, decode_gbps: 4.0, stream_gbps: 20.0, ratio: 4.0, quality };
        assert_eq!([8.0, 4.0].map(|gbps| coding.share_of_stream(gbps)), [0.5, 0.25]);
    }
}
