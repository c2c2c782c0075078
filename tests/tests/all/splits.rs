//! Communicators are made and dropped without limit. Channels and epochs are reused, and leftover
//! messages of one communicator do not reach another.

use foldwire::error::AbortReason;
use foldwire::schedule::Chain;
use foldwire::transport::FRAMES_PER_LANE;
use foldwire::{Bound, Call, Config, Error, Op, Plan, Rank, SharedCommunicator};
use foldwire_sim::{End, Endpoint as SimEndpoint, Fault, Harm, NetSettings, World as SimWorld};
use foldwire_tests::join_all::join_all;
use foldwire_threads::{Endpoint, World};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

type Comm = SharedCommunicator<'static, Endpoint>;

/// Number of epochs that messages can distinguish.
const WRAP: u64 = 1 << 16;

fn raw() -> Plan {
    Plan::raw()
}

fn config() -> Config {
    Config::default().with_timeout(Duration::from_secs(20)).with_lanes(1)
}

/// Splits `comm` by color and key.
async fn split(comm: &Comm, color: u32, key: i32) -> Comm {
    let made = comm.start_split(Some(color), key, 1).expect("epochs do not run out").await;
    made.expect("epochs do not run out").expect("it has a color")
}

/// Sums the transport ranks of the members.
async fn sum(comm: &Comm) -> u32 {
    let own = comm.transport_rank(comm.rank()).expect("a member").0;
    let sum =
        comm.start(Call::all_reduce(vec![own], Op::Sum), &raw()).expect("the call starts").await;
    sum.into_result().expect("nothing is wrong").0[0]
}

/// Runs `body` on all ranks of `world`, on this thread.
fn run<F: Future>(world: World, config: &Config, body: impl Fn(Comm) -> F) {
    let ranks = world
        .endpoints()
        .into_iter()
        .map(|endpoint| SharedCommunicator::with_config(endpoint, *config, 1).expect("channels"));
    join_all(ranks.map(body));
}

/// Several communicators are alive at once, some made from others. Each rank drops them in another
/// order.
fn make_and_drop<const N: usize>() {
    run(World::new(3), &config(), async |world| {
        let own = world.rank();
        let mut alive: Vec<Comm> = Vec::new();
        for at in 0..N {
            // Every fourth time, one rank has its own color.
            let apart = (at / 4 % 3) as u32;
            let is_apart = at % 4 == 1 && own.0 == apart;
            // Every fourth time, split the oldest communicator, which contains all ranks.
            let parent = alive.first().filter(|_| at % 4 == 2).unwrap_or(&world);
            let made = split(parent, u32::from(is_apart), own.0 as i32).await;
            if at % 16 < 2 {
                let others = if at % 4 == 1 { 3 - apart } else { 3 };
                assert_eq!(sum(&made).await, if is_apart { apart } else { others });
            }
            alive.push(made);
            if alive.len() > 6 {
                alive.remove(1 + (at + own.index()) % 5);
            }
            if at % 500 == 499 {
                alive.clear();
            }
        }
    });
}

#[test]
fn communicators_are_made_and_dropped_without_end() {
    make_and_drop::<10_000>();
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn forty_thousand_communicators_are_made_and_dropped() {
        make_and_drop::<40_000>();
    }
}

