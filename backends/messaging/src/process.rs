//! The process that made a transport, and whether this is still that one.
//!
//! A process that is forked off has all of its parent's memory and descriptors: what it sends its
//! parent's peers take for the parent's, and what it closes in good order is closed for both. So it
//! may not use its parent's transports. The C library counts forks (`ffi`); to ask the system for
//! the process's number in each call would cost as much as a short call.

use std::process;

use crate::ffi;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    id: u32,
    n_forks: Option<u32>,
}

impl ProcessIdentity {
    /// This process.
    pub(crate) fn current() -> Self {
        Self { id: process::id(), n_forks: ffi::n_forks() }
    }

    /// True in the process itself, false in those that were forked off it.
    pub(crate) fn is_current(&self) -> bool {
        match ffi::n_forks() {
            None => self.id == process::id(),
            n_forks => n_forks == self.n_forks,
        }
    }
}
