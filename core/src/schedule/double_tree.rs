//! Two trees, each for half of the array: broadcast, reduce and all-reduce in which every rank
//! sends and receives as much as it must, in a number of rounds that grows with log n.
//!
//! A [`Schedule`]: the engine asks it for steps; it knows neither values nor bytes.
//!
//! A rank within a binary tree sends everything twice, and half of the ranks, its leaves, send
//! nothing. So there are two trees, and who has children in one is a leaf of the other. The root
//! stands outside, above the tops of both. The m others have the numbers 1 to m, and in the first
//! tree the parent of a number is found by its lowest one bit b: clear it and set the next (or
//! where that is beyond m, only clear it), so that odd numbers are leaves. In the second tree odd
//! and even numbers change places: x becomes m + 1 − x if m is even, and x − 1 if it is odd (1
//! becomes m).
//!
//! *Broadcast.* Part t comes down tree t, and each rank passes it on to its children before it
//! decodes it for itself. *Reduce.* Part t goes up tree t: a rank combines the results of its
//! children with its own. *All-reduce.* Both parts go up, and what the root makes of them comes
//! down the same trees; there each decodes it first, as averages are rounded alike only by all that
//! decode them. Rounds follow each other through the trees.
//!
//! Cost for m bytes in k rounds, with latency α per message, β per byte sent and γ per byte
//! reduced, where a chain takes n − 2 in place of 2⌈log₂ n⌉:
//!
//! | collective | time |
//! |---|---|
//! | broadcast | (k + 2⌈log₂ n⌉)·(2α + m/k·β) |
//! | reduce | (k + 2⌈log₂ n⌉)·(2α + m/k·(β + γ)) |
//! | all-reduce | both, one after the other |
//!
//! Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast,
//! reduction and scan", Parallel Computing 35 (2009); the numbers are those of NCCL 2.4.

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Broadcast, reduce and all-reduce along two binary trees.
#[derive(Clone, Copy, Debug)]
pub struct DoubleTree;

/// A half of the array, and its tree.
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
        TreeNode::all(call, rank).map(|(node, way)| node.n_steps(way)).sum()
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // Every rank but the root encodes its partial sum once, and the root the finished one.
        let n = call.size as u64;
        match call.collective {
            Collective::AllReduce if n > 1 => n,
            Collective::Reduce => n - 1,
            _ => 0,
        }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, mut index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        for (node, way) in TreeNode::all(call, rank) {
            let n_steps = node.n_steps(way);
            if index < n_steps {
                return node.step(way, index);
            }
            index -= n_steps;
        }
        unreachable!("there are no more steps")
    }
}

/// Which way a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeDirection {
    Up,
    Down,
    /// Down, to be stored as it comes.
    Back,
    /// Up, and from the root down again.
    Around,
}

/// A rank's place in a tree.
struct TreeNode {
    part: Part,
    /// The root has none.
    parent: Option<Rank>,
    /// The root has one, if there are other ranks.
    children: [Option<Rank>; 2],
}

impl TreeNode {
    /// What a rank does one after the other.
    fn all(call: ProgramSpec, rank: Rank) -> impl Iterator<Item = (Self, TreeDirection)> {
        let is_root = rank == call.root;
        let ways = match call.collective {
            Collective::Broadcast => [Some(TreeDirection::Down), None],
            Collective::Reduce => [Some(TreeDirection::Up), None],
            // The root sends down at once what has come up.
            _ if is_root => [Some(TreeDirection::Around), None],
            _ => [Some(TreeDirection::Up), Some(TreeDirection::Back)],
        };
        let is_leaf = |tree| Self::new(call, rank, tree).n_children() == 0;
        let (first, second) = (is_leaf(0), is_leaf(1));
        ways.into_iter().flatten().flat_map(move |way| {
            // What comes first: down a tree to those with children, up from those without. A number
            // has more zeros after its lowest one bit than its children have, so ranks that wait
            // for each other are never a circle.
            let goes_up = matches!(way, TreeDirection::Up | TreeDirection::Around);
            let swaps = if goes_up { second && !first } else { first && !second };
            let trees = if swaps { [1, 0] } else { [0, 1] };
            trees.into_iter().map(move |tree| (Self::new(call, rank, tree), way))
        })
    }

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

    fn n_steps(&self, way: TreeDirection) -> usize {
        let n_children = self.n_children();
        match way {
            // Hold, pass on, store.
            TreeDirection::Down if self.parent.is_some() && n_children > 0 => n_children + 2,
            TreeDirection::Down | TreeDirection::Around => 1,
            TreeDirection::Back => n_children + 1,
            TreeDirection::Up => n_children.max(1),
        }
    }

    fn step(&self, way: TreeDirection, index: usize) -> Step {
        let Self { part, parent, .. } = *self;
        let child = |nth| self.children.into_iter().flatten().nth(nth);
        match (way, parent) {
            (TreeDirection::Up | TreeDirection::Around, None) => {
                let step =
                    child(0).map_or(Step::own(part), |from| Step::receive(part, from).reduce());
                Step { to: child(0).filter(|_| way == TreeDirection::Around), ..step.store() }
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

/// A tree of the numbers 1 to `n_others`, with 0, the root, above its top.
#[derive(Clone, Copy)]
struct BinaryTree {
    n_others: usize,
    is_second: bool,
}

impl BinaryTree {
    /// The number of the rank that is so many after the root.
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

    /// The other way around.
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
        // Beyond the last number there is nothing, so the tree there is less deep.
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