/// Leaves an unreceived message, and a segment of a broadcast that only the root calls. A later
/// communicator must not receive them, even if its epoch has the same number in messages, or they
/// seem to belong to a future epoch.
#[test]
fn what_was_left_is_not_taken_for_what_comes_when_epochs_wrap() {
    run(World::new(2), &config().with_messages(), async |world| {
        let (own, other) = (world.rank(), Rank(1 - world.rank().0));
        // All communicators of a rank share its epochs, and a split of this one sends nothing.
        let alone = split(&world, own.0, 0).await;
        for n_between in [WRAP - 1, WRAP / 2] {
            let twin = split(&world, 0, 0).await;
            drop(twin.start_send([1_u8], other, 7, &raw()).expect("there is room").await);
            if own == Rank(0) {
                twin.broadcast(&mut [1_u8], own, &raw()).expect("a root waits for no rank");
            }
            drop(twin);
            for _ in 0..n_between {
                assert_eq!(split(&alone, 0, 0).await.size(), 1);
            }
            let twin = split(&world, 0, 0).await;
            let come = twin.start_recv([0_u8], other, 7).expect("there is room");
            let sent = twin.start_send([2_u8], other, 7, &raw()).expect("there is room");
            let (come, _) = come.await.into_result().expect("the message of this communicator");
            assert_eq!(come, [2], "rank {own}, after {n_between}");
            sent.await.into_result().expect("it was received");
            let value = [2 * u8::from(own == Rank(0))];
            let value =
                twin.start(Call::broadcast(value, Rank(0)), &raw()).expect("the call starts").await;
            let (value, _) = value.into_result().expect("the segment of this communicator");
            assert_eq!(value, [2], "rank {own}, after {n_between}");
        }
    });
}

/// A call or message in which rank 0 sends `value` to rank 1, and waits for nothing. Returns the
/// value that came.
type Transfer = fn(&Comm, u32) -> Result<u32, Error>;

fn broadcast(comm: &Comm, value: u32) -> Result<u32, Error> {
    let mut values = [own_or_zero(comm, value)];
    comm.broadcast(&mut values, Rank(0), &raw()).map(|_| values[0])
}

fn gather(comm: &Comm, value: u32) -> Result<u32, Error> {
    let mut all = [own_or_zero(comm, value); 2];
    comm.gather(2, &[own_or_zero(comm, value)], &mut all, Rank(1), &raw()).map(|_| all[0])
}

fn scan(comm: &Comm, value: u32) -> Result<u32, Error> {
    let mut values = [own_or_zero(comm, value)];
    comm.scan(&mut values, Op::Sum, &raw().with_schedule(&Chain)).map(|_| values[0])
}

fn message(comm: &Comm, value: u32) -> Result<u32, Error> {
    let mut values = [own_or_zero(comm, value)];
    let moved = match comm.rank() {
        Rank(0) => comm.send(&values, Rank(1), 7, &raw()),
        _ => comm.recv(&mut values, Rank(0), 7),
    };
    moved.map(|_| values[0])
}

fn own_or_zero(comm: &Comm, value: u32) -> u32 {
    if comm.rank() == Rank(0) { value } else { 0 }
}

const TRANSFERS: [Transfer; 4] = [broadcast, gather, scan, message];

/// Makes rank 0 send twice, and rank 1 refuse its own arguments. No rank notices, so no call fails.
fn leave_unreceived(comm: &Comm, transfer: Transfer) {
    for value in [101, 102] {
        if comm.rank() == Rank(0) {
            assert_eq!(transfer(comm, value), Ok(value));
        } else {
            let refused = comm.broadcast(&mut [0_u32], Rank(2), &raw());
            assert!(refused.is_err_and(|error| error.is_usage()));
        }
    }
}

/// A later communicator on the same channel may use it for calls or for messages.
#[test]
fn what_nobody_received_is_dropped_with_its_communicator() {
    World::new(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::with_config(endpoint, config(), 1).expect("a channel");
        for left in TRANSFERS {
            for next in TRANSFERS {
                let twin = world.duplicate(1).expect("the channel is free");
                leave_unreceived(&twin, left);
                drop(twin);
                let twin = world.duplicate(1).expect("the channel is free");
                for value in 1..6 {
                    assert_eq!(next(&twin, value), Ok(value));
                }
            }
        }
    });
}

