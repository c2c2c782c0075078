//! Several arrays in one call: one look at all of them, then their calls at once.
//!
//! Each array has a bound of its own. The looks at their data that relative bounds need are one
//! exact all-reduce of four numbers for each array, in place of one after the other. Then as many
//! calls are under way as the communicator can hold. Every array ends with the bits of a call of
//! its own.
//!
//! Source: grouped calls of NCCL (`ncclGroupStart`); gradient buckets of data-parallel training.

use super::SharedCommunicator;
use crate::bound::{Bound, Extent};
use crate::collective::{Communicator, Request, Step, Underway, survey};
use crate::element::Element;
use crate::error::Error;
use crate::node::{Port, Seat};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::Collective;
use crate::transport::Transport;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefMut;
use core::time::Duration;

/// The call of one array, under way.
struct Running<'s, 'a, 'b, X: Transport, T: Element> {
    /// Which array's.
    at: usize,
    seat: &'s Seat<'a, X>,
    comm: RefMut<'s, Option<Communicator<Port<'a, X>>>>,
    call: Underway<'static, X::Frame, T>,
    request: Request<'b, 'static, T>,
}

impl<X: Transport, T: Element> Drop for Running<'_, '_, '_, X, T> {
    fn drop(&mut self) {
        if let Some(comm) = self.comm.as_mut() {
            self.call.give_up(comm, None);
        }
        self.seat.is_taken.set(false);
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Each array becomes the reduction of all ranks' arrays in its place, within a bound of its
    /// own; the plan says the rest. The same bits as by a call of [`all_reduce`](Self::all_reduce)
    /// for each, in less time: one look at all the data, and as many calls at once as there may be
    /// ([`n_calls`](Self::n_calls)). A report for each array.
    ///
    /// All ranks give as many arrays, of the same lengths and bounds.
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
        let plans: Vec<Plan> = arrays.iter().map(|(_, bound)| plan.with_bound(*bound)).collect();
        // What is wrong with one shows before anything is sent of another.
        for ((data, _), plan) in arrays.iter_mut().zip(&plans) {
            let request = Request::new(Collective::AllReduce, data.len()).op(op).in_place(data);
            self.check(&request, plan)?;
        }
        let (extents, look) = self.look(arrays, &plans)?;
        let mut reports = vec![Report::default(); arrays.len()];
        let mut waiting = arrays.iter_mut().zip(&plans).zip(extents).enumerate().peekable();
        let mut running: Vec<Running<'_, 'a, '_, X, T>> = Vec::new();
        loop {
            while waiting.peek().is_some() {
                let seat = match self.seat() {
                    Ok(seat) => seat,
                    // Until the oldest is done.
                    Err(Error::TooManyCalls { .. }) if !running.is_empty() => break,
                    Err(error) => return Err(error),
                };
                let Some((at, (((data, _), plan), extent))) = waiting.next() else { break };
                let request = Request::new(Collective::AllReduce, data.len()).op(op).in_place(data);
                let mut comm = seat.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
                let on = comm.as_mut().ok_or(Error::Poisoned)?;
                let call = Underway::start_knowing(on, &request, plan, extent.flatten())?;
                seat.is_taken.set(true);
                self.advance();
                running.push(Running { at, seat, comm, call, request });
            }
            if running.is_empty() {
                break;
            }
            if !advance_all(&mut running, &mut reports)? {
                let rests = running.iter().map(|running| running.call.rest());
                self.node.idle(rests.min().unwrap_or(Duration::ZERO));
            }
        }
        if let Some(first) = reports.first_mut() {
            *first += look;
        }
        Ok(reports)
    }

    /// The extents of all ranks' data, of each array whose bound needs it, and what the look cost.
    #[allow(clippy::type_complexity, reason = "a list and a report")]
    fn look<T: Element>(
        &self,
        arrays: &[(&mut [T], Bound)],
        plans: &[Plan],
    ) -> Result<(Vec<Option<Option<Extent>>>, Report), Error> {
        let level = self.node.config.level;
        let mut extents = vec![None; arrays.len()];
        let mut cost = Report::default();
        // By samples where that is allowed, then in full where they have missed much.
        for may_sample in [true, false] {
            let asked: Vec<(usize, bool)> = plans
                .iter()
                .enumerate()
                .filter(|(at, plan)| plan.needs_extent() && extents[*at].is_none())
                .map(|(at, plan)| (at, may_sample && plan.samples(arrays[at].0.len())))
                .collect();
            if asked.is_empty() {
                break;
            }
            let looks =
                asked.iter().map(|&(at, sampled)| survey::look(arrays[at].0, level, sampled));
            let mut values: Vec<f64> = looks.flatten().collect();
            cost += self.all_reduce(&mut values, Op::Max, &Plan::raw())?;
            for (&(at, sampled), seen) in asked.iter().zip(values.as_chunks().0) {
                extents[at] = survey::conclude(*seen, sampled);
            }
        }
        Ok((extents, cost))
    }
}

/// Advances each call by a bounded amount of work. Whether one moved.
fn advance_all<X: Transport, T: Element>(
    running: &mut Vec<Running<'_, '_, '_, X, T>>,
    reports: &mut [Report],
) -> Result<bool, Error> {
    let (mut moved, mut failed) = (false, None);
    running.retain_mut(|one| {
        let Some(comm) = one.comm.as_mut().filter(|_| failed.is_none()) else { return true };
        match one.call.advance(comm, &mut one.request) {
            Ok(Step::Waiting) => true,
            Ok(Step::Moved) => {
                moved = true;
                true
            }
            Ok(Step::Finished(report)) => {
                reports[one.at] = report;
                moved = true;
                false
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    });
    failed.map_or(Ok(moved), Err)
}
