//! Protection of the program from Foldwire's code: panics do not leave it, and the program gets its
//! floating-point environment back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ffi::FloatEnvironment;

/// A caught panic. Rust's panic hook has already reported it on standard error.
#[derive(Debug)]
pub struct Panicked;

/// Runs `inside` in the default floating-point environment.
///
/// # Errors
/// `inside` panicked.
pub fn guarded<R>(inside: impl FnOnce() -> R) -> Result<R, Panicked> {
    let _environment = FloatEnvironment::default_for_now();
    caught(inside)
}

/// Runs `inside` in the program's floating-point environment. `inside` must not compute with
/// floats. Saving the environment would take longer than MPI takes for a short call.
///
/// # Errors
/// `inside` panicked.
pub fn caught<R>(inside: impl FnOnce() -> R) -> Result<R, Panicked> {
    // Data that a panic leaves inconsistent is behind a lock, which the panic poisons.
    catch_unwind(AssertUnwindSafe(inside)).map_err(|payload| {
        // Dropping the payload could panic again.
        std::mem::forget(payload);
        Panicked
    })
}