/// A channel that calls used becomes one for messages.
#[test]
fn messages_do_not_receive_what_a_call_left() {
    World::new(2).run_endpoints(|endpoint| {
        let config = config().with_messages();
        let world = SharedCommunicator::with_config(endpoint, config, 1).expect("two channels");
        let twin = world.duplicate(3).expect("there are channels");
        for _ in 0..2 {
            assert_eq!(twin.all_reduce_scalar(1_u32, Op::Sum), Ok(2));
        }
        // On the last of three channels for calls.
        leave_unreceived(&twin, broadcast);
        drop(twin);
        // Takes the first of them, and the channel that had messages.
        let _other = world.duplicate(1).expect("there are channels");
        let twin = world.duplicate(1).expect("there are channels");
        assert_eq!(message(&twin, 1), Ok(1));
    });
}

/// There are channels for two communicators only, and the first one holds one of them.
#[test]
fn channels_on_which_calls_have_failed_are_used_again() {
    World::new(3).frame_limit(3 * 2 * 2 * FRAMES_PER_LANE).run_endpoints(|endpoint| {
        let config = config().with_lanes(2);
        let world = SharedCommunicator::with_config(endpoint, config, 1).expect("one channel");
        for round in 0..40 {
            let twin = world.duplicate(1).expect("the channel is free");
            assert_eq!(twin.all_reduce_scalar(1_u32, Op::Sum), Ok(3));
            let mut call = twin
                .start(Call::all_reduce(vec![1.0_f32; 100_000], Op::Sum), &raw())
                .expect("the call starts");
            for _ in 0..round {
                let _ = call.poll();
            }
            if world.rank() == Rank(round % 3) {
                call.cancel();
            } else {
                let told = call.wait().outcome;
                let is_told =
                    matches!(told, Err(Error::Aborted { reason: AbortReason::Dropped, .. }));
                assert!(is_told || told.is_ok(), "{told:?}");
            }
        }
    });
}

#[test]
fn splits_and_group_calls_can_be_polled_and_cancelled() {
    World::new(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::with_config(endpoint, config(), 1).expect("a channel");
        let mut split = world.start_split(Some(0), 0, 1).expect("the split starts");
        let twin = loop {
            if let Poll::Ready(made) = split.poll() {
                break made.expect("all ranks split").expect("this rank has a color");
            }
        };
        assert_eq!(split.poll().map(Result::err), Poll::Ready(Some(Error::Finished)));
        let mut values = vec![1.0_f32; 10_000];
        let mut arrays = [(&mut values[..], Bound::Absolute(1.0))];
        let group = twin.start_all_reduce_group(&mut arrays, Op::Sum, &raw());
        group.expect("the group starts").cancel();
        assert!(twin.is_poisoned());
        assert_eq!(world.all_reduce_scalar(1_u32, Op::Sum), Ok(2));
    });
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

/// Splits the first communicator, makes a call on the new one fail, and repeats this a few times.
/// Each split but the first must flush the one remaining channel.
async fn fail_and_split(endpoint: SimEndpoint) -> Result<(), Error> {
    let clock = endpoint.clock();
    let config = config().with_timeout(Duration::from_secs(1));
    let world = SharedCommunicator::with_config(endpoint, config, 1)?;
    for round in 0..3 {
        let twin = world.start_split(Some(0), 0, 1)?.await?.ok_or(Error::Internal)?;
        let sum = twin.start(Call::all_reduce([1_u32], Op::Sum), &raw())?.await.into_result()?.0;
        assert_eq!(sum, [world.size() as u32]);
        // An abort notice that overtakes the sum's last frames would end the sum too.
        clock.sleep(Duration::from_millis(20)).await;
        let mut long = twin.start(Call::all_reduce(vec![1.0_f32; 2000], Op::Sum), &raw())?;
        for _ in 0..(world.rank().index() + 1) * 7 * round {
            let _ = long.poll();
        }
        // Each rank drops the call at another moment.
        drop(long);
        assert!(twin.is_poisoned() || world.size() == 1);
    }
    world.start_barrier()?.await.into_result()?;
    Ok(())
}

