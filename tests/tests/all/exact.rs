//! A lattice whose step is a power of two keeps its points and their sums exactly.

use foldwire::bound::ValueRange;
use foldwire::codec::FzLight;
use foldwire::kernel::Level;
use foldwire::pipeline;
use foldwire::schedule::{Binomial, Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::{
    Bound, DType, Error, Float, Op, Plan, Quantum, Rank, Report, Scope, SharedCommunicator,
    Spacing, bf16, f16,
};
use foldwire_tests::data::{self, Random};
use foldwire_tests::{Backend, Threads, coding};
use proptest::prelude::*;

const SCHEDULES: [&dyn Schedule; 3] = [&Ring, &RecursiveDoubling, &Pairwise];

/// Returns whole numbers: small, large, constant, and some beyond the codes.
fn whole<T: Float>(rank: usize, count: usize, largest: f64) -> Vec<T> {
    let mut random = Random(9 + rank as u64);
    let some = largest.min(79.0);
    let mut value = |i: usize| match i / 500 % 4 {
        0 => (i % (some as usize + 1)) as f64,
        1 => ((2.0 * random.unit() - 1.0) * largest).round(),
        2 => some,
        _ => (random.unit() * 2.0).floor(),
    };
    (0..count).map(|i| T::from_f64(value(i))).collect()
}

fn sums<T: Float>(inputs: &[Vec<T>], op: Op<'_, T>, plan: &Plan) -> Vec<(Vec<T>, Report)> {
    let outcomes = Threads { frame_bytes: Some(20_000) }.run(inputs.len(), |mut comm| {
        let mut values = inputs[comm.rank().index()].clone();
        comm.all_reduce(&mut values, op, plan).map(|report| (values, report))
    });
    outcomes.into_iter().map(|outcome| outcome.expect("all-reduce")).collect()
}

fn whole_numbers_are_exact<T: Float>() {
    // Sums of eight fit the mantissa. Codes end at 2²¹ and 2⁵⁰.
    let largest = match T::BYTES {
        2 => 1.0 / (8.0 * T::UNIT_ROUNDOFF),
        4 => 2f64.powi(21),
        _ => 2f64.powi(50),
    };
    for size in [1, 2, 3, 4, 5, 8] {
        let inputs: Vec<Vec<T>> = (0..size).map(|rank| whole(rank, 9000, largest)).collect();
        let total = |f: fn(f64, f64) -> f64| -> Vec<f64> {
            let column = |i: usize| inputs.iter().map(move |x| x[i].to_f64());
            (0..9000).map(|i| column(i).reduce(f).expect("a rank")).collect()
        };
        let (sum, min) = (total(|a, b| a + b), total(f64::min));
        let is = |y: &[T], exact: &[f64]| y.iter().zip(exact).all(|(y, x)| y.to_f64() == *x);
        for pipeline in pipeline::ALL {
            for schedule in SCHEDULES {
                let plan = Plan::raw()
                    .compressed(pipeline, Bound::Absolute(0.5))
                    .with_schedule(schedule)
                    .with_spacing(Spacing::PowerOfTwo);
                let context = format!("{size} ranks, {plan:?}");
                for (y, report) in sums(&inputs, Op::Sum, &plan) {
                    assert!(is(&y, &sum), "sum, {context}");
                    assert_eq!(report.bound, 0.5, "{context}");
                }
                assert!(
                    sums(&inputs, Op::Min, &plan).iter().all(|(y, _)| is(y, &min)),
                    "{context}"
                );
                if size.is_power_of_two() {
                    let average: Vec<f64> = sum.iter().map(|x| x / size as f64).collect();
                    let averages = sums(&inputs, Op::Avg, &plan);
                    assert!(averages.iter().all(|(y, _)| is(y, &average)), "average, {context}");
                }
            }
            let plan = Plan::raw()
                .compressed(pipeline, Bound::Absolute(0.5))
                .with_schedule(&Binomial)
                .with_spacing(Spacing::PowerOfTwo);
            let moved = Threads::default().run(size, |mut comm| {
                let mut values = inputs[comm.rank().index()].clone();
                comm.broadcast(&mut values, Rank(0), &plan).map(|_| values)
            });
            let root: Vec<f64> = inputs[0].iter().map(|x| x.to_f64()).collect();
            assert!(moved.iter().all(|y| y.as_ref().is_ok_and(|y| is(y, &root))), "{plan:?}");
        }
    }
}

#[test]
fn whole_numbers_and_their_sums_come_through_exactly() {
    whole_numbers_are_exact::<f32>();
    whole_numbers_are_exact::<f64>();
    whole_numbers_are_exact::<f16>();
    whole_numbers_are_exact::<bf16>();
}

/// Without a step that is a power of two, whole numbers are not lattice points.
#[test]
fn the_widest_spacing_does_not_keep_whole_numbers() {
    let inputs = vec![vec![79.0f64; 100], vec![0.0; 100]];
    let plan = Plan::foldwire(Bound::Absolute(0.01));
    assert!(sums(&inputs, Op::Sum, &plan).iter().all(|(y, _)| y[0] != 79.0));
    let plan = plan.with_spacing(Spacing::PowerOfTwo);
    assert!(sums(&inputs, Op::Sum, &plan).iter().all(|(y, _)| y[0] == 79.0));
}

#[test]
fn ranks_of_different_spacings_are_told() {
    for bound in [Bound::Absolute(0.01), Bound::Relative(1e-3)] {
        let outcomes = Threads::default().run(3, |mut comm| {
            let spacing =
                if comm.rank() == Rank(1) { Spacing::PowerOfTwo } else { Spacing::Widest };
            let plan = Plan::foldwire(bound).with_schedule(&Ring).with_spacing(spacing);
            let mut values: Vec<f32> = data::smooth(comm.rank().index(), 5000);
            comm.all_reduce(&mut values, Op::Sum, &plan)
        });
        let differs = |error: &Error| matches!(error, Error::Mismatch { .. });
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        assert!(outcomes.iter().filter_map(|o| o.as_ref().err()).any(differs), "{outcomes:?}");
    }
}

/// Tests every kind of bound, also on the result, with ordinary data.
#[test]
fn every_bound_holds_with_a_power_of_two() {
    let bounds = [Bound::Absolute(1e-3), Bound::Relative(1e-3), Bound::Psnr(60.0)];
    let inputs: Vec<Vec<f64>> = (0..5).map(|rank| data::smooth(rank, 9000)).collect();
    let value_range = ValueRange::of(&inputs.concat());
    for bound in bounds {
        let asked = bound.absolute(value_range).expect("positive");
        for scope in [Scope::PerOperand, Scope::Result] {
            let plan = Plan::foldwire(bound).with_scope(scope).with_spacing(Spacing::PowerOfTwo);
            for (y, report) in sums(&inputs, Op::Sum, &plan) {
                let allowed = if scope == Scope::Result { asked } else { 5.0 * asked };
                assert!(report.bound <= asked && report.bound > asked / 20.0, "{report:?}");
                assert!(report.worst_case.is_some_and(|worst| worst <= allowed), "{report:?}");
                for (i, y) in y.iter().enumerate() {
                    let exact: f64 = inputs.iter().map(|x| x[i]).sum();
                    assert!((y - exact).abs() <= allowed + 1e-12, "{plan:?}");
                }
            }
        }
    }
}

/// Any bits, lattice points, and values half way between two points.
fn values<T: Float>(step: f64) -> impl Strategy<Value = Vec<T>> {
    let value = prop_oneof![
        4 => any::<i16>().prop_map(move |q| T::from_f64(step * f64::from(q))),
        2 => any::<i32>().prop_map(move |q| T::from_f64(step * f64::from(q))),
        2 => any::<i16>().prop_map(move |q| T::from_f64(step * (f64::from(q) + 0.5))),
        2 => (-300.0..300.0f64).prop_map(move |x| T::from_f64(step * x)),
        1 => any::<u64>().prop_map(|bits| data::from_bits::<T>(bits.rotate_left(29))),
    ];
    prop::collection::vec(value, 0..200)
}

fn points_are_exact<T: Float>(bound: f64, x: &[T]) -> Result<(), TestCaseError> {
    let quantum = Quantum::with_spacing::<T>(bound, Spacing::PowerOfTwo).expect("positive");
    let (step, kept) = (quantum.step(), quantum.bound());
    // A quantum's bound is at most MAX^(3/4): about 4094 for `f16`.
    let largest = if T::DTYPE == DType::F16 { 4090.0 } else { 1e28 };
    prop_assert!(step == 0.0 || step <= 2.0 * bound && 2.0 * step > 2.0 * bound.min(largest));
    let mut first = None;
    for level in Level::available() {
        let codec = FzLight::with_level(quantum, 3, level);
        let frame = coding::encode(&codec, x);
        let y = coding::decode(&codec, &frame, x.len());
        for (&x, &y) in x.iter().zip(&y) {
            let (exact, got) = (x.to_f64(), y.to_f64());
            // A quotient that underflows is not a whole number.
            let quotient = exact / step;
            let is_point = step > 0.0 && quotient.fract() == 0.0 && quotient * step == exact;
            let same = data::bytes(&[x]) == data::bytes(&[y]) || exact == got;
            prop_assert!(same || !is_point, "{x:?} became {y:?} with the step {step:e}");
            prop_assert!(same || (exact - got).abs() <= kept, "{x:?} became {y:?}, {step:e}");
        }
        prop_assert_eq!(&*first.get_or_insert_with(|| frame.clone()), &frame);
    }
    Ok(())
}

fn bounds() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-30.0..20.0f64).prop_map(|e| 10f64.powf(e)),
        (-100..60i32).prop_map(|e| 2f64.powi(e))
    ]
}

