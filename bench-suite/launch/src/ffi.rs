//! Signals that this process ignores.

#![allow(unsafe_code, reason = "dispositions of signals")]

use std::mem::MaybeUninit;
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};

/// Returns whether this process ignores a signal.
pub(super) fn is_ignored(asked: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call changes nothing. It writes to `action`, which is large
    // enough and lives until the call returns.
    let result = unsafe { libc::sigaction(asked as libc::c_int, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros are a valid `sigaction`, and so is what the system writes.
    let action = unsafe { action.assume_init() };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Lets this process ignore a signal, and the processes that it starts.
pub(super) fn ignore(ignored: Signal) -> Result<(), Errno> {
    // SAFETY: no handler is installed, so none can break a rule for handlers.
    unsafe { signal(ignored, SigHandler::SigIgn) }.map(drop)
}
