//! Two levels: data crosses between nodes once, and then travels around the ranks inside each node.
//! All ranks of a node send to other nodes side by side, each to the rank at its own place there.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! There are N nodes of k ranks each. The *place* of a rank is its index in its node. Collectives
//! without a root are rings inside nodes and between them, as described here. The module [`rooted`]
//! has the collectives with a root, and [`exchange`] has the all-to-all.
//!
//! The array is cut into n = N·k parts. Part (s, b) is at place s of block b, and belongs to the
//! rank at place s of node b. Only ranks at place s send the part between nodes.
//!
//! *Reduce-scatter.* The blocks go around the nodes as parts go around a [`Ring`](super::Ring):
//! node m handles block m − 1 − j (mod N) for j = 0, 1, …, N − 1. Each part of a block first goes
//! around the ring of the node's ranks, so that the rank at place s has the node's sum of part
//! (s, b). In every block but the first, the rank then adds the sum from the node before. It sends
//! the result to the next node, or stores it if the part is its own.
//!
//! *All-gather.* Node m handles block m − i (mod N) for i = 0, 1, … As soon as a rank has a part,
//! it sends the part to the next node, and then around its own node.
//!
//! *All-reduce.* Both, one after the other. The step that completes a part also sends it to the
//! next node.
//!
//! A node sends only sums of k ranks' values, and each sum is encoded as one operand. Each rank
//! sends (N − 1)/n of the array to the next node, in an all-reduce twice that. In a ring of all
//! ranks, one rank of each node sends (n − 1)/n of the array to the next node.
//!
//! Cost for m bytes, with latencies α between nodes and α′ inside, β and β′ per byte:
//!
//! | collective | messages one after the other | time |
//! |---|---|---|
//! | reduce-scatter, all-gather | n + N − 2 | (N − 1)·(2α + m/n·β) + N(k − 1)·(α′ + m/n·β′) |
//! | all-reduce | twice that | twice that |
//!
//! Both levels are one call, so its lanes overlap them. The schedule equals the collective's
//! [default](super::default_for) if the node layout is unknown, if there is only one node, or if
//! nodes differ in size.
//!
//! *Not implemented: scans.* Part p would go around each node's ring, so that the rank at place p
//! has the node's sum. That rank would also receive the sum of all nodes before. It would send the
//! total of both to the next node. It would send the sum of the nodes before along the ranks of its
//! own node, where each rank adds its values and stores the result. Two kinds of steps are missing
//! for this:
//!
//! - A step that keeps the value that it received and sends the combined value. A step with
//!   [`Step::before`] stores the received value instead of keeping it.
//! - A step that combines local values and says that they are needed again. The checker takes them
//!   as used up.
//!
//! With the present flags, only one rank of each node could send to the next node. It would send
//! twice the array, where a [chain](super::Chain) sends it once.
//!
//! Source: hierarchical collectives of MPI libraries and NCCL (docs/algorithms.md).

mod exchange;
mod rooted;

use self::exchange::NodeAllToAll;
use self::rooted::NodeTree;
use super::{Collective, Part, ProgramSpec, Schedule, Step, default_for};
use crate::transport::Rank;

/// Collectives by rings inside nodes and between them.
#[derive(Clone, Copy, Debug)]
pub struct TwoLevels;

/// Position of a rank among nodes of equal size.
#[derive(Clone, Copy)]
struct NodePlace {
    n_nodes: usize,
    per_node: usize,
    node: usize,
    /// Index of the rank in its node.
    place: usize,
}

impl NodePlace {
    /// Returns `None` if there are no two levels.
    const fn of(call: ProgramSpec, rank: Rank) -> Option<Self> {
        let per_node = call.ranks_per_node;
        if per_node < 2 || per_node >= call.size || !call.size.is_multiple_of(per_node) {
            return None;
        }
        let (node, place) = (rank.index() / per_node, rank.index() % per_node);
        Some(Self { n_nodes: call.size / per_node, per_node, node, place })
    }

    /// The rank at this place in the node `distance` after this one.
    const fn across(&self, distance: usize) -> Rank {
        Rank::new((self.node + distance) % self.n_nodes * self.per_node + self.place)
    }

    /// The rank of this node `distance` places after this one.
    const fn inside(&self, distance: usize) -> Rank {
        Rank::new(self.node * self.per_node + (self.place + distance) % self.per_node)
    }

    /// The part that is `n_places` places before this rank's place, in the block of the node
    /// `n_blocks` nodes before this rank's node.
    const fn part(&self, n_blocks: usize, n_places: usize) -> Part {
        let block = (self.node + 2 * self.n_nodes - n_blocks) % self.n_nodes;
        let place = (self.place + 2 * self.per_node - n_places) % self.per_node;
        Part::new(block * self.per_node + place)
    }

