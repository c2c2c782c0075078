//! Checks of concurrent calls on one communicator and on overlapping groups. The `digests` of
//! results are compared with those of the threads backend.

use crate::case::Counts;
use crate::places::Places;
use crate::suite::{Make, PATIENT, SIZES};
use crate::{Backend, Case, Threads, pairwise, pairwise_of, with_type};
use foldwire::{
    Bound, Call, Config, Error, Float, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator,
    Transport,
};

/// Number of concurrent calls on a communicator.
const N_CALLS: usize = 6;
/// Only calls with uneven shares take counts. The shares of these cases are even.
static NO_COUNTS: Counts = Counts::NONE;

/// Runs all checks of this file. Skips transports that have too few channels for them.
pub(crate) fn concurrent_calls(make: &Make<'_>, size: usize) {
    let backend = make(Some(20_000));
    // For the suite's sizes there are cases that cover all pairs of choices; run up to 24 of them.
    // For other sizes, run a few.
    let (cover, n_cases) =
        if SIZES.contains(&size) { (pairwise_of(&SIZES), 24) } else { (pairwise(), N_CALLS) };
    let cases: Vec<Case> = cover.into_iter().filter(|case| case.size == size).collect();
    let step = cases.len().div_ceil(n_cases).max(1);
    let places = Places::of(&backend, size);
    let cases: Vec<Case> = cases.iter().step_by(step).map(|case| places.adapt(case)).collect();
    let outcomes = backend.run_transports(size, |transport| {
        let n_bytes = transport.frame_capacity();
        // `world` takes N_CALLS channels, the largest duplicate one more. The others are a reserve.
        let has_channels = transport.n_channels() >= 2 * N_CALLS + 4;
        has_channels.then(|| {
            let world = world(transport);
            let digests =
                digests(&world, &cases, &places).unwrap_or_else(|error| panic!("{error}"));
            groups(&world).unwrap_or_else(|error| panic!("{error}"));
            beside_messages(&world).unwrap_or_else(|error| panic!("{error}"));
            (digests, n_bytes)
        })
    });
    let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() else { return };
    for (i, case) in cases.iter().enumerate() {
        let words = backend.gather(outcomes.iter().map(|(digests, _)| digests[i]).collect());
        // Every process has the words of all ranks, so only one process compares them.
        if backend.ranks(size).start == 0 {
            let of_threads = case.check(&Threads { frame_bytes: Some(outcomes[0].1) });
            assert!(words == of_threads, "{case:?} while other calls run: other bits");
        }
    }
}

fn world<'a, X: Transport + 'a>(transport: X) -> SharedCommunicator<'a, X> {
    // Keep the default number of lanes, which the expected results use. With another number, frames
    // would differ.
    let config = Config::default().with_timeout(PATIENT);
    let world = SharedCommunicator::with_config(transport, config, N_CALLS);
    world.expect("there are channels and frames enough")
}

/// Runs the cases, [`N_CALLS`] of them at once. Returns a digest of each result.
fn digests<'a, X: Transport + 'a>(
    world: &SharedCommunicator<'a, X>,
    cases: &[Case],
    places: &Places<'_>,
) -> Result<Vec<u64>, Error> {
    let mut digests = Vec::new();
    for cases in cases.chunks(N_CALLS) {
        digests.extend(batch(world, cases, places)?);
    }
    Ok(digests)
}

/// Runs cases at once, and returns a digest of each result. Ranks wait for their calls in different
/// orders.
fn batch<'a, X: Transport + 'a>(
    world: &SharedCommunicator<'a, X>,
    cases: &[Case],
    places: &Places<'_>,
) -> Result<Vec<u64>, Error> {
    type PendingDigest<'w> = Box<dyn FnOnce() -> Result<u64, Error> + 'w>;
    let mut waits: Vec<Option<PendingDigest<'_>>> = Vec::new();
    for case in cases {
        waits.push(Some(with_type!(case.dtype, T => {
            let rank = world.rank().index();
            let call = case.call_at_once::<T>(rank, &NO_COUNTS);
            let wait = places.start(world, call, &case.plan())?;
            Box::new(move || digest(case, rank, wait()?))
        })));
    }
    if cases.len() == N_CALLS {
        let one_more = world.start(Call::all_reduce(vec![1.0f32], Op::Sum), &Plan::raw());
        assert!(matches!(one_more, Err(Error::TooManyCalls { max: N_CALLS })));
    }
    let mut digests = vec![0; cases.len()];
    for turn in 0..cases.len() {
        let at = (turn * 5 + world.rank().index()) % cases.len();
        let at = (0..cases.len()).map(|next| (at + next) % cases.len());
        if let Some((at, wait)) = at.filter_map(|at| Some((at, waits[at].take()?))).next() {
            digests[at] = wait()?;
        }
    }
    Ok(digests)
}

/// Returns the digest of a call's result and report ([`Case::word`]).
fn digest<T: Float>(
    case: &Case,
    rank: usize,
    (buffer, report): (Vec<T>, foldwire::Report),
) -> Result<u64, Error> {
    Ok(Case::word(&case.result_at_once(rank, buffer), &report))
}

/// Runs sums on `world` while neighbouring ranks exchange messages, first on a duplicate of it,
/// then on `world` itself. One rank makes the exchange on the duplicate before it starts its sums,
/// all other ranks after they have started theirs.
fn beside_messages<'a, X: Transport + 'a>(world: &SharedCommunicator<'a, X>) -> Result<(), Error> {
    let (rank, size) = (world.rank().index(), world.size());
    let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    let duplicate = world.duplicate(1)?;
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
            pass(&duplicate)?;
            [sum()?, sum()?]
        } else {
            let sums = [sum()?, sum()?];
            pass(&duplicate)?;
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
        let all_but_last = world.split((rank + 1 < size || size == 1).then_some(7), 0, 1)?;
        let all_but_first = world.split((rank > 0 || size == 1).then_some(9), 0, 1)?;
        if round == 1 {
            // The highest rank of each parity comes first.
            let highest = (0..size).rev().find(|other| other % 2 == rank % 2);
            assert_eq!(parity.transport_rank(foldwire::Rank(0)).map(|rank| rank.0), highest);
        }
        let mut groups = vec![
            (&parity, sum(&mut (0..size).filter(|other| other % 2 == rank % 2))),
            (&twin, sum(&mut (0..size))),
        ];
        if let Some(group) = &all_but_last {
            groups.push((group, sum(&mut (0..(size - 1).max(1)))));
        }
        if let Some(group) = &all_but_first {
            groups.push((group, sum(&mut (u32::from(size > 1)..size))));
        }
        if is_odd {
            groups.reverse();
        }
        let mut calls = Vec::new();
        for (group, want) in &groups {
            calls.push((group.start(Call::all_reduce(input(), Op::Sum), plan)?, *want));
        }
        // Waiting for one call also advances the other calls.
        let mut together = input();
        twin.all_reduce(&mut together, Op::Sum, plan)?;
        assert!(all(&together, sum(&mut (0..size))));
        calls.rotate_left(rank as usize % groups.len());
        for (call, want) in calls {
            let (values, _) = call.wait().into_result()?;
            assert!(all(&values, want), "rank {rank} of {size}: {} for {want}", values[0]);
        }
    }
    // A dropped communicator frees its channels, so duplicating any number of times works.
    // A duplicate may run more calls than its original.
    for _ in 0..20 {
        let again = world.duplicate(N_CALLS + 1)?;
        assert_eq!((again.rank(), again.size()), (world.rank(), world.size()));
    }
    Ok(())
}
