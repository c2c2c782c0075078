//! Expected results of reductions, in `f64`, and their allowed errors. It implements
//! docs/guarantees.md independently of the library. Sections and tables named here are in that
//! document.

use crate::Case;
use crate::case::Operation;
use foldwire::codec::CodecId;
use foldwire::pipeline::{FUSED, HOMOMORPHIC, RAW};
use foldwire::{Bound, Collective, DType, Float, Rounding};

/// Returns the exact reduction of one value of every rank (up to `f64` rounding).
#[must_use]
pub fn reduce(op: Operation, operands: &[f64]) -> f64 {
    let n = operands.len() as f64;
    let fold = |f: fn(f64, f64) -> f64| operands[1..].iter().fold(operands[0], |a, &b| f(a, b));
    let ordered = |f: fn(f64, f64) -> f64| {
        if operands.iter().any(|x| x.is_nan()) { f64::NAN } else { fold(f) }
    };
    match op {
        Operation::Sum => fold(|a, b| a + b),
        Operation::Avg => fold(|a, b| a + b) / n,
        Operation::Min => ordered(f64::min),
        Operation::Max => ordered(f64::max),
        Operation::Prod => fold(|a, b| a * b),
        Operation::Norm => fold(f64::hypot),
    }
}

/// Returns the absolute bound on an operand (section 3). `contributed` holds the input of all
/// ranks.
///
/// # Panics
/// If the oracle does not know the kind of bound.
#[must_use]
pub fn absolute(bound: Bound, contributed: impl Iterator<Item = f64>) -> f64 {
    let finite = contributed.filter(|x| x.is_finite());
    let (min, max) = finite.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
    // The range may overflow to infinity, and without finite values it is negative: clamp it.
    let range = (max - min).clamp(0.0, f64::MAX);
    match bound {
        Bound::Absolute(bound) => bound,
        Bound::Relative(fraction) => fraction * range,
        Bound::Psnr(decibels) => range * 10f64.powf(-decibels / 20.0),
        other => panic!("the oracle does not know {other:?}"),
    }
}

/// Returns the case's entry of table E in section 2: the number of encodings whose errors add up in
/// a sum, in pipelines that keep floats. Each error is at most the bound of an operand.
///
/// # Panics
/// If the schedule is not in the table.
#[must_use]
pub fn encodings_of(case: &Case) -> u64 {
    let (n, k) = (case.size as u64, case.per_node as u64);
    let is_sum = !matches!(case.op, Operation::Min | Operation::Max);
    // A node encodes the sum of its k operands, so the error may be k times as large.
    let times = if is_sum { k } else { 1 };
    let has_levels = case.schedule.name() == "two-levels" && 1 < k && k < n && n.is_multiple_of(k);
    let n_encodings = match case.collective {
        Collective::AllReduce | Collective::Reduce if has_levels => n / k * times,
        Collective::ReduceScatter if has_levels => (n / k - 1) * times,
        collective => encodings(case.schedule.name(), collective, n),
    };
    // With rounding before the call, all n operands have an error, even those that are never
    // encoded.
    if case.rounding == Rounding::Nearest { n_encodings } else { n_encodings.max(n) }
}

/// Returns the entry of table E for a schedule on `n` ranks, if the node layout is unknown.
///
/// # Panics
/// If the schedule is not in the table.
#[must_use]
pub fn encodings(schedule: &str, collective: Collective, n: u64) -> u64 {
    match (schedule, collective) {
        (
            "ring" | "pairwise" | "circulant" | "two-levels" | "double-tree" | "recursive-halving",
            Collective::AllReduce,
        ) => n,
        ("ring" | "pairwise" | "circulant" | "two-levels", Collective::ReduceScatter) => n - 1,
        // If n is no power of two, the host of a surplus rank (its guest) encodes that rank's part
        // once more.
        ("recursive-halving", Collective::ReduceScatter) => n - u64::from(n.is_power_of_two()),
        ("reduce-scatter-gather", _) => n,
        ("recursive-doubling", Collective::AllReduce) => {
            let core = (0..).map(|k| 1 << k).take_while(|&core| core <= n).max().unwrap_or(1);
            let guests = n - core;
            guests + 2 * (core - 1) + u64::from(guests > 0)
        }
        ("binomial" | "chain" | "double-tree" | "two-levels", Collective::Reduce)
        | ("chain", Collective::Scan | Collective::ExclusiveScan) => n - 1,
        ("prefix-doubling", _) => {
            let rounds = (0..).find(|rounds| 1 << rounds >= n).unwrap_or(0);
            2 * (1 << rounds) - 1
        }
        (schedule, collective) => panic!("no {} by {schedule} in the table", collective.name()),
    }
}