#[test]
fn channels_are_flushed_on_any_network() {
    for seed in 0..60 {
        let size = [2, 3, 5][seed as usize % 3];
        let run = SimWorld::new(size, seed).net(NET).run(fail_and_split);
        for end in &run.ends {
            assert!(matches!(end, End::Returned(Ok(()))), "seed {seed}: {end:?}");
        }
        assert_eq!(run.n_leaked(), 0, "seed {seed}");
    }
}

/// A rank or a frame fails during a flush or before it. All ranks must end, with an error or
/// normally.
#[test]
fn a_flush_that_fails_leaves_nobody_waiting() {
    let (mut n_struck, mut n_failed) = (0, 0);
    for nth in 0..40 {
        let (rank, by) = (Rank(1), Duration::from_millis(30));
        let harms = Harm::ALL.map(|harm| Fault::Harm { rank, nth, harm });
        let faults = [
            Fault::Death { rank, after: nth },
            Fault::Stall { rank, after: nth, lasting: None },
            Fault::Stall { rank, after: nth, lasting: Some(by) },
            Fault::Cut { rank, nth, silent: false },
            Fault::Cut { rank, nth, silent: true },
            Fault::Delay { rank, nth, by },
        ];
        for fault in faults.into_iter().chain(harms) {
            let run = SimWorld::new(3, nth as u64).net(NET).faults([fault]).run(fail_and_split);
            n_struck += run.struck.len();
            for end in &run.ends {
                let is_end = matches!(end, End::Returned(_) | End::Died | End::Silent);
                assert!(is_end, "{fault:?}: {end:?}");
                n_failed += usize::from(!matches!(end, End::Returned(Ok(()))));
            }
            assert_eq!(run.n_leaked(), 0, "{fault:?}");
            assert!(run.time < Duration::from_secs(20), "{fault:?}: {:?}", run.time);
        }
    }
    assert!(n_struck > 300 && n_failed > 100, "{n_struck}, {n_failed}");
}

/// A rank that drops a split during its flush aborts the new communicator, and the other ranks
/// learn of it. The split communicator stays usable.
#[test]
fn a_split_that_is_dropped_while_it_flushes_ends_the_new_communicator_only() {
    let [mut n_before, mut n_meanwhile] = [0, 0];
    for after in 1..80 {
        let run = SimWorld::new(3, 1).net(NET).run(|endpoint| async move {
            let world = SharedCommunicator::with_config(endpoint, config(), 1)?;
            let twin = world.start_split(Some(0), 0, 1)?.await?.ok_or(Error::Internal)?;
            drop(twin.start_barrier()?);
            drop(twin);
            let mut split = Box::pin(world.start_split(Some(0), 0, 1)?);
            let mut n_left = if world.rank() == Rank(2) { after } else { usize::MAX };
            let told = poll_fn(|context| {
                n_left -= 1;
                if n_left == 0 {
                    return Poll::Ready(None);
                }
                split.as_mut().poll(context).map(|made| Some(made.map(drop)))
            });
            let told = told.await;
            drop(split);
            let lives = match world.start_barrier() {
                Ok(barrier) => barrier.await.outcome.is_ok(),
                Err(_) => false,
            };
            Ok::<_, Error>((told, lives))
        });
        let ends = run.ends.into_iter().map(|end| match end {
            End::Returned(Ok(end)) => end,
            end => panic!("after {after} polls: {end:?}"),
        });
        let ends: Vec<_> = ends.collect();
        let (Some(Err(told)), (None, lives)) = (ends[0].0, ends[2]) else { continue };
        if !lives {
            // This drop came during the exchange, and ended the split communicator.
            n_before += 1;
            continue;
        }
        let Error::Aborted { culprit, reason, .. } = told else {
            panic!("after {after} polls: {ends:?}")
        };
        assert!(
            (culprit, reason) == (Rank(2), AbortReason::Dropped),
            "after {after} polls: {ends:?}"
        );
        assert!(ends.iter().all(|end| end.1), "after {after} polls: {ends:?}");
        n_meanwhile += 1;
    }
    assert!(n_before > 0 && n_meanwhile > 0, "{n_before}, {n_meanwhile}");
}
