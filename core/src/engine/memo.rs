//! What the steps of a call came to when it was made before.
//!
//! A step of a program that is made again is the same step, and computes the same for the same
//! content of its slots. So who makes a call again looks it up in place of asking schedule, layout
//! and rules. Only for calls of one round, whose segments are short.

use crate::layout::Segment;
use crate::primitive::{Content, Primitives};
use crate::schedule::Step;
use crate::transport::Rank;
#[cfg(feature = "alloc")]
use alloc::vec::Vec;

/// A step, and what it came to.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) step: Step,
    /// The segment of its first part.
    pub(super) segment: Segment,
    /// Whom the lane receives from after it.
    pub(super) next_source: Option<Rank>,
    /// What was held and received when it computed `to_do`, in reverse order.
    pub(super) given: [Option<Content>; 2],
    pub(super) to_do: Primitives,
}

/// Steps are known up to this one.
#[cfg(feature = "alloc")]
const MAX_STEPS: usize = 64;

/// The steps of one program. Without an allocator nothing is kept.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    #[cfg(feature = "alloc")]
    steps: Vec<Option<Known>>,
}

impl Memo {
    pub(super) fn get(&self, _index: usize) -> Option<&Known> {
        #[cfg(feature = "alloc")]
        return self.steps.get(_index)?.as_ref();
        #[cfg(not(feature = "alloc"))]
        None
    }

    pub(super) fn insert(&mut self, _index: usize, _known: Known) {
        #[cfg(feature = "alloc")]
        if _index < MAX_STEPS {
            if self.steps.len() <= _index {
                self.steps.resize_with(_index + 1, || None);
            }
            self.steps[_index] = Some(_known);
        }
    }
}
