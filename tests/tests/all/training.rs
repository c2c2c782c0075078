//! Reductions for training: rounding without bias.

use foldwire::bound::rounding;
use foldwire::codec::CodecId;
use foldwire::error::FillError;
use foldwire::kernel::Level;
use foldwire::op::OpCode;
use foldwire::pipeline;
use foldwire::schedule::{Collective, Pairwise, ProgramSpec, RecursiveDoubling, Ring, Schedule};
use foldwire::select::{self, Network};
use foldwire::threads::Scoped;
use foldwire::{
    Bound, Call, Element, Error, Float, Op, Plan, Rank, Report, Rounding, Scope,
    SharedCommunicator, bf16, f16,
};
use foldwire_tests::{Backend, Threads, data};
use foldwire_threads::World;

const SCHEDULES: [&dyn Schedule; 3] = [&Ring, &RecursiveDoubling, &Pairwise];
static TWO: Scoped = Scoped(2);

pub(crate) fn unbiased(bound: Bound, seed: u64) -> Plan {
    Plan::foldwire(bound).with_rounding(Rounding::unbiased(seed))
}

fn sums<T: Float>(size: usize, count: usize, op: Op<'_, T>, plan: &Plan) -> Vec<(Vec<T>, Report)> {
    let outcomes = Threads { frame_bytes: Some(20_000) }.run(size, |mut comm| {
        let mut values = data::smooth::<T>(comm.rank().index(), count);
        comm.all_reduce(&mut values, op, plan).map(|report| (values, report))
    });
    outcomes.into_iter().map(|outcome| outcome.expect("an all-reduce")).collect()
}

/// Checks that results keep `bound` and have the same bits on all ranks, for all pipelines.
fn is_kept<T: Float>(bound: Bound) {
    for size in [1, 2, 3, 5, 8] {
        for (count, schedule) in [0, 1, size - 1, 9001].into_iter().zip(SCHEDULES.iter().cycle()) {
            for (at, pipeline) in pipeline::ALL.into_iter().enumerate() {
                let plan = unbiased(bound, 77).with_pipeline(pipeline).with_schedule(*schedule);
                let context = format!("{size} ranks, {count} values of {}, {plan:?}", T::DTYPE);
                let is_average = at % 2 == 1;
                let op = if is_average { Op::Avg } else { Op::Sum };
                let all = sums::<T>(size, count, op, &plan);
                let inputs: Vec<Vec<T>> = (0..size).map(|rank| data::smooth(rank, count)).collect();
                let (first, report) = &all[0];
                let worst_case = report.worst_case.expect("a worst case");
                for i in 0..count {
                    let exact: f64 = inputs.iter().map(|x| x[i].to_f64()).sum();
                    let largest = inputs.iter().map(|x| x[i].to_f64().abs()).sum::<f64>();
                    let exact = if is_average { exact / size as f64 } else { exact };
                    let slack = rounding::<T>(size, largest + worst_case);
                    let error = (first[i].to_f64() - exact).abs();
                    assert!(error <= worst_case + slack, "{error:e}, {context}");
                }
                for (result, of_other) in &all {
                    assert_eq!(data::bytes(result), data::bytes(first), "{context}");
                    assert_eq!(of_other.bound, report.bound, "{context}");
                }
                if let Bound::Absolute(bound) = bound {
                    assert!(report.bound <= bound && report.bound > 0.45 * bound, "{context}");
                }
            }
        }
    }
}

#[test]
fn results_rounded_without_bias_are_within_the_bound_and_the_same_on_all_ranks() {
    is_kept::<f32>(Bound::Absolute(0.05));
    is_kept::<f64>(Bound::Relative(0.02));
    is_kept::<f16>(Bound::Absolute(0.05));
    is_kept::<bf16>(Bound::Psnr(30.0));
}

#[test]
fn a_bound_on_the_result_is_kept_without_bias() {
    for size in [2, 5] {
        let plan = unbiased(Bound::Absolute(0.1), 1).with_scope(Scope::Result);
        let all = sums::<f32>(size, 5000, Op::Sum, &plan);
        let operands: Vec<Vec<f32>> = (0..size).map(|rank| data::smooth(rank, 5000)).collect();
        for (i, y) in all[0].0.iter().enumerate() {
            let exact: f64 = operands.iter().map(|operand| f64::from(operand[i])).sum();
            assert!((f64::from(*y) - exact).abs() <= 0.1, "{size} ranks");
        }
    }
}

