//! The bound holds for every value, for any values, bounds and schedules.
//!
//! The tests compute errors in `f64`, and sums exactly (with compensation), so their own rounding
//! hides nothing.

use foldwire::bound::ValueRange;
use foldwire::codec::FzLight;
use foldwire::kernel::Level;
use foldwire::pipeline::{self, COMPRESS_ONCE, FUSED, HOMOMORPHIC, PER_HOP, Pipeline};
use foldwire::schedule::{Pairwise, ProgramSpec, RecursiveDoubling, Ring, Schedule};
use foldwire::{
    Bound, Collective, Error, Float, Op, Plan, Quantum, Rank, Report, Scope, bf16, f16,
};
use foldwire_tests::case::ROUTES;
use foldwire_tests::data::Random;
use foldwire_tests::{Backend, Case, Operation, Threads, coding, data, oracle};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;

const SCHEDULES: [&dyn Schedule; 3] = [&Ring, &RecursiveDoubling, &Pairwise];

/// Arrays of lattice points with noise, midpoints, arbitrary bit patterns and special values, or of
/// a smooth curve.
fn values<T: Float>(bound: f64) -> impl Strategy<Value = Vec<T>> {
    let near_lattice = move |(q, offset): (i32, f64)| T::from_f64(bound * (f64::from(q) + offset));
    let value = prop_oneof![
        4 => (-300..300, -1.0..1.0).prop_map(near_lattice),
        1 => (any::<i32>(), -1.0..1.0).prop_map(near_lattice),
        // Midpoints between codes, where rounding decides.
        1 => any::<i16>().prop_map(move |q| {
            let step = Quantum::new::<T>(bound).expect("a bound").step();
            T::from_f64(step * (f64::from(q) + 0.5))
        }),
        1 => any::<u64>().prop_map(|bits| data::from_bits::<T>(bits.rotate_left(29))),
        1 => any::<f64>().prop_map(T::from_f64),
        1 => prop::sample::select(vec![
            0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-45, 1e-310, 5e-324, 3.4e38,
            f64::MIN, f64::from(f32::MIN_POSITIVE), f64::MIN_POSITIVE,
        ]).prop_map(T::from_f64),
    ];
    let smooth = (-300..300i32, 0..300usize).prop_map(move |(q, n)| {
        (0..n).map(|i| T::from_f64(bound * (f64::from(q) + (i as f64 * 0.1).sin() * 9.0))).collect()
    });
    prop_oneof![3 => prop::collection::vec(value, 0..300), 1 => smooth]
}

fn case<T: Float>() -> impl Strategy<Value = (f64, Vec<T>)> {
    (-40.0..40.0f64)
        .prop_map(|exponent| 10f64.powf(exponent))
        .prop_flat_map(|bound| (Just(bound), values::<T>(bound)))
}

