//! Binomial trees: broadcast, reduce, scatter and gather along ⌈log₂ n⌉ levels.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! Ranks are numbered from the root: *place* v = rank − root (mod n). The parent of place v > 0 is
//! v with its lowest set bit cleared. The children of v are the places v + 2ᵏ below n, for every 2ᵏ
//! below v's lowest set bit; the root has a child for every k. So the subtree of v > 0 is a range
//! of consecutive places. It starts at v, its length is the value of v's lowest set bit, and it is
//! cut off at n.
//!
//! *Broadcast.* A rank forwards what it received, to its largest subtree first, because that
//! subtree has the longest path. It decodes for itself last, off the critical path. The root stores
//! what the other ranks decode.
//!
//! *Reduce.* The reverse: a rank combines the results of its children and sends the result to its
//! parent. The smallest subtree comes first, because it is complete first.
//!
//! *Scatter.* Part p belongs to rank p. Places are divided into *blocks* of B places, where B is
//! the largest power of two whose parts fit a message. The first place of a block is its *head*.
//! The block lies within the head's subtree, so the heads form a tree of blocks. If B were no power
//! of two, ranks would have to divide messages that they only forward. The root sends all blocks
//! but its own in descending order, each in one message. The heads forward the blocks of other
//! heads. A head divides its own block: it sends each child in the block the parts of the child's
//! subtree as one run, the largest subtree first. The child divides its run in the same way. Each
//! rank stores its own part last. Because of the descending order, every rank serves its largest
//! subtree first, and no subtree waits for the part of a rank above it. The last part to leave the
//! root crosses one link. If B = 1, every part is a message of its own; if B ≥ n/2, every subtree
//! is one message.
//!
//! A root that encodes first ([`ProgramSpec::encodes_first`]) takes the parts of all other ranks as
//! one run if a message can hold them, and divides that run.
//!
//! *Gather.* The mirror image: a rank takes its own part and appends the runs of its children in
//! the block, smallest subtree first. It sends this run to its parent, then forwards the blocks of
//! its descendants in ascending order. While the root receives one message, the next one is already
//! on its way.
//!
//! Cost for m bytes (in scatter and gather: of the whole array), with latency α per message, β per
//! byte sent and γ per byte reduced:
//!
//! | collective | time | messages in all |
//! |---|---|---|
//! | broadcast | ⌈log₂ n⌉·(α + m·β) | n − 1 |
//! | reduce | ⌈log₂ n⌉·(α + m·β + m·γ) | n − 1 |
//! | scatter, gather, B ≥ n/2 | ⌈log₂ n⌉·α + (n − 1)/n·m·β | n − 1 |
//! | scatter, gather | (⌈n/B⌉ − 1 + log₂ B)·α + (n − 1)/n·m·β | number of set bits in all of 0..⌈n/B⌉, plus n − ⌈n/B⌉ |
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), §4. gZCCL's scatter packs
//! compressed parts in the same way (J. Huang et al., ICS'24).

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;
use core::ops::Range;

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

    fn n_parts(&self, call: ProgramSpec) -> usize {
        match call.collective {
            Collective::Scatter | Collective::Gather => call.size,
            _ => 1,
        }
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        let tree = BinomialTree::of(call);
        let place = tree.place(rank);
        let n_children = tree.n_children(place);
        match call.collective {
            Collective::Broadcast if n_children == 0 => 1,
            Collective::Broadcast if place == 0 => n_children + 1,
            Collective::Broadcast => n_children + 2,
            Collective::Reduce => n_children.max(1),
            Collective::Scatter | Collective::Gather => tree.n_moves(place),
            _ => 0,
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // Every rank but the root encodes its partial sum once.
        if call.collective == Collective::Reduce { call.size as u64 - 1 } else { 0 }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let tree = BinomialTree::of(call);
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

/// The tree, by places; place 0 is the root.
struct BinomialTree {
    size: usize,
    root: Rank,
    /// Number of places in a block, a power of two.
    block: usize,
    /// True if the root of a scatter takes the parts of all other ranks before it sends.
    takes_first: bool,
}

impl BinomialTree {
    const fn of(call: ProgramSpec) -> Self {
        let ProgramSpec { collective, size, root, max_run, encodes_first, .. } = call;
        // The root of two ranks encodes one part, and sends it at once.
        let takes_first = matches!(collective, Collective::Scatter)
            && encodes_first
            && size > 2
            && size <= max_run as usize + 1;
        Self { size, root, block: 1 << max_run.ilog2(), takes_first }
    }

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

    /// Number of steps of the rank at `place` in a scatter or gather.
    fn n_moves(&self, place: usize) -> usize {
        let own = self.own_places(place).len();
        // A run of several parts takes one more step: to receive it before it is divided, or to
        // send it after it was put together.
        let passes_run = if place > 0 { own > 1 } else { self.takes_first };
        self.n_blocks_below(place) + usize::from(passes_run) + ceil_log2(own) + 1
    }

    fn scatter(&self, place: usize, index: usize) -> Step {
        if place == 0 && self.takes_first && index == 0 {
            return self.run(1..self.size).keep();
        }
        let n_passed = self.n_blocks_below(place);
        let n_taken = usize::from(place == 0 && self.takes_first);
        if index < n_taken + n_passed {
            let index = index - n_taken;
            let block = self.block_below(place, n_passed - index);
            let to = self.child_towards(place, block.start);
            return self.incoming(place, block).to(to);
        }
        let own = self.own_places(place);
        let n_children = ceil_log2(own.len());
        if place > 0 && own.len() > 1 && index == n_passed {
            return self.incoming(place, own).keep();
        }
        // The remaining steps handle the children's runs and the rank's own part.
        match self.n_moves(place) - 1 - index {
            0 if n_children == 0 => self.incoming(place, own).store(),
            0 => self.run(place..place + 1).store(),
            left => {
                let child = left - 1;
                self.run(self.child_places(place, child)).to(self.child(place, child))
            }
        }
    }

    fn gather(&self, place: usize, index: usize) -> Step {
        let n_own = self.n_moves(place) - self.n_blocks_below(place);
        if index >= n_own {
            let block = self.block_below(place, index - n_own + 1);
            let from = self.child_towards(place, block.start);
            return self.outgoing(place, self.receive(from, block));
        }
        let own = self.own_places(place);
        let n_children = ceil_log2(own.len());
        let is_root = place == 0;
        match index {
            0 if is_root || n_children == 0 => self.outgoing(place, self.run(place..place + 1)),
            0 => self.run(place..place + 1).keep(),
            _ if index <= n_children => {
                let child = index - 1;
                let (from, places) = (self.child(place, child), self.child_places(place, child));
                let step = self.receive(from, places);
                if is_root { step.store() } else { step.keep() }
            }
            _ => self.outgoing(place, self.run(own)),
        }
    }

    /// A step on the rank's own operand for the parts of these places.
    fn run(&self, places: Range<usize>) -> Step {
        Step::own(self.part(places.start)).run(places.len())
    }

    /// A step on the parts of these places, received from `from`.
    fn receive(&self, from: Rank, places: Range<usize>) -> Step {
        Step::receive(self.part(places.start), from).run(places.len())
    }

    /// A step on the parts of these places, received from the parent. At the root, a step on the
    /// own operand.
    fn incoming(&self, place: usize, places: Range<usize>) -> Step {
        match self.parent(place) {
            None => self.run(places),
            Some(parent) => self.receive(parent, places),
        }
    }

    /// The same step, with its value sent to the parent; at the root, stored in the output.
    fn outgoing(&self, place: usize, step: Step) -> Step {
        match self.parent(place) {
            None => step.store(),
            Some(parent) => step.to(parent),
        }
    }

    /// Places of `place`'s subtree within its block, a contiguous range.
    fn own_places(&self, place: usize) -> Range<usize> {
        place..(place + self.block).min(place + self.n_below(place) + 1)
    }

    /// Places of child `k`'s subtree within the block of `place`.
    fn child_places(&self, place: usize, k: usize) -> Range<usize> {
        place + (1 << k)..(place + (2 << k)).min(self.own_places(place).end)
    }

    /// Number of other blocks in the subtree of `place`.
    fn n_blocks_below(&self, place: usize) -> usize {
        (self.n_below(place) + 1).div_ceil(self.block) - 1
    }

    /// Places of the `nth` block after the block of `head`.
    fn block_below(&self, head: usize, nth: usize) -> Range<usize> {
        let start = head + nth * self.block;
        start..(start + self.block).min(self.size)
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
        // Children are place + 2^k below `size`, so count the k with 2^k < size - place …
        let n_fitting = ceil_log2(self.size - place);
        // … and 2^k below the lowest set bit.
        if place == 0 { n_fitting } else { n_fitting.min(place.trailing_zeros() as usize) }
    }

    /// Child `k`, in ascending order of subtree size.
    fn child(&self, place: usize, k: usize) -> Rank {
        self.rank(place + (1 << k))
    }

    /// The child of `place` whose subtree contains `descendant`.
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
