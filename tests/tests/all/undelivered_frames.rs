//! The suite detects a transport that does not report that its frames leave only while the sender
//! polls.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use foldwire::transport::{Rank, Tag, Transport};
use foldwire_tests::{AnyBackend, Backend, Threads, suite};
use foldwire_threads::Endpoint;

type InnerFrame = <Endpoint as Transport>::Frame;
type InnerError = <Endpoint as Transport>::Error;

/// Most frames that wait to be sent.
const DEPTH: usize = 16;

/// A threads transport whose frames leave only in [`Transport::progress`], one at a time.
struct ProgressOnlyTransport {
    inner: Endpoint,
    waiting: VecDeque<(Rank, Tag, InnerFrame, usize)>,
    is_honest: bool,
}

impl ProgressOnlyTransport {
    fn send_next(&mut self) -> Result<(), InnerError> {
        let Some(&(to, tag, ..)) = self.waiting.front() else { return Ok(()) };
        if self.inner.poll_ready(to, tag).is_pending() {
            return Ok(());
        }
        if let Some((to, tag, frame, n_bytes)) = self.waiting.pop_front() {
            // The receiver may have ended, which is not a failure of the network.
            let _ = self.inner.send(to, tag, frame, n_bytes);
        }
        Ok(())
    }
}

impl Drop for ProgressOnlyTransport {
    fn drop(&mut self) {
        while !self.waiting.is_empty() && self.send_next().is_ok() {
            std::thread::yield_now();
        }
    }
}

impl Transport for ProgressOnlyTransport {
    type Frame = InnerFrame;
    type Error = InnerError;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn frame_capacity(&self) -> usize {
        self.inner.frame_capacity()
    }

    fn poll_frame(&mut self) -> Poll<Result<InnerFrame, InnerError>> {
        self.inner.poll_frame()
    }

    fn n_frames(&self) -> Option<usize> {
        self.inner.n_frames()
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), InnerError>> {
        let is_full = self.waiting.len() >= DEPTH;
        if is_full { Poll::Pending } else { self.inner.poll_ready(to, tag) }
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: InnerFrame,
        n_bytes: usize,
    ) -> Result<(), InnerError> {
        self.waiting.push_back((to, tag, frame, n_bytes));
        Ok(())
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(InnerFrame, usize), InnerError>> {
        self.inner.poll_recv(from, tag)
    }

    fn recycle(&mut self, frame: InnerFrame) {
        self.inner.recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        self.waiting.front().filter(|_| self.is_honest).map(|&(to, ..)| to)
    }

    fn progress(&mut self) -> Result<(), InnerError> {
        self.inner.progress()?;
        self.send_next()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn idle(&mut self, _: Duration) {
        std::thread::yield_now();
    }
}

struct ProgressOnlyThreads {
    inside: Threads,
    is_honest: bool,
}

impl Backend for ProgressOnlyThreads {
    type Transport = ProgressOnlyTransport;

    fn run_transports<R: Send>(
        &self,
        size: usize,
        body: impl Fn(ProgressOnlyTransport) -> R + Sync,
    ) -> Vec<R> {
        self.inside.run_transports(size, |inner| {
            body(ProgressOnlyTransport {
                inner,
                waiting: VecDeque::new(),
                is_honest: self.is_honest,
            })
        })
    }
}

/// Returns whether such a transport passes the check with these words in its name.
fn passes(is_honest: bool, words: &str) -> bool {
    let make = |frame_bytes| {
        AnyBackend::new(ProgressOnlyThreads { inside: Threads { frame_bytes }, is_honest })
    };
    let mut checks = suite::checks().into_iter().filter(|(name, _)| name.contains(words));
    let (_, check) = checks.next().expect("a check of that name");
    [2, 3].into_iter().all(|size| catch_unwind(AssertUnwindSafe(|| check(&make, size))).is_ok())
}

#[test]
fn a_transport_that_does_not_say_that_its_frames_need_attention_fails() {
    assert!(!passes(false, "does other work"));
}

#[test]
fn a_transport_that_says_that_its_frames_need_attention_passes() {
    for words in ["does other work", "calls in a row"] {
        assert!(passes(true, words), "{words}");
    }
}
