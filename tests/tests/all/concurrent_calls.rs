//! Concurrent calls, and communicators made from communicators. The conformance suite checks the
//! results; these tests cover errors and random timing.

use foldwire::error::AbortReason;
use foldwire::transport::FRAMES_PER_LANE;
use foldwire::{Bound, Call, Config, Error, Op, Plan, Rank, SharedCommunicator};
use foldwire_sim::{End, NetSettings, World};
use foldwire_tests::case::SIZES;
use foldwire_tests::{AnyBackend, Backend, Threads, data, suite};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn raw() -> Plan {
    Plan::raw()
}

#[test]
fn ranks_may_wait_for_their_calls_in_any_order() {
    const N: usize = 64;
    let results = Threads::default().run_transports(4, |transport| {
        let config = Config::default().with_lanes(1);
        let world = SharedCommunicator::with_config(transport, config, N).unwrap();
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        let rank = world.rank().index();
        let input = |call: usize| data::smooth::<f32>(rank + 10 * call, 100 * call);
        let start = |call| world.start(Call::all_reduce(input(call), Op::Sum), &plan).unwrap();
        let mut calls: Vec<_> = (0..N).map(|call| (call, start(call))).collect();
        assert!(matches!(
            world.start(Call::all_reduce(vec![0.0f32], Op::Sum), &plan),
            Err(Error::TooManyCalls { max: N })
        ));
        // Rank 0 waits from the first to the last, rank 1 from the last to the first, the other
        // ranks in between.
        if rank == 1 {
            calls.reverse();
        } else {
            calls.rotate_left(rank * 17 % N);
        }
        let mut done: Vec<_> = calls
            .into_iter()
            .map(|(call, it)| (call, it.wait().into_result().unwrap().0))
            .collect();
        done.sort_by_key(|&(call, _)| call);
        for (call, sum) in &done {
            let mut alone = input(*call);
            world.all_reduce(&mut alone, Op::Sum, &plan).unwrap();
            assert!(data::bits(sum) == data::bits(&alone), "call {call}");
        }
        done.iter().map(|(_, sum)| data::digest(sum)).collect::<Vec<_>>()
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    /// The suite's check, with more sizes than the backends use.
    #[test]
    fn calls_at_once_are_right_among_any_number_of_ranks() {
        let checks = suite::checks();
        let check = checks.into_iter().find(|(name, _)| name.starts_with("calls at once"));
        let (_, check) = check.expect("the suite has this check");
        for size in SIZES.into_iter().filter(|size| !suite::SIZES.contains(size)) {
            check(&|frame_bytes| AnyBackend::new(Threads { frame_bytes }), size);
        }
    }

    #[test]
    fn many_times_sixty_four_calls_on_overlapping_groups() {
        sixty_four_calls_on_overlapping_groups(50);
    }
}

/// A call can use a slice in place of a `Vec`, if the slice outlives the communicator. The call
/// returns the slice.
#[test]
fn buffers_may_be_borrowed() {
    Threads::default().run_transports(3, |transport| {
        let (mut a, send, mut recv) = (vec![1.0f64; 50], vec![2.0f64; 6], vec![0.0f64; 2]);
        let norm = |a: f64, b: f64| a.hypot(b);
        {
            let world = SharedCommunicator::new(transport, 3).unwrap();
            let op = Op::User(&norm);
            let first = world.start(Call::all_reduce(&mut a[..], op), &raw()).unwrap();
            let second = world
                .start(Call::reduce_scatter(&send[..], &mut recv[..], Op::Sum), &raw())
                .unwrap();
            second.wait().into_result().unwrap();
            let (a, _) = first.wait().into_result().unwrap();
            assert!((a[49] - 3f64.sqrt()).abs() < 1e-9);
            let again = world.start(Call::all_reduce(a, Op::Max), &raw()).unwrap();
            again.wait().into_result().unwrap();
        }
        assert_eq!(recv, [6.0; 2]);
        assert!((a[0] - 3f64.sqrt()).abs() < 1e-9);
    });
}

#[test]
fn a_call_with_wrong_arguments_takes_no_turn() {
    Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 2).unwrap();
        if world.rank() == Rank(1) {
            let mut seven = [0.0f32; 7];
            let wrong = world.start(Call::all_to_all_in_place(seven.to_vec()), &raw());
            assert!(wrong.err().is_some_and(|error| error.is_usage()));
            let wrong = world.broadcast(&mut seven, Rank(9), &raw());
            assert_eq!(wrong.err(), Some(Error::Root { root: Rank(9), size: 3 }));
        }
        let sum = world.start(Call::all_reduce(vec![1.0f32; 9], Op::Sum), &raw()).unwrap();
        let mut max = [world.rank().0 as f32];
        world.all_reduce(&mut max, Op::Max, &raw()).unwrap();
        assert_eq!((sum.wait().into_result().unwrap().0, max), (vec![3.0; 9], [2.0]));
    });
}

