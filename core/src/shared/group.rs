//! Several arrays in one call: one look at all of them, then their calls at once.
//!
//! Each array has a bound of its own. The looks at their data that relative bounds need are one
//! exact all-reduce of four numbers for each array, in place of one after the other. Then as many
//! calls are under way as the communicator can hold. Every array ends with the bits of a call of
//! its own.
//!
//! *Driving.* The whole is one task, from the looks to the last call. It moves while it is polled.
//!
//! *Shared frames.* Arrays so short that a schedule would move each as a whole are one call
//! together, as many as are sure to fit a frame: a run of parts, an array each, of which every
//! segment is computed by the codec of its array. So a message carries what were many.
//!
//! Source: grouped calls of NCCL (`ncclGroupStart`); gradient buckets of data-parallel training.

use super::SharedCommunicator;
use crate::bound::{Bound, ValueRange};
use crate::budget::{Budget, resolve};
use crate::bundle;
use crate::call_spec::CallSpec;
use crate::collective::{Call, CallState, Communicator, value_range};
use crate::element::Element;
use crate::engine::Work;
use crate::error::{Buffer, Error};
use crate::frame::HEADER_BYTES;
use crate::handle::Progress;
use crate::node::{CallSlot, Node, Port};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefMut};
use core::fmt;
use core::future::{Future, poll_fn};
use core::iter::once;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// Frames are shared up to so many bytes even if fewer calls are under way than there may be.
const MIN_SHARED_BYTES: usize = 16 << 10;
/// How long to rest while calls beside the group have all seats and do not move.
const REST: Duration = Duration::from_millis(1);
/// Most arrays that share frames.
const MAX_ARRAYS_PER_CALL: usize = 256;

/// What is one call: an array, or several that share frames.
struct GroupBatch<T> {
    arrays: Range<usize>,
    /// Of several: where each ends, if they lie one after the other.
    ends: Vec<usize>,
    /// Of several: their values.
    joined: Vec<T>,
}

impl<T: Element> GroupBatch<T> {
    fn new(arrays: Range<usize>, all: &[(&mut [T], Bound)]) -> Self {
        let (mut ends, mut joined) = (Vec::new(), Vec::new());
        if arrays.len() > 1 {
            for (data, _) in &all[arrays.clone()] {
                joined.extend_from_slice(data);
                ends.push(joined.len());
            }
        }
        Self { arrays, ends, joined }
    }

    /// Puts the results of several where they belong.
    fn copy_results_to(&self, all: &mut [(&mut [T], Bound)]) {
        let starts = once(0).chain(self.ends.iter().copied());
        for ((data, _), start) in all[self.arrays.clone()].iter_mut().zip(starts) {
            if let Some(results) = self.joined.get(start..start + data.len()) {
                data.copy_from_slice(results);
            }
        }
    }
}

/// The call of a batch, under way.
struct RunningBatch<'s, 'a, 'b, X: Transport, T: Element> {
    /// The first of its arrays.
    at: usize,
    call_slot: &'s CallSlot<'a, X>,
    comm: RefMut<'s, Option<Communicator<Port<'a, X>>>>,
    call: CallState<'s>,
    work: Work<'b, 's, T>,
    /// Why the group's calls are given up, if one has failed.
    error: Option<Error>,
}

