//! What a communicator has beside its transport and its settings.

#[cfg(feature = "alloc")]
use super::probe::Measurements;
#[cfg(feature = "alloc")]
use super::resolved::RecentCalls;
use crate::engine::Lanes;
#[cfg(feature = "alloc")]
use alloc::boxed::Box;

/// What is large and belongs to what is moved: on the heap where there is one.
#[cfg(feature = "alloc")]
pub(super) type OnHeap<V> = Box<V>;
#[cfg(not(feature = "alloc"))]
pub(super) type OnHeap<V> = V;

/// Puts it there.
#[cfg(feature = "alloc")]
pub(super) fn on_heap<V>(value: V) -> OnHeap<V> {
    Box::new(value)
}
#[cfg(not(feature = "alloc"))]
pub(super) const fn on_heap<V>(value: V) -> OnHeap<V> {
    value
}

/// The lanes of the call under way, and what is known from calls before.
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
