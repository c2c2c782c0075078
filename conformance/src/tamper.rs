//! A transport that does harm: it hands a wrapped transport's frames to a closure before delivery.

use crate::wrapped::{Hooks, Wrapped};

/// What may happen to a received message: change its bytes, and its length by returning another.
pub type FrameDamage = Box<dyn FnMut(&mut [u8], usize) -> usize + Send>;

/// Wraps `inner`; `harm` sees every received frame and its length.
pub fn tamper<X>(inner: X, harm: FrameDamage) -> Wrapped<X> {
    Wrapped::new(inner, TamperHook(harm))
}

/// The hook that does it.
struct TamperHook(FrameDamage);

impl Hooks for TamperHook {
    fn received(&mut self, frame: &mut [u8], n_bytes: usize) -> usize {
        (self.0)(frame, n_bytes)
    }

    fn needs_checksum(&self, _: bool) -> bool {
        true
    }
}
