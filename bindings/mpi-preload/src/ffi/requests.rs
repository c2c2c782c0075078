//! A communicator of ours, and what is asked of MPI about messages on it.

use std::ffi::c_int;

use foldwire::transport::{Rank, Tag};
use foldwire_messaging::{Completion, Requests};

use super::abi::Handle;
use super::library::{Code, Mpi};
use crate::net::Error;

/// A communicator of our own, freed when it is dropped.
pub(crate) struct Comm {
    mpi: &'static dyn Mpi,
    raw: Handle,
    rank: Rank,
    /// Of each rank, the lowest that shares memory with it.
    nodes: Vec<i64>,
    keep_forever: bool,
}

impl Comm {
    /// Of one that [`split`](super::library::Communicators::split) made.
    pub(crate) const fn new(
        mpi: &'static dyn Mpi,
        raw: Handle,
        rank: usize,
        nodes: Vec<i64>,
    ) -> Self {
        Self { mpi, raw, rank: Rank::new(rank), nodes, keep_forever: false }
    }
}

// SAFETY: requests that are named are those of which MPI says that they are complete.
unsafe impl Requests for Comm {
    type Request = Handle;
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
    ) -> Result<Handle, Code> {
        let to = (to.index(), c_int::from(tag.0));
        // SAFETY: by the caller's promise.
        unsafe { self.mpi.start_send(memory, n_bytes as c_int, to, self.raw, matched) }
    }

    unsafe fn start_recv(
        &mut self,
        memory: *mut u8,
        n_bytes: usize,
        (from, tag): (Option<Rank>, Tag),
    ) -> Result<Handle, Code> {
        let from = (from.map(Rank::index), c_int::from(tag.0));
        // SAFETY: by the caller's promise.
        unsafe { self.mpi.start_recv(memory, n_bytes as c_int, from, self.raw) }
    }

    fn test(
        &mut self,
        requests: &mut [Handle],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), Code> {
        self.mpi.test_some(requests, done)
    }

    fn cancel(&mut self, request: &mut Handle) {
        self.mpi.cancel(*request);
    }

    /// The communicator is never freed: a message that nobody received could otherwise meet a later
    /// one that MPI gives the same number.
    fn abandon(&mut self) {
        self.keep_forever = true;
    }

    fn no_memory(&self) -> Code {
        self.mpi.no_memory()
    }

    fn error(&self, code: Code, peer: Option<Rank>) -> Error {
        Error::new(code, self.mpi.kind(code), peer)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.keep_forever {
            self.mpi.free(self.raw);
        }
    }
}
