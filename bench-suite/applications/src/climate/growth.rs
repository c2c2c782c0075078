//! Growth of a run's error over time, and the perturbation growth test.
//!
//! The *exact run* is on one rank, without compression. The *perturbed run* is too, but it starts
//! from heights with a tiny relative change. A run passes the test if its error never grows to more
//! than [`FACTOR`] times the perturbed run's error.

use foldwire_sphere::Sphere;
use serde::Serialize;

/// Largest ratio of a run's error to the perturbed run's error that passes the test.
///
/// It leaves a margin, because perturbations with other signs grow to errors that differ by a few
/// times.
pub(super) const FACTOR: f64 = 10.0;

/// Difference from the exact run over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ErrorGrowth {
    /// RMS difference at the end, in metres.
    pub(super) rms_m: f64,
    /// Largest ratio, over all samples, of this error to the perturbed run's error at the same
    /// time. 1 for the perturbed run.
    pub(super) worst: f64,
    /// True if `worst` is at most [`FACTOR`].
    pub(super) passes: bool,
    pub(super) curve: Vec<GrowthPoint>,
    /// True if the heights have the bits of the exact run at all samples.
    #[serde(skip)]
    pub(super) has_same_bits: bool,
}

/// Root mean square difference of the heights, weighted by area, after `day` days.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct GrowthPoint {
    pub(super) day: f64,
    pub(super) rms_m: f64,
}

impl ErrorGrowth {
    /// Compares samples (days, heights) with those of the exact run at the same times.
    ///
    /// `perturbed` is the run to compare errors with. Pass `None` for the perturbed run itself,
    /// which always passes.
    pub(super) fn of(
        sphere: &Sphere,
        exact: &[(f64, Vec<f64>)],
        samples: &[(f64, Vec<f64>)],
        perturbed: Option<&Self>,
    ) -> Self {
        let both = || exact.iter().zip(samples);
        let curve = both()
            .map(|((day, exact), (_, heights))| GrowthPoint {
                day: *day,
                rms_m: sphere.rms(exact, heights),
            })
            .collect();
        let has_same_bits = both().all(|((_, exact), (_, heights))| {
            exact.iter().zip(heights).all(|(a, b)| a.to_bits() == b.to_bits())
        });
        Self::with_verdict(curve, has_same_bits, perturbed)
    }

    /// Compares the curve with the perturbed run's curve.
    fn with_verdict(
        curve: Vec<GrowthPoint>,
        has_same_bits: bool,
        perturbed: Option<&Self>,
    ) -> Self {
        let worst = perturbed.map_or(1.0, |perturbed| {
            let both = curve.iter().zip(&perturbed.curve);
            let ratios = both.map(|(own, other)| match own.rms_m {
                0.0 => 0.0,
                // A run with NaN is infinitely wrong.
                rms_m if rms_m.is_nan() => f64::INFINITY,
                rms_m => rms_m / other.rms_m,
            });
            ratios.fold(0.0, f64::max)
        });
        let rms_m = curve.last().map_or(0.0, |point| point.rms_m);
        Self { rms_m, worst, passes: worst <= FACTOR, curve, has_same_bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(rms: &[f64], perturbed: Option<&ErrorGrowth>) -> ErrorGrowth {
        let curve = rms.iter().zip(1..).map(|(&rms_m, day)| GrowthPoint { day: day.into(), rms_m });
        ErrorGrowth::with_verdict(curve.collect(), false, perturbed)
    }

    #[test]
    fn a_run_that_exceeds_the_limit_once_fails() {
        let perturbed = growth(&[1e-12, 1e-10, 1e-6], None);
        let judge = |rms: &[f64]| {
            let growth = growth(rms, Some(&perturbed));
            (growth.passes, growth.worst)
        };
        assert_eq!(judge(&[0.0, 0.0, 0.0]), (true, 0.0));
        assert_eq!(judge(&[1e-12, 1e-10, 1e-6]), (true, 1.0));
        assert_eq!(judge(&[9e-12, 0.0, 1e-6]), (true, 9e-12 / 1e-12));
        assert!(!judge(&[1e-12, 2e-9, 1e-6]).0, "at any time");
        assert_eq!(judge(&[1e-12, f64::NAN, 1e-6]), (false, f64::INFINITY));
    }
}