fn bound_or_bits<T: Float>(bound: f64, x: &[T]) -> Result<(), TestCaseError> {
    let mut first = None;
    for level in Level::available() {
        let codec = FzLight::with_level(Quantum::new::<T>(bound).expect("a bound"), 3, level);
        let frame = coding::encode(&codec, x);
        let y = coding::decode(&codec, &frame, x.len());
        for (&x, &y) in x.iter().zip(&y) {
            let close = (x.to_f64() - y.to_f64()).abs() <= bound;
            let same = data::bytes(&[x]) == data::bytes(&[y]);
            prop_assert!(close || same, "{x:?} became {y:?} at {bound:e}");
        }
        let first = first.get_or_insert_with(|| frame.clone());
        prop_assert_eq!(&*first, &frame);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_f32_is_within_any_bound_or_bit_exact((bound, x) in case::<f32>()) {
        bound_or_bits(bound, &x)?;
    }

    #[test]
    fn any_f64_is_within_any_bound_or_bit_exact((bound, x) in case::<f64>()) {
        bound_or_bits(bound, &x)?;
    }

    #[test]
    fn any_f16_is_within_any_bound_or_bit_exact((bound, x) in case::<f16>()) {
        bound_or_bits(bound, &x)?;
    }

    #[test]
    fn any_bf16_is_within_any_bound_or_bit_exact((bound, x) in case::<bf16>()) {
        bound_or_bits(bound, &x)?;
    }
}

/// Returns a sum and the rest that its rounding lost (Neumaier's compensation).
fn exact_sum(operands: impl Iterator<Item = f64>) -> (f64, f64) {
    operands.fold((0.0, 0.0), |(sum, rest), x| {
        let next: f64 = sum + x;
        let lost = if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        (next, rest + lost)
    })
}

/// |y − exact sum / divisor|, as exactly as `f64` allows.
fn error_of(y: f64, (sum, rest): (f64, f64), divisor: f64) -> f64 {
    if divisor == 1.0 {
        ((y - sum) - rest).abs()
    } else {
        (y.mul_add(divisor, -sum) - rest).abs() / divisor
    }
}

/// Inputs of one all-reduce with a bound on its result.
#[derive(Clone, Debug)]
struct ErrorBudget {
    size: usize,
    amplitude: f64,
    offset: f64,
    bound: Bound,
    is_average: bool,
    /// Index into [`pipeline::ALL`].
    pipeline: usize,
    /// Index into [`SCHEDULES`].
    schedule: usize,
    seed: u64,
}

fn budget() -> impl Strategy<Value = ErrorBudget> {
    let bound = prop_oneof![
        (-7.0..0.0f64).prop_map(|e| Bound::Absolute(10f64.powf(e))),
        (-7.0..-1.0f64).prop_map(|e| Bound::Relative(10f64.powf(e))),
        (30.0..120.0f64).prop_map(Bound::Psnr),
    ];
    let place = (-3.0..4.0f64, -1.0..1.0f64);
    (2..=6usize, place, bound, any::<bool>(), 1..5usize, 0..3usize, any::<u64>()).prop_map(
        |(size, (exponent, offset), bound, is_average, pipeline, schedule, seed)| {
            let amplitude = 10f64.powf(exponent);
            let offset = 3.0 * offset * amplitude;
            // Scale absolute bounds, so that most are feasible.
            let bound = match bound {
                Bound::Absolute(bound) => Bound::Absolute(bound * amplitude),
                other => other,
            };
            ErrorBudget { size, amplitude, offset, bound, is_average, pipeline, schedule, seed }
        },
    )
}

/// Checks that every value is within the bound, or that the call was refused for a good reason.
/// Returns whether the call was accepted.
fn budget_holds<T: Float>(budget: &ErrorBudget) -> Result<bool, TestCaseError> {
    let ErrorBudget { size, amplitude, offset, bound, is_average, .. } = *budget;
    let inputs: Vec<Vec<T>> = (0..size as u64)
        .map(|rank| {
            let mut random = Random(budget.seed ^ rank);
            let value = |i: usize| {
                let noise = random.unit() - 0.5;
                let x = (i as f64 * 0.01 + rank as f64).sin() + 0.3 * noise;
                // Outliers, which small bounds put beyond the lattice.
                let x = if random.bits().is_multiple_of(97) { 5.0 * x } else { x };
                T::from_f64(offset + amplitude * x)
            };
            (0..700).map(value).collect()
        })
        .collect();
    // Combine the ranks' ranges as the library does. `grid` and `increment` are spacings on which
    // the values and their differences lie, and the finest one counts.
    let extents = inputs.iter().filter_map(|x| ValueRange::of(x));
    let value_range = extents.reduce(|a, b| ValueRange {
        min: a.min.min(b.min),
        max: a.max.max(b.max),
        grid: a.grid.min(b.grid),
        increment: a.increment.min(b.increment),
    });
    let allowed = bound.absolute(value_range).expect("a good bound");
    let op = if is_average { Operation::Avg } else { Operation::Sum };
    let plan = Plan::raw()
        .compressed(pipeline::ALL[budget.pipeline], bound)
        .with_schedule(SCHEDULES[budget.schedule])
        .with_scope(Scope::Result);
    let results = Threads { frame_bytes: Some(4096) }.run(size, |mut comm| {
        let mut x = inputs[comm.rank().index()].clone();
        comm.all_reduce(&mut x, op.op(), &plan).map(|report| (x, report))
    });
    let divisor = if is_average { size as f64 } else { 1.0 };
    let mut n_accepted = 0;
    for result in results {
        let (y, report) = match result {
            Err(Error::Bound(foldwire::bound::BoundError::BelowPrecision { .. })) => {
                // The call may be refused only if rounding can cost as much as the bound. It costs
                // (n + 4)·u·m for n ranks, unit roundoff u and results up to m.
                let magnitude =
                    inputs.iter().flatten().fold(0.0f64, |m, x| m.max(x.to_f64().abs()));
                let largest = if is_average { magnitude } else { size as f64 * magnitude };
                // In 16 bits, errors add to the values that are rounded, and underflow matters.
                let (reach, underflow) = match T::BYTES {
                    2 => (largest + allowed, (2.0 * size as f64 + 2.0) * T::SMALLEST),
                    _ => (largest, 0.0),
                };
                let rounding = (size as f64 + 4.0) * T::UNIT_ROUNDOFF * reach + underflow;
                prop_assert!(allowed <= 1.001 * rounding, "{budget:?}: {allowed:e}, {rounding:e}");
                continue;
            }
            other => other.expect("a correct call"),
        };
        n_accepted += 1;
        prop_assert!(report.worst_case.is_some_and(|worst| worst <= allowed));
        for (i, y) in y.iter().enumerate() {
            let exact = exact_sum(inputs.iter().map(|x| x[i].to_f64()));
            let error = error_of(y.to_f64(), exact, divisor);
            prop_assert!(error <= allowed, "{budget:?}: off by {error:e} of {allowed:e}");
        }
    }
    prop_assert!(n_accepted == 0 || n_accepted == size, "{budget:?}: {n_accepted} accepted");
    Ok(n_accepted > 0)
}

impl ErrorBudget {
    /// Scales the data down, so that sums fit every type, and makes the bound coarser relative to
    /// them.
    fn scaled(self, by: f64, coarser: f64) -> Self {
        let bound = match self.bound {
            Bound::Absolute(bound) => Bound::Absolute(bound * by * coarser),
            Bound::Relative(bound) => Bound::Relative(bound * coarser),
            Bound::Psnr(db) => Bound::Psnr((db - 20.0 * coarser.log10()).max(1.0)),
            other => other,
        };
        Self { amplitude: self.amplitude * by, offset: self.offset * by, bound, ..self }
    }
}

/// Checks 400 budgets. At least `least` of them must be accepted.
fn budgets_hold<T: Float>(least: u32) {
    let accepted = Cell::new(0);
    let config =
        ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let budget = budget().prop_map(|budget| match T::BYTES {
        2 => budget.scaled(0.02, 0.5 * T::UNIT_ROUNDOFF / f64::from(f32::EPSILON) / 100.0),
        _ => budget,
    });
    let run = runner.run(&budget, |budget| {
        accepted.set(accepted.get() + u32::from(budget_holds::<T>(&budget)?));
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(accepted.get() >= least, "only {} of 400 were accepted", accepted.get());
}

#[test]
fn a_bound_on_the_result_holds_for_f32() {
    // Bounds below about 10⁻⁵ of the data are too small for `f32`.
    budgets_hold::<f32>(200);
}

#[test]
fn a_bound_on_the_result_holds_for_f64() {
    budgets_hold::<f64>(400);
}

#[test]
fn a_bound_on_the_result_holds_in_sixteen_bits() {
    // Bounds below about 10⁻² of the data are too small for `f16`, and below 10⁻¹ for `bf16`.
    budgets_hold::<f16>(40);
    budgets_hold::<bf16>(40);
}

/// 20·log₁₀(range / root mean square error).
fn psnr(x: &[f64], y: &[f64], range: f64) -> f64 {
    let squares: f64 = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum();
    20.0 * (range / (squares / x.len() as f64).sqrt()).log10()
}

/// The lattice of a bound eb has the step Δ = 2·eb·(1 − 2⁻⁶), whose last factor is a margin for
/// rounding. Evenly distributed errors have a mean square of Δ²/12, 4.9 dB below eb²: a factor of
/// √3·64/63 in the root. The worst data lie half way between two lattice points everywhere, and
/// still have the requested PSNR.
#[test]
fn the_psnr_of_every_operand_is_at_least_the_one_asked_for() {
    const N: usize = 100_000;
    for db in [30.0, 50.0, 70.0, 90.0] {
        let even = |rank: u64| -> Vec<f64> {
            let mut random = Random(rank);
            let x = |i: usize| (i as f64 * 1e-4 + rank as f64).sin() + 0.3 * random.unit();
            (0..N).map(x).collect()
        };
        // The even operands span −1…1.3. The worst data are midpoints of that range's lattice,
        // within the same span.
        let value_range = ValueRange::of(&[even(0), even(1)].concat()).expect("finite");
        let step =
            Quantum::new::<f64>(Bound::Psnr(db).absolute(Some(value_range)).expect("positive"))
                .expect("a bound")
                .step();
        let worst: Vec<f64> = (0..N)
            .map(|i| (((i as f64 * 1e-3).sin() / step).round() * 0.5).trunc() * step + 0.5 * step)
            .collect();
        let inputs = [even(0), even(1), worst];
        let plan = Plan::foldwire(Bound::Psnr(db));
        let results = Threads::default().run(3, |mut comm| {
            // An all-gather only moves operands, so each arrives as it was encoded.
            let rank = comm.rank().index();
            let mut all = vec![0.0f64; 3 * N];
            comm.all_gather(&inputs[rank], &mut all, &plan).map(|report| (all, report))
        });
        for result in results {
            let (all, report) = result.expect("all-gather");
            let measured: Vec<f64> = inputs
                .iter()
                .zip(all.chunks(N))
                .map(|(x, y)| psnr(x, y, value_range.range()))
                .collect();
            assert!(measured.iter().all(|&m| m >= db), "{measured:?} dB for {db} dB");
            let expected = db + 20.0 * (3f64.sqrt() * 64.0 / 63.0).log10();
            assert!((measured[0] - expected).abs() < 0.1, "{measured:?} dB, {expected} expected");
            assert!(measured[2] < db + 0.3, "{measured:?}: the worst data are not the worst");
            for (x, y) in inputs.iter().flatten().zip(&all) {
                assert!((x - y).abs() <= report.bound);
            }
        }
    }
}

#[test]
fn a_relative_bound_is_a_share_of_the_range_over_all_ranks() {
    for rel in [1e-2, 1e-4, 1e-6] {
        // The values of rank r lie in 10·r…10·r + 1, so the range over all ranks is about 31.
        let results = Threads::default().run(4, |mut comm| {
            let rank = comm.rank().index();
            let x: Vec<f64> =
                data::smooth(rank, 20_000).iter().map(|x: &f64| x + 10.0 * rank as f64).collect();
            let mut all = vec![0.0; 80_000];
            comm.all_gather(&x, &mut all, &Plan::foldwire(Bound::Relative(rel)))
                .map(|r| (x, all, r))
        });
        let results: Vec<_> = results.into_iter().map(|r| r.expect("all-gather")).collect();
        let exact: Vec<f64> = results.iter().flat_map(|(x, _, _)| x.clone()).collect();
        let range = ValueRange::of(&exact).expect("finite").range();
        assert!(range > 30.0);
        for (_, all, report) in &results {
            assert_eq!(report.bound, rel * range);
            let error = exact.iter().zip(all).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(error <= rel * range && error > 0.9 * rel * range, "{error:e}");
        }
    }
}

/// Returns the errors of an all-reduce of `f64` data, where rounding is negligible, and a report.
fn measure(
    size: usize,
    op: Operation,
    pipeline: Pipeline,
    schedule: &'static dyn Schedule,
) -> (Vec<f64>, Report) {
    let inputs: Vec<Vec<f64>> = (0..size)
        .map(|rank| {
            let mut random = Random(17 + rank as u64);
            (0..20_000).map(|i| (i as f64 * 1e-3 + rank as f64).sin() + random.unit()).collect()
        })
        .collect();
    let plan = Plan::raw().compressed(pipeline, Bound::Absolute(1e-3)).with_schedule(schedule);
    let mut results = Threads { frame_bytes: Some(60_000) }.run(size, |mut comm| {
        let mut x = inputs[comm.rank().index()].clone();
        let report = comm.all_reduce(&mut x, op.op(), &plan).expect("all-reduce");
        (x, report)
    });
    let (y, report) = results.swap_remove(0);
    let exact = |i: usize| {
        let operands: Vec<f64> = inputs.iter().map(|x| x[i]).collect();
        foldwire_tests::oracle::reduce(op, &operands)
    };
    (y.iter().enumerate().map(|(i, y)| (y - exact(i)).abs()).collect(), report)
}

#[test]
fn no_error_is_above_the_worst_case_of_the_report() {
    for size in [1, 2, 3, 4, 5, 7, 8, 9] {
        for op in [Operation::Sum, Operation::Avg, Operation::Min, Operation::Max] {
            for pipeline in [PER_HOP, COMPRESS_ONCE, HOMOMORPHIC, FUSED] {
                for schedule in SCHEDULES {
                    let (errors, report) = measure(size, op, pipeline, schedule);
                    let worst = report.worst_case.expect("sums and extrema have a worst case");
                    let largest = errors.iter().copied().fold(0.0, f64::max);
                    let context =
                        format!("{op:?} on {size} ranks, {}, {}", pipeline.name, schedule.name());
                    assert!(
                        largest <= worst * (1.0 + 1e-9) + 1e-14,
                        "{context}: {largest:e}, {worst:e}"
                    );
                    let case = Case { schedule, pipeline, op, ..Case::all_reduce(size, 20_000) };
                    let terms =
                        oracle::error_terms(&case).expect("sums and extrema have error terms");
                    assert!((worst - terms * 1e-3).abs() < 1e-12, "{context}: {worst:e}");
                }
            }
        }
    }
}

#[test]
fn encodings_that_add_up_are_counted_as_the_guarantees_say() {
    // First the examples of docs/guarantees.md, then its table.
    for (schedule, size, expected) in [
        (&Ring as &dyn Schedule, 8, 8),
        (&RecursiveDoubling, 8, 14),
        (&Ring, 5, 5),
        (&RecursiveDoubling, 5, 8),
    ] {
        let call = ProgramSpec::new(Collective::AllReduce, size, Rank(0));
        assert_eq!(schedule.n_encodings(call), expected, "{}, {size} ranks", schedule.name());
    }
    for (collective, schedule) in ROUTES.into_iter().filter(|(c, _)| c.reduces()) {
        for size in 2..=100 {
            let call = ProgramSpec::new(collective, size, Rank(0));
            let expected = oracle::encodings(schedule.name(), collective, size as u64);
            let context = format!("{} by {}, {size} ranks", collective.name(), schedule.name());
            assert_eq!(schedule.n_encodings(call), expected, "{context}");
        }
    }
}

/// An operand's error is uniform in ±Δ/2, so the sum of n errors has the standard deviation
/// Δ·√(n/12). 95 % of errors are within twice that: (2/√3)·(1 − 2⁻⁶)·√n·eb. (ZCCL's (2/3)·√n·eb
/// assumes normal errors with σ = eb/3; only about 76 % of uniform errors are within it.)
#[test]
fn ninety_five_percent_of_errors_of_a_sum_are_within_two_standard_deviations() {
    for size in [2, 3, 5, 8, 16] {
        for pipeline in [HOMOMORPHIC, FUSED] {
            let (errors, _) = measure(size, Operation::Sum, pipeline, &Ring);
            let sigma = 1e-3 * (1.0 - 1.0 / 64.0) / 3f64.sqrt() * (size as f64).sqrt();
            let share = |limit: f64| {
                errors.iter().filter(|&&error| error <= limit).count() as f64 / errors.len() as f64
            };
            let within = share(2.0 * sigma);
            assert!(within >= 0.95, "{size} ranks: {within}");
            let papers = share(2.0 / 3.0 * (size as f64).sqrt() * 1e-3);
            assert!((0.70..0.85).contains(&papers), "{size} ranks: {papers}");
        }
    }
}

#[test]
fn a_bound_on_the_result_of_a_move_is_the_bound_on_the_values() {
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_scope(Scope::Result);
    let reports = Threads::default().run(4, |mut comm| {
        let mut x: Vec<f32> = data::smooth(comm.rank().index(), 4000);
        let moved = comm.all_gather_in_place(&mut x, &plan).expect("all-gather");
        let minimum = comm.all_reduce(&mut x, Op::Min, &plan).expect("all-reduce");
        (moved, minimum)
    });
    for (moved, minimum) in reports {
        assert_eq!((moved.bound, moved.worst_case), (1e-3, Some(1e-3)));
        assert!(minimum.worst_case.is_some_and(|worst| worst <= 1e-3));
    }
}

fn bound_by<T: Float>(op: Op<'static, T>, bound: f64) -> (f64, Option<f64>) {
    let reports = foldwire_threads::World::new(4).run(|mut comm| {
        let mut values = vec![T::from_f64(bound * 5.0); 3000];
        let plan = Plan::foldwire(Bound::Absolute(bound)).with_exact_below(0);
        let report = comm.all_reduce(&mut values, op, &plan).expect("nothing is wrong");
        (report.bound, report.worst_case)
    });
    assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
    reports[0]
}

/// An average multiplies operands by a weight before it adds them, so that sums do not overflow.
/// The weight is a power of two, 2^−(⌈log₂ n⌉ + 1) for n ranks: 1/8 for four. The sum is divided
/// accordingly. If the weighted lattice step is not a normal number, processors may handle it
/// differently, so the call is exact.
#[test]
fn averages_are_exact_where_the_step_by_their_weight_is_not_normal() {
    for factor in [0.6, 1.0, 3.9] {
        let bounds = [f64::from(f32::MIN_POSITIVE), f64::MIN_POSITIVE].map(|x| factor * x);
        let averages = [bound_by::<f32>(Op::Avg, bounds[0]), bound_by::<f64>(Op::Avg, bounds[1])];
        assert_eq!(averages, [(0.0, Some(0.0)); 2], "{factor}");
        let sums = [bound_by::<f32>(Op::Sum, bounds[0]), bound_by::<f64>(Op::Sum, bounds[1])];
        assert!(sums.iter().all(|(bound, worst)| *bound > 0.0 && *worst > Some(0.0)), "{sums:?}");
    }
    // A step is slightly less than twice the bound, so an eighth of this one is just normal.
    let bound = 4.1 * f64::from(f32::MIN_POSITIVE);
    assert!(bound_by::<f32>(Op::Avg, bound).0 > 0.0);
}