#[test]
fn a_dropped_call_ends_it_on_the_others_who_go_on_without_the_rank() {
    let sizes = Threads::default().run_transports(4, |transport| {
        let world = SharedCommunicator::new(transport, 4).unwrap();
        let start = |world: &SharedCommunicator<'static, _>, count| {
            world.start(Call::all_reduce(vec![1.0f32; count], Op::Sum), &raw())
        };
        let (first, second) = (start(&world, 10).unwrap(), start(&world, 100_000).unwrap());
        if world.rank() == Rank(2) {
            second.cancel();
            assert!(matches!(start(&world, 1), Err(Error::Poisoned)));
            assert_eq!(first.wait().into_result().unwrap().0, [4.0; 10]);
            return 0;
        }
        // The abort notice came from rank 2, or from another rank that had received it.
        let told = second.wait().outcome;
        let Err(Error::Aborted { culprit: Rank(2), reason: AbortReason::Dropped, .. }) = told
        else {
            panic!("{told:?}")
        };
        // The other call is not affected.
        assert_eq!(first.wait().into_result().unwrap().0, [4.0; 10]);
        assert!(world.is_poisoned());
        assert!(matches!(start(&world, 1), Err(Error::Poisoned)));
        let world = world.shrink(Duration::from_secs(10), 3).unwrap();
        let calls: Vec<_> = (1..4).map(|count| start(&world, count).unwrap()).collect();
        for call in calls {
            assert!(call.wait().into_result().unwrap().0.iter().all(|&sum| sum == 3.0));
        }
        world.size()
    });
    assert_eq!(sizes, [3, 3, 0, 3]);
}

#[test]
fn a_communicator_needs_channels_and_frames_for_its_calls() {
    let frames = 4 * 2 * FRAMES_PER_LANE;
    foldwire_threads::World::new(2).frame_limit(2 * frames).run_endpoints(|endpoint| {
        let config = Config::default().with_lanes(2);
        let world = SharedCommunicator::with_config(endpoint, config, 3).unwrap();
        // There are frames for four channels: three for `world`, the fourth for its duplicates.
        let split = world.duplicate(2);
        assert!(matches!(split, Err(Error::TooFewChannels { need: 2, have: 1 })));
        let mut twin = world.duplicate(1).unwrap();
        assert!(matches!(world.duplicate(1), Err(Error::TooFewChannels { need: 1, have: 0 })));
        for _ in 0..3 {
            drop(twin);
            twin = world.duplicate(1).unwrap();
            twin.all_reduce(&mut [1.0f64; 5000], Op::Sum, &raw()).unwrap();
        }
    });
    foldwire_threads::World::new(2).frame_limit(2 * frames).run_endpoints(|endpoint| {
        let config = Config::default().with_lanes(2);
        let refused = SharedCommunicator::with_config(endpoint, config, 5);
        assert!(matches!(refused, Err(Error::TooFewChannels { need: 5, have: 4 })));
    });
    Threads::default().run_transports(1, |transport| {
        let mut config = Config::default();
        config.messages = true;
        let refused = SharedCommunicator::with_config(transport, config, usize::MAX);
        assert!(matches!(refused, Err(Error::TooFewChannels { .. })));
    });
}

