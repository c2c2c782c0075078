//! The floating-point environment: rounding, flushing to zero, flags, traps.
//!
//! Programs change it, and bounds are verified in the default one only. C's own functions know what
//! a processor has of it.

use std::ffi::{c_int, c_void};

/// The program's environment, which it gets back when this is dropped, flags included.
pub(crate) struct FloatEnvironment(EnvironmentBytes);

/// Room for C's `fenv_t`, which is 8 to 32 bytes where Rust's standard library runs on Linux.
#[repr(C, align(16))]
struct EnvironmentBytes([u8; 256]);

/// C's `FE_DFL_ENV` as glibc and musl have it.
const DEFAULT: *const c_void = usize::MAX as *const c_void;

unsafe extern "C" {
    fn fegetenv(environment: *mut c_void) -> c_int;
    fn fesetenv(environment: *const c_void) -> c_int;
}

impl FloatEnvironment {
    /// Begins the default environment in this thread.
    pub(crate) fn default_for_now() -> Self {
        let mut saved = Self(EnvironmentBytes([0; 256]));
        // SAFETY: the room is larger and more aligned than any `fenv_t`; the default one is C's
        // constant. Code of Rust's that runs here assumes the default, and nothing else.
        unsafe {
            fegetenv((&raw mut saved.0).cast());
            fesetenv(DEFAULT);
        }
        saved
    }
}

impl Drop for FloatEnvironment {
    fn drop(&mut self) {
        // SAFETY: it was written by `fegetenv` in this thread, since the type is never sent.
        unsafe { fesetenv((&raw const self.0).cast()) };
    }
}
