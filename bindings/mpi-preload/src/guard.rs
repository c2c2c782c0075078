//! What stands around all of our code inside a program that does not know of it: no panic leaves,
//! and the program finds its floating-point environment as it was.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ffi::FloatEnvironment;

/// A panic, of which Rust's own handler has told on standard error.
#[derive(Debug)]
pub struct Panicked;

/// Runs `inside` in the default floating-point environment.
///
/// # Errors
/// That it panicked.
pub fn guarded<R>(inside: impl FnOnce() -> R) -> Result<R, Panicked> {
    let _environment = FloatEnvironment::default_for_now();
    caught(inside)
}

/// Runs `inside`, which computes nothing with floats, in the program's own environment: saving that
/// takes longer than MPI takes for a short call.
///
/// # Errors
/// That it panicked.
pub fn caught<R>(inside: impl FnOnce() -> R) -> Result<R, Panicked> {
    // What a panic leaves half done is behind a lock, which it poisons.
    catch_unwind(AssertUnwindSafe(inside)).map_err(|payload| {
        // Dropping what was thrown could throw again.
        std::mem::forget(payload);
        Panicked
    })
}