#[test]
fn values_on_no_lattice_are_reduced_as_they_are_and_others_stay_within_the_bound() {
    fn check<T: Float>() {
        let all = [f64::NAN, f64::INFINITY, f64::MAX, 0.05, -0.0, T::SMALLEST, -T::SMALLEST, 3e4];
        let own = |rank: usize| -> Vec<T> {
            let turned = all.iter().cycle().skip(rank).take(all.len());
            let first = [f64::NAN, f64::INFINITY, 1e-30, 0.1].map(T::from_f64);
            first.into_iter().chain(turned.map(|x| T::from_f64(*x))).collect()
        };
        let run = |plan: &Plan| {
            Threads::default().run(3, |mut comm| {
                let mut values = own(comm.rank().index());
                comm.all_reduce(&mut values, Op::Avg, plan).map(|_| values)
            })
        };
        let exact = run(&Plan::raw()).swap_remove(0).expect("raw");
        for seed in 0..20 {
            let rounded = run(&unbiased(Bound::Absolute(0.1), seed));
            let first = rounded[0].as_ref().expect("sums");
            for result in &rounded {
                assert_eq!(data::bytes(result.as_ref().expect("sums")), data::bytes(first));
            }
            for (y, x) in first.iter().zip(&exact) {
                let (y, x) = (y.to_f64(), x.to_f64());
                let slack = 8.0 * T::UNIT_ROUNDOFF * x.abs();
                let is_close = (y - x).abs() <= 0.1 + slack || y == x || (y.is_nan() && x.is_nan());
                assert!(is_close, "{y} for {x} of {}", T::DTYPE);
            }
        }
    }
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
}

/// Rounding to nearest would give 0 for all values.
#[test]
fn the_mean_over_seeds_is_the_exact_average() {
    const N: u64 = 500;
    let input = |rank: usize| (0..400).map(|i| 0.001 * (rank + i % 40) as f32).collect::<Vec<_>>();
    let means = Threads::default().run(3, |mut comm| {
        let mut sum = vec![0.0; 400];
        for seed in 0..N {
            let mut values = input(comm.rank().index());
            let plan = unbiased(Bound::Absolute(0.2), seed);
            comm.all_reduce(&mut values, Op::Avg, &plan).expect("an all-reduce");
            sum.iter_mut().zip(&values).for_each(|(sum, y)| *sum += f64::from(*y) / N as f64);
        }
        sum
    });
    // The step of the lattice is 0.197. A value x = p · step is rounded up with probability p. So
    // the deviation of the mean is step · √(p(1 − p)/3N), at most √(step · x/3N).
    for (i, mean) in means[0].iter().enumerate() {
        let exact = 0.001 * (1 + i % 40) as f64;
        let deviation = (0.197 * exact / (3 * N) as f64).sqrt();
        assert!((mean - exact).abs() < 4.5 * deviation, "{i}: {mean} for {exact}");
    }
}

#[test]
fn levels_and_threads_change_no_bit() {
    let run = |level, threads: Option<&'static Scoped>| {
        World::new(3).run(|mut comm| {
            comm.config_mut().level = level;
            if let Some(threads) = threads {
                comm.config_mut().threads = foldwire::threads::Threads::of(threads);
            }
            let mut values = data::smooth::<f32>(comm.rank().index(), 70_001);
            let mut kept = vec![0.01; values.len()];
            let plan = unbiased(Bound::Relative(0.03), 5);
            comm.all_reduce(&mut values, Op::Sum, &plan).expect("without feedback");
            comm.run(Call::all_reduce(&mut values, Op::Sum).with_feedback(&mut kept), &plan)
                .expect("with feedback");
            values
        })
    };
    let first = run(Level::Scalar, None);
    for level in Level::available() {
        for threads in [None, Some(&TWO)] {
            assert!(run(level, threads) == first, "{level:?}");
        }
    }
}

