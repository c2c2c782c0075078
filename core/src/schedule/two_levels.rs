//! Two levels: rings inside nodes, and rings between the ranks of the same place in each node.
//!
//! A [`Schedule`]: the engine asks it for steps; it knows neither values nor bytes.
//!
//! With N nodes of k ranks, the array is cut into n = N·k parts. Part (s, b) is that of place s in
//! block b; it is summed among the nodes by their ranks of place s.
//!
//! *Reduce-scatter.* The blocks go around the nodes as parts go around a [`Ring`]: node m handles
//! block m − 1 − j (mod N) for j = 0, 1, …, N − 1. Before a block's parts leave a node, or meet
//! what came from the node before, each goes around the ring of the node's ranks, so that place s
//! has the node's sum of part (s, b).
//!
//! *All-gather.* Node m has block m complete, and handles block m − i (mod N) for i = 0, 1, … As
//! soon as it has a part, a rank sends it on to the next node, and then around its own.
//!
//! What leaves a node are sums of k ranks' values, and each is one operand: 2·(N − 1)/N·m/k bytes
//! of a rank, where a ring of all ranks takes 2·(n − 1)/n·m over each of its links between nodes.
//!
//! Cost for m bytes, with latencies α between nodes and α′ inside, β and β′ per byte:
//! 2(N − 1)·α + 2N(k − 1)·α′ + 2(N − 1)/N·m/k·β + 2(k − 1)/k·m·β′; lanes overlap the two levels.
//!
//! Where nothing is known of nodes, there is one, or they have different numbers of ranks, it is
//! the ring. Source: hierarchical all-reduces of MPI libraries and NCCL (docs/algorithms.md).

use super::{Call, Collective, Part, Ring, Schedule, Step};
use crate::transport::Rank;

/// All-reduce by rings inside nodes and between them.
#[derive(Clone, Copy, Debug)]
pub struct TwoLevels;

/// A rank's place among nodes of the same number of ranks.
struct Place {
    n_nodes: usize,
    per_node: usize,
    node: usize,
    /// Among the ranks of its node.
    place: usize,
}

impl Place {
    /// `None` if there are no two levels.
    const fn of(call: Call, rank: Rank) -> Option<Self> {
        let per_node = call.ranks_per_node;
        if per_node < 2 || per_node >= call.size || !call.size.is_multiple_of(per_node) {
            return None;
        }
        let (node, place) = (rank.index() / per_node, rank.index() % per_node);
        Some(Self { n_nodes: call.size / per_node, per_node, node, place })
    }

    /// The rank of this place in the node `distance` after this one.
    const fn across(&self, distance: usize) -> Rank {
        Rank::new((self.node + distance) % self.n_nodes * self.per_node + self.place)
    }

    /// The rank of this node `distance` places after this one.
    const fn inside(&self, distance: usize) -> Rank {
        Rank::new(self.node * self.per_node + (self.place + distance) % self.per_node)
    }

    /// The part of the place `distance` before this one, in the block of the node so far `before`
    /// this one.
    const fn part(&self, before: usize, distance: usize) -> Part {
        let block = (self.node + 2 * self.n_nodes - before) % self.n_nodes;
        let place = (self.place + 2 * self.per_node - distance) % self.per_node;
        Part::new(block * self.per_node + place)
    }

    /// Steps of half a program: each block goes around the node, and all but one come from the node
    /// before, or go to the one after.
    const fn n_half(&self) -> usize {
        self.n_nodes * self.per_node + self.n_nodes - 1
    }

    /// Of a half's step, the block and the step in the block: a block has one step more than the
    /// node has ranks, the `first` one has it not.
    const fn block_of(&self, index: usize) -> (usize, usize) {
        match index.checked_sub(self.per_node) {
            None => (0, index),
            Some(index) => (1 + index / (self.per_node + 1), index % (self.per_node + 1)),
        }
    }

    /// Step `index` of the reduce-scatter, which ends with the first of the all-gather.
    const fn reduce(&self, index: usize) -> Step {
        let (block, at) = self.block_of(index);
        let (k, is_first, is_last) = (self.per_node, block == 0, block + 1 == self.n_nodes);
        let part = self.part(block + 1, if at < k { at + 1 } else { 0 });
        let near = self.inside(k - 1);
        if at == 0 {
            return Step::own(part).to(self.inside(1));
        }
        if at + 1 < k {
            return Step::receive(part, near).reduce().to(self.inside(1));
        }
        if at < k {
            let step = Step::receive(part, near).reduce();
            return if is_first { step.to(self.across(1)) } else { step.keep() };
        }
        // The node's sum meets that of the nodes before.
        let step = Step::receive(part, self.across(self.n_nodes - 1)).reduce().to(self.across(1));
        if is_last { step.keep() } else { step }
    }

