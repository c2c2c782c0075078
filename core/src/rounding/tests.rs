//! Tests that a rounding pass gives lattice points within the bound, is right on average, and gives
//! the same bits at any level.

use super::*;
use crate::bound::Spacing;
use crate::codec::{CodecExt, CodecId, CodecParams};
use crate::element::sealed::Word;
use crate::element::{bf16, f16};
use std::vec;
use std::vec::Vec;

const LEVELS: [Level; 3] = [Level::Scalar, Level::Avx2, Level::Avx512];
const SPACINGS: [Spacing; 2] = [Spacing::Widest, Spacing::PowerOfTwo];

/// Lattice for unbiased rounding within this bound. A value may go to either neighbouring point, so
/// the points are half as far apart as for rounding to nearest.
fn halved<T: Float>(bound: f64, spacing: Spacing) -> Quantum {
    Quantum::with_spacing::<T>(bound / 2.0, spacing).unwrap()
}

fn unbiased<T: Float>(quantum: Quantum, seed: u64, values: &mut [T], level: Level) {
    RoundingPass::new(quantum, Rounding::unbiased(seed), Rank(3)).run(None, values, None, level);
}

/// Values of all kinds: near lattice points and between them, over many magnitudes, and special
/// values.
fn all_kinds<T: Float>(step: f64) -> Vec<T> {
    let mut values: Vec<T> = Vec::new();
    for exponent in -40..60 {
        for part in [1.0, 1.25, 1.5, 1.499, 1.501, 1.999_999] {
            let x = libm::ldexp(part * step, exponent);
            values.extend([T::from_f64(x), T::from_f64(-x)]);
        }
    }
    // Midpoints and other values between points, first within the limit of codes of `f32` (2²¹),
    // then around it and near the limit of `f64` (2⁵⁰).
    let codes = [0.5, 1.5, 2.5, 1e3 + 0.5, 131_072.3, 524_288.7, 2_097_150.9];
    let ends = [2_097_151.5, 2_097_152.4, 2_097_153.0, 1.125e15 + 0.25];
    for code in codes.into_iter().chain(ends) {
        values.extend([T::from_f64(code * step), T::from_f64(-code * step)]);
    }
    let smallest = T::from_f64(T::SMALLEST);
    let subnormal = T::from_f64(T::SMALLEST * 37.0);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0].map(T::from_f64);
    values.extend(special);
    values.extend([smallest, subnormal, T::MAX, T::MIN]);
    values
}

fn stays_within_bound<T: Float>(bound: f64, spacing: Spacing) {
    let quantum = halved::<T>(bound, spacing);
    let values = all_kinds::<T>(quantum.step());
    let params = CodecParams::new(quantum).for_sums_of(4);
    for seed in 0..50 {
        let mut rounded = values.clone();
        unbiased(quantum, seed, &mut rounded, Level::best());
        for (x, y) in values.iter().zip(&rounded) {
            if !x.finite() {
                assert_eq!(y.bits(), x.bits(), "{x:?}");
                continue;
            }
            let error = (x.to_f64() - y.to_f64()).abs();
            assert!(error <= 2.0 * quantum.bound() && error < bound, "{x:?} becomes {y:?}");
        }
        // The codec's own rounding changes nothing.
        for &id in CodecId::ALL.iter().filter(|id| id.has_lattice() && id.is_for(T::DTYPE)) {
            let codec = id.instance::<T>(&params);
            let codec = codec.as_dyn();
            let mut bytes = vec![0; codec.max_encoded_len(rounded.len()).unwrap()];
            let n_bytes = codec.encode(&rounded, &mut bytes).unwrap().n_bytes;
            let mut decoded = vec![T::ZERO; rounded.len()];
            codec.decode(&bytes[..n_bytes], 1, &mut decoded).unwrap();
            for ((x, y), z) in values.iter().zip(&rounded).zip(&decoded) {
                let is_far = (x.to_f64() / quantum.step()).abs() > T::MAX_CODE - 2.0;
                let is_same = y.bits() == z.bits() || y.to_f64() == z.to_f64();
                assert!(is_same || is_far, "{}: {x:?}, {y:?}, {z:?}", id.name());
                assert!(!x.finite() || (x.to_f64() - z.to_f64()).abs() < bound);
            }
        }
    }
}

