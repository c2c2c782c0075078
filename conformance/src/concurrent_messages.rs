//! Messages between two ranks that run at the same time as each other and as collective calls. Each
//! rank starts them, and waits for them, in an order of its own.

use crate::Backend;
use crate::data::{self, Random};
use crate::suite::{Make, PATIENT};
use foldwire::{
    Bound, Call, Config, Error, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator, Transport,
};
use std::future::Future;
use std::pin::Pin;

/// Number of concurrent calls on a communicator.
const N_CALLS: usize = 3;
/// Number of messages from each rank to each rank with each tag.
const PER_TAG: usize = 3;
const TAGS: [u32; 2] = [9, u32::MAX];
const BOUND: f64 = 1e-3;

/// Runs the checks of this file with small and with default frames. Skips transports with few
/// channels.
pub(crate) fn concurrent_messages(make: &Make<'_>, size: usize) {
    for (seed, n_bytes) in [Some(20_000), None].into_iter().enumerate() {
        let backend = make(n_bytes);
        backend.run_transports(size, |transport| {
            // `world` takes one channel for each call and one for messages, a duplicate takes two.
            // The other channels are a reserve.
            if transport.n_channels() < 3 * (N_CALLS + 1) {
                return;
            }
            let config = Config::default().with_timeout(PATIENT).with_messages();
            let world = SharedCommunicator::with_config(transport, config, N_CALLS);
            let world = world.expect("there are channels and frames enough");
            let all = || {
                in_any_order(&world, seed)?;
                long_before(&world)?;
                blocking(&world)?;
                apart(&world)
            };
            all().unwrap_or_else(|error| panic!("rank {} of {size}: {error}", world.rank()));
        });
    }
}

/// A message or call that a rank starts.
#[derive(Clone, Copy)]
enum StartedWork {
    /// A message to this rank, with this tag.
    Send(usize, u32),
    /// A message from this rank, with this tag.
    Recv(usize, u32),
    /// A sum over all ranks. The second sum blocks.
    Sum,
}

type PendingWait<'w> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'w>>;

/// Sends a few messages of each tag between all pairs of ranks, each rank itself included, while
/// they compute sums. Each rank draws its own order. Only messages with the same tag stay in order.
fn in_any_order<'a, X: Transport + 'a>(
    world: &SharedCommunicator<'a, X>,
    seed: usize,
) -> Result<(), Error> {
    let (rank, size) = (world.rank().index(), world.size());
    for round in 0..3 {
        let mut random = Random(((seed * 3 + round) * size + rank) as u64);
        let (mut starts, mut n_sums) = (vec![StartedWork::Sum; N_CALLS], 0);
        for (peer, tag) in (0..size).flat_map(|peer| TAGS.map(|tag| (peer, tag))) {
            for _ in 0..PER_TAG {
                starts.extend([StartedWork::Send(peer, tag), StartedWork::Recv(peer, tag)]);
            }
        }
        for at in (1..starts.len()).rev() {
            starts.swap(at, random.below(at + 1));
        }
        let mut waits: Vec<PendingWait<'_>> = Vec::new();
        let mut n_started = [vec![0; size * TAGS.len()], vec![0; size * TAGS.len()]];
        let mut nth = |is_sent: bool, peer: usize, tag: u32| {
            let n = &mut n_started[usize::from(is_sent)][peer * TAGS.len() + usize::from(tag == 9)];
            *n += 1;
            *n
        };
        for start in starts {
            waits.push(match start {
                StartedWork::Send(to, tag) => {
                    let values = message(rank, to, tag, nth(true, to, tag), round);
                    let plan = [Plan::raw(), Plan::foldwire(Bound::Absolute(BOUND))][to % 2];
                    let sent = world.start_send(values, Rank::new(to), tag, &plan)?;
                    Box::pin(async { sent.await.into_result().map(drop) })
                }
                StartedWork::Recv(from, tag) => {
                    let want = message(from, rank, tag, nth(false, from, tag), round);
                    let room = vec![f32::NAN; want.len()];
                    let received = world.start_recv(room, Rank::new(from), tag)?;
                    Box::pin(async move {
                        let (got, report) = received.await.into_result()?;
                        let most = if from == rank { 0.0 } else { report.bound };
                        assert!(most <= 1.001 * BOUND, "{report:?}");
                        for (got, want) in got.iter().zip(&want) {
                            let off = f64::from((got - want).abs());
                            assert!(off <= most, "from {from}, tag {tag}: {want} became {got}");
                        }
                        Ok(())
                    })
                }
                StartedWork::Sum => {
                    n_sums += 1;
                    if n_sums == 2 {
                        assert_eq!(world.all_reduce_scalar(1_i32, Op::Sum)?, size as i32);
                        continue;
                    }
                    let sum =
                        world.start(Call::all_reduce(vec![1_i64; 5000], Op::Sum), &Plan::raw())?;
                    Box::pin(async move {
                        let (sum, _) = sum.await.into_result()?;
                        assert!(sum.iter().all(|&sum| sum == size as i64));
                        Ok(())
                    })
                }
            });
        }
        while !waits.is_empty() {
            let wait = waits.swap_remove(random.below(waits.len()));
            drive(wait)?;
        }
    }
    Ok(())
}