    /// Step `index` of the all-gather.
    const fn gather(&self, index: usize) -> Step {
        let (block, at) = self.block_of(index);
        let (k, is_last) = (self.per_node, block + 1 == self.n_nodes);
        // The first block's part is there already.
        let at = if block == 0 { at + 1 } else { at };
        if at == 0 {
            let step = Step::receive(self.part(block, 0), self.across(self.n_nodes - 1)).keep();
            return if is_last { step } else { step.to(self.across(1)) };
        }
        if at == 1 {
            return Step::own(self.part(block, 0)).store().to(self.inside(1));
        }
        let step = Step::receive(self.part(block, at - 1), self.inside(k - 1)).store();
        if at == k { step } else { step.to(self.inside(1)) }
    }
}

impl Schedule for TwoLevels {
    fn name(&self) -> &'static str {
        "two-levels"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective == Collective::AllReduce
    }

    fn n_parts(&self, call: Call) -> usize {
        call.size
    }

    fn n_steps(&self, call: Call, rank: Rank) -> usize {
        Place::of(call, rank).map_or_else(|| Ring.n_steps(call, rank), |place| 2 * place.n_half())
    }

    fn n_encodings(&self, call: Call) -> u64 {
        Place::of(call, Rank(0))
            .map_or_else(|| Ring.n_encodings(call), |place| place.n_nodes as u64)
    }

    fn n_combined(&self, call: Call) -> usize {
        Place::of(call, Rank(0)).map_or(1, |place| place.per_node)
    }

    fn step(&self, call: Call, rank: Rank, index: usize) -> Step {
        let Some(place) = Place::of(call, rank) else { return Ring.step(call, rank, index) };
        let n_half = place.n_half();
        if index < n_half { place.reduce(index) } else { place.gather(index - n_half) }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::schedule::check::check;

    fn call(n_nodes: usize, per_node: usize) -> Call {
        Call::new(Collective::AllReduce, n_nodes * per_node, Rank(0)).with_nodes(per_node)
    }

    #[test]
    fn it_is_right_for_any_nodes() {
        for (n_nodes, per_node) in
            (1..=12).flat_map(|n| (1..=12).map(move |k| (n, k))).chain([(64, 2), (2, 64), (16, 8)])
        {
            let summary = check(&TwoLevels, call(n_nodes, per_node));
            assert!(summary.is_ok(), "{n_nodes} nodes of {per_node}: {summary:?}");
        }
    }

    #[test]
    fn a_rank_sends_two_parts_to_the_next_node_for_each_other_node() {
        for (n_nodes, per_node) in [(2, 2), (3, 4), (5, 2), (8, 8)] {
            let call = call(n_nodes, per_node);
            for rank in (0..call.size).map(Rank::new) {
                let steps = (0..TwoLevels.n_steps(call, rank))
                    .map(|index| TwoLevels.step(call, rank, index));
                let to = steps.filter_map(|step| step.to);
                let n_far = to.filter(|to| !call.is_near(rank, *to)).count();
                assert_eq!(n_far, 2 * (n_nodes - 1), "{n_nodes} nodes of {per_node}, {rank}");
            }
        }
    }

    #[test]
    fn where_there_are_no_two_levels_it_is_the_ring() {
        // One node, nodes of one rank, and such as do not come out even.
        for (size, per_node) in [(4, 4), (4, 8), (4, 1), (5, 2), (1, 1)] {
            let call = Call::new(Collective::AllReduce, size, Rank(0)).with_nodes(per_node);
            assert_eq!(TwoLevels.n_combined(call), 1);
            for rank in (0..size).map(Rank::new) {
                assert_eq!(TwoLevels.n_steps(call, rank), Ring.n_steps(call, rank));
                for index in 0..Ring.n_steps(call, rank) {
                    assert_eq!(TwoLevels.step(call, rank, index), Ring.step(call, rank, index));
                }
            }
        }
    }
}
