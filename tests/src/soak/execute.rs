//! Runs a [`Scenario`] on the simulator, and records what every rank saw.

mod group;
mod messages;
mod reuse;

use super::draw::{CommunicatorOrigin, PATIENCE, Scenario, TIMEOUT, Trouble};
use crate::case::{Buffers, Counts};
use crate::{Case, data, with_type};
use foldwire::{
    Bound, Call, Communicator, Error, Float, Incoming, Op, Operation, Outgoing, Plan, Rank, Report,
    SharedCommunicator, Transport,
};
use foldwire_sim::{Clock, End, Endpoint, Fault, Trace, World};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

/// Record of a run.
pub(super) struct RunRecord {
    pub(super) ends: Vec<End<()>>,
    /// Calls that each rank started.
    pub(super) calls: Vec<Vec<CallRecord>>,
    /// Number of messages that were sent or received, not counting those of collectives.
    pub(super) n_messages: u64,
    /// The error of each rank that failed before a call, and the time since its last frame. Such a
    /// rank got no communicator, or its messages failed.
    pub(super) early_errors: Vec<Option<(Error, Duration)>>,
    /// Result of the sum that follows the scenario's calls, for each rank that made it. Ranks on
    /// which it fails shrink.
    pub(super) last: Vec<Option<LastCallResult>>,
    /// Result of each rank's shrink, if it shrank.
    pub(super) groups: Vec<Option<ShrinkOutcome>>,
    /// Troubles that occurred.
    pub(super) occurred: Vec<Trouble>,
    pub(super) trace: Trace,
    pub(super) time: Duration,
    pub(super) n_polls: u64,
    pub(super) n_leaked: usize,
    /// True if the calls were arrays of one group call.
    pub(super) grouped: bool,
}

/// One call of one rank.
pub(super) struct CallRecord {
    pub(super) case: Case,
    /// True if the other ranks make a different call.
    pub(super) is_twisted: bool,
    pub(super) outcome: SoakOutcome,
}

/// The ranks that took part in the last call, or the error and the time since the rank's last
/// frame.
pub(super) type LastCallResult = Result<Vec<usize>, (Error, Duration)>;

/// Result of a call.
pub(super) enum SoakOutcome {
    /// The call has not ended, or the rank died in it.
    UnderWay,
    /// The rank dropped the call.
    Dropped {
        /// Error of the next call.
        next: Option<Error>,
    },
    /// Bytes of the result, and the report.
    Ok(Vec<u8>, Report),
    Err {
        error: Error,
        /// Time from the rank's last frame, or the start of the call, to the error.
        after: Duration,
        /// Error of the next call, if the error made the communicator unusable.
        next: Option<Error>,
    },
}

/// Result of a rank's shrink.
#[derive(Debug)]
pub(super) enum ShrinkOutcome {
    /// The rank is in a new group.
    In {
        /// Ranks of the group.
        members: Vec<usize>,
        /// Ranks whose values were in a sum over the group.
        summed: Result<Vec<usize>, Error>,
    },
    /// The rank is in no group.
    Out(Error),
}

type CallLog = RefCell<Vec<Vec<CallRecord>>>;