impl<X: Transport, T: Element> Drop for RunningBatch<'_, '_, '_, X, T> {
    fn drop(&mut self) {
        if let Some(comm) = self.comm.as_mut() {
            self.call.give_up(comm, self.error.as_ref());
            self.call_slot.leave(comm, self.error.as_ref());
        }
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Each array becomes the reduction of all ranks' arrays in its place, within a bound of its
    /// own; the plan says the rest. The same bits as by a call of [`all_reduce`](Self::all_reduce)
    /// for each, in less time: one look at all the data, and as many calls at once as there may be
    /// ([`n_calls`](Self::n_calls)). Short arrays share frames. A report for each array; bytes,
    /// messages and times of those that share are in the first one's.
    ///
    /// All ranks give as many arrays, of the same lengths and bounds. Where the plan rounds without
    /// bias, each array has a seed of its own ([`Rounding::of_array`](crate::Rounding::of_array)).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable. After one
    /// that does not, some arrays hold their results and some a part of them.
    ///
    /// # Examples
    /// Gradients of layers of any scale, each to a thousandth of its range:
    /// ```
    /// use foldwire::{Bound, Error, Op, Plan, SharedCommunicator, Transport};
    ///
    /// fn average<X: Transport>(
    ///     comm: &SharedCommunicator<'_, X>,
    ///     layers: &mut [Vec<f32>],
    /// ) -> Result<(), Error> {
    ///     let bound = Bound::Relative(1e-3);
    ///     let mut arrays: Vec<(&mut [f32], Bound)> =
    ///         layers.iter_mut().map(|layer| (&mut layer[..], bound)).collect();
    ///     comm.all_reduce_group(&mut arrays, Op::Avg, &Plan::foldwire(bound))?;
    ///     Ok(())
    /// }
    /// ```
    pub fn all_reduce_group<T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        op: Op<'_, T>,
        plan: &Plan,
    ) -> Result<Vec<Report>, Error> {
        self.start_all_reduce_group(arrays, op, plan)?.wait()
    }

    /// As [`all_reduce_group`](Self::all_reduce_group), with error feedback: a slice for each
    /// array, of what earlier calls lost of its values, as
    /// [`Call::with_feedback`] has it.
    ///
    /// # Errors
    /// As [`all_reduce_group`](Self::all_reduce_group); among errors of use also those of
    /// [`Call::with_feedback`], and [`Error::Length`] unless there are as many
    /// slices as arrays.
    pub fn all_reduce_group_with_feedback<T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: &mut [&mut [T::Residue]],
        op: Op<'_, T>,
        plan: &Plan,
    ) -> Result<Vec<Report>, Error> {
        self.start_all_reduce_group_with_feedback(arrays, feedback, op, plan)?.wait()
    }

    /// Starts what [`all_reduce_group`](Self::all_reduce_group) does. It may take all of the calls
    /// that there may be: until it is done, another on this communicator is
    /// [`Error::TooManyCalls`].
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    pub fn start_all_reduce_group<'g, T: Element>(
        &'g self,
        arrays: &'g mut [(&mut [T], Bound)],
        op: Op<'g, T>,
        plan: &Plan,
    ) -> Result<GroupCall<'g, 'a, X>, Error> {
        self.start_group(arrays, None, op, plan)
    }

    /// Starts what [`all_reduce_group_with_feedback`](Self::all_reduce_group_with_feedback) does.
    ///
    /// # Errors
    /// As [`start_all_reduce_group`](Self::start_all_reduce_group); among errors of use also those
    /// of [`Call::with_feedback`], and [`Error::Length`] unless there are as
    /// many slices as arrays.
    pub fn start_all_reduce_group_with_feedback<'g, T: Element>(
        &'g self,
        arrays: &'g mut [(&mut [T], Bound)],
        feedback: &'g mut [&mut [T::Residue]],
        op: Op<'g, T>,
        plan: &Plan,
    ) -> Result<GroupCall<'g, 'a, X>, Error> {
        let (need, have) = (arrays.len(), feedback.len());
        if need != have {
            return Err(Error::Length { buffer: Buffer::Feedback, need, have });
        }
        self.start_group(arrays, Some(feedback), op, plan)
    }

    /// Starts a group call, with a slice of feedback for each array or without.
    fn start_group<'g, T: Element>(
        &'g self,
        arrays: &'g mut [(&mut [T], Bound)],
        mut feedback: Option<&'g mut [&mut [T::Residue]]>,
        op: Op<'g, T>,
        plan: &Plan,
    ) -> Result<GroupCall<'g, 'a, X>, Error> {
        let plan_of = |(at, array): (usize, &(&mut [T], Bound))| {
            plan.with_bound(array.1).with_rounding(plan.rounding.of_array(at))
        };
        let plans: Vec<Plan> = arrays.iter().enumerate().map(plan_of).collect();
        // What is wrong with one shows before anything is sent of another.
        let (spec, calls) = self.plan_calls(arrays, feedback.as_deref_mut(), op, &plans)?;
        if self.is_checking() {
            return Err(self.checked(|_| Ok(())));
        }
        self.is_in_group.set(true);
        let progress = Rc::new(GroupProgress::default());
        let task: GroupTask<'g> =
            Box::pin(self.group(arrays, feedback, op, spec, calls, Rc::clone(&progress)));
        Ok(GroupCall { comm: self, task: Some(task), progress })
    }

    /// The task of a group call.
    async fn group<'g, T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: Option<&mut [&mut [T::Residue]]>,
        op: Op<'g, T>,
        spec: Vec<CallSpec<'g>>,
        calls: Vec<Range<usize>>,
        progress: Rc<GroupProgress>,
    ) -> Result<Vec<Report>, Error> {
        let (value_ranges, scan_cost) = self.scan_values(arrays, &spec, &progress).await?;
        let budgets: Vec<Budget> = spec
            .iter()
            .zip(value_ranges)
            .map(|(spec, value_range)| resolve(spec, value_range.flatten()))
            .collect::<Result<_, _>>()?;
        self.round(arrays, feedback, &spec, &budgets);
        let mut batches: Vec<GroupBatch<T>> =
            calls.into_iter().map(|call| GroupBatch::new(call, arrays)).collect();
        let mut reports = vec![Report::default(); arrays.len()];
        let mut rest = &mut *arrays;
        let buffers = batches.iter_mut().filter_map(|batch| {
            let GroupBatch { arrays, ends, joined } = batch;
            Some(match rest.split_off_mut(..arrays.len())? {
                [(data, _)] => (arrays.clone(), &ends[..], &mut **data),
                _ => (arrays.clone(), &ends[..], &mut joined[..]),
            })
        });
        let buffers = buffers.collect();
        self.run_calls(buffers, op, &spec, &budgets, &mut reports, &progress).await?;
        batches
            .iter()
            .filter(|batch| batch.arrays.len() > 1)
            .for_each(|batch| batch.copy_results_to(arrays));
        for ((budget, spec), report) in budgets.iter().zip(&spec).zip(&mut reports) {
            budget.note_in(report);
            (report.schedule, report.codec) = (spec.schedule.name(), spec.plan.codec);
            report.plan = spec.choice;
        }
        if let Some(first) = reports.first_mut() {
            *first += scan_cost;
        }
        Ok(reports)
    }

    /// Rounds the arrays that are to be rounded before they are moved.
    fn round<T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: Option<&mut [&mut [T::Residue]]>,
        spec: &[CallSpec<'_>],
        budgets: &[Budget],
    ) {
        let (rank, level) = (self.rank(), self.node.config.level);
        let mut residues = feedback.into_iter().flatten();
        for (((values, _), spec), budget) in arrays.iter_mut().zip(spec).zip(budgets) {
            let residues = residues.next().map(|residues| &mut **residues);
            if let Some(pass) = spec.pass(budget.quantum, rank) {
                pass.run(None, values, residues, level);
            }
        }
    }

    /// Makes the calls of these arrays on these buffers, as many at once as there may be. The
    /// report of each is that of its first array.
    async fn run_calls<T: Element>(
        &self,
        calls: Vec<(Range<usize>, &[usize], &mut [T])>,
        op: Op<'_, T>,
        spec: &[CallSpec<'_>],
        budgets: &[Budget],
        reports: &mut [Report],
        progress: &GroupProgress,
    ) -> Result<(), Error> {
        let mut waiting = calls.into_iter().peekable();
        let mut running: Vec<RunningBatch<'_, 'a, '_, X, T>> = Vec::new();
        loop {
            while waiting.peek().is_some() {
                let call_slot = match self.next_slot() {
                    Ok(call_slot) => call_slot,
                    // Until the oldest is done.
                    Err(Error::TooManyCalls { .. }) => break,
                    Err(error) => return Err(error),
                };
                let Some((arrays, ends, data)) = waiting.next() else { break };
                let at = arrays.start;
                let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
                let on = comm.as_mut().ok_or(Error::Poisoned)?;
                let (request, mut work) = Call::all_reduce(data, op).into_parts(on.rank());
                let (spec, budgets) = (spec[at], &budgets[arrays]);
                let call = CallState::start_group(on, &request, &mut work, spec, ends, budgets)?;
                call_slot.is_taken.set(true);
                self.advance();
                running.push(RunningBatch { at, call_slot, comm, call, work, error: None });
            }
            if running.is_empty() {
                if waiting.peek().is_none() {
                    return Ok(());
                }
                self.drive_others(progress).await?;
                continue;
            }
            progress.until_moved(&self.node, || advance_all(&mut running, reports)).await?;
        }
    }

    /// Drives the calls that the caller has under way beside the group, until one moves: the other
    /// ranks have begun the group, so it waits for a seat that such a call has.
    async fn drive_others(&self, progress: &GroupProgress) -> Result<(), Error> {
        // An error of the transport's shows in each call.
        let advance = || Ok((!self.node.pass().unwrap_or(false)).then_some(REST));
        progress.until_moved(&self.node, advance).await
    }

    /// Checks the call of each array, and finds which arrays are one call together: those that
    /// follow each other, are moved as a whole, and are sure to fit a frame.
    fn plan_calls<'s, T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: Option<&mut [&mut [T::Residue]]>,
        op: Op<'s, T>,
        plans: &[Plan],
    ) -> Result<(Vec<CallSpec<'s>>, Vec<Range<usize>>), Error> {
        let mut comm = self.call_slot()?.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let comm = comm.as_mut().ok_or(Error::Poisoned)?;
        let room = comm.transport.frame_capacity().saturating_sub(HEADER_BYTES);
        // So many calls at once, that one computes while another's frame is under way.
        let n_bytes: usize = arrays.iter().map(|(data, _)| data.len() * T::BYTES).sum();
        let room = room.min((n_bytes / self.n_calls()).max(MIN_SHARED_BYTES));
        let (mut spec, mut calls) = (Vec::<CallSpec<'_>>::new(), Vec::<Range<usize>>::new());
        // Of the last call, if it may have more arrays.
        let mut lens = Vec::new();
        let mut feedback = feedback.into_iter().flatten();
        for (at, ((data, _), plan)) in arrays.iter_mut().zip(plans).enumerate() {
            let mut call = Call::all_reduce(&mut **data, op);
            let (mut request, _) = call.parts(comm.rank());
            request.n_residues = feedback.next().map(|residues| residues.len());
            let of_one = comm.spec(&request, plan)?;
            let is_whole = of_one.call.size > 1 && of_one.schedule.n_parts(of_one.call) == 1;
            let max_payload_bytes = comm.max_payload_bytes(&of_one).filter(|_| is_whole);
            lens.extend(max_payload_bytes);
            let is_alike = |first: &CallSpec<'_>| {
                first.schedule.name() == of_one.schedule.name()
                    && (first.call, first.plan.codec) == (of_one.call, of_one.plan.codec)
            };
            match calls.last_mut() {
                Some(call)
                    if max_payload_bytes.is_some()
                        && lens.len() == call.len() + 1
                        && lens.len() <= MAX_ARRAYS_PER_CALL
                        && is_alike(&spec[call.start])
                        && bundle::n_bytes(lens.iter().copied()) <= room =>
                {
                    call.end += 1;
                }
                _ => {
                    calls.push(at..at + 1);
                    lens.clear();
                    lens.extend(max_payload_bytes);
                }
            }
            spec.push(of_one);
        }
        Ok((spec, calls))
    }

    /// The extents of all ranks' data, of each array whose bound needs it, and what the look cost.
    #[allow(clippy::type_complexity, reason = "a list and a report")]
    async fn scan_values<T: Element>(
        &self,
        arrays: &[(&mut [T], Bound)],
        spec: &[CallSpec<'_>],
        progress: &GroupProgress,
    ) -> Result<(Vec<Option<Option<ValueRange>>>, Report), Error> {
        let level = self.node.config.level;
        let mut value_ranges = vec![None; arrays.len()];
        let mut cost = Report::default();
        // By samples where that is allowed, then in full where they have missed much.
        for may_sample in [true, false] {
            let requests: Vec<(usize, bool)> = spec
                .iter()
                .map(|spec| &spec.plan)
                .enumerate()
                .filter(|(at, plan)| plan.needs_extent() && value_ranges[*at].is_none())
                .map(|(at, plan)| (at, may_sample && plan.samples(arrays[at].0.len())))
                .collect();
            if requests.is_empty() {
                break;
            }
            let scans = requests
                .iter()
                .map(|&(at, sampled)| value_range::scan_values(arrays[at].0, level, sampled));
            let mut values: Vec<f64> = scans.flatten().collect();
            cost += self.maxima(&mut values, progress).await?;
            for (&(at, sampled), seen) in requests.iter().zip(values.as_chunks().0) {
                value_ranges[at] = value_range::read_extremes(*seen, sampled);
            }
        }
        Ok((value_ranges, cost))
    }

    /// The largest of all ranks' values, exactly.
    async fn maxima(&self, values: &mut [f64], progress: &GroupProgress) -> Result<Report, Error> {
        let mut reports = [Report::default()];
        let mut running = {
            let call_slot = loop {
                match self.next_slot() {
                    Err(Error::TooManyCalls { .. }) => self.drive_others(progress).await?,
                    call_slot => break call_slot?,
                }
            };
            let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
            let on = comm.as_mut().ok_or(Error::Poisoned)?;
            let (request, mut work) = Call::all_reduce(values, Op::Max).into_parts(on.rank());
            let call = CallState::start(on, request, &mut work, &Plan::raw())?;
            call_slot.is_taken.set(true);
            self.advance();
            vec![RunningBatch { at: 0, call_slot, comm, call, work, error: None }]
        };
        while !running.is_empty() {
            progress.until_moved(&self.node, || advance_all(&mut running, &mut reports)).await?;
        }
        drop(running);
        let [report] = reports;
        Ok(report)
    }
}

