//! No frame is mistaken for another one: neither a late frame, a copy, nor a frame of a rank with
//! another plan.
//!
//! The tests run on the simulator, which can repeat any frame after any number of others.

use foldwire::codec::CodecId;
use foldwire::error::Field;
use foldwire::layout::Division;
use foldwire::pipeline;
use foldwire::schedule::{Binomial, Chain, RecursiveDoubling, Ring, Schedule};
use foldwire::{
    Bound, Call, Collective, Communicator, Error, Op, Plan, Rank, Report, Sampling, Scope,
};
use foldwire_sim::{End, Endpoint, Fault, FinishedRun, Foreign, Harm, NetSettings, World};
use foldwire_tests::case::{Choice, ROUTES, needs_all};
use foldwire_tests::{Case, Operation, with_type};
use std::time::Duration;

/// Creates a communicator with one lane, so that the order of frames on a link is fixed.
fn comm(endpoint: Endpoint) -> Communicator<Endpoint> {
    let mut comm = Communicator::new(endpoint).expect("frames are large enough");
    comm.config_mut().lanes = 1;
    comm
}

type CaseOutcome = Result<(Vec<f32>, Report), Error>;

fn run(case_of: impl Fn(usize) -> Case, size: usize, faults: &[Fault]) -> FinishedRun<CaseOutcome> {
    let net = NetSettings { frame_bytes: 1024, ..NetSettings::default() };
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

/// Each part passes each rank of a ring twice: as a partial sum, and as the result. A copy of the
/// partial sum must not be mistaken for the result, whenever it arrives.
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

/// The scan of a sample and the scan of all data are two all-reduces of one call.
#[test]
fn a_copy_of_a_look_at_a_sample_is_not_taken_for_the_look_at_all_data() {
    let case = Case {
        bound: Bound::Relative(1e-3),
        sampling: Sampling::Always,
        // With few values, the halves of the sample are empty, and all ranks scan all data.
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

/// A rank with another tree sends to other ranks, and some of them do not expect its frames.
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
                    // Both schedules may do the same on this rank.
                    let verdict = honest.verify(0, values, report, &honest.inputs());
                    verdict.unwrap_or_else(|wrong| {
                        panic!("{honest:?}, rank {odd} has another schedule: {wrong}")
                    });
                }
            }
        }
    }
}

type FieldTwist = (Field, fn(&mut Case));

/// Changes of one rank's call, where all ranks first exchange value ranges; and the field that they
/// must report.
const TWISTS: [FieldTwist; 13] = [
    (Field::Count, |case| case.count += 1),
    // As with arrays that are too short for a bound.
    (Field::Count, |case| (case.count, case.codec) = (20, CodecId::Raw)),
    (Field::Op, |case| case.op = Operation::Max),
    (Field::Pipeline, |case| case.pipeline = pipeline::FUSED),
    (Field::Division, |case| case.division = Division::Blocks),
    (Field::Collective, |case| case.collective = Collective::ReduceScatter),
    (Field::Quantum, |case| case.bound = Bound::Relative(2e-3)),
    // Below the precision of floats, so this rank alone cannot use its bound.
    (Field::Quantum, |case| case.bound = Bound::Relative(1e-12)),
    (Field::Bound, |case| case.bound = Bound::Absolute(1e-12)),
    (Field::Bound, |case| case.bound = Bound::Absolute(1e-3)),
    (Field::Bound, |case| case.scope = Scope::PerOperand),
    (Field::Schedule, |case| case.schedule = &RecursiveDoubling),
    (Field::Bound, |case| {
        (case.scope, case.sampling) = (Scope::PerOperand, Sampling::Always);
    }),
];

/// Messages with value ranges name their call. So all ranks detect the difference in this exchange,
/// and no rank waits for a peer that has finished it.
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
                let run = run(|rank| if rank == odd { twisted } else { honest }, size, &[]);
                let context = format!("{i}: rank {odd} of {size} has another {field}: {run:?}");
                for end in &run.ends {
                    match end {
                        End::Returned(Err(Error::Mismatch { field: found, .. })) => {
                            assert_eq!(found, field, "{context}");
                        }
                        _ => panic!("{context}"),
                    }
                }
                // At once: no rank waited for a time limit.
                assert!(run.time < Duration::from_secs(1), "{context}");
            }
        }
    }
}

/// All ranks have the same value range, and so the same error.
#[test]
fn a_bound_that_nobody_can_use_is_an_error_of_use_on_every_rank() {
    for size in [2, 3, 5] {
        let bound = Bound::Relative(1e-12);
        let case = Case { bound, scope: Scope::Result, ..Case::all_reduce(size, 200) };
        let run = run(|_| case, size, &[]);
        let all = |end: &End<CaseOutcome>| matches!(end, End::Returned(Err(Error::Bound(_))));
        assert!(run.ends.iter().all(all), "{run:?}");
    }
}

