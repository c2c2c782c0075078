//! Several arrays in one group call. Each array gets the outcome of the call.

use super::{CallLog, CallRecord, Comm, SoakOutcome, come_late, polls};
use crate::case::Buffers;
use crate::soak::draw::Scenario;
use crate::{Case, data, with_type};
use foldwire::{Bound, Error, Float, Report};
use foldwire_sim::Clock;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Bytes and report of each array; `None` if the call was dropped.
type GroupResult = Option<Result<Vec<(Vec<u8>, Report)>, Error>>;

/// Runs one rank's program.
pub(super) async fn run_rank(scenario: &Scenario, comm: &Comm<'_>, clock: &Clock, log: &CallLog) {
    let (calls, rank) = (0..scenario.calls.len(), comm.rank().index());
    for call in calls.clone() {
        come_late(scenario, clock, rank, call).await;
    }
    let cases: Vec<(Case, bool)> = calls.clone().map(|call| scenario.case_of(call, rank)).collect();
    for &(case, is_twisted) in &cases {
        log.borrow_mut()[rank].push(CallRecord {
            case,
            is_twisted,
            outcome: SoakOutcome::UnderWay,
        });
    }
    let cases: Vec<Case> = cases.into_iter().map(|(case, _)| case).collect();
    let polls = calls.filter_map(|call| polls(scenario, rank, call)).min();
    let start = clock.now();
    let results = with_type!(cases[0].dtype, T => make_call::<T>(&cases, comm, polls).await);
    let next = || comm.start_barrier().err();
    // Ignore the errors that a dead rank sees.
    let outcomes: Vec<SoakOutcome> = match results {
        _ if clock.is_dead() => return,
        None => cases.iter().map(|_| SoakOutcome::Dropped { next: next() }).collect(),
        Some(Ok(results)) => {
            results.into_iter().map(|(bytes, report)| SoakOutcome::Ok(bytes, report)).collect()
        }
        Some(Err(error)) => {
            let after = clock.now().saturating_sub(start.max(clock.last_move()));
            let next = || if error.is_usage() { None } else { next() };
            cases.iter().map(|_| SoakOutcome::Err { error, after, next: next() }).collect()
        }
    };
    for ((call, outcome), called) in
        outcomes.into_iter().enumerate().zip(&mut log.borrow_mut()[rank])
    {
        clock.note(|| format!("array {call}: {outcome}"));
        called.outcome = outcome;
    }
}

/// Makes the call and awaits its end, or drops it after `polls` polls.
async fn make_call<T: Float>(cases: &[Case], comm: &Comm<'_>, polls: Option<usize>) -> GroupResult {
    let rank = comm.rank().index();
    let mut buffers: Vec<Buffers<T>> = cases.iter().map(|case| case.buffers(rank)).collect();
    let mut arrays: Vec<(&mut [T], Bound)> =
        buffers.iter_mut().zip(cases).map(|(own, case)| (own.in_place(), case.bound)).collect();
    let (op, plan) = (cases[0].op.op::<T>(), cases[0].plan());
    let result = match comm.start_all_reduce_group(&mut arrays, op, &plan) {
        Ok(call) => {
            let mut call = pin!(call);
            let mut n_left = polls.unwrap_or(usize::MAX);
            poll_fn(|context| {
                if n_left == 0 {
                    return Poll::Ready(None);
                }
                n_left -= 1;
                // No other call may start until the group call is done.
                let is_one_more = comm.start_barrier().err();
                assert!(matches!(is_one_more, Some(Error::TooManyCalls { .. } | Error::Poisoned)));
                call.as_mut().poll(context).map(Some)
            })
            .await
        }
        Err(error) => Some(Err(error)),
    };
    let of_all = |reports: Vec<Report>| {
        let arrays = cases.iter().zip(buffers).zip(reports);
        let bytes = |case: &Case, own| data::bytes(&case.result(rank, own));
        arrays.map(|((case, own), report)| (bytes(case, own), report)).collect()
    };
    result.map(|result| result.map(of_all))
}
