//! Automatic plans measure links of unknown rate.

use foldwire::codec::CodecId;
use foldwire::select::ChoiceReason;
use foldwire::{Bound, Call, Communicator, Config, Distance, Error, Op, Plan, Rank};
use foldwire_conformance::wrapped::{Hooks, Wrapped};
use foldwire_sim::{End, NetSettings, World as Simulated};
use foldwire_tests::data;
use foldwire_threads::World;
use std::time::Duration;

const SIZE: usize = 3;
const BOUND: f64 = 1e-3;

/// A transport that reports the distance of links, but no rate.
struct FixedDistance(Distance);

impl Hooks for FixedDistance {
    fn link_rate(&self, _: Option<f64>) -> Option<f64> {
        None
    }

    fn distance(&self) -> Distance {
        self.0
    }
}

/// Messages within a node are copied through shared memory, at a rate that must be measured.
#[test]
fn memory_that_ranks_share_is_measured_before_it_is_believed() {
    const RATE: f64 = 3e9;
    let net = NetSettings { bandwidth: RATE, jitter: Duration::ZERO, ..NetSettings::default() };
    for distance in [Distance::Node, Distance::Loopback, Distance::Network] {
        let run = Simulated::new(2, 1).net(net).run(|endpoint| async move {
            let mut comm = Communicator::new(Wrapped::new(endpoint, FixedDistance(distance)))?;
            let plan = Plan::auto(Bound::Relative(BOUND));
            let mut taken = Vec::new();
            for count in [1 << 20, 2 << 20, 2 << 20, 1 << 20, 4 << 20, 1000] {
                let mut x: Vec<f32> = data::smooth(comm.rank().index(), count);
                let report = comm.start(Call::all_reduce(&mut x, Op::Avg), &plan)?.await?;
                let rate = report.plan.map_or(0.0, |choice| f64::from(choice.link_rate));
                taken.push((report.codec, rate));
            }
            Ok::<_, Error>(taken)
        });
        let [End::Returned(Ok(taken)), End::Returned(Ok(other))] = &run.ends[..] else {
            panic!("{:?}", run.ends)
        };
        assert_eq!(taken, other, "ranks choose alike");
        let (codec, rate) = taken[4];
        assert_eq!(codec, CodecId::FzLight, "{distance:?}: {taken:?}");
        assert!((rate / RATE - 1.0).abs() < 0.05, "{distance:?}: {taken:?}");
        assert_eq!(taken[5].0, CodecId::Raw, "{distance:?}: {taken:?}");
    }
}

/// Passing a frame to another rank of the process moves no bytes.
#[test]
fn ranks_of_a_process_measure_nothing() {
    let plan = Plan::auto(Bound::Relative(BOUND));
    let reports = World::new(2).run(|mut comm| {
        let mut x: Vec<f32> = data::smooth(comm.rank().index(), 2 << 20);
        [0; 3].map(|_| comm.all_reduce(&mut x, Op::Avg, &plan).expect("all-reduce"))
    });
    for report in reports.into_iter().flatten() {
        let choice = report.plan.expect("an automatic plan");
        assert_eq!((report.codec, choice.reason), (CodecId::Raw, ChoiceReason::Near));
        assert_eq!(choice.link_rate, f32::INFINITY);
    }
}

/// A configured link rate is used, and nothing is measured.
#[test]
fn rates_that_are_told_within_a_node_stay() {
    for (told, codec) in [(0.125e9, CodecId::FzLight), (f64::INFINITY, CodecId::Raw)] {
        let plan = Plan::auto(Bound::Absolute(BOUND));
        let reports = World::new(2).run_endpoints(|endpoint| {
            let near = Wrapped::new(endpoint, FixedDistance(Distance::Node));
            let config = Config::default().with_link_rate(told);
            let mut comm = Communicator::with_config(near, config).expect("a communicator");
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), 1 << 20);
            [0; 3].map(|_| comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce"))
        });
        for report in reports.into_iter().flatten() {
            let rate = report.plan.map(|choice| choice.link_rate);
            assert_eq!((report.codec, rate), (codec, Some(told as f32)));
        }
    }
}

/// A transport that reports nothing about links.
struct UnknownLinks;

impl Hooks for UnknownLinks {
    fn link_rate(&self, _: Option<f64>) -> Option<f64> {
        None
    }
}

