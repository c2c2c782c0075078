//! Started messages: errors, late messages, and limits.

use foldwire::error::{AbortReason, Field};
use foldwire::{
    Bound, Call, Config, Error, Incoming, Op, Outgoing, Plan, Rank, Rows, SharedCommunicator,
    Transport, transport::FRAMES_PER_LANE,
};
use foldwire_sim::{End, Endpoint as SimEndpoint, Fault, Harm, NetSettings, World as SimWorld};
use foldwire_tests::data;
use foldwire_threads::World;
use std::time::{Duration, Instant};

const MAX: usize = SharedCommunicator::<foldwire_threads::Endpoint>::MAX_MESSAGES;

fn config() -> Config {
    Config::default().with_timeout(Duration::from_secs(20)).with_messages()
}

fn raw() -> Plan {
    Plan::raw()
}

/// Runs ranks that may make two calls at once.
fn run<R: Send>(
    size: usize,
    rank: impl Fn(SharedCommunicator<'static, foldwire_threads::Endpoint>) -> R + Sync,
) -> Vec<R> {
    World::new(size).run_endpoints(|endpoint| {
        rank(SharedCommunicator::with_config(endpoint, config(), 2).expect("there are channels"))
    })
}

#[test]
fn what_cannot_be_started_leaves_the_communicator_usable() {
    run(2, |world| {
        let (own, nobody) = (world.rank(), Rank(2));
        let refused = world.start_recv([0.0_f32], nobody, 0).map(drop);
        assert_eq!(refused, Err(Error::Peer { rank: nobody, size: 2 }));
        let bad = Plan::foldwire(Bound::Absolute(-1.0));
        let refused = world.start_send([0.0_f32], own, 0, &bad).map(drop);
        assert!(matches!(refused, Err(Error::Bound(_))), "{refused:?}");
        // No message was started before, so this is the first.
        let sent = world.start_send([3_u8], own, 0, &raw()).unwrap();
        assert_eq!(world.start_recv([0_u8], own, 0).unwrap().wait().into_result().unwrap().0, [3]);
        assert_eq!(sent.wait().into_result().unwrap().0, [3]);
        world.barrier().expect("nothing is wrong");
    });
    World::new(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        let none = Some(Error::NoMessages);
        assert_eq!(world.start_send([1_u8], Rank(0), 0, &raw()).err(), none);
        assert_eq!(world.start_recv([1_u8], Rank(0), 0).err(), none);
        assert!(Error::NoMessages.is_usage());
        world.barrier().expect("nothing is wrong");
    });
}

#[test]
fn there_are_so_many_messages_at_once_and_no_more() {
    run(2, |world| {
        let (own, other) = (world.rank(), Rank(1 - world.rank().0));
        let value = |at: usize| [at as u32 * 2 + own.0];
        let come: Vec<_> =
            (0..MAX).map(|at| world.start_recv([0_u32], other, at as u32).unwrap()).collect();
        let one_more = world.start_recv([0_u32], other, 0).map(drop);
        assert_eq!(one_more, Err(Error::TooManyMessages { max: MAX }));
        // In reverse order, so that each message arrives before those that were started before it.
        let mut sent: Vec<_> = (1..MAX)
            .rev()
            .map(|at| world.start_send(value(at), other, at as u32, &raw()).unwrap())
            .collect();
        // Two messages that start together need space together.
        let (one, own_one) = ([7_u32], [8_u32]);
        let mut two = [(other, &one), (other, &one)].map(|(to, it)| Outgoing::new(to, 0, it));
        let full = Err(Error::TooManyMessages { max: MAX });
        assert_eq!(world.exchange(&mut two, &mut [], &raw()).map(drop), full);
        sent.push(world.start_send(value(0), other, 0, &raw()).unwrap());
        assert_eq!(world.start_send(one, other, 0, &raw()).map(drop), full);
        assert_eq!(world.send(&own_one, other, 0, &raw()).map(drop), full);
        for (at, come) in come.into_iter().enumerate() {
            assert_eq!(come.wait().into_result().unwrap().0, [at as u32 * 2 + other.0]);
        }
        sent.into_iter().for_each(|sent| assert!(sent.wait().outcome.is_ok()));
        // Messages of a rank to itself are stored, and none is in flight.
        for at in 0..MAX {
            let sent = world.start_send(value(at), own, 1, &raw()).unwrap();
            assert!(sent.wait().outcome.is_ok(), "{at}");
        }
        assert_eq!(world.start_send(one, own, 1, &raw()).map(drop), full);
        for at in 0..MAX {
            let come = world.start_recv([0_u32], own, 1).unwrap();
            assert_eq!(come.wait().into_result().unwrap().0, value(at));
        }
        world.start_recv([0_u32], own, 0).map(drop).expect("there is room again");
    });
}

