//! Extreme values of the element types: averages and sums of the largest values, infinities and
//! subnormals, in any order.

use foldwire::bound::{BoundError, rounding, underflow};
use foldwire::codec::Loss;
use foldwire::pipeline;
use foldwire::schedule::{Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::{Bound, DType, Error, Float, Op, Plan, Report, Scope, bf16, f16};
use foldwire_tests::case::CODECS;
use foldwire_tests::data::{self, Random};
use foldwire_tests::{Backend, Threads};

const SCHEDULES: [&dyn Schedule; 3] = [&Ring, &RecursiveDoubling, &Pairwise];
const SIZES: [usize; 6] = [2, 3, 4, 5, 7, 8];

/// Returns every schedule × pipeline × codec, with a bound and without.
fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for schedule in SCHEDULES {
        for pipeline in pipeline::ALL {
            for codec in CODECS {
                let plan = Plan::raw().with_schedule(schedule).with_pipeline(pipeline);
                let plan = plan.with_codec(codec);
                plans.push(plan);
                if codec.loss() != Loss::Setting {
                    plans.push(plan.with_bound(Bound::Absolute(1e-3)));
                }
            }
        }
    }
    plans
}

type AllReduceOutcome<T> = Result<(Vec<T>, Report), Error>;

/// Makes an all-reduce by each plan. Returns every rank's outcomes.
fn all_reduces<T: Float>(
    inputs: &[Vec<T>],
    op: Op<'_, T>,
    plans: &[Plan],
) -> Vec<Vec<AllReduceOutcome<T>>> {
    Threads { frame_bytes: Some(4096) }.run(inputs.len(), |mut comm| {
        let mut one = |plan: &Plan| {
            let mut values = inputs[comm.rank().index()].clone();
            let report = comm.all_reduce(&mut values, op, plan)?;
            // The communicator must stay usable, whatever the result.
            comm.all_reduce(&mut [T::from_f64(1.0)], Op::Sum, &Plan::raw())?;
            Ok((values, report))
        };
        plans.iter().map(&mut one).collect()
    })
}

/// Returns the result of each plan. All ranks must have the same bits.
fn results<T: Float>(inputs: &[Vec<T>], op: Op<'_, T>, plans: &[Plan]) -> Vec<(Vec<T>, Report)> {
    let mut of_ranks: Vec<_> =
        all_reduces(inputs, op, plans).into_iter().map(Vec::into_iter).collect();
    let of_plan = |plan: &Plan| {
        let outcomes = of_ranks.iter_mut().filter_map(Iterator::next);
        let mut outcomes: Vec<_> = outcomes
            .map(|outcome| outcome.unwrap_or_else(|error| panic!("{op:?}, {plan:?}: {error}")))
            .collect();
        assert_eq!(outcomes.len(), inputs.len());
        let first = data::bytes(&outcomes[0].0);
        assert!(outcomes.iter().all(|(y, _)| data::bytes(y) == first), "{op:?}, {plan:?}");
        outcomes.swap_remove(0)
    };
    plans.iter().map(of_plan).collect()
}

/// Returns the result of one plan.
fn result<T: Float>(inputs: &[Vec<T>], op: Op<'_, T>, plan: &Plan) -> (Vec<T>, Report) {
    results(inputs, op, &[*plan]).swap_remove(0)
}

fn max<T: Float>() -> f64 {
    match T::DTYPE {
        DType::F32 => f32::MAX.into(),
        DType::F64 => f64::MAX,
        DType::F16 => f16::MAX.to_f64(),
        DType::Bf16 => bf16::MAX.to_f64(),
        other => panic!("the largest {other} is not known here"),
    }
}

/// Returns values of either sign, many of them the largest of the type.
fn large<T: Float>(rank: usize, count: usize) -> Vec<T> {
    let mut random = Random(77 + rank as u64);
    let mut value = |i: usize| match i % 100 {
        0..20 => max::<T>(),
        20..40 if rank.is_multiple_of(2) => max::<T>(),
        20..40 => -max::<T>(),
        40..60 => -max::<T>(),
        60..80 => max::<T>() * random.unit(),
        _ => max::<T>() * (2.0 * random.unit() - 1.0),
    };
    (0..count).map(|i| T::from_f64(value(i))).collect()
}

