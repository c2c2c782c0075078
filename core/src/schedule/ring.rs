//! The ring: every rank receives from the rank before it and sends to the rank after it.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! The array is cut into n parts for n ranks; part p belongs to rank p.
//!
//! *Reduce-scatter.* Part p starts at rank p + 1 and travels once around the ring. Every rank adds
//! its operand, so the part is complete when it arrives at its owner, rank p. In step s, rank r
//! handles part r − 1 − s (mod n). It sends its own operand first (s = 0), adds to the parts that
//! pass (0 < s < n − 1), and stores part r (s = n − 1).
//!
//! *All-gather.* Part p starts at its owner and travels once around the ring. Every rank stores it.
//! In step s, rank r handles part r − s.
//!
//! *All-reduce.* Both, one after the other. The step in which the owner completes its part is also
//! the first step of the all-gather. In both halves rank r handles part r − 1 − s in step s, if s
//! continues from the first half to the second. So the all-gather is the all-reduce from step n − 1
//! on, except that nothing is added.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced:
//!
//! | collective | steps of a rank | messages of a rank | time |
//! |---|---|---|---|
//! | reduce-scatter | n | n − 1 | (n − 1)·α + (n − 1)/n·m·(β + γ) |
//! | all-gather | n | n − 1 | (n − 1)·α + (n − 1)/n·m·β |
//! | all-reduce | 2n − 1 | 2(n − 1) | 2(n − 1)·α + 2(n − 1)/n·m·β + (n − 1)/n·m·γ |
//!
//! The β terms are the least possible, so the ring suits long arrays.
//!
//! Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", J. Parallel Distrib. Comput. 69 (2009).

use core::cmp::Ordering;

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// All-reduce, reduce-scatter and all-gather around a ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring;

impl Schedule for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather
        )
    }

    fn n_steps(&self, call: ProgramSpec, _: Rank) -> usize {
        match call.collective {
            Collective::AllReduce => 2 * call.size - 1,
            Collective::ReduceScatter | Collective::AllGather => call.size,
            _ => 0,
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        let n = call.size as u64;
        match call.collective {
            // One encoding by each rank that a part passes, and one of the finished sum.
            Collective::AllReduce if n > 1 => n,
            Collective::ReduceScatter => n - 1,
            _ => 0,
        }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        let n = call.size;
        if n == 1 {
            return Step::own(Part::new(0)).store();
        }
        let n_steps = self.n_steps(call, rank);
        debug_assert!(index < n_steps);

        // Index of the step in an all-reduce. The owner completes its part in step `completion`.
        let completion = n - 1;
        let all_gather = call.collective == Collective::AllGather;
        let position = if all_gather { completion + index } else { index };
        let part = Part::new((rank.index() + (2 * n - 1) - position) % n);

        let is_last = index + 1 == n_steps;
        let before = Rank::new((rank.index() + n - 1) % n);
        let after = Rank::new((rank.index() + 1) % n);
        let step = match position.cmp(&completion) {
            Ordering::Less if index == 0 => Step::own(part),
            Ordering::Less => Step::receive(part, before).reduce(),
            Ordering::Equal if all_gather => Step::own(part).store(),
            Ordering::Equal => Step::receive(part, before).reduce().store(),
            Ordering::Greater => Step::receive(part, before).store(),
        };
        if is_last { step } else { step.to(after) }
    }
}