/// What a group call has still to do.
type GroupTask<'g> = Pin<Box<dyn Future<Output = Result<Vec<Report>, Error>> + 'g>>;

/// A call of several arrays under way; see [`SharedCommunicator::all_reduce_group`].
///
/// [`wait`](Self::wait) for it, or `.await` it. It moves while it is polled. Dropping it unfinished
/// gives it up on all ranks, and the communicator with it.
#[must_use = "a call that is dropped is given up"]
pub struct GroupCall<'g, 'a, X: Transport + 'a> {
    comm: &'g SharedCommunicator<'a, X>,
    /// `None` once it has returned its result.
    task: Option<GroupTask<'g>>,
    progress: Rc<GroupProgress>,
}

impl<X: Transport> GroupCall<'_, '_, X> {
    /// Drives it to its end.
    ///
    /// # Errors
    /// As [`SharedCommunicator::all_reduce_group`].
    pub fn wait(mut self) -> Result<Vec<Report>, Error> {
        self.progress.blocks.set(true);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut context) {
                return result;
            }
            if let Some(rest) = self.progress.rest.take() {
                self.comm.node.idle(rest);
            }
        }
    }
}

/// Once it has returned its result, it is pending for ever.
impl<X: Transport> Future for GroupCall<'_, '_, X> {
    type Output = Result<Vec<Report>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else { return Poll::Pending };
        let result = core::task::ready!(task.as_mut().poll(context));
        self.task = None;
        self.comm.is_in_group.set(false);
        Poll::Ready(result)
    }
}

