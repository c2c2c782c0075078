//! Binomial.

use super::{Call, Collective, Schedule, Step};
use crate::transport::Rank;

/// Binomial.
#[derive(Clone, Copy, Debug)]
pub struct Binomial;

impl Schedule for Binomial {
    fn name(&self) -> &'static str {
        "binomial"
    }
    fn supports(&self, _: Collective) -> bool {
        false
    }
    fn n_parts(&self, _: Call) -> usize {
        1
    }
    fn n_steps(&self, _: Call, _: Rank) -> usize {
        0
    }
    fn step(&self, _: Call, _: Rank, _: usize) -> Step {
        unreachable!()
    }
}
