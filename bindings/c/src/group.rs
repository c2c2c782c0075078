//! Groups: the calls between fwGroupStart and fwGroupEnd, on one or several communicators. Also the
//! executor that waits for several requests at once.
//!
//! The calls of one communicator are one future, and one thread polls all these futures. So a
//! thread can run several ranks. All-reduces of one communicator that differ only in arrays and
//! bounds become one group call of core. It scans all arrays together and packs short arrays into
//! shared frames. All ranks decide alike, because they make the same calls.
//!
//! A group is started as a whole or not at all. A call with invalid arguments invalidates its
//! group, and `check` checks all calls before the first one starts.

mod check;
mod join;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use foldwire::op::OpCode;
use foldwire::{Bound, DType, Element, Error, Report};

use crate::endpoint::{CommEntry, EndpointGuard, SharedEndpoint};
use crate::errors::{self, ApiError};
use crate::ffi::call::{CheckedCollective, CoreCommunicator, with_type};
use crate::ffi::device::ArrayMemory;
use crate::ffi::memory::RequestOut;
use crate::ffi::messages::{self, CheckedMessage};
use crate::ffi::operations::operation;
use crate::ffi::started::DynCall;
use crate::ffi::types::{fwRequest_t, fwResult};
pub(crate) use join::{PendingJoin, limit_of};

/// Longest sleep while no call makes progress. Timeouts are checked at this interval.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A call with its communicator.
pub(crate) struct Submission {
    pub(crate) endpoint: Arc<SharedEndpoint>,
    /// Handle of the communicator.
    pub(crate) comm: usize,
    pub(crate) call: SubmittedCall,
}

/// A call with checked arguments.
pub(crate) enum SubmittedCall {
    /// A collective, and the pointer for its request. `None`: the call blocks.
    Collective(Box<CheckedCollective>, Option<RequestOut>),
    /// Sends and receives that run concurrently, and block.
    Messages(Vec<CheckedMessage>),
    /// A send or receive, and the pointer for its request.
    Message(Box<CheckedMessage>, RequestOut),
}

impl SubmittedCall {
    /// Returns the address that receives the request, if there is one.
    fn place(&self) -> Option<usize> {
        match self {
            Self::Collective(_, place) => place.as_ref().map(RequestOut::address),
            Self::Message(_, place) => Some(place.address()),
            Self::Messages(_) => None,
        }
    }
}

/// A group's calls on one communicator: index of the endpoint, handle of the communicator, calls.
type CommBatch = (usize, usize, Vec<SubmittedCall>);
/// A collective in a group, and the pointer for its request.
type GroupedCollective = (Box<CheckedCollective>, Option<RequestOut>);
/// Type and operation of the all-reduces of one group call.
type GroupKey = (DType, OpCode);

/// The group that a thread has begun.
#[derive(Default)]
struct OpenGroup {
    /// Number of nested groups; 0: the thread is in no group.
    depth: usize,
    queue: Vec<Submission>,
    joins: Vec<PendingJoin>,
    /// Error of the first invalid call.
    refusal: Option<ApiError>,
}

thread_local! {
    static GROUP: RefCell<OpenGroup> = RefCell::default();
}

/// Calls `then` with this thread's group.
fn with_group<R>(then: impl FnOnce(&mut OpenGroup) -> R) -> Result<R, ApiError> {
    let ending = |_| ApiError::usage("this thread is ending");
    GROUP.try_with(|group| then(&mut group.borrow_mut())).map_err(ending)
}

/// Runs the body of an exported function that submits a call. In a group, an error invalidates the
/// group.
pub(crate) fn catch_call_errors(body: impl FnOnce() -> Result<(), ApiError>) -> fwResult {
    errors::catch_errors(|| {
        body().inspect_err(|fault| {
            // A thread that is ending has no group.
            let _ = with_group(|group| {
                if group.depth > 0 {
                    group.refusal.get_or_insert_with(|| fault.clone());
                }
            });
        })
    })
}

/// Begins a group, or a nested one.
pub(crate) fn start() -> Result<(), ApiError> {
    with_group(|group| group.depth += 1)
}

/// Ends a group. The end of the outermost group makes its calls.
pub(crate) fn end() -> Result<(), ApiError> {
    let ended = with_group(|group| {
        group.depth = group.depth.checked_sub(1)?;
        Some(if group.depth == 0 { mem::take(group) } else { OpenGroup::default() })
    })?;
    let none = || ApiError::usage("no group to end; fwGroupStart begins one");
    match ended.ok_or_else(none)? {
        OpenGroup { refusal: Some(fault), .. } => Err(refuse_group(fault)),
        OpenGroup { queue, joins, .. } if joins.is_empty() => run(queue),
        OpenGroup { queue, joins, .. } if queue.is_empty() => join::all(joins),
        _ => Err(ApiError::usage("a group with fwCommInitRank cannot have other calls")),
    }
}

