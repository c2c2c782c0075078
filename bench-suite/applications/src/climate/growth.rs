//! Growth of a run's error over time, and the perturbation growth test.
//!
//! The *exact run* is on one rank, without compression. The *perturbed run* is too, but it starts
//! from heights with a tiny relative change. In a chaotic flow the difference between the two grows
//! until they have no more in common than two different days of one run. A method passes the test
//! if it does no worse: once the perturbed run is that far off, the method's error is at most
//! [`GROWN_FACTOR`] times as large.
//!
//! Before that, every lossy method is further off than the perturbed run, because its first message
//! has larger errors than the last bit of a value. [`ErrorGrowth::worst`] is the strict comparison
//! at all times. It decides where the perturbed run stays close to the exact one until the end.

use foldwire_sphere::Sphere;
use foldwire_workbench::infinite;
use serde::Serialize;

/// Largest ratio of a run's error to the perturbed run's error that passes, once the perturbed run
/// has lost all resemblance to the exact one. Errors of perturbed runs then differ by a tenth.
pub(super) const GROWN_FACTOR: f64 = 1.5;

/// Largest such ratio that passes while the perturbed run is still close to the exact one.
/// Perturbations with other signs grow to errors that differ by a few times.
pub(super) const FACTOR: f64 = 10.0;

/// Part of the difference between two days of one run from which on an error is *grown*.
const GROWN_PART: f64 = 0.5;

/// Fewest samples with a grown error that decide.
const FEWEST_GROWN: usize = 4;

/// Difference from the exact run over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ErrorGrowth {
    /// RMS difference at the end, in metres.
    pub(super) rms_m: f64,
    /// Largest ratio, over all samples, of this error to the perturbed run's error at the same
    /// time. 1 for the perturbed run.
    #[serde(serialize_with = "infinite::serialize")]
    pub(super) worst: f64,
    /// Ratio of this error to the perturbed run's error, both RMS over the samples at which the
    /// perturbed run's error is grown. `None` if it does not grow so far.
    #[serde(serialize_with = "infinite::serialize")]
    pub(super) grown: Option<f64>,
    /// First day with a grown error.
    pub(super) grown_day: Option<f64>,
    /// True if `grown` is at most [`GROWN_FACTOR`] or, if it is `None`, `worst` at most [`FACTOR`].
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

/// The exact run, and what other runs are compared with.
pub(super) struct GrowthTest<'s> {
    sphere: &'s Sphere,
    /// Samples of the exact run: days and heights.
    exact: Vec<(f64, Vec<f64>)>,
    /// RMS difference in metres between two samples of the exact run that are half a run apart,
    /// mean over all such pairs.
    pub(super) variability_m: f64,
    pub(super) perturbed: ErrorGrowth,
    /// First sample from which on the perturbed run's error is grown.
    grown_from: Option<usize>,
}

impl<'s> GrowthTest<'s> {
    pub(super) fn new(
        sphere: &'s Sphere,
        exact: Vec<(f64, Vec<f64>)>,
        perturbed: &[(f64, Vec<f64>)],
    ) -> Self {
        let half = exact.len() / 2;
        let apart = exact.iter().zip(&exact[half..]);
        let sum: f64 = apart.map(|((_, early), (_, late))| sphere.rms(early, late)).sum();
        let variability_m = sum / (exact.len() - half) as f64;
        let curve = curve(sphere, &exact, perturbed);
        let grown_from = grown_from(&curve, variability_m);
        let perturbed = verdict(curve.clone(), &curve, variability_m, grown_from);
        Self { sphere, exact, variability_m, perturbed, grown_from }
    }

    /// First day from which on the perturbed run's error decides; `None` if it does not grow so
    /// far.
    pub(super) fn grown_from_day(&self) -> Option<f64> {
        self.grown_from.map(|at| self.perturbed.curve[at].day)
    }

    /// Compares samples with those of the exact run at the same times.
    pub(super) fn judge(&self, samples: &[(f64, Vec<f64>)]) -> ErrorGrowth {
        let curve = curve(self.sphere, &self.exact, samples);
        let bits = |heights: &[f64]| heights.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let mut both = self.exact.iter().zip(samples);
        let has_same_bits = both.all(|((_, exact), (_, heights))| bits(exact) == bits(heights));
        let growth = verdict(curve, &self.perturbed.curve, self.variability_m, self.grown_from);
        ErrorGrowth { has_same_bits, ..growth }
    }
}

fn curve(
    sphere: &Sphere,
    exact: &[(f64, Vec<f64>)],
    samples: &[(f64, Vec<f64>)],
) -> Vec<GrowthPoint> {
    let both = exact.iter().zip(samples);
    both.map(|((day, exact), (_, heights))| GrowthPoint {
        day: *day,
        rms_m: sphere.rms(exact, heights),
    })
    .collect()
}

fn is_grown(rms_m: f64, variability_m: f64) -> bool {
    // A run with NaN is infinitely wrong. If nothing changes, no error is as large as a change.
    rms_m.is_nan() || (variability_m > 0.0 && rms_m >= GROWN_PART * variability_m)
}

