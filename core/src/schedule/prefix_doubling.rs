//! Prefix sums by doubling: in round k, each rank sends what it has to the rank 2ᵏ after it.
//!
//! A [`Schedule`]: the engine asks it for steps; it knows neither values nor bytes.
//!
//! Before round k a rank has the sum of its own values and those of up to 2ᵏ − 1 ranks before it.
//! It sends that to rank r + 2ᵏ, and adds what rank r − 2ᵏ sends, as far as there are such ranks.
//! After ⌈log₂ n⌉ rounds it has the sum of all up to itself.
//!
//! *Exclusive scan.* All but the last rank do so, and then hand their sum to the next one. (If they
//! handed their values on first, a rank would send its own and another's, which would look alike.)
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced:
//!
//! | collective | time |
//! |---|---|
//! | scan | ⌈log₂ n⌉·(α + m·(β + γ)) |
//! | exclusive scan | ⌈log₂(n − 1)⌉·(α + m·(β + γ)) + α + m·β |
//!
//! Fewest latencies, but every round carries the whole array: the choice for short arrays. Source:
//! W. D. Hillis, G. L. Steele, "Data parallel algorithms", Commun. ACM 29 (1986).

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Scans by sending to ranks at doubling distances.
#[derive(Clone, Copy, Debug)]
pub struct PrefixDoubling;

/// The only part.
const WHOLE: Part = Part::new(0);

impl Schedule for PrefixDoubling {
    fn name(&self) -> &'static str {
        "prefix-doubling"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective.is_scan()
    }

    fn n_parts(&self, _: ProgramSpec) -> usize {
        1
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        let place = ScanRank::new(call, rank);
        // One rank alone has nobody to send to, and in a scan a result all the same.
        place.n_moves().max(usize::from(call.collective == Collective::Scan))
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // As in recursive doubling, and one more where what is stored is sent as well.
        2 * call.size.next_power_of_two() as u64 - 1
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let place = ScanRank::new(call, rank);
        let after = |distance| Rank::new(rank.index() + distance);
        let before = |distance| Rank::new(rank.index() - distance);
        let step = match place.nth(index) {
            ScanMove::Send { round } => Step::own(WHOLE).to(after(1 << round)),
            ScanMove::Add { round } => Step::receive(WHOLE, before(1 << round)).reduce(),
            ScanMove::Hand => return Step::own(WHOLE).to(after(1)),
            ScanMove::Take => Step::receive(WHOLE, before(1)),
            ScanMove::Nothing => Step::own(WHOLE),
        };
        if index + 1 < place.n_moves() { step.keep() } else { step.store() }
    }
}

/// What a rank does.
enum ScanMove {
    /// It sends what it has, and keeps it.
    Send {
        round: usize,
    },
    /// It adds what comes.
    Add {
        round: usize,
    },
    /// It hands its sum to the next rank.
    Hand,
    /// It takes that of the one before.
    Take,
    Nothing,
}

/// A rank in a scan.
struct ScanRank {
    /// Rounds in which it sends, and in which it adds: all from 0 on, until there is no such rank.
    n_sends: usize,
    n_adds: usize,
    hands: bool,
    takes: bool,
}

impl ScanRank {
    fn new(call: ProgramSpec, rank: Rank) -> Self {
        let (size, rank) = (call.size, rank.index());
        let is_exclusive = call.collective == Collective::ExclusiveScan;
        let n_doubling = if is_exclusive { size - 1 } else { size };
        let takes = is_exclusive && rank > 0;
        if rank >= n_doubling {
            return Self { n_sends: 0, n_adds: 0, hands: false, takes };
        }
        // Those k for which rank + 2ᵏ is a rank, and those for which rank − 2ᵏ is.
        let n_sends = (n_doubling - rank).next_power_of_two().ilog2() as usize;
        let n_adds = rank.checked_ilog2().map_or(0, |log| log as usize + 1);
        Self { n_sends, n_adds, hands: is_exclusive, takes }
    }

    const fn n_moves(&self) -> usize {
        self.n_sends + self.n_adds + self.hands as usize + self.takes as usize
    }

    /// In each round it sends, and then adds.
    fn nth(&self, index: usize) -> ScanMove {
        let (n_both, n_rounds) = (self.n_sends.min(self.n_adds), self.n_sends.max(self.n_adds));
        if index < 2 * n_both {
            let round = index / 2;
            return if index.is_multiple_of(2) {
                ScanMove::Send { round }
            } else {
                ScanMove::Add { round }
            };
        }
        match index - n_both {
            round if round < self.n_sends => ScanMove::Send { round },
            round if round < self.n_adds => ScanMove::Add { round },
            round if round == n_rounds && self.hands => ScanMove::Hand,
            _ if self.takes => ScanMove::Take,
            _ => ScanMove::Nothing,
        }
    }
}
