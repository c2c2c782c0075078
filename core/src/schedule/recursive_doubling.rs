//! RecursiveDoubling.

use super::{Call, Collective, Schedule, Step};
use crate::transport::Rank;

/// RecursiveDoubling.
#[derive(Clone, Copy, Debug)]
pub struct RecursiveDoubling;

impl Schedule for RecursiveDoubling {
    fn name(&self) -> &'static str {
        "recursive_doubling"
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
