//! Collectives among ranks that know their nodes. Reductions are exact inside nodes, and compressed
//! between nodes.

use foldwire::codec::CodecId;
use foldwire::pipeline::{COMPRESS_ONCE, FUSED, HOMOMORPHIC, PER_HOP};
use foldwire::schedule::{
    Chain, Pairwise, RecursiveDoubling, Ring, Schedule, TwoLevels, default_for,
};
use foldwire::{
    Bound, Call, Collective, Error, Float, Op, Plan, Report, Scope, SharedCommunicator,
};
use foldwire_sim::{End, NetSettings};

use foldwire_tests::case::{CODECS, Counts, Operation};
use foldwire_tests::{Case, data};
use foldwire_threads::World;
use std::time::Duration;

static NO_COUNTS: Counts = Counts::NONE;

/// Runs an all-reduce on nodes of `per_node` ranks. Returns each rank's result and report.
fn run<T: Float>(
    size: usize,
    per_node: usize,
    input: impl Fn(usize) -> Vec<T> + Sync,
    op: Op<'static, T>,
    plan: Plan,
) -> Vec<Result<(Vec<T>, Report), Error>> {
    World::new(size).ranks_per_node(per_node).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1)?;
        let levels = world.two_levels(1)?;
        let mut data = input(world.rank().index());
        let report = levels.all_reduce(&mut data, op, &plan)?;
        Ok((data, report))
    })
}

/// Asserts that all ranks have the same bits, within the reported worst case plus rounding.
fn expect_right(
    outcomes: Vec<Result<(Vec<f32>, Report), Error>>,
    op: Op<'static, f32>,
    context: &str,
) {
    let size = outcomes.len();
    let outcomes: Result<Vec<_>, Error> = outcomes.into_iter().collect();
    let outcomes = outcomes.unwrap_or_else(|error| panic!("{context}: {error}"));
    let (first, report) = &outcomes[0];
    let worst_case = report.worst_case.unwrap_or_else(|| panic!("{context}: no worst case"));
    let allowed = worst_case + 1e-5 * size as f64;
    let inputs: Vec<Vec<f32>> = (0..size).map(|rank| data::smooth(rank, first.len())).collect();
    for (at, &got) in first.iter().enumerate() {
        let operands = inputs.iter().map(|x| f64::from(x[at]));
        let want = match op {
            Op::Sum => operands.sum::<f64>(),
            Op::Avg => operands.sum::<f64>() / size as f64,
            Op::Min => operands.fold(f64::INFINITY, f64::min),
            _ => operands.fold(f64::NEG_INFINITY, f64::max),
        };
        let off = (f64::from(got) - want).abs();
        assert!(off <= allowed, "{context}: {got} for {want}, {allowed:e} allowed");
    }
    for (result, _) in &outcomes {
        assert!(data::bits(result) == data::bits(first), "{context}: other bits");
    }
}

