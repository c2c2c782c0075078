//! An all-reduce of two levels: exact inside a node, compressed between nodes.
//!
//! Three calls: a reduce-scatter of floats among the ranks of each node, an all-reduce of each
//! rank's share with the ranks of the same place in the other nodes, an all-gather of floats in the
//! node. With k ranks in each of N nodes, each rank sends 2·m/k·(N − 1)/N between nodes, all
//! together 2·m·(N − 1); a ring through all ranks takes 2·m·(n − 1)/n over each of its N links
//! between nodes if neighbours share nodes, and over all n if not.
//!
//! *Bound.* What is encoded are sums of k operands, once for each node. So they may be k times as
//! far off as an operand, and a sum of all n is still within n·eb; averages of nodes, minima and
//! maxima may be off by eb, as the result.
//!
//! Source: hierarchical all-reduces of MPI libraries and NCCL; compression between nodes only as in
//! MPC-OPT (docs/algorithms.md).

use super::SharedCommunicator;
use crate::bound::{Bound, Extent, Scope};
use crate::collective::survey;
use crate::element::Element;
use crate::error::Error;
use crate::op::{Op, OpCode};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::{Rank, Transport};

/// The communicators of an all-reduce of two levels; see [`SharedCommunicator::two_levels`].
#[derive(Debug)]
pub struct TwoLevels<'a, X: Transport + 'a> {
    all: SharedCommunicator<'a, X>,
    /// The ranks of this node.
    node: SharedCommunicator<'a, X>,
    /// The ranks of the same place in each node; none if nodes have different numbers of ranks.
    across: Option<SharedCommunicator<'a, X>>,
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Communicators for all-reduces that compress between nodes only, by what the transport says
    /// of its [links](Transport::distance). All ranks call it together, between the same two calls.
    ///
    /// # Errors
    /// As [`split`](Self::split): three communicators of one call each are made.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Error, Op, Plan, SharedCommunicator, Transport};
    ///
    /// fn sum<X: Transport>(world: &SharedCommunicator<'_, X>, x: &mut [f32]) -> Result<(), Error> {
    ///     let levels = world.two_levels()?;
    ///     levels.all_reduce(x, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;
    ///     Ok(())
    /// }
    /// ```
    pub fn two_levels(&self) -> Result<TwoLevels<'a, X>, Error> {
        let all = self.duplicate(1)?;
        // A node is known by its lowest rank.
        let is_near = |&rank: &Rank| {
            let outer = self.transport_rank(rank);
            rank == self.rank || outer.is_some_and(|outer| self.node.is_near(outer))
        };
        let lowest = (0..self.size()).map(Rank::new).find(is_near).unwrap_or(self.rank);
        let node = self.split(Some(lowest.0), 0, 1)?.ok_or(Error::Internal)?;
        let mut sizes = [node.size() as f64, -(node.size() as f64)];
        self.all_reduce(&mut sizes, Op::Max, &Plan::raw())?;
        let are_alike = sizes[0] == -sizes[1];
        let across = self.split(are_alike.then_some(node.rank().0), 0, 1)?;
        Ok(TwoLevels { all, node, across })
    }
}

impl<'a, X: Transport + 'a> TwoLevels<'a, X> {
    /// The ranks of this node.
    pub const fn node(&self) -> &SharedCommunicator<'a, X> {
        &self.node
    }

    /// The ranks of the same place in each node, this one among them; `None` if nodes have
    /// different numbers of ranks.
    pub const fn across(&self) -> Option<&SharedCommunicator<'a, X>> {
        self.across.as_ref()
    }

    /// `data` becomes the reduction of all ranks' `data`, the same bits on every rank: by floats
    /// inside a node, and by this plan between nodes. Where all ranks share a node all of it is
    /// exact; where nodes have different numbers of ranks, or the bound is on the result
    /// ([`Scope::Result`]), it is one call among all ranks.
    ///
    /// Ranks of one node that ask for different bounds are not told; those of different nodes are.
    ///
    /// # Errors
    /// As [`SharedCommunicator::all_reduce`].
    pub fn all_reduce<T: Element>(
        &self,
        data: &mut [T],
        op: Op<'_, T>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        let Some(across) = self.across.as_ref().filter(|_| plan.scope == Scope::PerOperand) else {
            return self.all.all_reduce(data, op, plan);
        };
        if across.size() == 1 || self.node.size() == 1 {
            let plan = if across.size() == 1 { &Plan::raw() } else { plan };
            return self.all.all_reduce(data, op, plan);
        }
        let (bound, mut report) = self.bound_of_operands(data, plan)?;
        let n_summed = if op.code() == OpCode::Sum { self.node.size() as f64 } else { 1.0 };
        let plan = match bound {
            None => *plan,
            // Of constant data only what is lossless is within a thousandth of the range.
            Some(0.0) => Plan { bound: None, ..*plan },
            Some(bound) => plan.with_bound(Bound::Absolute(bound * n_summed)),
        };
        report += self.node.reduce_scatter_in_place(data, op, &Plan::raw())?;
        let share = self.node.share(data.len());
        let between = across.all_reduce(&mut data[share], op, &plan)?;
        report += between;
        report += self.node.all_gather_in_place(data, &Plan::raw())?;
        Ok(Report { bound: between.bound / n_summed, worst_case: between.worst_case, ..report })
    }

    /// The plan's bound as an absolute one, from the range of all ranks' data; `None` if there is
    /// none, or it is one already.
    fn bound_of_operands<T: Element>(
        &self,
        data: &[T],
        plan: &Plan,
    ) -> Result<(Option<f64>, Report), Error> {
        let Some(bound) = plan.bound.filter(|_| !plan.codec.is_exact()) else {
            return Ok((None, Report::default()));
        };
        if !bound.needs_extent() {
            return Ok((Some(bound.absolute(None)?), Report::default()));
        }
        // Whatever is wrong with it shows before anything is sent.
        bound.absolute(None)?;
        let mut seen = survey::look(data, self.all.node.config.level, false);
        let report = self.all.all_reduce(&mut seen, Op::Max, &Plan::raw())?;
        let extent: Option<Extent> = survey::conclude(seen, false).flatten();
        Ok((Some(bound.absolute(extent)?), report))
    }
}
