//! The segments of a step that concerns several parts.

use super::{Layout, Segment};
use crate::schedule::Part;

/// What a step concerns in a round: the segments of so many parts that follow each other, the first
/// after the last.
#[derive(Clone, Copy, Debug)]
pub struct Run<'l> {
    layout: &'l Layout<'l>,
    part: Part,
    n_parts: u16,
    round: usize,
    first: Segment,
}

impl<'l> Run<'l> {
    pub(super) fn new(layout: &'l Layout<'l>, part: Part, n_parts: u16, round: usize) -> Self {
        Self { layout, part, n_parts, round, first: layout.segment(part, round) }
    }

    /// Number of parts, at least one.
    #[must_use]
    pub const fn n_parts(&self) -> u16 {
        self.n_parts
    }

    /// The segment of the part at this place of the run.
    #[must_use]
    pub fn segment(&self, place: usize) -> Segment {
        if place == 0 {
            return self.first;
        }
        let part = (self.part.index() + place) % self.layout.n_parts;
        self.layout.segment(Part::new(part), self.round)
    }

    /// Values of each segment, in order.
    pub fn lens(&self) -> impl ExactSizeIterator<Item = usize> {
        (0..usize::from(self.n_parts)).map(|place| self.segment(place).len)
    }

    /// Values of all segments.
    #[must_use]
    pub fn n_values(&self) -> usize {
        if self.n_parts == 1 { self.first.len } else { self.lens().sum() }
    }
}
