//! Calls that are made as a group begin together, or none of them begins.

use std::thread;
use std::time::Duration;

use foldwire::transport::MAX_CHANNELS;
use foldwire::{
    Bound, Call, Error, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator, Summands,
};
use foldwire_threads::{Endpoint, World};

fn on_two_ranks(rank_main: impl Fn(SharedCommunicator<'_, Endpoint>) + Sync) {
    thread::scope(|scope| {
        for endpoint in World::new(2).endpoints() {
            let rank_main = &rank_main;
            scope.spawn(move || {
                let mut config = foldwire::Config::default();
                config.messages = true;
                rank_main(SharedCommunicator::with_config(endpoint, config, 2).unwrap());
            });
        }
    });
}

/// The communicator runs two calls at once. A long call takes one slot; the exchange of the group's
/// value ranges takes the other. The ranks have then begun the group, so it can no longer be
/// refused: it waits if the long call holds a slot that it needs.
#[test]
fn a_group_waits_for_a_call_that_was_begun_before() {
    on_two_ranks(|world| {
        for _ in 0..20 {
            let long = world
                .start(Call::all_reduce(vec![1.0f32; 1 << 20], Op::Sum), &Plan::raw())
                .unwrap();
            let (mut a, mut b) = ([1.0f32, 2.0, 3.0], [5.0f32; 4]);
            let bound = Bound::Relative(1e-3);
            let mut arrays = [(&mut a[..], bound), (&mut b[..], bound)];
            let plan = Plan::foldwire(bound);
            world.all_reduce_group(&mut arrays, Op::Sum, &plan).unwrap();
            assert!((a[2] - 6.0).abs() < 0.1 && (b[3] - 10.0).abs() < 0.1);
            let (long, _) = long.wait().into_result().unwrap();
            assert!(long.iter().all(|&value| value == 2.0));
        }
    });
}

#[test]
fn a_check_makes_no_call_and_says_what_would_be_refused() {
    on_two_ranks(|world| {
        let raw = Plan::raw();
        if world.rank() == Rank(0) {
            let mut data = [1.0f32; 8];
            let counts = [1i64, 2];
            // Calls that are possible pass, as often as they are checked, and more of them than may
            // run at once.
            for _ in 0..5 {
                world
                    .check(|comm| comm.start(Call::all_reduce([1.0f32; 8], Op::Sum), &raw))
                    .unwrap();
                world.check(|comm| comm.start_send([1.0f32; 8], Rank(1), 3, &raw)).unwrap();
                world.check(|comm| comm.start_recv([1.0f32; 8], Rank(1), 3)).unwrap();
            }
            // Impossible calls fail: a started call, a message, and a group.
            let average =
                world.check(|comm| comm.start(Call::all_reduce([1i64, 2], Op::Avg), &raw));
            assert!(matches!(average, Err(Error::NoIntegerAverage { .. })), "{average:?}");
            let peer = world.check(|comm| comm.start_recv([0.0f32; 2], Rank(7), 3));
            assert!(matches!(peer, Err(Error::Peer { .. })), "{peer:?}");
            let wrong = Plan::foldwire(Bound::Absolute(f64::NAN));
            let bound =
                world.check(|comm| comm.start(Call::broadcast([0.0f32; 2], Rank(0)), &wrong));
            assert!(matches!(bound, Err(Error::Bound(_))), "{bound:?}");
            let mut arrays = [(&mut data[..], Bound::Absolute(-1.0))];
            let group = world.check(|comm| {
                comm.start_all_reduce_group(
                    &mut arrays,
                    Op::Sum,
                    &Plan::foldwire(Bound::Absolute(1.0)),
                )
                .map(drop)
            });
            assert!(matches!(group, Err(Error::Bound(_))), "{group:?}");
            // Calls that would wait are checked as well, and run nothing.
            world.check(|comm| comm.all_reduce(&mut data, Op::Sum, &raw)).unwrap();
            world.check(SharedCommunicator::barrier).unwrap();
            world.check(|comm| comm.all_reduce_scalar(1i64, Op::Sum)).unwrap();
            world.check(|comm| comm.max_loc(&mut data, &mut [0; 8])).unwrap();
            let mut sums = [0.0; 9];
            world
                .check(|comm| comm.repro_sums(Summands::Rows(&[1.0f64; 9]), &mut sums, &raw))
                .unwrap();
            let average = world.check(|comm| comm.all_reduce(&mut [1i64], Op::Avg, &raw));
            assert!(matches!(average, Err(Error::NoIntegerAverage { .. })), "{average:?}");
            assert_eq!((data, sums), ([1.0; 8], [0.0; 9]));
            // A call that passes does not hide one that fails.
            let both = world.check(|comm| {
                let _ = comm.start(Call::all_reduce([1.0f32], Op::Sum), &raw);
                comm.start(Call::all_reduce([1i64], Op::Avg), &raw)
            });
            assert!(matches!(both, Err(Error::NoIntegerAverage { .. })), "{both:?}");
            // In an exchange of a rank with itself, nothing is copied unless everything can be.
            let mut received = [[0i64; 2]; 2];
            let [first, second] = &mut received;
            let mut sends =
                [Outgoing::new(Rank(0), 1, &counts[..]), Outgoing::new(Rank(0), 2, &counts[..1])];
            let mut recvs = [Incoming::new(Rank(0), 1, first), Incoming::new(Rank(0), 2, second)];
            world.check(|comm| comm.exchange(&mut sends[..1], &mut recvs[..1], &raw)).unwrap();
            let lengths = world.exchange(&mut sends, &mut recvs, &raw);
            assert!(matches!(lengths, Err(Error::Length { .. })), "{lengths:?}");
            assert_eq!(received, [[0; 2]; 2]);
            let receivers = [Rank(1); 1025];
            world.check_room(&receivers[1..], 1024).unwrap();
            let room = world.check_room(&receivers, 0);
            assert!(matches!(room, Err(Error::TooManyMessages { .. })), "{room:?}");
            assert!(!world.is_poisoned());
        }
        assert_eq!(world.all_reduce_scalar(1i32, Op::Sum).unwrap(), 2);
        let other = Rank(1 - world.rank().0);
        let mut from = [0.0f32; 3];
        world
            .send_recv(
                Outgoing::new(other, 3, &[4.0f32; 3]),
                Incoming::new(other, 3, &mut from),
                &Plan::raw(),
            )
            .unwrap();
        assert_eq!(from, [4.0; 3]);
    });
}

/// A long call holds the first slot. A check does not use it.
#[test]
fn a_check_leaves_calls_in_progress_alone() {
    on_two_ranks(|world| {
        let long =
            world.start(Call::all_reduce(vec![1.0f32; 1 << 20], Op::Sum), &Plan::raw()).unwrap();
        world.check(|comm| comm.all_reduce(&mut [1.0f32; 8], Op::Sum, &Plan::raw())).unwrap();
        let (long, _) = long.wait().into_result().unwrap();
        assert!(long.iter().all(|&value| value == 2.0));
    });
}

/// Methods that make two calls make both on one slot: while another call holds the other slot, and
/// beside a rank that starts the same search.
#[test]
fn calls_in_turn_take_one_slot() {
    on_two_ranks(|world| {
        let rank = world.rank().index();
        let other = 1 - rank;
        for is_started in [false, true] {
            let long = Call::all_reduce(vec![1.0f32; 1 << 20], Op::Sum);
            let long = world.start(long, &Plan::raw()).unwrap();
            let (mut value, mut index) = ([rank as f64], [rank as i64]);
            if is_started && rank == 1 {
                let search = world.start_max_loc(value, index).unwrap();
                ((value, index), _) = search.wait().into_result().unwrap();
            } else {
                world.max_loc(&mut value, &mut index).unwrap();
            }
            assert_eq!((value, index), ([1.0], [1]));
            long.wait().into_result().unwrap();
            assert_eq!(world.all_reduce_scalar(1i32, Op::Sum).unwrap(), 2);
        }
        // The bits of one sum lie too far apart for one all-reduce.
        let long =
            world.start(Call::all_reduce(vec![1.0f32; 1 << 20], Op::Sum), &Plan::raw()).unwrap();
        let mut summands = [1.0f64; 9];
        summands[8] = [1e300, 1e-300][rank];
        let mut sums = [0.0; 9];
        world.repro_sums(Summands::Rows(&summands), &mut sums, &Plan::raw()).unwrap();
        assert_eq!((sums[0], sums[8]), (2.0, 1e300));
        long.wait().into_result().unwrap();
        assert_eq!(world.all_reduce_scalar(other as i32, Op::Sum).unwrap(), 1);
    });
}

/// The survivors of a communicator that takes more than half of the channels get as many calls as
/// before: the old channels are free again.
#[test]
fn survivors_may_take_the_channels_of_their_communicator() {
    const N_CALLS: usize = MAX_CHANNELS / 2 + 2;
    World::new(2).run_endpoints(|endpoint| {
        let config = foldwire::Config::default().with_lanes(1);
        let mut comm = SharedCommunicator::with_config(endpoint, config, N_CALLS).unwrap();
        for _ in 0..2 {
            comm = comm.shrink(Duration::from_secs(20), N_CALLS).expect("both survive");
            let mut data = [1.0f32; 100];
            comm.all_reduce(&mut data, Op::Sum, &Plan::raw()).unwrap();
            assert_eq!(data, [2.0; 100]);
        }
    });
}
