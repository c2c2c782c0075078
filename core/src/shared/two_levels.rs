//! Communicators that know which ranks share a node, so that long arrays take two levels: between
//! nodes as little as need be, on all links at once; reductions exact inside a node, and compressed
//! between nodes.
//!
//! Ranks are numbered node by node. Then what is near is said by one number, and a
//! [schedule](crate::schedule::TwoLevels) can be a pure function of it. Sums that are not complete
//! stay floats between ranks of a node, whatever the schedule; what is complete is encoded, and
//! travels so, so that all ranks hold the same bits.
//!
//! *Bound.* What [`TwoLevels`](crate::schedule::TwoLevels) encodes are sums of a node's k operands.
//! So they may be k times as far off as an operand, and a sum of all n is still within n·eb.
//!
//! Source: hierarchical all-reduces of MPI libraries and NCCL; compression between nodes only as in
//! MPC-OPT (docs/algorithms.md).

use super::{SharedCommunicator, Split};
use crate::error::Error;
use crate::transport::{Rank, Transport};

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// A communicator of the same ranks for `n_calls` calls at once, whose all-reduces of long
    /// arrays take [two levels](crate::schedule::TwoLevels), and so do the other collectives but
    /// scans where links take long, and all-to-alls of short arrays ([`select`](crate::select)); by
    /// what the transport says of its [links](Transport::distance). Reductions are then exact
    /// inside a node and compressed between nodes, and what only moves crosses between nodes once,
    /// on all their ranks' links side by side. Ranks are numbered node by node, in the order of
    /// each node's lowest rank here. All ranks call it together, between the same two calls.
    ///
    /// Where all ranks share a node, all-reduces by any plan are exact. Where nodes have different
    /// numbers of ranks, it is as [`duplicate`](Self::duplicate). Communicators made of it know
    /// nothing of nodes.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Error, Op, Plan, SharedCommunicator, Transport};
    ///
    /// fn sum<X: Transport>(world: &SharedCommunicator<'_, X>, x: &mut [f32]) -> Result<(), Error> {
    ///     let levels = world.two_levels(1)?;
    ///     levels.all_reduce(x, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;
    ///     Ok(())
    /// }
    /// ```
    pub fn two_levels(&self, n_calls: usize) -> Result<Self, Error> {
        self.start_two_levels(n_calls)?.wait()?.ok_or(Error::Internal)
    }

    /// Starts what [`two_levels`](Self::two_levels) does. Every rank gets a communicator.
    ///
    /// # Errors
    /// As [`start_split`](Self::start_split).
    pub fn start_two_levels(&self, n_calls: usize) -> Result<Split<'_, 'a, X>, Error> {
        let near = || (0..self.size()).map(Rank::new).filter(|&rank| self.is_near(rank));
        // A node is known by its lowest rank.
        let lowest = near().next().unwrap_or(self.rank);
        self.start_split_on_nodes(Some(0), lowest.0 as i32, n_calls, near().count() as u32)
    }

    /// From now on so many ranks in a row are known to share a node.
    pub(super) fn set_ranks_per_node(&self, n_on_node: usize) -> Result<(), Error> {
        for call_slot in self.call_slots.iter() {
            let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
            comm.as_mut().ok_or(Error::Poisoned)?.ranks_per_node = n_on_node;
        }
        Ok(())
    }

    /// How many ranks in a row share a node, as far as [`two_levels`](Self::two_levels) found; 1 if
    /// it is not known.
    #[must_use]
    pub fn ranks_per_node(&self) -> usize {
        let first = self.call_slots.first().and_then(|call_slot| call_slot.comm.try_borrow().ok());
        first.and_then(|comm| comm.as_ref().map(|comm| comm.ranks_per_node)).unwrap_or(1)
    }

    /// Whether a rank is this one, or shares its node.
    fn is_near(&self, rank: Rank) -> bool {
        let outer = self.transport_rank(rank);
        rank == self.rank || outer.is_some_and(|outer| self.node.is_near(outer))
    }
}