/// Adds to the error of a call that its group was not started.
fn refuse_group(fault: ApiError) -> ApiError {
    let message =
        format!("the group was not started, because a call is invalid: {}", fault.message);
    ApiError { message, ..fault }
}

/// Creates a communicator, now or when the group ends.
pub(crate) fn join(joining: PendingJoin) -> Result<(), ApiError> {
    let now = with_group(|group| {
        if group.depth == 0 {
            return Ok(Some(joining));
        }
        let place = joining.place.address();
        if group.joins.iter().any(|other| other.place.address() == place) {
            return Err(ApiError::argument(
                "two communicators of a group have the same output pointer",
            ));
        }
        group.joins.push(joining);
        Ok(None)
    })??;
    now.map_or(Ok(()), |joining| join::all(vec![joining]))
}

/// Refuses a function that is not allowed in a group.
///
/// # Errors
/// If this thread is in a group.
pub(crate) fn refuse(what: &str) -> Result<(), ApiError> {
    if with_group(|group| group.depth)? == 0 {
        return Ok(());
    }
    Err(ApiError::usage(format!("{what} cannot be in a group; end the group first")))
}

/// Refuses to wait for a request of this thread's group. Its call has not started yet.
///
/// # Errors
/// If a call of the group will write its request to this address.
pub(crate) fn refuse_collected(request: &fwRequest_t) -> Result<(), ApiError> {
    let place = (&raw const *request).addr();
    let is_collected = with_group(|group| {
        group.queue.iter().filter_map(|other| other.call.place()).any(|other| other == place)
    })?;
    if is_collected {
        let message = "this request belongs to an open group; call fwGroupEnd before waiting";
        return Err(ApiError::usage(message));
    }
    Ok(())
}

/// Starts a call, now or when the group ends.
pub(crate) fn submit(submitted: Submission) -> Result<(), ApiError> {
    let now = with_group(|group| {
        if group.depth == 0 {
            return Ok(Some(submitted));
        }
        let place = submitted.call.place();
        if place.is_some() && group.queue.iter().any(|other| other.call.place() == place) {
            return Err(ApiError::argument("two calls of a group have the same request pointer"));
        }
        group.queue.push(submitted);
        Ok(None)
    })??;
    let Some(Submission { endpoint, comm, call }) = now else { return Ok(()) };
    let mut guard = endpoint.enter()?;
    let entry = guard.entry(comm)?;
    match call {
        SubmittedCall::Collective(call, None) => {
            let report = call.start(&entry.comm, entry.memory).and_then(DynCall::wait);
            guard.record(comm, report)
        }
        SubmittedCall::Collective(call, Some(mut place)) => {
            let running = call.start(&entry.comm, entry.memory)?;
            place.put(guard.add_request(&endpoint, comm, running)?);
            Ok(())
        }
        SubmittedCall::Messages(messages) => {
            entry.memory.refuse_messages()?;
            let report = messages::exchange(&entry.comm, &messages);
            guard.record(comm, report)
        }
        SubmittedCall::Message(message, mut place) => {
            entry.memory.refuse_messages()?;
            let running = messages::start(&entry.comm, &message)?;
            place.put(guard.add_request(&endpoint, comm, running)?);
            Ok(())
        }
    }
}

/// Result of one communicator's calls in a group.
struct BatchOutcome {
    endpoint: usize,
    comm: usize,
    /// Running calls, and the pointers for their requests.
    kept: Vec<(Box<dyn DynCall>, RequestOut)>,
    result: Result<Report, ApiError>,
}

