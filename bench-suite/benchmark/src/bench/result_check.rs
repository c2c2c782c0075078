//! Comparison of a rank's result with the exact one.

use foldwire::Float;
use foldwire_workbench::data::Data;
use foldwire_workbench::quality::{self, Quality};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::problem::Problem;
use super::runner::bits;

/// Number of values that are compared at a time. The exact result is never stored whole.
const PIECE: usize = 1 << 16;

/// Errors of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ResultCheck {
    /// Largest |result − exact| over values that are finite in exact arithmetic.
    #[serde(with = "bits")]
    pub(super) max_error: f64,
    /// Largest error that the checked call allowed, including rounding; infinite without a limit.
    /// Other calls of an automatic plan may have other limits.
    #[serde(with = "bits")]
    pub(super) allowed: f64,
    /// Values that are NaN or infinite in exact arithmetic, and differ in the result.
    pub(super) mismatched_nonfinite: usize,
    /// The part of `mismatched_nonfinite` that is NaN in exact arithmetic.
    pub(super) lost_nans: usize,
    /// Values whose error exceeds the allowed one, if there is a limit.
    pub(super) n_beyond: usize,
    /// Hash of all bits of the result.
    pub(super) digest: u64,
}

impl ResultCheck {
    /// Compares this rank's `result` with the exact one. Values may differ by up to `allowed`, or
    /// without limit if it is `None`. A value may be infinite or NaN if some order of the operands
    /// overflows the type.
    pub(super) fn of<T: Float + Into<f64>>(
        problem: &Problem,
        data: &Data<T>,
        result: &[T],
        allowed: Option<f64>,
    ) -> Self {
        let digest = xxh3_64(bytemuck::cast_slice(result));
        let limit = allowed.unwrap_or(f64::INFINITY);
        let mut result_check = Self { digest, allowed: limit, ..Self::default() };
        let margin = allowed.filter(|allowed| allowed.is_finite()).unwrap_or_default();
        let most = quality::largest::<T>() - margin;
        let can_overflow = problem.largest_partial(data.magnitude()) > most;
        let mut exact = vec![0.0; result.len().min(PIECE)];
        let mut partials = vec![0.0; if can_overflow { exact.len() } else { 0 }];
        let mut first = problem.result().start;
        for piece in result.chunks(PIECE) {
            let exact = &mut exact[..piece.len()];
            problem.exact(data, first, exact);
            if can_overflow {
                problem.partials(data, first, &mut partials[..piece.len()]);
            }
            let may_overflow = |at: usize| can_overflow && partials[at] > most;
            // Missing values are NaN in exact arithmetic.
            let mut known = piece.to_vec();
            data.forget_missing(&mut known);
            let piece = &known[..];
            let quality = Quality::of_sums(piece, exact, may_overflow);
            result_check.max_error = result_check.max_error.max(quality.max_error);
            result_check.mismatched_nonfinite += quality.mismatched_nonfinite;
            let judged = || {
                let pairs = piece.iter().map(|value| value.to_f64()).zip(exact.iter().copied());
                let is_judged = |at: usize, (value, exact): (f64, f64)| {
                    (value.is_finite() && exact.is_finite()) || !may_overflow(at)
                };
                pairs
                    .enumerate()
                    .filter(move |&(at, pair)| is_judged(at, pair))
                    .map(|(_, pair)| pair)
            };
            if let Some(allowed) = allowed.filter(|&allowed| quality.max_error > allowed) {
                let is_beyond = |&(value, exact): &(f64, f64)| {
                    let off = (value - exact).abs();
                    exact.is_finite() && (off > allowed || off.is_nan())
                };
                result_check.n_beyond += judged().filter(is_beyond).count();
            }
            let is_lost = |&(value, exact): &(f64, f64)| exact.is_nan() && !value.is_nan();
            result_check.lost_nans += judged().filter(is_lost).count();
            first += piece.len();
        }
        result_check
    }

    /// Combines the errors of two results.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            max_error: self.max_error.max(other.max_error),
            allowed: self.allowed.max(other.allowed),
            mismatched_nonfinite: self.mismatched_nonfinite + other.mismatched_nonfinite,
            lost_nans: self.lost_nans + other.lost_nans,
            n_beyond: self.n_beyond + other.n_beyond,
            digest: self.digest.wrapping_mul(31) ^ other.digest,
        }
    }
}

#[cfg(test)]
mod tests {
    use foldwire::Collective;

    use super::*;

    /// 3e38 + 3e38 − 3e38 may be infinite, depending on the order. Sums that cannot overflow are
    /// checked.
    #[test]
    fn sums_that_overflow_by_some_order_break_no_promise() {
        let problem = Problem::sum(Collective::AllReduce, 3, 3, 0);
        // Each rank's data begin one value later.
        let data = Data::new(vec![3e38_f32, 3e38, -3e38], 3, String::new());
        let inf = f32::INFINITY;
        let result_check = ResultCheck::of(&problem, &data, &[inf, f32::NAN, 3e38], Some(1e32));
        assert_eq!(
            ResultCheck { digest: 0, ..result_check },
            ResultCheck { allowed: 1e32, ..ResultCheck::default() }
        );
        let small = Data::new(vec![1e38_f32, 1e38, -1e38], 3, String::new());
        let result_check = ResultCheck::of(&problem, &small, &[inf, f32::NAN, 1e38], Some(1e32));
        assert_eq!((result_check.n_beyond, result_check.max_error), (2, f64::INFINITY));
    }

    #[test]
    fn a_wrong_value_anywhere_is_found() {
        let count = 3 * PIECE + 5;
        let problem = Problem::sum(Collective::AllReduce, count, 2, 0);
        let data = Data::new(vec![1.0_f32, f32::NAN, 3.0, 5.0], 2, String::new());
        // Rank 1's data begin at the third value.
        let mut result: Vec<f32> =
            [4.0, f32::NAN, 4.0, f32::NAN].into_iter().cycle().take(count).collect();
        let result_check = |result: &[f32], allowed: Option<f64>| {
            let result_check = ResultCheck::of(&problem, &data, result, allowed);
            let limit = allowed.unwrap_or(f64::INFINITY);
            assert_eq!(result_check.allowed, limit);
            (result_check.digest, ResultCheck { digest: 0, allowed: 0.0, ..result_check })
        };
        let (digest, right) = result_check(&result, Some(0.0));
        assert_eq!(right, ResultCheck::default());
        result[count - 1] += 0.5;
        result[PIECE + 1] = 6.0;
        let wrong = ResultCheck {
            max_error: 0.5,
            mismatched_nonfinite: 1,
            lost_nans: 1,
            ..ResultCheck::default()
        };
        assert_eq!(result_check(&result, Some(0.5)).1, wrong);
        assert_eq!(result_check(&result, None).1, wrong);
        assert_eq!(
            result_check(&result, Some(0.4)),
            (result_check(&result, None).0, ResultCheck { n_beyond: 1, ..wrong })
        );
        assert_ne!(result_check(&result, None).0, digest);
    }
}
