//! Scatter and all-gather: a broadcast in 2⌈log₂ n⌉ rounds that sends at most twice the array, for
//! any number of ranks.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! The array is cut into n parts. They go down a [binomial tree](super::Binomial), where each
//! subtree's parts travel in one message, until every rank has its own part. Then all parts are
//! gathered along a [circulant graph](super::Circulant). The root takes part in the all-gather and
//! receives back what it sent, so it stores what the other ranks decode. So all ranks store the
//! same bits.
//!
//! Cost for m bytes, with latency α per message and β per byte sent: 2⌈log₂ n⌉·α + 2(n − 1)/n·m·β.
//! A binomial tree takes ⌈log₂ n⌉·(α + m·β).
//!
//! Source: M. Barnett et al., "Interprocessor collective communication library (InterCom)", SHPCC
//! 1994; R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations
//! in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), §4.

use super::{Binomial, Circulant, Collective, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// Broadcast by a scatter and an all-gather.
#[derive(Clone, Copy, Debug)]
pub struct ScatterAllGather;

impl Schedule for ScatterAllGather {
    fn name(&self) -> &'static str {
        "scatter-all-gather"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective == Collective::Broadcast
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        Circulant.min_run(gather(call))
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        if call.size == 1 {
            return 1;
        }
        let n_gathering = Circulant.n_steps(gather(call), rank);
        n_scattering(call, rank) + n_gathering - n_skipped(call, rank)
    }

    fn n_encodings(&self, _: ProgramSpec) -> u64 {
        0
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        if call.size == 1 {
            return Binomial.step(call, rank, 0);
        }
        let n_before = n_scattering(call, rank);
        if index >= n_before {
            return Circulant.step(gather(call), rank, index - n_before + n_skipped(call, rank));
        }
        let step = Binomial.step(scatter(call), rank, index);
        // A rank without children keeps the received part.
        if step.store { Step { store: false, ..step.keep() } } else { step }
    }
}

/// The scatter. Each subtree's parts are one message.
const fn scatter(call: ProgramSpec) -> ProgramSpec {
    ProgramSpec { collective: Collective::Scatter, max_run: u16::MAX, ..call }
}

/// The all-gather.
const fn gather(call: ProgramSpec) -> ProgramSpec {
    ProgramSpec { collective: Collective::AllGather, root: Rank(0), ..call }
}

/// Number of steps of the scatter. The step that would store the rank's own part is left out,
/// unless that step receives the part.
fn n_scattering(call: ProgramSpec, rank: Rank) -> usize {
    let n_steps = Binomial.n_steps(scatter(call), rank);
    if rank != call.root && n_steps == 1 { 1 } else { n_steps - 1 }
}

/// Number of steps of the all-gather that are left out: its first step takes the rank's own part
/// into the holding, where all ranks except the root have it already. An all-gather between two
/// ranks has no such step.
const fn n_skipped(call: ProgramSpec, rank: Rank) -> usize {
    (rank.0 != call.root.0 && call.size > 2) as usize
}