/// In place, with a separate result, started, as a future of a shared communicator, or as a share.
#[test]
fn every_way_to_call_rounds_alike() {
    World::new(4).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 3).expect("a communicator");
        let own = data::smooth::<f64>(world.rank().index(), 10_002);
        let plan = unbiased(Bound::Relative(0.01), 3);
        let mut in_place = own.clone();
        world.all_reduce(&mut in_place, Op::Sum, &plan).expect("in place");
        let (mut apart, kept) = (vec![0.0; own.len()], own.clone());
        world.all_reduce_into(&own, &mut apart, Op::Sum, &plan).expect("apart");
        assert!(apart == in_place && own == kept);
        let call =
            world.start(Call::all_reduce_into(own.clone(), vec![0.0; own.len()], Op::Sum), &plan);
        let finished = call.expect("a start").wait();
        assert!(finished.outcome.is_ok() && finished.data == in_place);
        let counts = [2, 10_000, 0, 0];
        let starts = [0, 2, 10_002, 10_002];
        let rank = world.rank().index();
        let mut uneven = own.clone();
        world.reduce_scatter_v_to_front(&mut uneven, &counts, Op::Sum, &plan).expect("uneven");
        assert_eq!(uneven[..counts[rank]], in_place[starts[rank]..][..counts[rank]]);
        let share = world.share(own.len());
        let (mut mine, mut front) = (own.clone(), own.clone());
        world.reduce_scatter_in_place(&mut mine, Op::Sum, &plan).expect("in place");
        world.reduce_scatter_to_front(&mut front, Op::Sum, &plan).expect("to the front");
        assert_eq!(mine[share.clone()], in_place[share.clone()]);
        assert_eq!(front[..share.len()], in_place[share.clone()]);
        let mut gathered = vec![0.0; own.len()];
        let report = world.all_gather(&own[share.clone()], &mut gathered, &plan).expect("apart");
        let mut again = own.clone();
        world.all_gather_in_place(&mut again, &plan).expect("in place");
        assert!(gathered == again);
        let bound = report.worst_case.expect("a worst case");
        assert!(own[share.clone()].iter().zip(&again[share]).any(|(x, y)| x != y));
        for rank in 0..4 {
            let theirs = data::smooth::<f64>(rank, 10_002);
            let share = foldwire::layout::share(10_002, 4, rank);
            for (x, y) in theirs[share.clone()].iter().zip(&again[share]) {
                assert!((x - y).abs() <= bound);
            }
        }
    });
}

#[test]
fn started_calls_round_as_blocking_ones_do() {
    Threads::default().run(3, |mut comm| {
        let own = data::smooth::<f32>(comm.rank().index(), 3000);
        let plan = unbiased(Bound::Relative(0.01), 3);
        let [mut blocking, mut started, mut scattered] = [own.clone(), own.clone(), own.clone()];
        let [mut kept, mut left, mut of_share] = [const { Vec::new() }; 3].map(|mut kept| {
            kept.resize(3000, 0.003);
            kept
        });
        comm.all_reduce(&mut blocking, Op::Sum, &plan).expect("blocking");
        comm.start(Call::all_reduce(&mut started, Op::Sum), &plan)
            .expect("a start")
            .wait()
            .expect("the call");
        assert_eq!(blocking, started);
        comm.run(Call::all_reduce(&mut blocking, Op::Sum).with_feedback(&mut kept), &plan)
            .expect("blocking");
        let call =
            comm.start(Call::all_reduce(&mut started, Op::Sum).with_feedback(&mut left), &plan);
        call.expect("a start").wait().expect("the call");
        assert_eq!((&blocking, &kept), (&started, &left));
        // Sum again, so that the inputs equal those of the second call.
        comm.all_reduce(&mut scattered, Op::Sum, &plan).expect("again");
        let call = comm.start(
            Call::reduce_scatter_to_front(&mut scattered, Op::Sum).with_feedback(&mut of_share),
            &plan,
        );
        call.expect("a start").wait().expect("the call");
        let share = comm.share(3000);
        assert_eq!((&scattered[..share.len()], &of_share), (&blocking[share], &kept));
    });
}

#[test]
fn every_codec_with_a_lattice_rounds_alike_and_others_refuse() {
    let run = |codec| {
        Threads::default().run(3, move |mut comm| {
            let mut values = data::smooth::<f32>(comm.rank().index(), 5000);
            let mut kept = vec![0.0; 5000];
            let plan = unbiased(Bound::Absolute(0.03), 8).with_codec(codec);
            let outcome = comm.all_reduce(&mut values, Op::Sum, &plan);
            let nearest = plan.with_rounding(Rounding::Nearest);
            let carried = comm.run(
                Call::all_reduce(&mut [0.3; 5000], Op::Sum).with_feedback(&mut kept),
                &nearest,
            );
            (outcome.map(|_| values), carried.map(|_| kept))
        })
    };
    let first = run(CodecId::FzLight).swap_remove(0);
    for &codec in CodecId::ALL {
        for (values, kept) in run(codec) {
            if codec.has_lattice() {
                let close = |(x, y): (&f32, &f32)| (x - y).abs() < 1e-5;
                let (values, first_values) = (values.expect("sums"), first.0.as_ref().unwrap());
                assert!(values.iter().zip(first_values).all(close), "{}", codec.name());
                assert_eq!(kept.as_ref(), first.1.as_ref(), "{}", codec.name());
            } else if codec.is_exact() {
                assert!(values.is_ok() && kept.expect("nothing").iter().all(|e| *e == 0.0));
            } else if codec.is_for(f32::DTYPE) {
                assert_eq!(values, Err(Error::NoLattice { codec }));
                assert_eq!(kept, Err(Error::NoLattice { codec }));
            }
        }
    }
}

