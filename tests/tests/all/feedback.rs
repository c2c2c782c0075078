//! Reductions for training: error feedback over steps, and groups with a bound for each tensor.

use crate::training::unbiased;
use foldwire::bound::rounding;
use foldwire::pipeline::{self, FUSED};
use foldwire::{
    Bound, Call, Communicator, Error, Float, Op, Plan, Rank, Report, Rounding, SharedCommunicator,
    bf16, f16,
};
use foldwire_tests::data;
use foldwire_threads::World;

/// Sums the inputs and the results of 60 steps. The two sums may differ by the largest worst case
/// of a single step.
fn over_steps<T: Float>(
    size: usize,
    plan: impl Fn(u64) -> Plan + Sync,
    call: impl Fn(
        &mut Communicator<foldwire_threads::Endpoint>,
        &mut [T],
        &mut [T::Residue],
        &Plan,
    ) -> Report
    + Sync,
) {
    let n = 1003;
    let input = |rank: usize, step: u64| -> Vec<T> {
        let value = |i: usize| 0.01 * ((i * (rank + 2)) as f64 + step as f64 * 0.1).sin() + 0.002;
        (0..n).map(|i| T::from_f64(value(i))).collect()
    };
    let outcomes = World::new(size).run(|mut comm| {
        let mut kept = vec![T::Residue::default(); n];
        let (mut sums, mut most) = (vec![0.0; n], 0.0_f64);
        for step in 0..60 {
            let mut values = input(comm.rank().index(), step);
            let report = call(&mut comm, &mut values, &mut kept, &plan(step));
            let most_now = report.worst_case.expect("a worst case");
            most = most.max(most_now);
            sums.iter_mut().zip(&values).for_each(|(sum, y)| *sum += y.to_f64());
        }
        (sums, most)
    });
    let (sums, most) = &outcomes[0];
    let mut exact = vec![0.0; n];
    for rank in 0..size {
        for step in 0..60 {
            exact.iter_mut().zip(input(rank, step)).for_each(|(sum, x)| *sum += x.to_f64());
        }
    }
    // Each step rounds its sum to the element type once.
    let slack = 60.0 * rounding::<T>(size, 0.05 * size as f64 + most);
    for (sum, exact) in sums.iter().zip(&exact) {
        let error = (sum - exact).abs();
        assert!(error <= most + slack, "{error:e} with {most:e}, {}, {size} ranks", T::DTYPE);
    }
    assert!(outcomes.iter().all(|(other, _)| other == sums));
}

#[test]
fn with_feedback_sums_over_steps_stay_within_one_bound_of_the_exact_ones() {
    fn check<T: Float>() {
        for bound in [Bound::Absolute(0.05), Bound::Relative(0.5)] {
            for size in [1, 2, 5] {
                let call = |comm: &mut Communicator<_>, x: &mut [T], e: &mut [_], plan: &Plan| {
                    comm.run(Call::all_reduce(x, Op::Sum).with_feedback(e), plan)
                        .expect("an all-reduce")
                };
                over_steps(size, |_| Plan::foldwire(bound), call);
                over_steps(size, |step| unbiased(bound, step), call);
            }
        }
    }
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
}

/// Combines a reduce-scatter with an all-gather of its shares.
#[test]
fn a_reduce_scatter_carries_errors_as_an_all_reduce_does() {
    let call = |comm: &mut Communicator<_>, x: &mut [f32], e: &mut [f32], plan: &Plan| {
        let report = comm
            .run(Call::reduce_scatter_to_front(&mut *x, Op::Sum).with_feedback(e), plan)
            .expect("a share");
        let share = comm.share(x.len());
        let mine = x[..share.len()].to_vec();
        comm.all_gather(&mine, x, &Plan::raw()).expect("all shares");
        report
    };
    over_steps(4, |_| Plan::foldwire(Bound::Relative(0.5)).with_pipeline(FUSED), call);
    over_steps(3, |step| unbiased(Bound::Absolute(0.05), step), call);
}

/// The owner of a share does not encode its own operand, but rounds it.
#[test]
fn each_operand_of_a_share_that_is_rounded_first_counts_in_the_worst_case() {
    for (size, pipeline) in [2, 3, 5].into_iter().flat_map(|n| pipeline::ALL.map(|p| (n, p))) {
        let nearest = Plan::foldwire(Bound::Absolute(0.05)).with_pipeline(pipeline);
        let n_terms = |plan: Plan, feeds_back: bool| {
            let reports = World::new(size).run(|mut comm| {
                let mut x = data::smooth::<f32>(comm.rank().index(), 5000);
                let mut kept = vec![0.0; x.len()];
                let report = match feeds_back {
                    true => comm.run(
                        Call::reduce_scatter_to_front(&mut x, Op::Sum).with_feedback(&mut kept),
                        &plan,
                    ),
                    false => comm.reduce_scatter_in_place(&mut x, Op::Sum, &plan),
                };
                report.expect("a share")
            });
            reports[0].worst_case.expect("a worst case") / reports[0].bound
        };
        let rounded_first =
            [n_terms(nearest, true), n_terms(nearest.with_rounding(Rounding::unbiased(1)), false)];
        for n_terms in rounded_first {
            assert!((n_terms - size as f64).abs() < 1e-9, "{size} ranks: {n_terms}, {pipeline:?}");
        }
    }
}

