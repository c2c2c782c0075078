//! Which schedule a call takes when the caller leaves the choice open.
//!
//! A small cost model. For an all-reduce of m bytes over n ranks, ring and pairwise exchange send the
//! same number of values, but a ring sends partial sums where pairwise sends single operands. Let ρ be
//! the ratio of raw to wire bytes, σ the share of wire bytes that single operands save, R the link's
//! rate and E the rate at which a rank encodes. Pairwise saves about 2·σ·m/(ρ·R) on the wire and
//! spends m/E on encoding what a ring folds for free, so it pays where R < 2·σ·E/ρ.

use crate::pipeline::Partial;
use crate::plan::Plan;
use crate::schedule::{self, Collective, Pairwise, Schedule};

/// Wire bytes that single operands save against partial sums: 15 % of the whole all-reduce on the wave
/// fields of `foldwire stack`, where partial sums are fewer bits wider the fewer ranks there are.
const SAVED: f64 = 0.15;
/// Bytes per second that a rank encodes when all cores are busy.
const ENCODE_RATE: f64 = 4e9;
/// Raw bytes per wire byte.
const RATIO: f64 = 5.0;

/// The schedule for `collective` by this plan over links of `link_rate` bytes per second, each way
/// (`None`: unknown, or as fast as memory). Every rank must ask with the same arguments.
#[must_use]
pub fn schedule(
    collective: Collective,
    plan: &Plan,
    link_rate: Option<f64>,
) -> &'static dyn Schedule {
    if let Some(schedule) = plan.schedule {
        return schedule;
    }
    let compresses = !plan.codec.is_exact() && plan.pipeline.partial == Partial::Frame;
    let is_slow = link_rate.is_some_and(|rate| rate < 2.0 * SAVED * ENCODE_RATE / RATIO);
    if collective == Collective::AllReduce && compresses && is_slow {
        &Pairwise
    } else {
        schedule::default_for(collective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Bound;
    use crate::schedule::{RecursiveDoubling, Ring};

    #[test]
    fn slow_links_exchange_single_operands_and_fast_ones_form_a_ring() {
        let name = |plan: &Plan, rate| schedule(Collective::AllReduce, plan, rate).name();
        let plan = Plan::foldwire(Bound::Relative(1e-4));
        assert_eq!(name(&plan, Some(0.125e9)), Pairwise.name());
        assert_eq!(name(&plan, Some(12.5e9)), Ring.name());
        assert_eq!(name(&plan, None), Ring.name());
        assert_eq!(name(&Plan::raw(), Some(0.125e9)), Ring.name());
        let fixed = plan.with_schedule(&RecursiveDoubling);
        assert_eq!(name(&fixed, Some(0.125e9)), RecursiveDoubling.name());
    }
}
