//! Several arrays in one group call: one scan of all of them, then their calls side by side.
//!
//! Each array has its own bound. Relative bounds need scans of the data. A group exchanges the
//! scans of all arrays in one exact all-reduce, with six numbers for each array. Then it runs as
//! many calls at once as the communicator can hold. Each array gets the same bits as from a
//! separate call.
//!
//! *Progress.* The whole group is one task, from the scan to the last call. It advances when it is
//! polled.
//!
//! *Shared frames.* A schedule moves very short arrays whole. Consecutive arrays of this kind
//! become one call, up to the size of a frame. Each array is a part of that call, and its own codec
//! encodes it. One message then carries many arrays.
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
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::shared_transport::{CallSlot, Port, SharedTransport};
use crate::threads::Threads;
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

/// Arrays share a frame up to this many bytes, even if the group then has fewer calls than could
/// run at once.
const MIN_SHARED_BYTES: usize = 16 << 10;
/// Time to rest while calls outside the group hold all slots and do not move.
const REST: Duration = Duration::from_millis(1);
/// Largest number of arrays that share a frame.
const MAX_ARRAYS_PER_CALL: usize = 256;

/// Arrays of one call: a single array, or several that share frames.
struct GroupBatch<T> {
    arrays: Range<usize>,
    /// End of each array in `joined`; empty for a single array.
    ends: Vec<usize>,
    /// Values of all arrays, one after the other; empty for a single array.
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

    /// Copies the results of several arrays back to them.
    fn copy_results_to(&self, all: &mut [(&mut [T], Bound)]) {
        let starts = once(0).chain(self.ends.iter().copied());
        for ((data, _), start) in all[self.arrays.clone()].iter_mut().zip(starts) {
            if let Some(results) = self.joined.get(start..start + data.len()) {
                data.copy_from_slice(results);
            }
        }
    }
}