#[test]
fn messages_that_nobody_asked_for_are_held_up_to_a_limit() {
    for n_before in [MAX, MAX + 1, MAX + 20] {
        let ends = run(2, |world| -> Result<(), Error> {
            if world.rank() == Rank(0) {
                for at in 0..n_before {
                    world.start_send([at as u64], Rank(1), 1, &raw())?.wait().into_result()?;
                }
                world.start_send([7_u64], Rank(1), 2, &raw())?.wait().into_result()?;
                return Ok(());
            }
            let last = world.start_recv([0_u64], Rank(0), 2)?;
            let last = last.with_timeout(Duration::from_millis(400));
            assert_eq!(last.wait().into_result()?.0, [7]);
            for at in 0..n_before {
                let come = world.start_recv([0_u64], Rank(0), 1)?;
                assert_eq!(come.wait().into_result()?.0, [at as u64], "in order");
            }
            Ok(())
        });
        if n_before == MAX {
            assert_eq!(ends, [Ok(()); 2]);
        } else {
            let Err(Error::Mismatch { rank: Rank(0), field: Field::Tag, ours, theirs }) = ends[1]
            else {
                panic!("{:?}", ends[1])
            };
            assert_eq!([ours, theirs].map(|tag| tag.to_string()), ["2", "1"]);
            // If only one message is too many, the sender may finish while it is still on the link.
            let is_told = ends[0].is_err_and(|error| matches!(error, Error::Aborted { .. }));
            assert!(is_told || n_before == MAX + 1, "{:?}", ends[0]);
        }
    }
}

#[test]
fn messages_of_a_rank_to_itself_that_wait_for_receives_are_limited_too() {
    run(2, |world| {
        let own = world.rank();
        for tag in 0..MAX as u32 {
            world.start_send([tag], own, tag, &raw()).unwrap().wait().into_result().unwrap();
        }
        let full = Err(Error::TooManyMessages { max: MAX });
        assert_eq!(world.start_send([7_u32], own, 7, &raw()).map(drop), full);
        assert_eq!(world.check(|world| world.start_send([7_u32], own, 7, &raw())), full);
        assert_eq!(world.check_room(&[own], 0), full);
        assert_eq!(world.check_room(&[Rank(1 - own.0)], 1), Ok(()));
        let (one, mut room) = ([7_u32], [0_u32]);
        let exchanged = world.check(|world| {
            let mut recvs = [Incoming::new(own, 5000, &mut room)];
            world.exchange(&mut [Outgoing::new(own, 5000, &one)], &mut recvs, &raw())
        });
        assert_eq!(exchanged, full);
        let (send, recv) = (Outgoing::new(own, 5000, &one), Incoming::new(own, 5000, &mut room));
        assert_eq!(world.send_recv(send, recv, &raw()).map(drop), full);
        assert!(!world.is_poisoned());
        world.barrier().expect("nothing is wrong");
    });
}