#[test]
fn members_of_a_color_must_want_as_many_calls() {
    Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 1).unwrap();
        let n_calls = 1 + world.rank().index();
        let split = world.split(Some(3), 0, n_calls);
        assert!(matches!(split, Err(Error::Mismatch { .. })), "{split:?}");
        // No call is running, so the communicator stays usable.
        world.duplicate(2).unwrap();
        assert!(world.split(None, 0, 5).unwrap().is_none());
    });
}

/// Starts 32 concurrent calls on each of two overlapping communicators. Ranks start them in
/// different orders, and the network has random delays.
fn sixty_four_calls_on_overlapping_groups(n_iterations: u32) {
    const N: usize = 32;
    let net = NetSettings {
        channels: 2 * N + 1,
        frames_per_rank: (2 * N + 1) * FRAMES_PER_LANE,
        frame_bytes: 2048,
        jitter: Duration::from_micros(200),
        depth: 1,
        attended: true,
        ..NetSettings::default()
    };
    let run = World::new(4, 7).net(net).run(|endpoint| async {
        let (clock, config) = (endpoint.clock(), Config::default().with_lanes(1));
        let world = SharedCommunicator::with_config(endpoint, config, 1).unwrap();
        let rank = world.rank().0;
        let low = world.start_split((rank < 3).then_some(0), 0, N).unwrap().await.unwrap();
        let high = world.start_split((rank > 0).then_some(0), 0, N).unwrap().await.unwrap();
        let mut random = data::Random(u64::from(rank));
        for iteration in 0..n_iterations {
            let (mut calls, mut n_started) = (Vec::new(), [0; 2]);
            for turn in 0..2 * N {
                // A rank starts the calls of one group first, or of the other, or alternates.
                let is_low = match (rank + iteration) % 3 {
                    0 => turn < N,
                    1 => turn >= N,
                    _ => turn % 2 == 0,
                };
                let (group, want) = if is_low { (&low, 6.0) } else { (&high, 9.0) };
                n_started[usize::from(is_low)] += 1;
                let count = n_started[usize::from(is_low)] * 7 % 40;
                let Some(group) = group else { continue };
                if random.one_in(20) {
                    clock.sleep(Duration::from_micros(random.below(300) as u64)).await;
                }
                let input = vec![rank as f32 + 1.0; count];
                calls.push((group.start(Call::all_reduce(input, Op::Sum), &raw()).unwrap(), want));
            }
            while !calls.is_empty() {
                let (call, want) = calls.swap_remove(random.below(calls.len()));
                let (sum, _) = call.await.into_result().unwrap();
                assert!(sum.iter().all(|&sum| sum == want), "iteration {iteration}: {sum:?}");
            }
        }
    });
    for end in &run.ends {
        assert!(matches!(end, End::Returned(())), "{end:?}");
    }
    assert_eq!(run.n_leaked(), 0);
}

#[test]
fn ten_times_sixty_four_calls_on_overlapping_groups() {
    sixty_four_calls_on_overlapping_groups(10);
}

#[test]
#[ignore = "half a minute; on demand"]
fn a_thousand_times_sixty_four_calls_on_overlapping_groups() {
    sixty_four_calls_on_overlapping_groups(1000);
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    for size in SIZES {
        let came = AtomicUsize::new(0);
        Threads::default().run_transports(size, |transport| {
            let world = SharedCommunicator::new(transport, 2).unwrap();
            for round in 1..=20 {
                came.fetch_add(1, Ordering::SeqCst);
                if round % 2 == 0 {
                    world.barrier().unwrap();
                } else {
                    let barrier = world.start_barrier().unwrap();
                    assert_eq!(
                        world.all_reduce_scalar(round as f64, Op::Min).unwrap(),
                        round as f64
                    );
                    barrier.wait().into_result().unwrap();
                }
                assert!(came.load(Ordering::SeqCst) >= round * size, "{size} ranks");
            }
        });
    }
}

