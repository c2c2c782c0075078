//! Repeated calls. A communicator stores its last calls in resolved form, with the sizes of their
//! steps. So the second and third time take other code paths than the first.

use foldwire::codec::CodecId;
use foldwire::error::Field;
use foldwire::layout::share;
use foldwire::pipeline::{HOMOMORPHIC, PER_HOP};
use foldwire::schedule::{Chain, Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::transport::TransportErrorKind;
use foldwire::{Bound, Call, Element, Error, Op, Plan, Rank, Report, Transport, bf16};
use foldwire_tests::{Backend, Threads, data};
use foldwire_threads::World;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const N_TIMES: usize = 3;
const COUNTS: [usize; 5] = [0, 1, 5, 1000, 30_000];

fn plans() -> Vec<Plan> {
    let bound = Bound::Absolute(1e-3);
    vec![
        Plan::raw(),
        Plan::foldwire(bound),
        Plan::foldwire(Bound::Relative(1e-3)),
        Plan::auto(bound),
        Plan::lossless(),
        Plan::foldwire(bound).with_codec(CodecId::Dense),
        Plan::raw().compressed(HOMOMORPHIC, bound),
        Plan::raw().compressed(PER_HOP, bound),
    ]
}

/// Returns the figures of a report that must be the same each time.
fn counted(report: &Report) -> (u64, u64, u64, &'static str, CodecId, u64) {
    let Report { raw_bytes, wire_bytes, n_messages, schedule, codec, .. } = *report;
    (raw_bytes, wire_bytes, n_messages, schedule, codec, report.bound.to_bits())
}

/// Makes one call of each kind on `count` values. Returns the resulting bytes and the report of
/// each.
fn calls<X: Transport>(
    comm: &mut foldwire::Communicator<X>,
    count: usize,
    plan: &Plan,
) -> Result<Vec<(Vec<u8>, Report)>, Error> {
    let (size, rank) = (comm.size(), comm.rank().index());
    let last = Rank::new(size - 1);
    let whole: Vec<f32> = data::smooth(rank, count);
    let own = share(count, size, rank);
    let mut all = Vec::new();
    let mut x = whole.clone();
    let report = comm.all_reduce(&mut x, Op::Sum, plan)?;
    all.push((data::bytes(&x), report));
    let report = comm.all_reduce(&mut x, Op::Max, plan)?;
    all.push((data::bytes(&x), report));
    let mut mine = vec![0.0; own.len()];
    let report = comm.reduce_scatter(&whole, &mut mine, Op::Avg, plan)?;
    all.push((data::bytes(&mine), report));
    let mut gathered = vec![0.0; count];
    let report = comm.all_gather(&whole[own], &mut gathered, plan)?;
    all.push((data::bytes(&gathered), report));
    let mut x = whole.clone();
    let report = comm.broadcast(&mut x, last, plan)?;
    all.push((data::bytes(&x), report));
    let report = comm.gather(count, &mine, &mut gathered, last, plan)?;
    all.push((data::bytes(&gathered), report));
    let report = comm.scatter(count, &whole, &mut mine, Rank(0), plan)?;
    all.push((data::bytes(&mine), report));
    let report = comm.scan(&mut x, Op::Sum, plan)?;
    all.push((data::bytes(&x), report));
    let mut column = vec![0.0; share(count, size, rank).len() * size];
    let report = comm.all_to_all(&whole, &mut column, plan)?;
    all.push((data::bytes(&column), report));
    Ok(all)
}

#[test]
fn a_call_that_is_made_again_does_the_same() {
    for size in [1, 2, 3, 5, 8] {
        for plan in plans() {
            for count in COUNTS {
                Threads { frame_bytes: Some(8192) }.run(size, |mut comm| {
                    let made = |at: usize| format!("{plan:?}, {size} ranks, {count}, time {at}");
                    let first = calls(&mut comm, count, &plan).unwrap_or_else(|error| {
                        panic!("{}: {error}", made(0));
                    });
                    for at in 1..N_TIMES {
                        let again = calls(&mut comm, count, &plan).expect("as before");
                        for ((x, before), (y, after)) in first.iter().zip(&again) {
                            assert!(x == y, "{}: {}", made(at), after.schedule);
                            // An automatic plan may choose another schedule or codec once it has
                            // measurements.
                            if !plan.is_auto {
                                assert_eq!(counted(before), counted(after), "{}", made(at));
                            }
                        }
                    }
                });
            }
        }
    }
}

#[test]
fn what_is_configured_anew_holds_for_calls_that_were_made_before() {
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    Threads { frame_bytes: None }.run(3, |mut comm| {
        let mut lanes = Vec::new();
        for configured in [1, 4, 2, 4] {
            comm.config_mut().lanes = configured;
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), 200_000);
            lanes.push(comm.all_reduce(&mut x, Op::Sum, &plan).expect("a sum").lanes);
        }
        assert!(lanes[0] == 1 && lanes[2] == 2 && lanes[1] == lanes[3], "{lanes:?}");
    });
}

