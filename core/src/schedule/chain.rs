//! The chain: every rank has one neighbour towards the root and one away from it.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! Ranks are in order from the root.
//!
//! - *Broadcast.* Each rank stores what it receives from the rank before it and forwards it.
//! - *Reduce.* Each rank adds its input to what it receives from the rank after it, and sends the
//!   sum towards the root.
//! - *Scan.* Each rank adds its input to what it receives from the rank before it, stores the sum,
//!   and sends it on. In an exclusive scan it stores the received value instead.
//!
//! There is one part, processed in rounds that follow each other along the chain. Each link carries
//! every round once, and all links are busy at the same time, except during the first and the last
//! rounds.
//!
//! Cost for m bytes in k rounds over n ranks, with latency α per message, β per byte sent and γ per
//! byte reduced:
//!
//! | collective | time |
//! |---|---|
//! | broadcast | (k + n − 2)·(α + m/k·β) |
//! | reduce, scan | (k + n − 2)·(α + m/k·(β + γ)) |
//!
//! For long arrays a broadcast approaches m·β, where the root of a binomial tree sends ⌈log₂ n⌉·m
//! bytes.
//!
//! Source: J. L. Träff, A. Ripke, "Optimal broadcast for fully connected processor-node networks",
//! J. Parallel Distrib. Comput. 68 (2008), section 1, "linear pipeline".

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Broadcast, reduce and scan along a chain.
#[derive(Clone, Copy, Debug)]
pub struct Chain;

/// The only part.
const WHOLE: Part = Part::new(0);

impl Schedule for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(collective, Collective::Broadcast | Collective::Reduce) || collective.is_scan()
    }

    fn n_parts(&self, _: ProgramSpec) -> usize {
        1
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        // A single rank of an exclusive scan has nothing to store and no peer to send to.
        usize::from(call.collective != Collective::ExclusiveScan || call.size > 1)
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // Every rank but the last one encodes its partial sum once.
        if call.collective.reduces() { call.size as u64 - 1 } else { 0 }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let n = call.size;
        let place = (rank.index() + n - call.root.index()) % n;
        // The neighbour nearer to the root, and the one farther from it.
        let nearer = (place > 0).then(|| Rank::new((rank.index() + n - 1) % n));
        let farther = (place + 1 < n).then(|| Rank::new((rank.index() + 1) % n));
        if call.collective.is_scan() {
            let step = match nearer {
                None => Step::own(WHOLE),
                Some(from) if call.collective == Collective::Scan || farther.is_some() => {
                    Step::receive(WHOLE, from).reduce()
                }
                Some(from) => Step::receive(WHOLE, from),
            };
            let step = Step { to: farther, ..step };
            return match (call.collective, nearer) {
                (Collective::Scan, _) => step.store(),
                (_, None) => step,
                (_, Some(_)) if step.own => step.store_before(),
                (_, Some(_)) => step.store(),
            };
        }
        let reduces = call.collective == Collective::Reduce;
        let (from, to) = if reduces { (farther, nearer) } else { (nearer, farther) };
        let received = |from| Step::receive(WHOLE, from);
        let step = match from {
            None => Step::own(WHOLE),
            Some(from) if reduces => received(from).reduce(),
            Some(from) => received(from),
        };
        // In a reduce, the ranks that pass partial sums on have no result.
        let step = if reduces && to.is_some() { step } else { step.store() };
        Step { to, ..step }
    }
}