/// Runs the calls of a group.
fn run(queue: Vec<Submission>) -> Result<(), ApiError> {
    let mut endpoints: Vec<Arc<SharedEndpoint>> = Vec::new();
    // One batch for each communicator.
    let mut batches: Vec<CommBatch> = Vec::new();
    for Submission { endpoint, comm, call } in queue {
        let known = endpoints.iter().position(|known| Arc::ptr_eq(known, &endpoint));
        let at = known.unwrap_or_else(|| {
            endpoints.push(endpoint);
            endpoints.len() - 1
        });
        match batches.iter_mut().find(|batch| batch.1 == comm) {
            Some(batch) => batch.2.push(call),
            None => batches.push((at, comm, vec![call])),
        }
    }
    let guards = endpoints.iter().map(|endpoint| endpoint.enter());
    let mut guards = guards.collect::<Result<Vec<EndpointGuard<'_>>, ApiError>>()?;
    check::all(&batches, &mut guards).map_err(refuse_group)?;
    let is_message = |call: &SubmittedCall| !matches!(call, SubmittedCall::Collective(..));
    if batches.iter().any(|batch| batch.2.iter().any(is_message)) {
        return exchange(&endpoints, &mut guards, batches);
    }
    let futures = batches.into_iter().map(|(endpoint, comm, calls)| {
        let calls = calls.into_iter().filter_map(|call| match call {
            SubmittedCall::Collective(call, place) => Some((call, place)),
            SubmittedCall::Messages(_) | SubmittedCall::Message(..) => None,
        });
        let entry = guards[endpoint].comms.get(&comm);
        Box::pin(run_batch(endpoint, comm, entry, calls.collect()))
    });
    // A rank's future may be ready while its calls with requests still run. Advance these too,
    // because other ranks of this thread may wait for them.
    let progress = || guards.iter().filter(|guard| guard.progress()).count() > 0;
    let outcomes = block_on(futures.collect(), progress);
    let mut result = Ok(());
    for BatchOutcome { endpoint, comm, kept, result: of_batch } in outcomes {
        for (running, mut place) in kept {
            let handle = guards[endpoint].add_request(&endpoints[endpoint], comm, running);
            result = result.and(handle.map(|handle| place.put(handle)));
        }
        let noted = guards[endpoint].record(comm, of_batch);
        result = result.and(noted);
    }
    result
}

