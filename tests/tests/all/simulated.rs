//! The conformance suite on simulated networks: timing does not change results.
//!
//! The suite of backends (`suite.rs`) blocks in each rank. Simulated ranks share a thread, so here
//! the same cases are started and polled.

use foldwire::error::Field;
use foldwire::schedule::{Chain, Ring};
use foldwire::{Call, Collective, Communicator, Config, Error, Float, Plan, Rank, Transport};
use foldwire_sim::{End, Fault, NetSettings, World};
use foldwire_tests::{Case, Threads, pairwise, with_type};
use std::time::Duration;

/// Returns two very different networks.
fn nets() -> [NetSettings; 2] {
    let slow = NetSettings {
        latency: Duration::from_micros(50),
        jitter: Duration::from_micros(500),
        bandwidth: 1e8,
        depth: 1,
        frame_bytes: 5000,
        attended: true,
        refusal: 4,
        neglect: 3,
        ..NetSettings::default()
    };
    [NetSettings::default(), slow]
}

/// Returns a digest of each rank's result and report.
fn words<T: Float>(case: &Case, net: NetSettings, seed: u64) -> Vec<u64> {
    let run = World::new(case.size, seed).net(net).run(|endpoint| async {
        let mut comm = Communicator::new(endpoint)?;
        let rank = comm.rank().index();
        let mut buffers = case.buffers::<T>(rank);
        let report = case.start(&mut comm, &mut buffers)?.await?;
        Ok::<_, foldwire::Error>((case.result(rank, buffers), report))
    });
    assert_eq!(run.n_leaked(), 0, "{case:?}");
    let words = run.ends.iter().enumerate().map(|(rank, end)| match end {
        End::Returned(Ok((result, report))) => Case::word(result, report),
        other => panic!("{case:?}, rank {rank}: {other:?}"),
    });
    words.collect()
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn every_pair_of_choices_gives_the_bits_of_threads_on_any_network() {
        for (i, case) in pairwise().iter().enumerate() {
            let net = nets()[i % 2];
            let expected = case.check(&Threads { frame_bytes: Some(net.frame_bytes) });
            for seed in 0..2 {
                let found = with_type!(case.dtype, T => words::<T>(case, net, seed));
                assert!(found == expected, "{case:?} on {net:?}, seed {seed}");
            }
        }
    }
}

/// In a ring, rank 0 waits for the last rank, which never calls. It must name that rank, not the
/// ranks that give up earlier.
#[test]
fn who_waits_for_a_silent_rank_names_it() {
    const LIMIT: Duration = Duration::from_secs(1);
    for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather] {
        for (size, seed) in
            [2, 3, 5, 8].into_iter().flat_map(|size| (0..8).map(move |seed| (size, seed)))
        {
            let case = Case { collective, schedule: &Ring, ..Case::all_reduce(size, 5000) };
            let net = NetSettings { jump: LIMIT / 100, ..NetSettings::default() };
            let run = World::new(size, seed).net(net).run(|endpoint| async {
                let (clock, rank) = (endpoint.clock(), endpoint.rank().index());
                if rank == size - 1 {
                    clock.sleep(10 * LIMIT).await;
                    return None;
                }
                // Rank 0 is the last to give up.
                let timeout = if rank == 0 { LIMIT } else { LIMIT * 9 / 10 };
                let config = Config::default().with_timeout(timeout);
                let mut comm =
                    Communicator::with_config(endpoint, config).expect("frames are large enough");
                let mut buffers = case.buffers::<f32>(rank);
                let outcome = case.start(&mut comm, &mut buffers).expect("a valid call").await;
                // If a rank left at once, its notice might be missed.
                clock.sleep(10 * LIMIT).await;
                Some(outcome)
            });
            let context = format!("{case:?}, seed {seed}: {:?}", run.ends);
            let End::Returned(Some(Err(Error::Stalled { rank, .. }))) = &run.ends[0] else {
                panic!("{context}")
            };
            assert_eq!(*rank, Rank::new(size - 1), "{context}");
            for end in &run.ends[1..size - 1] {
                assert!(
                    matches!(
                        end,
                        End::Returned(Some(Err(Error::Stalled { .. } | Error::Aborted { .. })))
                    ),
                    "{context}"
                );
            }
        }
    }
}

/// A rank has left, but the frames that show the disagreement are still in flight. Another rank
/// detects the loss on a lane without frames.
#[test]
fn a_rank_that_is_gone_has_said_on_what_it_disagreed() {
    let late = |nth| Fault::Delay { rank: Rank(0), nth, by: Duration::from_millis(1) };
    let net = NetSettings { frame_bytes: 1024, ..NetSettings::default() };
    let run = World::new(2, 1).net(net).faults([late(0), late(1)]).run(|endpoint| async {
        let lanes = if endpoint.rank() == Rank(0) { 2 } else { 3 };
        let config = Config::default().with_lanes(lanes);
        let mut comm = Communicator::with_config(endpoint, config)?;
        let plan = Plan::raw().with_schedule(&Chain);
        // Rank 0 leaves as soon as it has sent all frames.
        comm.start(Call::broadcast(&mut [1.5f32; 1000], Rank(0)), &plan)?.await
    });
    let [End::Returned(Ok(_)), End::Returned(Err(error))] = &run.ends[..] else {
        panic!("{:?}", run.ends)
    };
    let is_of_lanes = matches!(error, Error::Mismatch { rank: Rank(0), field: Field::Lanes, .. });
    assert!(is_of_lanes, "{error}");
    assert_eq!(run.n_leaked(), 0);
}