#[test]
fn a_plan_takes_as_many_lanes_as_it_says_of_those_that_there_are() {
    Threads { frame_bytes: None }.run(2, |mut comm| {
        let mut first = None;
        for _ in 0..4 {
            for (most, expected) in [(0, 4), (1, 1), (2, 2), (8, 4)] {
                let mut x: Vec<f32> = data::smooth(comm.rank().index(), 200_000);
                let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_lanes(most);
                let report = comm.all_reduce(&mut x, Op::Sum, &plan).expect("a sum");
                assert_eq!(report.lanes, expected, "at most {most}");
                assert!(*first.get_or_insert_with(|| x.clone()) == x, "{most} lanes: other bits");
            }
        }
    });
}

#[test]
fn what_is_configured_and_taken_back_leaves_calls_as_they_were() {
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    Threads { frame_bytes: None }.run(2, |mut comm| {
        let rank = comm.rank().index();
        let run = |comm: &mut foldwire::Communicator<_>| {
            let mut x: Vec<f32> = data::smooth(rank, 200_000);
            comm.all_reduce(&mut x, Op::Sum, &plan).expect("a sum").lanes
        };
        comm.config_mut().lanes = 4;
        assert_eq!(run(&mut comm), 4);
        // Prepare a call with another configuration, and do not run it.
        comm.config_mut().lanes = 1;
        let mut x: Vec<f32> = data::smooth(rank, 200_000);
        let prepared = comm.prepare(foldwire::Call::all_reduce(&mut x, Op::Sum), &plan);
        assert_eq!(prepared.expect("a call").report().lanes, 1);
        comm.config_mut().lanes = 4;
        assert_eq!(run(&mut comm), 4);
        comm.config_mut();
        assert_eq!(run(&mut comm), 4);
    });
}

#[test]
fn plans_that_differ_in_anything_are_other_calls() {
    let abs = |bound| Plan::foldwire(Bound::Absolute(bound));
    let plans = [
        abs(1e-1),
        abs(1e-3),
        abs(1e-1).with_schedule(&Ring),
        abs(1e-1).with_schedule(&RecursiveDoubling),
        abs(1e-1).with_schedule(&Pairwise),
        Plan::raw().with_schedule(&Chain),
        Plan::raw(),
    ];
    Threads { frame_bytes: None }.run(2, |mut comm| {
        let mut once = |plan: &Plan| {
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), 3000);
            let collective = if plan.schedule.is_some_and(|s| s.name() == Chain.name()) {
                comm.broadcast(&mut x, Rank(1), plan)
            } else {
                comm.all_reduce(&mut x, Op::Sum, plan)
            };
            let report = collective.expect("a call");
            (report.schedule, report.codec, report.bound.to_bits())
        };
        let alone: Vec<_> = plans.iter().map(&mut once).collect();
        for plan in plans.iter().rev().chain(&plans) {
            let expected =
                alone[plans.iter().position(|other| other == plan).expect("one of the plans")];
            assert_eq!(once(plan), expected, "{plan:?}");
        }
    });
}

