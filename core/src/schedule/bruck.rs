//! Bruck's exchange: all-to-all in ⌈log₂ n⌉ rounds, for short arrays.
//!
//! A [`Schedule`]: the engine asks it for steps; it knows neither values nor bytes.
//!
//! A part's *distance* is how many ranks its destination is after its source: d = 0, …, n − 1. In
//! the round of g = 2ᵏ, from the highest power of two below n down to 1, each rank sends the rank g
//! after it all parts that it holds of distances that have bit k, and gets as many from the rank g
//! before it. So a part makes a hop for each bit of its distance, and a rank always holds one part
//! of each distance. That of distance d comes from the rank before it by the bits of d that are
//! done, and is for the rank after it by the others. In the order of distances, those are
//! [`SourceRows`] of 2g parts in the round of g, of which the last g leave and as many come.
//!
//! In the first round a rank sends its own values, and takes the rest of them after that. In the
//! last one it stores what comes, and then what is left. What it has for itself is not held.
//!
//! Cost for m bytes a rank, with latency α per message and β per byte sent: ⌈log₂ n⌉·(α + m/2·β),
//! or less β where n is no power of two: a round is of as many parts as there are distances with
//! its bit. That pays where a message costs more than the bytes in it. All that a rank holds must
//! fit a frame, and ranks must know all lengths. Source: J. Bruck et al., "Efficient algorithms for
//! all-to-all communications in multiport message-passing systems", IEEE Trans. Parallel Distrib.
//! Syst. 8 (1997), with rounds in the opposite order: so what leaves is at an end of each row.

use super::{Collective, Part, ProgramSpec, Schedule, SourceRows, Step};
use crate::transport::Rank;

/// All-to-all in ⌈log₂ n⌉ rounds.
#[derive(Clone, Copy, Debug)]
pub struct Bruck;

impl Bruck {
    /// How many parts each of n ranks sends in all rounds: as many as all distances have bits.
    #[must_use]
    pub fn n_passed(size: usize) -> usize {
        (0..n_rounds(size)).map(|round| n_with_bit(size, 1 << round)).sum()
    }
}

/// How many of the distances below n have a bit.
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

    fn n_parts(&self, call: ProgramSpec) -> usize {
        call.collective.n_parts(call.size)
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        (call.size - 1).max(1)
    }

    fn passes_on(&self, _: ProgramSpec) -> bool {
        true
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        // The own part, and two for each round; of several, what stays in the first is taken, and
        // stored after the last.
        let n_rounds = n_rounds(call.size);
        1 + 2 * n_rounds + if n_rounds > 1 { 2 } else { 0 }
    }

    fn n_encodings(&self, _: ProgramSpec) -> u64 {
        0
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let place = BruckRank { n: call.size, call, rank };
        let n_rounds = n_rounds(call.size);
        let is_long = n_rounds > 1;
        let largest = 1 << n_rounds.saturating_sub(1);
        match index {
            0 => Step::own(call.part_between(rank, rank)).store(),
            2 if is_long => place.nearest(largest - 1).keep(),
            _ if is_long && index == 2 * n_rounds + 2 => place.left().store(),
            _ => {
                let index = index - if is_long && index > 2 { 2 } else { 1 };
                let (gap, is_first) = (largest >> (index / 2), index / 2 == 0);
                let sends = index.is_multiple_of(2);
                if sends { place.send(gap, is_first) } else { place.receive(gap, is_first) }
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
    /// Own parts of distances 1 … `n_parts`.
    fn nearest(&self, n_parts: usize) -> Step {
        let part = self.part(1, self.n);
        Step::own(part).run(n_parts).in_rows(self.rows(n_parts, 0))
    }

    /// What is left in the end: of even distances, from ranks so far before this one.
    fn left(&self) -> Step {
        let part = self.part(2, 1);
        Step::own(part).run((self.n - 1) / 2).in_rows(self.rows(1, 2))
    }

    /// In the round of `gap`. Its first parts are the last of what a rank has, and not held.
    fn send(&self, gap: usize, is_first: bool) -> Step {
        let held = if is_first { 0 } else { 2 * gap };
        self.of_round(gap, Step::own, held).to(self.before(self.n - gap))
    }

    fn receive(&self, gap: usize, is_first: bool) -> Step {
        let sender = Self { rank: self.before(gap), ..*self };
        let is_last = gap == 1;
        let held = if is_first || is_last { 0 } else { 2 * gap };
        let step = sender.of_round(gap, |part| Step::receive(part, sender.rank), held);
        if is_last { step.store() } else { step.keep() }
    }

    /// A step on what this rank sends in the round of `gap`, from or to the ends of rows of `held`.
    fn of_round(&self, gap: usize, step: impl Fn(Part) -> Step, held: usize) -> Step {
        let n_parts = n_with_bit(self.n, gap);
        let rows = SourceRows { held: held as u16, ..self.rows(gap, 2 * gap % self.n) };
        step(self.part(gap, 2 * gap)).run(n_parts).in_rows(rows)
    }

    const fn rows(&self, len: usize, back: usize) -> SourceRows {
        SourceRows { len: len as u16, back: back as u32, ring: self.n as u32, held: 0 }
    }

    /// The part of a distance that is here once its bits from `undone` on are done, a power of two.
    fn part(&self, distance: usize, undone: usize) -> Part {
        let source = self.before(distance - distance % undone);
        let destination = Self { rank: source, ..*self }.before(self.n - distance);
        self.call.part_between(source, destination)
    }

    /// The rank so many places before this one, less than n.
    const fn before(&self, distance: usize) -> Rank {
        Rank::new((self.rank.index() + self.n - distance) % self.n)
    }
}
