//! Foldwire's own MPI communicator, and point-to-point messages on it.

use std::ffi::c_int;

use foldwire::transport::{Rank, Tag};
use foldwire_messaging::{Completion, Requests};

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};
use crate::transport::Error;

/// A communicator of Foldwire, freed when dropped.
pub(crate) struct PrivateComm {
    mpi: &'static dyn MpiApi,
    raw: MpiHandle,
    rank: Rank,
    /// For each rank, the lowest rank on the same node.
    nodes: Vec<i64>,
    keep_forever: bool,
}

impl PrivateComm {
    /// Wraps a communicator from [`split`](super::library::CommApi::split).
    pub(crate) const fn new(
        mpi: &'static dyn MpiApi,
        raw: MpiHandle,
        rank: usize,
        nodes: Vec<i64>,
    ) -> Self {
        Self { mpi, raw, rank: Rank::new(rank), nodes, keep_forever: false }
    }
}

// SAFETY: `test` reports only requests that MPI has reported as complete.
unsafe impl Requests for PrivateComm {
    type Request = MpiHandle;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.nodes.len()
    }

    fn nodes(&self) -> &[i64] {
        &self.nodes
    }

    unsafe fn start_send(
        &mut self,
        memory: *const u8,
        n_bytes: usize,
        (to, tag): (Rank, Tag),
        matched: bool,
    ) -> Result<MpiHandle, MpiErrorCode> {
        let to = (to.index(), c_int::from(tag.0));
        // SAFETY: the caller guarantees that the memory stays valid and unchanged.
        unsafe { self.mpi.start_send(memory, n_bytes as c_int, to, self.raw, matched) }
    }

    unsafe fn start_recv(
        &mut self,
        memory: *mut u8,
        n_bytes: usize,
        (from, tag): (Option<Rank>, Tag),
    ) -> Result<MpiHandle, MpiErrorCode> {
        let from = (from.map(Rank::index), c_int::from(tag.0));
        // SAFETY: the caller guarantees that the memory stays valid and that nothing else accesses
        // it.
        unsafe { self.mpi.start_recv(memory, n_bytes as c_int, from, self.raw) }
    }

    fn test(
        &mut self,
        requests: &mut [MpiHandle],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), MpiErrorCode> {
        self.mpi.test_some(requests, done)
    }

    fn cancel(&mut self, request: &mut MpiHandle) {
        self.mpi.cancel(*request);
    }

    /// Never frees the communicator. Otherwise MPI could reuse its context for a later
    /// communicator, where a message that no rank has received could match.
    fn abandon(&mut self) {
        self.keep_forever = true;
    }

    fn no_memory(&self) -> MpiErrorCode {
        self.mpi.no_memory()
    }

    fn error(&self, code: MpiErrorCode, peer: Option<Rank>) -> Error {
        Error::new(code, self.mpi.kind(code), peer)
    }
}

impl Drop for PrivateComm {
    fn drop(&mut self) {
        if !self.keep_forever {
            self.mpi.free(self.raw);
        }
    }
}