impl<X: Transport> Drop for GroupCall<'_, '_, X> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        // What is under way is given up.
        drop(task);
        self.comm.is_in_group.set(false);
        // If nothing is, the others hear of it by a call that is begun and given up.
        if !self.comm.is_poisoned() {
            drop(self.comm.start_barrier());
        }
    }
}

impl<X: Transport> fmt::Debug for GroupCall<'_, '_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call of several arrays")
    }
}

/// How a group call moves on.
#[derive(Default)]
struct GroupProgress {
    /// Who drives it does nothing else, and rests itself.
    blocks: Cell<bool>,
    /// How long that may be, if nothing moved.
    rest: Cell<Option<Duration>>,
}

impl GroupProgress {
    /// Returns once a look has moved something, in another poll than that look; `look` says how
    /// long to rest if nothing moved.
    async fn until_moved<X: Transport>(
        &self,
        node: &Node<'_, X>,
        mut advance: impl FnMut() -> Result<Option<Duration>, Error>,
    ) -> Result<(), Error> {
        let mut has_moved = false;
        poll_fn(|context| {
            if has_moved {
                return Poll::Ready(Ok(()));
            }
            let mut rest = advance()?;
            if rest.is_some() && !self.blocks.get() && node.register(context.waker()) {
                // What came before it was registered is found now.
                rest = advance()?;
                if rest.is_some() {
                    return Poll::Pending;
                }
            }
            self.rest.set(rest);
            has_moved = rest.is_none();
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

/// Advances each call by a bounded amount of work. How long to rest if none moved.
fn advance_all<X: Transport, T: Element>(
    running: &mut Vec<RunningBatch<'_, '_, '_, X, T>>,
    reports: &mut [Report],
) -> Result<Option<Duration>, Error> {
    let (mut moved, mut failed) = (false, None);
    running.retain_mut(|batch| {
        let Some(comm) = batch.comm.as_mut().filter(|_| failed.is_none()) else { return true };
        match batch.call.advance(comm, &mut batch.work) {
            Ok(Progress::Waiting) => true,
            Ok(Progress::Moved) => {
                moved = true;
                true
            }
            Ok(Progress::Finished) => {
                reports[batch.at] = batch.call.finish(comm);
                moved = true;
                false
            }
            Err(error) => {
                failed = Some(error);
                true
            }
        }
    });
    let rests = running.iter().map(|running| running.call.rest());
    match failed {
        Some(error) => {
            // Ranks that wait in any of the calls hear why.
            running.iter_mut().for_each(|batch| batch.error = failed);
            Err(error)
        }
        None if moved => Ok(None),
        None => Ok(Some(rests.min().unwrap_or(Duration::ZERO))),
    }
}
