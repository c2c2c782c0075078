//! Errors of a result against the exact one: largest error, PSNR, NRMSE.
//!
//! The formulas use the n points with a finite reference, and the value range of the reference over
//! these points:
//!
//! ```text
//! rmse  = √(Σ(result − exact)² / n)
//! NRMSE = rmse / range
//! PSNR  = 20·log10(range / rmse) dB
//! ```
//!
//! Points with a NaN or infinite reference have no error. The result must be the same kind of value
//! there, or else the point counts as a mismatch. Sums whose intermediate results overflow may be
//! infinite or NaN, depending on the order of additions. They are counted separately, because no
//! bound covers them.

use foldwire::Float;
use serde::Serialize;

use crate::infinite;

/// Errors of a result against an exact reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quality {
    /// Largest |result − exact|. Infinite if a result is not finite although the reference is.
    ///
    /// Exception: if the reference is beyond the range of the result's type, infinity is the
    /// correct result.
    #[serde(rename = "max_err", serialize_with = "infinite::serialize")]
    pub max_error: f64,
    /// Peak signal-to-noise ratio in dB. `None` if there is no error (it would be infinite), if the
    /// root mean square error is infinite, or if the reference has no range.
    pub psnr_db: Option<f64>,
    /// Root mean square error / range. 0 if there is no error. `None` if the error is infinite, or
    /// if there is an error but no range.
    pub nrmse: Option<f64>,
    /// Number of points where the reference is NaN or infinite, and the result is not the same.
    pub mismatched_nonfinite: usize,
    /// Number of sums that overflow the type, so that they or their reference are not finite.
    pub overflowed: usize,
}

/// Largest finite value of a type.
pub fn largest<T: Float>() -> f64 {
    // The greatest power of two of f64, of f32 and bf16, and of f16. With p binary digits, the
    // largest value is (2 − 2^(1 − p)) times this power, and the unit roundoff is 2^−p.
    let powers = [1023, 127, 15].map(|exponent| 2.0_f64.powi(exponent));
    let power = powers.into_iter().find(|&power| T::from_f64(power).to_f64().is_finite());
    power.unwrap_or(1.0) * (2.0 - 2.0 * T::UNIT_ROUNDOFF)
}

impl Quality {
    /// Compares `result` with `exact`, value by value, in f64.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn of<T: Float, E: Copy + Into<f64>>(result: &[T], exact: &[E]) -> Self {
        Self::of_sums(result, exact, |_| false)
    }

    /// Compares sums like [`of`](Self::of). `may_overflow` returns whether the sum at an index can
    /// leave the range of the type.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn of_sums<T: Float, E: Copy + Into<f64>>(
        result: &[T],
        exact: &[E],
        may_overflow: impl Fn(usize) -> bool,
    ) -> Self {
        assert_eq!(result.len(), exact.len(), "a result has as many values as its reference");
        let (mut max_error, mut squares, mut n_finite) = (0.0_f64, 0.0, 0_usize);
        let (mut mismatched_nonfinite, mut overflowed) = (0, 0);
        let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        for (at, (&value, &exact)) in result.iter().zip(exact).enumerate() {
            let (value, exact): (f64, f64) = (value.to_f64(), exact.into());
            let are_both_finite = exact.is_finite() && value.is_finite();
            if !are_both_finite && may_overflow(at) {
                overflowed += 1;
            } else if exact.is_finite() {
                let error = if value.is_finite() {
                    (value - exact).abs()
                } else if value == T::from_f64(exact).to_f64() {
                    0.0
                } else {
                    f64::INFINITY
                };
                max_error = max_error.max(error);
                squares += error * error;
                n_finite += 1;
                least = least.min(exact);
                greatest = greatest.max(exact);
            } else if !same_kind(value, exact) {
                mismatched_nonfinite += 1;
            }
        }
        let rmse = if n_finite == 0 { 0.0 } else { (squares / n_finite as f64).sqrt() };
        let range = if n_finite == 0 { 0.0 } else { greatest - least };
        let has_error = rmse > 0.0;
        Self {
            max_error,
            psnr_db: (has_error && rmse.is_finite() && range > 0.0)
                .then(|| 20.0 * (range / rmse).log10()),
            nrmse: if has_error {
                (range > 0.0 && rmse.is_finite()).then(|| rmse / range)
            } else {
                Some(0.0)
            },
            mismatched_nonfinite,
            overflowed,
        }
    }

    /// Returns whether every error is within `bound`, and every infinity and NaN is the same as in
    /// the reference.
    pub fn is_within(&self, bound: f64) -> bool {
        self.max_error <= bound && self.mismatched_nonfinite == 0
    }
}

/// Returns whether both are NaN, or both are the same infinity.
fn same_kind(value: f64, exact: f64) -> bool {
    if exact.is_nan() { value.is_nan() } else { value == exact }
}