/// A running call of a batch.
struct RunningBatch<'s, 'a, 'b, X: Transport, T: Element> {
    /// Index of the batch's first array.
    at: usize,
    call_slot: &'s CallSlot<'a, X>,
    comm: RefMut<'s, Option<Communicator<Port<'a, X>>>>,
    call: CallState<'s>,
    work: Work<'b, 's, T>,
    /// Error that aborts the group's calls, if one of them has failed.
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
    /// Reduces several arrays in one call. Each array becomes the reduction of all ranks' arrays at
    /// its position, within its own bound. The plan supplies all other settings.
    ///
    /// The results have the same bits as separate calls of [`all_reduce`](Self::all_reduce), but
    /// take less time. One scan covers all data, up to [`n_calls`](Self::n_calls) calls run at
    /// once, and short arrays share frames. Returns a report for each array. Bytes, messages and
    /// times of arrays that share frames are in the report of the first of them.
    ///
    /// All ranks must pass the same number of arrays, with the same lengths and bounds. If the plan
    /// rounds without bias, each array has its own seed
    /// ([`Rounding::of_array`](crate::Rounding::of_array)).
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage). After
    /// any other error some arrays contain their results, and others may be partly overwritten.
    ///
    /// # Examples
    /// Average the gradients of layers, with an error of a thousandth of each layer's range:
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

    /// Same as [`all_reduce_group`](Self::all_reduce_group), with error feedback. `feedback` has a
    /// slice for each array, which holds the errors of earlier calls as in [`Call::with_feedback`].
    ///
    /// # Errors
    /// As [`all_reduce_group`](Self::all_reduce_group). Also the usage errors of
    /// [`Call::with_feedback`], and [`Error::Length`] unless there is one slice for each array.
    pub fn all_reduce_group_with_feedback<T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: &mut [&mut [T::Residue]],
        op: Op<'_, T>,
        plan: &Plan,
    ) -> Result<Vec<Report>, Error> {
        self.start_all_reduce_group_with_feedback(arrays, feedback, op, plan)?.wait()
    }

    /// Starts an [`all_reduce_group`](Self::all_reduce_group). It may take all call slots. Until it
    /// has finished, another call on this communicator fails with [`Error::TooManyCalls`].
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`].
    pub fn start_all_reduce_group<'g, T: Element>(
        &'g self,
        arrays: &'g mut [(&mut [T], Bound)],
        op: Op<'g, T>,
        plan: &Plan,
    ) -> Result<GroupCall<'g, 'a, X>, Error> {
        self.start_group(arrays, None, op, plan)
    }

    /// Starts an [`all_reduce_group_with_feedback`](Self::all_reduce_group_with_feedback).
    ///
    /// # Errors
    /// As [`start_all_reduce_group`](Self::start_all_reduce_group). Also the usage errors of
    /// [`Call::with_feedback`], and [`Error::Length`] unless there is one slice for each array.
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

    /// Starts a group call, with a slice of feedback for each array or without feedback.
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
        // Reject a bad array before anything is sent for another one.
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

    /// Runs a group call: scans the data, rounds it if the plan says so, and runs the calls.
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
        let value_ranges = value_ranges.into_iter().map(Option::flatten);
        let mut budgets = Vec::with_capacity(arrays.len());
        let mut suspected_fills = Vec::with_capacity(arrays.len());
        for ((spec, (values, _)), value_range) in spec.iter().zip(&*arrays).zip(value_ranges) {
            let budget = resolve(spec, value_range)?;
            suspected_fills.push(value_range::suspect_fill(values, value_range, budget.bound));
            budgets.push(budget);
        }
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
        let found = budgets.iter().zip(&suspected_fills).zip(&spec);
        for (((budget, suspected_fill), spec), report) in found.zip(&mut reports) {
            budget.note_in(report);
            report.suspected_fill = *suspected_fill;
            (report.schedule, report.codec) = (spec.schedule.name(), spec.plan.codec);
            report.plan = spec.choice;
        }
        if let Some(first) = reports.first_mut() {
            *first += scan_cost;
        }
        Ok(reports)
    }

    /// Rounds the arrays whose plans need a rounding pass.
    fn round<T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: Option<&mut [&mut [T::Residue]]>,
        spec: &[CallSpec<'_>],
        budgets: &[Budget],
    ) {
        let (rank, level) = (self.rank(), self.shared.config.level);
        let mut residues = feedback.into_iter().flatten();
        for (((values, _), spec), budget) in arrays.iter_mut().zip(spec).zip(budgets) {
            let residues = residues.next().map(|residues| &mut **residues);
            if let Some(pass) = spec.pass(budget.quantum, rank) {
                let threads = self.call_slots.iter().find_map(|slot| {
                    let comm = slot.comm.try_borrow().ok()?;
                    Some(comm.as_ref()?.threads(spec))
                });
                let pass = pass.on(threads.unwrap_or(Threads::ONE));
                pass.run(None, values, residues, level);
            }
        }
    }

    /// Runs calls, as many at once as possible. An entry of `calls` has the indices of a call's
    /// arrays, the ends of these arrays in the buffer (empty for a single array), and the buffer.
    /// Stores each call's report at the index of its first array.
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
                    // Wait for the oldest call.
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
            progress.until_moved(&self.shared, || advance_all(&mut running, reports)).await?;
        }
    }

    /// Drives the caller's other calls until one moves. Use it if those calls hold all slots, so
    /// that the group cannot go on. Other ranks may have begun the group already.
    async fn drive_others(&self, progress: &GroupProgress) -> Result<(), Error> {
        // Ignore an error of the transport here: each call also gets and reports it.
        let advance = || Ok((!self.shared.pass().unwrap_or(false)).then_some(REST));
        progress.until_moved(&self.shared, advance).await
    }

    /// Checks the call of each array, and finds the arrays that share a call: consecutive arrays
    /// that the schedule moves whole and that always fit a frame together.
    fn plan_calls<'s, T: Element>(
        &self,
        arrays: &mut [(&mut [T], Bound)],
        feedback: Option<&mut [&mut [T::Residue]]>,
        op: Op<'s, T>,
        plans: &[Plan],
    ) -> Result<(Vec<CallSpec<'s>>, Vec<Range<usize>>), Error> {
        let mut comm = self.call_slot()?.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let comm = comm.as_mut().ok_or(Error::Poisoned)?;
        let capacity = comm.transport.frame_capacity().saturating_sub(HEADER_BYTES);
        // Keep frames small enough for several calls: one call computes while another's frame is in
        // transit.
        let n_bytes: usize = arrays.iter().map(|(data, _)| data.len() * T::BYTES).sum();
        let capacity = capacity.min((n_bytes / self.n_calls()).max(MIN_SHARED_BYTES));
        let (mut spec, mut calls) = (Vec::<CallSpec<'_>>::new(), Vec::<Range<usize>>::new());
        // Largest possible payload of each array in the last call. The list is empty if the call's
        // only array is not moved whole. No other array can join that call.
        let mut lens = Vec::new();
        let mut feedback = feedback.into_iter().flatten();
        for (at, ((data, _), plan)) in arrays.iter_mut().zip(plans).enumerate() {
            let mut call = Call::all_reduce(&mut **data, op);
            let (mut request, _) = call.parts(comm.rank());
            request.n_residues = feedback.next().map(|residues| residues.len());
            let array_spec = comm.spec(&request, plan)?;
            let is_whole =
                array_spec.call.size > 1 && array_spec.schedule.n_parts(array_spec.call) == 1;
            let max_payload_bytes =
                array_spec.plan.max_payload_bytes(T::DTYPE, data.len()).filter(|_| is_whole);
            lens.extend(max_payload_bytes);
            let is_alike = |first: &CallSpec<'_>| {
                first.schedule.name() == array_spec.schedule.name()
                    && (first.call, first.plan.codec) == (array_spec.call, array_spec.plan.codec)
            };
            match calls.last_mut() {
                Some(call)
                    if max_payload_bytes.is_some()
                        && lens.len() == call.len() + 1
                        && lens.len() <= MAX_ARRAYS_PER_CALL
                        && is_alike(&spec[call.start])
                        && bundle::n_bytes(lens.iter().copied()) <= capacity =>
                {
                    call.end += 1;
                }
                _ => {
                    calls.push(at..at + 1);
                    lens.clear();
                    lens.extend(max_payload_bytes);
                }
            }
            spec.push(array_spec);
        }
        Ok((spec, calls))
    }

    /// Scans each array whose bound needs a value range. Returns the range of all ranks' data for
    /// each array: `None` if the array needs none, `Some(None)` if no value is finite. Also returns
    /// the cost of the scan.
    #[allow(clippy::type_complexity, reason = "a list and a report")]
    async fn scan_values<T: Element>(
        &self,
        arrays: &[(&mut [T], Bound)],
        spec: &[CallSpec<'_>],
        progress: &GroupProgress,
    ) -> Result<(Vec<Option<Option<ValueRange>>>, Report), Error> {
        let level = self.shared.config.level;
        let mut value_ranges = vec![None; arrays.len()];
        let mut cost = Report::default();
        // Scan samples where that is allowed, then all data where a sample missed too much.
        for may_sample in [true, false] {
            let requests: Vec<(usize, bool)> = spec
                .iter()
                .map(|spec| &spec.plan)
                .enumerate()
                .filter(|(at, plan)| plan.needs_value_range() && value_ranges[*at].is_none())
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

    /// Replaces values by the maxima over all ranks, exactly.
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
            progress.until_moved(&self.shared, || advance_all(&mut running, &mut reports)).await?;
        }
        drop(running);
        let [report] = reports;
        Ok(report)
    }
}

/// Remaining work of a group call.
type GroupTask<'g> = Pin<Box<dyn Future<Output = Result<Vec<Report>, Error>> + 'g>>;

/// A running call on several arrays; see [`SharedCommunicator::all_reduce_group`].
///
/// [`wait`](Self::wait) for it, or `.await` it. It advances when it is polled. Dropping it
/// unfinished aborts it on all ranks and poisons the communicator.
#[must_use = "a dropped call is aborted"]
pub struct GroupCall<'g, 'a, X: Transport + 'a> {
    comm: &'g SharedCommunicator<'a, X>,
    /// `None` once the task has returned its result.
    task: Option<GroupTask<'g>>,
    progress: Rc<GroupProgress>,
}

impl<X: Transport> GroupCall<'_, '_, X> {
    /// Drives the call to its end.
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
                self.comm.shared.idle(rest);
            }
        }
    }
}

/// Stays pending forever after it has returned its result.
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
        // Dropping the task aborts its running calls.
        drop(task);
        self.comm.is_in_group.set(false);
        // If no call was running, begin a call and abort it, so that the other ranks learn of the
        // drop.
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

/// Facts that a group call's task exchanges with the code that polls it.
#[derive(Default)]
struct GroupProgress {
    /// True if the caller blocks in [`GroupCall::wait`], which rests between polls. The task then
    /// registers no waker.
    blocks: Cell<bool>,
    /// Time to rest before the next poll. `None` if something moved.
    rest: Cell<Option<Duration>>,
}

impl GroupProgress {
    /// Calls `advance` in each poll until something moves, and returns in the next poll. `advance`
    /// returns how long to rest if nothing moved.
    async fn until_moved<X: Transport>(
        &self,
        shared: &SharedTransport<'_, X>,
        mut advance: impl FnMut() -> Result<Option<Duration>, Error>,
    ) -> Result<(), Error> {
        let mut has_moved = false;
        poll_fn(|context| {
            if has_moved {
                return Poll::Ready(Ok(()));
            }
            let mut rest = advance()?;
            if rest.is_some() && !self.blocks.get() && shared.register(context.waker()) {
                // Try again: a frame may have arrived before the waker was registered.
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

/// Advances each call by a bounded amount of work. Returns how long to rest if none moved.
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
            // When a batch is dropped, it sends this error to the ranks that wait in its call.
            running.iter_mut().for_each(|batch| batch.error = failed);
            Err(error)
        }
        None if moved => Ok(None),
        None => Ok(Some(rests.min().unwrap_or(Duration::ZERO))),
    }
}
