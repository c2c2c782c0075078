//! Pairwise exchange: every rank sends each other rank its share directly.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! Part p belongs to rank p.
//!
//! *Reduce-scatter.* Rank r sends its input for part r + i straight to rank r + i, for i = 1, …, n
//! − 1 (mod n), and combines the operands that it receives from r − i.
//!
//! *All-gather.* Rank r sends part r to r + i and stores the part that it receives from r − i. At
//! each distance i the messages are a permutation of the ranks, so no link carries two at once.
//!
//! *All-reduce.* Both, one after the other.
//!
//! *All-to-all.* In turn k = 0, …, n − 1, rank r exchanges with rank k − r (mod n), which exchanges
//! with r in the same turn. Each rank reads the part to send before it stores the part from its
//! partner, so the exchange works in place.
//!
//! In the reduce-scatter, single operands cross the wire, where a ring sends partial sums. Sums of
//! compressed fields take more bits than their operands. So on slow links pairwise exchange sends
//! fewer bytes than a bandwidth-optimal ring. In return each rank encodes every part, where in the
//! ring it encodes one.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced:
//!
//! | collective | time |
//! |---|---|
//! | reduce-scatter | (n − 1)·α + (n − 1)/n·m·(β + γ) |
//! | all-gather | (n − 1)·α + (n − 1)/n·m·β |
//! | all-reduce | the sum of both |
//! | all-to-all | n·α + m·β (one turn of each rank is with itself) |
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), pairwise-exchange
//! reduce-scatter.

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// All-reduce, reduce-scatter, all-gather and all-to-all by direct exchange.
#[derive(Clone, Copy, Debug)]
pub struct Pairwise;

impl Schedule for Pairwise {
    fn name(&self) -> &'static str {
        "pairwise"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce
                | Collective::ReduceScatter
                | Collective::AllGather
                | Collective::AllToAll
        )
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        let others = call.size - 1;
        match call.collective {
            _ if others == 0 => 1,
            Collective::ReduceScatter => 2 * others,
            // All-gather: sends, the rank's own part, receives. All-to-all: one send and one
            // receive for each other rank, and the rank's own part.
            Collective::AllGather | Collective::AllToAll => 2 * others + 1,
            _ => 4 * others + 1,
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        match call.collective {
            // The operands of the other ranks, and the sum.
            Collective::AllReduce if call.size > 1 => call.size as u64,
            Collective::ReduceScatter => call.size as u64 - 1,
            _ => 0,
        }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let n = call.size;
        let others = n - 1;
        let own = Part::new(rank.index());
        if others == 0 {
            return Step::own(own).store();
        }
        let after = |distance: usize| Rank::new((rank.index() + distance) % n);
        let before = |distance: usize| Rank::new((rank.index() + n - distance) % n);
        let gather = |index: usize| {
            if index < others {
                Step::own(own).to(after(index + 1)).keep()
            } else if index == others {
                Step::own(own).store_as_sent()
            } else {
                let from = before(index - others);
                Step::receive(Part::new(from.index()), from).store()
            }
        };
        match call.collective {
            Collective::AllGather => gather(index),
            Collective::AllToAll => exchange(call, rank, index),
            _ if index < others => {
                let to = after(index + 1);
                Step::own(Part::new(to.index())).to(to)
            }
            _ if index < 2 * others => {
                let last = call.collective == Collective::ReduceScatter && index == 2 * others - 1;
                let step = Step::receive(own, before(index - others + 1)).reduce();
                if last { step.store() } else { step.keep() }
            }
            _ => gather(index - 2 * others),
        }
    }
}

/// A step of an all-to-all. A turn with another rank has two steps. The turn in which the rank
/// would exchange with itself has one, which stores the rank's own part.
fn exchange(call: ProgramSpec, rank: Rank, index: usize) -> Step {
    let n = call.size;
    let own_turn = 2 * rank.index() % n;
    let (turn, is_second) = match index {
        before if before < 2 * own_turn => (before / 2, before % 2 == 1),
        own if own == 2 * own_turn => (own_turn, false),
        after => (after.div_ceil(2), after % 2 == 0),
    };
    let partner = Rank::new((turn + n - rank.index()) % n);
    if partner == rank {
        Step::own(call.part_between(rank, rank)).store()
    } else if is_second {
        Step::receive(call.part_between(partner, rank), partner).store()
    } else {
        Step::own(call.part_between(rank, partner)).to(partner)
    }
}
