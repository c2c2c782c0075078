//! No frame is taken for another: not one that comes late or twice, and not one of a rank that has another plan.
//!
//! On the simulator, which repeats any frame behind any number of others.

use foldwire::error::Field;
use foldwire::schedule::{Binomial, Chain, Ring, Schedule};
use foldwire::{Bound, Collective, Communicator, Error, Plan, Rank, Report, Sampling};
use foldwire_sim::{End, Endpoint, Fault, Harm, Net, Run, World};
use foldwire_tests::Case;

/// One lane, so that a link's frames are one program's.
fn comm(endpoint: Endpoint) -> Communicator<Endpoint> {
    let mut comm = Communicator::new(endpoint).expect("frames are large enough");
    comm.config_mut().lanes = 1;
    comm
}

type Outcome = Result<(Vec<f32>, Report), Error>;

fn run(case_of: impl Fn(usize) -> Case, size: usize, faults: &[Fault]) -> Run<Outcome> {
    let net = Net { frame_bytes: 1024, ..Net::default() };
    World::new(size, 1).net(net).faults(faults.iter().copied()).run(|endpoint| {
        let mut comm = comm(endpoint);
        let rank = comm.rank().index();
        let case = case_of(rank);
        async move {
            let mut buffers = case.buffers(rank);
            let report = case.start(&mut comm, &mut buffers)?.await?;
            Ok((case.result(rank, buffers), report))
        }
    })
}

/// A part passes each rank of a ring twice: as a partial sum, and finished. The copy of the first must not be taken for
/// the second, wherever it comes.
#[test]
fn a_late_copy_of_a_partial_sum_is_not_taken_for_the_sum() {
    let mut n_repeated = 0;
    for plan in [Plan::raw(), Plan::foldwire(Bound::Absolute(1e-3))] {
        for size in [2, 3, 4, 5] {
            let case = Case {
                schedule: &Ring,
                codec: plan.codec,
                pipeline: plan.pipeline,
                ..Case::all_reduce(size, 50)
            };
            for nth in 0..2 * size - 2 {
                for behind in 0..2 * size {
                    let harm = Harm::Repeat { behind };
                    let fault = Fault::Harm { rank: Rank(0), nth, harm };
                    let run = run(|_| case, size, &[fault]);
                    n_repeated += run.struck.len();
                    for (rank, end) in run.ends.iter().enumerate() {
                        let End::Returned(outcome) = end else { panic!("{end:?}") };
                        if let Ok((values, report)) = outcome {
                            let verdict = case.verify(rank, values, report, &case.inputs());
                            verdict.unwrap_or_else(|wrong| panic!("{case:?}, {fault}: {wrong}"));
                        }
                    }
                }
            }
        }
    }
    assert!(n_repeated > 100, "{n_repeated}");
}

/// A sample and a full look at the data are two all-reduces of one call.
#[test]
fn a_copy_of_a_look_at_a_sample_is_not_taken_for_the_look_at_all_data() {
    let case = Case {
        bound: Bound::Relative(1e-3),
        sampling: Sampling::Always,
        // Few values: the halves of the sample see nothing, and all ranks look at everything.
        ..Case::all_reduce(2, 20)
    };
    let undisturbed = run(|_| case, 2, &[]);
    assert!(undisturbed.ends.iter().all(|end| matches!(end, End::Returned(Ok(_)))));
    let fault = Fault::Harm { rank: Rank(0), nth: 0, harm: Harm::Repeat { behind: 0 } };
    let run = run(|_| case, 2, &[fault]);
    assert_eq!(run.struck.len(), 1);
    let Some(End::Returned(outcome)) = run.ends.get(1) else { panic!("{:?}", run.ends) };
    let field = Field::Sequence;
    let is_told_by_its_number =
        matches!(outcome, Err(Error::Mismatch { field: found, .. }) if *found == field);
    assert!(is_told_by_its_number, "{outcome:?}");
}

/// Ranks that follow other trees send to other ranks, and some send to nobody who listens.
#[test]
fn a_reduction_to_which_a_rank_is_missing_is_no_result() {
    let schedules: [&'static dyn Schedule; 2] = [&Binomial, &Chain];
    for size in 2..=16 {
        for odd in 0..size {
            for [ours, theirs] in [schedules, [schedules[1], schedules[0]]] {
                let honest = Case {
                    collective: Collective::Reduce,
                    schedule: ours,
                    ..Case::all_reduce(size, 50)
                };
                let twisted = Case { schedule: theirs, ..honest };
                let run = run(|rank| if rank == odd { twisted } else { honest }, size, &[]);
                let End::Returned(outcome) = &run.ends[0] else { panic!("{:?}", run.ends[0]) };
                if let Ok((values, report)) = outcome {
                    // The two may agree where this rank stands.
                    let verdict = honest.verify(0, values, report, &honest.inputs());
                    verdict.unwrap_or_else(|wrong| {
                        panic!("{honest:?}, rank {odd} has another schedule: {wrong}")
                    });
                }
            }
        }
    }
}
