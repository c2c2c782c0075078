//! Prefix sums by doubling: in round k, each rank sends its partial sum to the rank 2ᵏ after it.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! Before round k a rank has the sum of its own values and the values of up to 2ᵏ − 1 ranks before
//! it. Rank r sends that sum to rank r + 2ᵏ, and adds what it receives from rank r − 2ᵏ, if these
//! ranks exist. After ⌈log₂ n⌉ rounds it has the sum of all ranks up to itself.
//!
//! *Exclusive scan.* All ranks except the last do the same, and then send their sum to the next
//! rank. They do not shift their inputs by one rank first. With such a shift, a rank would send two
//! messages with one operand each to the next rank: its own input, and in round 0 the previous
//! rank's input. Their headers would be equal.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced:
//!
//! | collective | time |
//! |---|---|
//! | scan | ⌈log₂ n⌉·(α + m·(β + γ)) |
//! | exclusive scan | ⌈log₂(n − 1)⌉·(α + m·(β + γ)) + α + m·β |
//!
//! The schedule has the fewest latencies, but every round carries the whole array, so it suits
//! short arrays.
//!
//! Source: W. D. Hillis, G. L. Steele, "Data parallel algorithms", Commun. ACM 29 (1986).

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Scans that send to ranks at doubling distances.
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
        let scan = ScanRank::new(call, rank);
        // A single rank has no peer to send to, but in a scan it has a result.
        scan.n_moves().max(usize::from(call.collective == Collective::Scan))
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // With c ranks, a power of two, the rounds give 2·(c − 1) errors, as in recursive doubling.
        // The send to the next rank gives one more.
        2 * call.size.next_power_of_two() as u64 - 1
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let scan = ScanRank::new(call, rank);
        let after = |distance| Rank::new(rank.index() + distance);
        let before = |distance| Rank::new(rank.index() - distance);
        let step = match scan.nth(index) {
            // The own operand is the partial sum, once a step has kept one.
            ScanMove::Send { round } => Step::own(WHOLE).to(after(1 << round)),
            ScanMove::Add { round } => Step::receive(WHOLE, before(1 << round)).reduce(),
            ScanMove::SendToNext => return Step::own(WHOLE).to(after(1)),
            ScanMove::StorePrevious => Step::receive(WHOLE, before(1)),
            ScanMove::StoreOwn => Step::own(WHOLE),
        };
        if index + 1 < scan.n_moves() { step.keep() } else { step.store() }
    }
}

/// A move of a rank in a scan.
enum ScanMove {
    /// Send the partial sum and keep it.
    Send { round: usize },
    /// Add the received partial sum.
    Add { round: usize },
    /// Send the sum to the next rank (exclusive scan).
    SendToNext,
    /// Store the sum received from the rank before (exclusive scan).
    StorePrevious,
    /// Store this rank's input: the only step of a single rank in a scan.
    StoreOwn,
}

/// A rank's moves in a scan.
struct ScanRank {
    /// Number of rounds in which the rank sends; these are the first rounds.
    n_sends: usize,
    /// Number of rounds in which the rank adds; these are the first rounds too.
    n_adds: usize,
    /// See [`ScanMove::SendToNext`].
    sends_to_next: bool,
    /// See [`ScanMove::StorePrevious`].
    stores_previous: bool,
}

impl ScanRank {
    fn new(call: ProgramSpec, rank: Rank) -> Self {
        let (size, rank) = (call.size, rank.index());
        let is_exclusive = call.collective == Collective::ExclusiveScan;
        let n_doubling = if is_exclusive { size - 1 } else { size };
        let stores_previous = is_exclusive && rank > 0;
        if rank >= n_doubling {
            return Self { n_sends: 0, n_adds: 0, sends_to_next: false, stores_previous };
        }
        // Numbers of exponents k for which rank + 2ᵏ exists, and for which rank − 2ᵏ exists.
        let n_sends = (n_doubling - rank).next_power_of_two().ilog2() as usize;
        let n_adds = rank.checked_ilog2().map_or(0, |log| log as usize + 1);
        Self { n_sends, n_adds, sends_to_next: is_exclusive, stores_previous }
    }

    const fn n_moves(&self) -> usize {
        self.n_sends + self.n_adds + self.sends_to_next as usize + self.stores_previous as usize
    }

    /// Move `index`: in each round the rank first sends and then adds.
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
            round if round == n_rounds && self.sends_to_next => ScanMove::SendToNext,
            _ if self.stores_previous => ScanMove::StorePrevious,
            _ => ScanMove::StoreOwn,
        }
    }
}