const OPS: [Op<'static, f32>; 4] = [Op::Sum, Op::Avg, Op::Min, Op::Max];

#[test]
fn results_are_within_the_bound_and_the_same_on_all_ranks() {
    let bounds = [Bound::Absolute(1e-3), Bound::Relative(1e-3), Bound::Psnr(60.0)];
    for (size, per_node) in [(1, 1), (2, 2), (4, 2), (6, 2), (6, 3), (8, 4), (3, 1), (5, 2), (7, 4)]
    {
        for (i, count) in [0, 1, size - 1, 1000, 40_001].into_iter().enumerate() {
            let bound = bounds[i % 3];
            for op in OPS {
                let input = |rank: usize| data::smooth::<f32>(rank, count);
                let outcomes = run(size, per_node, input, op, Plan::foldwire(bound));
                let context =
                    format!("{size} ranks, {per_node} in a node, {count} values, {bound}");
                if let (Ok((_, report)), Bound::Absolute(bound)) = (&outcomes[0], bound) {
                    let terms = if matches!(op, Op::Sum) { size as f64 } else { 1.0 };
                    assert!(report.bound <= bound, "{context}: {report}");
                    let worst = report.worst_case.expect(&context);
                    assert!(worst <= bound * terms * (1.0 + 1e-9), "{context}: {report}");
                }
                expect_right(outcomes, op, &context);
            }
        }
    }
}

/// With any schedule, partial sums inside a node are floats.
#[test]
fn every_schedule_and_pipeline_knows_nodes() {
    let schedules: [&'static dyn Schedule; 4] = [&TwoLevels, &Ring, &RecursiveDoubling, &Pairwise];
    for (size, per_node) in [(2, 1), (4, 2), (6, 2), (6, 3), (8, 2)] {
        for schedule in schedules {
            for pipeline in [FUSED, HOMOMORPHIC, COMPRESS_ONCE, PER_HOP] {
                for (i, op) in OPS.into_iter().enumerate() {
                    let bound = Bound::Absolute(1e-3);
                    let plan = Plan::raw().compressed(pipeline, bound).with_schedule(schedule);
                    let count = [5000, 20_011][i % 2];
                    let input = |rank: usize| data::smooth::<f32>(rank, count);
                    let outcomes = run(size, per_node, input, op, plan);
                    expect_right(outcomes, op, &format!("{size} by {per_node}, {i}, {plan:?}"));
                }
            }
        }
    }
}

#[test]
fn inside_a_node_everything_is_exact() {
    let outcomes = run(
        3,
        3,
        |rank| vec![0.1f64 + rank as f64; 5000],
        Op::Max,
        Plan::foldwire(Bound::Absolute(9.0)),
    );
    for outcome in outcomes {
        assert!(outcome.unwrap().0.iter().all(|&x| x == 2.1));
    }
}

#[test]
fn constant_data_values_that_are_not_numbers_and_bounds_on_the_result_are_borne() {
    let relative = Plan::foldwire(Bound::Relative(1e-3));
    for outcome in run(4, 2, |_| vec![7.5f32; 3000], Op::Sum, relative) {
        assert!(outcome.unwrap().0.iter().all(|&x| x == 30.0));
    }
    for outcome in run(4, 2, |_| vec![f32::NAN; 10], Op::Sum, relative) {
        assert!(outcome.unwrap().0.iter().all(|x| x.is_nan()));
    }
    let on_result = Plan::foldwire(Bound::Absolute(1e-2)).with_scope(Scope::Result);
    for outcome in run(4, 2, |rank| data::smooth::<f32>(rank, 3000), Op::Sum, on_result) {
        let (_, report) = outcome.unwrap();
        assert!(report.worst_case.is_some_and(|worst| worst <= 1e-2), "{report:?}");
    }
    for outcome in run(4, 2, |_| vec![1.0f32; 5], Op::Sum, Plan::foldwire(Bound::Relative(-1.0))) {
        assert!(matches!(outcome, Err(Error::Bound(_))));
    }
}

/// Returns the collectives that two levels support.
fn collectives() -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(|&collective| TwoLevels.supports(collective))
}

/// Each rank's result and report.
fn run_case(case: Case, per_node: usize) -> Vec<(Vec<f32>, Report)> {
    World::new(case.size).ranks_per_node(per_node).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        let levels = world.two_levels(1).unwrap();
        let rank = levels.rank().index();
        let finished = case.start_at_once::<f32, _>(&levels, &NO_COUNTS).unwrap().wait();
        let report = finished.outcome.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        (case.result_at_once(rank, finished.data), report)
    })
}

mod long {
    use super::*;

