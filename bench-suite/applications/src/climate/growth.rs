//! How a run's difference from the exact one grows, and whether more than a perturbation of the
//! initial state.

use foldwire_sphere::Sphere;
use serde::Serialize;

/// A run passes whose difference never exceeds so many times that of the perturbed run: what one
/// choice of signs of the perturbation, or another, makes of it differs by a few times.
pub(super) const FACTOR: f64 = 10.0;

/// The difference from the exact run over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ErrorGrowth {
    /// Metres at the end.
    pub(super) rms_m: f64,
    /// The largest ratio to the perturbed run's at the same time.
    pub(super) worst: f64,
    pub(super) passes: bool,
    pub(super) curve: Vec<GrowthPoint>,
    /// At all samples.
    #[serde(skip)]
    pub(super) has_same_bits: bool,
}

/// The root of the mean square difference of heights, by area, after so many days.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct GrowthPoint {
    pub(super) day: f64,
    pub(super) rms_m: f64,
}

impl ErrorGrowth {
    /// Of samples (days, heights) against those of the exact run at the same times, judged by the
    /// perturbed run. The perturbed run itself is judged by nothing, and passes.
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
        Self::judged(curve, has_same_bits, perturbed)
    }

    fn judged(curve: Vec<GrowthPoint>, has_same_bits: bool, perturbed: Option<&Self>) -> Self {
        let worst = perturbed.map_or(1.0, |perturbed| {
            let both = curve.iter().zip(&perturbed.curve);
            let ratios = both.map(|(own, other)| match own.rms_m {
                0.0 => 0.0,
                // A run that is not finite any more is as far off as can be.
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
        ErrorGrowth::judged(curve.collect(), false, perturbed)
    }

    #[test]
    fn what_exceeds_the_perturbed_run_once_fails() {
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