fn averages_of_the_largest<T: Float>() {
    // This scaling is exact, and avoids overflow.
    let small = |x: T| x.to_f64() * 2f64.powi(-20);
    for size in SIZES {
        let inputs: Vec<Vec<T>> = (0..size).map(|rank| large(rank, 1000)).collect();
        let plans = plans();
        for (plan, (averages, report)) in plans.iter().zip(results(&inputs, Op::Avg, &plans)) {
            let Some(lossy) = report.worst_case else {
                assert_eq!(plan.codec.loss(), Loss::Setting, "averages have a worst case");
                assert!(averages.iter().all(|y| y.to_f64().is_finite()), "{plan:?}");
                continue;
            };
            let allowed = (lossy + rounding::<T>(size, max::<T>())) * 2f64.powi(-20);
            for (i, &y) in averages.iter().enumerate() {
                let exact = inputs.iter().map(|x| small(x[i])).sum::<f64>() / size as f64;
                let error = (small(y) - exact).abs();
                let slack = 1e-15 * exact.abs();
                assert!(
                    error <= allowed + slack,
                    "{size} ranks, {plan:?}, value {i}: {y:?}, off by {error:e}"
                );
            }
        }
    }
}

#[test]
fn averages_of_the_largest_values_are_within_the_bound() {
    averages_of_the_largest::<f32>();
    averages_of_the_largest::<f64>();
    averages_of_the_largest::<f16>();
    averages_of_the_largest::<bf16>();
}

fn averages_with_an_infinity<T: Float>(has_place: fn(usize, usize) -> bool) {
    for size in SIZES {
        for place in (0..size).filter(|&place| has_place(size, place)) {
            let mut inputs: Vec<Vec<T>> = vec![vec![T::from_f64(max::<T>()); 70]; size];
            inputs[place][7] = T::from_f64(f64::NEG_INFINITY);
            inputs[place][40] = T::from_f64(f64::NAN);
            let plans = plans();
            for (plan, (averages, _)) in plans.iter().zip(results(&inputs, Op::Avg, &plans)) {
                let [six, seven, forty] = [6, 7, 40].map(|i| averages[i].to_f64());
                assert!(
                    seven == f64::NEG_INFINITY && forty.is_nan() && six.is_finite(),
                    "{size} ranks, {place} has it, {plan:?}: {averages:?}"
                );
            }
        }
    }
}

/// Averages with an infinity in each type. `has_place` returns whether to try it on a rank, given
/// the number of ranks.
fn infinities(has_place: fn(usize, usize) -> bool) {
    averages_with_an_infinity::<f32>(has_place);
    averages_with_an_infinity::<f64>(has_place);
    averages_with_an_infinity::<f16>(has_place);
    averages_with_an_infinity::<bf16>(has_place);
}

/// The infinity is on the first or on the last rank.
#[test]
fn the_largest_values_and_an_infinity_average_to_the_infinity() {
    infinities(|size, place| [0, size - 1].contains(&place));
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn the_largest_values_and_an_infinity_on_any_rank_average_to_the_infinity() {
        infinities(|size, place| ![0, size - 1].contains(&place));
    }
}

/// Operands are scaled by a power of two, which must not change the result.
fn averages_are_quotients<T: Float>() {
    for size in SIZES {
        let inputs: Vec<Vec<T>> = (0..size).map(|rank| data::smooth(rank, 3000)).collect();
        let plans: Vec<Plan> = plans().into_iter().filter(|plan| plan.bound.is_none()).collect();
        let [sums, averages] = [Op::Sum, Op::Avg].map(|op| results(&inputs, op, &plans));
        for (plan, ((sums, _), (averages, _))) in plans.iter().zip(sums.into_iter().zip(averages)) {
            let quotients: Vec<T> =
                sums.iter().map(|&x| T::from_f64(x.to_f64() / size as f64)).collect();
            assert!(data::bytes(&averages) == data::bytes(&quotients), "{size} ranks, {plan:?}");
        }
    }
}

#[test]
fn an_average_is_the_sum_divided_by_the_number_of_ranks() {
    averages_are_quotients::<f32>();
    averages_are_quotients::<f64>();
    averages_are_quotients::<f16>();
    averages_are_quotients::<bf16>();
}