#[test]
fn a_check_counts_the_messages_that_older_receives_come_before() {
    run(1, |world| {
        let (own, full) = (world.rank(), Err(Error::TooManyMessages { max: MAX }));
        let start = |tag: usize| world.start_recv([0_u32], own, tag as u32).unwrap();
        let waiting: Vec<_> = (0..MAX).map(start).collect();
        let (one, mut room) = ([7_u32], [0_u32]);
        let mut exchange = |world: &SharedCommunicator<'_, _>| {
            let mut recvs = [Incoming::new(own, 5000, &mut room)];
            world.exchange(&mut [Outgoing::new(own, 5000, &one)], &mut recvs, &raw())
        };
        assert_eq!(world.check(&mut exchange), full);
        assert_eq!(exchange(&world).map(drop), full);
        for (tag, receive) in waiting.into_iter().enumerate() {
            let value = [tag as u32];
            world.start_send(value, own, tag as u32, &raw()).unwrap().wait().into_result().unwrap();
            assert_eq!(receive.wait().into_result().unwrap().0, value);
        }
    });
}

#[test]
fn a_check_of_an_exchange_finds_all_that_the_exchange_refuses() {
    World::new(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).unwrap();
        let (own, one) = (world.rank(), [7.0_f32]);
        let mut room = [0.0_f32; 2];
        let tiny = Plan::foldwire(Bound::Absolute(1e-300));
        for (plan, n_received) in [(raw(), 0), (raw(), 2), (tiny, 1)] {
            let mut exchange = |is_checked: bool| {
                let mut run = |world: &SharedCommunicator<'_, _>| {
                    let mut recvs = [Incoming::new(own, 1, &mut room[..n_received])];
                    let recvs = &mut recvs[usize::from(n_received == 0)..];
                    world.exchange(&mut [Outgoing::new(own, 1, &one)], recvs, &plan)
                };
                if is_checked { world.check(run) } else { run(&world).map(drop) }
            };
            let (checked, refused) = (exchange(true), exchange(false));
            assert_eq!(checked, refused);
        }
        world.barrier().expect("nothing is wrong");
    });
}