/// Returns the largest power of two that is at most `x`.
fn power_of_two_below(x: f64) -> f64 {
    2f64.powi(x.log2().floor() as i32)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_multiple_of_the_step_is_kept_in_f32(
        (bound, x) in
            bounds().prop_flat_map(|b| (Just(b), values::<f32>(power_of_two_below(2.0 * b))))
    ) {
        points_are_exact(bound, &x)?;
    }

    #[test]
    fn any_multiple_of_the_step_is_kept_in_f16(
        (bound, x) in
            bounds().prop_flat_map(|b| (Just(b), values::<f16>(power_of_two_below(2.0 * b))))
    ) {
        points_are_exact(bound, &x)?;
    }

    #[test]
    fn any_multiple_of_the_step_is_kept_in_bf16(
        (bound, x) in
            bounds().prop_flat_map(|b| (Just(b), values::<bf16>(power_of_two_below(2.0 * b))))
    ) {
        points_are_exact(bound, &x)?;
    }

    #[test]
    fn any_multiple_of_the_step_is_kept_in_f64(
        (bound, x) in
            bounds().prop_flat_map(|b| (Just(b), values::<f64>(power_of_two_below(2.0 * b))))
    ) {
        points_are_exact(bound, &x)?;
    }
}

/// A value half way between two points is within the bound, so it must not become an exception.
#[test]
fn values_half_way_between_points_are_codes() {
    let quantum = Quantum::with_spacing::<f32>(0.5, Spacing::PowerOfTwo).expect("positive");
    let codec = FzLight::new(quantum, 2);
    let x: Vec<f32> = (0..4096).map(|i| (i % 100) as f32 + 0.5).collect();
    let frame = coding::encode(&codec, &x);
    assert!(frame.len() < 6000, "{} bytes", frame.len());
    let y = coding::decode(&codec, &frame, x.len());
    assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 0.5));
}

