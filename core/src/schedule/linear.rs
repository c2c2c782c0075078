//! Linear exchange: every rank first sends to each other rank in turn, and then receives from each.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! *All-to-all*: rank r sends its part for rank r + i straight to that rank, for i = 1, …, n − 1
//! (mod n). Then it stores the parts that it receives from r − i. Since each rank starts at a
//! different peer, no rank is the target of all others at once. All sends are on their way before
//! anything is received. So ranks wait for each other as little as possible, but each link must
//! hold one frame of each lane.
//!
//! Cost for m bytes a rank, with latency α per message and β per byte sent: (n − 1)·α + (n −
//! 1)/n·m·β.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), all-to-all of messages of
//! medium length.

use super::{Collective, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// All-to-all, all sends first.
#[derive(Clone, Copy, Debug)]
pub struct Linear;

impl Schedule for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective == Collective::AllToAll
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        2 * (call.size - 1) + 1
    }

    fn n_encodings(&self, _: ProgramSpec) -> u64 {
        0
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let n = call.size;
        let others = n - 1;
        if index < others {
            let to = Rank::new((rank.index() + index + 1) % n);
            Step::own(call.part_between(rank, to)).to(to)
        } else if index == others {
            Step::own(call.part_between(rank, rank)).store()
        } else {
            let from = Rank::new((rank.index() + n - (index - others)) % n);
            Step::receive(call.part_between(from, rank), from).store()
        }
    }
}
