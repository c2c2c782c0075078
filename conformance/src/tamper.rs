//! A transport that damages frames: a closure sees each received frame of a wrapped transport
//! before delivery.

use crate::wrapped::{Hooks, Wrapped};

/// A closure that receives a frame and the length of its message. It may change the bytes, and
/// returns the length that the message then has.
pub type FrameDamage = Box<dyn FnMut(&mut [u8], usize) -> usize + Send>;

/// Wraps `inner`. `harm` receives each frame and its length.
pub fn tamper<X>(inner: X, harm: FrameDamage) -> Wrapped<X> {
    Wrapped::new(inner, TamperHook(harm))
}

/// The hook that calls the closure.
struct TamperHook(FrameDamage);

impl Hooks for TamperHook {
    fn received(&mut self, frame: &mut [u8], n_bytes: usize) -> usize {
        (self.0)(frame, n_bytes)
    }

    fn needs_checksum(&self, _inside: bool) -> bool {
        // The closure damages bytes, even if the inner transport never does.
        true
    }
}
