//! Calls with error feedback: what rounding loses of a value is added to the value of the next
//! call.
//!
//! The caller keeps what is lost, a number for each of its own values, zeros at first. A call adds
//! it to the values x, rounds the sums to points of the lattice, moves those, and leaves what that
//! has lost: x̂ = round(x + e), e ← x + e − x̂. So over many calls Σx̂ = Σx + e₀ − e: errors do not
//! add up, however coarse the bound.
//!
//! Source: F. Seide et al., "1-bit stochastic gradient descent" (Interspeech 2014); S. P.
//! Karimireddy et al., "Error feedback fixes SignSGD" (ICML 2019).

use super::{Call, Communicator, Operation};
use crate::element::Element;
use crate::error::Error;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::Collective;
use crate::transport::Transport;

impl<X: Transport> Communicator<X> {
    /// As [`all_reduce`](Self::all_reduce), with error feedback: `feedback` holds what earlier
    /// calls lost of each of this rank's values, zeros at first, and is added to them. What this
    /// call loses takes its place.
    ///
    /// Over many calls the sum of results then stays within one call's [`Report::worst_case`] of
    /// the exact one, but for rounding in the type itself. Bound and worst case of a report are of
    /// values with the feedback added. A value that is not finite goes as it is, and what was lost
    /// before is kept for the next call. With a plan that loses nothing, what was lost before is
    /// sent, as far as the type holds it.
    ///
    /// For floats of 16 bits `feedback` is of `f32`.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable. Among them
    /// [`Error::NoLattice`], [`Error::FeedbackOnResult`], and [`Error::Length`] unless `feedback`
    /// is as long as `data`.
    ///
    /// # Examples
    /// Gradients in `bf16` to a tenth of their range:
    /// ```
    /// use foldwire::{Bound, Communicator, Error, Op, Plan, Transport, bf16};
    ///
    /// fn average<X: Transport>(
    ///     comm: &mut Communicator<X>,
    ///     gradient: &mut [bf16],
    ///     feedback: &mut [f32],
    /// ) -> Result<(), Error> {
    ///     let plan = Plan::foldwire(Bound::Relative(0.1));
    ///     comm.all_reduce_with_feedback(gradient, feedback, Op::Avg, &plan)?;
    ///     Ok(())
    /// }
    /// ```
    pub fn all_reduce_with_feedback<'a, T: Element>(
        &'a mut self,
        data: &'a mut [T],
        feedback: &'a mut [T::Residue],
        op: Op<'a, T>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        Operation::run(self, all_reduce(data, feedback, op), plan)
    }

    /// Starts what [`all_reduce_with_feedback`](Self::all_reduce_with_feedback) does.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    pub fn start_all_reduce_with_feedback<'a, T: Element>(
        &'a mut self,
        data: &'a mut [T],
        feedback: &'a mut [T::Residue],
        op: Op<'a, T>,
        plan: &Plan,
    ) -> Result<Operation<'a, X, T>, Error> {
        Operation::new(self, all_reduce(data, feedback, op), plan)
    }

    /// As [`reduce_scatter_to_front`](Self::reduce_scatter_to_front), with error feedback as
    /// [`all_reduce_with_feedback`](Self::all_reduce_with_feedback) has it.
    ///
    /// # Errors
    /// As [`all_reduce_with_feedback`](Self::all_reduce_with_feedback).
    pub fn reduce_scatter_with_feedback<'a, T: Element>(
        &'a mut self,
        data: &'a mut [T],
        feedback: &'a mut [T::Residue],
        op: Op<'a, T>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        Operation::run(self, reduce_scatter(data, feedback, op), plan)
    }

    /// Starts what [`reduce_scatter_with_feedback`](Self::reduce_scatter_with_feedback) does.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    pub fn start_reduce_scatter_with_feedback<'a, T: Element>(
        &'a mut self,
        data: &'a mut [T],
        feedback: &'a mut [T::Residue],
        op: Op<'a, T>,
        plan: &Plan,
    ) -> Result<Operation<'a, X, T>, Error> {
        Operation::new(self, reduce_scatter(data, feedback, op), plan)
    }
}

fn all_reduce<'a, T: Element>(
    data: &'a mut [T],
    feedback: &'a mut [T::Residue],
    op: Op<'a, T>,
) -> Call<'a, 'a, T> {
    let call = Call::new(Collective::AllReduce, data.len());
    call.op(op).in_place(data).with_feedback(feedback)
}

fn reduce_scatter<'a, T: Element>(
    data: &'a mut [T],
    feedback: &'a mut [T::Residue],
    op: Op<'a, T>,
) -> Call<'a, 'a, T> {
    let call = Call::new(Collective::ReduceScatter, data.len());
    call.op(op).in_place(data).in_front().with_feedback(feedback)
}