    /// Tests each collective with all pipelines, operations and bounds in turn: in place or not,
    /// with any root, with counts that divide evenly or not, and with NaN.
    #[test]
    fn every_collective_is_within_what_it_promises() {
        let bounds = [Bound::Absolute(1e-3), Bound::Relative(1e-3), Bound::Psnr(60.0)];
        let mut turn = 0;
        for (size, per_node) in [(4, 2), (6, 2), (6, 3), (8, 4), (9, 3), (5, 2), (3, 3)] {
            for collective in collectives() {
                for pipeline in [FUSED, HOMOMORPHIC, COMPRESS_ONCE, PER_HOP] {
                    for codec in CODECS {
                        turn += 1;
                        let op = Operation::ALL[turn % Operation::ALL.len()];
                        let count = [0, 1, size - 1, 1000, 4096, 20_011][(turn + turn / 6) % 6];
                        let (root, rough, in_place) = (turn % size, turn % 5 == 0, turn % 2 == 0);
                        // Inside one node an all-reduce is exact.
                        let is_one = per_node == size && collective == Collective::AllReduce;
                        let codec = if is_one { CodecId::Raw } else { codec };
                        let (bound, schedule): (_, &dyn Schedule) = (bounds[turn % 3], &TwoLevels);
                        let op = if collective.reduces() { op } else { Operation::Sum };
                        let case = Case {
                            collective,
                            schedule,
                            pipeline,
                            codec,
                            op,
                            count,
                            root,
                            in_place,
                            bound,
                            rough,
                            per_node,
                            ..Case::all_reduce(size, count)
                        };
                        let outcomes = run_case(case, per_node);
                        let inputs = case.inputs();
                        for (rank, (result, report)) in outcomes.iter().enumerate() {
                            let verdict = case.verify(rank, result, report, &inputs);
                            assert_eq!(verdict, Ok(()), "{case:?}, {per_node} a node, rank {rank}");
                            let is_the_same = !case.is_the_same_everywhere()
                                || data::bits(result) == data::bits(&outcomes[0].0);
                            assert!(is_the_same, "{case:?}: other bits");
                        }
                    }
                }
            }
        }
    }
}

/// Without a reduction, nodes change no bit.
#[test]
fn what_is_only_moved_has_the_bits_of_any_schedule() {
    for collective in collectives().filter(|collective| !collective.reduces()) {
        for pipeline in [FUSED, PER_HOP] {
            let levels = Case {
                schedule: &TwoLevels,
                pipeline,
                collective,
                root: 4,
                in_place: false,
                ..Case::all_reduce(6, 40_001)
            };
            let flat = Case { schedule: default_for(collective), ..levels };
            let [levels, flat] = [levels, flat].map(|case| run_case(case, 3));
            for ((in_levels, _), (flat, _)) in levels.iter().zip(&flat) {
                assert!(data::bits(in_levels) == data::bits(flat), "{}", collective.name());
            }
        }
    }
}

/// With two nodes of two ranks: floats inside a node, and two of four parts for each rank between
/// nodes.
#[test]
fn what_is_sent_inside_a_node_is_not_encoded_and_between_them_it_is() {
    let count = 400_000;
    let reports = World::new(4).ranks_per_node(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        let levels = world.two_levels(1).unwrap();
        assert_eq!((world.ranks_per_node(), levels.ranks_per_node()), (1, 2));
        let plan = Plan::foldwire(Bound::Absolute(1e-3));
        let mut values = data::smooth::<f32>(world.rank().index(), count);
        levels.all_reduce(&mut values, Op::Sum, &plan).unwrap()
    });
    for report in reports {
        // Two parts as floats; two encoded parts to the other node, and two encoded results.
        let part = 4 * count as u64 / 4;
        assert_eq!(report.raw_bytes, 6 * part);
        assert!(report.wire_bytes > 2 * part && report.wire_bytes < 3 * part, "{report}");
    }
}

