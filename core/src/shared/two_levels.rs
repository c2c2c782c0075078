//! Communicators that know which ranks share a node, so that long arrays move in two levels: inside
//! nodes and between nodes. Between nodes they move as few bytes as possible, on all links at once.
//! Reductions are exact inside a node and compressed between nodes.
//!
//! Ranks are numbered node by node. A single number, the ranks of a node, then describes all nodes,
//! and a [schedule](crate::schedule::TwoLevels) can be a pure function of it. Partial sums stay
//! floats between ranks of a node, if one rank completes each part
//! ([`ProgramSpec::by`](crate::schedule::ProgramSpec::by)). Complete sums are encoded once and
//! travel encoded, so that all ranks hold the same bits. If complete sums travelled as floats, some
//! ranks would round averages differently.
//!
//! *Bound.* [`TwoLevels`](crate::schedule::TwoLevels) encodes sums of the k operands of a node.
//! Their error may be k times the error bound of an operand, so a sum of all n operands stays
//! within n·eb.
//!
//! Source: hierarchical all-reduces of MPI libraries and NCCL; compression between nodes only as in
//! MPC-OPT (docs/algorithms.md).

use super::{SharedCommunicator, Split};
use crate::error::Error;
use crate::transport::{Rank, Transport};

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Creates a communicator of the same ranks that knows which ranks share a node. It runs up to
    /// `n_calls` calls at once, at least one. The transport declares the nodes through
    /// [`Transport::distance`].
    ///
    /// *Schedules.* All-reduces of long arrays then use [two levels](crate::schedule::TwoLevels).
    /// On slow links the other collectives do too, except scans. An all-to-all uses two levels for
    /// short arrays instead ([`select`](crate::select)).
    ///
    /// Reductions are exact inside a node and compressed between nodes. Data that are only moved
    /// cross between nodes once, on the links of all ranks side by side.
    ///
    /// *Ranks* are numbered node by node, in the order of each node's lowest rank here. All ranks
    /// must call this between the same two calls.
    ///
    /// If all ranks share a node, all-reduces are exact with any plan. If nodes have different
    /// numbers of ranks, the result is a [`duplicate`](Self::duplicate). Communicators made from
    /// the result do not know the nodes.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Error, Op, Plan, SharedCommunicator, Transport};
    ///
    /// fn sum<X: Transport>(comm: &SharedCommunicator<'_, X>, x: &mut [f32]) -> Result<(), Error> {
    ///     let levels = comm.two_levels(1)?;
    ///     levels.all_reduce(x, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;
    ///     Ok(())
    /// }
    /// ```
    pub fn two_levels(&self, n_calls: usize) -> Result<Self, Error> {
        self.start_two_levels(n_calls)?.wait()?.ok_or(Error::Internal)
    }

    /// Starts a [`two_levels`](Self::two_levels). Every rank gets a communicator.
    ///
    /// # Errors
    /// As [`start_split`](Self::start_split).
    pub fn start_two_levels(&self, n_calls: usize) -> Result<Split<'_, 'a, X>, Error> {
        let near = || (0..self.size()).map(Rank::new).filter(|&rank| self.is_near(rank));
        // The lowest rank identifies a node.
        let lowest = near().next().unwrap_or(self.rank);
        self.start_split_on_nodes(Some(0), lowest.0 as i32, n_calls, near().count() as u32)
    }

    /// Records that each group of this many consecutive ranks shares a node.
    pub(super) fn set_ranks_per_node(&self, n_on_node: usize) -> Result<(), Error> {
        for call_slot in self.call_slots.iter() {
            call_slot.with(|comm| {
                comm.ranks_per_node = n_on_node;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Number of consecutive ranks that share a node, if [`two_levels`](Self::two_levels) made this
    /// communicator and found equal nodes; else 1.
    #[must_use]
    pub fn ranks_per_node(&self) -> usize {
        let first = self.call_slots.first().and_then(|call_slot| call_slot.comm.try_borrow().ok());
        first.and_then(|comm| comm.as_ref().map(|comm| comm.ranks_per_node)).unwrap_or(1)
    }

    /// Returns whether `rank` is this rank, or shares its node.
    fn is_near(&self, rank: Rank) -> bool {
        let outer = self.transport_rank(rank);
        rank == self.rank || outer.is_some_and(|outer| self.shared.is_near(outer))
    }
}
