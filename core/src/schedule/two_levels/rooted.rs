//! Two levels of the collectives with a root: each node receives each of its parts from other nodes
//! once, or sends it to other nodes once.
//!
//! *Broadcast.* The array is cut into k parts. Ranks at place s send part s between nodes, along a
//! chain of nodes that begins at the root's node. In the root's node all parts go along a chain of
//! its ranks that begins at the root. In each other node, part s goes around a ring of the ranks,
//! starting with the rank at place s.
//!
//! *Reduce.* The mirror image: each part goes around the ring of a node's ranks, so that the rank
//! at place s has the node's sum of part s. The rank adds the sum of the nodes farther from the
//! root's node, and sends the total to the next node towards the root's. In the root's node,
//! completed parts go to the root.
//!
//! *Scatter.* The root sends the parts for ranks at place s of other nodes to place s of its own
//! node, which sends them to their owners. *Gather.* The mirror image.
//!
//! In a broadcast or reduce of m bytes, a rank sends at most m/k bytes to other nodes. In a scatter
//! it sends at most (N − 1)/n·m bytes to them, and in a gather it receives at most as many from
//! them. All k ranks of a node do so side by side. Along a chain, one rank of each node sends all m
//! bytes; in a scatter down a binomial tree, the root sends (n − k)/n·m bytes to other nodes.
//!
//! Cost for m bytes, with latencies α between nodes and α′ inside, and β and β′ per byte. In a
//! reduce, β′ includes the time to reduce a byte.
//!
//! | collective | messages one after the other | time |
//! |---|---|---|
//! | broadcast | 2k + N − 1 | (N − 1)·(α + m/k·β) + 2k·(α′ + m/k·β′) |
//! | reduce | 2k + N − 3 | (N − 1)·(α + m/k·β) + (2k − 2)·(α′ + m/k·β′) |
//! | scatter, gather | n − 1 | (N − 1)·(α + m/n·β) + (n − N)·(α′ + m/n·β′) |
//!
//! A long array has r rounds, which follow each other. A broadcast or reduce then takes the larger
//! of m/k·β and m·β′, plus 1/r of the time in the table.
//!
//! Source: pipelined chains as in [`Chain`](crate::schedule::Chain), one for each place, as in the
//! hierarchical collectives of MPI libraries (docs/algorithms.md).

use super::NodePlace;
use crate::schedule::{Collective, Part, ProgramSpec, Step};
use crate::transport::Rank;

/// Position of a rank, seen from the root.
pub(super) struct NodeTree {
    collective: Collective,
    place: NodePlace,
    root: Rank,
    /// Place of the root in its node.
    root_place: usize,
    /// Number of nodes from the root's node to this rank's node, along the chain of nodes.
    distance: usize,
}

impl NodeTree {
    pub(super) const fn new(call: ProgramSpec, place: NodePlace) -> Self {
        let ProgramSpec { collective, root, .. } = call;
        let (root_node, root_place) =
            (root.index() / place.per_node, root.index() % place.per_node);
        let distance = (place.node + place.n_nodes - root_node) % place.n_nodes;
        Self { collective, place, root, root_place, distance }
    }

    pub(super) fn n_steps(&self) -> usize {
        let NodePlace { n_nodes, per_node, .. } = self.place;
        match self.collective {
            Collective::Broadcast => per_node + usize::from(!self.is_farthest()),
            Collective::Reduce => {
                let n_collected = if self.is_root() { per_node - 1 } else { 0 };
                per_node + usize::from(!self.is_farthest()) + n_collected
            }
            _ if self.is_root() => n_nodes * per_node,
            _ if self.is_home() => n_nodes,
            _ => 1,
        }
    }

    pub(super) fn step(&self, index: usize) -> Step {
        match self.collective {
            Collective::Broadcast => self.broadcast(index),
            Collective::Reduce => self.reduce(index),
            Collective::Scatter => self.scatter(index),
            _ => self.gather(index),
        }
    }

