//! Calls with counts. The shares of ranks may differ much, and so may the counts that ranks give.

use foldwire::error::{AbortReason, Field};
use foldwire::schedule::{Binomial, Bruck, Pairwise};
use foldwire::select::{self, SelectionRule};
use foldwire::{Call, Collective, Communicator, Error, Plan, Rank};
use foldwire_sim::{End, Net, World};
use foldwire_tests::deadline::{PATIENT, run};
use std::time::Duration;

/// A rank skips peers with nothing to send or receive in a round. Time on the simulated network
/// advances only while ranks wait, and here they wait only for frames.
#[test]
fn two_ranks_with_much_for_each_other_need_no_turns_for_the_others() {
    const SIZE: usize = 9;
    let net = Net { frame_bytes: 1024, frames_per_rank: 5, depth: 1, ..Net::default() };
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
    // This is the time of a hundred frames. It would jump if ranks waited for nothing.
    assert!(run.time < Duration::from_millis(50), "{:?}", run.time);
}

/// In Bruck's exchange, ranks forward blocks whose lengths they would not know.
#[test]
fn what_passes_through_others_has_lengths_that_all_know() {
    let rows = select::parse("all-to-all:::bruck").expect("a row");
    let rows: &'static [SelectionRule] = rows.leak();
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
        // The caller's selection rules do not choose it either, except for equal shares.
        comm.config_mut().select = rows;
        let report = comm.all_to_all_v(&send, &[1; 5], &mut recv, &[1; 5], &Plan::raw())?;
        assert_eq!((report.n_messages, recv.as_slice()), (4, expected.as_slice()));
        recv.fill(0.0);
        let report = comm.all_to_all(&send, &mut recv, &Plan::raw())?;
        assert_eq!((report.n_messages, recv.as_slice()), (3, expected.as_slice()));
        Ok::<_, Error>(())
    });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

/// The total, and the message with several shares, have the same number of values, but the shares
/// differ.
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
        let is_told =
            matches!(found, Err(Error::Mismatch { rank: Rank(0), field: Field::Segment, .. }));
        assert!(is_told, "{found:?}");
        let hears = |outcome: &Result<(), Error>| match outcome {
            Ok(()) => true,
            Err(error) => matches!(
                error,
                Error::Mismatch { field: Field::Segment, .. }
                    | Error::Aborted { reason: AbortReason::Mismatch(Field::Segment), .. }
            ),
        };
        assert!(outcomes.iter().all(hears) && outcomes[3].is_err(), "{outcomes:?}");
    }
}