#[test]
fn prepared_calls_that_are_started_again_stay_what_they_were() {
    let abs = |bound| Plan::foldwire(Bound::Absolute(bound));
    let relative = Plan::foldwire(Bound::Relative(1e-3));
    let plans = [abs(1e-1), abs(1e-3), relative, Plan::raw(), relative.with_codec(CodecId::Dense)];
    for size in [1, 2, 3] {
        Threads { frame_bytes: None }.run(size, |mut comm| {
            let rank = comm.rank().index();
            let own: Vec<f32> = data::smooth(rank, 3000);
            let louder: Vec<f32> = own.iter().map(|x| x * 50.0).collect();
            let mut expected = Vec::new();
            for of in [&own, &louder] {
                for plan in &plans {
                    let mut x = of.clone();
                    let report = comm.all_reduce(&mut x, Op::Sum, plan).expect("a sum");
                    expected.push((data::bytes(&x), report.bound.to_bits()));
                }
            }
            let (mut x, n) = (own.clone(), plans.len());
            let prepared = plans.map(|plan| {
                comm.prepare(Call::all_reduce(&mut x, Op::Sum), &plan).expect("prepared")
            });
            for time in 0..2 * N_TIMES {
                for at in (0..n).rev().chain(0..n) {
                    let mut x = own.clone();
                    let report = prepared[at].run(&mut comm, &mut x[..]).expect("a sum");
                    assert!(expected[at] == (data::bytes(&x), report.bound.to_bits()), "{time}");
                    // The same plan on other values, which give a relative bound another absolute
                    // size.
                    let mut x = louder.clone();
                    let report = comm.all_reduce(&mut x, Op::Sum, &plans[at]).expect("a sum");
                    assert!(
                        expected[n + at] == (data::bytes(&x), report.bound.to_bits()),
                        "{time}"
                    );
                }
            }
        });
    }
}

/// Ranks may keep different calls, and must start a prepared call alike.
#[test]
fn a_prepared_call_that_needs_more_lanes_than_are_left_is_refused_on_all_ranks() {
    World::new(2).run(|mut comm| {
        let mut x = vec![1.0_f32; 1 << 20];
        let sum = comm.prepare(Call::all_reduce(&mut x, Op::Sum), &Plan::raw()).expect("prepared");
        assert_eq!(sum.report().lanes, 4);
        for _ in 0..N_TIMES {
            sum.run(&mut comm, &mut x[..]).expect("a sum");
        }
        if comm.rank() == Rank(1) {
            // Forgets all kept calls.
            comm.transport_mut();
        }
        comm.config_mut().lanes = 2;
        let refused = sum.start(&mut comm, &mut x[..]).map(drop);
        assert_eq!(refused, Err(Error::NotAsPrepared));
        comm.config_mut().lanes = 4;
        sum.run(&mut comm, &mut x[..]).expect("a sum");
    });
}

