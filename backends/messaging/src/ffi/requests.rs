//! Pending requests of a library, with their memory.
//!
//! [`PendingRequests`] owns the memory of each request until the library reports that request
//! complete. Dropping it leaks the memory of requests that are still pending, because the library
//! may still access it.
#![allow(unsafe_code, reason = "passes memory to a library that uses it later")]

use std::mem;

use foldwire::transport::{Rank, Tag, TransportError};

use crate::MessageFrame;

/// Result of a request: the sender and the number of bytes of a received message, `None` for sends
/// and cancelled receives, or the library's error code.
pub type Completion = Result<Option<(Rank, usize)>, i32>;

/// A group of ranks in a library that represents messages as requests, as MPI does. Messages of the
/// group never match receives of another group.
///
/// # Safety
/// [`test`](Self::test) must not report a request before the library is done with its memory.
pub unsafe trait Requests {
    /// A pending request.
    type Request: Copy;
    /// Error of the library.
    type Error: TransportError + Copy;

    /// Returns this process's rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Returns, for each rank, the lowest rank that shares memory with it.
    fn nodes(&self) -> &[i64];

    /// Starts to send. A `matched` send completes only after the receive is posted.
    ///
    /// # Errors
    /// The library's error code; the library did nothing.
    ///
    /// # Safety
    /// The memory must stay valid, and no one may write to it, until the request is complete.
    unsafe fn start_send(
        &mut self,
        memory: *const u8,
        n_bytes: usize,
        to: (Rank, Tag),
        matched: bool,
    ) -> Result<Self::Request, i32>;

    /// Posts a receive, from any rank if `from` names none.
    ///
    /// # Errors
    /// The library's error code; the library did nothing.
    ///
    /// # Safety
    /// The memory must stay valid, and no one else may read or write it, until the request is
    /// complete.
    unsafe fn start_recv(
        &mut self,
        memory: *mut u8,
        n_bytes: usize,
        from: (Option<Rank>, Tag),
    ) -> Result<Self::Request, i32>;

    /// Advances the library, and adds the requests that have completed to `done`, each by its index
    /// in `requests`. The caller then removes them from `requests`. A request that the library
    /// reports with an error, but that stays active, has not completed.
    ///
    /// # Errors
    /// The library's error code. No request was reported.
    fn test(
        &mut self,
        requests: &mut [Self::Request],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), i32>;

    /// Asks the library to cancel a request. The request completes in a later test.
    fn cancel(&mut self, request: &mut Self::Request);

    /// Announces that the ranks end in disorder, as [`Net::abandon`](crate::Net::abandon) does.
    /// Messages without a receiver may still arrive, so the library must not reuse the group's
    /// identifiers.
    fn abandon(&mut self);

    /// Returns the library's code for "no memory".
    fn no_memory(&self) -> i32;

    /// Returns the error for a code, with the rank that it concerns if known.
    fn error(&self, code: i32, peer: Option<Rank>) -> Self::Error;
}

/// Pending requests, each with its description `N` and its memory.
pub(crate) struct PendingRequests<R: Requests, N> {
    requests: Vec<R::Request>,
    infos: Vec<(N, MessageFrame)>,
    done: Vec<(usize, Completion)>,
}

impl<R: Requests, N: Copy> PendingRequests<R, N> {
    pub(crate) const fn new() -> Self {
        Self { requests: Vec::new(), infos: Vec::new(), done: Vec::new() }
    }

    /// Starts to send the first `n_bytes` of `memory`. On failure, returns the memory and the code.
    pub(crate) fn send(
        &mut self,
        library: &mut R,
        info: N,
        (to, matched): ((Rank, Tag), bool),
        memory: MessageFrame,
        n_bytes: usize,
    ) -> Result<(), (MessageFrame, i32)> {
        let start = memory.as_ref()[..n_bytes].as_ptr();
        // SAFETY: the bytes are initialised, and they stay where they are when `memory` moves. We
        // own them until the request is complete, so no one writes to them before.
        let started = unsafe { library.start_send(start, n_bytes, to, matched) };
        self.keep(started, info, memory)
    }