/// A sample may show that compression pays, where the usual ratios say the opposite. By then it is
/// too late to refuse a call on one rank.
#[test]
fn automatic_calls_that_may_have_to_round_say_so_before_anything_is_sent() {
    const COUNT: usize = 1 << 22;
    const FRAME_BYTES: usize = 1 << 20;
    let plan = Plan::auto(Bound::Absolute(1e-3)).with_rounding(Rounding::unbiased(1));
    let is_exact_first = |&rate: &f64| {
        let network = Network { link_rate: Some(rate), frame_bytes: FRAME_BYTES };
        let call = ProgramSpec::new(Collective::ReduceScatter, 2, Rank(0));
        let n_bytes = COUNT * f32::BYTES;
        let (first, _) = select::plan(call, OpCode::Sum, f32::DTYPE, &plan, n_bytes, network);
        first.codec.is_exact()
    };
    let reduce = |rate: f64, is_refused_first: bool| {
        let codecs = World::new(2).link_rate(rate).frame_bytes(FRAME_BYTES).run(|mut comm| {
            let mut data = vec![1.0_f32; COUNT];
            if is_refused_first && comm.rank() == Rank(1) {
                let share = &mut vec![0.0; COUNT / 2];
                let refused = comm.reduce_scatter(&data, share, Op::Sum, &plan);
                assert_eq!(refused, Err(Error::NoRoomToRound));
                let with_fill = plan.with_fill(-1.0);
                let refused = comm.reduce_scatter_in_place(&mut data, Op::Sum, &with_fill);
                assert_eq!(refused, Err(FillError::Rounding.into()));
            }
            // The other rank notices nothing.
            let report = comm.reduce_scatter_in_place(&mut data, Op::Sum, &plan);
            report.expect("a reduce-scatter").codec
        });
        assert_eq!(codecs[0], codecs[1]);
        codecs[0]
    };
    let mut rates = (0..24).map(|nth| 1e9 * 1.2_f64.powi(nth)).filter(is_exact_first);
    let rate = rates.find(|&rate| !reduce(rate, false).is_exact()).expect("such a rate");
    assert!(!reduce(rate, true).is_exact());
    // Nothing can make these calls compress their values.
    for size in [1, 2] {
        World::new(size).run(|mut comm| {
            let report = comm.broadcast(&mut [1.0_f32; 8], Rank(0), &plan).expect("a broadcast");
            assert!(report.codec.is_exact());
            comm.scan(&mut [1.0_f32; 8], Op::Prod, &plan).expect("a scan");
        });
    }
}

