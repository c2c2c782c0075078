//! Binomial trees: broadcast, reduce, scatter and gather along ⌈log₂ n⌉ levels.
//!
//! A [`Schedule`]: the engine asks it for steps; it knows neither values nor bytes.
//!
//! Ranks are numbered from the root: *place* v = rank − root (mod n). The parent of place v > 0 is
//! v with its lowest one bit cleared. The children of v are v + 2ᵏ for every 2ᵏ below v's lowest
//! one bit (the root: for every k), as far as they are below n. So a subtree is a run of places: v
//! and all that follow, up to v's lowest one bit, or to the end.
//!
//! *Broadcast.* A rank passes on what it received, to its largest subtree first, because that one
//! has the longest way to go. Decoding for itself comes last, off the critical path. The root
//! stores what the others decode.
//!
//! *Reduce.* The other way around: a rank combines the results of its children, smallest subtree
//! first, because that one is complete first, and hands the result to its parent.
//!
//! *Scatter.* Part p belongs to rank p. The root sends the parts in descending order of place; each
//! rank passes on those of its descendants and stores its own, which comes last. As every subtree
//! is a run of places, descending order is at once "largest subtree first" at every rank, and no
//! subtree has to wait for the part of a rank above it. The last part to leave the root has one
//! link to cross.
//!
//! *Gather.* The mirror image: every rank sends its own part, then passes on those of its
//! descendants, in ascending order of place. The root finds the next part always on its way.
//!
//! A message is one part's frame, and frames are not merged, so scatter and gather pay a latency
//! for each part; what the tree saves is links, not messages: a rank talks to ⌈log₂ n⌉ + 1 others
//! at most.
//!
//! Cost for m bytes (scatter and gather: the whole array), with latency α per message, β per byte
//! sent and γ per byte reduced:
//!
//! | collective | time | messages in all |
//! |---|---|---|
//! | broadcast | ⌈log₂ n⌉·(α + m·β) | n − 1 |
//! | reduce | ⌈log₂ n⌉·(α + m·β + m·γ) | n − 1 |
//! | scatter, gather | (n − 1)·(α + m/n·β) | one bits of 0..n together, about n/2·log₂ n |
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), §4 (with merged messages).

use super::{Call, Collective, Part, Schedule, Step};
use crate::transport::Rank;

/// Broadcast, reduce, scatter and gather along a binomial tree.
#[derive(Clone, Copy, Debug)]
pub struct Binomial;

/// The only part of a broadcast or reduce.
const WHOLE: Part = Part::new(0);

impl Schedule for Binomial {
    fn name(&self) -> &'static str {
        "binomial"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::Broadcast | Collective::Reduce | Collective::Scatter | Collective::Gather
        )
    }

    fn n_parts(&self, call: Call) -> usize {
        match call.collective {
            Collective::Scatter | Collective::Gather => call.size,
            _ => 1,
        }
    }

    fn n_steps(&self, call: Call, rank: Rank) -> usize {
        let tree = Tree { size: call.size, root: call.root };
        let place = tree.place(rank);
        let n_children = tree.n_children(place);
        match call.collective {
            Collective::Broadcast if n_children == 0 => 1,
            Collective::Broadcast if place == 0 => n_children + 1,
            Collective::Broadcast => n_children + 2,
            Collective::Reduce => n_children.max(1),
            Collective::Scatter | Collective::Gather => tree.n_below(place) + 1,
            _ => 0,
        }
    }

    fn n_encodings(&self, call: Call) -> u64 {
        // Every rank but the root encodes its partial sum once.
        if call.collective == Collective::Reduce { call.size as u64 - 1 } else { 0 }
    }

    fn step(&self, call: Call, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let tree = Tree { size: call.size, root: call.root };
        let place = tree.place(rank);
        match call.collective {
            Collective::Broadcast => tree.broadcast(place, index),
            Collective::Reduce => tree.reduce(place, index),
            Collective::Scatter => tree.scatter(place, index),
            Collective::Gather => tree.gather(place, index),
            other => unreachable!("binomial has no {}", other.name()),
        }
    }
}