/// Returns the case's entry of the first table in section 2: the worst error of a lossy call, as a
/// multiple of the bound on an operand. `None` if the table has no worst case.
#[must_use]
pub fn error_terms(case: &Case) -> Option<f64> {
    let codec = case.coding();
    let keeps_frames = [RAW, HOMOMORPHIC, FUSED].contains(&case.pipeline) && combines(codec);
    let n = case.size as u64;
    if n == 1 {
        return Some(0.0);
    }
    if !case.collective.reduces() {
        return Some(1.0);
    }
    let of_sum = || if keeps_frames { n } else { encodings_of(case) };
    match case.op {
        Operation::Min | Operation::Max if is_stable(codec) => Some(1.0),
        Operation::Min | Operation::Max | Operation::Sum => Some(of_sum() as f64),
        Operation::Avg => Some(of_sum() as f64 / n as f64),
        Operation::Prod | Operation::Norm => None,
    }
}

/// Returns whether the codec's frames are combined without decoding.
fn combines(codec: CodecId) -> bool {
    matches!(codec.name(), "raw" | "fz-light" | "fz-static" | "dense" | "fz-nd")
}

/// Returns whether a decoded value does not change if it is encoded again.
fn is_stable(codec: CodecId) -> bool {
    !matches!(codec.name(), "szx" | "zfp-rate" | "zfp-abs")
}

/// Returns the largest error of a codec that keeps no bound, at its default setting, relative to
/// the largest value.
///
/// # Panics
/// If the codec is not in the table.
#[must_use]
pub fn lost(codec: CodecId, dtype: DType) -> f64 {
    match (codec.name(), dtype) {
        ("truncate" | "truncate-xor", DType::F32) => 2f64.powi(16 - 23),
        ("truncate" | "truncate-xor", _) => 2f64.powi(32 - 52),
        ("demote", _) => 2f64.powi(-24),
        // The largest errors found are 0.27 for `f32` and 0.47 for `f64`. A block of 4 values has
        // 32 bits, and the exponent takes 9 or 12 of them.
        ("zfp-rate", DType::F32) => 0.3,
        ("zfp-rate", _) => 0.5,
        (name, _) => panic!("no {name} in the table"),
    }
}

/// Returns the allowed error of a result: the codec's share and the rounding of `T`.
///
/// `bound` is the bound on each operand, and `worst_case` the product of bound and [`error_terms`],
/// if there is one. `encodings` is the number of lossy encodings that can add up.
#[must_use]
pub fn tolerance<T: Float>(
    op: Operation,
    operands: &[f64],
    bound: f64,
    worst_case: Option<f64>,
    encodings: f64,
) -> f64 {
    let n = operands.len() as f64;
    let magnitude: f64 = operands.iter().map(|x| x.abs()).sum();
    let rounding = 2.0 * (n + 4.0) * T::UNIT_ROUNDOFF;
    match op {
        Operation::Sum => worst_case.unwrap_or(f64::NAN) + rounding * magnitude,
        Operation::Avg => {
            let underflow = (2.0 * n + 1.0) * T::SMALLEST;
            worst_case.unwrap_or(f64::NAN) + rounding * magnitude / n + underflow
        }
        Operation::Min | Operation::Max => {
            worst_case.unwrap_or(f64::NAN)
                + 2.0 * T::UNIT_ROUNDOFF * operands.iter().fold(0.0, |m, x| x.abs().max(m))
        }
        // The norm changes by at most the change of an operand, so errors add.
        Operation::Norm => encodings * bound + rounding * magnitude,
        // |Π(x+e) − Πx| ≤ Π(|x|+|e|) − Π|x|. Each encoding of a partial product adds an error e, and
        // the later factors multiply that e by at most their product.
        Operation::Prod => {
            let product: f64 = operands.iter().map(|x| x.abs().max(1.0)).product();
            let off: f64 = operands.iter().map(|x| x.abs().max(1.0) + bound).product();
            (off - product) + encodings * bound * off + rounding * off
        }
    }
}