#[test]
fn a_message_of_another_type_or_length_is_told() {
    type Comm<'w> = SharedCommunicator<'w, foldwire_threads::Endpoint>;
    type Wants = fn(&Comm<'static>) -> Result<(), Error>;
    let of_type: Wants =
        |world| world.start_recv([0.0_f64; 9], Rank(0), 3)?.wait().into_result().map(drop);
    let of_count: Wants =
        |world| world.start_recv([0.0_f32; 8], Rank(0), 3)?.wait().into_result().map(drop);
    // This message is stored before it is received.
    let held: Wants = |world| {
        world.start_recv([0.0_f32; 1], Rank(0), 4)?.wait().into_result()?;
        world.start_recv([0.0_f32; 8], Rank(0), 3)?.wait().into_result().map(drop)
    };
    for (wants, field, words) in [
        (of_type, Field::Type, ["f64", "f32"]),
        (of_count, Field::Count, ["8", "9"]),
        (held, Field::Count, ["8", "9"]),
    ] {
        let ends = run(3, |world| match world.rank() {
            Rank(0) => {
                world.start_send([1.0_f32; 9], Rank(1), 3, &raw())?.wait().into_result()?;
                world.start_send([1.0_f32; 1], Rank(1), 4, &raw())?.wait().into_result()?;
                world.barrier().map(drop)
            }
            Rank(1) => {
                let end = wants(&world);
                assert!(world.is_poisoned());
                end
            }
            _ => world.barrier().map(drop),
        });
        let Err(Error::Mismatch { rank: Rank(0), field: told, ours, theirs }) = ends[1] else {
            panic!("{:?}", ends[1])
        };
        assert_eq!(
            (told, [ours, theirs].map(|value| value.to_string())),
            (field, words.map(str::to_owned))
        );
        for end in [ends[0], ends[2]] {
            assert!(matches!(end, Err(Error::Aborted { culprit: Rank(0), .. })), "{end:?}");
        }
    }
}

#[test]
fn a_message_that_is_dropped_ends_the_others_who_go_on_without_it() {
    let sums = run(3, |world| {
        let other = Rank((world.rank().0 + 1) % 3);
        let before = Rank((world.rank().0 + 2) % 3);
        if world.rank() == Rank(0) {
            world.start_recv([0.0_f32; 4], Rank(1), 0).unwrap().cancel();
            let refused = world.start_send([0.0_f32; 4], Rank(1), 0, &raw()).map(drop);
            assert_eq!(refused, Err(Error::Poisoned));
        } else {
            // One rank waits for a message, the other one in a call.
            let told = match world.rank() {
                Rank(1) => {
                    let other = world.start_recv([0_u8; 2], Rank(2), 8).unwrap();
                    let told = world.start_recv([0_u8; 2], Rank(2), 9).unwrap().wait().outcome;
                    assert!(other.wait().outcome.is_err(), "messages end together");
                    told
                }
                _ => world.barrier(),
            };
            let Err(Error::Aborted { culprit: Rank(0), reason: AbortReason::Dropped, .. }) = told
            else {
                panic!("{told:?}")
            };
        }
        assert!(world.is_poisoned());
        let world = world.shrink(Duration::from_secs(20), 1).unwrap();
        let come = world.start_recv([0_u8; 2], before, 0).unwrap();
        let sent = world.start_send([7_u8; 2], other, 0, &raw()).unwrap();
        assert_eq!(come.wait().into_result().unwrap().0, [7; 2]);
        sent.wait().into_result().unwrap();
        world.all_reduce_scalar(1_u8, Op::Sum).unwrap()
    });
    assert_eq!(sums, [3; 3]);
}

#[test]
fn a_call_that_fails_ends_the_messages() {
    let start = Instant::now();
    run(2, |world| {
        if world.rank() == Rank(0) {
            let come = world.start_recv([0_u8; 2], Rank(1), 0).unwrap();
            world.start(Call::all_reduce([1.0_f32; 4], Op::Sum), &raw()).unwrap().cancel();
            assert_eq!(come.wait().outcome, Err(Error::Poisoned));
            return;
        }
        let told = world.start_recv([0_u8; 2], Rank(0), 0).unwrap().wait().outcome;
        let Err(Error::Aborted { culprit: Rank(0), reason: AbortReason::Dropped, .. }) = told
        else {
            panic!("{told:?}")
        };
    });
    assert!(start.elapsed() < Duration::from_secs(10), "no time limit has passed");
}

#[test]
fn who_waits_for_a_message_of_a_rank_that_has_ended_hears_so() {
    let start = Instant::now();
    run(2, |world| {
        if world.rank() == Rank(0) {
            let sent = world.start_send([5_u8; 2], Rank(1), 0, &raw()).unwrap();
            sent.wait().into_result().unwrap();
            return;
        }
        let come = world.start_recv([0_u8; 2], Rank(0), 0).unwrap();
        let none = world.start_recv([0_u8; 2], Rank(0), 1).unwrap();
        let lost = none.wait().outcome;
        assert!(matches!(lost, Err(Error::Transport { peer: Some(Rank(0)), .. })), "{lost:?}");
        drop(come);
    });
    assert!(start.elapsed() < Duration::from_secs(10), "no time limit has passed");
}

/// On a communicator with a channel for messages, blocking messages match started ones.
#[test]
fn blocking_messages_match_with_those_under_way() {
    run(2, |world| {
        let (own, other) = (world.rank(), Rank(1 - world.rank().0));
        let matrix: Vec<u32> = (0..60_000).collect();
        let columns = Rows { n_rows: 20_000, n_columns: 2, stride: 3 };
        let want: Vec<u32> = (0..60_000).filter(|at| at % 3 < 2).collect();
        // Start as many calls as there may be.
        let sums =
            [0, 1].map(|_| world.start(Call::all_reduce([1_u8; 9], Op::Sum), &raw()).unwrap());
        if own == Rank(0) {
            let come = world.start_recv(vec![0; want.len()], other, 1).unwrap();
            world
                .exchange(&mut [Outgoing::of_rows(other, 2, &matrix, columns)], &mut [], &raw())
                .expect("the rows are sent");
            assert_eq!(come.wait().into_result().unwrap().0, want);
            world.send(&[8_u8], other, 3, &raw()).expect("the receiver stores it");
            world.send(&[7_u8], other, 4, &raw()).expect("it is stored too");
        } else {
            let sent = world.start_send(want.clone(), other, 1, &raw()).unwrap();
            let mut room = vec![0; 60_000];
            let recv = Incoming::of_rows(other, 2, &mut room, columns);
            let report =
                world.exchange(&mut [], &mut [recv], &raw()).expect("the rows are received");
            assert_eq!(report.bound, 0.0);
            let is_right = |(at, &x): (usize, &u32)| x as usize == if at % 3 < 2 { at } else { 0 };
            assert!(room.iter().enumerate().all(is_right));
            sent.wait().into_result().unwrap();
            let mut room = [0_u8];
            world.recv(&mut room, other, 4).expect("the second message");
            assert_eq!(room, [7]);
            world.recv(&mut room, other, 3).expect("the first message");
            assert_eq!(room, [8]);
        }
        // Messages to this rank itself.
        let (mut room, to_itself) = ([0_u8], Err(Error::ToItself { tag: 0 }));
        assert_eq!(world.recv(&mut room, own, 0).map(drop), to_itself);
        assert_eq!(world.send(&room, own, 0, &raw()).map(drop), to_itself);
        world.start_send([5_u8], own, 0, &raw()).unwrap().wait().into_result().unwrap();
        let send = Outgoing::new(own, 0, &[6_u8]);
        world.send_recv(send, Incoming::new(own, 0, &mut room), &raw()).expect("the first message");
        assert_eq!(room, [5]);
        assert_eq!(world.send(&room, own, 0, &raw()).map(drop), to_itself);
        world.recv(&mut room, own, 0).expect("the second message");
        assert_eq!(room, [6]);
        assert_eq!(world.recv(&mut room, own, 0).map(drop), to_itself);
        for sum in sums {
            assert_eq!(sum.wait().into_result().unwrap().0, [2; 9]);
        }
    });
}

#[test]
fn channels_are_for_calls_and_for_messages() {
    let frames = 5 * 2 * FRAMES_PER_LANE;
    World::new(2).frame_limit(2 * frames).run_endpoints(|endpoint| {
        let world = SharedCommunicator::with_config(endpoint, config().with_lanes(2), 1).unwrap();
        for _ in 0..4 {
            // One of the three remaining channels is for messages, each time.
            let twin = world.duplicate(2).unwrap();
            assert_eq!(twin.n_calls(), 2);
            let refused = world.duplicate(1).map(drop);
            assert_eq!(refused, Err(Error::TooFewChannels { need: 2, have: 0 }));
        }
        let refused = world.duplicate(3).map(drop);
        assert_eq!(refused, Err(Error::TooFewChannels { need: 4, have: 3 }));
    });
    World::new(2).run_endpoints(|endpoint| {
        let with = endpoint_rank(&endpoint) == 1;
        let config = if with { config() } else { Config::default() };
        let world = SharedCommunicator::with_config(endpoint, config, 1).unwrap();
        let told = world.duplicate(1).map(drop);
        assert!(matches!(told, Err(Error::Mismatch { field: Field::Context, .. })), "{told:?}");
    });
}

fn endpoint_rank(endpoint: &foldwire_threads::Endpoint) -> usize {
    endpoint.rank().index()
}

/// Runs one rank's program on a network with faults: messages to both neighbors, in an order that
/// differs between ranks, and a sum.
async fn program(endpoint: SimEndpoint, n_values: usize, limit: Duration) -> Result<(), Error> {
    let (clock, config) = (endpoint.clock(), config().with_timeout(limit).with_lanes(1));
    let world = SharedCommunicator::with_config(endpoint, config, 1)?;
    let (rank, size) = (world.rank().index(), world.size());
    let next = |by: usize| Rank::new((rank + by) % size);
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    // The second message with a tag has other values than the first.
    let values = |rank: usize, nth: usize| {
        let values = data::smooth::<f32>(rank, n_values).into_iter();
        values.map(|x| x + nth as f32).collect::<Vec<_>>()
    };
    let room = || vec![0.0_f32; n_values];
    let come = [
        world.start_recv(room(), next(1), 2)?,
        world.start_recv(room(), next(size - 1), 1)?,
        world.start_recv(room(), next(1), 2)?,
    ];
    clock.sleep(Duration::from_micros(70 * rank as u64)).await;
    let sum = world.start(Call::all_reduce([1_u8; 40], Op::Sum), &raw())?;
    let mut sent = Vec::new();
    for (by, tag, nth) in [(1, 1, 0), (size - 1, 2, 0), (size - 1, 2, 1)] {
        sent.push(world.start_send(values(rank, nth), next(by), tag, &plan)?);
    }
    if rank % 2 == 1 {
        sent.reverse();
    }
    for sent in sent {
        sent.await.into_result()?;
    }
    for (come, (by, nth)) in come.into_iter().zip([(1, 0), (size - 1, 0), (1, 1)]) {
        let (got, _) = come.await.into_result()?;
        let want = values(next(by).index(), nth);
        let off = got.iter().zip(&want).map(|(x, y)| f64::from((x - y).abs()));
        assert!(off.fold(0.0, f64::max) <= 1e-3, "from {}", next(by));
    }
    assert_eq!(sum.await.into_result()?.0, [size as u8; 40]);
    world.start_barrier()?.await.into_result()?;
    Ok(())
}

const NET: NetSettings = NetSettings {
    latency: Duration::from_micros(2),
    jitter: Duration::from_micros(50),
    bandwidth: 1.25e9,
    ranks_per_node: 1,
    depth: 1,
    channels: 2,
    frame_bytes: 1024,
    frames_per_rank: 2 * FRAMES_PER_LANE,
    attended: true,
    refusal: 5,
    neglect: 7,
    poll: Duration::from_nanos(300),
    jump: Duration::from_millis(100),
    patience: Duration::from_secs(3600),
};

#[test]
fn messages_come_on_any_network() {
    for seed in 0..60 {
        let (size, n_values) =
            ([2, 3, 5][seed as usize % 3], [0, 200, 3000][seed as usize / 3 % 3]);
        let limit = Duration::from_secs(5);
        let run =
            SimWorld::new(size, seed).net(NET).run(|endpoint| program(endpoint, n_values, limit));
        for end in &run.ends {
            assert!(matches!(end, End::Returned(Ok(()))), "seed {seed}: {end:?}");
        }
        assert_eq!(run.n_leaked(), 0, "seed {seed}");
    }
}

/// Messages are numbered, so a receiver also detects a copy of a message.
#[test]
fn harmed_messages_under_way_are_errors_or_do_no_harm() {
    let mut n_struck = 0;
    for harm in Harm::ALL {
        // Messages of one segment and of several.
        for (size, n_values) in [(2, 100), (2, 700), (3, 100), (3, 700)] {
            for nth in 0..12 {
                let fault = Fault::Harm { rank: Rank(1), nth, harm };
                let limit = Duration::from_secs(1);
                let run = SimWorld::new(size, nth as u64)
                    .net(NET)
                    .faults([fault])
                    .run(|endpoint| program(endpoint, n_values, limit));
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

/// A rank dies, falls silent, is late, or is cut off at any moment. The other ranks must end.
#[test]
fn ranks_that_fail_leave_nobody_waiting() {
    let mut n_struck = 0;
    for nth in 0..10 {
        let (rank, by) = (Rank(1), Duration::from_millis(30));
        for fault in [
            Fault::Death { rank, after: nth },
            Fault::Stall { rank, after: nth, lasting: None },
            Fault::Stall { rank, after: nth, lasting: Some(by) },
            Fault::Cut { rank, nth, silent: false },
            Fault::Cut { rank, nth, silent: true },
            Fault::Delay { rank, nth, by },
        ] {
            let limit = Duration::from_secs(1);
            let run = SimWorld::new(3, nth as u64)
                .net(NET)
                .faults([fault])
                .run(|endpoint| program(endpoint, 700, limit));
            n_struck += run.struck.len();
            let is_late =
                matches!(fault, Fault::Delay { .. } | Fault::Stall { lasting: Some(_), .. });
            for end in &run.ends {
                match end {
                    End::Returned(Ok(())) | End::Died | End::Silent => {}
                    End::Returned(Err(_)) if !is_late => {}
                    _ => panic!("{fault:?}: {end:?}"),
                }
            }
            assert_eq!(run.n_leaked(), 0, "{fault:?}");
        }
    }
    assert!(n_struck > 50, "{n_struck}");
}

/// Two ranks disagree in a call and leave at once. A third rank, which makes no call, learns of the
/// disagreement, even if it first detects that a rank has left.
#[test]
fn who_waits_for_messages_of_a_rank_that_left_hears_why() {
    // Without refusals, a rank can always send its abort notice before it leaves.
    let net = NetSettings { refusal: 0, ..NET };
    for seed in 0..400 {
        let run = SimWorld::new(3, seed).net(net).run(|endpoint| async {
            let config = config().with_lanes(1);
            let world = SharedCommunicator::with_config(endpoint, config, 1)?;
            let rank = world.rank().index();
            if rank < 2 {
                let ones = vec![1_u8; 4 + rank];
                return world
                    .start(Call::all_reduce(ones, Op::Sum), &raw())?
                    .await
                    .outcome
                    .map(drop);
            }
            let come = world.start_recv([0_u8; 2], Rank(0), 0)?;
            let sent = world.start_send(vec![0_u8; 4000], Rank(1), 0, &raw())?;
            sent.await.outcome.and(come.await.outcome).map(drop)
        });
        let End::Returned(Err(error)) = &run.ends[2] else { panic!("{:?}", run.ends[2]) };
        let is_told =
            matches!(error, Error::Aborted { reason: AbortReason::Mismatch(Field::Count), .. });
        assert!(is_told, "seed {seed}: {error}");
    }
}

/// The time limit counts only while the rank waits for a message.
#[test]
fn a_receive_may_be_started_long_before_its_send() {
    let run = SimWorld::new(2, 3).net(NET).run(|endpoint| async {
        let (clock, limit) = (endpoint.clock(), Duration::from_secs(1));
        let config = config().with_timeout(limit).with_lanes(1);
        let world = SharedCommunicator::with_config(endpoint, config, 1)?;
        if world.rank() == Rank(0) {
            clock.sleep(20 * limit).await;
            world.start_send([9_u8; 2], Rank(1), 0, &raw())?.await.into_result()?;
            clock.sleep(3 * limit).await;
            return Ok(None);
        }
        let come = world.start_recv([0_u8; 2], Rank(0), 0)?;
        let none = world.start_recv([0_u8; 2], Rank(0), 1)?;
        for _ in 0..205 {
            world.progress();
            clock.sleep(limit / 10).await;
        }
        assert_eq!(come.await.into_result()?.0, [9; 2]);
        let before = clock.now();
        let end = none.await.outcome;
        assert!(clock.now() - before > limit, "the time limit counts only from here on");
        Ok::<_, Error>(Some(end))
    });
    assert!(matches!(run.ends[0], End::Returned(Ok(None))), "{:?}", run.ends[0]);
    let stalled = Err(Error::Stalled { rank: Rank(0), step: 0 });
    assert!(
        matches!(run.ends[1], End::Returned(Ok(Some(end))) if end == stalled),
        "{:?}",
        run.ends[1]
    );
}
