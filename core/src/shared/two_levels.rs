//! An all-reduce of two levels: exact inside a node, compressed between nodes.
//!
//! Three calls: a reduce-scatter of floats among the ranks of each node, an all-reduce of each
//! rank's share with the ranks of the same place in the other nodes, an all-gather of floats in the
//! node. A long array is cut into pieces, each of which makes its three calls on channels of its
//! own, so that what happens inside nodes overlaps with what travels between them.
//!
//! With k ranks in each of N nodes, each rank sends 2·m/k·(N − 1)/N between nodes, all
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
use crate::collective::{Request, Step, Underway, survey};
use crate::element::Element;
use crate::error::Error;
use crate::op::{Op, OpCode};
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::Collective;
use crate::transport::{Rank, Transport};
use alloc::vec::Vec;
use core::time::Duration;

/// Pieces of an array that is long enough.
const N_PIECES: usize = 4;
/// Values that a piece has at least.
const MIN_PIECE: usize = 1 << 16;

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
    /// As [`split`](Self::split): communicators of one, four and four calls are made.
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
        let node = self.split(Some(lowest.0), 0, N_PIECES)?.ok_or(Error::Internal)?;
        let mut sizes = [node.size() as f64, -(node.size() as f64)];
        self.all_reduce(&mut sizes, Op::Max, &Plan::raw())?;
        let are_alike = sizes[0] == -sizes[1];
        let across = self.split(are_alike.then_some(node.rank().0), 0, N_PIECES)?;
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
        let request = Request::new(Collective::AllReduce, data.len()).op(op).in_place(&mut *data);
        across.check(&request, plan)?;
        let (bound, mut report) = self.bound_of_operands(data, plan)?;
        let n_summed = if op.code() == OpCode::Sum { self.node.size() as f64 } else { 1.0 };
        let plan = match bound {
            None => *plan,
            // Of constant data only what is lossless is within a thousandth of the range.
            Some(0.0) => Plan { bound: None, ..*plan },
            Some(bound) => plan.with_bound(Bound::Absolute(bound * n_summed)),
        };
        let n_pieces = (data.len() / MIN_PIECE).clamp(1, N_PIECES);
        let mut pieces = Vec::new();
        let mut rest = data;
        for at in 0..n_pieces {
            let piece;
            (piece, rest) = rest.split_at_mut(rest.len() / (n_pieces - at));
            pieces.push(Piece { data: piece, call: None, level: 0 });
        }
        let plans = [Plan::raw(), plan, Plan::raw()];
        let mut run = Run { levels: [&self.node, across, &self.node], op, plans, pieces };
        let (between, cost) = run.finish()?;
        report += cost;
        let bound = between.bound / n_summed;
        Ok(Report { bound, worst_case: between.worst_case, ..report })
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
        let mut seen = survey::look(data, self.all.node.config.level, false);
        let report = self.all.all_reduce(&mut seen, Op::Max, &Plan::raw())?;
        let extent: Option<Extent> = survey::conclude(seen, false).flatten();
        Ok((Some(bound.absolute(extent)?), report))
    }
}

/// A piece of the array, and the call that it is in.
struct Piece<'b, F, T: Element> {
    data: &'b mut [T],
    call: Option<Underway<'static, F, T>>,
    /// Which of the three calls is its next one.
    level: usize,
}

/// An all-reduce under way: each piece on the seat of its number.
struct Run<'s, 'a, 'b, X: Transport + 'a, T: Element> {
    levels: [&'s SharedCommunicator<'a, X>; 3],
    op: Op<'b, T>,
    plans: [Plan; 3],
    pieces: Vec<Piece<'b, X::Frame, T>>,
}

impl<'a, X: Transport + 'a, T: Element> Run<'_, 'a, '_, X, T> {
    /// Makes all calls; what one between nodes reports, and what all cost.
    fn finish(&mut self) -> Result<(Report, Report), Error> {
        let (mut between, mut cost) = (Report::default(), Report::default());
        loop {
            let (mut moved, mut is_done) = (false, true);
            for at in 0..self.pieces.len() {
                let level = self.pieces[at].level;
                if level == self.levels.len() {
                    continue;
                }
                is_done = false;
                match self.advance(at)? {
                    Step::Waiting => {}
                    Step::Moved => moved = true,
                    Step::Finished(report) => {
                        moved = true;
                        if level == 1 {
                            between = report;
                        }
                        cost += report;
                        self.pieces[at].call = None;
                        self.pieces[at].level += 1;
                    }
                }
            }
            if is_done {
                return Ok((between, cost));
            }
            if !moved {
                let calls = self.pieces.iter().filter_map(|piece| piece.call.as_ref());
                let rest = calls.map(Underway::rest).min().unwrap_or(Duration::ZERO);
                self.levels[0].node.idle(rest);
            }
        }
    }

    /// Advances the call of a piece.
    fn advance(&mut self, at: usize) -> Result<Step, Error> {
        let Piece { data, call, level } = &mut self.pieces[at];
        let on = self.levels[*level];
        let seat = on.seats.get(at).ok_or(Error::Internal)?;
        let mut comm = seat.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let comm = comm.as_mut().ok_or(Error::Poisoned)?;
        let share = self.levels[0].share(data.len());
        let (collective, data) = match *level {
            0 => (Collective::ReduceScatter, &mut **data),
            1 => (Collective::AllReduce, &mut data[share]),
            _ => (Collective::AllGather, &mut **data),
        };
        let request = Request::new(collective, data.len());
        let request = if collective.reduces() { request.op(self.op) } else { request };
        let mut request = request.in_place(data);
        let call = match call {
            Some(call) => call,
            none => none.insert(Underway::start(comm, &request, &self.plans[*level])?),
        };
        call.advance(comm, &mut request)
    }
}

/// What is not done is given up.
impl<X: Transport, T: Element> Drop for Run<'_, '_, '_, X, T> {
    fn drop(&mut self) {
        for (at, piece) in self.pieces.iter_mut().enumerate() {
            let Some(mut call) = piece.call.take() else { continue };
            let seat = self.levels.get(piece.level).and_then(|level| level.seats.get(at));
            if let Some(Ok(mut comm)) = seat.map(|seat| seat.comm.try_borrow_mut())
                && let Some(comm) = comm.as_mut()
            {
                call.give_up(comm, None);
            }
        }
    }
}
