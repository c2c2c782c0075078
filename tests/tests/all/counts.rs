//! Collectives in which each rank's share has its own length (the V variants): very different
//! lengths, and ranks that pass different counts.

use foldwire::error::{AbortReason, Field};
use foldwire::schedule::{Binomial, Bruck, Pairwise};
use foldwire::select::{self, SelectionRule};
use foldwire::{Call, Collective, Communicator, Error, Plan, Rank};
use foldwire_sim::{End, NetSettings, World};
use foldwire_tests::deadline::{PATIENT, run};
use std::time::Duration;

/// Only rank 7 has values, and only for rank 8. Ranks must skip rounds in which they send and
/// receive nothing. Time on the simulated network advances only while ranks wait.
#[test]
fn one_long_message_does_not_wait_for_the_rounds_of_other_ranks() {
    const SIZE: usize = 9;
    let net =
        NetSettings { frame_bytes: 1024, frames_per_rank: 5, depth: 1, ..NetSettings::default() };
    let run = World::new(SIZE, 1).net(net).run(|endpoint| async {
        let mut comm = Communicator::new(endpoint)?;
        comm.config_mut().lanes = 1;
        let rank = comm.rank().index();
        let n_for = |source: usize, to: usize| if (source, to) == (7, 8) { 20_000 } else { 0 };
        let send_counts: Vec<usize> = (0..SIZE).map(|to| n_for(rank, to)).collect();
        let recv_counts: Vec<usize> = (0..SIZE).map(|source| n_for(source, rank)).collect();
        let send = vec![rank as f32; send_counts.iter().sum()];
        let mut recv = vec![0.0f32; recv_counts.iter().sum()];
        let plan = Plan::raw().with_schedule(&Pairwise);
        comm.start(Call::all_to_all_v(&send, &send_counts, &mut recv, &recv_counts), &plan)?
            .await?;
        assert!(recv.iter().all(|&x| x == 7.0));
        Ok::<_, Error>(())
    });
    assert!(run.ends.iter().all(|end| matches!(end, End::Returned(Ok(())))), "{:?}", run.ends);
    // The frames of the message alone take less. A wait for a message that never comes would take
    // longer.
    assert!(run.time < Duration::from_millis(50), "{:?}", run.time);
}

/// In Bruck's all-to-all, ranks forward blocks between other ranks. With counts, a rank knows only
/// the lengths of its own blocks, so this schedule is not available.
#[test]
fn bruck_is_refused_for_blocks_of_different_lengths() {
    let rules = select::parse("all-to-all:::bruck").expect("a rule");
    let rules: &'static [SelectionRule] = rules.leak();
    let outcomes = run(5, PATIENT, move |comm| {
        let rank = comm.rank().index();
        let send: Vec<f32> = (0..5).map(|to| (10 * rank + to) as f32).collect();
        let mut recv = vec![0.0; 5];
        let expected: Vec<f32> = (0..5).map(|from| (10 * from + rank) as f32).collect();
        let named = Plan::raw().with_schedule(&Bruck);
        let refused = comm.all_to_all_v(&send, &[1; 5], &mut recv, &[1; 5], &named);
        let unsupported =
            Error::Unsupported { schedule: "bruck", collective: Collective::AllToAll };
        assert_eq!(refused, Err(unsupported));
        // A selection rule for Bruck applies only to `all_to_all`, where all blocks are equal. It
        // takes 3 messages instead of 4.
        comm.config_mut().select = rules;
        let report = comm.all_to_all_v(&send, &[1; 5], &mut recv, &[1; 5], &Plan::raw())?;
        assert_eq!((report.n_messages, recv.as_slice()), (4, expected.as_slice()));
        recv.fill(0.0);
        let report = comm.all_to_all(&send, &mut recv, &Plan::raw())?;
        assert_eq!((report.n_messages, recv.as_slice()), (3, expected.as_slice()));
        Ok::<_, Error>(())
    });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

/// The root sends ranks 2 and 3's shares to rank 2 in one message. Both sides expect 10 values in
/// it, but divide them differently.
#[test]
fn ranks_that_divide_a_message_differently_disagree_on_the_segment() {
    for root_differs in [false, true] {
        let outcomes = run(4, PATIENT, move |comm| {
            let rank = comm.rank().index();
            let differs = (rank == 0) == root_differs;
            let counts = if differs { [5, 5, 3, 7] } else { [5, 5, 7, 3] };
            let send = if rank == 0 { vec![1.5f32; 20] } else { Vec::new() };
            let mut own = vec![0.0; counts[rank]];
            let plan = Plan::raw().with_schedule(&Binomial);
            comm.scatter_v(&counts, &send, &mut own, Rank(0), &plan).map(|_| ())
        });
        // Rank 2 forwards rank 3's share.
        let found = outcomes[2];
        let is_mismatch =
            matches!(found, Err(Error::Mismatch { rank: Rank(0), field: Field::Segment, .. }));
        assert!(is_mismatch, "{found:?}");
        let is_expected = |outcome: &Result<(), Error>| match outcome {
            Ok(()) => true,
            Err(error) => matches!(
                error,
                Error::Mismatch { field: Field::Segment, .. }
                    | Error::Aborted { reason: AbortReason::Mismatch(Field::Segment), .. }
            ),
        };
        assert!(outcomes.iter().all(is_expected) && outcomes[3].is_err(), "{outcomes:?}");
    }
}