/// Range (maximum − minimum) of the finite values, or 0 if there are none.
pub fn range<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    let finite = values.iter().map(|&value| value.into()).filter(|value| value.is_finite());
    let (least, greatest) = finite
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| {
            (least.min(value), greatest.max(value))
        });
    if least <= greatest { greatest - least } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_hand() {
        // Errors 0, 1, 0, −1: rmse = √(2/4); range 10.
        let quality = Quality::of(&[0.0_f32, 6.0, 10.0, 4.0], &[0.0, 5.0, 10.0, 5.0]);
        assert_eq!((quality.max_error, quality.mismatched_nonfinite), (1.0, 0));
        assert!((quality.nrmse.unwrap() - 0.5_f64.sqrt() / 10.0).abs() < 1e-15);
        // 20·log10(10·√2) = 20 + 10·log10(2).
        assert!((quality.psnr_db.unwrap() - 23.010_299_956_639_81).abs() < 1e-12);
        assert!(quality.is_within(1.0) && !quality.is_within(0.999));
    }

    #[test]
    fn an_exact_result_has_no_psnr() {
        let quality = Quality::of(&[1.0, 2.0], &[1.0, 2.0]);
        assert_eq!((quality.max_error, quality.psnr_db, quality.nrmse), (0.0, None, Some(0.0)));
        let json = serde_json::to_string(&quality).unwrap();
        assert_eq!(
            json,
            r#"{"max_err":0.0,"psnr_db":null,"nrmse":0.0,"mismatched_nonfinite":0,"overflowed":0}"#
        );
    }

    #[test]
    fn points_that_are_not_finite_must_come_out_the_same() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let exact = [nan, inf, -inf, nan, inf, 1.0, 3.0];
        let same = Quality::of(&exact, &exact);
        assert_eq!((same.max_error, same.mismatched_nonfinite), (0.0, 0));
        let quality = Quality::of(&[nan, inf, inf, 0.0, nan, 1.0, 3.0], &exact);
        assert_eq!((quality.max_error, quality.mismatched_nonfinite), (0.0, 3));
        assert!(!quality.is_within(1.0));
    }

    #[test]
    fn a_result_that_is_not_finite_is_infinitely_wrong() {
        let quality = Quality::of(&[f64::NAN, 2.0], &[1.0, 2.0]);
        assert_eq!(
            (quality.max_error, quality.psnr_db, quality.nrmse),
            (f64::INFINITY, None, None)
        );
    }

    #[test]
    fn a_sum_beyond_the_type_is_its_infinity() {
        let exact = [1e39, -1e39, 1e38];
        let inf = f32::INFINITY;
        assert_eq!(
            Quality::of(&[inf, -inf, 1e38], &exact).max_error,
            (1e38_f32 as f64 - 1e38).abs()
        );
        assert_eq!(Quality::of(&[inf, inf, 1e38], &exact).max_error, f64::INFINITY);
        assert_eq!(Quality::of(&[inf, -inf, inf], &exact).max_error, f64::INFINITY);
        assert_eq!(Quality::of(&[f64::INFINITY], &[1e39]).max_error, f64::INFINITY);
    }

    #[test]
    fn sums_that_overflow_on_the_way_are_counted_apart() {
        // Three sums: 3e38 + 3e38 − 3e38 that overflowed on the way, a wrong one, a correct one.
        let result = [f32::INFINITY, f32::NAN, 1.0];
        let may_overflow = |at| at == 0;
        let quality = Quality::of_sums(&result, &[3e38, 1.0, 1.0], may_overflow);
        assert_eq!((quality.overflowed, quality.max_error), (1, f64::INFINITY));
        let quality = Quality::of_sums(&result[..1], &[3e38], may_overflow);
        assert!(quality.is_within(0.0));
        // A possible overflow does not excuse a wrong finite value.
        assert!(!Quality::of_sums(&[2e38_f32], &[3e38], |_| true).is_within(1.0));
    }

    #[test]
    fn the_largest_values_of_all_types() {
        assert_eq!((largest::<f64>(), largest::<f32>()), (f64::MAX, f64::from(f32::MAX)));
        assert_eq!(largest::<foldwire::f16>(), 65504.0);
        assert_eq!(largest::<foldwire::bf16>(), foldwire::bf16::MAX.to_f64());
    }

    #[test]
    fn without_range_there_is_no_relative_error() {
        let quality = Quality::of(&[1.5_f32, 1.0], &[1.0, 1.0]);
        assert_eq!((quality.max_error, quality.psnr_db, quality.nrmse), (0.5, None, None));
        let none = Quality::of::<f32, f64>(&[], &[]);
        assert_eq!((none.max_error, none.psnr_db, none.nrmse), (0.0, None, Some(0.0)));
    }

    #[test]
    fn the_range_skips_what_is_not_finite() {
        assert_eq!(range(&[f32::NAN, -2.0, f32::INFINITY, 3.0]), 5.0);
        assert_eq!(range(&[f64::NAN]), 0.0);
        assert_eq!(range::<f32>(&[]), 0.0);
    }
}
