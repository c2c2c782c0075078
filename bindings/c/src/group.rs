//! Calls that are made together: those between fwGroupStart and fwGroupEnd, of one communicator or
//! of several, and requests that are waited for together.
//!
//! Each communicator's calls are a future, and one thread drives all of them. So a thread can play
//! several ranks. Where all calls of a communicator are all-reduces that differ in nothing but
//! their arrays and bounds, they are one group call of core's: one look at all arrays, and short
//! ones share frames. Ranks see that alike, as they make the same calls.
//!
//! A group is made whole or not at all: a call that was refused when it was collected refuses the
//! group, and before the first call of a group begins all are checked (`check`).

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

use crate::border::{self, Fault};
use crate::family::{Family, Inside};
use crate::ffi::call::{Call, Comm, Running, with_type};
use crate::ffi::memory::RequestPlace;
use crate::ffi::messages::{self, Message};
use crate::ffi::operations::operation;
use crate::ffi::types::{fwRequest_t, fwResult};
pub(crate) use join::{Joining, limit_of};

/// Longest rest while nothing moves: limits of time are seen then.
const REST: Duration = Duration::from_millis(1);

/// A call of this thread's, which belongs to a communicator.
pub(crate) struct Submitted {
    pub(crate) family: Arc<Family>,
    /// The communicator's handle.
    pub(crate) comm: usize,
    pub(crate) what: What,
}

/// What is to be done.
pub(crate) enum What {
    /// A collective, and where its request goes; a blocking one has none.
    Collective(Box<Call>, Option<RequestPlace>),
    /// Sends and receives, side by side.
    Messages(Vec<Message>),
    /// A send or receive, and where its request goes.
    Message(Box<Message>, RequestPlace),
}

impl What {
    /// The place for its request.
    fn place(&self) -> Option<usize> {
        match self {
            Self::Collective(_, place) => place.as_ref().map(RequestPlace::address),
            Self::Message(_, place) => Some(place.address()),
            Self::Messages(_) => None,
        }
    }
}

/// A group's calls on one communicator: the place of its family, its handle, the calls.
type Line = (usize, usize, Vec<What>);
/// A collective of a group.
type Asked = (Box<Call>, Option<RequestPlace>);
/// What all-reduces of one group call have in common.
type Common = (DType, OpCode);

