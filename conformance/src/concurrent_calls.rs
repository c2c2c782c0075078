//! Concurrent calls on one communicator and on overlapping groups.

use crate::case::Counts;
use crate::suite::{PATIENT, SIZES};
use crate::{Backend, Case, Threads, pairwise, pairwise_of, with_type};
use foldwire::{
    Bound, Call, Config, Error, Float, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator,
    Transport,
};

/// Number of concurrent calls on a communicator.
const N_CALLS: usize = 6;
/// Every case divides its values evenly.
static NO_COUNTS: Counts = Counts::NONE;

/// Skips transports with a single channel.
pub(crate) fn concurrent_calls<M: Fn(Option<usize>) -> B, B: Backend>(make: &M, size: usize) {
    let backend = make(Some(20_000));
    // Use the cases of the sizes that all backends have, or of any size.
    let (cover, n_cases) =
        if SIZES.contains(&size) { (pairwise_of(&SIZES), 24) } else { (pairwise(), N_CALLS) };
    let cases: Vec<Case> = cover.into_iter().filter(|case| case.size == size).collect();
    let step = cases.len().div_ceil(n_cases).max(1);
    let cases: Vec<Case> = cases.into_iter().step_by(step).collect();
    let outcomes = backend.run_transports(size, |transport| {
        let n_bytes = transport.frame_capacity();
        let has_channels = transport.n_channels() >= 2 * N_CALLS + 4;
        has_channels.then(|| {
            let world = world(transport);
            let words = words(&world, &cases).unwrap_or_else(|error| panic!("{error}"));
            groups(&world).unwrap_or_else(|error| panic!("{error}"));
            beside_messages(&world).unwrap_or_else(|error| panic!("{error}"));
            (words, n_bytes)
        })
    });
    for (rank, outcome) in backend.ranks(size).zip(outcomes) {
        let Some((words, n_bytes)) = outcome else { continue };
        for (case, word) in cases.iter().zip(words) {
            let expected = case.check(&Threads { frame_bytes: Some(n_bytes) });
            assert!(word == expected[rank], "{case:?} beside others, rank {rank}: other bits");
        }
    }
}

fn world<'a, X: Transport + 'a>(transport: X) -> SharedCommunicator<'a, X> {
    // The number of lanes is a communicator's default. With another number the frames would differ.
    let config = Config::default().with_timeout(PATIENT);
    let world = SharedCommunicator::with_config(transport, config, N_CALLS);
    world.expect("there are channels and frames enough")
}

/// Returns a word of each case. [`N_CALLS`] cases run at once.
fn words<'a, X: Transport + 'a>(
    world: &SharedCommunicator<'a, X>,
    cases: &[Case],
) -> Result<Vec<u64>, Error> {
    let mut words = Vec::new();
    for cases in cases.chunks(N_CALLS) {
        words.extend(batch(world, cases)?);
    }
    Ok(words)
}

/// Runs cases at once. Ranks wait for their calls in different orders.
fn batch<'a, X: Transport + 'a>(
    world: &SharedCommunicator<'a, X>,
    cases: &[Case],
) -> Result<Vec<u64>, Error> {
    type PendingWord<'w> = Box<dyn FnOnce() -> Result<u64, Error> + 'w>;
    let mut waits: Vec<Option<PendingWord<'_>>> = Vec::new();
    for case in cases {
        waits.push(Some(with_type!(case.dtype, T => {
            let call = case.start_at_once::<T, X>(world, &NO_COUNTS)?;
            Box::new(move || word(case, world.rank().index(), call.wait().into_result()?))
        })));
    }
    if cases.len() == N_CALLS {
        let one_more = world.start(Call::all_reduce(vec![1.0f32], Op::Sum), &Plan::raw());
        assert!(matches!(one_more, Err(Error::TooManyCalls { max: N_CALLS })));
    }
    let mut words = vec![0; cases.len()];
    for turn in 0..cases.len() {
        let at = (turn * 5 + world.rank().index()) % cases.len();
        let at = (0..cases.len()).map(|next| (at + next) % cases.len());
        if let Some((at, wait)) = at.filter_map(|at| Some((at, waits[at].take()?))).next() {
            words[at] = wait()?;
        }
    }
    Ok(words)
}

fn word<T: Float>(
    case: &Case,
    rank: usize,
    (given_back, report): (Vec<T>, foldwire::Report),
) -> Result<u64, Error> {
    Ok(Case::word(&case.result_at_once(rank, given_back), &report))
}

