//! Errors of a result, and their statistics.

use foldwire::Float;
use foldwire_workbench::infinite;
use serde::Serialize;

use super::theory::SHARE;

/// Number of bars of a histogram.
const N_BARS: usize = 41;

/// Errors (result − exact) of values with a finite exact value, in units of the bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors {
    all: Vec<f64>,
    /// Values that are not finite in the exact result, and differ in the measured one.
    pub(crate) mismatched_nonfinite: usize,
}

/// Statistics of errors, in units of the bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct ErrorSummary {
    /// Largest |error|; infinite if a result is not finite and should be.
    #[serde(serialize_with = "infinite::serialize")]
    pub(crate) worst: f64,
    /// The |error| that 95.44 % of the values do not exceed.
    pub(crate) line: f64,
    /// Mean error.
    pub(crate) bias: f64,
    /// Standard deviation.
    pub(crate) deviation: f64,
}

/// Numbers of errors in ranges of equal width around 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Histogram {
    /// Half-width of the whole histogram.
    pub(crate) reach: f64,
    pub(crate) counts: Vec<usize>,
}

impl Errors {
    /// Compares `result` with `exact`, value by value. `bound` becomes the unit of the errors.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn new<T: Float>(result: &[T], exact: &[f64], bound: f64) -> Self {
        assert_eq!(result.len(), exact.len(), "a result has as many values as its reference");
        let mut errors = Self::default();
        for (value, &exact) in result.iter().zip(exact) {
            let value = value.to_f64();
            // An exact value beyond the range of the type is infinite in the type.
            let is_same = value == exact || value == T::from_f64(exact).to_f64();
            if exact.is_finite() {
                let error = if is_same && value.is_infinite() { 0.0 } else { value - exact };
                errors.all.push(if error.is_nan() { f64::INFINITY } else { error / bound });
            } else if !(is_same || value.is_nan() && exact.is_nan()) {
                errors.mismatched_nonfinite += 1;
            }
        }
        errors
    }

    /// Returns the statistics; `None` if no exact value is finite.
    pub(crate) fn summary(&self) -> Option<ErrorSummary> {
        let n = self.all.len() as f64;
        let mut magnitudes: Vec<f64> = self.all.iter().map(|error| error.abs()).collect();
        magnitudes.sort_unstable_by(f64::total_cmp);
        let worst = *magnitudes.last()?;
        let bias = self.all.iter().sum::<f64>() / n;
        let variance = self.all.iter().map(|error| (error - bias).powi(2)).sum::<f64>() / n;
        let at = (SHARE * n).ceil() as usize;
        let line = magnitudes[at.clamp(1, magnitudes.len()) - 1];
        Some(ErrorSummary { worst, line, bias, deviation: variance.sqrt() })
    }

    /// Returns the fraction of values whose |error| is at most `line`.
    pub(crate) fn share_within(&self, line: f64) -> f64 {
        self.share_around(0.0, line)
    }

    /// Returns the fraction of values whose error differs from `center` by at most `distance`.
    pub(crate) fn share_around(&self, center: f64, distance: f64) -> f64 {
        let n_within = self.all.iter().filter(|error| (*error - center).abs() <= distance).count();
        n_within as f64 / self.all.len().max(1) as f64
    }

    /// Returns a histogram. The outermost bars also count errors beyond `reach`.
    pub(crate) fn histogram(&self, reach: f64) -> Histogram {
        let mut counts = vec![0; N_BARS];
        for error in &self.all {
            let bar = ((error / reach + 1.0) / 2.0 * N_BARS as f64).floor();
            counts[bar.clamp(0.0, (N_BARS - 1) as f64) as usize] += 1;
        }
        Histogram { reach, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_hand() {
        let exact = [0.0, 1.0, 2.0, 3.0];
        let errors = Errors::new(&[0.5_f32, 1.0, 1.0, 3.5], &exact, 0.5);
        let summary = errors.summary().unwrap();
        assert_eq!((summary.worst, summary.line, summary.bias), (2.0, 2.0, 0.0));
        assert_eq!(summary.deviation, 1.5_f64.sqrt());
        assert_eq!((errors.share_within(1.0), errors.share_within(0.0)), (0.75, 0.25));
    }

    #[test]
    fn the_line_leaves_the_largest_out() {
        let result: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let summary = Errors::new(&result, &[0.0; 10_000], 1.0).summary().unwrap();
        assert_eq!((summary.worst, summary.line), (10_000.0, 9544.0));
    }

    #[test]
    fn what_is_not_finite_must_stay_so_and_nothing_else_may_become_so() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let exact = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39, 1.0];
        let good = Errors::new(&[nan, inf, -inf, inf, 1.0], &exact, 1.0);
        assert_eq!((good.mismatched_nonfinite, good.summary().unwrap().worst), (0, 0.0));
        let bad = Errors::new(&[0.0, nan, inf, -inf, nan], &exact, 1.0);
        assert_eq!((bad.mismatched_nonfinite, bad.summary().unwrap().worst), (3, f64::INFINITY));
        assert_eq!(Errors::new(&[nan], &exact[..1], 1.0).summary(), None);
    }

    #[test]
    fn every_error_is_in_a_bar() {
        let exact = [0.0; 5];
        let errors = Errors::new(&[-9.0_f32, -1.0, 0.0, 0.99, 9.0], &exact, 1.0);
        let histogram = errors.histogram(1.0);
        assert_eq!(histogram.counts.iter().sum::<usize>(), 5);
        let of = |bar: usize| histogram.counts[bar];
        assert_eq!((of(0), of(N_BARS / 2), of(N_BARS - 1)), (2, 1, 2));
    }
}
