//! When a rank does something wrong, every rank soon gets a typed error: no hang, no wrong result,
//! no panic.
//!
//! A rank that has its result stays until all ranks have theirs, so no closed connection reveals a
//! silent rank. Only in the tests of leaving ranks, ranks leave at once. Every run has a deadline.

use foldwire::codec::CodecId;
use foldwire::error::Field;
use foldwire::layout::Division;
use foldwire::pipeline;
use foldwire::schedule::{Binomial, Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::transport::TransportErrorKind;
use foldwire::{Bound, Call, Collective, DType, Error, Op, Plan, Rank, Scope};
use foldwire_tests::deadline::{Comm, PATIENT, in_parallel, plan, run, within_deadline};
use foldwire_tests::{
    Case, Operation,
    case::{ROUTES, needs_all},
    data, with_type,
};
use foldwire_threads::World;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Makes one call of the case on this rank. Returns a hash of the result's bits.
fn call(case: &Case, comm: &mut Comm) -> Result<u64, Error> {
    Ok(with_type!(case.dtype, T => data::digest(&case.run_rank::<T, _>(comm)?.0)))
}

/// Makes a call that all ranks make after the tested one. It must fail if the tested call was
/// aborted.
fn next_call(comm: &mut Comm) -> Result<(), Error> {
    comm.all_reduce(&mut vec![1.0f32; 5000], Op::Sum, &plan()).map(|_| ())
}

/// Runs the case on all ranks, with `twist` applied on rank `odd`. Returns each rank's result, and
/// whether its first or its next call failed. A rank that only sends may finish its first call
/// before another rank detects the mismatch. Then its next call must fail.
fn disagree(
    honest: Case,
    twist: fn(&mut Case),
    odd: usize,
    timeout: Duration,
) -> Vec<(Result<u64, Error>, bool)> {
    let mut twisted = honest;
    twist(&mut twisted);
    run(honest.size, timeout, move |comm| {
        let case = if comm.rank().index() == odd { twisted } else { honest };
        let first = call(&case, comm);
        (first, first.is_err() || next_call(comm).is_err())
    })
}

fn is_mismatch(error: &Error) -> bool {
    matches!(error, Error::Mismatch { .. })
}

/// Returns whether a rank may see this error when another rank's arguments differ.
fn can_follow_a_mismatch(error: &Error) -> bool {
    let lost = TransportErrorKind::PeerLost;
    is_mismatch(error)
        || matches!(error, Error::Aborted { .. } | Error::Frame { .. })
        || matches!(error, Error::Transport { kind, .. } if *kind == lost)
}

fn mismatch_or_stall(error: &Error) -> bool {
    can_follow_a_mismatch(error) || matches!(error, Error::Stalled { .. })
}

/// A change of one rank's arguments, with its name.
type NamedTwist = (&'static str, fn(&mut Case));

const TWISTS: [NamedTwist; 6] = [
    ("count", |case| case.count += 1),
    ("many more values", |case| case.count += 50_000),
    ("op", |case| case.op = Operation::Max),
    ("type", |case| case.dtype = DType::F16),
    ("bound", |case| case.bound = Bound::Absolute(1.1e-3)),
    ("codec", |case| case.codec = CodecId::Raw),
];

/// Changes after which one rank exchanges value ranges, and the others do not.
const VALUE_RANGE_TWISTS: [NamedTwist; 2] = [
    ("scope, and so the quantum", |case| case.scope = Scope::Result),
    ("bound's kind", |case| case.bound = Bound::Relative(1e-3)),
];

#[test]
fn ranks_that_disagree_get_an_error_on_every_rank() {
    for (collective, schedule) in ROUTES {
        for size in [2, 3, 5] {
            for (name, twist) in TWISTS {
                if name == "op" && !collective.reduces() {
                    continue;
                }
                let honest = Case { collective, schedule, ..Case::all_reduce(size, 7000) };
                for odd in [0, size - 1] {
                    let start = Instant::now();
                    let outcomes = disagree(honest, twist, odd, PATIENT);
                    let context = format!(
                        "{} by {}, {size} ranks, rank {odd} has another {name}: {outcomes:?}",
                        collective.name(),
                        schedule.name()
                    );
                    let errors = || outcomes.iter().filter_map(|(first, _)| first.as_ref().err());
                    assert!(errors().any(is_mismatch), "{context}");
                    assert!(errors().all(can_follow_a_mismatch), "{context}");
                    assert!(outcomes.iter().all(|(_, next_fails)| *next_fails), "{context}");
                    assert!(!needs_all(collective) || errors().count() == size, "{context}");
                    assert!(start.elapsed() < PATIENT / 2, "{context}");
                }
            }
        }
    }
}

fn check_value_range_twists(timeout: Duration, allowed: fn(&Error) -> bool) {
    for size in [2, 3, 4, 5] {
        for (name, twist) in VALUE_RANGE_TWISTS {
            for odd in [0, size - 1] {
                let honest = Case { schedule: &Ring, ..Case::all_reduce(size, 7000) };
                let outcomes = disagree(honest, twist, odd, timeout);
                let errors = || outcomes.iter().filter_map(|(first, _)| first.as_ref().err());
                let context = format!("{size} ranks, rank {odd} has another {name}: {outcomes:?}");
                assert!(errors().count() == size && errors().all(allowed), "{context}");
            }
        }
    }
}

#[test]
fn ranks_that_disagree_on_value_ranges_get_an_error_on_every_rank() {
    check_value_range_twists(Duration::from_millis(300), mismatch_or_stall);
}

#[test]
fn ranks_that_disagree_on_value_ranges_fail_before_the_timeout() {
    check_value_range_twists(PATIENT, can_follow_a_mismatch);
}

/// If two ranks consider themselves the root, both may wait for the other. Then only the timeout
/// ends the call.
#[test]
fn ranks_that_disagree_on_the_root_get_an_error_by_the_next_call() {
    for collective in
        [Collective::Broadcast, Collective::Scatter, Collective::Gather, Collective::Reduce]
    {
        for size in [2, 3, 5, 8] {
            let honest =
                Case { collective, schedule: &Binomial, root: 0, ..Case::all_reduce(size, 7000) };
            let outcomes = disagree(honest, |case| case.root = 1, 1, Duration::from_millis(300));
            let errors = || outcomes.iter().filter_map(|(first, _)| first.as_ref().err());
            assert!(errors().all(mismatch_or_stall), "{honest:?}: {outcomes:?}");
            assert!(outcomes.iter().all(|(_, next)| *next), "{honest:?}: {outcomes:?}");
        }
    }
}

#[test]
fn ranks_that_disagree_on_the_division_get_an_error_on_every_rank() {
    for size in [2, 3, 5] {
        for schedule in [&Ring as &'static dyn Schedule, &Pairwise] {
            let honest = Case { schedule, ..Case::all_reduce(size, 7000) };
            let outcomes = disagree(honest, |case| case.division = Division::Blocks, 1, PATIENT);
            let errors = || outcomes.iter().filter_map(|(first, _)| first.as_ref().err());
            assert_eq!(errors().count(), size, "{outcomes:?}");
            assert!(
                errors().any(is_mismatch) && errors().all(can_follow_a_mismatch),
                "{outcomes:?}"
            );
        }
    }
}

#[test]
fn ranks_that_disagree_on_the_collective_get_an_error_on_every_rank() {
    for size in [2, 3, 5] {
        let honest = Case::all_reduce(size, 7000);
        let twist = |case: &mut Case| case.collective = Collective::ReduceScatter;
        let outcomes = disagree(honest, twist, 1, PATIENT);
        let errors = || outcomes.iter().filter_map(|(first, _)| first.as_ref().err());
        assert!(errors().any(is_mismatch) && errors().all(can_follow_a_mismatch), "{outcomes:?}");
        assert!(outcomes.iter().all(|(_, next)| *next), "{outcomes:?}");
    }
}

/// Schedules have different peers, so a rank may wait for a peer that does not send to it. Then
/// only the timeout ends the call.
#[test]
fn ranks_that_disagree_on_the_schedule_get_an_error_on_every_rank() {
    let pairs: [[&'static dyn Schedule; 2]; 3] =
        [[&Ring, &RecursiveDoubling], [&RecursiveDoubling, &Pairwise], [&Pairwise, &Ring]];
    for [ours, theirs] in pairs {
        for size in [3, 4, 5] {
            let honest = Case { schedule: ours, ..Case::all_reduce(size, 20_000) };
            let twisted = Case { schedule: theirs, ..honest };
            let outcomes = run(size, Duration::from_millis(500), move |comm| {
                call(if comm.rank().index() == 1 { &twisted } else { &honest }, comm)
            });
            assert!(
                outcomes.iter().all(|result| result.as_ref().is_err_and(mismatch_or_stall)),
                "{} against {}, {size} ranks: {outcomes:?}",
                ours.name(),
                twisted.schedule.name()
            );
        }
    }
}

/// Messages carry the pipeline's code, so receivers detect another pipeline. Pipelines that have
/// the same code do the same, and their calls succeed. `has_size` returns whether to try the nth
/// disagreement among so many ranks.
fn ranks_disagree_on_the_pipeline(has_size: fn(usize, usize) -> bool) {
    let pairs =
        || pipeline::ALL.into_iter().flat_map(|ours| pipeline::ALL.map(|theirs| (ours, theirs)));
    let disagreements = ROUTES.into_iter().flat_map(|route| pairs().map(move |pair| (route, pair)));
    for (nth, ((collective, schedule), (ours, theirs))) in disagreements.enumerate() {
        for size in (2..=5).filter(|&size| has_size(nth, size)) {
            let all = Case { collective, schedule, ..Case::all_reduce(size, 7000) };
            let honest = Case { pipeline: ours, ..all };
            let twisted = Case { pipeline: theirs, ..all };
            let outcomes = run(size, PATIENT, move |comm| {
                let is_odd = comm.rank().index() == 1;
                let first = call(if is_odd { &twisted } else { &honest }, comm);
                (first, first.is_err() || next_call(comm).is_err())
            });
            let context = format!("{honest:?} and {}: {outcomes:?}", theirs.name);
            if ours.code() == theirs.code() {
                let results: Vec<_> = outcomes.iter().filter_map(|(first, _)| first.ok()).collect();
                assert_eq!(results.len(), size, "{context}");
                let same = results.iter().all(|result| *result == results[0]);
                assert!(same || !honest.is_the_same_everywhere(), "{context}");
                continue;
            }
            let errors = || outcomes.iter().filter_map(|(first, _)| first.err());
            let field = Field::Pipeline;
            let names_pipeline =
                |e: Error| matches!(e, Error::Mismatch { field: f, .. } if f == field);
            assert!(errors().any(names_pipeline), "{context}");
            assert!(errors().all(|error| can_follow_a_mismatch(&error)), "{context}");
            assert!(outcomes.iter().all(|(_, next_fails)| *next_fails), "{context}");
            assert!(!needs_all(collective) || errors().count() == size, "{context}");
        }
    }
}

#[test]
fn ranks_that_disagree_on_the_pipeline_get_an_error_unless_both_do_the_same() {
    ranks_disagree_on_the_pipeline(|nth, size| nth % 4 == size - 2);
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn any_number_of_ranks_that_disagree_on_the_pipeline_get_an_error() {
        ranks_disagree_on_the_pipeline(|nth, size| nth % 4 != size - 2);
    }
}

#[test]
fn ranks_that_disagree_on_lanes_or_checksums_get_an_error_on_every_rank() {
    for size in [2, 3, 5] {
        for odd_lanes in [true, false] {
            let outcomes = run(size, PATIENT, move |comm| {
                if comm.rank().index() == 1 {
                    comm.config_mut().lanes = if odd_lanes { 1 } else { 3 };
                    comm.config_mut().checksum = Some(!odd_lanes);
                }
                comm.all_reduce(&mut vec![1.5f32; 300_000], Op::Sum, &plan())
            });
            let typed = |e: &Error| can_follow_a_mismatch(e);
            assert!(outcomes.iter().all(|r| r.as_ref().is_err_and(typed)), "{outcomes:?}");
        }
    }
}

fn lost_or_aborted(error: &Error) -> bool {
    let lost = TransportErrorKind::PeerLost;
    matches!(error, Error::Aborted { .. })
        || matches!(error, Error::Transport { kind, .. } if *kind == lost)
}

#[test]
fn a_rank_that_panics_or_leaves_is_lost_to_the_others() {
    for (collective, schedule) in ROUTES {
        for size in [2, 3, 5, 8] {
            for panics in [false, true] {
                let case = Case { collective, schedule, ..Case::all_reduce(size, 50_000) };
                let outcomes = within_deadline(move || {
                    World::new(size).frame_bytes(20_000).try_run(|mut comm| {
                        if comm.rank().index() == size / 2 {
                            // Without a panic message, which would clutter the test's output.
                            if panics {
                                std::panic::resume_unwind(Box::new("on purpose"));
                            }
                            return Err(Error::Finished);
                        }
                        let first = call(&case, &mut comm);
                        assert!(!needs_all(collective) || first.is_err(), "{case:?}: {first:?}");
                        first.and_then(|_| next_call(&mut comm))
                    })
                });
                for (rank, outcome) in outcomes.iter().enumerate() {
                    match outcome {
                        Err(_) => assert!(panics && rank == size / 2),
                        Ok(Err(Error::Finished)) => assert!(!panics && rank == size / 2),
                        Ok(result) => {
                            let lost = result.as_ref().is_err_and(lost_or_aborted);
                            assert!(lost, "{case:?}: rank {rank}: {result:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_rank_that_never_calls_stalls_the_others_and_then_fails_itself() {
    let cases = ROUTES.into_iter().flat_map(|route| [(route, 2), (route, 5)]);
    in_parallel(cases, |((collective, schedule), size)| {
        let case = Case { collective, schedule, ..Case::all_reduce(size, 50_000) };
        let timeout = Duration::from_millis(150);
        let late = Duration::from_millis(600);
        let outcomes = run(size, timeout, move |comm| {
            let start = Instant::now();
            if comm.rank().index() == size - 1 {
                thread::sleep(late);
            }
            let first = call(&case, comm);
            (first, first.and_then(|_| next_call(comm)), start.elapsed())
        });
        let context = format!("{case:?}: {outcomes:?}");
        // The late rank's first call can succeed, if the other ranks sent all of its messages
        // before they timed out.
        let ((first, outcome, _), others) = outcomes.split_last().expect("ranks");
        assert!(outcome.is_err(), "{context}");
        assert!(collective != Collective::AllReduce || first.is_err(), "{context}");
        for (first, outcome, time) in others {
            let is_stalled = |e: &Error| matches!(e, Error::Stalled { .. } | Error::Aborted { .. });
            assert!(outcome.as_ref().is_err_and(is_stalled), "{context}");
            assert!(!needs_all(collective) || first.is_err(), "{context}");
            assert!(*time < late, "{context}");
        }
        let has_stalled = |o: &Result<(), Error>| matches!(o, Err(Error::Stalled { .. }));
        let stalled = || others.iter().filter(|(_, outcome, _)| has_stalled(outcome));
        assert!(stalled().count() > 0, "{context}");
        assert!(stalled().all(|(.., time)| timeout <= *time), "{context}");
    });
}

#[test]
fn a_dropped_or_cancelled_operation_is_an_error_on_the_other_ranks_and_poisons_its_own() {
    for size in [2, 3, 5] {
        for (n_polls, cancels) in [0, 1, 3].into_iter().flat_map(|n| [(n, false), (n, true)]) {
            let outcomes = run(size, PATIENT, move |comm| {
                let mut values = vec![1.5f32; 50_000];
                if comm.rank().index() == 1 {
                    let mut operation =
                        comm.start(Call::all_reduce(&mut values, Op::Sum), &plan())?;
                    for _ in 0..n_polls {
                        let _ = operation.poll();
                    }
                    if cancels {
                        operation.cancel();
                    } else {
                        drop(operation);
                    }
                }
                comm.all_reduce(&mut values, Op::Sum, &plan())
            });
            for (rank, result) in outcomes.iter().enumerate() {
                let expected = match rank {
                    1 => *result == Err(Error::Poisoned),
                    _ => result.as_ref().is_err_and(lost_or_aborted),
                };
                assert!(expected, "{n_polls} polls, cancelled: {cancels}, {outcomes:?}");
            }
        }
    }
}

#[test]
fn after_an_error_every_call_says_poisoned_and_the_operation_finished() {
    let outcomes = run(3, PATIENT, |comm| {
        let count = 1000 + comm.rank().index() / 2;
        let (mut values, mut others) = (vec![1.5f64; count], vec![0.0f64; 10]);
        let mut operation = comm.start(Call::all_reduce(&mut values, Op::Sum), &plan()).unwrap();
        let first = loop {
            if let Poll::Ready(result) = operation.poll() {
                break result;
            }
            thread::yield_now();
        };
        let again = operation.poll();
        drop(operation);
        let later = [
            comm.all_reduce(&mut others, Op::Sum, &plan()),
            comm.broadcast(&mut others, Rank(0), &Plan::raw()),
            // `Poisoned` takes precedence over other errors.
            comm.broadcast(&mut others, Rank(99), &plan()),
        ];
        (first, again, later)
    });
    for (first, again, later) in outcomes {
        assert!(first.is_err_and(|e| can_follow_a_mismatch(&e)), "{first:?}");
        assert_eq!(again, Poll::Ready(Err(Error::Finished)));
        assert_eq!(later, [Err(Error::Poisoned); 3]);
    }
}

#[test]
fn a_finished_operation_says_so_and_leaves_the_communicator_usable() {
    for size in [1, 2, 3] {
        let outcomes = run(size, PATIENT, |comm| {
            let mut values = vec![1.5f32; 10_000];
            let mut operation = comm.start(Call::all_reduce(&mut values, Op::Sum), &plan())?;
            while operation.poll().is_pending() {
                thread::yield_now();
            }
            assert_eq!(operation.poll(), Poll::Ready(Err(Error::Finished)));
            assert_eq!(operation.wait(), Err(Error::Finished));
            assert!(Error::Finished.is_usage());
            comm.all_reduce(&mut values, Op::Sum, &plan())
        });
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
}
