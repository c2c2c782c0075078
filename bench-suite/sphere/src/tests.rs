//! Comparison of the flow with known solutions and conservation laws.

use super::*;

fn run(sphere: &Sphere, n_steps: usize, perturbation: f64) -> Vec<f64> {
    let mut band = sphere.band(1, 0, perturbation).unwrap();
    for _ in 0..n_steps {
        band.step(&mut SingleRank).unwrap();
    }
    band.heights().to_vec()
}

fn days(sphere: &Sphere, days: f64) -> usize {
    (days * 86_400.0 / sphere.seconds_of_step()) as usize
}

#[test]
fn a_steady_flow_stays_and_more_so_on_a_finer_grid() {
    let error = |shape| {
        let sphere = Sphere::new(shape, 1, TestCase::Steady).unwrap();
        let initial = sphere.initial(0.0);
        sphere.rms(&run(&sphere, days(&sphere, 5.0), 0.0), &initial)
    };
    let (coarse, fine) = (error([16, 32]), error([32, 64]));
    // For comparison: heights range from 1000 m to 3000 m.
    assert!(fine < 0.6 && fine < 0.5 * coarse, "{coarse} m, {fine} m");
}

#[test]
fn water_is_neither_made_nor_lost() {
    for case in [TestCase::Steady, TestCase::Mountain, TestCase::Wave] {
        let sphere = Sphere::new([32, 64], 2, case).unwrap();
        let before = sphere.mass(&sphere.initial(0.0));
        let heights = run(&sphere, days(&sphere, 10.0), 0.0);
        let after = sphere.mass(&heights);
        assert!((after / before - 1.0).abs() < 1e-12, "{case:?}: {before} {after}");
        assert!(heights.iter().all(|height| height.is_finite()));
    }
}

/// The wave of Williamson's test case 6 travels around the sphere and keeps its shape.
#[test]
fn a_wave_moves_as_fast_as_rossby_and_haurwitz_say() {
    let sphere = Sphere::new([64, 128], 1, TestCase::Wave).unwrap();
    let n_days = 5.0;
    let heights = run(&sphere, days(&sphere, n_days), 0.0);
    let initial = sphere.initial(0.0);
    // In rad/s, for a wave without divergence.
    let (k, r) = (7.848e-6, 4.0);
    let speed = (r * (3.0 + r) * k - 2.0 * ROTATION) / ((1.0 + r) * (2.0 + r));
    let phase = |heights: &[f64]| {
        // At 35° north, where the wave in the heights is about largest.
        let row = &heights[44 * 128..][..128];
        let angle = |i: usize| (i as f64 + 0.5) * sphere.spacing[1] * r;
        let sum =
            |f: fn(f64) -> f64| row.iter().enumerate().map(|(i, h)| h * f(angle(i))).sum::<f64>();
        (sum(f64::sin).atan2(sum(f64::cos)) / r, sum(f64::sin).hypot(sum(f64::cos)))
    };
    let ((from, large), (to, left)) = (phase(&initial), phase(&heights));
    let moved = (to - from).rem_euclid(2.0 * PI / r);
    let want = (speed * n_days * 86_400.0).rem_euclid(2.0 * PI / r);
    assert!((moved - want).abs() < 0.2, "moved {moved}, should {want}");
    assert!((left / large - 1.0).abs() < 0.1, "{left} of {large}");
}

#[test]
fn a_perturbation_is_as_large_as_asked_for_and_grows() {
    let sphere = Sphere::new([32, 64], 1, TestCase::Mountain).unwrap();
    let [exact, other] = [0.0, 1e-10].map(|perturbation| sphere.initial(perturbation));
    let relative = exact.iter().zip(&other).map(|(a, b)| (a / b - 1.0).abs());
    assert!(relative.clone().all(|x| (x - 1e-10).abs() < 1e-14));
    assert!(exact.iter().zip(&other).any(|(a, b)| a < b));
    assert!(exact.iter().zip(&other).any(|(a, b)| a > b));
    let n_steps = days(&sphere, 3.0);
    let off = sphere.rms(&run(&sphere, n_steps, 1e-10), &run(&sphere, n_steps, 0.0));
    assert!(off > 0.0 && off < 1e-3, "{off}");
}

#[test]
fn what_is_no_grid_is_refused() {
    // Too few rows, too few columns, an odd number of columns, no level.
    for (shape, n_levels) in [([3, 64], 1), ([32, 6], 1), ([32, 63], 1), ([32, 64], 0)] {
        assert!(Sphere::new(shape, n_levels, TestCase::Wave).is_none());
    }
    let sphere = Sphere::new([4, 8], 1, TestCase::Wave).unwrap();
    assert!(sphere.band(4, 3, 0.0).is_some() && sphere.band(5, 0, 0.0).is_none());
}

/// Williamson's test case 6 is unstable: a perturbed wave breaks up, but only after weeks.
#[test]
fn a_perturbation_of_the_wave_grows_by_orders_of_magnitude() {
    let sphere = Sphere::new([64, 128], 1, TestCase::Wave).unwrap();
    let mut bands =
        [0.0, 1e-9].map(|perturbation| sphere.band(1, 0, perturbation).expect("one rank"));
    let mut off_after_another = |n_days| {
        let n_steps = days(&sphere, n_days);
        for band in &mut bands {
            (0..n_steps).for_each(|_| band.step(&mut SingleRank).unwrap());
        }
        sphere.rms(bands[0].heights(), bands[1].heights())
    };
    let after_10 = off_after_another(10.0);
    let after_35 = off_after_another(25.0);
    assert!(after_35 > 30.0 * after_10 && after_35 < 1.0, "{after_10} m, {after_35} m");
}
