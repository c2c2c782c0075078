//! Requests of a library's under way, with the memory that it works on.
//!
//! Memory under way belongs to an [`PendingRequests`] and is given back only when the library says that
//! its request is complete. What is still under way when an `PendingRequests` is dropped is leaked, since
//! the library may yet touch it.
#![allow(unsafe_code, reason = "hands memory to a library that works on it later")]

use std::mem;

use foldwire::transport::{Rank, Tag, TransportError};

use crate::MessageFrame;

/// How a request ended: who sent how many bytes (nothing of sends and cancelled receives), or the
/// library's code.
pub type Completion = Result<Option<(Rank, usize)>, i32>;

/// A group of ranks in a library that is told by requests what to send and to receive, as MPI is.
/// Its messages meet no others.
///
/// # Safety
/// [`test`](Self::test) must name no request before the library has done with its memory.
pub unsafe trait Requests {
    /// A request under way.
    type Request: Copy;
    /// Why the library failed.
    type Error: TransportError + Copy;

    /// This process's rank.
    fn rank(&self) -> Rank;

    /// Number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Of each rank, the lowest that shares memory with it.
    fn nodes(&self) -> &[i64];

    /// Starts to send; `matched`: only after the receive is posted.
    ///
    /// # Errors
    /// The library's code; nothing has happened.
    ///
    /// # Safety
    /// The memory must be there, and nobody write it, until the request is complete.
    unsafe fn start_send(
        &mut self,
        memory: *const u8,
        n_bytes: usize,
        to: (Rank, Tag),
        matched: bool,
    ) -> Result<Self::Request, i32>;

    /// Posts a receive, of any rank unless one is given.
    ///
    /// # Errors
    /// The library's code; nothing has happened.
    ///
    /// # Safety
    /// The memory must be there, and nobody use it, until the request is complete.
    unsafe fn start_recv(
        &mut self,
        memory: *mut u8,
        n_bytes: usize,
        from: (Option<Rank>, Tag),
    ) -> Result<Self::Request, i32>;

    /// Moves the library along, and says which of these requests have become complete, by their
    /// places. They are not asked about again.
    ///
    /// # Errors
    /// The library's code; it has said nothing of any request.
    fn test(
        &mut self,
        requests: &mut [Self::Request],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), i32>;

    /// Asks the library to give a request up. It completes in a later test.
    fn cancel(&mut self, request: &mut Self::Request);

    /// As [`Net::abandon`](crate::Net::abandon).
    fn abandon(&mut self);

    /// The library's code for "no memory".
    fn no_memory(&self) -> i32;

    /// The error of a code, if known with the rank that it is about.
    fn error(&self, code: i32, peer: Option<Rank>) -> Self::Error;
}

/// Requests under way, each with a info `N` and its memory.
pub(crate) struct PendingRequests<R: Requests, N> {
    requests: Vec<R::Request>,
    infos: Vec<(N, MessageFrame)>,
    done: Vec<(usize, Completion)>,
}

impl<R: Requests, N: Copy> PendingRequests<R, N> {
    pub(crate) const fn new() -> Self {
        Self { requests: Vec::new(), infos: Vec::new(), done: Vec::new() }
    }

    /// Starts to send the first `n_bytes` of `memory`; on failure gives it back with the code.
    pub(crate) fn send(
        &mut self,
        library: &mut R,
        info: N,
        (to, matched): ((Rank, Tag), bool),
        memory: MessageFrame,
        n_bytes: usize,
    ) -> Result<(), (MessageFrame, i32)> {
        let start = memory.as_ref()[..n_bytes].as_ptr();
        // SAFETY: the bytes are initialised, stay where they are when `memory` moves, and nobody
        // writes them until the request is complete, since we own them.
        let started = unsafe { library.start_send(start, n_bytes, to, matched) };
        self.keep(started, info, memory)
    }

    /// Posts a receive into all of `memory`; on failure gives it back with the code.
    pub(crate) fn recv(
        &mut self,
        library: &mut R,
        info: N,
        from: (Option<Rank>, Tag),
        mut memory: MessageFrame,
    ) -> Result<(), (MessageFrame, i32)> {
        let (n_bytes, start) = (memory.as_ref().len(), memory.as_mut().as_mut_ptr());
        // SAFETY: the bytes are ours and stay where they are when `memory` moves; nobody else reads
        // or writes them until the request is complete.
        let started = unsafe { library.start_recv(start, n_bytes, from) };
        self.keep(started, info, memory)
    }

    fn keep(
        &mut self,
        started: Result<R::Request, i32>,
        info: N,
        memory: MessageFrame,
    ) -> Result<(), (MessageFrame, i32)> {
        match started {
            Ok(request) => {
                self.requests.push(request);
                self.infos.push((info, memory));
                Ok(())
            }
            Err(code) => Err((memory, code)),
        }
    }

    /// How many there are.
    pub(crate) const fn n(&self) -> usize {
        self.requests.len()
    }

    /// Moves the library along and hands out what has completed.
    pub(crate) fn test(
        &mut self,
        library: &mut R,
        mut each: impl FnMut(N, MessageFrame, Completion),
    ) -> Result<(), i32> {
        self.done.clear();
        library.test(&mut self.requests, &mut self.done)?;
        // From the last to the first: taking one out moves none that is still to go.
        self.done.sort_unstable_by_key(|&(place, _)| std::cmp::Reverse(place));
        for (place, completion) in self.done.drain(..) {
            self.requests.swap_remove(place);
            let (info, memory) = self.infos.swap_remove(place);
            each(info, memory, completion);
        }
        Ok(())
    }

    /// Asks the library to give up the requests that `which` picks.
    pub(crate) fn cancel(&mut self, library: &mut R, which: impl Fn(N) -> bool) {
        for (request, (info, _)) in self.requests.iter_mut().zip(&self.infos) {
            if which(*info) {
                library.cancel(request);
            }
        }
    }
}

impl<R: Requests, N> Drop for PendingRequests<R, N> {
    fn drop(&mut self) {
        // The library may still read or write it.
        self.infos.drain(..).for_each(|(_, memory)| mem::forget(memory));
    }
}
