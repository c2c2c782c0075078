//! The floating-point environment: rounding mode, flushing to zero, flags, traps.
//!
//! Programs change it, but error bounds are verified in the default environment only. C's functions
//! handle the differences between processors.

use std::ffi::{c_int, c_void};

/// The program's environment. It is restored, with its flags, when this value is dropped.
pub(crate) struct FloatEnvironment(EnvironmentBytes);

/// Storage for C's `fenv_t`, which has 8 to 32 bytes on the Linux targets of Rust's standard
/// library.
#[repr(C, align(16))]
struct EnvironmentBytes([u8; 256]);

/// C's `FE_DFL_ENV` in glibc and musl.
const DEFAULT: *const c_void = usize::MAX as *const c_void;

unsafe extern "C" {
    fn fegetenv(environment: *mut c_void) -> c_int;
    fn fesetenv(environment: *const c_void) -> c_int;
}

impl FloatEnvironment {
    /// Saves the environment, and switches this thread to the default one.
    pub(crate) fn default_for_now() -> Self {
        let mut saved = Self(EnvironmentBytes([0; 256]));
        // SAFETY: the storage is larger and more aligned than any `fenv_t`, and `DEFAULT` is C's
        // constant. Rust code assumes the default environment, which this switches on.
        unsafe {
            fegetenv((&raw mut saved.0).cast());
            fesetenv(DEFAULT);
        }
        saved
    }
}

impl Drop for FloatEnvironment {
    fn drop(&mut self) {
        // SAFETY: `fegetenv` wrote it in this thread. The type is used as a local guard and never
        // sent to another thread.
        unsafe { fesetenv((&raw const self.0).cast()) };
    }
}