/// Nodes are numbered by their lowest rank, even if their ranks are not consecutive.
#[test]
fn ranks_that_are_dealt_out_among_nodes_are_put_in_their_order() {
    let found = World::new(6).ranks_per_node(3).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        // 0, 3, 1, 4, 2, 5: the nodes alternate.
        let rank = world.rank().0;
        let dealt = world.split(Some(0), (rank % 3 * 2 + rank / 3) as i32, 1).unwrap().unwrap();
        let levels = dealt.two_levels(2).unwrap();
        assert_eq!(levels.ranks_per_node(), 3);
        let mut values = data::smooth::<f32>(rank as usize, 30_000);
        let plan = Plan::foldwire(Bound::Absolute(1e-3));
        let report = levels.all_reduce(&mut values, Op::Sum, &plan).unwrap();
        (levels.rank().0, (values, report))
    });
    let ranks: Vec<u32> = found.iter().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, [0, 1, 2, 3, 4, 5]);
    let outcomes = found.into_iter().map(|(_, outcome)| Ok(outcome)).collect();
    expect_right(outcomes, Op::Sum, "dealt out");
}

/// The plan is refused before anything is sent. After an error between nodes, the values inside the
/// nodes would be summed already.
#[test]
fn a_plan_that_cannot_be_used_leaves_the_communicators_usable() {
    World::new(4).ranks_per_node(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        let levels = world.two_levels(1).unwrap();
        let plan = Plan::foldwire(Bound::Absolute(1e-3));
        let mut data = vec![1.0f32; 300_000];
        let refused = levels.all_reduce(&mut data, Op::Sum, &plan.with_schedule(&Chain));
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        assert!(data.iter().all(|&x| x == 1.0));
        levels.all_reduce(&mut data, Op::Sum, &plan).unwrap();
        assert!(data.iter().all(|&x| (x - 4.0).abs() < 5e-3));
    });
}

/// Runs on a simulated network of 1 Gbit/s, where computing takes no time. Returns each rank's
/// result, and the time when all ranks are done.
fn simulated(size: usize, per_node: usize, levels: bool) -> (Vec<Vec<f32>>, Duration) {
    let ranks_per_node = per_node;
    // The frame size decides the order in which a node's floats are added.
    let frame_bytes = 256 * 1024 + 4096;
    let net = NetSettings {
        bandwidth: 0.125e9,
        channels: 2,
        frame_bytes,
        ranks_per_node,
        ..NetSettings::default()
    };
    let run = foldwire_sim::World::new(size, 1).net(net).run(|endpoint| async move {
        let world = SharedCommunicator::new(endpoint, 1)?;
        let all =
            if levels { world.start_two_levels(1)? } else { world.start_split(Some(0), 0, 1)? };
        let all = all.await?.expect("every rank is in it");
        assert_eq!(all.ranks_per_node(), if levels { per_node } else { 1 });
        let plan = Plan::foldwire(Bound::Absolute(1e-3));
        let plan = if levels { plan } else { plan.with_schedule(&Ring) };
        let data = data::smooth::<f32>(world.rank().index(), 100_000);
        Ok::<_, Error>(all.start(Call::all_reduce(data, Op::Sum), &plan)?.await.into_result()?.0)
    });
    let results = run.ends.into_iter().map(|end| match end {
        End::Returned(Ok(result)) => result,
        other => panic!("{other:?}"),
    });
    (results.collect(), run.time)
}

#[test]
fn on_a_simulated_network_two_levels_are_sooner_than_a_ring() {
    for (size, per_node) in [(4, 2), (8, 4), (9, 3), (6, 1)] {
        let (levels, in_levels) = simulated(size, per_node, true);
        let (_, in_a_ring) = simulated(size, per_node, false);
        if per_node > 1 {
            assert!(3 * in_levels < 2 * in_a_ring, "{in_levels:?}, ring: {in_a_ring:?}");
        }
        let over_threads = run(
            size,
            per_node,
            |rank| data::smooth::<f32>(rank, 100_000),
            Op::Sum,
            Plan::foldwire(Bound::Absolute(1e-3)),
        );
        for (simulated, threads) in levels.iter().zip(over_threads) {
            let (threads, _) = threads.unwrap();
            assert!(data::bits(simulated) == data::bits(&threads), "{size} ranks");
        }
    }
}