#[test]
fn values_of_all_kinds_stay_within_the_bound_and_are_encoded_exactly() {
    for spacing in SPACINGS {
        for bound in [0.3, 1e-3, 7e4] {
            stays_within_bound::<f32>(bound, spacing);
            stays_within_bound::<f64>(bound, spacing);
            stays_within_bound::<f16>(bound.min(60.0), spacing);
            stays_within_bound::<bf16>(bound, spacing);
        }
        stays_within_bound::<f32>(3e-37, spacing);
        stays_within_bound::<f64>(1e-280, spacing);
    }
}

fn mean_is_value<T: Float>(bound: f64, spacing: Spacing) {
    const N: u64 = 4096;
    let quantum = halved::<T>(bound, spacing);
    let step = quantum.step();
    let parts = [0.01, 0.25, 1.0 / 3.0, 0.5, 0.9, 1.5, 2.7, 17.1, 100.4, 2000.8, 40_000.6];
    let values: Vec<T> =
        parts.iter().flat_map(|x| [T::from_f64(x * step), T::from_f64(-x * step)]).collect();
    let mut sums = vec![0.0; values.len()];
    for seed in 0..N {
        let mut rounded = values.clone();
        unbiased(quantum, seed, &mut rounded, Level::best());
        let errors = rounded.iter().zip(&values).map(|(y, x)| y.to_f64() - x.to_f64());
        sums.iter_mut().zip(errors).for_each(|(sum, error)| *sum += error);
    }
    for (x, sum) in values.iter().zip(sums) {
        // The standard deviation is at most half a step, because the points are a step apart.
        let deviation = step / 2.0 / (N as f64).sqrt();
        let error = (sum / N as f64).abs();
        assert!(error < 4.0 * deviation, "{x:?}: {:.2} deviations", error / deviation);
    }
}

#[test]
fn the_mean_over_seeds_is_the_value() {
    for spacing in SPACINGS {
        mean_is_value::<f32>(0.3, spacing);
        mean_is_value::<f64>(0.3, spacing);
        mean_is_value::<f16>(1e-2, spacing);
        mean_is_value::<bf16>(0.3, spacing);
    }
}

/// Rounding to nearest would give 0 every time.
#[test]
fn a_third_of_a_step_is_a_step_once_in_three_times() {
    let quantum = halved::<f32>(2.0, Spacing::PowerOfTwo);
    let mut values = [1.0 / 3.0_f32 * 2.0; 30_000];
    unbiased(quantum, 9, &mut values, Level::best());
    let n_steps = values.iter().filter(|x| **x == 2.0).count();
    assert!(values.iter().all(|x| [0.0, 2.0].contains(x)));
    // The standard deviation is 82.
    assert!(n_steps.abs_diff(10_000) < 330, "{n_steps}");
}

fn odds_match_distance<T: Float>() {
    let quantum = halved::<T>(2.0, Spacing::PowerOfTwo);
    let lattice = RoundingLattice::<T>::new(quantum, true);
    for (code, part) in [(0.0, 0.125), (-3.0, 0.375), (7.0, 0.625), (-40.0, 0.875)] {
        let [lower, x, upper] = [0.0, part, 1.0].map(|part| (code + part) * quantum.step());
        let either = |unit| lattice.unbiased(T::Wide::nearest(x), T::Wide::nearest(unit)).to_f64();
        // Low random numbers choose the farther point.
        let [near, far] = if part < 0.5 { [lower, upper] } else { [upper, lower] };
        let odds = part.min(1.0 - part);
        assert_eq!([0.9995, 1.0005].map(|by| either(odds * by)), [far, near], "{x}");
    }
}