/// Runs the scenario.
pub(super) fn execute(scenario: &Scenario, keep_trace: bool) -> RunRecord {
    let log: CallLog = RefCell::new((0..scenario.size).map(|_| Vec::new()).collect());
    let n_messages = Cell::new(0);
    let early_errors = RefCell::new((0..scenario.size).map(|_| None).collect::<Vec<_>>());
    let last = RefCell::new((0..scenario.size).map(|_| None).collect::<Vec<_>>());
    let groups = RefCell::new((0..scenario.size).map(|_| None).collect::<Vec<_>>());
    // These must outlive the communicators with running calls.
    let counts: Vec<Vec<Counts>> = (0..scenario.size)
        .map(|rank| {
            let calls = 0..scenario.calls.len();
            calls.map(|call| scenario.case_of(call, rank).0.counts(rank)).collect()
        })
        .collect();
    // Communicators of ranks that do not leave before all ranks have returned.
    let (staying, staying_at_once) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let faults = scenario.troubles.iter().filter_map(|trouble| match trouble {
        Trouble::Net(fault) => Some(*fault),
        _ => None,
    });
    let world = World::new(scenario.size, scenario.seed).net(scenario.net).faults(faults);
    let run = world.keep_trace(keep_trace).run(|endpoint| async {
        let (rank, clock) = (endpoint.rank().index(), endpoint.clock());
        if scenario.at_once {
            let (world, comm) = at_once(scenario, endpoint).await;
            match &comm {
                Ok(comm) if scenario.grouped => group::run_rank(scenario, comm, &clock, &log).await,
                Ok(comm) => {
                    let (n_done, failed) =
                        run_rank_at_once(scenario, comm, &counts[rank], &clock, &log).await;
                    n_messages.update(|n| n + n_done);
                    early_errors.borrow_mut()[rank] = failed;
                }
                Err(why) if !clock.is_dead() => early_errors.borrow_mut()[rank] = Some(*why),
                Err(_) => {}
            }
            if !scenario.leaves {
                staying_at_once.borrow_mut().push((world, comm.ok()));
            }
            return;
        }
        let (comm, early_error) = run_rank(scenario, endpoint, &log).await;
        early_errors.borrow_mut()[rank] = early_error;
        let mut comm = Some(comm);
        let is_over = |comm: &mut Communicator<Endpoint>| comm.is_poisoned() && !clock.is_dead();
        if let Some(comm) =
            comm.as_mut().filter(|comm| scenario.shrinks && !comm.is_poisoned() && !clock.is_dead())
        {
            // A rank whose calls succeeded learns of the other ranks' failures by this call.
            let start = clock.now();
            let participants = participants(comm, scenario.size).await;
            let after = clock.now().saturating_sub(start.max(clock.last_move()));
            let participants = participants.map_err(|error| (error, after));
            last.borrow_mut()[rank] = (!clock.is_dead()).then_some(participants);
        }
        if scenario.shrinks
            && let Some(poisoned) = comm.take_if(is_over)
        {
            let (shrunk, regrouped) = regroup(poisoned, scenario.size).await;
            comm = shrunk;
            // Ignore the errors that a dead rank sees.
            groups.borrow_mut()[rank] = (!clock.is_dead()).then_some(regrouped);
        }
        if !scenario.leaves {
            staying.borrow_mut().push(comm);
        }
    });
    drop((staying, staying_at_once));
    let calls = log.into_inner();
    // Ranks exchange frames before their first call if they split a communicator or send messages.
    let has_messages = scenario.halo.or(scenario.messages).is_some();
    let has_early_frames = scenario.origin != CommunicatorOrigin::Transport || has_messages;
    let has_begun = |rank: usize| has_early_frames || !calls[rank].is_empty();
    let occurred = scenario
        .troubles
        .iter()
        .filter(|trouble| occurred(trouble, &run.struck, &calls, has_begun));
    RunRecord {
        occurred: occurred.copied().collect(),
        n_leaked: run.n_leaked(),
        grouped: scenario.grouped,
        n_messages: n_messages.get(),
        ends: run.ends,
        calls,
        early_errors: early_errors.into_inner(),
        last: last.into_inner(),
        groups: groups.into_inner(),
        trace: run.trace,
        time: run.time,
        n_polls: run.n_polls,
    }
}

/// Returns whether a trouble took effect in a run.
fn occurred(
    trouble: &Trouble,
    in_net: &[Fault],
    calls: &[Vec<CallRecord>],
    has_begun: impl Fn(usize) -> bool,
) -> bool {
    match trouble {
        Trouble::Net(fault) => in_net.contains(fault),
        Trouble::Late { rank, call, .. } | Trouble::Twist { rank, call, .. } => {
            calls[*rank].len() > *call
        }
        Trouble::Drop { rank, call, .. } => {
            matches!(
                calls[*rank].get(*call),
                Some(CallRecord { outcome: SoakOutcome::Dropped { .. }, .. })
            )
        }
        Trouble::Lanes { rank, .. } | Trouble::Checksum { rank } => has_begun(*rank),
    }
}

