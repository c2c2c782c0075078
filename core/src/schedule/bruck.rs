//! Bruck's exchange: all-to-all in ⌈log₂ n⌉ rounds, for short arrays.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! The *distance* d of a part is the number of ranks from its source to its destination, below n.
//! There is a round for each g = 2ᵏ, from the highest power of two below n down to 1. In the round
//! of g, each rank sends all held parts whose distance has bit k to the rank g after it, and
//! receives the same number from the rank g before it. So a part makes one hop for each set bit of
//! its distance, and a rank always holds one part of each distance. Let d = x + y, where x has
//! those bits of d that belong to the rounds so far. The held part of distance d then has the rank
//! x before this one as its source, and the rank y after this one as its destination. In the order
//! of distances, the held parts form [`SourceRows`] of 2g parts in the round of g. The last g parts
//! of each row leave, and g others replace them.
//!
//! In the first round a rank sends parts of its input, and only then takes the rest of them into
//! its holding. In the last round it stores the received parts, and then the parts that are left.
//! The part from the rank to itself is stored directly and never held.
//!
//! Cost for m bytes a rank, with latency α per message and β per byte sent: ⌈log₂ n⌉·(α + m/2·β).
//! If n is no power of two the β term is smaller, because a round moves only parts whose distance
//! has the round's bit. The schedule pays off where a message costs more than the bytes in it. All
//! parts that a rank holds must fit one frame, and every rank must know the length of every part.
//!
//! Source: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997). The rounds run in the
//! opposite order here, so that the parts to send are at the end of each row.

use super::{Collective, Part, ProgramSpec, Schedule, SourceRows, Step};
use crate::transport::Rank;

/// All-to-all in ⌈log₂ n⌉ rounds.
#[derive(Clone, Copy, Debug)]
pub struct Bruck;

impl Bruck {
    /// Number of parts that each of `size` ranks sends in all rounds: the number of set bits in all
    /// distances.
    #[must_use]
    pub fn n_passed(size: usize) -> usize {
        (0..n_rounds(size)).map(|round| n_with_bit(size, 1 << round)).sum()
    }
}

/// Number of distances below `size` that have `bit`.
const fn n_with_bit(size: usize, bit: usize) -> usize {
    let (n_rows, n_others) = (size / (2 * bit), size % (2 * bit));
    n_rows * bit + n_others.saturating_sub(bit)
}

impl Schedule for Bruck {
    fn name(&self) -> &'static str {
        "bruck"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective == Collective::AllToAll
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        (call.size - 1).max(1)
    }

    fn passes_on(&self, _: ProgramSpec) -> bool {
        true
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        // The rank's part for itself, and two steps for each round. With several rounds, two more
        // steps: after the first round's send, take the parts that stay, and after the last round,
        // store the parts that are left.
        let n_rounds = n_rounds(call.size);
        1 + 2 * n_rounds + if n_rounds > 1 { 2 } else { 0 }
    }

    fn n_encodings(&self, _: ProgramSpec) -> u64 {
        0
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let member = BruckRank { n: call.size, call, rank };
        let n_rounds = n_rounds(call.size);
        let is_long = n_rounds > 1;
        let largest = 1 << n_rounds.saturating_sub(1);
        match index {
            0 => Step::own(call.part_between(rank, rank)).store(),
            2 if is_long => member.nearest(largest - 1).keep(),
            _ if is_long && index == 2 * n_rounds + 2 => member.left().store(),
            _ => {
                let index = index - if is_long && index > 2 { 2 } else { 1 };
                let (gap, is_first) = (largest >> (index / 2), index / 2 == 0);
                let sends = index.is_multiple_of(2);
                if sends { member.send(gap, is_first) } else { member.receive(gap, is_first) }
            }
        }
    }
}

/// Number of rounds among n ranks: ⌈log₂ n⌉.
const fn n_rounds(size: usize) -> usize {
    size.next_power_of_two().ilog2() as usize
}

/// A rank among n.
struct BruckRank {
    n: usize,
    call: ProgramSpec,
    rank: Rank,
}

impl BruckRank {
    /// The rank's input parts of distances 1 … `n_parts`.
    fn nearest(&self, n_parts: usize) -> Step {
        let part = self.part(1, self.n);
        Step::own(part).run(n_parts).in_rows(self.rows(n_parts, 0))
    }

    /// The parts left in the holding at the end: those of even distances. The source of each is the
    /// rank that is the part's distance before this one.
    fn left(&self) -> Step {
        let part = self.part(2, 1);
        Step::own(part).run((self.n - 1) / 2).in_rows(self.rows(1, 2))
    }

    /// The send in the round of `gap`. In the first round the parts come from the input, not from
    /// the holding.
    fn send(&self, gap: usize, is_first: bool) -> Step {
        let held = if is_first { 0 } else { 2 * gap };
        self.on_sent(gap, Step::own, held).to(self.before(self.n - gap))
    }

    /// The receive in the round of `gap`. In the last round the parts are stored, not held.
    fn receive(&self, gap: usize, is_first: bool) -> Step {
        let sender = Self { rank: self.before(gap), ..*self };
        let is_last = gap == 1;
        let held = if is_first || is_last { 0 } else { 2 * gap };
        let step = sender.on_sent(gap, |part| Step::receive(part, sender.rank), held);
        if is_last { step.store() } else { step.keep() }
    }

    /// A step, of this rank or of the receiver, on the parts that this rank sends in the round of
    /// `gap`. `held` is [`SourceRows::held`].
    fn on_sent(&self, gap: usize, step: impl Fn(Part) -> Step, held: usize) -> Step {
        let n_parts = n_with_bit(self.n, gap);
        let rows = SourceRows { held: held as u16, ..self.rows(gap, 2 * gap % self.n) };
        step(self.part(gap, 2 * gap)).run(n_parts).in_rows(rows)
    }

    const fn rows(&self, len: usize, back: usize) -> SourceRows {
        SourceRows { len: len as u16, back: back as u32, ring: self.n as u32, held: 0 }
    }

    /// The part of this distance that the rank holds after the rounds of all g ≥ `least`, a power
    /// of two.
    fn part(&self, distance: usize, least: usize) -> Part {
        let source = self.before(distance - distance % least);
        let destination = Self { rank: source, ..*self }.before(self.n - distance);
        self.call.part_between(source, destination)
    }

    /// The rank `distance` before this one; `distance` is at most n.
    const fn before(&self, distance: usize) -> Rank {
        Rank::new((self.rank.index() + self.n - distance) % self.n)
    }
}