/// Wakes a rank's thread, which polls futures.
pub(crate) struct UnparkWaker(pub(crate) std::thread::Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Each rank polls the futures of two calls on one thread, and sleeps until it is woken.
#[test]
fn futures_of_several_calls_are_woken() {
    Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 4).unwrap();
        let mut n_polls = 0;
        for round in 0..20 {
            let a = world.start(Call::all_reduce(vec![1.0f64; 40_000], Op::Sum), &raw()).unwrap();
            let b = world.start(Call::all_reduce(vec![2.0f64; 9], Op::Sum), &raw()).unwrap();
            if world.rank() == Rank(round % 3) {
                std::thread::sleep(Duration::from_millis(3));
            }
            let waker = Waker::from(Arc::new(UnparkWaker(std::thread::current())));
            let mut context = Context::from_waker(&waker);
            let (mut a, mut b) = (pin!(a), pin!(b));
            let (mut has_a, mut has_b) = (false, false);
            while !(has_a && has_b) {
                for (call, has, want) in
                    [(a.as_mut(), &mut has_a, 3.0), (b.as_mut(), &mut has_b, 6.0)]
                {
                    n_polls += 1;
                    if !*has && let Poll::Ready(finished) = call.poll(&mut context) {
                        assert!(finished.into_result().unwrap().0.iter().all(|&x| x == want));
                        *has = true;
                    }
                }
                if !(has_a && has_b) {
                    std::thread::park();
                }
            }
        }
        assert!(n_polls < 20_000, "{n_polls} polls: tasks did not sleep");
    });
}

/// A rank may complete a call that another rank aborted, and be in the next call on another
/// channel. It must learn of the abort there, at once.
#[test]
fn who_gives_a_call_up_tells_those_who_are_in_the_next_one() {
    let bound = Bound::Relative(1e-3);
    let mut n_given_up = 0;
    for (n_calls, is_group) in [(1, false), (2, false), (3, false), (3, true)] {
        for n_polls in 0..16 {
            let net = NetSettings { channels: 4, frames_per_rank: 64, ..NetSettings::default() };
            let run = World::new(3, 1).net(net).run(|endpoint| async move {
                let clock = endpoint.clock();
                let config = Config::default().with_lanes(2).with_timeout(Duration::from_secs(1));
                let world = SharedCommunicator::with_config(endpoint, config, n_calls).unwrap();
                for call in 0..5 {
                    let is_dropped = world.rank() == Rank(2) && call == 1;
                    let n_polls = if is_dropped { n_polls } else { usize::MAX };
                    let mut values: Vec<_> = [70, 5000, 9].map(|n| vec![1.0f32; n]).into();
                    let outcome = if is_group {
                        let mut arrays: Vec<_> =
                            values.iter_mut().map(|x| (&mut x[..], bound)).collect();
                        let plan = Plan::foldwire(bound);
                        match world.start_all_reduce_group(&mut arrays, Op::Sum, &plan) {
                            Ok(group) => for_polls(group, n_polls).await.map(Result::err),
                            Err(error) => Some(Some(error)),
                        }
                    } else {
                        match world.start(Call::all_reduce(values.remove(0), Op::Sum), &raw()) {
                            Ok(one) => {
                                for_polls(one, n_polls).await.map(|done| done.into_result().err())
                            }
                            Err(error) => Some(Some(error)),
                        }
                    };
                    if outcome != Some(None) {
                        // Stay, so that the other ranks cannot detect the failure by this rank's
                        // exit.
                        clock.sleep(Duration::from_secs(5)).await;
                        return outcome;
                    }
                }
                Some(None)
            });
            let context = format!("{n_calls} calls, group: {is_group}, {n_polls} polls");
            let ended = |rank: usize| match &run.ends[rank] {
                End::Returned(outcome) => outcome,
                other => panic!("{context}: rank {rank} {other:?}"),
            };
            if ended(2).is_some() {
                assert!((0..3).all(|rank| *ended(rank) == Some(None)), "{context}");
                continue;
            }
            n_given_up += 1;
            for rank in [0, 1] {
                let outcome = ended(rank);
                let heard = matches!(outcome, Some(Some(Error::Aborted { .. })));
                assert!(heard, "{context}: rank {rank} {outcome:?}");
            }
        }
    }
    assert!(n_given_up > 40, "{n_given_up} calls were given up");
}