/// The test detects odds that are off by a thousandth.
#[test]
fn a_point_is_taken_as_often_as_the_value_is_near_it() {
    odds_match_distance::<f32>();
    odds_match_distance::<f64>();
    odds_match_distance::<f16>();
    odds_match_distance::<bf16>();
}

fn half_are_above_half<T: Float>() {
    const N: usize = 1 << 20;
    const N_SEEDS: usize = 16;
    let quantum = halved::<T>(2.0, Spacing::PowerOfTwo);
    let mut values = vec![T::ZERO; N];
    let mut n_steps = 0;
    for seed in 0..N_SEEDS {
        values.fill(T::from_f64(0.5 * quantum.step()));
        unbiased(quantum, seed as u64, &mut values, Level::best());
        n_steps += values.iter().filter(|x| x.to_f64() != 0.0).count();
    }
    // 4.5 standard deviations, 0.11 % of the expected count.
    assert!(n_steps.abs_diff(N * N_SEEDS / 2) < 9216, "{n_steps}");
}

#[test]
fn random_numbers_are_above_one_half_half_of_the_time_to_a_thousandth() {
    half_are_above_half::<f32>();
    half_are_above_half::<f64>();
}

/// For codes of 2²⁰ and more, lattice points are rounded to `f32`, and may be farther from a value
/// than the bound.
#[test]
fn points_that_are_rounded_are_taken_only_within_the_bound() {
    for bound in [0.3, 1e-3, 0.77, 5e4] {
        let quantum = halved::<f32>(bound, Spacing::Widest);
        let code = |i: usize| 2_097_151.0 - i as f64 * 26.2;
        let values: Vec<f32> =
            (0..40_000).map(|i| f32::from_f64(code(i) * quantum.step())).collect();
        let mut n_kept = 0;
        for seed in 0..20 {
            let mut rounded = values.clone();
            unbiased(quantum, seed, &mut rounded, Level::best());
            for (x, y) in values.iter().zip(&rounded) {
                let error = (f64::from(*x) - f64::from(*y)).abs();
                assert!(error < bound, "{x} becomes {y}, for {bound}");
                n_kept += usize::from(x == y);
            }
        }
        assert!(n_kept < 20 * values.len() / 2, "most values must be rounded");
    }
}

/// Here and below, `run_on_floats` is the part of `run` for floats. Tests call it because it takes
/// residues as `T::Wide`, which is known for every `T`.
fn levels_round_alike<T: Float<Wide: Unit>>() {
    let quantum = halved::<T>(0.3, Spacing::Widest);
    let mut values = all_kinds::<T>(quantum.step());
    values.extend((0..2 * CHUNK).map(|i| T::from_f64(i as f64 * 0.017 - 40.0)));
    let rounded = LEVELS.map(|level| {
        let (mut values, mut plain) = (values.clone(), values.clone());
        let mut residues = vec![T::Wide::nearest(0.01); values.len()];
        let pass = RoundingPass::new(quantum, Rounding::unbiased(5), Rank(1));
        pass.run(None, &mut plain, None, level);
        pass.run_on_floats(None, &mut values, Some(&mut residues), level);
        let nearest = RoundingPass::new(quantum, Rounding::Nearest, Rank(1));
        nearest.run_on_floats(None, &mut values, Some(&mut residues), level);
        let bits = |x: &T| x.bits().to_u64();
        let of_values = values.iter().chain(&plain).map(bits);
        of_values.chain(residues.iter().map(|e| e.to_f64().to_bits())).collect::<Vec<u64>>()
    });
    assert!(rounded.iter().all(|bits| *bits == rounded[0]));
}

#[test]
fn every_level_rounds_alike() {
    levels_round_alike::<f32>();
    levels_round_alike::<f64>();
    levels_round_alike::<f16>();
    levels_round_alike::<bf16>();
}