fn grown_from(perturbed: &[GrowthPoint], variability_m: f64) -> Option<usize> {
    let is_small = |point: &GrowthPoint| !is_grown(point.rms_m, variability_m);
    let from = perturbed.iter().rposition(is_small).map_or(0, |last| last + 1);
    (perturbed.len() - from >= FEWEST_GROWN).then_some(from)
}

/// Compares a run's curve with the perturbed run's.
fn verdict(
    curve: Vec<GrowthPoint>,
    perturbed: &[GrowthPoint],
    variability_m: f64,
    grown_from: Option<usize>,
) -> ErrorGrowth {
    let or_infinite = |ratio: f64| if ratio.is_nan() { f64::INFINITY } else { ratio };
    let ratios = curve.iter().zip(perturbed).map(|(own, other)| match own.rms_m {
        0.0 => 0.0,
        rms_m => or_infinite(rms_m / other.rms_m),
    });
    let worst = ratios.fold(0.0, f64::max);
    let grown = grown_from.map(|from| {
        let squares = |curve: &[GrowthPoint]| -> f64 {
            curve[from..].iter().map(|point| point.rms_m.powi(2)).sum()
        };
        or_infinite((squares(&curve) / squares(perturbed)).sqrt())
    });
    let passes = grown.map_or(worst <= FACTOR, |grown| grown <= GROWN_FACTOR);
    ErrorGrowth {
        rms_m: curve.last().map_or(0.0, |point| point.rms_m),
        worst,
        grown,
        grown_day: curve.iter().find(|p| is_grown(p.rms_m, variability_m)).map(|p| p.day),
        passes,
        curve,
        has_same_bits: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABILITY_M: f64 = 200.0;

    fn curve(rms: &[f64]) -> Vec<GrowthPoint> {
        let point = |(&rms_m, day): (&f64, u32)| GrowthPoint { day: day.into(), rms_m };
        rms.iter().zip(1..).map(point).collect()
    }

    fn judge(perturbed: &[f64], rms: &[f64]) -> ErrorGrowth {
        let perturbed = curve(perturbed);
        let from = grown_from(&perturbed, VARIABILITY_M);
        verdict(curve(rms), &perturbed, VARIABILITY_M, from)
    }

    const CHAOTIC: [f64; 7] = [1e-12, 1e-6, 1.0, 150.0, 160.0, 140.0, 150.0];

    #[test]
    fn once_the_perturbed_run_has_grown_a_method_may_be_as_far_off_but_not_further() {
        let own = judge(&CHAOTIC, &CHAOTIC);
        assert_eq!((own.passes, own.worst, own.grown), (true, 1.0, Some(1.0)));
        assert_eq!(own.grown_day, Some(4.0));
        // It grows earlier, but not further.
        let early = judge(&CHAOTIC, &[1e-3, 10.0, 140.0, 160.0, 150.0, 150.0, 140.0]);
        assert!(early.passes && early.worst >= 1e7, "{early:?}");
        assert_eq!(early.grown_day, Some(3.0));
        // It grows further.
        let wrong = judge(&CHAOTIC, &[10.0, 140.0, 200.0, 260.0, 300.0, 340.0, 400.0]);
        assert!(!wrong.passes && wrong.grown.unwrap() > 2.0, "{wrong:?}");
        let exact = judge(&CHAOTIC, &[0.0; 7]);
        assert_eq!((exact.passes, exact.worst, exact.grown), (true, 0.0, Some(0.0)));
        assert_eq!(exact.grown_day, None);
    }

    #[test]
    fn a_run_with_nan_fails() {
        let mut rms = CHAOTIC;
        rms[5..].fill(f64::NAN);
        let growth = judge(&CHAOTIC, &rms);
        assert_eq!((growth.passes, growth.grown), (false, Some(f64::INFINITY)));
        assert_eq!(judge(&CHAOTIC, &[f64::NAN; 7]).grown_day, Some(1.0));
    }

    #[test]
    fn while_the_perturbed_run_is_close_a_run_that_exceeds_the_limit_once_fails() {
        // Also if it has grown, but only at the last samples or for a while.
        for tail in [&[1e-6, 1e-5, 1e-4, 1e-3][..], &[1.0, 150.0, 150.0, 150.0]] {
            let perturbed = [&[1e-12, 1e-10, 1e-8][..], tail].concat();
            let with = |at: usize, factor: f64| {
                let mut rms = perturbed.clone();
                rms[at] *= factor;
                judge(&perturbed, &rms)
            };
            assert_eq!(with(0, 1.0).grown, None);
            assert!(with(0, 9.0).passes && !with(0, 11.0).passes, "at any time");
            assert!(!with(6, 11.0).passes && !with(3, f64::NAN).passes);
        }
        let for_a_while = judge(&[150.0, 150.0, 150.0, 150.0, 1.0], &[0.0; 5]);
        assert_eq!(for_a_while.grown, None);
    }

    #[test]
    fn where_nothing_changes_no_error_is_grown() {
        assert_eq!(grown_from(&curve(&[0.0; 5]), 0.0), None);
        assert_eq!(grown_from(&curve(&[1.0; 5]), f64::NAN), None);
        assert_eq!(grown_from(&curve(&[1.0; 5]), 1.0), Some(0));
    }
}
