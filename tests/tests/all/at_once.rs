//! Calls under way at once, and communicators made from communicators. What they compute is checked
//! by the conformance suite; here is what goes wrong, and what happens by chance.

use foldwire::error::Reason;
use foldwire::transport::FRAMES_PER_LANE;
use foldwire::{Bound, Config, Error, Op, Plan, Rank, SharedCommunicator};
use foldwire_sim::{End, Net, World};
use foldwire_tests::{Backend, Threads, data};
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
        let start = |call| world.start_all_reduce(input(call), Op::Sum, &plan).unwrap();
        let mut calls: Vec<_> = (0..N).map(|call| (call, start(call))).collect();
        assert!(matches!(
            world.start_all_reduce(vec![0.0f32], Op::Sum, &plan),
            Err(Error::TooManyCalls { max: N })
        ));
        // Rank 0 from the first to the last, rank 1 from the last to the first, the others in
        // between.
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

/// A slice that outlives the communicator is as good as a `Vec`, and comes back.
#[test]
fn buffers_may_be_borrowed() {
    Threads::default().run_transports(3, |transport| {
        let (mut a, send, mut recv) = (vec![1.0f64; 50], vec![2.0f64; 6], vec![0.0f64; 2]);
        let norm = |a: f64, b: f64| a.hypot(b);
        {
            let world = SharedCommunicator::new(transport, 3).unwrap();
            let op = Op::User(&norm);
            let first = world.start_all_reduce(&mut a[..], op, &raw()).unwrap();
            let second =
                world.start_reduce_scatter(&send[..], &mut recv[..], Op::Sum, &raw()).unwrap();
            second.wait().into_result().unwrap();
            let (a, _) = first.wait().into_result().unwrap();
            assert!((a[49] - 3f64.sqrt()).abs() < 1e-9);
            let again = world.start_all_reduce(a, Op::Max, &raw()).unwrap();
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
            let wrong = world.start_all_to_all_in_place(seven.to_vec(), &raw());
            assert!(wrong.err().is_some_and(|error| error.is_usage()));
            let wrong = world.broadcast(&mut seven, Rank(9), &raw());
            assert_eq!(wrong.err(), Some(Error::Root { root: Rank(9), size: 3 }));
        }
        let sum = world.start_all_reduce(vec![1.0f32; 9], Op::Sum, &raw()).unwrap();
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
            world.start_all_reduce(vec![1.0f32; count], Op::Sum, &raw())
        };
        let (first, second) = (start(&world, 10).unwrap(), start(&world, 100_000).unwrap());
        if world.rank() == Rank(2) {
            second.cancel();
            assert!(matches!(start(&world, 1), Err(Error::Poisoned)));
            assert_eq!(first.wait().into_result().unwrap().0, [4.0; 10]);
            return 0;
        }
        // Of rank 2 itself, or of one that has heard it.
        let told = second.wait().outcome;
        let Err(Error::Aborted { culprit: Rank(2), reason: Reason::Dropped, .. }) = told else {
            panic!("{told:?}")
        };
        // The other call is not concerned.
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
        // The fourth is for one of these.
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
}

#[test]
fn members_of_a_color_must_want_as_many_calls() {
    Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 1).unwrap();
        let n_calls = 1 + world.rank().index();
        let split = world.split(Some(3), 0, n_calls);
        assert!(matches!(split, Err(Error::Mismatch { .. })), "{split:?}");
        // Nothing is under way: the communicator lives.
        world.duplicate(2).unwrap();
        assert!(world.split(None, 0, 5).unwrap().is_none());
    });
}

/// On a network whose every delay is drawn by chance: 32 calls at once on each of two
/// communicators that have some ranks in common, which ranks start in different orders.
fn sixty_four_calls_on_overlapping_groups(n_iterations: u32) {
    const N: usize = 32;
    let net = Net {
        channels: 2 * N + 1,
        frames_per_rank: (2 * N + 1) * FRAMES_PER_LANE,
        frame_bytes: 2048,
        jitter: Duration::from_micros(200),
        depth: 1,
        attended: true,
        ..Net::default()
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
                // A rank starts all calls of one group first, or of the other, or in turns.
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
                calls.push((group.start_all_reduce(input, Op::Sum, &raw()).unwrap(), want));
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
fn many_times_sixty_four_calls_on_overlapping_groups() {
    sixty_four_calls_on_overlapping_groups(50);
}

#[test]
#[ignore = "takes half a minute; `cargo xtask deep` runs it"]
fn a_thousand_times_sixty_four_calls_on_overlapping_groups() {
    sixty_four_calls_on_overlapping_groups(1000);
}