#[test]
fn own_values_may_come_from_elsewhere_and_are_rounded_as_in_place() {
    let quantum = halved::<f32>(0.1, Spacing::Widest);
    let pass = RoundingPass::new(quantum, Rounding::unbiased(1), Rank(0));
    let from: Vec<f32> = (0..3 * CHUNK + 5).map(|i| (i as f32).sin()).collect();
    let (mut apart, mut in_place) = (vec![0.0; from.len()], from.clone());
    pass.run(Some(&from), &mut apart, None, Level::best());
    pass.run(None, &mut in_place, None, Level::best());
    assert_eq!(apart, in_place);
    // Rounding again changes nothing.
    let other = RoundingPass::new(quantum, Rounding::unbiased(2), Rank(7));
    other.run(None, &mut in_place, None, Level::best());
    assert_eq!(apart, in_place);
}

fn errors_are_carried<T: Float<Wide: Unit>>(bound: f64, rounding: Rounding) {
    let quantum = Quantum::new::<T>(bound / rounding.half_steps()).unwrap();
    let inputs: Vec<T> = (0..500).map(|i| T::from_f64((i as f64 * 0.7).sin() * 0.04)).collect();
    let mut residues = vec![T::Wide::nearest(0.0); inputs.len()];
    let (mut sums, mut lost) = (vec![0.0; inputs.len()], 0.0_f64);
    for step in 0..200 {
        let mut values = inputs.clone();
        let rounding = rounding.of_array(step);
        RoundingPass::new(quantum, rounding, Rank(0)).run_on_floats(
            None,
            &mut values,
            Some(&mut residues),
            Level::best(),
        );
        sums.iter_mut().zip(&values).for_each(|(sum, y)| *sum += y.to_f64());
        for ((sum, x), e) in sums.iter().zip(&inputs).zip(&residues) {
            let (n, e) = (f64::from(step as u32 + 1), e.to_f64());
            assert!(e.abs() <= bound, "{e}");
            // Rounding errors of the wide type, in which the pass computes.
            let slack = n * (bound + 0.04) * 1.2e-7;
            assert!((n * x.to_f64() - sum - e).abs() <= slack, "step {step}");
            lost = lost.max((n * x.to_f64() - sum).abs());
        }
    }
    assert!(lost <= 1.001 * bound && lost > bound / 8.0, "{lost}");
}

#[test]
fn with_feedback_the_sum_over_steps_stays_within_one_bound_of_the_exact_one() {
    for rounding in [Rounding::Nearest, Rounding::unbiased(3)] {
        for bound in [0.5, 0.01] {
            errors_are_carried::<f32>(bound, rounding);
            errors_are_carried::<f64>(bound, rounding);
            errors_are_carried::<f16>(bound, rounding);
            errors_are_carried::<bf16>(bound, rounding);
        }
    }
}

#[test]
fn what_is_not_finite_goes_as_it_is_and_leaves_the_feedback() {
    let quantum = Quantum::new::<f16>(0.5).unwrap();
    let nan = f16::from_bits(0x7e11);
    let specials = [nan, f16::INFINITY, f16::NEG_INFINITY, f16::MAX, f16::MIN];
    for rounding in [Rounding::Nearest, Rounding::unbiased(3)] {
        let pass = RoundingPass::new(quantum, rounding, Rank(0));
        let (mut values, mut residues) = (specials, [0.25_f32; 5]);
        pass.run(None, &mut values, Some(&mut residues), Level::best());
        assert_eq!(values.map(f16::to_bits), specials.map(f16::to_bits));
        assert_eq!(residues[..3], [0.25; 3]);
    }
    // A residue that is NaN is dropped.
    let (mut values, mut residues) = ([1.0_f32], [f32::NAN]);
    let quantum = Quantum::new::<f32>(0.5).unwrap();
    let pass = RoundingPass::new(quantum, Rounding::Nearest, Rank(0));
    pass.run(None, &mut values, Some(&mut residues), Level::best());
    assert_eq!((values, residues), ([1.0], [0.0]));
}