/// Returns multiples of the smallest positive value η, with magnitudes up to slightly above the
/// smallest normal number: as integers and as values.
fn subnormals<T: Float>(rank: usize, count: usize) -> (Vec<i128>, Vec<T>) {
    let mut random = Random(5 + rank as u64);
    let bits = -T::UNIT_ROUNDOFF.log2() as usize;
    let mut multiple = |_| {
        let magnitude = random.bits() >> (64 - 1 - random.below(bits));
        if random.bits().is_multiple_of(2) { magnitude as i128 } else { -(magnitude as i128) }
    };
    let multiples: Vec<i128> = (0..count).map(&mut multiple).collect();
    // Multiply in two steps, so that neither factor underflows.
    let value = |&k: &i128| T::from_f64(k as f64 * 2f64.powi(60) * T::SMALLEST * 2f64.powi(-60));
    let values = multiples.iter().map(value).collect();
    (multiples, values)
}

fn averages_of_subnormals<T: Float>() {
    for size in SIZES {
        let inputs: Vec<_> = (0..size).map(|rank| subnormals::<T>(rank, 1000)).collect();
        let values: Vec<Vec<T>> = inputs.iter().map(|(_, values)| values.clone()).collect();
        let largest = inputs.iter().flat_map(|(multiples, _)| multiples).map(|k| k.abs()).max();
        let largest = largest.unwrap_or(0) as f64;
        // In units of η.
        let allowed = rounding::<T>(size, largest) + underflow::<T>(size) / T::SMALLEST;
        assert!(allowed <= 3.0 * size as f64 + 5.0, "{allowed}");
        let is_exact = |plan: &Plan| {
            plan.bound.is_none() && plan.for_values(T::DTYPE).codec.loss() != Loss::Setting
        };
        for plan in plans().into_iter().filter(is_exact) {
            let (averages, _) = result(&values, Op::Avg, &plan);
            for (i, y) in averages.iter().enumerate() {
                let sum: i128 = inputs.iter().map(|(multiples, _)| multiples[i]).sum();
                let y = (y.to_f64() * 2f64.powi(60) / T::SMALLEST * 2f64.powi(-60)) as i128;
                let error = (y * size as i128 - sum).abs() as f64 / size as f64;
                assert!(error <= allowed, "{size} ranks, {plan:?}, value {i}: off by {error} η");
            }
        }
    }
}

#[test]
fn averages_of_subnormals_are_within_rounding_and_underflow() {
    averages_of_subnormals::<f32>();
    averages_of_subnormals::<f64>();
    averages_of_subnormals::<f16>();
    averages_of_subnormals::<bf16>();
}

