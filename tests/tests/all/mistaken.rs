//! No frame is taken for another: not one that comes late or twice, and not one of a rank that has
//! another plan.
//!
//! On the simulator, which repeats any frame behind any number of others.

use foldwire::error::Field;
use foldwire::layout::Division;
use foldwire::pipeline;
use foldwire::schedule::{Binomial, Chain, RecursiveDoubling, Ring, Schedule};
use foldwire::{Bound, Collective, Communicator, Error, Plan, Rank, Report, Sampling, Scope};
use foldwire_sim::{End, Endpoint, Fault, Harm, Net, Run, World};
use foldwire_tests::{Case, Operation};
use std::time::Duration;

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

/// A part passes each rank of a ring twice: as a partial sum, and finished. The copy of the first
/// must not be taken for the second, wherever it comes.
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

type Twist = (Field, fn(&mut Case));

/// What one rank may do otherwise where all look at the extent of their data first, and on what
/// they then differ.
const TWISTS: [Twist; 12] = [
    (Field::Count, |case| case.count += 1),
    (Field::Op, |case| case.op = Operation::Max),
    (Field::Pipeline, |case| case.pipeline = pipeline::FUSED),
    (Field::Division, |case| case.division = Division::Blocks),
    (Field::Collective, |case| case.collective = Collective::ReduceScatter),
    (Field::Quantum, |case| case.bound = Bound::Relative(2e-3)),
    // Below what floats can hold: this rank alone cannot use its bound.
    (Field::Quantum, |case| case.bound = Bound::Relative(1e-12)),
    (Field::Bound, |case| case.bound = Bound::Absolute(1e-12)),
    (Field::Bound, |case| case.bound = Bound::Absolute(1e-3)),
    (Field::Bound, |case| case.scope = Scope::PerOperand),
    // Errors add up otherwise, so each operand gets another bound.
    (Field::Quantum, |case| case.schedule = &RecursiveDoubling),
    (Field::Bound, |case| {
        (case.scope, case.sampling) = (Scope::PerOperand, Sampling::Always);
    }),
];

fn is_told(error: &Error) -> bool {
    matches!(error, Error::Aborted { .. } | Error::Transport { .. })
}

/// The look says what call it is for, so nobody waits for a rank that is done with it and has
/// another result.
#[test]
fn ranks_that_differ_find_out_on_what_while_they_look_at_their_data() {
    for size in [2, 3, 4, 5, 8] {
        for odd in 0..size {
            for (i, (field, twist)) in TWISTS.iter().enumerate() {
                let honest = Case {
                    bound: Bound::Relative(1e-3),
                    scope: Scope::Result,
                    pipeline: pipeline::COMPRESS_ONCE,
                    ..Case::all_reduce(size, 200)
                };
                let mut twisted = honest;
                twist(&mut twisted);
                if size < 3 && twisted.schedule.name() != honest.schedule.name() {
                    // Between two ranks both encode as often.
                    continue;
                }
                let run = run(|rank| if rank == odd { twisted } else { honest }, size, &[]);
                let context = format!("{i}: rank {odd} of {size} has another {field}: {run:?}");
                let mut n_found = 0;
                for end in &run.ends {
                    match end {
                        End::Returned(Err(Error::Mismatch { field: found, .. })) => {
                            assert_eq!(found, field, "{context}");
                            n_found += 1;
                        }
                        End::Returned(Err(error)) => assert!(is_told(error), "{context}"),
                        _ => panic!("{context}"),
                    }
                }
                assert!(n_found > 0, "{context}");
                // And in no time: nobody waited for a limit.
                assert!(run.time < Duration::from_secs(1), "{context}");
            }
        }
    }
}

/// All looks are the same, and so is what is wrong.
#[test]
fn a_bound_that_nobody_can_use_is_an_error_of_use_on_every_rank() {
    for size in [2, 3, 5] {
        let bound = Bound::Relative(1e-12);
        let case = Case { bound, scope: Scope::Result, ..Case::all_reduce(size, 200) };
        let run = run(|_| case, size, &[]);
        let all = |end: &End<Outcome>| matches!(end, End::Returned(Err(Error::Bound(_))));
        assert!(run.ends.iter().all(all), "{run:?}");
    }
}