/// Frames arrive from the wrong sender, with the same call, part and round.
#[test]
fn an_intact_frame_on_a_wrong_link_is_not_taken_for_the_one_awaited() {
    let mut n_struck = 0;
    for (collective, schedule) in ROUTES {
        for foreign in [Foreign::OtherSender, Foreign::OtherReceiver, Foreign::Replay] {
            for size in [3, 4, 5, 7] {
                let case = Case { collective, schedule, ..Case::all_reduce(size, 60) };
                for rank in (0..size).map(Rank::new) {
                    for nth in 0..4 {
                        let fault = Fault::Harm { rank, nth, harm: Harm::Foreign(foreign) };
                        let run = run(|_| case, size, &[fault]);
                        n_struck += run.struck.len();
                        for (rank, end) in run.ends.iter().enumerate() {
                            let End::Returned(outcome) = end else { panic!("{end:?}") };
                            if let Ok((values, report)) = outcome {
                                let verdict = case.verify(rank, values, report, &case.inputs());
                                verdict
                                    .unwrap_or_else(|wrong| panic!("{case:?}, {fault}: {wrong}"));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(n_struck > 1000, "{n_struck}");
}

/// Runs the case of each rank, and then a call that all ranks make. Returns each rank's result.
fn run_calls(
    case_of: impl Fn(usize) -> Case,
    size: usize,
    seed: u64,
) -> FinishedRun<Result<(), Error>> {
    // Waiting ranks poll every millisecond.
    let net =
        NetSettings { frame_bytes: 1024, jump: Duration::from_millis(1), ..NetSettings::default() };
    World::new(size, seed).net(net).run(|endpoint| {
        let mut comm = comm(endpoint);
        let rank = comm.rank().index();
        let case = case_of(rank);
        async move {
            with_type!(case.dtype, T => {
                let mut buffers = case.buffers::<T>(rank);
                case.start(&mut comm, &mut buffers)?.await?;
            });
            comm.start(Call::all_reduce(&mut [1.0f32], Op::Sum), &Plan::raw())?.await.map(|_| ())
        }
    })
}

/// No message shows the difference: all ranks wait for a message that is not sent.
#[test]
fn ranks_that_wait_for_each_other_in_a_circle_hear_on_what_they_differ() {
    for collective in [Collective::Broadcast, Collective::Scatter, Collective::Reduce] {
        for size in [2, 3, 4, 5, 9] {
            let schedule: &'static dyn Schedule = &Binomial;
            let honest = Case { collective, schedule, ..Case::all_reduce(size, 50) };
            let others = |rank| if collective.reduces() { rank } else { (rank + 1) % size };
            let run = run_calls(|rank| Case { root: others(rank), ..honest }, size, 1);
            for (rank, end) in run.ends.iter().enumerate() {
                let End::Returned(Err(Error::Mismatch { rank: other, field, ours, theirs })) = end
                else {
                    panic!("{honest:?}, rank {rank}: {end:?}");
                };
                assert_eq!(*field, Field::Root);
                assert_eq!(ours.to_string(), others(rank).to_string());
                assert_eq!(theirs.to_string(), others(other.index()).to_string());
            }
            assert!(run.time < Duration::from_millis(5), "{:?}", run.time);
        }
    }
}

/// Ranks learn of any difference at once, and each error names a rank that disagrees.
#[test]
fn of_two_different_calls_every_rank_hears_on_what_they_differ() {
    let mut fields = std::collections::BTreeSet::new();
    let mut n_told = 0;
    for seed in 0..4000 {
        let random = &mut foldwire_sim::Random(seed);
        let size = *random.pick(&[2, 2, 3, 4, 5, 8]);
        let choice = Choice::draw(random);
        let (ours, theirs) = (choice.short_case(size), choice.twisted(random).short_case(size));
        let odd = random.below(size);
        let run = run_calls(|rank| if rank == odd { theirs } else { ours }, size, seed);
        let context = format!("seed {seed}: {ours:?}, but rank {odd}: {theirs:?}: {run:?}");
        let refused = |end: &End<_>| matches!(end, End::Returned(Err(e)) if Error::is_usage(e));
        if run.ends.iter().all(|end| matches!(end, End::Returned(Ok(())))) {
            assert!(ours.is_same_call(&theirs) || !needs_all(ours.collective), "{context}");
            continue;
        }
        if run.ends.iter().any(refused) {
            // Some ranks made no call, and left.
            continue;
        }
        for end in &run.ends {
            match end {
                // This rank completed both calls before it could learn of the difference.
                End::Returned(Ok(())) => {}
                End::Returned(Err(Error::Mismatch { field, .. })) => {
                    fields.insert(field.to_string());
                }
                _ => panic!("{context}"),
            }
        }
        assert!(run.time < Duration::from_millis(20), "{context}");
        n_told += 1;
    }
    assert!(n_told > 1500 && fields.len() > 8, "{n_told}, {fields:?}");
}
