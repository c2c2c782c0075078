//! Two trees, each for half of the array: broadcast, reduce and all-reduce in which the ranks share
//! the traffic evenly, along paths whose length grows with log n.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! In a single binary tree an inner rank sends everything twice, and half of the ranks, the leaves,
//! send nothing. So there are two trees, and a rank that has children in one tree is a leaf of the
//! other. The root of the call is in neither tree: it is the parent of the top rank of each. The m
//! other ranks have the numbers 1 to m. In the first tree, the parent of a number follows from its
//! lowest set bit: clear that bit and set the next higher one. If the result is beyond m, only
//! clear the bit. So odd numbers are leaves. The second tree has the same shape, but ranks with odd
//! numbers in the first tree have even numbers in the second, and the reverse. If m is even, x
//! becomes m + 1 − x. If m is odd, x becomes x − 1, and 1 becomes m.
//!
//! *Broadcast.* Part t goes down tree t. Each rank forwards the part to its children before it
//! decodes the part for itself.
//!
//! *Reduce.* Part t goes up tree t. Each rank combines the results of its children with its own
//! operand.
//!
//! *All-reduce.* Both parts go up, and the root sends the results down the same trees. On the way
//! down each rank decodes a part before it forwards the part. All ranks then decode the same frame,
//! without which averages could be rounded differently.
//!
//! Rounds follow each other through the trees.
//!
//! Cost for m bytes in k rounds, with latency α per message, β per byte sent and γ per byte
//! reduced. For a chain, n − 2 replaces 2⌈log₂ n⌉.
//!
//! | collective | time |
//! |---|---|
//! | broadcast | (k + 2⌈log₂ n⌉)·(2α + m/k·β) |
//! | reduce | (k + 2⌈log₂ n⌉)·(2α + m/k·(β + γ)) |
//! | all-reduce | both, one after the other |
//!
//! Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast,
//! reduction and scan", Parallel Computing 35 (2009). The numbering is that of NCCL 2.4.

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Broadcast, reduce and all-reduce along two binary trees.
#[derive(Clone, Copy, Debug)]
pub struct DoubleTree;

/// Number of trees; each moves half of the array.
const N_TREES: usize = 2;

impl Schedule for DoubleTree {
    fn name(&self) -> &'static str {
        "double-tree"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce | Collective::Broadcast | Collective::Reduce)
    }

    fn n_parts(&self, _: ProgramSpec) -> usize {
        N_TREES
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        TreeNode::all(call, rank).map(|(node, direction)| node.n_steps(direction)).sum()
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // Every rank except the root encodes its partial sum once, and the root encodes the
        // finished sum.
        let n = call.size as u64;
        match call.collective {
            Collective::AllReduce if n > 1 => n,
            Collective::Reduce => n - 1,
            _ => 0,
        }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, mut index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        for (node, direction) in TreeNode::all(call, rank) {
            let n_steps = node.n_steps(direction);
            if index < n_steps {
                return node.step(direction, index);
            }
            index -= n_steps;
        }
        unreachable!("there are no more steps")
    }
}

/// Direction in which a part moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeDirection {
    /// From the leaves to the root.
    Up,
    /// From the root to the leaves. Each rank forwards the part before it stores the part.
    Down,
    /// From the root to the leaves. Each rank stores the part before it forwards the part.
    Back,
    /// At the root of an all-reduce: one step receives the part and sends the result down.
    Around,
}

/// A rank's position in a tree.
struct TreeNode {
    part: Part,
    /// `None` for the root.
    parent: Option<Rank>,
    /// The root has at most one child.
    children: [Option<Rank>; 2],
}

impl TreeNode {
    /// A rank's positions and directions in the order in which its program handles them.
    fn all(call: ProgramSpec, rank: Rank) -> impl Iterator<Item = (Self, TreeDirection)> {
        let is_root = rank == call.root;
        let directions = match call.collective {
            Collective::Broadcast => [Some(TreeDirection::Down), None],
            Collective::Reduce => [Some(TreeDirection::Up), None],
            // The root sends a result down in the step that completes it.
            _ if is_root => [Some(TreeDirection::Around), None],
            _ => [Some(TreeDirection::Up), Some(TreeDirection::Back)],
        };
        let is_leaf = |tree| Self::new(call, rank, tree).n_children() == 0;
        let (first, second) = (is_leaf(0), is_leaf(1));
        directions.into_iter().flatten().flat_map(move |direction| {
            // Order of the trees: going down, first the tree in which the rank has children; going
            // up, first the tree in which it is a leaf. Then ranks cannot wait for each other in a
            // circle, because a number ends in more zero bits than the numbers of its children.
            let goes_up = matches!(direction, TreeDirection::Up | TreeDirection::Around);
            let swaps = if goes_up { second && !first } else { first && !second };
            let trees = if swaps { [1, 0] } else { [0, 1] };
            trees.into_iter().map(move |tree| (Self::new(call, rank, tree), direction))
        })
    }

