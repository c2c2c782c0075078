//! Atomics, locks and cells from `std`, or from `loom` under `--cfg loom`. loom explores every
//! interleaving, and every value that an atomic load may see.
//!
//! The ring and the parker use only this module for synchronization. loom has no clock, so a timed
//! wait is an untimed one under loom. If only the timeout would have ended a wait, loom reports a
//! deadlock.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::yield_now,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Locks `mutex`, even if another rank panicked while it held the lock. This is sound because every
/// critical section of this crate leaves its data consistent at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the lock until `condition` is notified or about `timeout`, if any, has passed. May also
/// return earlier (a spurious wake-up).
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Option<Duration>,
) -> MutexGuard<'a, T> {
    match timeout {
        None => condition.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(timeout) => {
            condition.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

/// Puts `T` on cache lines of its own. It takes two lines, because x86-64 prefetches lines in pairs
/// and some aarch64 cores have lines of 128 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// `std`'s cell with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to read through.
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer to write through.
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