/// Between two calls of a group, an earlier call may have taken the slot that comes next.
#[test]
fn a_group_dropped_beside_another_call_tells_the_other_ranks() {
    let (bound, mut n_dropped) = (Bound::Relative(1e-3), 0);
    for n_polls in 0..24 {
        let net = NetSettings { channels: 4, frames_per_rank: 64, ..NetSettings::default() };
        let run = World::new(2, 1).net(net).run(|endpoint| async move {
            let clock = endpoint.clock();
            let config = Config::default().with_lanes(2).with_timeout(Duration::from_secs(1));
            let world = SharedCommunicator::with_config(endpoint, config, 2).unwrap();
            let long = world.start(Call::all_reduce(vec![1.0f32; 400_000], Op::Sum), &raw());
            let mut values: Vec<_> = [70, 5000, 9].map(|n| vec![1.0f32; n]).into();
            let mut arrays: Vec<_> = values.iter_mut().map(|x| (&mut x[..], bound)).collect();
            let group = world.start_all_reduce_group(&mut arrays, Op::Sum, &Plan::foldwire(bound));
            let n_polls = if world.rank() == Rank(1) { n_polls } else { usize::MAX };
            let outcome = for_polls(group.unwrap(), n_polls).await.map(Result::err);
            assert_eq!(world.is_poisoned(), outcome != Some(None));
            // The other rank may wait for the slot of this call.
            let _ = long.unwrap().await;
            clock.sleep(Duration::from_secs(5)).await;
            (outcome, world.failure())
        });
        let ended = |rank: usize| match &run.ends[rank] {
            End::Returned(outcome) => outcome,
            other => panic!("{n_polls} polls: rank {rank} {other:?}"),
        };
        if ended(1).0.is_none() {
            n_dropped += 1;
            let (outcome, failure) = ended(0);
            let is_aborted = |error| matches!(error, Error::Aborted { .. } | Error::Poisoned);
            let heard = outcome.flatten().is_some_and(is_aborted);
            let is_recorded = matches!(failure, Some(Error::Aborted { .. }));
            assert!(heard && is_recorded, "{n_polls} polls: {outcome:?}, {failure:?}");
        }
    }
    assert!(n_dropped > 10, "{n_dropped} groups were dropped");
}

/// The other rank has sent its part and is in the next call, on another channel.
#[test]
fn an_operation_that_panics_ends_the_call_on_all_ranks_and_they_go_on() {
    Threads::default().run_transports(2, |transport| {
        let config = Config::default().with_timeout(Duration::from_secs(20));
        let world = SharedCommunicator::with_config(transport, config, 2).unwrap();
        let is_root = world.rank() == Rank(0);
        let panics = |_: f32, _: f32| -> f32 { resume_unwind(Box::new("on purpose")) };
        let mut x = [1.0f32; 3];
        let mut reduce = || world.reduce_in_place(&mut x, Op::User(&panics), Rank(0), &raw());
        let first = catch_unwind(AssertUnwindSafe(&mut reduce)).map(Result::err);
        let next = world.barrier().err();
        if is_root {
            assert!(first.is_err() && next == Some(Error::Poisoned), "{next:?}");
        } else {
            let first = first.expect("only the root computes");
            let is_heard = [first, next].iter().any(|e| matches!(e, Some(Error::Aborted { .. })));
            assert!(is_heard, "{first:?}, then {next:?}");
        }
        let world = world.shrink(Duration::from_secs(20), 2).unwrap();
        assert_eq!(world.size(), 2);
        let both = [world.start_barrier().unwrap(), world.start_barrier().unwrap()];
        both.into_iter().for_each(|barrier| assert!(barrier.wait().outcome.is_ok()));
    });
}

/// Returns the result of a call, or `None` if it is dropped after `n_polls` polls.
async fn for_polls<C: Future + Unpin>(mut call: C, mut n_polls: usize) -> Option<C::Output> {
    poll_fn(|context| {
        if n_polls == 0 {
            return Poll::Ready(None);
        }
        n_polls -= 1;
        Pin::new(&mut call).poll(context).map(Some)
    })
    .await
}
