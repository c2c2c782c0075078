//! Segments of a step that moves several parts.

use super::{Layout, Segment};
use crate::schedule::Step;

/// Segments of a step's parts in one round.
#[derive(Clone, Copy, Debug)]
pub struct Run<'l> {
    layout: &'l Layout<'l>,
    step: Step,
    round: usize,
    first: Segment,
}

impl<'l> Run<'l> {
    pub(super) fn new(layout: &'l Layout<'l>, step: &Step, round: usize) -> Self {
        Self { layout, step: *step, round, first: layout.segment(step.part, round) }
    }

    /// Number of parts, at least one.
    #[must_use]
    pub const fn n_parts(&self) -> u16 {
        self.step.n_parts
    }

    /// Returns the segment of the part at index `place` of the run.
    #[must_use]
    pub fn segment(&self, place: usize) -> Segment {
        if place == 0 {
            return self.first;
        }
        let part = self.step.part_at(self.layout.call, self.layout.n_parts, place);
        self.layout.segment(part, self.round)
    }

    /// Number of values in each segment, in order.
    pub fn lens(&self) -> impl ExactSizeIterator<Item = usize> {
        (0..usize::from(self.step.n_parts)).map(|place| self.segment(place).len)
    }

    /// Number of values in all segments.
    #[must_use]
    pub fn n_values(&self) -> usize {
        if self.step.n_parts == 1 { self.first.len } else { self.lens().sum() }
    }
}