#[test]
fn a_prepared_call_stays_itself_on_a_communicator_that_equals_its_own() {
    let [ones, others] = [World::new(2), World::new(2)].map(World::communicators);
    thread::scope(|scope| {
        for (mut one, mut other) in ones.into_iter().zip(others) {
            scope.spawn(move || {
                let mut x = [one.rank().index() as f32 + 1.0];
                let sum = one.prepare(Call::all_reduce(&mut x, Op::Sum), &Plan::raw());
                let max = other.prepare(Call::all_reduce(&mut x, Op::Max), &Plan::raw());
                let prepared = [(sum.expect("a sum"), 3.0), (max.expect("a maximum"), 2.0)];
                for time in 0..N_TIMES {
                    for comm in [&mut one, &mut other] {
                        for (prepared, expected) in &prepared {
                            let mut y = x;
                            prepared.run(comm, &mut y[..]).expect("a call");
                            assert_eq!(y, [*expected], "time {time}");
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn ranks_that_differ_in_a_call_they_made_before_are_told_in_what() {
    // All ranks make the same calls at first. Then rank 1 makes a different call, which it has made
    // before too.
    let (count, others) = (10, 20);
    let results = Threads { frame_bytes: None }.run(2, |mut comm| {
        let mut call = |n: usize, op| comm.all_reduce(&mut vec![1.0_f32; n], op, &Plan::raw());
        for _ in 0..N_TIMES {
            call(count, Op::Sum).expect("alike");
            call(others, Op::Sum).expect("alike");
            call(count, Op::Max).expect("alike");
        }
        let is_other = comm.rank() == Rank(1);
        let n = if is_other { others } else { count };
        comm.all_reduce(&mut vec![1.0_f32; n], Op::Sum, &Plan::raw())
    });
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Err(Error::Mismatch { field: Field::Count, ours, theirs, .. }) => {
                let [ours, theirs] = [ours, theirs].map(|value| value.to_string());
                let expected = if rank == 0 { ["10", "20"] } else { ["20", "10"] };
                assert_eq!([ours, theirs], expected, "rank {rank}");
            }
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

/// Makes `N_TIMES` sums of 10 values on two ranks. Returns the result of `last` on each rank.
fn after_calls_alike<R: Send>(
    last: impl Fn(foldwire::Communicator<foldwire_threads::Endpoint>) -> R + Sync,
) -> Vec<R> {
    Threads { frame_bytes: None }.run(2, |mut comm| {
        for _ in 0..N_TIMES {
            comm.all_reduce(&mut [1.0_f32; 10], Op::Sum, &Plan::raw()).expect("alike");
        }
        last(comm)
    })
}

#[test]
fn a_rank_that_is_late_for_a_call_it_made_before_is_waited_for() {
    let late = Duration::from_millis(30);
    let is_first_there = AtomicBool::new(false);
    let results = after_calls_alike(|mut comm| {
        let is_late = comm.rank() == Rank(1);
        if is_late {
            while !is_first_there.load(Ordering::Acquire) {
                thread::yield_now();
            }
            std::thread::sleep(late);
        }
        is_first_there.store(true, Ordering::Release);
        let mut x = [1.0_f32; 10];
        let report = comm.all_reduce(&mut x, Op::Sum, &Plan::raw()).expect("a sum");
        assert_eq!(x, [2.0; 10]);
        (is_late, report.total)
    });
    for (is_late, total) in results {
        assert!(is_late || total >= late / 2, "{total:?}");
    }
}

#[test]
fn a_rank_that_has_gone_is_named_in_a_call_it_made_before() {
    let results = after_calls_alike(|mut comm| {
        let stays = comm.rank() == Rank(0);
        stays.then(|| comm.all_reduce(&mut [1.0_f32; 10], Op::Sum, &Plan::raw()))
    });
    let expected = Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(Rank(1)) };
    assert_eq!(results[0], Some(Err(expected)));
}

#[test]
fn a_call_that_was_made_before_and_is_given_up_ends_on_all_ranks() {
    let results = after_calls_alike(|mut comm| {
        let mut x = [1.0_f32; 10];
        if comm.rank() == Rank(0) {
            std::thread::sleep(Duration::from_millis(50));
            return comm.all_reduce(&mut x, Op::Sum, &Plan::raw());
        }
        let mut call = comm.start(Call::all_reduce(&mut x, Op::Sum), &Plan::raw())?;
        assert!(call.poll().is_pending());
        call.cancel();
        comm.all_reduce(&mut x, Op::Sum, &Plan::raw())
    });
    let aborted = |error: &Error| matches!(error, Error::Aborted { culprit: Rank(1), .. });
    // Rank 1 may have sent its share before it cancelled.
    assert!(results[0].as_ref().is_err_and(aborted) || results[0].is_ok(), "{results:?}");
    assert_eq!(results[1], Err(Error::Poisoned));
}

#[test]
fn limits_hold_for_calls_that_were_made_before() {
    let limit = Duration::from_millis(50);
    let results = after_calls_alike(|mut comm| {
        let waits = comm.rank() == Rank(0);
        if !waits {
            std::thread::sleep(10 * limit);
            return [None, None];
        }
        let mut x = [1.0_f32; 10];
        let call = comm.start(Call::all_reduce(&mut x, Op::Sum), &Plan::raw()).expect("a call");
        let deadline = call.with_deadline(limit).wait().err();
        [deadline, comm.start(Call::all_reduce(&mut x, Op::Sum), &Plan::raw()).err()]
    });
    let [deadline, after] = results[0];
    assert!(matches!(deadline, Some(Error::Deadline { rank: Rank(1), .. })), "{deadline:?}");
    assert_eq!(after, Some(Error::Poisoned));
    let stalled = after_calls_alike(|mut comm| {
        if comm.rank() == Rank(1) {
            std::thread::sleep(10 * limit);
            return None;
        }
        let mut x = [1.0_f32; 10];
        let call = comm.start(Call::all_reduce(&mut x, Op::Sum), &Plan::raw()).expect("a call");
        call.with_timeout(limit).wait().err()
    });
    let stalled = stalled[0];
    assert!(matches!(stalled, Some(Error::Stalled { rank: Rank(1), .. })), "{stalled:?}");
}

#[test]
fn more_kinds_of_calls_than_are_kept_are_right_in_any_order() {
    Threads { frame_bytes: None }.run(4, |mut comm| {
        let size = comm.size() as f32;
        for round in 0..4 {
            for kind in 0..20_usize {
                let count = 1 + (kind * 7 + round * 3) % 20;
                let mut x = vec![kind as f32; count];
                comm.all_reduce(&mut x, Op::Sum, &Plan::raw()).expect("a sum");
                assert_eq!(x, vec![kind as f32 * size; count], "{kind} in round {round}");
            }
        }
    });
}

#[test]
fn an_operation_says_what_it_is_and_what_it_is_doing_each_time() {
    Threads { frame_bytes: None }.run(1, |mut comm| {
        for _ in 0..N_TIMES {
            let mut x = [1.0_f32; 10];
            let call = comm.start(Call::all_reduce(&mut x, Op::Sum), &Plan::raw()).expect("a call");
            assert_eq!(format!("{call:?}"), "all-reduce of 10 values, running");
            call.wait().expect("a sum");
        }
    });
}

/// Sums, extremes and products of values that are easily got wrong: NaN, ±∞, ±0, the largest.
/// Returns the bytes of a call in place and of one from one buffer into another.
fn reduced<T: Element, X: Transport>(
    comm: &mut foldwire::Communicator<X>,
    values: &[T],
    op: Op<'_, T>,
    plan: &Plan,
) -> [Vec<u8>; 2] {
    let (mut x, mut into) = (values.to_vec(), values.to_vec());
    comm.all_reduce(&mut x, op, plan).expect("in place");
    comm.all_reduce_into(values, &mut into, op, plan).expect("into another buffer");
    [&x, &into].map(|result| bytemuck::cast_slice(result).to_vec())
}

fn reduces_alike<T: Element>(ops: &[Op<'_, T>], values: impl Fn(usize) -> Vec<T> + Sync) {
    let bound = Bound::Absolute(1e-3);
    let plans = [Plan::raw(), Plan::foldwire(bound), Plan::raw().compressed(PER_HOP, bound)];
    for size in [1, 2, 3, 4] {
        let results = Threads { frame_bytes: None }.run(size, |mut comm| {
            let values = values(comm.rank().index());
            let mut all = Vec::new();
            for (plan, op) in plans.iter().flat_map(|plan| ops.iter().map(move |op| (plan, op))) {
                let plan = plan.with_schedule(&RecursiveDoubling);
                let first = reduced(&mut comm, &values, *op, &plan);
                for time in 1..N_TIMES + 1 {
                    let again = reduced(&mut comm, &values, *op, &plan);
                    assert!(first == again, "{:?} on {size} ranks, time {time}", op.code());
                }
                all.extend(first);
            }
            all
        });
        assert!(results.iter().all(|result| *result == results[0]), "{size} ranks");
    }
}

#[test]
fn each_operation_does_the_same_again_on_each_type() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MAX, 1e-45, -3.25];
    let floats = |rank: usize| (0..40).map(move |i| odd[(i * (rank + 1) + i / 8) % 8]);
    let highest = |a: f32, b: f32| if a.total_cmp(&b).is_lt() { b } else { a };
    let ops = [Op::Sum, Op::Avg, Op::Min, Op::Max, Op::Prod, Op::User(&highest)];
    reduces_alike(&ops, |rank| floats(rank).collect());
    let ops = [Op::Sum, Op::Avg, Op::Min, Op::Max, Op::Prod];
    reduces_alike(&ops, |rank| floats(rank).map(bf16::from_f32).collect());
    let ops = [Op::Sum, Op::Min, Op::Max, Op::Prod];
    reduces_alike(&ops, |rank| (0..40_i64).map(|i| (i - 20) << (rank * 20)).collect());
}