#[test]
fn links_are_measured_where_nobody_tells() {
    let rates = World::new(SIZE).link_rate(12.5e6).run_endpoints(|endpoint| {
        let mut comm =
            Communicator::new(Wrapped::new(endpoint, UnknownLinks)).expect("a communicator");
        let rate = comm.measure_link(&mut [0.0; 30_000]).expect("a rate");
        assert_eq!(comm.config_mut().link_rate, Some(rate));
        let mut x: Vec<f32> = data::smooth(comm.rank().index(), 100_000);
        let plan = Plan::auto(Bound::Absolute(BOUND));
        let report = comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce");
        assert!(report.plan.is_some_and(|choice| choice.link_rate == rate as f32));
        rate
    });
    assert!(rates.iter().all(|rate| *rate == rates[0]));
    assert!((3e6..14e6).contains(&rates[0]), "{rates:?}");
    // A known rate is not measured, and ranks that share memory have no links.
    let told = World::new(2).link_rate(1e9).run(|mut comm| comm.measure_link(&mut []));
    assert!(told.iter().all(|rate| rate.is_ok_and(|rate| (rate / 1e9 - 1.0).abs() < 1e-6)));
    let near = World::new(2).run(|mut comm| comm.measure_link(&mut []));
    assert_eq!(near, [Ok(f64::INFINITY); 2]);
}

/// Makes calls of these lengths in bytes, with automatic plans, over links of unknown rate. Returns
/// the codec, the link rate and the number of sent frames of each call.
fn calls_over_unknown_links(link_rate: f64, lens: &[usize]) -> Vec<(CodecId, f64, u64)> {
    let mut all = World::new(SIZE).link_rate(link_rate).run_endpoints(|endpoint| {
        let mut comm =
            Communicator::new(Wrapped::new(endpoint, UnknownLinks)).expect("a communicator");
        let plan = Plan::auto(Bound::Relative(BOUND));
        let took = lens.iter().map(|&n_bytes| {
            let rank = comm.rank().index();
            let mut x: Vec<f32> = data::smooth(rank, n_bytes / 4);
            let report = comm.all_reduce(&mut x, Op::Avg, &plan).expect("all-reduce");
            assert!(report.worst_case.is_some_and(|worst| worst < 0.1));
            (
                report.codec,
                report.plan.map_or(0.0, |choice| choice.link_rate.into()),
                report.n_messages,
            )
        });
        took.collect::<Vec<_>>()
    });
    let first = all.pop().expect("a rank");
    for other in &all {
        let agree = |a: &(CodecId, f64, u64), b: &(CodecId, f64, u64)| (a.0, a.1) == (b.0, b.1);
        assert!(other.iter().zip(&first).all(|(a, b)| agree(a, b)), "{other:?}, {first:?}");
    }
    first
}

#[test]
fn first_calls_measure_links_of_which_nothing_is_told() {
    // Before a measurement, links count as 1.25 GB/s. At 25 MB/s the first round, of 64 KiB, is
    // enough.
    let slow = calls_over_unknown_links(25e6, &[1 << 19, 2 << 20, 2 << 20]);
    assert_eq!(slow[0].1, 1.25e9, "{slow:?}");
    // Other tests on the machine may slow the link down.
    assert!((1e4..30e6).contains(&slow[1].1), "{slow:?}");
    assert_eq!(slow[1].1, slow[2].1, "{slow:?}");
    assert!(slow[1].2 > slow[2].2, "{slow:?}");
    // At 1 GB/s another round follows, in a longer call or after enough short calls.
    let fast = calls_over_unknown_links(1e9, &[2 << 20, 8 << 20, 7 << 20, 1 << 20]);
    assert!(fast[0].1 != 1.25e9 && fast[0].1 == fast[1].1, "{fast:?}");
    assert!((1e4..3e9).contains(&fast[2].1), "{fast:?}");
    assert_eq!(fast[3].1, fast[2].1, "{fast:?}");
}

#[test]
fn what_a_rank_does_between_short_calls_does_not_part_it_from_others_that_measure() {
    // Enough calls that their bytes together start a measurement.
    let results = World::new(2).link_rate(1e9).run_endpoints(|endpoint| {
        let mut comm =
            Communicator::new(Wrapped::new(endpoint, UnknownLinks)).expect("a communicator");
        let plan = Plan::auto(Bound::Relative(BOUND));
        for _ in 0..1200 {
            if comm.rank() == Rank(1) {
                // This discards the stored calls, so the rank resolves each call anew.
                comm.transport_mut();
            }
            comm.all_reduce(&mut [1.0_f32; 500], Op::Sum, &plan)?;
        }
        comm.all_reduce(&mut vec![1.0_f32; 1 << 19], Op::Sum, &plan).map(drop)
    });
    assert_eq!(results, [Ok(()); 2]);
}

#[test]
fn ranks_of_which_only_one_is_told_of_links_find_that() {
    let results = World::new(SIZE).link_rate(25e6).run_endpoints(|endpoint| {
        let mut comm =
            Communicator::new(Wrapped::new(endpoint, UnknownLinks)).expect("a communicator");
        let is_told = comm.rank() == Rank(1);
        comm.config_mut().link_rate = is_told.then_some(25e6);
        let mut x: Vec<f32> = data::smooth(comm.rank().index(), 1 << 18);
        comm.all_reduce(&mut x, Op::Sum, &Plan::auto(Bound::Relative(BOUND))).map(drop)
    });
    assert!(results.iter().all(Result::is_err));
    let told = results.iter().any(|result| matches!(result, Err(Error::Mismatch { .. })));
    assert!(told, "{results:?}");
}