/// Runs sums while neighbours exchange messages, on the same communicator and on a duplicate. On
/// the duplicate one rank sends its message before it starts its calls, and the other ranks after
/// that.
fn beside_messages<'a, X: Transport + 'a>(world: &SharedCommunicator<'a, X>) -> Result<(), Error> {
    let (rank, size) = (world.rank().index(), world.size());
    let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    let apart = world.duplicate(1)?;
    for round in 0..4 {
        let sum =
            || world.start(Call::all_reduce(vec![rank as i32; 40_000], Op::Sum), &Plan::raw());
        let pass = |comm: &SharedCommunicator<'a, X>| {
            let (own, mut got) = (vec![rank as f32; 30_000], vec![-1.0; 30_000]);
            let (send, recv) =
                (Outgoing::new(after, round, &own), Incoming::new(before, round, &mut got));
            comm.send_recv(send, recv, &Plan::foldwire(Bound::Absolute(0.25)))?;
            assert!(got.iter().all(|x| (x - before.index() as f32).abs() <= 0.25), "{round}");
            Ok::<(), Error>(())
        };
        let sums = if rank == round as usize % size {
            pass(&apart)?;
            [sum()?, sum()?]
        } else {
            let sums = [sum()?, sum()?];
            pass(&apart)?;
            sums
        };
        pass(world)?;
        for sum in sums {
            let (got, _) = sum.wait().into_result()?;
            let want = (size * (size - 1) / 2) as i32;
            assert!(got.iter().all(|&x| x == want), "round {round}");
        }
    }
    Ok(())
}

/// Runs calls at once on disjoint, equal and overlapping groups. Ranks start them and wait for them
/// in different orders.
fn groups<'a, X: Transport + 'a>(world: &SharedCommunicator<'a, X>) -> Result<(), Error> {
    let (rank, size) = (world.rank().0, world.size() as u32);
    let is_odd = rank % 2 == 1;
    // Exact sum of (rank in the world) + 1.
    let sum =
        |ranks: &mut dyn Iterator<Item = u32>| ranks.map(|rank| f64::from(rank + 1)).sum::<f64>();
    let input = || vec![f64::from(rank + 1); 3000];
    let all = |values: &[f64], want: f64| values.iter().all(|&value| value == want);

    for round in 0..3 {
        let (plan, key) = (&Plan::raw(), if round == 1 { -(rank as i32) } else { 0 });
        let parity = world.split(Some(rank % 2), key, 1)?.ok_or(Error::Internal)?;
        let twin = world.duplicate(2)?;
        let but_last = world.split((rank + 1 < size || size == 1).then_some(7), 0, 1)?;
        let but_first = world.split((rank > 0 || size == 1).then_some(9), 0, 1)?;
        if round == 1 {
            // The highest rank of each parity comes first.
            let highest = (0..size).rev().find(|other| other % 2 == rank % 2);
            assert_eq!(parity.transport_rank(foldwire::Rank(0)).map(|rank| rank.0), highest);
        }
        let mut groups = vec![
            (&parity, sum(&mut (0..size).filter(|other| other % 2 == rank % 2))),
            (&twin, sum(&mut (0..size))),
        ];
        if let Some(group) = &but_last {
            groups.push((group, sum(&mut (0..(size - 1).max(1)))));
        }
        if let Some(group) = &but_first {
            groups.push((group, sum(&mut (u32::from(size > 1)..size))));
        }
        if is_odd {
            groups.reverse();
        }
        let mut calls = Vec::new();
        for (group, want) in &groups {
            calls.push((group.start(Call::all_reduce(input(), Op::Sum), plan)?, *want));
        }
        // A call that waits also drives the other calls.
        let mut together = input();
        twin.all_reduce(&mut together, Op::Sum, plan)?;
        assert!(all(&together, sum(&mut (0..size))));
        calls.rotate_left(rank as usize % groups.len());
        for (call, want) in calls {
            let (values, _) = call.wait().into_result()?;
            assert!(all(&values, want), "rank {rank} of {size}: {} for {want}", values[0]);
        }
    }
    // Dropped communicators free their channels, so that this works any number of times.
    for _ in 0..20 {
        let again = world.duplicate(N_CALLS + 1)?;
        assert_eq!((again.rank(), again.size()), (world.rank(), world.size()));
    }
    Ok(())
}
