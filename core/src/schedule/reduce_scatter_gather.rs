//! Reduce-scatter and gather: a reduce in 2⌈log₂ n⌉ rounds that moves at most twice the array, for
//! any number of ranks.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! The array is cut into n parts. Each rank sums up its own part along a [circulant
//! graph](super::Circulant). Then the sums are gathered at the root, up a [binomial
//! tree](super::Binomial), where each subtree's parts travel in one message.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced: 2⌈log₂
//! n⌉·α + 2(n − 1)/n·m·β + (n − 1)/n·m·γ. A binomial tree takes ⌈log₂ n⌉·(α + m·β + m·γ).
//!
//! Source: R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, with the
//! first half as in Träff's circulant graphs.

use super::{Binomial, Circulant, Collective, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Reduce by a reduce-scatter and a gather.
#[derive(Clone, Copy, Debug)]
pub struct ReduceScatterGather;

impl Schedule for ReduceScatterGather {
    fn name(&self) -> &'static str {
        "reduce-scatter-gather"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective == Collective::Reduce
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        Circulant.min_run(scatter(call))
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        if call.size == 1 {
            return 1;
        }
        let n_reducing = Circulant.n_steps(scatter(call), rank);
        n_reducing + Binomial.n_steps(gather(call), rank) - n_skipped(call, rank)
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // The encodings of the reduce-scatter, and one of the finished sum.
        if call.size > 1 { call.size as u64 } else { 0 }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        if call.size == 1 {
            return Binomial.step(call, rank, 0);
        }
        let n_reducing = Circulant.n_steps(scatter(call), rank);
        if index >= n_reducing {
            let index = index - n_reducing + n_skipped(call, rank);
            return Binomial.step(gather(call), rank, index);
        }
        let step = Circulant.step(scatter(call), rank, index);
        // The sum is complete and only moves from here on.
        if step.store && rank != call.root {
            Step { store: false, ..step.keep_as_sent() }
        } else {
            step
        }
    }
}

/// The reduce-scatter.
const fn scatter(call: ProgramSpec) -> ProgramSpec {
    ProgramSpec { collective: Collective::ReduceScatter, root: Rank(0), ..call }
}

/// The gather. Each subtree's parts are one message.
const fn gather(call: ProgramSpec) -> ProgramSpec {
    ProgramSpec { collective: Collective::Gather, max_run: u16::MAX, ..call }
}

/// Number of steps of the gather that are left out. Its first step would store the root's own part,
/// which the root has stored already. On a rank with children it would take the rank's own part,
/// which the rank already holds.
fn n_skipped(call: ProgramSpec, rank: Rank) -> usize {
    let has_children = Binomial.n_steps(gather(call), rank) > 1;
    usize::from(rank == call.root || has_children)
}