    /// Number of steps of a reduce-scatter, or of an all-gather without its first step. Each block
    /// takes k steps around the node. All blocks but one take one more step, to or from another
    /// node.
    const fn n_half(&self) -> usize {
        self.n_nodes * self.per_node + self.n_nodes - 1
    }

    /// Number of the block that step `index` handles, in the order of handling, and the step's
    /// index within the block. The first block takes k steps, where k is the number of ranks in a
    /// node. Every other block takes k + 1 steps.
    const fn block_of(&self, index: usize) -> (usize, usize) {
        match index.checked_sub(self.per_node) {
            None => (0, index),
            Some(index) => (1 + index / (self.per_node + 1), index % (self.per_node + 1)),
        }
    }

    /// Step `index` of the reduce-scatter.
    const fn reduce(&self, index: usize) -> Step {
        let (block, at) = self.block_of(index);
        let (k, is_first, is_last) = (self.per_node, block == 0, block + 1 == self.n_nodes);
        let part = self.part(block + 1, if at < k { at + 1 } else { 0 });
        let previous = self.inside(k - 1);
        if at == 0 {
            return Step::own(part).to(self.inside(1));
        }
        if at + 1 < k {
            return Step::receive(part, previous).reduce().to(self.inside(1));
        }
        if at < k {
            let step = Step::receive(part, previous).reduce();
            return if is_first { step.to(self.across(1)) } else { step.keep() };
        }
        // Add the sum of the nodes before to this node's sum.
        let step = Step::receive(part, self.across(self.n_nodes - 1)).reduce();
        if is_last { step.store() } else { step.to(self.across(1)) }
    }

    /// Step `index` of the all-reduce.
    const fn all_reduce(&self, index: usize) -> Step {
        let n_half = self.n_half();
        if index >= n_half {
            return self.gather(index - n_half);
        }
        let step = self.reduce(index);
        // This step completes the sum and is the first step of the all-gather.
        if step.store { Step { store: false, ..step.to(self.across(1)).keep() } } else { step }
    }

    /// Step `index` of the all-gather, not counting the first step, which sends the rank's own part
    /// to the next node.
    const fn gather(&self, index: usize) -> Step {
        let (block, at) = self.block_of(index);
        let (k, is_last) = (self.per_node, block + 1 == self.n_nodes);
        // The rank already has its part of the first block, so the step that receives it is left
        // out.
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

impl TwoLevels {
    /// Returns whether the call's ranks are known to be on several nodes of equal size.
    #[must_use]
    pub const fn has_levels(call: ProgramSpec) -> bool {
        NodePlace::of(call, call.root).is_some()
    }
}

impl Schedule for TwoLevels {
    fn name(&self) -> &'static str {
        "two-levels"
    }

    fn supports(&self, collective: Collective) -> bool {
        !collective.is_scan()
    }

    fn n_parts(&self, call: ProgramSpec) -> usize {
        match (NodePlace::of(call, call.root), call.collective) {
            (None, collective) => default_for(collective).n_parts(call),
            (Some(place), Collective::Broadcast | Collective::Reduce) => place.per_node,
            (_, collective) => collective.n_parts(call.size),
        }
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        if self.passes_on(call) { call.size - 1 } else { 1 }
    }

    fn passes_on(&self, call: ProgramSpec) -> bool {
        call.collective == Collective::AllToAll && Self::has_levels(call)
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        let Some(place) = NodePlace::of(call, rank) else {
            return default_for(call.collective).n_steps(call, rank);
        };
        match call.collective {
            Collective::AllReduce => 2 * place.n_half(),
            Collective::ReduceScatter => place.n_half(),
            Collective::AllGather => 1 + place.n_half(),
            Collective::AllToAll => NodeAllToAll::new(call, place).n_steps(),
            _ => NodeTree::new(call, place).n_steps(),
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        let Some(place) = NodePlace::of(call, call.root) else {
            return default_for(call.collective).n_encodings(call);
        };
        match call.collective {
            // The sums of the other nodes, and the finished sum.
            Collective::AllReduce | Collective::Reduce => place.n_nodes as u64,
            Collective::ReduceScatter => place.n_nodes as u64 - 1,
            _ => 0,
        }
    }

    fn n_combined(&self, call: ProgramSpec) -> usize {
        let place = NodePlace::of(call, call.root).filter(|_| call.collective.reduces());
        place.map_or(1, |place| place.per_node)
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let Some(place) = NodePlace::of(call, rank) else {
            return default_for(call.collective).step(call, rank, index);
        };
        match call.collective {
            Collective::AllReduce => place.all_reduce(index),
            Collective::ReduceScatter => place.reduce(index),
            Collective::AllGather if index == 0 => {
                Step::own(place.part(0, 0)).to(place.across(1)).keep()
            }
            Collective::AllGather => place.gather(index - 1),
            Collective::AllToAll => NodeAllToAll::new(call, place).step(index),
            _ => NodeTree::new(call, place).step(index),
        }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests;
