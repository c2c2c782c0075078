//! Symbols of several parts: the contents of a message or of a holding.

use alloc::vec::Vec;
use core::mem::take;

use super::value::PartValue;
use crate::bundle::Placement;
use crate::schedule::Part;

/// Parts and their values, in order.
#[derive(Clone, Default)]
pub(super) struct ValueRun(pub(super) Vec<(Part, PartValue)>);

impl ValueRun {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first part of a run that is not empty.
    pub(super) fn first(&self) -> Part {
        self.0[0].0
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        self.0.iter().map(|(part, _)| *part)
    }

    /// Returns whether these parts are at these places.
    pub(super) fn has_at(&self, places: Placement, mut parts: impl Iterator<Item = Part>) -> bool {
        (0..places.n_parts()).all(|index| parts.next() == Some(self.0[places.nth(index)].0))
    }

    /// Removes the parts at these places and returns them.
    pub(super) fn take_out(&mut self, places: Placement) -> Self {
        let mut taken = Self::default();
        for (place, value) in take(&mut self.0).into_iter().enumerate() {
            let n_taken = taken.len();
            let is_meant = n_taken < places.n_parts() && places.nth(n_taken) == place;
            let run = if is_meant { &mut taken } else { &mut *self };
            run.0.push(value);
        }
        taken
    }

    /// Inserts another run so that its parts end up at these places.
    pub(super) fn put_in(&mut self, other: Self, places: Placement) {
        let mut held = take(&mut self.0).into_iter();
        for (index, value) in other.0.into_iter().enumerate() {
            let n_before = places.nth(index) - self.len();
            self.0.extend(held.by_ref().take(n_before));
            self.0.push(value);
        }
        self.0.extend(held);
    }

    /// Returns whether all parts from this place on combine the same number of ranks' values.
    pub(super) fn is_even_from(&self, place: usize) -> bool {
        let mut numbers = self.0[place..].iter().map(|(_, value)| value.contributors.len());
        numbers.next().is_none_or(|first| numbers.all(|number| number == first))
    }
}