/// Returns the error of a bound, which must be the same on all ranks.
fn refusal<T: Float>(inputs: &[Vec<T>], op: Op<'_, T>, plan: &Plan) -> Option<BoundError> {
    // Do not use `all_reduces`: ranks with an error skip its second call.
    let errors = Threads::default().run(inputs.len(), |mut comm| {
        let mut values = inputs[comm.rank().index()].clone();
        let first = comm.all_reduce(&mut values, op, plan).err();
        comm.all_reduce(&mut values, Op::Max, &Plan::raw()).expect("it is still usable");
        first
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{plan:?}: {errors:?}");
    match errors[0] {
        None => None,
        Some(Error::Bound(error)) => Some(error),
        Some(error) => panic!("{plan:?}: {error}"),
    }
}

/// Returns all lossy plans for the type, with a bound on the result.
fn plans_for<T: Float>(bound: Bound) -> Vec<Plan> {
    let is_lossy = |plan: &Plan| plan.for_values(T::DTYPE).codec.loss() == Loss::Bound;
    let mut plans = plans();
    plans.retain(|plan| is_lossy(plan) && plan.bound.is_some());
    plans.into_iter().map(|p| p.with_bound(bound).with_scope(Scope::Result)).collect()
}

fn sums_beyond_the_type<T: Float>() {
    let filled = |parts: &[f64]| -> Vec<Vec<T>> {
        parts.iter().map(|part| vec![T::from_f64(part * max::<T>()); 50]).collect()
    };
    let is_narrow = T::BYTES == 2;
    for plan in plans_for::<T>(Bound::Relative(if is_narrow { 0.1 } else { 1e-2 })) {
        // The sum, or a partial sum in some order, overflows.
        for parts in [&[0.6, 0.6, -0.6][..], &[-0.6, 0.6, 0.6], &[1.0; 2], &[-1.0; 3], &[0.3; 4]] {
            let mut inputs = filled(parts);
            let refused = refusal(&inputs, Op::Sum, &plan);
            assert!(matches!(refused, Some(BoundError::Overflow { .. })), "{parts:?}: {refused:?}");
            // The value range ignores an infinite operand. With a sum that overflows to the
            // opposite infinity, it would give NaN.
            inputs[0][3] = T::from_f64(f64::NEG_INFINITY);
            let refused = refusal(&inputs, Op::Sum, &plan);
            assert!(matches!(refused, Some(BoundError::Overflow { .. })), "{parts:?}: {refused:?}");
            assert_eq!(refusal(&inputs, Op::Avg, &plan), None, "{parts:?}, {plan:?}");
            assert_eq!(refusal(&inputs, Op::Max, &plan), None, "{parts:?}, {plan:?}");
        }
        // With one rank there is no addition.
        assert_eq!(refusal(&filled(&[1.0]), Op::Sum, &plan), None);
        let (parts, plan, allowed) = if is_narrow {
            // In 16 bits, the error of such a sum is a few percent.
            let bound = Bound::Absolute(0.05 * max::<T>());
            ([0.2, 0.22, 0.19], plan.with_bound(bound), 0.05)
        } else {
            ([0.3, 0.32, 0.29], plan, 0.03 * 1e-2 + 1e-6)
        };
        let mut inputs = filled(&parts);
        inputs[2][9] = T::from_f64(f64::NEG_INFINITY);
        let exact: f64 = inputs.iter().map(|x| x[8].to_f64() / max::<T>()).sum();
        let (sums, _) = result(&inputs, Op::Sum, &plan);
        assert!(sums[9].to_f64() == f64::NEG_INFINITY, "{plan:?}: {sums:?}");
        let share = sums[8].to_f64() / max::<T>();
        assert!((share - exact).abs() <= allowed, "{plan:?}: {share}");
    }
}

#[test]
fn a_bound_on_a_sum_that_may_overflow_is_refused_on_all_ranks() {
    sums_beyond_the_type::<f32>();
    sums_beyond_the_type::<f64>();
    sums_beyond_the_type::<f16>();
    sums_beyond_the_type::<bf16>();
}

#[test]
fn a_bound_on_a_result_that_underflows_is_refused_on_all_ranks() {
    for bound in [Bound::Relative(1e-300), Bound::Psnr(7000.0), Bound::Psnr(6460.0)] {
        for plan in plans_for::<f64>(bound) {
            for (scale, op) in [(1e-30, Op::Sum), (1e-30, Op::Avg), (5e-324, Op::Sum)] {
                let inputs = vec![vec![0.0, scale, scale], vec![scale, scale, -scale]];
                let refused = refusal::<f64>(&inputs, op, &plan);
                let is_typed = matches!(refused, Some(BoundError::BelowPrecision { .. }));
                assert!(is_typed, "{scale:e}, {op:?}, {plan:?}: {refused:?}");
            }
        }
    }
}

#[test]
fn a_bound_on_an_average_below_what_underflow_costs_is_refused() {
    let tiny = f32::from_bits(1);
    let inputs = [vec![tiny; 3], vec![0.0; 3]];
    for plan in plans_for::<f32>(Bound::Absolute(0.4 * f64::from(tiny))) {
        let refused = refusal(&inputs, Op::Avg, &plan);
        assert!(
            matches!(refused, Some(BoundError::BelowPrecision { .. })),
            "{plan:?}: {refused:?}"
        );
    }
    for plan in plans_for::<f32>(Bound::Absolute(6.0 * f64::from(tiny))) {
        assert_eq!(refusal(&inputs, Op::Avg, &plan), None);
        let (averages, _) = result(&inputs, Op::Avg, &plan);
        assert!(averages.iter().all(|y| (f64::from(*y) / f64::from(tiny) - 0.5).abs() <= 6.0));
    }
}
