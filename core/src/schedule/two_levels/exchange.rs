//! Two levels of the all-to-all: parts first travel between ranks at the same place of each node,
//! and then inside the nodes.
//!
//! A rank sends all its parts for another node as a row of k parts to the rank at the same place of
//! that node. It then holds one row from each node, its own node included; the sources are the
//! ranks at its place. Next it sends each other rank of its node the parts for that rank: one part
//! of each row. A row begins with the part for the rank that holds the row, and goes around the
//! node. So the parts to send next are always the last of each row.
//!
//! Each rank sends (N − 1)/N of its m bytes to other nodes, as it would directly, but in N − 1
//! messages instead of n − k. All parts that a rank holds must fit one frame, and every rank must
//! know the length of every part.
//!
//! Cost, with latencies α between nodes and α′ inside, and β and β′ per byte:
//!
//! | collective | messages one after the other | time |
//! |---|---|---|
//! | all-to-all | N + k − 2 | (N − 1)·(α + m/N·β) + (k − 1)·(α′ + m/k·β′) |
//!
//! Source: hierarchical all-to-alls of MPI libraries (docs/algorithms.md).

use super::NodePlace;
use crate::schedule::{Part, ProgramSpec, SourceRows, Step};
use crate::transport::Rank;

/// A rank in an all-to-all on two levels.
pub(super) struct NodeAllToAll {
    call: ProgramSpec,
    place: NodePlace,
}

impl NodeAllToAll {
    pub(super) const fn new(call: ProgramSpec, place: NodePlace) -> Self {
        Self { call, place }
    }

    pub(super) const fn n_steps(&self) -> usize {
        // Sends and receives between nodes; a step that takes the rank's own parts for its node;
        // sends and receives inside the node; and two stores of parts for the rank itself: its own
        // part, and those from other nodes.
        2 * (self.place.n_nodes - 1) + 1 + 2 * (self.place.per_node - 1) + 2
    }

    /// Step `index` of the rank's program:
    ///
    /// 1. Store the rank's own part.
    /// 2. Send a row to each other node, then take the row for this node into the holding.
    /// 3. Receive a row from each other node.
    /// 4. Send to each other rank of the node, then store the parts that other nodes sent for this
    ///    rank.
    /// 5. Receive from each other rank of the node.
    pub(super) fn step(&self, index: usize) -> Step {
        let NodePlace { n_nodes, per_node: k, .. } = self.place;
        let me = self.place.across(0);
        let (far, near) = (n_nodes - 1, k - 1);
        let Some(index) = index.checked_sub(1) else {
            return Step::own(self.call.part_between(me, me)).store();
        };
        if index < far {
            let to = self.place.across(index + 1);
            return self.row(Step::own, me, to, k).to(to);
        }
        let Some(index) = index.checked_sub(far + 1) else {
            return self.row(Step::own, me, self.place.inside(1), near).keep();
        };
        if index < far {
            let from = self.place.across(far - index);
            return self.row(|part| Step::receive(part, from), from, me, k).keep();
        }
        let index = index - far;
        if index < near {
            // The farthest rank first: its parts are the last of each row.
            let distance = near - index;
            let to = self.place.inside(distance);
            let step = self.column(Step::own, (me, to), n_nodes, distance + 1);
            return step.to(to);
        }
        let Some(index) = index.checked_sub(near + 1) else {
            // The parts from the other nodes' ranks. The row from the last of these nodes came
            // first.
            return self.column(Step::own, (self.place.across(far), me), far, 0).store();
        };
        let from = self.place.inside(index + 1);
        self.column(|part| Step::receive(part, from), (from, me), n_nodes, 0).store()
    }

    /// A step on the parts from `source` for `len` ranks of a node, from rank `first` on.
    fn row(&self, step: impl Fn(Part) -> Step, source: Rank, first: Rank, len: usize) -> Step {
        let rows = SourceRows { len: len as u16, back: 0, ..self.rows(0) };
        step(self.call.part_between(source, first)).run(len).in_rows(rows)
    }

    /// A step on the parts for rank `to` from `n` ranks at one place: rank `first`, and those in
    /// the nodes before its node. `held` is [`SourceRows::held`].
    fn column(
        &self,
        step: impl Fn(Part) -> Step,
        (first, to): (Rank, Rank),
        n: usize,
        held: usize,
    ) -> Step {
        step(self.call.part_between(first, to)).run(n).in_rows(self.rows(held))
    }

    const fn rows(&self, held: usize) -> SourceRows {
        let per_node = self.place.per_node as u32;
        SourceRows { len: 1, back: per_node, ring: per_node, held: held as u16 }
    }
}