/// Arrays below the plan's threshold are summed exactly. The threshold changes nothing for longer
/// arrays.
#[test]
fn short_arrays_may_travel_as_they_are() {
    let lossy = Plan::foldwire(Bound::Relative(1e-2));
    let plan = lossy.with_exact_below(4000);
    let inputs = |count| (0..3).map(|rank| data::smooth::<f32>(rank, count)).collect::<Vec<_>>();
    let (below, at) = (inputs(999), inputs(1000));
    for ((sum, report), (raw, of_raw)) in
        sums(&below, Op::Sum, &plan).iter().zip(sums(&below, Op::Sum, &Plan::raw()))
    {
        assert!(data::bits(sum) == data::bits(&raw));
        assert_eq!((report.bound, report.worst_case), (0.0, Some(0.0)));
        assert_eq!(report.n_messages, of_raw.n_messages, "no scan");
    }
    for ((sum, report), (same, of_same)) in
        sums(&at, Op::Sum, &plan).iter().zip(sums(&at, Op::Sum, &lossy))
    {
        assert!(data::bits(sum) == data::bits(&same) && report.bound > 0.0);
        assert_eq!((report.bound, report.n_messages), (of_same.bound, of_same.n_messages));
    }
    // The threshold applies to each array of a group. A rank with another threshold gets an error.
    let outcomes = Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 2)?;
        let rank = world.rank().index();
        let mut group = [below[rank].clone(), at[rank].clone(), below[rank].clone()];
        let bound = Bound::Relative(1e-2);
        let mut arrays: Vec<_> = group.iter_mut().map(|x| (&mut x[..], bound)).collect();
        let reports = world.all_reduce_group(&mut arrays, Op::Sum, &plan)?;
        let plan = if rank == 1 { lossy } else { plan };
        let differs = world.all_reduce(&mut below[rank].clone(), Op::Sum, &plan);
        Ok::<_, Error>((group, reports.iter().map(|report| report.bound > 0.0).collect(), differs))
    });
    let expected = [sums(&below, Op::Sum, &plan), sums(&at, Op::Sum, &plan)]
        .map(|mut ranks| ranks.remove(0).0);
    for outcome in outcomes {
        let (group, is_lossy, differs): (_, Vec<bool>, _) = outcome.unwrap();
        assert_eq!(is_lossy, [false, true, false]);
        for (sum, want) in group.iter().zip([0, 1, 0]) {
            assert!(data::bits(sum) == data::bits(&expected[want]));
        }
        assert!(
            matches!(differs, Err(Error::Mismatch { .. } | Error::Aborted { .. })),
            "{differs:?}"
        );
    }
}