#[test]
fn calls_that_cannot_round_first_say_so_before_anything_is_sent() {
    Threads::default().run(2, |mut comm| {
        let (plan, bound) = (unbiased(Bound::Relative(0.1), 1), Bound::Absolute(0.1));
        let no_room = Err(Error::NoRoomToRound);
        let (send, mut recv) = ([1.0_f32; 8], [0.0; 8]);
        let own = comm.rank();
        let mut data = send;
        assert_eq!(comm.reduce_scatter(&send, &mut recv[..4], Op::Sum, &plan), no_room);
        assert_eq!(comm.broadcast(&mut data, Rank(0), &plan), no_room);
        assert_eq!(comm.scan(&mut data, Op::Sum, &plan), no_room);
        assert_eq!(comm.reduce_in_place(&mut data, Op::Sum, Rank(0), &plan), no_room);
        assert_eq!(comm.all_to_all(&send, &mut recv, &plan), no_room);
        let prepared = comm.prepare(Call::all_reduce(&mut data, Op::Sum), &plan);
        assert_eq!(prepared.map(drop), Err(Error::NoRoomToRound));
        let other = Rank(1 - own.0);
        assert_eq!(comm.send(&send, other, 1, &plan), no_room);
        let on_result = Plan::foldwire(bound).with_scope(Scope::Result);
        let kept = &mut [0.0; 8];
        // Error feedback needs the buffer even where nothing is rounded.
        for plan in [Plan::foldwire(bound), Plan::raw(), plan.with_exact_below(1 << 10)] {
            let call = Call::all_reduce_into(&send, &mut recv, Op::Sum).with_feedback(kept);
            assert_eq!(comm.prepare(call, &plan).map(drop), Err(Error::NoRoomToRound));
            let call = Call::all_to_all(&send, &mut recv).with_feedback(kept);
            assert_eq!(comm.run(call, &plan), no_room);
            let call = Call::reduce_scatter(&send, &mut recv[..4], Op::Sum).with_feedback(kept);
            assert_eq!(comm.run(call, &plan), no_room);
            let call = Call::broadcast_from(&send).with_feedback(kept);
            assert_eq!(comm.run(call, &plan), no_room);
        }
        let refused =
            comm.run(Call::all_reduce(&mut data, Op::Sum).with_feedback(kept), &on_result);
        assert_eq!(refused, Err(Error::FeedbackOnResult));
        let short =
            comm.run(Call::all_reduce(&mut data, Op::Sum).with_feedback(&mut kept[1..]), &plan);
        assert!(matches!(short, Err(Error::Length { need: 8, have: 7, .. })), "{short:?}");
        assert!(no_room.is_err_and(|error| error.is_usage()));
        // Without loss, there is nothing to round.
        let exact = Plan::raw().with_rounding(Rounding::unbiased(4));
        comm.broadcast(&mut data, Rank(0), &exact).expect("raw");
        comm.scan(&mut data, Op::Sum, &plan.with_exact_below(1 << 10)).expect("short");
        comm.all_reduce(&mut [1_u64, 2], Op::Sum, &plan).expect("integers");
        comm.prepare(Call::all_reduce(&mut [1_i32], Op::Sum), &plan).expect("integers");
    });
}

#[test]
fn one_rank_keeps_its_values_and_gets_back_what_was_lost() {
    Threads::default().run(1, |mut comm| {
        let plan = unbiased(Bound::Absolute(1.0), 1);
        let (mut values, mut kept) = ([0.3_f32, f32::NAN], [0.25, 0.5]);
        comm.all_reduce(&mut values[..1], Op::Avg, &plan).expect("an all-reduce");
        assert_eq!(values[0], 0.3);
        comm.run(Call::all_reduce(&mut values, Op::Avg).with_feedback(&mut kept), &plan)
            .expect("another");
        assert_eq!((values[0], kept), (0.3 + 0.25, [0.0, 0.5]));
    });
}

#[test]
fn ranks_that_round_otherwise_than_each_other_are_a_mismatch() {
    for bound in [Bound::Absolute(0.1), Bound::Relative(0.1)] {
        let outcomes = Threads::default().run(2, |mut comm| {
            let seed = comm.rank().0.into();
            let plan = if seed == 0 { Plan::foldwire(bound) } else { unbiased(bound, seed) };
            comm.all_reduce(&mut [1.0_f32, 2.0, 3.5], Op::Sum, &plan)
        });
        let is_told =
            |error: &Error| matches!(error, Error::Mismatch { .. } | Error::Aborted { .. });
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(is_told)));
    }
    // Seeds may differ between ranks.
    let outcomes = Threads::default().run(2, |mut comm| {
        let plan = unbiased(Bound::Absolute(0.1), comm.rank().0.into());
        comm.all_reduce(&mut [1.0_f32, 2.0, 3.5], Op::Sum, &plan)
    });
    assert!(outcomes.iter().all(Result::is_ok));
}

/// Inside nodes, values are added as floats, after each operand was rounded to a lattice point.
#[test]
fn two_levels_round_each_operand_within_the_bound() {
    let results = World::new(6).ranks_per_node(3).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).expect("a communicator");
        let levels = world.two_levels(1).expect("two levels");
        let mut values = data::smooth::<f32>(world.rank().index(), 5000);
        let plan = unbiased(Bound::Absolute(0.05), 2);
        let report = levels.all_reduce(&mut values, Op::Sum, &plan).expect("an all-reduce");
        (values, report)
    });
    let (first, report) = &results[0];
    assert!(report.bound <= 0.05 && report.worst_case.is_some_and(|most| most <= 0.3 + 1e-12));
    let inputs: Vec<Vec<f32>> = (0..6).map(|rank| data::smooth(rank, 5000)).collect();
    for (i, y) in first.iter().enumerate() {
        let exact: f64 = inputs.iter().map(|x| f64::from(x[i])).sum();
        assert!((f64::from(*y) - exact).abs() <= 0.3 + 1e-5);
    }
    assert!(results.iter().all(|(values, _)| values == first));
}