/// Makes one rank's calls, up to the first that fails. Returns the error of the messages before a
/// call, if they failed, and the time since the rank's last frame.
async fn run_rank(
    scenario: &Scenario,
    endpoint: Endpoint,
    log: &CallLog,
) -> (Communicator<Endpoint>, Option<(Error, Duration)>) {
    let clock = endpoint.clock();
    let config = |rank| scenario.config(rank);
    let rank = endpoint.rank().index();
    let mut comm =
        Communicator::with_config(endpoint, config(rank)).expect("frames are large enough");
    for call in 0..scenario.calls.len() {
        if let Some(count) = scenario.halo {
            let start = clock.now();
            let passed = pass_halos(scenario, &mut comm, call, count).await;
            clock.note(|| format!("halos before call {call}: {passed:?}"));
            if let Err(error) = passed {
                assert!(comm.is_poisoned() || clock.is_dead(), "{error}");
                let after = clock.now().saturating_sub(start.max(clock.last_move()));
                // Ignore the errors that a dead rank sees.
                return (comm, (!clock.is_dead()).then_some((error, after)));
            }
        }
        come_late(scenario, &clock, rank, call).await;
        let polls = polls(scenario, rank, call);
        let (case, is_twisted) = scenario.case_of(call, rank);
        log.borrow_mut()[rank].push(CallRecord {
            case,
            is_twisted,
            outcome: SoakOutcome::UnderWay,
        });
        let outcome =
            with_type!(case.dtype, T => make_call::<T>(&case, &mut comm, &clock, polls).await);
        clock.note(|| format!("call {call}: {outcome}"));
        let goes_on = matches!(outcome, SoakOutcome::Ok(..));
        let mut log = log.borrow_mut();
        if let Some(called) = log[rank].last_mut() {
            called.outcome = outcome;
        }
        if !goes_on {
            break;
        }
    }
    (comm, None)
}

/// Exchanges values with both neighbors on a ring, and checks that they are within the bound.
async fn pass_halos(
    scenario: &Scenario,
    comm: &mut Communicator<Endpoint>,
    call: usize,
    count: usize,
) -> Result<(), Error> {
    let (rank, size) = (comm.rank().index(), comm.size());
    let values = |rank: usize| data::smooth::<f32>(rank + 100 * call, count);
    let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    let plan = [Plan::foldwire(Bound::Absolute(1e-3)), Plan::raw()][call % 2];
    let (own, mut lower, mut upper) = (values(rank), vec![-77.0; count], vec![-77.0; count]);
    // Messages before each call have other tags. Nothing else distinguishes a message from a copy
    // of an earlier one.
    let [up, down] = [2 * call as u32, 2 * call as u32 + 1];
    comm.start_exchange(
        &mut [Outgoing::new(after, up, &own), Outgoing::new(before, down, &own)],
        &mut [Incoming::new(before, up, &mut lower), Incoming::new(after, down, &mut upper)],
        &plan,
    )?
    .await?;
    let bound = plan.bound.map_or(0.0, |_| 1e-3);
    for (from, got) in [(before, lower), (after, upper)] {
        let is_within = |(x, y): (&f32, &f32)| f64::from((x - y).abs()) <= bound;
        let is_right = got.iter().zip(&values(from.index())).all(is_within);
        // Without checksums, any values may arrive.
        assert!(is_right || scenario.lacks_checksums(), "call {call}, from {from}");
    }
    Ok(())
}

/// Delays a rank before a call, if the scenario says so.
async fn come_late(scenario: &Scenario, clock: &Clock, rank: usize, call: usize) {
    for trouble in &scenario.troubles {
        match *trouble {
            Trouble::Late { rank: who, call: which, by } if (who, which) == (rank, call) => {
                clock.sleep(by).await;
            }
            _ => {}
        }
    }
}

/// Number of polls after which a rank drops a call; `None` if it does not.
fn polls(scenario: &Scenario, rank: usize, call: usize) -> Option<usize> {
    scenario.troubles.iter().find_map(|trouble| match *trouble {
        Trouble::Drop { rank: who, call: which, after } if (who, which) == (rank, call) => {
            Some(after)
        }
        _ => None,
    })
}

type Comm<'a> = SharedCommunicator<'a, Endpoint>;
/// Polls a call for its result as bytes. If the argument is true and the call has not finished,
/// drops the call and returns `None`.
type CallPoll<'a> = Box<dyn FnMut(bool) -> Poll<Option<Result<(Vec<u8>, Report), Error>>> + 'a>;

