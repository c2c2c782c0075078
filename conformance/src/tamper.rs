//! A transport that does harm: it hands a wrapped transport's frames to a closure before delivery.

use crate::wrapped::{Hooks, Wrapped};
use std::fmt;

/// What may happen to a received message: change its bytes, and its length by returning another.
pub type Harm = Box<dyn FnMut(&mut [u8], usize) -> usize + Send>;

/// A transport whose received frames are tampered with.
pub type Tampered<X> = Wrapped<X, Tamper>;

/// Wraps `inner`; `harm` sees every received frame and its length.
pub const fn tamper<X>(inner: X, harm: Harm) -> Tampered<X> {
    Wrapped::new(inner, Tamper(harm))
}

/// The hook that does it.
pub struct Tamper(Harm);

impl Hooks for Tamper {
    fn received(&mut self, frame: &mut [u8], n_bytes: usize) -> usize {
        (self.0)(frame, n_bytes)
    }

    fn needs_checksum(&self, _: bool) -> bool {
        true
    }
}

impl fmt::Debug for Tamper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tamper")
    }
}
