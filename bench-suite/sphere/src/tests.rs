//! Comparison of the flow with known solutions and conservation laws.

use super::*;

fn run(sphere: &Sphere, n_steps: usize, perturbation: f64) -> Vec<f64> {
    run_from(sphere, &sphere.initial().perturbed(perturbation), n_steps).heights().to_vec()
}

fn run_from<'s>(sphere: &'s Sphere, state: &State, n_steps: usize) -> Band<'s> {
    let mut band = sphere.band(1, 0, state).unwrap();
    for _ in 0..n_steps {
        band.step(&mut SingleRank).unwrap();
    }
    band
}

const CASES: [TestCase; 4] = [TestCase::Steady, TestCase::Mountain, TestCase::Wave, TestCase::Jets];

fn days(sphere: &Sphere, days: f64) -> usize {
    (days * 86_400.0 / sphere.seconds_of_step()) as usize
}

#[test]
fn a_steady_flow_stays_and_more_so_on_a_finer_grid() {
    let error = |shape| {
        let sphere = Sphere::new(shape, 1, TestCase::Steady).unwrap();
        let initial = sphere.initial().heights().to_vec();
        sphere.rms(&run(&sphere, days(&sphere, 5.0), 0.0), &initial)
    };
    let (coarse, fine) = (error([16, 32]), error([32, 64]));
    // For comparison: heights range from 1000 m to 3000 m.
    assert!(fine < 0.6 && fine < 0.5 * coarse, "{coarse} m, {fine} m");
}

#[test]
fn water_and_tracers_are_neither_made_nor_lost() {
    for case in CASES {
        let sphere = Sphere::new([32, 64], 2, case).unwrap();
        let amounts = |band: &Band<'_>| {
            let (heights, tracers) = (band.heights(), band.tracers());
            let n_each = heights.len() / 32;
            let tracer = |at: usize| -> Vec<f64> {
                let rows = tracers.chunks_exact(N_TRACERS * n_each);
                rows.flat_map(|row| row[at * n_each..][..n_each].to_vec()).collect()
            };
            let all = [heights.to_vec(), tracer(0), tracer(1), tracer(2)];
            assert!(all.iter().flatten().all(|x| x.is_finite()));
            all.map(|values| sphere.mass(&values))
        };
        let before = amounts(&run_from(&sphere, &sphere.initial(), 0));
        let after = amounts(&run_from(&sphere, &sphere.initial(), days(&sphere, 10.0)));
        for (before, after) in before.into_iter().zip(after) {
            assert!((after / before - 1.0).abs() < 1e-12, "{case:?}: {before} {after}");
        }
    }
}

/// The wind of a jet needs a slope of the water: f·u + u²·tan φ / R = −g/R · dh/dφ.
#[test]
fn jets_and_heights_are_in_balance() {
    let sphere = Sphere::new([512, 8], 1, TestCase::Jets).unwrap();
    let heights = sphere.initial().heights().to_vec();
    let mut fastest = 0.0_f64;
    for row in 1..511 {
        // Column 5 is far from the hills.
        let slope = (heights[8 * (row + 1) + 5] - heights[8 * (row - 1) + 5])
            / (2.0 * sphere.spacing[0] * RADIUS);
        let [_, latitude] = sphere.latitudes(row);
        let u = sphere.initial_winds(row)[5];
        let need = 2.0 * ROTATION * latitude.sin() * u + u * u * latitude.tan() / RADIUS;
        // Up to 1e-2 m/s²; the slope is over two rows.
        assert!((GRAVITY * slope + need).abs() < 1e-4, "{row}: {slope} {need}");
        fastest = fastest.max(u);
    }
    assert!((100.0..115.0).contains(&fastest), "{fastest}");
}

/// No longitude is special: a flow that starts 16 columns further east stays 16 columns east.
#[test]
fn a_rotated_state_leads_to_the_rotated_flow() {
    let sphere = Sphere::new([32, 64], 2, TestCase::Jets).unwrap();
    let rotated = |values: &[f64]| -> Vec<f64> {
        values.chunks_exact(64).flat_map(|line| [&line[48..], &line[..48]].concat()).collect()
    };
    let mut state = sphere.initial();
    for fields in &mut state.fields {
        fields.carried = rotated(&fields.carried);
        fields.heights = rotated(&fields.heights);
    }
    let n_steps = days(&sphere, 2.0);
    let here = run_from(&sphere, &sphere.initial(), n_steps);
    let there = run_from(&sphere, &state, n_steps);
    let off = |one: &[f64], other: &[f64]| {
        rotated(one).iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(off(here.heights(), there.heights()) < 1e-7);
    assert!(off(&here.tracers(), &there.tracers()) < 1e-9);
    let unlike = off(here.heights(), here.heights());
    assert!(unlike > 0.1, "the flow depends on longitude: {unlike}");
}

#[test]
fn a_level_has_the_same_bits_with_and_without_others_and_from_a_state_between() {
    let [one, three] = [1, 3].map(|n| Sphere::new([16, 32], n, TestCase::Jets).unwrap());
    let n_steps = days(&one, 2.0);
    let alone = run_from(&one, &one.initial(), n_steps);
    let mut n_calls = 0;
    let between = three.state_after(n_steps / 2, || n_calls += 1);
    assert_eq!(n_calls, n_steps / 2);
    let all = run_from(&three, &between, n_steps - n_steps / 2);
    let first: Vec<f64> =
        all.heights().chunks_exact(3 * 32).flat_map(|row| row[..32].to_vec()).collect();
    assert!(alone.heights().iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits()));
    assert_ne!(all.heights()[32..64], first[..32], "levels differ");
}

/// Differences in the jets grow about fourfold a day, until they are those between two days.
#[test]
fn a_small_difference_of_the_jets_becomes_another_weather() {
    let sphere = Sphere::new([64, 128], 1, TestCase::Jets).unwrap();
    let state = sphere.state_after(days(&sphere, 8.0), || ());
    let other = state.clone().perturbed(1e-6);
    let off = |n_days| {
        let [one, other] =
            [&state, &other].map(|state| run_from(&sphere, state, days(&sphere, n_days)));
        sphere.rms(one.heights(), other.heights())
    };
    let (after_1, after_11) = (off(1.0), off(11.0));
    assert!(after_1 < 0.5 && after_11 > 30.0 && after_11 < 600.0, "{after_1} m, {after_11} m");
}

/// The wave of Williamson's test case 6 travels around the sphere and keeps its shape.
#[test]
fn a_wave_moves_as_fast_as_rossby_and_haurwitz_say() {
    let sphere = Sphere::new([64, 128], 1, TestCase::Wave).unwrap();
    let n_days = 5.0;
    let heights = run(&sphere, days(&sphere, n_days), 0.0);
    let initial = sphere.initial().heights().to_vec();
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
    let [exact, other] = [0.0, 1e-10]
        .map(|perturbation| sphere.initial().perturbed(perturbation).heights().to_vec());
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
    let state = sphere.initial();
    assert!(sphere.band(4, 3, &state).is_some() && sphere.band(5, 0, &state).is_none());
}

/// Williamson's test case 6 is unstable: a perturbed wave breaks up, but only after weeks.
#[test]
fn a_perturbation_of_the_wave_grows_by_orders_of_magnitude() {
    let sphere = Sphere::new([64, 128], 1, TestCase::Wave).unwrap();
    let mut bands = [0.0, 1e-9]
        .map(|perturbation| run_from(&sphere, &sphere.initial().perturbed(perturbation), 0));
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