#[derive(Default)]
struct Group {
    depth: usize,
    queue: Vec<Submitted>,
    joins: Vec<Joining>,
    /// Why a call of it was refused.
    refusal: Option<Fault>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

fn with_group<R>(then: impl FnOnce(&mut Group) -> R) -> Result<R, Fault> {
    let ending = |_| Fault::usage("this thread is ending");
    GROUP.try_with(|group| then(&mut group.borrow_mut())).map_err(ending)
}

/// Runs the inside of a function that makes a call: one that is refused in a group refuses the
/// group.
pub(crate) fn run_call(inside: impl FnOnce() -> Result<(), Fault>) -> fwResult {
    border::run(|| {
        inside().inspect_err(|fault| {
            // A thread that is ending is in no group.
            let _ = with_group(|group| {
                if group.depth > 0 {
                    group.refusal.get_or_insert_with(|| fault.clone());
                }
            });
        })
    })
}

/// Begins a group, or one within it.
pub(crate) fn start() -> Result<(), Fault> {
    with_group(|group| group.depth += 1)
}

/// Ends a group; the outermost one makes its calls.
pub(crate) fn end() -> Result<(), Fault> {
    let ended = with_group(|group| {
        group.depth = group.depth.checked_sub(1)?;
        Some(if group.depth == 0 { mem::take(group) } else { Group::default() })
    })?;
    let none = || Fault::usage("there is no group to end: fwGroupStart begins one");
    match ended.ok_or_else(none)? {
        Group { refusal: Some(fault), .. } => Err(whole(fault)),
        Group { queue, joins, .. } if joins.is_empty() => run(queue),
        Group { queue, joins, .. } if queue.is_empty() => join::all(joins),
        _ => Err(Fault::usage("a group with fwCommInitRank has nothing else")),
    }
}

/// A fault that refuses a group.
fn whole(fault: Fault) -> Fault {
    let message =
        format!("nothing of the group was sent, as a call was refused: {}", fault.message);
    Fault { message, ..fault }
}

/// Makes a rank, now or when the group ends.
pub(crate) fn join(joining: Joining) -> Result<(), Fault> {
    let now = with_group(|group| {
        if group.depth == 0 {
            return Ok(Some(joining));
        }
        let place = joining.place.address();
        if group.joins.iter().any(|other| other.place.address() == place) {
            return Err(Fault::argument("a group has two communicators for one place"));
        }
        group.joins.push(joining);
        Ok(None)
    })??;
    now.map_or(Ok(()), |joining| join::all(vec![joining]))
}

/// An error inside a group.
pub(crate) fn refuse(what: &str) -> Result<(), Fault> {
    if with_group(|group| group.depth)? == 0 {
        return Ok(());
    }
    Err(Fault::usage(format!("{what} cannot be in a group; end the group first")))
}

/// An error if a call that this thread's group has collected will put its request there: it has not
/// begun, and so cannot be waited for.
pub(crate) fn refuse_collected(request: &fwRequest_t) -> Result<(), Fault> {
    let place = (&raw const *request).addr();
    let is_collected = with_group(|group| {
        group.queue.iter().filter_map(|other| other.what.place()).any(|other| other == place)
    })?;
    if is_collected {
        let message = "this request's call is in a group; end the group, and wait then";
        return Err(Fault::usage(message));
    }
    Ok(())
}

/// Makes a call, now or when the group ends.
pub(crate) fn submit(submitted: Submitted) -> Result<(), Fault> {
    let now = with_group(|group| {
        if group.depth == 0 {
            return Ok(Some(submitted));
        }
        let place = submitted.what.place();
        if place.is_some() && group.queue.iter().any(|other| other.what.place() == place) {
            return Err(Fault::argument("two calls of a group have one place for their requests"));
        }
        group.queue.push(submitted);
        Ok(None)
    })??;
    let Some(Submitted { family, comm, what }) = now else { return Ok(()) };
    let mut inside = family.enter()?;
    let member = &inside.member(comm)?.comm;
    match what {
        What::Collective(call, None) => {
            let report = call.start(member).and_then(|call| Ok(call.wait()?));
            inside.note(comm, report)
        }
        What::Collective(call, Some(mut place)) => {
            let running = call.start(member)?;
            place.put(inside.keep(&family, comm, running)?);
            Ok(())
        }
        What::Messages(messages) => {
            let report = messages::exchange(member, &messages);
            inside.note(comm, report)
        }
        What::Message(message, mut place) => {
            let running = messages::start(member, &message)?;
            place.put(inside.keep(&family, comm, running)?);
            Ok(())
        }
    }
}

/// What one communicator's calls in a group come to.
struct Outcome {
    family: usize,
    comm: usize,
    kept: Vec<(Box<dyn Running>, RequestPlace)>,
    result: Result<Report, Fault>,
}

fn run(queue: Vec<Submitted>) -> Result<(), Fault> {
    let mut families: Vec<Arc<Family>> = Vec::new();
    // Of each communicator: its family and its calls.
    let mut lines: Vec<Line> = Vec::new();
    for Submitted { family, comm, what } in queue {
        let known = families.iter().position(|known| Arc::ptr_eq(known, &family));
        let at = known.unwrap_or_else(|| {
            families.push(family);
            families.len() - 1
        });
        match lines.iter_mut().find(|line| line.1 == comm) {
            Some(line) => line.2.push(what),
            None => lines.push((at, comm, vec![what])),
        }
    }
    let insides = families.iter().map(|family| family.enter());
    let mut insides = insides.collect::<Result<Vec<Inside<'_>>, Fault>>()?;
    check::all(&lines, &mut insides).map_err(whole)?;
    let is_message = |what: &What| !matches!(what, What::Collective(..));
    if lines.iter().any(|line| line.2.iter().any(is_message)) {
        return exchange(&families, &mut insides, lines);
    }
    let futures = lines.into_iter().map(|(family, comm, calls)| {
        let calls = calls.into_iter().filter_map(|what| match what {
            What::Collective(call, place) => Some((call, place)),
            What::Messages(_) | What::Message(..) => None,
        });
        let member = insides[family].comms.get(&comm).map(|member| &member.comm);
        Box::pin(line(family, comm, member, calls.collect()))
    });
    // Calls with requests of a rank whose others are done go on: ranks of this thread may wait for
    // them.
    let beside = || insides.iter().filter(|inside| inside.progress()).count() > 0;
    let outcomes = block_on(futures.collect(), beside);
    let mut result = Ok(());
    for Outcome { family, comm, kept, result: of_line } in outcomes {
        for (running, mut place) in kept {
            let handle = insides[family].keep(&families[family], comm, running);
            result = result.and(handle.map(|handle| place.put(handle)));
        }
        let noted = insides[family].note(comm, of_line);
        result = result.and(noted);
    }
    result
}

/// The messages of a group, of one communicator.
fn exchange(
    families: &[Arc<Family>],
    insides: &mut [Inside<'_>],
    lines: Vec<Line>,
) -> Result<(), Fault> {
    for (family, comm, what) in lines {
        let (family, inside) = (&families[family], &mut insides[family]);
        let mut all = Vec::new();
        for what in what {
            match what {
                What::Messages(messages) => all.extend(messages),
                What::Message(message, mut place) => {
                    let running = messages::start(&inside.member(comm)?.comm, &message)?;
                    place.put(inside.keep(family, comm, running)?);
                }
                // Refused by `check`.
                What::Collective(..) => {}
            }
        }
        if !all.is_empty() {
            let report = messages::exchange(&inside.member(comm)?.comm, &all);
            inside.note(comm, report)?;
        }
    }
    Ok(())
}

/// The calls of one communicator.
async fn line(family: usize, handle: usize, comm: Option<&Comm>, calls: Vec<Asked>) -> Outcome {
    let mut outcome =
        Outcome { family, comm: handle, kept: Vec::new(), result: Ok(Report::default()) };
    outcome.result = match comm {
        // Refused by `check`.
        None => Ok(Report::default()),
        Some(comm) => match together(&calls) {
            Some(common) => all_reduce(comm, calls, common).await,
            None => one_by_one(comm, calls, &mut outcome.kept).await,
        },
    };
    outcome
}

/// Whether these calls are one group call of core's.
fn together(calls: &[Asked]) -> Option<Common> {
    if calls.len() < 2 || calls.iter().any(|(_, place)| place.is_some()) {
        return None;
    }
    let (_, first) = calls[0].0.in_group()?;
    let is_alike = |(call, _): &Asked| call.in_group().is_some_and(|(_, key)| key == first);
    calls.iter().all(is_alike).then_some((first.0, first.1))
}

async fn all_reduce(comm: &Comm, calls: Vec<Asked>, (dtype, op): Common) -> Result<Report, Fault> {
    with_type!(dtype, T => all_reduce_typed::<T>(comm, &calls, op).await)
}

async fn all_reduce_typed<T: Element>(
    comm: &Comm,
    calls: &[Asked],
    op: OpCode,
) -> Result<Report, Fault> {
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
        // Requests of the caller's take all places.
        comm.progress();
        once_more().await;
    };
    let add = |mut sum: Report, report: Report| {
        sum += report;
        sum
    };
    Ok(reports.into_iter().reduce(add).unwrap_or_default())
}

/// Starts as many as there may be at once, and waits for those without a request.
async fn one_by_one(
    comm: &Comm,
    calls: Vec<Asked>,
    kept: &mut Vec<(Box<dyn Running>, RequestPlace)>,
) -> Result<Report, Fault> {
    let mut waiting = calls.into_iter().peekable();
    let mut running = VecDeque::<Box<dyn Running>>::new();
    let mut result = Ok(Report::default());
    let mut add = |report: Result<Report, Error>| match (&mut result, report) {
        (Ok(sum), Ok(report)) => *sum += report,
        (Ok(_), Err(error)) => result = Err(Fault::from(error)),
        (Err(_), _) => {}
    };
    while let Some((call, _)) = waiting.peek() {
        match call.start(comm) {
            Ok(started) => match waiting.next() {
                Some((_, Some(place))) => kept.push((started, place)),
                _ => running.push_back(started),
            },
            Err(fault) if fault.is_full => match running.pop_front() {
                Some(first) => add(first.await),
                None => {
                    comm.progress();
                    once_more().await;
                }
            },
            Err(fault) => {
                // It was possible a moment ago: another call has failed. Those before it are under
                // way on all ranks.
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

/// Pending once, and ready to go on at once.
async fn once_more() {
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

/// Wakes the thread that drives futures.
struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Drives all of them to their ends, and what is `beside` them, which says if it moved; what they
/// return, in order.
pub(crate) fn block_on<F: Future>(
    mut futures: Vec<Pin<Box<F>>>,
    beside: impl Fn() -> bool,
) -> Vec<F::Output> {
    let unpark = Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) };
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
        if !beside() && !unpark.is_woken.load(Ordering::Acquire) {
            thread::park_timeout(REST);
        }
    }
}
