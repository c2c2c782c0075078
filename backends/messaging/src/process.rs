//! Identity of the process that made a transport, to detect use in a forked child.
//!
//! A forked child has all memory and descriptors of its parent. Peers would take its messages for
//! the parent's, and an orderly close would close the parent's connections too. So a child must not
//! use its parent's transports. A fork handler of the C library counts forks (`ffi`), because a
//! `getpid` in each call would cost as much as a short call.

use std::process;

use crate::ffi;

/// Process id and fork count of a process. Where the system cannot count forks, only the id is
/// compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    id: u32,
    /// `None` if the system cannot count forks.
    n_forks: Option<u32>,
}

impl ProcessIdentity {
    /// Returns the identity of the running process.
    pub(crate) fn current() -> Self {
        Self { id: process::id(), n_forks: ffi::n_forks() }
    }

    /// Returns whether `self` identifies the running process. False in a forked child.
    pub(crate) fn is_current(&self) -> bool {
        match ffi::n_forks() {
            None => self.id == process::id(),
            n_forks => n_forks == self.n_forks,
        }
    }
}