    /// Position of `rank` in tree 0 or 1.
    fn new(call: ProgramSpec, rank: Rank, tree: usize) -> Self {
        let tree_of = BinaryTree { n_others: call.size - 1, is_second: tree == 1 };
        let place = (rank.index() + call.size - call.root.index()) % call.size;
        let number = tree_of.number(place);
        let rank = |number| Rank::new((tree_of.place(number) + call.root.index()) % call.size);
        Self {
            part: Part::new(tree),
            parent: tree_of.parent(number).map(rank),
            children: tree_of.children(number).map(|child| child.map(rank)),
        }
    }

    fn n_children(&self) -> usize {
        self.children.iter().flatten().count()
    }

    fn n_steps(&self, direction: TreeDirection) -> usize {
        let n_children = self.n_children();
        match direction {
            // Hold, send to each child, store.
            TreeDirection::Down if self.parent.is_some() && n_children > 0 => n_children + 2,
            TreeDirection::Down | TreeDirection::Around => 1,
            TreeDirection::Back => n_children + 1,
            TreeDirection::Up => n_children.max(1),
        }
    }

    fn step(&self, direction: TreeDirection, index: usize) -> Step {
        let Self { part, parent, .. } = *self;
        let child = |nth| self.children.into_iter().flatten().nth(nth);
        match (direction, parent) {
            (TreeDirection::Up | TreeDirection::Around, None) => {
                let step =
                    child(0).map_or(Step::own(part), |from| Step::receive(part, from).reduce());
                Step { to: child(0).filter(|_| direction == TreeDirection::Around), ..step.store() }
            }
            (TreeDirection::Up | TreeDirection::Around, Some(parent)) => {
                let step = match child(index) {
                    None => Step::own(part),
                    Some(from) => Step::receive(part, from).reduce(),
                };
                if index + 1 < self.n_children() { step.keep() } else { step.to(parent) }
            }
            (TreeDirection::Back, Some(parent)) => {
                let step = match index.checked_sub(1) {
                    None => Step::receive(part, parent).store(),
                    Some(nth) => Step { to: child(nth), ..Step::own(part) },
                };
                if index < self.n_children() { step.keep() } else { step }
            }
            (TreeDirection::Down | TreeDirection::Back, None) => {
                Step { to: child(0), ..Step::own(part).store() }
            }
            (TreeDirection::Down, Some(parent)) if child(0).is_none() => {
                Step::receive(part, parent).store()
            }
            (TreeDirection::Down, Some(parent)) if index == 0 => Step::receive(part, parent).keep(),
            (TreeDirection::Down, Some(_)) => match child(index - 1) {
                Some(child) => Step::own(part).to(child).keep(),
                None => Step::own(part).store(),
            },
        }
    }
}

/// A binary tree of the numbers 1 to `n_others`, with the root, number 0, above its top.
#[derive(Clone, Copy)]
struct BinaryTree {
    n_others: usize,
    is_second: bool,
}

impl BinaryTree {
    /// Number of the rank that is `place` ranks after the root.
    const fn number(self, place: usize) -> usize {
        let m = self.n_others;
        match place {
            0 => 0,
            _ if !self.is_second => place,
            _ if m.is_multiple_of(2) => m + 1 - place,
            1 => m,
            _ => place - 1,
        }
    }

    /// The inverse of [`Self::number`].
    const fn place(self, number: usize) -> usize {
        let m = self.n_others;
        match number {
            0 => 0,
            _ if !self.is_second => number,
            _ if m.is_multiple_of(2) => m + 1 - number,
            _ => number % m + 1,
        }
    }

    const fn parent(self, number: usize) -> Option<usize> {
        if number == 0 {
            return None;
        }
        let lowest = 1 << number.trailing_zeros();
        let (cleared, next) = (number ^ lowest, number ^ lowest | lowest << 1);
        Some(if next > self.n_others { cleared } else { next })
    }

    fn children(self, number: usize) -> [Option<usize>; 2] {
        if number == 0 {
            let top = self.n_others.checked_ilog2().map(|log| 1 << log);
            return [top, None];
        }
        let half = (1_usize << number.trailing_zeros()) >> 1;
        if half == 0 {
            return [None, None];
        }
        // The upper child is number + half, or if that is beyond the last number, the top of a
        // smaller subtree.
        let halves = (0..=half.ilog2()).map(|by| number + (half >> by));
        [Some(number - half), halves.into_iter().find(|&child| child <= self.n_others)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_children_in_one_tree_has_none_in_the_other() {
        for n_others in 1..200 {
            let [first, second] = [false, true].map(|is_second| BinaryTree { n_others, is_second });
            for place in 1..=n_others {
                let children = [first, second]
                    .map(|tree| tree.children(tree.number(place)).iter().flatten().count());
                assert!(children.contains(&0), "{place} of {n_others}: {children:?}");
                for tree in [first, second] {
                    let number = tree.number(place);
                    assert_eq!(tree.place(number), place);
                    let parent = tree.parent(number).unwrap();
                    assert!(
                        tree.children(parent).contains(&Some(number)),
                        "{number} of {n_others}"
                    );
                }
            }
        }
    }
}
