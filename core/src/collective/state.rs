//! State of a communicator besides its transport and its settings.

#[cfg(feature = "alloc")]
use super::probe::Measurements;
#[cfg(feature = "alloc")]
use super::resolved::RecentCalls;
use crate::engine::Lanes;
#[cfg(feature = "alloc")]
use alloc::boxed::Box;

/// Storage for a large field, on the heap if there is an allocator. A value with such a field is
/// then cheap to move.
#[cfg(feature = "alloc")]
pub(super) type OnHeap<V> = Box<V>;
#[cfg(not(feature = "alloc"))]
pub(super) type OnHeap<V> = V;

/// Moves a value into an [`OnHeap`].
#[cfg(feature = "alloc")]
pub(super) fn on_heap<V>(value: V) -> OnHeap<V> {
    Box::new(value)
}
#[cfg(not(feature = "alloc"))]
pub(super) const fn on_heap<V>(value: V) -> OnHeap<V> {
    value
}

/// Lanes of the running call, and knowledge from earlier calls.
pub(super) struct State<F> {
    pub(super) lanes: Lanes<F>,
    #[cfg(feature = "alloc")]
    pub(super) measured: Measurements,
    #[cfg(feature = "alloc")]
    pub(super) recent: RecentCalls,
}

impl<F> Default for State<F> {
    fn default() -> Self {
        Self {
            lanes: Lanes::default(),
            #[cfg(feature = "alloc")]
            measured: Measurements::default(),
            #[cfg(feature = "alloc")]
            recent: RecentCalls::default(),
        }
    }
}