/// Runs a group of messages. `check` has ensured that there is only one communicator.
///
/// Messages with the same peer and tag match in the order of their calls. So if one has a request,
/// all of them start one by one, and the group then waits for those without.
fn exchange(
    endpoints: &[Arc<SharedEndpoint>],
    guards: &mut [EndpointGuard<'_>],
    batches: Vec<CommBatch>,
) -> Result<(), ApiError> {
    for (endpoint, comm, calls) in batches {
        let (endpoint, guard) = (&endpoints[endpoint], &mut guards[endpoint]);
        let has_requests = calls.iter().any(|call| call.place().is_some());
        let (mut together, mut waited) = (Vec::new(), Vec::new());
        for call in calls {
            match call {
                SubmittedCall::Messages(messages) if has_requests => {
                    for message in &messages {
                        waited.push(messages::start(&guard.entry(comm)?.comm, message)?);
                    }
                }
                SubmittedCall::Messages(messages) => together.extend(messages),
                SubmittedCall::Message(message, mut place) => {
                    let running = messages::start(&guard.entry(comm)?.comm, &message)?;
                    place.put(guard.add_request(endpoint, comm, running)?);
                }
                // Excluded by `check`.
                SubmittedCall::Collective(..) => {}
            }
        }
        let report = match waited.is_empty() {
            true if together.is_empty() => continue,
            true => messages::exchange(&guard.entry(comm)?.comm, &together),
            false => wait_for_all(waited),
        };
        guard.record(comm, report)?;
    }
    Ok(())
}

/// Waits for all of these calls, also after one has failed. Returns the sum of their reports, or
/// the first error.
fn wait_for_all(calls: Vec<Box<dyn DynCall>>) -> Result<Report, ApiError> {
    let mut outcomes = calls.into_iter().map(DynCall::wait).collect::<Vec<_>>().into_iter();
    let first = outcomes.next().unwrap_or_else(|| Ok(Report::default()));
    outcomes.fold(first, |sum, outcome| {
        let (mut sum, report) = (sum?, outcome?);
        sum += report;
        Ok(sum)
    })
}

/// Runs one communicator's calls.
async fn run_batch(
    endpoint: usize,
    handle: usize,
    entry: Option<&CommEntry>,
    calls: Vec<GroupedCollective>,
) -> BatchOutcome {
    let mut outcome =
        BatchOutcome { endpoint, comm: handle, kept: Vec::new(), result: Ok(Report::default()) };
    outcome.result = match entry {
        // Excluded by `check`.
        None => Ok(Report::default()),
        // A group call of core reads its arrays on the host.
        Some(CommEntry { comm, memory, .. }) => match (memory, group_key(&calls)) {
            (ArrayMemory::Host, Some(common)) => all_reduce(comm, calls, common).await,
            _ => one_by_one(comm, *memory, calls, &mut outcome.kept).await,
        },
    };
    outcome
}

/// Returns the common type and operation if these calls can be one group call of core.
fn group_key(calls: &[GroupedCollective]) -> Option<GroupKey> {
    if calls.len() < 2 || calls.iter().any(|(_, place)| place.is_some()) {
        return None;
    }
    let (_, first) = calls[0].0.in_group()?;
    let is_alike =
        |(call, _): &GroupedCollective| call.in_group().is_some_and(|(_, key)| key == first);
    calls.iter().all(is_alike).then_some((first.0, first.1))
}

/// Makes all-reduces as one group call of core.
async fn all_reduce(
    comm: &CoreCommunicator,
    calls: Vec<GroupedCollective>,
    (dtype, op): GroupKey,
) -> Result<Report, ApiError> {
    with_type!(dtype, T => all_reduce_typed::<T>(comm, &calls, op).await)
}

async fn all_reduce_typed<T: Element>(
    comm: &CoreCommunicator,
    calls: &[GroupedCollective],
    op: OpCode,
) -> Result<Report, ApiError> {
    let mut values = Vec::new();
    for (call, _) in calls {
        values.push(call.gathered::<T>()?);
    }
    let bounds =
        calls.iter().map(|(call, _)| call.in_group().map_or(Bound::Absolute(1.0), |of| of.0));
    let mut arrays: Vec<(&mut [T], Bound)> =
        values.iter_mut().map(AsMut::as_mut).zip(bounds).collect();
    let (op, plan) = (operation::<T>(op)?, calls[0].0.plan());
    let reports = loop {
        match comm.start_all_reduce_group(&mut arrays, op, plan) {
            Ok(call) => break call.await?,
            Err(Error::TooManyCalls { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // The caller's requests use all calls that the communicator allows. Wait for one.
        comm.progress();
        yield_once().await;
    };
    let add = |mut sum: Report, report: Report| {
        sum += report;
        sum
    };
    Ok(reports.into_iter().reduce(add).unwrap_or_default())
}

/// Starts as many calls at once as the communicator allows, and waits for those without a request.
async fn one_by_one(
    comm: &CoreCommunicator,
    memory: ArrayMemory,
    calls: Vec<GroupedCollective>,
    kept: &mut Vec<(Box<dyn DynCall>, RequestOut)>,
) -> Result<Report, ApiError> {
    let mut waiting = calls.into_iter().peekable();
    let mut running = VecDeque::<Box<dyn DynCall>>::new();
    let mut result = Ok(Report::default());
    let mut add = |report: Result<Report, ApiError>| match (&mut result, report) {
        (Ok(sum), Ok(report)) => *sum += report,
        (Ok(_), Err(fault)) => result = Err(fault),
        (Err(_), _) => {}
    };
    while let Some((call, _)) = waiting.peek() {
        match call.start(comm, memory) {
            Ok(started) => match waiting.next() {
                Some((_, Some(place))) => kept.push((started, place)),
                _ => running.push_back(started),
            },
            Err(fault) if fault.is_full => match running.pop_front() {
                Some(first) => add(first.await),
                None => {
                    comm.progress();
                    yield_once().await;
                }
            },
            Err(fault) => {
                // `check` accepted this call, so another call has failed since. Wait for the calls
                // before it, which run on all ranks.
                for call in running {
                    add(call.await);
                }
                return Err(fault);
            }
        }
    }
    for call in running {
        add(call.await);
    }
    result
}

/// Yields to the executor once.
async fn yield_once() {
    let mut has_waited = false;
    poll_fn(|context| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waker that unparks the thread that polls the futures.
struct ParkWaker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for ParkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls all futures until they are ready, and returns their outputs in order. Each round also
/// calls `progress`, which advances other calls and returns whether one of them made progress.
pub(crate) fn block_on<F: Future>(
    mut futures: Vec<Pin<Box<F>>>,
    progress: impl Fn() -> bool,
) -> Vec<F::Output> {
    let unpark = ParkWaker { thread: thread::current(), is_woken: AtomicBool::new(false) };
    let unpark = Arc::new(unpark);
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    loop {
        unpark.is_woken.store(false, Ordering::Relaxed);
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(&mut context)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) {
            return outputs.into_iter().flatten().collect();
        }
        if !progress() && !unpark.is_woken.load(Ordering::Acquire) {
            thread::park_timeout(POLL_INTERVAL);
        }
    }
}
