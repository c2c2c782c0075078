//! Circulant graphs: reduce-scatter, all-gather and all-reduce in ⌈log₂ n⌉ rounds each, for any
//! number of ranks, with as few bytes as a ring.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! The array is cut into n parts for n ranks; part p belongs to rank p. Let s₀ = n, s₁ = ⌈s₀/2⌉, …
//! down to 1 be the *sizes*.
//!
//! *Reduce-scatter.* Before a round from size s to t, rank r has partial sums of the s parts from r
//! on. It sends the last s − t of them to rank r + s − t. For that rank they are the last of the t
//! parts that it keeps, and it adds them to its own sums. So after the round, t ranks have a
//! partial sum of each part, and each contribution is in exactly one of these sums. After the last
//! round, r has the sum of its own part.
//!
//! *All-gather.* The reverse: before a round from size t to s, rank r has the t parts from r on. It
//! sends the last s − t of them to rank r − (s − t). For that rank they are the parts that follow
//! its own.
//!
//! *All-reduce.* Both, one after the other.
//!
//! If n is odd, the first round of a reduce-scatter adds nothing to rank r's part r, and the last
//! round of an all-gather sends every part except r.
//!
//! The parts that a rank sends are always the last of its holding. Träff uses the ranks r + t and r
//! − t instead of r + s − t and r − (s − t). With those, the sums are added to the first parts.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced. A message
//! has up to ⌊n/2⌋ parts.
//!
//! | collective | messages of a rank | time |
//! |---|---|---|
//! | reduce-scatter | ⌈log₂ n⌉ | ⌈log₂ n⌉·α + (n − 1)/n·m·(β + γ) |
//! | all-gather | ⌈log₂ n⌉ | ⌈log₂ n⌉·α + (n − 1)/n·m·β |
//! | all-reduce | 2⌈log₂ n⌉ | 2⌈log₂ n⌉·α + 2(n − 1)/n·m·β + (n − 1)/n·m·γ |
//!
//! The schedule has the fewest rounds and the fewest bytes at once. Compared with a ring, it does
//! not overlap sends with computation, and its messages go to distant ranks instead of neighbours.
//!
//! Source: J. L. Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024. The
//! all-gather: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997), for sizes that double.

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// All-reduce, reduce-scatter and all-gather in ⌈log₂ n⌉ rounds each.
#[derive(Clone, Copy, Debug)]
pub struct Circulant;

impl Schedule for Circulant {
    fn name(&self) -> &'static str {
        "circulant"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather
        )
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        call.size.div_ceil(2)
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        let ProgramSpec { collective, size, .. } = call;
        if size == 1 {
            return 1;
        }
        // Two steps for each round. A further step handles the rank's own part alone, where it is
        // taken into the holding, or (if n is odd) stored at the end.
        let n_moves = 2 * n_rounds(size);
        let is_odd = size % 2;
        match collective {
            // The step that completes a part also sends it.
            Collective::AllReduce => 2 * n_moves - 1 + 2 * is_odd,
            Collective::ReduceScatter => n_moves + is_odd,
            Collective::AllGather => n_moves + usize::from(size > 2) + is_odd,
            _ => 0,
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // Every rank sends its partial sum of a part once, until the owner has the sum.
        let n = call.size as u64;
        match call.collective {
            Collective::AllReduce if n > 1 => n,
            Collective::ReduceScatter => n - 1,
            _ => 0,
        }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        if call.size == 1 {
            return Step::own(Part::new(0)).store();
        }
        let member = CirculantRank { size: call.size, rank };
        let is_odd = call.size % 2;
        match call.collective {
            Collective::ReduceScatter => member.reduce_scatter(index),
            Collective::AllReduce => {
                let completion = 2 * n_rounds(call.size) - 1 + is_odd;
                if index < completion {
                    return member.reduce_scatter(index);
                }
                // This step completes the sum and is the first send of the all-gather.
                let first = member.all_gather(index - completion + 1);
                if index > completion {
                    return first;
                }
                let last = member.reduce_scatter(index);
                let step = Step { from: last.from, local: last.local, ..first };
                if step.keep { step.keep_as_sent() } else { step }
            }
            _ if call.size == 2 => member.all_gather(index + 1),
            _ => member.all_gather(index),
        }
    }
}

/// Number of rounds among n ranks: ⌈log₂ n⌉.
const fn n_rounds(size: usize) -> usize {
    size.next_power_of_two().ilog2() as usize
}

/// A rank in a circulant graph.
struct CirculantRank {
    size: usize,
    rank: Rank,
}

impl CirculantRank {
    /// Size before round `round`: n halved `round` times, each time rounded up.
    const fn size_before(&self, round: usize) -> usize {
        self.size.div_ceil(1 << round)
    }

    /// The part `distance` places after the rank's own.
    fn part(&self, distance: usize) -> Part {
        Part::new((self.rank.index() + distance) % self.size)
    }

    /// The rank `distance` after this one; `distance` is at most n.
    fn after(&self, distance: usize) -> Rank {
        Rank::new((self.rank.index() + distance) % self.size)
    }

    /// The rank `distance` before this one; `distance` is at most n.
    fn before(&self, distance: usize) -> Rank {
        self.after(self.size - distance)
    }

    /// Step `index` of the reduce-scatter: a send and an addition in each round. If n is odd, the
    /// first round takes the rank's own part between the two, because nothing is added to it.
    fn reduce_scatter(&self, index: usize) -> Step {
        let is_odd = self.size % 2 == 1;
        if is_odd && index == 1 {
            return Step::own(self.part(0)).keep();
        }
        let index = if is_odd && index > 1 { index - 1 } else { index };
        let round = index / 2;
        let (size, next) = (self.size_before(round), self.size_before(round + 1));
        let n_sent = size - next;
        if index.is_multiple_of(2) {
            return Step::own(self.part(next)).run(n_sent).to(self.after(n_sent));
        }
        let received = Step::receive(self.part(next - n_sent), self.before(n_sent)).run(n_sent);
        let step = if round == 0 { received.reduce_local() } else { received.reduce() };
        if next == 1 { step.store() } else { step.keep() }
    }

    /// Step `index` of the all-gather: take the rank's own part, then a send and a store in each
    /// round. If n is odd, that part is stored at the end; otherwise it is stored as the first
    /// message sends it.
    fn all_gather(&self, index: usize) -> Step {
        let own = Step::own(self.part(0));
        let Some(move_index) = index.checked_sub(1) else { return own.keep() };
        let (n_rounds, is_odd) = (n_rounds(self.size), self.size % 2 == 1);
        let round = move_index / 2;
        if round == n_rounds {
            return own.store_as_sent();
        }
        // The rounds of the reduce-scatter, in reverse order.
        let next = self.size_before(n_rounds - round - 1);
        let size = self.size_before(n_rounds - round);
        let n_sent = next - size;
        let step = if move_index.is_multiple_of(2) {
            let sent = Step::own(self.part(size - n_sent)).run(n_sent).to(self.before(n_sent));
            if round == 0 && !is_odd { sent.store() } else { sent }
        } else {
            Step::receive(self.part(size), self.after(n_sent)).run(n_sent).store()
        };
        if round + 1 == n_rounds { step } else { step.keep() }
    }
}