/// Makes the first communicator, and the one for the calls, or the error that prevented it.
async fn at_once<'a>(
    scenario: &Scenario,
    endpoint: Endpoint,
) -> (Option<Comm<'a>>, Result<Comm<'a>, (Error, Duration)>) {
    let (clock, config) = (endpoint.clock(), scenario.config(endpoint.rank().index()));
    let n_calls = scenario.n_at_once;
    let n_first = if scenario.origin == CommunicatorOrigin::Transport { n_calls } else { 1 };
    let first = SharedCommunicator::with_config(endpoint, config, n_first);
    let first = first.expect("enough channels and frames");
    let start = clock.now();
    if scenario.origin == CommunicatorOrigin::Transport {
        return (None, Ok(first));
    }
    let spent = if scenario.reuses { reuse::spend(&first, n_calls).await } else { Ok(()) };
    let split = spent.and_then(|()| match scenario.origin {
        CommunicatorOrigin::Nodes => first.start_two_levels(n_calls),
        _ => first.start_split(Some(0), 0, n_calls),
    });
    let made = match split {
        Ok(split) => split.await,
        Err(error) => Err(error),
    };
    clock.note(|| format!("a communicator from another: {:?}", made.as_ref().err()));
    let after = clock.now().saturating_sub(start.max(clock.last_move()));
    let made = made.map_err(|error| (error, after));
    let made = made.map(|comm| comm.expect("all ranks are in it"));
    if let Ok(comm) = &made {
        // If nodes have different numbers of ranks, the communicator reports one rank a node.
        let n_near = scenario.net.ranks_per_node;
        let are_known =
            scenario.origin == CommunicatorOrigin::Nodes && comm.size().is_multiple_of(n_near);
        assert_eq!(comm.ranks_per_node(), if are_known { n_near } else { 1 });
    }
    (Some(first), made)
}

/// Makes all calls of one rank concurrently, with messages at the same time. Returns the number of
/// messages that were sent or received, and the error of the first failed message with the time
/// since the rank's last frame.
async fn run_rank_at_once<'a>(
    scenario: &Scenario,
    comm: &Comm<'a>,
    counts: &'a [Counts],
    clock: &Clock,
    log: &CallLog,
) -> (u64, Option<(Error, Duration)>) {
    let rank = comm.rank().index();
    let mut under_way = Vec::new();
    let (mut n_done, mut failed) = (0, None);
    let messages = scenario.messages.map(|n_values| messages::start(scenario, comm, n_values));
    let mut messages = messages.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|error| {
        // A peer has failed already.
        assert!(comm.is_poisoned() || clock.is_dead(), "{error}");
        failed = Some((error, Duration::ZERO));
        Vec::new()
    });
    for (call, counts) in counts.iter().enumerate() {
        come_late(scenario, clock, rank, call).await;
        let (case, is_twisted) = scenario.case_of(call, rank);
        log.borrow_mut()[rank].push(CallRecord {
            case,
            is_twisted,
            outcome: SoakOutcome::UnderWay,
        });
        let poll = with_type!(case.dtype, T => start::<T>(case, comm, counts));
        let poll = poll.unwrap_or_else(|error| Box::new(move |_| Poll::Ready(Some(Err(error)))));
        under_way.push((call, case, poll, polls(scenario, rank, call)));
    }
    // Times to an error count from here, because the rank polled nothing before.
    let start = clock.now();
    poll_fn(|_| {
        under_way.retain_mut(|(call, case, poll, polls)| {
            let Poll::Ready(result) = poll(*polls == Some(0)) else {
                polls.iter_mut().for_each(|left| *left -= 1);
                return true;
            };
            let counts = &counts[*call];
            let next = || with_type!(case.dtype, T => start_again::<T>(case, comm, counts));
            let outcome = match result {
                // Ignore the errors that a dead rank sees.
                _ if clock.is_dead() => SoakOutcome::UnderWay,
                None => SoakOutcome::Dropped { next: next() },
                Some(Ok((bytes, report))) => SoakOutcome::Ok(bytes, report),
                Some(Err(error)) => {
                    let after = clock.now().saturating_sub(start.max(clock.last_move()));
                    let next = if error.is_usage() { None } else { next() };
                    SoakOutcome::Err { error, after, next }
                }
            };
            clock.note(|| format!("call {call}: {outcome}"));
            if let Some(called) = log.borrow_mut()[rank].get_mut(*call) {
                called.outcome = outcome;
            }
            false
        });
        messages.retain_mut(|poll| {
            let Poll::Ready(result) = poll() else { return true };
            clock.note(|| format!("a message: {result:?}"));
            n_done += u64::from(result.is_ok());
            if let Err(error) = result
                && failed.is_none()
            {
                let after = clock.now().saturating_sub(start.max(clock.last_move()));
                failed = Some((error, after));
            }
            false
        });
        let is_over = under_way.is_empty() && messages.is_empty();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    // Ignore the errors that a dead rank sees.
    (n_done, failed.filter(|_| !clock.is_dead()))
}

/// Starts a call, and returns the function that polls it.
fn start<'a, T: Float>(
    case: Case,
    comm: &Comm<'a>,
    counts: &'a Counts,
) -> Result<CallPoll<'a>, Error> {
    let mut call = Some(case.start_at_once::<T, _>(comm, counts)?);
    let rank = comm.rank().index();
    Ok(Box::new(move |drops| {
        if drops && call.take_if(|call| !call.is_finished()).is_some() {
            return Poll::Ready(None);
        }
        let Some(under_way) = &mut call else { return Poll::Pending };
        let outcome = ready!(under_way.poll());
        let values = call.take().map(|call| call.wait().data).unwrap_or_default();
        let bytes = || data::bytes(&case.result_at_once(rank, values));
        Poll::Ready(Some(outcome.map(|report| (bytes(), report))))
    }))
}