/// The tree, in places: 0 is the root.
struct Tree {
    size: usize,
    root: Rank,
}

impl Tree {
    fn broadcast(&self, place: usize, index: usize) -> Step {
        let n_children = self.n_children(place);
        let send_to = |nth: usize| {
            let child = self.child(place, n_children - 1 - nth);
            Step::own(WHOLE).to(child).keep()
        };
        match self.parent(place) {
            None if n_children == 0 => Step::own(WHOLE).store(),
            None if index < n_children => send_to(index),
            None => Step::own(WHOLE).store_as_sent(),
            Some(parent) if n_children == 0 => Step::receive(WHOLE, parent).store(),
            Some(parent) if index == 0 => Step::receive(WHOLE, parent).keep(),
            Some(_) if index <= n_children => send_to(index - 1),
            Some(_) => Step::own(WHOLE).store(),
        }
    }

    fn reduce(&self, place: usize, index: usize) -> Step {
        let n_children = self.n_children(place);
        let parent = self.parent(place);
        if n_children == 0 {
            return match parent {
                None => Step::own(WHOLE).store(),
                Some(parent) => Step::own(WHOLE).to(parent),
            };
        }
        let child = self.child(place, index);
        match parent {
            _ if index + 1 < n_children => Step::receive(WHOLE, child).reduce().keep(),
            None => Step::receive(WHOLE, child).reduce().store(),
            Some(parent) => Step::receive(WHOLE, child).reduce().to(parent),
        }
    }

    fn scatter(&self, place: usize, index: usize) -> Step {
        let subject = place + self.n_below(place) - index;
        let part = self.part(subject);
        match self.parent(place) {
            None if subject == place => Step::own(part).store(),
            None => Step::own(part).to(self.child_towards(place, subject)),
            Some(parent) if subject == place => Step::receive(part, parent).store(),
            Some(parent) => Step::receive(part, parent).to(self.child_towards(place, subject)),
        }
    }

    fn gather(&self, place: usize, index: usize) -> Step {
        let subject = place + index;
        let part = self.part(subject);
        match self.parent(place) {
            None if subject == place => Step::own(part).store(),
            None => Step::receive(part, self.child_towards(place, subject)).store(),
            Some(parent) if subject == place => Step::own(part).to(parent),
            Some(parent) => Step::receive(part, self.child_towards(place, subject)).to(parent),
        }
    }

    fn place(&self, rank: Rank) -> usize {
        let (rank, root) = (rank.index(), self.root.index());
        if rank >= root { rank - root } else { rank + (self.size - root) }
    }

    fn rank(&self, place: usize) -> Rank {
        let until_wrap = self.size - self.root.index();
        Rank::new(if place < until_wrap { place + self.root.index() } else { place - until_wrap })
    }

    /// The part that belongs to the rank at `place`.
    fn part(&self, place: usize) -> Part {
        Part::new(self.rank(place).index())
    }

    fn parent(&self, place: usize) -> Option<Rank> {
        (place > 0).then(|| self.rank(place & (place - 1)))
    }

    fn n_children(&self, place: usize) -> usize {
        // Children are place + 2^k below `size`: as many as there are k with 2^k < size - place …
        let n_fitting = ceil_log2(self.size - place);
        // … and 2^k below the lowest one bit.
        if place == 0 { n_fitting } else { n_fitting.min(place.trailing_zeros() as usize) }
    }

    /// Child `k`, in ascending order of subtree size.
    fn child(&self, place: usize, k: usize) -> Rank {
        self.rank(place + (1 << k))
    }

    /// The child of `place` whose subtree has `descendant` in it.
    fn child_towards(&self, place: usize, descendant: usize) -> Rank {
        self.child(place, (descendant - place).ilog2() as usize)
    }

    /// Number of descendants of `place`.
    fn n_below(&self, place: usize) -> usize {
        let n_following = self.size - place;
        if place == 0 { n_following - 1 } else { n_following.min(1 << place.trailing_zeros()) - 1 }
    }
}

/// ⌈log₂ n⌉ for n ≥ 1.
fn ceil_log2(n: usize) -> usize {
    n.next_power_of_two().ilog2() as usize
}