#[test]
fn an_exact_call_sends_what_was_lost_before_as_far_as_the_type_holds_it() {
    let pass = RoundingPass::new(Quantum::LOSSLESS, Rounding::unbiased(1), Rank(0));
    let (mut values, mut residues) = ([bf16::from_f64(1.0), bf16::from_f64(256.0)], [0.25, 0.25]);
    pass.run(None, &mut values, Some(&mut residues), Level::best());
    assert_eq!((values.map(bf16::to_f64), residues), ([1.25, 256.0], [0.0, 0.25]));
}

/// χ² statistic over 16 bins. With 15 degrees of freedom, 99.99 % of samples are below 44.3.
fn chi_square(units: impl Iterator<Item = f64>) -> f64 {
    let mut bins = [0.0; 16];
    units.for_each(|unit| bins[(unit * 16.0) as usize] += 1.0);
    let expected = bins.iter().sum::<f64>() / 16.0;
    bins.iter().map(|n| (n - expected).powi(2) / expected).sum()
}

/// Checks that numbers are uniform, and also the pairs of neighbours, each combined to one number.
fn are_uniform(name: &str, units: impl Fn(usize) -> [f64; 2]) {
    const N: usize = 20_000;
    for which in 0..2 {
        let at = |i: usize| units(i)[which];
        assert!((0..N).map(at).all(|unit| unit > 0.0 && unit < 1.0), "{name}");
        let pair = |i: usize| ((at(i) * 4.0).floor() + at(i + 1)) / 4.0;
        let found = [chi_square((0..N).map(at)), chi_square((0..N).map(pair))];
        assert!(found.iter().all(|found| *found < 44.3), "{name}: {found:?}");
    }
}

#[test]
fn random_numbers_are_uniform_over_places_chunks_seeds_and_ranks() {
    let units = |[seed, rank, chunk, at]: [usize; 4]| {
        let key = random::key(random::stream(seed as u64, Rank::new(rank)), chunk);
        [f64::from(f32::unit(key, at as u32)), f64::unit(key, at as u32)]
    };
    are_uniform("places", |i| units([1, 0, 0, i]));
    are_uniform("chunks", |i| units([1, 0, i, 17]));
    are_uniform("seeds", |i| units([i, 2, 3, 17]));
    are_uniform("ranks", |i| units([9, i, 3, 0]));
}

/// Rounds with and without residues, in place and from elsewhere, on any threads.
#[cfg(feature = "std")]
fn threads_round_alike<T: Float<Wide: Unit>>() {
    use crate::threads::Scoped;
    static POOLS: [Scoped; 3] = [Scoped(2), Scoped(3), Scoped(8)];
    let quantum = halved::<T>(1e-2, Spacing::Widest);
    for n in [8 * CHUNK + 1, 99_991] {
        let field: Vec<T> = (0..n).map(|i| T::from_f64((i as f64 * 1e-3).sin() * 3.0)).collect();
        for rounding in [Rounding::Nearest, Rounding::unbiased(7)] {
            let all = |threads| {
                let pass = RoundingPass::new(quantum, rounding, Rank(2)).on(threads);
                let (mut plain, mut sent) = (field.clone(), vec![T::ZERO; n]);
                let mut residues = vec![T::Wide::nearest(1e-3); n];
                pass.run_on_floats(None, &mut plain, None, Level::best());
                pass.run_on_floats(Some(&field), &mut sent, Some(&mut residues), Level::best());
                let bits = |values: Vec<T>| values.iter().map(|x| x.bits()).collect::<Vec<_>>();
                let residues: Vec<u64> = residues.iter().map(|x| x.to_f64().to_bits()).collect();
                (bits(plain), bits(sent), residues)
            };
            let one = all(Threads::ONE);
            for pool in &POOLS {
                assert!(all(Threads::of(pool)) == one, "{n} values on {pool:?}, {rounding:?}");
            }
        }
    }
}

#[cfg(feature = "std")]
#[test]
fn threads_change_no_rounded_bit() {
    threads_round_alike::<f32>();
    threads_round_alike::<f64>();
}
