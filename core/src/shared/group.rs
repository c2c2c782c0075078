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

mod task;

use super::SharedCommunicator;
use crate::bound::Bound;
use crate::bundle;
use crate::call_spec::CallSpec;
use crate::collective::Call;
use crate::element::Element;
use crate::error::{Buffer, Error};
use crate::frame::HEADER_BYTES;
use crate::handle::{Advance, Handle, Progress};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::mem;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use task::GroupProgress;

/// Arrays share a frame up to this many bytes, even if the group then has fewer calls than could
/// run at once.
const MIN_SHARED_BYTES: usize = 16 << 10;
/// Largest number of arrays that share a frame.
const MAX_ARRAYS_PER_CALL: usize = 256;

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
        Ok(Handle(RunningGroup { comm: self, task: Some(task), progress, reports: Vec::new() }))
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
}

/// Remaining work of a group call.
type GroupTask<'g> = Pin<Box<dyn Future<Output = Result<Vec<Report>, Error>> + 'g>>;

/// A running call on several arrays; see [`SharedCommunicator::all_reduce_group`]. It advances when
/// it is polled. Dropping it unfinished aborts it on all ranks and poisons the communicator.
pub type GroupCall<'g, 'a, X> = Handle<RunningGroup<'g, 'a, X>>;

/// State of a call on several arrays, and its communicator.
pub struct RunningGroup<'g, 'a, X: Transport + 'a> {
    comm: &'g SharedCommunicator<'a, X>,
    /// `None` once the task has ended.
    task: Option<GroupTask<'g>>,
    progress: Rc<GroupProgress>,
    /// Reports of the finished task.
    reports: Vec<Report>,
}

impl<X: Transport> Advance for RunningGroup<'_, '_, X> {
    type Output = Result<Vec<Report>, Error>;

    fn advance(&mut self) -> Result<Progress, Error> {
        let task = self.task.as_mut().ok_or(Error::Finished)?;
        let Poll::Ready(ended) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return Ok(if self.progress.rests() { Progress::Waiting } else { Progress::Moved });
        };
        self.task = None;
        self.comm.is_in_group.set(false);
        self.reports = ended?;
        Ok(Progress::Finished)
    }

    fn output(&mut self, ended: Result<(), Error>) -> Self::Output {
        ended.map(|()| mem::take(&mut self.reports))
    }

    fn idle(&mut self) {
        self.comm.shared.idle(self.progress.rest());
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.comm.shared.register(waker)
    }
}

impl<X: Transport> Drop for RunningGroup<'_, '_, X> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        // Dropping the task aborts its running calls.
        drop(task);
        self.comm.is_in_group.set(false);
        // If no call was running, abort one on a free slot, so that the other ranks learn of the
        // drop. Other calls may have taken the next slot.
        if !self.comm.is_poisoned()
            && let Some(free) = self.comm.call_slots.iter().find(|slot| !slot.is_taken.get())
        {
            free.fail(None);
        }
    }
}

impl<X: Transport> fmt::Debug for RunningGroup<'_, '_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call of several arrays")
    }
}
