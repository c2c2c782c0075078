//! What a communicator has beside its transport and its settings.

#[cfg(feature = "alloc")]
use super::probe::Measured;
#[cfg(feature = "alloc")]
use super::resolved::Recent;
use crate::engine::Lanes;
#[cfg(feature = "alloc")]
use alloc::boxed::Box;

/// What is large and belongs to what is moved: on the heap where there is one.
#[cfg(feature = "alloc")]
pub(super) type Placed<V> = Box<V>;
#[cfg(not(feature = "alloc"))]
pub(super) type Placed<V> = V;

/// Puts it there.
#[cfg(feature = "alloc")]
pub(super) fn placed<V>(value: V) -> Placed<V> {
    Box::new(value)
}
#[cfg(not(feature = "alloc"))]
pub(super) const fn placed<V>(value: V) -> Placed<V> {
    value
}

/// The lanes of the call under way, and what is known from calls before.
pub(super) struct State<F> {
    pub(super) lanes: Lanes<F>,
    #[cfg(feature = "alloc")]
    pub(super) measured: Measured,
    #[cfg(feature = "alloc")]
    pub(super) recent: Recent,
}

impl<F> Default for State<F> {
    fn default() -> Self {
        Self {
            lanes: Lanes::default(),
            #[cfg(feature = "alloc")]
            measured: Measured::default(),
            #[cfg(feature = "alloc")]
            recent: Recent::default(),
        }
    }
}
