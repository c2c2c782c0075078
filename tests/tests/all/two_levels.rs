//! All-reduces that are exact inside nodes, and compressed between them.

use foldwire::schedule::Chain;
use foldwire::{Bound, Element, Error, Op, Plan, Report, Scope, SharedCommunicator};
use foldwire_tests::data;
use foldwire_threads::World;

/// Of each rank: result and report, of nodes of so many ranks.
fn run<T: Element>(
    size: usize,
    per_node: usize,
    input: impl Fn(usize) -> Vec<T> + Sync,
    op: Op<'static, T>,
    plan: Plan,
) -> Vec<Result<(Vec<T>, Report), Error>> {
    World::new(size).ranks_per_node(per_node).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1)?;
        let levels = world.two_levels()?;
        let mut data = input(world.rank().index());
        let report = levels.all_reduce(&mut data, op, &plan)?;
        Ok((data, report))
    })
}

#[test]
fn results_are_within_the_bound_and_the_same_on_all_ranks() {
    let bounds = [Bound::Absolute(1e-3), Bound::Relative(1e-3), Bound::Psnr(60.0)];
    for (size, per_node) in [(1, 1), (2, 2), (4, 2), (6, 2), (6, 3), (8, 4), (3, 1), (5, 2), (7, 4)]
    {
        for (i, count) in [0, 1, size - 1, 1000, 40_001].into_iter().enumerate() {
            let bound = bounds[i % 3];
            for op in [Op::Sum, Op::Avg, Op::Min, Op::Max] {
                let input = |rank: usize| data::smooth::<f32>(rank, count);
                let outcomes = run(size, per_node, input, op, Plan::foldwire(bound));
                let context =
                    format!("{size} ranks, {per_node} in a node, {count} values, {bound}");
                let outcomes: Result<Vec<_>, Error> = outcomes.into_iter().collect();
                let outcomes = outcomes.unwrap_or_else(|error| panic!("{context}: {error}"));
                let (first, report) = &outcomes[0];
                assert!(report.worst_case.is_some(), "{context}");
                let terms = if matches!(op, Op::Sum) { size as f64 } else { 1.0 };
                let allowed = report.bound * terms + 1e-5 * size as f64;
                let inputs: Vec<Vec<f32>> = (0..size).map(input).collect();
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

/// Of two nodes of two ranks: what a rank sends to the other node.
#[test]
fn between_nodes_each_value_travels_once_each_way_for_a_node() {
    let count = 100_000;
    let sent = World::new(4).ranks_per_node(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        assert_eq!(world.transport_rank(world.rank()), Some(world.rank()));
        let levels = world.two_levels().unwrap();
        assert_eq!(levels.node().size(), 2);
        let across = levels.across().unwrap();
        assert_eq!((across.size(), across.rank().0), (2, world.rank().0 / 2));
        let mut share = vec![1.0f32; count / 2];
        across.all_reduce(&mut share, Op::Sum, &Plan::raw()).unwrap().raw_bytes
    });
    // A ring through all four sends 4 · 2 · count · 3/4 over the two links between the nodes.
    assert_eq!(sent.iter().sum::<u64>(), 4 * 2 * count as u64);
}

/// It shows before anything is sent, or levels that are done would be done again.
#[test]
fn a_plan_that_cannot_be_used_leaves_the_communicators_usable() {
    World::new(4).ranks_per_node(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        let levels = world.two_levels().unwrap();
        let plan = Plan::foldwire(Bound::Absolute(1e-3));
        let mut data = vec![1.0f32; 300_000];
        let refused = levels.all_reduce(&mut data, Op::Sum, &plan.with_schedule(&Chain));
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        assert!(data.iter().all(|&x| x == 1.0));
        levels.all_reduce(&mut data, Op::Sum, &plan).unwrap();
        assert!(data.iter().all(|&x| (x - 4.0).abs() < 5e-3));
    });
}
