//! A communicator of ours, and requests under way on it with the memory that MPI works on.
//!
//! Memory under way belongs to a [`Requests`] and is given back only when MPI says that its request
//! is complete. What is still under way when a `Requests` is dropped is leaked, since MPI may yet
//! touch it.

use std::ffi::c_int;
use std::mem;

use foldwire::HeapFrame;
use foldwire::transport::{Rank, Tag};

use super::abi::Handle;
use super::library::{Code, Mpi, Outcome};

/// A communicator of our own, freed when it is dropped.
pub(crate) struct Comm {
    pub(crate) mpi: &'static dyn Mpi,
    raw: Handle,
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    keep_forever: bool,
}

impl Comm {
    /// Of one that [`Mpi::split`] made.
    pub(crate) const fn new(mpi: &'static dyn Mpi, raw: Handle, rank: usize, size: usize) -> Self {
        Self { mpi, raw, rank: Rank::new(rank), size, keep_forever: false }
    }

    /// Never frees the communicator: a message that nobody received could otherwise meet a later
    /// one that MPI gives the same number.
    pub(crate) const fn keep_forever(&mut self) {
        self.keep_forever = true;
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.keep_forever {
            self.mpi.free(self.raw);
        }
    }
}

/// Requests under way, each with a note `R` and its memory.
pub(crate) struct Requests<R> {
    requests: Vec<Handle>,
    under_way: Vec<(R, HeapFrame)>,
    done: Vec<(usize, Outcome)>,
}

impl<R: Copy> Requests<R> {
    pub(crate) const fn new() -> Self {
        Self { requests: Vec::new(), under_way: Vec::new(), done: Vec::new() }
    }

    /// Starts to send the first `n_bytes` of `memory`; on failure gives it back with MPI's code.
    pub(crate) fn send(
        &mut self,
        comm: &Comm,
        note: R,
        (to, tag): (Rank, Tag),
        memory: HeapFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), (HeapFrame, Code)> {
        let place = memory.as_ref()[..n_bytes].as_ptr();
        let to = (to.index(), c_int::from(tag.0));
        // SAFETY: the bytes are initialised, stay where they are when `memory` moves (they are on
        // the heap), and nobody writes them until the request is complete, since we own them.
        match unsafe { comm.mpi.start_send(place, n_bytes as c_int, to, comm.raw, matched) } {
            Ok(request) => {
                self.requests.push(request);
                self.under_way.push((note, memory));
                Ok(())
            }
            Err(code) => Err((memory, code)),
        }
    }

    /// Posts a receive into all of `memory`; on failure gives it back with MPI's code.
    pub(crate) fn recv(
        &mut self,
        comm: &Comm,
        note: R,
        (from, tag): (Option<Rank>, Tag),
        mut memory: HeapFrame,
    ) -> Result<(), (HeapFrame, Code)> {
        let (place, n_bytes) = (memory.as_mut().as_mut_ptr(), memory.as_ref().len() as c_int);
        let from = (from.map(Rank::index), c_int::from(tag.0));
        // SAFETY: the bytes are ours and stay where they are when `memory` moves; nobody else reads
        // or writes them until the request is complete.
        match unsafe { comm.mpi.start_recv(place, n_bytes, from, comm.raw) } {
            Ok(request) => {
                self.requests.push(request);
                self.under_way.push((note, memory));
                Ok(())
            }
            Err(code) => Err((memory, code)),
        }
    }

    /// Moves MPI along and hands out what has completed; returns the first error, after all.
    pub(crate) fn test<E>(
        &mut self,
        comm: &Comm,
        failed: impl FnOnce(Code) -> E,
        mut each: impl FnMut(R, HeapFrame, Outcome) -> Result<(), E>,
    ) -> Result<(), E> {
        self.done.clear();
        comm.mpi.test_some(&self.requests, &mut self.done).map_err(failed)?;
        // From the last to the first: taking one out moves none that is still to go.
        self.done.sort_unstable_by_key(|&(index, _)| std::cmp::Reverse(index));
        let mut result = Ok(());
        for (index, outcome) in self.done.drain(..) {
            self.requests.swap_remove(index);
            let (note, memory) = self.under_way.swap_remove(index);
            result = result.and(each(note, memory, outcome));
        }
        result
    }

    /// Asks MPI to give up the requests that `which` picks. They complete in later tests.
    pub(crate) fn cancel(&self, comm: &Comm, which: impl Fn(R) -> bool) {
        for (&request, &(note, _)) in self.requests.iter().zip(&self.under_way) {
            if which(note) {
                comm.mpi.cancel(request);
            }
        }
    }
}

impl<R> Drop for Requests<R> {
    fn drop(&mut self) {
        for (_, memory) in self.under_way.drain(..) {
            // MPI may still read or write it.
            mem::forget(memory);
        }
    }
}