const LENGTHS: [usize; 6] = [700, 0, 1, 33, 20_000, 5];
const BOUNDS: [Bound; 3] = [Bound::Relative(0.1), Bound::Absolute(0.02), Bound::Psnr(20.0)];

/// Arrays of different scales.
fn arrays(rank: Rank, n: usize) -> Vec<Vec<f32>> {
    let array = |at: usize| {
        let scale = [1.0, 10.0, 1e-4][at % 3];
        let smooth = data::smooth::<f32>(rank.index() + at, LENGTHS[at]);
        smooth.into_iter().map(|x| scale * x).collect()
    };
    (0..n).map(array).collect()
}

fn zeros(n: usize) -> Vec<Vec<f32>> {
    (0..n).map(|at| vec![0.0; LENGTHS[at]]).collect()
}

fn within(arrays: &mut [Vec<f32>]) -> Vec<(&mut [f32], Bound)> {
    let pairs = arrays.iter_mut().zip(BOUNDS.iter().cycle());
    pairs.map(|(array, bound)| (&mut array[..], *bound)).collect()
}

fn slices(arrays: &mut [Vec<f32>]) -> Vec<&mut [f32]> {
    arrays.iter_mut().map(|array| &mut array[..]).collect()
}

/// Short arrays share frames. Run twice, so that there are errors to carry over.
#[test]
fn a_group_rounds_each_array_as_a_call_of_its_own_does() {
    for (rounding, n) in
        [(Rounding::Nearest, 6), (Rounding::unbiased(12), 6), (Rounding::unbiased(5), 1)]
    {
        let plan = Plan::foldwire(BOUNDS[0]).with_rounding(rounding);
        let together = World::new(3).run_endpoints(|endpoint| {
            let world = SharedCommunicator::new(endpoint, 2).expect("a communicator");
            let mut plain = arrays(world.rank(), n);
            world.all_reduce_group(&mut within(&mut plain), Op::Avg, &plan).expect("a group");
            let (mut kept, mut carried) = (zeros(n), Vec::new());
            for _ in 0..2 {
                carried = arrays(world.rank(), n);
                let (arrays, feedback) = (&mut within(&mut carried), &mut slices(&mut kept));
                let short = world.all_reduce_group_with_feedback(
                    arrays,
                    &mut feedback[1..],
                    Op::Avg,
                    &plan,
                );
                assert!(matches!(short, Err(Error::Length { .. })), "{short:?}");
                let reports =
                    world.all_reduce_group_with_feedback(arrays, feedback, Op::Avg, &plan);
                assert_eq!(reports.expect("a group").len(), n);
            }
            (plain, carried, kept)
        });
        let alone = World::new(3).run(|mut comm| {
            let (mut plain, mut carried) = (arrays(comm.rank(), n), arrays(comm.rank(), n));
            let mut kept = zeros(n);
            for at in 0..n {
                let plan = plan.with_bound(BOUNDS[at % 3]).with_rounding(rounding.of_array(at));
                comm.all_reduce(&mut plain[at], Op::Avg, &plan).expect("a call");
                for _ in 0..2 {
                    carried[at] = arrays(comm.rank(), n).swap_remove(at);
                    comm.run(
                        Call::all_reduce(&mut carried[at], Op::Avg).with_feedback(&mut kept[at]),
                        &plan,
                    )
                    .expect("a call with feedback");
                }
            }
            (plain, carried, kept)
        });
        assert!(together == alone, "{rounding:?}, arrays: {n}");
        let (_, _, kept) = &together[0];
        assert!(kept[0].iter().any(|e| *e != 0.0));
    }
}

/// As gradients of parameters that a step did not use.
#[test]
fn zeros_of_all_ranks_leave_the_feedback_as_it_was_and_are_short() {
    fn check(rank: Rank, mut step: impl FnMut(&mut [f32], &mut [f32]) -> Result<Report, Error>) {
        let mut kept = vec![0.0; 50_000];
        let mut values = data::smooth::<f32>(rank.index(), kept.len());
        step(&mut values, &mut kept).expect("a step");
        let before = kept.clone();
        assert!(before.iter().any(|&lost| lost != 0.0));
        values.fill(0.0);
        let report = step(&mut values, &mut kept).expect("a step without values");
        assert!(values.iter().all(|&value| value == 0.0) && kept == before);
        assert_eq!((report.bound, report.worst_case), (0.0, Some(0.0)));
        assert!(report.ratio() > 20.0, "{}", report.ratio());
    }
    let bound = Bound::Relative(0.1);
    for (size, plan) in [(2, Plan::foldwire(bound)), (3, unbiased(bound, 3))] {
        World::new(size).run(|mut comm| {
            check(comm.rank(), |values, kept| {
                comm.run(Call::all_reduce(values, Op::Avg).with_feedback(kept), &plan)
            });
        });
        World::new(size).run_endpoints(|endpoint| {
            let world = SharedCommunicator::new(endpoint, 3).expect("a communicator");
            check(world.rank(), |values, kept| {
                let arrays = &mut [(values, bound)];
                let reports =
                    world.all_reduce_group_with_feedback(arrays, &mut [kept], Op::Avg, &plan)?;
                Ok(reports[0])
            });
        });
    }
}
