//! Messages between two ranks, with errors or long data.

use foldwire::error::{AbortReason, Field, Value};
use foldwire::{
    Bound, Communicator, Config, Error, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator,
};
use foldwire_sim::{End, Fault, Foreign, Harm, NetSettings, World as SimWorld};
use foldwire_tests::data;
use foldwire_threads::{Endpoint, World};
use std::time::{Duration, Instant};

type Comm = Communicator<Endpoint>;

/// Runs ranks whose calls have a time limit.
fn run<R: Send>(size: usize, rank: impl Fn(&mut Comm) -> R + Sync) -> Vec<R> {
    World::new(size).run(|mut comm| {
        comm.config_mut().timeout = Duration::from_secs(20);
        rank(&mut comm)
    })
}

fn value(value: Value) -> String {
    value.to_string()
}

/// Returns the other rank, the field of the disagreement, and the values on both sides.
fn disagreement(result: Result<(), Error>) -> (Rank, Field, String, String) {
    match result {
        Err(Error::Mismatch { rank, field, ours, theirs }) => {
            (rank, field, value(ours), value(theirs))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_that_is_not_the_one_awaited_is_told_in_words() {
    let lossy = Plan::foldwire(Bound::Absolute(1e-3));
    type Wants = fn(&mut Comm) -> Result<(), Error>;
    let of_tag: Wants = |comm| comm.recv(&mut [0.0_f32; 100], Rank(0), 4).map(|_| ());
    let of_count: Wants = |comm| comm.recv(&mut [0.0_f32; 99], Rank(0), 3).map(|_| ());
    let of_type: Wants = |comm| comm.recv(&mut [0.0_f64; 100], Rank(0), 3).map(|_| ());
    let a_barrier: Wants = |comm| comm.barrier().map(|_| ());
    for (wants, field, ours, theirs) in [
        (of_tag, Field::Tag, "4", "3"),
        (of_count, Field::Count, "99", "100"),
        (of_type, Field::Type, "f64", "f32"),
        (a_barrier, Field::Collective, "all-reduce", "message"),
    ] {
        let ends = run(3, |comm| match comm.rank() {
            Rank(0) => {
                comm.send(&[1.0_f32; 100], Rank(1), 3, &lossy)?;
                comm.barrier().map(|_| ())
            }
            Rank(1) => wants(comm),
            _ => comm.barrier().map(|_| ()),
        });
        let words = (Rank(0), field, ours.to_owned(), theirs.to_owned());
        assert_eq!(disagreement(ends[1]), words);
        for end in [ends[0], ends[2]] {
            let told = matches!(end, Err(Error::Aborted { culprit: Rank(0), .. }));
            // A rank whose call differs from another rank's call gets a mismatch instead.
            assert!(told || matches!(end, Err(Error::Mismatch { .. })), "{field}: {end:?}");
        }
    }
}

#[test]
fn who_waits_for_a_message_of_a_rank_that_waits_in_a_call_hears_so_before_the_limit() {
    type Call = fn(&mut Comm) -> Result<(), Error>;
    // Rank 0 sends something in the first call, and only waits in the second.
    let barrier: Call = |comm| comm.barrier().map(|_| ());
    let broadcast: Call =
        |comm| comm.broadcast(&mut [0.0_f32; 4], Rank(1), &Plan::raw()).map(|_| ());
    for (call, name) in [(barrier, "all-reduce"), (broadcast, "collective call")] {
        let start = Instant::now();
        let ends = run(2, |comm| match comm.rank() {
            Rank(0) => call(comm),
            _ => {
                comm.config_mut().timeout = Duration::from_secs(3);
                comm.recv(&mut [0.0_f32; 5], Rank(0), 0).map(|_| ())
            }
        });
        let words = (Rank(0), Field::Collective, "message".to_owned(), name.to_owned());
        assert_eq!(disagreement(ends[1]), words);
        assert!(ends[0].is_err(), "{:?}", ends[0]);
        assert!(start.elapsed() < Duration::from_secs(10), "no time limit has passed");
    }
}

#[test]
fn nobody_hears_of_an_exchange_that_is_dropped_before_its_next_call() {
    let ends = run(3, |comm| match comm.rank() {
        Rank(0) => {
            let mut data = [0.0_f32; 9];
            let mut recv = [Incoming::new(Rank(1), 0, &mut data)];
            comm.start_exchange(&mut [], &mut recv, &Plan::raw())?.cancel();
            comm.barrier().map(|_| ())
        }
        _ => comm.barrier().map(|_| ()),
    });
    assert_eq!(ends[0], Err(Error::Poisoned));
    for end in &ends[1..] {
        let Err(Error::Aborted { culprit: Rank(0), reason: AbortReason::Dropped, .. }) = end else {
            panic!("{end:?}")
        };
    }
}

#[test]
fn what_cannot_be_sent_leaves_the_communicator_usable() {
    run(2, |comm| {
        let own = comm.rank();
        let (size, rank) = (2, Rank(2));
        let raw = Plan::raw();
        assert_eq!(comm.send(&[1.0_f32], rank, 0, &raw), Err(Error::Peer { rank, size }));
        assert_eq!(comm.send(&[1.0_f32], own, 8, &raw), Err(Error::ToItself { tag: 8 }));
        assert_eq!(comm.recv(&mut [1.0_f32], own, 9), Err(Error::ToItself { tag: 9 }));
        let mut room = [0.0_f32; 2];
        let send = Outgoing::new(own, 1, &[1.0, 2.0, 3.0]);
        let result = comm.send_recv(send, Incoming::new(own, 1, &mut room), &raw);
        assert!(matches!(result, Err(Error::Length { need: 3, have: 2, .. })), "{result:?}");
        let bad = Plan::foldwire(Bound::Absolute(-1.0));
        assert!(matches!(comm.send(&[1.0_f32], Rank(0), 0, &bad), Err(Error::Bound(_))));
        comm.barrier().expect("no call was running");
    });
}

#[test]
fn neighbours_that_send_each_other_long_arrays_do_not_wait_in_a_circle() {
    const COUNT: usize = 3_000_000;
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    let reports = run(4, |comm| {
        let rank = comm.rank().index();
        let (before, after) = (Rank::new((rank + 3) % 4), Rank::new((rank + 1) % 4));
        let data = data::smooth::<f32>(rank, COUNT);
        let [mut a, mut b] = [vec![0.0; COUNT], vec![0.0; COUNT]];
        let sends = &mut [Outgoing::new(before, 0, &data), Outgoing::new(after, 1, &data)];
        let recvs = &mut [Incoming::new(before, 1, &mut a), Incoming::new(after, 0, &mut b)];
        let report = comm.exchange(sends, recvs, &plan).expect("the exchange");
        for (from, got) in [(before, &a), (after, &b)] {
            let want = data::smooth::<f32>(from.index(), COUNT);
            let worst = got.iter().zip(&want).map(|(x, y)| f64::from((x - y).abs()));
            assert!(worst.fold(0.0, f64::max) <= report.bound);
        }
        report
    });
    for report in reports {
        assert_eq!(report.raw_bytes, 2 * 4 * COUNT as u64);
        assert!(report.ratio() > 3.0, "{report}");
        // The bound is relative to the sender's own value range, about 1.
        assert!((5e-5..2e-4).contains(&report.bound), "{report:?}");
    }
}

#[test]
fn short_messages_are_one_frame_each() {
    let reports = run(2, |comm| {
        let (rank, plan) = (comm.rank(), Plan::foldwire(Bound::Relative(1e-3)));
        let other = Rank(1 - rank.0);
        let data = data::smooth::<f32>(rank.index(), 30_000);
        let mut room = vec![0.0; data.len()];
        let send = Outgoing::new(other, 0, &data);
        comm.send_recv(send, Incoming::new(other, 0, &mut room), &plan).expect("a short message")
    });
    for report in reports {
        assert_eq!(report.n_messages, 1, "neither lengths nor ranges are exchanged first");
        assert!(report.ratio() > 3.0, "{report}");
    }
}

/// The message and the next call of a shared communicator use the same channel.
#[test]
fn a_message_and_a_call_of_a_shared_communicator_that_meet_are_told_apart() {
    let ends = World::new(2).run_endpoints(|endpoint| {
        let config = Config::default().with_timeout(Duration::from_secs(20));
        let world = SharedCommunicator::with_config(endpoint, config, 2).expect("two channels");
        let first = world
            .start(foldwire::Call::all_reduce([1_i32], Op::Sum), &Plan::raw())
            .expect("a call");
        let end = match world.rank() {
            Rank(0) => world.recv(&mut [0_i32; 3], Rank(1), 0).map(|_| ()),
            _ => world.all_reduce(&mut [2_i32; 3], Op::Sum, &Plan::raw()).map(|_| ()),
        };
        assert_eq!(first.wait().into_result().map(|(sum, _)| sum), Ok([2]), "on its own channel");
        assert!(world.is_poisoned());
        end
    });
    let words = (Rank(1), Field::Collective, "message".to_owned(), "all-reduce".to_owned());
    assert_eq!(disagreement(ends[0]), words);
    assert!(ends[1].is_err(), "{:?}", ends[1]);

    // Without a channel for messages, sending one is a usage error.
    World::new(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).expect("a channel");
        let sum = world
            .start(foldwire::Call::all_reduce([1_i32], Op::Sum), &Plan::raw())
            .expect("a call");
        let refused = world.send(&[1_i32], Rank(0), 0, &Plan::raw());
        assert_eq!(refused, Err(Error::TooManyCalls { max: 1 }));
        assert_eq!(sum.wait().into_result().map(|(sum, _)| sum), Ok([2]));
    });
}

#[test]
fn survivors_of_a_message_that_failed_go_on() {
    let sums = World::new(3).run(|mut comm| {
        comm.config_mut().timeout = Duration::from_secs(20);
        let outcome = match comm.rank() {
            Rank(0) => {
                // Half of the message is still in flight when the receiver fails.
                let data = data::smooth::<f32>(0, 2_000_000);
                let sent = comm.send(&data, Rank(1), 1, &Plan::raw());
                sent.and_then(|_| comm.barrier())
            }
            Rank(1) => comm.recv(&mut [0.0_f32; 7], Rank(0), 2),
            _ => comm.barrier(),
        };
        assert!(outcome.is_err());
        let mut comm = comm.shrink(Duration::from_secs(20)).expect("all survive");
        let mut data = [0.0_f32; 3];
        let (rank, size) = (comm.rank().index(), comm.size());
        let (to, from) = (Rank::new((rank + 1) % size), Rank::new((rank + size - 1) % size));
        let sent = [rank as f32; 3];
        let send = Outgoing::new(to, 2, &sent);
        comm.send_recv(send, Incoming::new(from, 2, &mut data), &Plan::raw())
            .expect("the new group works");
        assert_eq!(data, [from.index() as f32; 3]);
        comm.all_reduce_scalar(1.0_f32, Op::Sum).expect("the new group works")
    });
    assert_eq!(sums, [3.0; 3]);
}

/// Sends halos along a ring, and then a sum, while one frame is damaged. Copies of frames are left
/// out: only the transport can tell a message from its copy.
#[test]
fn harmed_messages_are_errors_or_do_no_harm() {
    const COUNT: usize = 700;
    let net = NetSettings { frame_bytes: 1024, ..NetSettings::default() };
    let is_copy =
        |harm: &Harm| matches!(harm, Harm::Repeat { .. } | Harm::Foreign(Foreign::Replay));
    let mut n_struck = 0;
    for harm in Harm::ALL.into_iter().filter(|harm| !is_copy(harm)) {
        for size in [2, 3, 4] {
            for nth in 0..6 {
                let fault = Fault::Harm { rank: Rank(1), nth, harm };
                let run = SimWorld::new(size, 1).net(net).faults([fault]).run(|endpoint| {
                    let mut comm = Communicator::new(endpoint).expect("frames are large enough");
                    comm.config_mut().timeout = Duration::from_secs(1);
                    let rank = comm.rank().index();
                    let next = move |by: usize| Rank::new((rank + by) % size);
                    async move {
                        let own = data::smooth::<f32>(rank, COUNT);
                        let [mut a, mut b] = [vec![0.0; COUNT], vec![0.0; COUNT]];
                        let (before, after) = (next(size - 1), next(1));
                        // The same tag for all messages. With two ranks, both neighbors are one
                        // rank, and the tags differ.
                        let tag = u32::from(size == 2);
                        comm.start_exchange(
                            &mut [Outgoing::new(before, 0, &own), Outgoing::new(after, tag, &own)],
                            &mut [
                                Incoming::new(before, tag, &mut a),
                                Incoming::new(after, 0, &mut b),
                            ],
                            &Plan::foldwire(Bound::Absolute(1e-3)),
                        )?
                        .await?;
                        for (from, got) in [(before, a), (after, b)] {
                            let want = data::smooth::<f32>(from.index(), COUNT);
                            let off = got.iter().zip(&want).map(|(x, y)| f64::from((x - y).abs()));
                            assert!(off.fold(0.0, f64::max) <= 1e-3, "from {from}");
                        }
                        comm.start_barrier()?.await.map(|_| ())
                    }
                });
                n_struck += run.struck.len();
                for end in &run.ends {
                    let End::Returned(_) = end else { panic!("{harm:?}, {size} ranks: {end:?}") };
                }
                assert_eq!(run.n_leaked(), 0, "{harm:?}, {size} ranks");
            }
        }
    }
    assert!(n_struck > 100, "{n_struck}");
}