/// Values of the `nth` message with a tag.
fn message(from: usize, to: usize, tag: u32, nth: usize, round: usize) -> Vec<f32> {
    let lens = [0, 1, 40, 4097, 16_384, 16_385, 30_011, 200_000];
    let seed = ((from * 31 + to) * 7 + nth) * 5 + round * 3 + (tag % 2) as usize;
    data::smooth(seed, lens[seed % lens.len()])
}

/// Polls until the future is done, as an executor without wake-ups would.
fn drive(mut wait: PendingWait<'_>) -> Result<(), Error> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(result) = wait.as_mut().poll(&mut context) {
            return result;
        }
        std::thread::yield_now();
    }
}

/// Starts receives long before their sends, and sends long before their receives.
fn long_before<'a, X: Transport + 'a>(world: &SharedCommunicator<'a, X>) -> Result<(), Error> {
    let (rank, size) = (world.rank().index(), world.size());
    let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    for n_values in [1, 50_000] {
        let own = vec![rank as f64; n_values];
        let early = world.start_recv(vec![-1.0; n_values], before, 1)?;
        let sent = world.start_send(own.clone(), after, 2, &Plan::raw())?;
        for _ in 0..3 {
            // Rank `before` starts its send only after the barriers, which wait for this rank.
            assert!(!early.is_finished(), "its send comes when all have been here");
            world.barrier()?;
        }
        let late = world.start_recv(vec![-1.0; n_values], before, 2)?;
        let last = world.start_send(own, after, 1, &Plan::raw())?;
        for received in [late, early] {
            let (got, report) = received.wait().into_result()?;
            assert_eq!(report.bound, 0.0);
            assert!(got.iter().all(|&x| x == before.index() as f64), "{n_values} values");
        }
        for sent in [last, sent] {
            let (_, report) = sent.wait().into_result()?;
            let n_bytes = if size > 1 { n_values * size_of::<f64>() } else { 0 };
            assert_eq!(report.raw_bytes, n_bytes as u64);
        }
    }
    Ok(())
}

/// Passes messages around a ring. Some ranks use blocking calls.
fn blocking<'a, X: Transport + 'a>(world: &SharedCommunicator<'a, X>) -> Result<(), Error> {
    let (rank, size) = (world.rank().index(), world.size());
    let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    for (tag, n_values) in (0..).zip([0, 3, 70_000]) {
        let (own, mut room) = (vec![rank as i64; n_values], vec![-1; n_values]);
        if (rank + tag as usize).is_multiple_of(2) {
            let (send, recv) =
                (Outgoing::new(after, tag, &own), Incoming::new(before, tag, &mut room));
            world.send_recv(send, recv, &Plan::raw())?;
        } else {
            let sent = world.start_send(own, after, tag, &Plan::raw())?;
            let received = world.start_recv(room, before, tag)?;
            room = received.wait().into_result()?.0;
            sent.wait().into_result()?;
        }
        assert_eq!(room, vec![before.index() as i64; n_values]);
    }
    Ok(())
}

/// Messages of two communicators of the same ranks do not mix. If no rank receives a message, the
/// message does not reach the next communicator that uses its channel.
fn apart<'a, X: Transport + 'a>(world: &SharedCommunicator<'a, X>) -> Result<(), Error> {
    let (rank, size) = (world.rank().index(), world.size());
    let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    for round in 0..5 {
        let twin = world.duplicate(1)?;
        let both = [&twin, world];
        let value = |at: usize| (10 * round + 2 * rank + at) as i32;
        let received = [0, 1].map(|at| both[at].start_recv([-1_i32; 3], before, 0));
        for at in if rank % 2 == 0 { [0, 1] } else { [1, 0] } {
            let sent = both[at].start_send([value(at); 3], after, 0, &Plan::raw())?;
            sent.wait().into_result()?;
        }
        for (at, received) in received.into_iter().enumerate() {
            let want = (10 * round + 2 * before.index() + at) as i32;
            assert_eq!(received?.wait().into_result()?.0, [want; 3], "communicator {at}");
        }
        twin.start_send([-7_i32; 3], after, 0, &Plan::raw())?.wait().into_result()?;
        world.barrier()?;
    }
    Ok(())
}