    fn broadcast(&self, index: usize) -> Step {
        let NodePlace { per_node: k, place, .. } = self.place;
        // The part that is handled first. Parts follow in descending order, modulo k.
        let first = if self.is_home() { self.root_place } else { place };
        let own_nth = (first + k - place) % k;
        // The part of the rank's own place goes to the next node, and then around this one.
        let sends_own = !self.is_farthest();
        let nth = if sends_own && index > own_nth { index - 1 } else { index };
        let part = Part::new((first + k - nth) % k);
        let source = if self.is_root() {
            Step::own(part)
        } else if !self.is_home() && nth == 0 {
            Step::receive(part, self.place.across(self.place.n_nodes - 1))
        } else {
            Step::receive(part, self.place.inside(k - 1))
        };
        if sends_own && index == own_nth {
            return source.to(self.place.across(1)).keep();
        }
        let step = if sends_own && index == own_nth + 1 { Step::own(part) } else { source };
        // A part ends at the rank before the one at which it arrived in the node.
        let ends_here = if self.is_home() { self.after_root() == k - 1 } else { nth == k - 1 };
        if ends_here { step.store() } else { step.store().to(self.place.inside(1)) }
    }

    fn reduce(&self, index: usize) -> Step {
        let NodePlace { per_node: k, place, n_nodes, .. } = self.place;
        let part = Part::new((place + 2 * k - 1 - index.min(k - 1)) % k);
        let previous = self.place.inside(k - 1);
        let towards_root = self.place.across(n_nodes - 1);
        if index + 1 < k {
            let step =
                if index == 0 { Step::own(part) } else { Step::receive(part, previous).reduce() };
            return step.to(self.place.inside(1));
        }
        if index + 1 == k {
            let step = Step::receive(part, previous).reduce();
            return if self.is_farthest() { step.to(towards_root) } else { step.keep() };
        }
        if index > k {
            // A part that another rank of the root's node has completed.
            let from = self.place.inside(index - k);
            return Step::receive(Part::new(from.index() % k), from).store();
        }
        // Add the sum of the nodes farther away to this node's sum.
        let step = Step::receive(part, self.place.across(1)).reduce();
        if self.is_root() {
            step.store()
        } else if self.is_home() {
            step.to(self.root)
        } else {
            step.to(towards_root)
        }
    }

    fn scatter(&self, index: usize) -> Step {
        // The root's own node comes last, and the root's own part last of all.
        let NodePlace { per_node: k, n_nodes, .. } = self.place;
        if !self.is_home() {
            return Step::receive(self.own_part(), self.relay()).store();
        }
        let (nth, after) = if self.is_root() { (index / k, (index + 1) % k) } else { (index, 0) };
        let target = self.member((nth + 1) % n_nodes, after);
        let part = Part::new(target.index());
        match (self.is_root(), target == self.me()) {
            (true, true) => Step::own(part).store(),
            (true, false) => {
                Step::own(part).to(if after == 0 { target } else { self.place.inside(after) })
            }
            (false, true) => Step::receive(part, self.root).store(),
            (false, false) => Step::receive(part, self.root).to(target),
        }
    }

    fn gather(&self, index: usize) -> Step {
        // The root's own node comes first, and the root's own part first of all.
        let NodePlace { per_node: k, .. } = self.place;
        if !self.is_home() {
            return Step::own(self.own_part()).to(self.relay());
        }
        let (nth, after) = if self.is_root() { (index / k, index % k) } else { (index, 0) };
        let source = self.member(nth, after);
        let part = Part::new(source.index());
        match (self.is_root(), source == self.me()) {
            (true, true) => Step::own(part).store(),
            (true, false) => {
                Step::receive(part, if after == 0 { source } else { self.place.inside(after) })
                    .store()
            }
            (false, true) => Step::own(part).to(self.root),
            (false, false) => Step::receive(part, source).to(self.root),
        }
    }

    fn is_root(&self) -> bool {
        self.is_home() && self.place.place == self.root_place
    }

    /// Returns whether the rank is in the root's node.
    const fn is_home(&self) -> bool {
        self.distance == 0
    }

    /// Returns whether the rank's node is the last of the chain that begins at the root's node.
    const fn is_farthest(&self) -> bool {
        self.distance + 1 == self.place.n_nodes
    }

    /// Number of places from the root's place to this rank's place, going around the node.
    const fn after_root(&self) -> usize {
        (self.place.place + self.place.per_node - self.root_place) % self.place.per_node
    }

    const fn me(&self) -> Rank {
        self.member(0, 0)
    }

    const fn own_part(&self) -> Part {
        Part::new(self.me().index())
    }

    /// The rank `nodes` nodes and `places` places after this one.
    const fn member(&self, nodes: usize, places: usize) -> Rank {
        let NodePlace { n_nodes, per_node, node, place } = self.place;
        Rank::new((node + nodes) % n_nodes * per_node + (place + places) % per_node)
    }

    /// The rank at the same place in the root's node, which relays this rank's part.
    const fn relay(&self) -> Rank {
        self.member(self.place.n_nodes - self.distance, 0)
    }
}
