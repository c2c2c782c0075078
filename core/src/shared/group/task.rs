//! The task of a group call: scans all arrays, and runs their calls.

use super::super::driven::{CallWork, Driven};
use super::SharedCommunicator;
use crate::bound::{Bound, ValueRange};
use crate::budget::{Budget, resolve};
use crate::call_spec::CallSpec;
use crate::collective::value_range::{self, UNKNOWN};
use crate::collective::{Call, CallState, Communicator, Request};
use crate::element::Element;
use crate::engine::Work;
use crate::error::{Error, FillError};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::shared_transport::{CallSlot, Drive, Port, SharedTransport};
use crate::threads::Threads;
use crate::transport::Transport;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::poll_fn;
use core::iter::once;
use core::ops::Range;
use core::task::Poll;
use core::time::Duration;

/// Time to rest while calls outside the group hold all slots and do not move.
const REST: Duration = Duration::from_millis(1);

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

/// Calls of a group that run side by side.
#[derive(Default)]
struct RunningBatches<'r> {
    calls: Vec<Box<dyn Drive + 'r>>,
    /// Index of the first array of each call.
    at: Vec<usize>,
}

impl RunningBatches<'_> {
    /// Advances each call by a bounded amount of work, and takes the reports of those that finish.
    /// Returns how long to rest if none moved.
    fn advance<X: Transport>(
        &mut self,
        shared: &SharedTransport<'_, X>,
        reports: &mut [Report],
    ) -> Result<Option<Duration>, Error> {
        let rest = shared.pass_with(&mut self.calls)?;
        while let Some(ended) = self.calls.iter().position(|call| call.is_finished()) {
            let call = self.calls.remove(ended);
            reports[self.at.remove(ended)] = call.outcome().unwrap_or(Err(Error::Internal))?;
        }
        Ok(rest)
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Runs a group call: scans the data, rounds it if the plan says so, and runs the calls.
    pub(super) async fn group<'g, T: Element>(
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
            let value_range = value_range.filter(|_| spec.plan.may_suspect_fill());
            suspected_fills.push(value_range::suspect_fill([&**values], value_range, budget.bound));
            budgets.push(budget);
        }
        if spec.iter().any(|spec| spec.plan.refuses_fill && spec.plan.may_suspect_fill()) {
            let largest = suspected_fills.iter().flatten().copied().fold(UNKNOWN, f64::max);
            let mut all = [largest];
            self.maxima(&mut all, &progress).await?;
            if all[0] > UNKNOWN {
                return Err(FillError::Suspected { value: all[0] }.into());
            }
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
            if let Some(pass) = budget.pass(spec, rank) {
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
        let mut running = RunningBatches::default();
        loop {
            while waiting.peek().is_some() {
                let call_slot = match self.next_slot() {
                    Ok(call_slot) => call_slot,
                    // Wait for the oldest call.
                    Err(Error::TooManyCalls { .. }) => break,
                    Err(error) => return Err(error),
                };
                let Some((arrays, ends, data)) = waiting.next() else { break };
                running.at.push(arrays.start);
                let (spec, budgets) = (spec[arrays.start], &budgets[arrays]);
                running.calls.push(self.start_batch(
                    call_slot,
                    (data, op),
                    |comm, request, work| {
                        CallState::start_group(comm, request, work, spec, ends, budgets)
                    },
                )?);
            }
            if running.calls.is_empty() {
                if waiting.peek().is_none() {
                    return Ok(());
                }
                self.drive_others(progress).await?;
                continue;
            }
            progress.until_moved(|| running.advance(&self.shared, reports)).await?;
        }
    }

    /// Starts a call of the group on a slot.
    fn start_batch<'r, T: Element>(
        &self,
        call_slot: &Rc<CallSlot<'a, X>>,
        (data, op): (&'r mut [T], Op<'r, T>),
        start: impl FnOnce(
            &mut Communicator<Port<'a, X>>,
            Request<'r>,
            &mut Work<'r, 'r, T>,
        ) -> Result<CallState<'r>, Error>,
    ) -> Result<Box<dyn Drive + 'r>, Error>
    where
        'a: 'r,
    {
        let work = call_slot.with(|comm| {
            let (request, mut buffers) = Call::all_reduce(data, op).into_parts(comm.rank());
            Ok(CallWork { call_state: start(comm, request, &mut buffers)?, buffers })
        })?;
        self.advance();
        Ok(Box::new(Driven::call(call_slot, work)))
    }

    /// Drives the caller's other calls until one moves. Use it if those calls hold all slots, so
    /// that the group cannot go on. Other ranks may have begun the group already.
    async fn drive_others(&self, progress: &GroupProgress) -> Result<(), Error> {
        // Ignore an error of the transport here: each call also gets and reports it.
        let advance = || Ok((!self.shared.pass().unwrap_or(false)).then_some(REST));
        progress.until_moved(advance).await
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
            let scans = requests.iter().map(|&(at, sampled)| {
                let fill = spec[at].plan.fill;
                value_range::scan_values(arrays[at].0, level, sampled, fill)
            });
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
        let call_slot = loop {
            match self.next_slot() {
                Err(Error::TooManyCalls { .. }) => self.drive_others(progress).await?,
                call_slot => break call_slot?,
            }
        };
        let call = self.start_batch(call_slot, (values, Op::Max), |comm, request, work| {
            CallState::start(comm, request, work, &Plan::raw())
        })?;
        let mut running = RunningBatches { calls: vec![call], at: vec![0] };
        let mut reports = [Report::default()];
        while !running.calls.is_empty() {
            progress.until_moved(|| running.advance(&self.shared, &mut reports)).await?;
        }
        let [report] = reports;
        Ok(report)
    }
}

/// Tells the code that polls a group call whether its task moved.
#[derive(Default)]
pub(super) struct GroupProgress {
    /// Time to rest before the next poll. `None` if something moved.
    rest: Cell<Option<Duration>>,
}

impl GroupProgress {
    /// Returns whether nothing moved in the last poll.
    pub(super) const fn rests(&self) -> bool {
        self.rest.get().is_some()
    }

    /// Returns how long to rest before the next poll.
    pub(super) fn rest(&self) -> Duration {
        self.rest.get().unwrap_or_default()
    }

    /// Calls `advance` in each poll until something moves, and returns in the next poll. `advance`
    /// returns how long to rest if nothing moved.
    async fn until_moved(
        &self,
        mut advance: impl FnMut() -> Result<Option<Duration>, Error>,
    ) -> Result<(), Error> {
        let mut has_moved = false;
        poll_fn(|_| {
            if has_moved {
                return Poll::Ready(Ok(()));
            }
            let rest = advance()?;
            self.rest.set(rest);
            has_moved = rest.is_none();
            Poll::Pending
        })
        .await
    }
}