    /// Posts a receive into all of `memory`. On failure, returns the memory and the code.
    pub(crate) fn recv(
        &mut self,
        library: &mut R,
        info: N,
        from: (Option<Rank>, Tag),
        mut memory: MessageFrame,
    ) -> Result<(), (MessageFrame, i32)> {
        let (n_bytes, start) = (memory.as_ref().len(), memory.as_mut().as_mut_ptr());
        // SAFETY: the bytes are ours and stay where they are when `memory` moves. We own them until
        // the request is complete, so no one else reads or writes them before.
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

    /// Number of pending requests.
    pub(crate) const fn n(&self) -> usize {
        self.requests.len()
    }

    /// Advances the library and passes each completed request to `each`.
    pub(crate) fn test(
        &mut self,
        library: &mut R,
        mut each: impl FnMut(N, MessageFrame, Completion),
    ) -> Result<(), i32> {
        self.done.clear();
        library.test(&mut self.requests, &mut self.done)?;
        // Remove from the last index to the first: a removal then moves no request that is still to
        // be removed.
        self.done.sort_unstable_by_key(|&(index, _)| std::cmp::Reverse(index));
        for (index, completion) in self.done.drain(..) {
            self.requests.swap_remove(index);
            let (info, memory) = self.infos.swap_remove(index);
            each(info, memory, completion);
        }
        Ok(())
    }

    /// Asks the library to cancel the requests that `which` selects.
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
        // The library may still read or write this memory.
        self.infos.drain(..).for_each(|(_, memory)| mem::forget(memory));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use foldwire::HeapFrame;
    use foldwire::transport::TransportErrorKind;

    use super::*;
    use crate::{Messages, Net, Source};

    /// A library whose requests fail at the first test, each with an error of its own, or never
    /// complete.
    struct Fake {
        nodes: &'static [i64],
        rank: Rank,
        fails: bool,
        n_tests: Arc<AtomicUsize>,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Failure(i32, Option<Rank>);

    impl TransportError for Failure {
        fn kind(&self) -> TransportErrorKind {
            TransportErrorKind::PeerLost
        }
        fn peer(&self) -> Option<Rank> {
            self.1
        }
    }

    // SAFETY: the library never accesses memory.
    unsafe impl Requests for Fake {
        type Request = i32;
        type Error = Failure;

        fn rank(&self) -> Rank {
            self.rank
        }
        fn size(&self) -> usize {
            self.nodes.len()
        }
        fn nodes(&self) -> &[i64] {
            self.nodes
        }
        unsafe fn start_send(
            &mut self,
            _: *const u8,
            _: usize,
            (to, _): (Rank, Tag),
            _: bool,
        ) -> Result<i32, i32> {
            Ok(to.0 as i32)
        }
        unsafe fn start_recv(
            &mut self,
            _: *mut u8,
            _: usize,
            (from, _): (Option<Rank>, Tag),
        ) -> Result<i32, i32> {
            Ok(from.map_or(0, |from| from.0 as i32))
        }
        fn test(
            &mut self,
            requests: &mut [i32],
            done: &mut Vec<(usize, Completion)>,
        ) -> Result<(), i32> {
            self.n_tests.fetch_add(1, Ordering::Relaxed);
            let failed = requests.iter().enumerate().filter(|_| self.fails);
            done.extend(failed.map(|(at, &code)| (at, Err(code))));
            Ok(())
        }
        fn cancel(&mut self, _: &mut i32) {}
        fn abandon(&mut self) {}
        fn no_memory(&self) -> i32 {
            -1
        }
        fn error(&self, code: i32, peer: Option<Rank>) -> Failure {
            Failure(code, peer)
        }
    }

    #[test]
    fn each_failed_request_is_reported() {
        let nodes = &[0, 1, 2, 3];
        let library = Fake { nodes, rank: Rank(0), fails: true, n_tests: Arc::default() };
        let mut messages = Messages::new(library);
        let frame = || MessageFrame::from(HeapFrame::new(100));
        messages.send(Rank(1), Tag(0), frame(), 10, false).unwrap();
        messages.recv(Source::Rank(Rank(2)), Tag(0), frame()).unwrap();
        messages.send(Rank(3), Tag(0), frame(), 10, true).unwrap();
        let (mut failures, mut n_events) = (Vec::new(), 0);
        for _ in 0..10 {
            match messages.poll() {
                Ok(event) => n_events += usize::from(event.is_some()),
                Err(failure) => failures.push(failure),
            }
        }
        failures.sort_by_key(|failure| failure.0);
        assert_eq!(failures, [1, 2, 3].map(|rank| Failure(rank, Some(Rank(rank as u32)))));
        assert_eq!(n_events, 3, "each buffer comes back");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_rank_that_sleeps_tests_the_library_before_each_sleep() {
        use std::convert::Infallible;
        use std::sync::{Barrier, Mutex};
        use std::thread;
        use std::time::{Duration, Instant};

        let (given, all_there) = (Mutex::new(vec![vec![]; 2]), Barrier::new(2));
        let n_tests = [const { AtomicUsize::new(0) }; 2].map(Arc::new);
        let join = |rank: usize| {
            let n_tests = Arc::clone(&n_tests[rank]);
            let library = Fake { nodes: &[0, 0], rank: Rank::new(rank), fails: false, n_tests };
            let all_gather = |mine: &[u8]| {
                given.lock().unwrap()[rank] = mine.to_vec();
                all_there.wait();
                let all = given.lock().unwrap().clone();
                all_there.wait();
                Ok::<_, Infallible>(all)
            };
            Messages::new(library).share_memory(20_000, all_gather).unwrap()
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| join(1));
            let mut messages = join(0);
            assert!(messages.shares_memory_with(Rank(1)));
            // The receive for notices, which does not complete.
            let buffer = MessageFrame::from(HeapFrame::new(100));
            messages.recv(Source::Any, Tag::CONTROL, buffer).unwrap();
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(5) {
                assert!(messages.poll().unwrap().is_none());
                messages.idle(Duration::from_millis(1));
            }
            let before = n_tests[0].load(Ordering::Relaxed);
            for _ in 0..10 {
                assert!(messages.poll().unwrap().is_none());
                messages.idle(Duration::from_millis(1));
            }
            assert_eq!(n_tests[0].load(Ordering::Relaxed) - before, 10);
            drop(other.join());
        });
    }
}