/// Tries to start another call, and returns its error.
fn start_again<'a, T: Float>(case: &Case, comm: &Comm<'a>, counts: &'a Counts) -> Option<Error> {
    case.start_at_once::<T, _>(comm, counts).err()
}

/// Shrinks to the surviving ranks, and determines by a sum which ranks take part.
async fn regroup(
    comm: Communicator<Endpoint>,
    size: usize,
) -> (Option<Communicator<Endpoint>>, ShrinkOutcome) {
    let shrunk = match comm.start_shrink(PATIENCE) {
        Ok(shrink) => shrink.await,
        Err(error) => Err(error),
    };
    let mut comm = match shrunk {
        Ok(comm) => comm,
        Err(error) => return (None, ShrinkOutcome::Out(error)),
    };
    let ranks = (0..comm.size()).map(Rank::new);
    let members = ranks.filter_map(|rank| comm.transport_rank(rank)).map(Rank::index).collect();
    let summed = participants(&mut comm, size).await;
    (Some(comm), ShrinkOutcome::In { members, summed })
}

/// Returns the ranks that take part in a sum. A rank that counts twice is listed twice.
async fn participants(comm: &mut Communicator<Endpoint>, size: usize) -> Result<Vec<usize>, Error> {
    let mut participants = vec![0.0f64; size];
    participants[comm.transport().rank().index()] = 1.0;
    comm.start(Call::all_reduce(&mut participants, Op::Sum), &Plan::raw())?.await?;
    let times = participants.iter().enumerate().map(|(rank, &n)| (rank, n as usize));
    Ok(times.flat_map(|(rank, n)| std::iter::repeat_n(rank, n)).collect())
}

/// Makes one call and awaits its end, or drops it after `polls` polls.
async fn make_call<T: Float>(
    case: &Case,
    comm: &mut Communicator<Endpoint>,
    clock: &Clock,
    polls: Option<usize>,
) -> SoakOutcome {
    let rank = comm.rank().index();
    let mut buffers: Buffers<T> = case.buffers(rank);
    let start = clock.now();
    let result = match case.start(comm, &mut buffers) {
        Ok(operation) => drive(operation, polls).await,
        Err(error) => Some(Err(error)),
    };
    match result {
        // Ignore the errors that a dead rank sees.
        _ if clock.is_dead() => SoakOutcome::UnderWay,
        None => SoakOutcome::Dropped { next: case.start(comm, &mut buffers).err() },
        Some(Ok(report)) => SoakOutcome::Ok(data::bytes(&case.result(rank, buffers)), report),
        Some(Err(error)) => {
            let after = clock.now().saturating_sub(start.max(clock.last_move()));
            // A usage error leaves the communicator usable.
            let next = if error.is_usage() { None } else { case.start(comm, &mut buffers).err() };
            SoakOutcome::Err { error, after, next }
        }
    }
}

/// Awaits the operation's result. `None` if it took more than `polls` polls and was dropped.
async fn drive<T: Float>(
    mut operation: Operation<'_, Endpoint, T>,
    polls: Option<usize>,
) -> Option<Result<Report, Error>> {
    let mut n_left = polls.unwrap_or(usize::MAX);
    poll_fn(|_| {
        if n_left == 0 {
            return Poll::Ready(None);
        }
        n_left -= 1;
        operation.poll().map(Some)
    })
    .await
}

impl std::fmt::Display for SoakOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnderWay => write!(f, "under way"),
            Self::Dropped { .. } => write!(f, "dropped"),
            Self::Ok(_, report) => write!(f, "done: {report}"),
            Self::Err { error, after, .. } => write!(f, "{error}; {after:?} of {TIMEOUT:?}"),
        }
    }
}
