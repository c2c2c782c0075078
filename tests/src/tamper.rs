//! A transport that does harm: it hands a wrapped transport's frames to a closure before delivery.

use foldwire::transport::{Rank, Tag, Transport};
use std::fmt;
use std::task::Poll;
use std::time::Duration;

/// What may happen to a received message: change its bytes, and its length by returning another.
pub type Harm = Box<dyn FnMut(&mut [u8], usize) -> usize + Send>;

/// A transport whose received frames are tampered with.
pub struct Tamper<X> {
    inner: X,
    harm: Harm,
}

impl<X> Tamper<X> {
    /// Wraps `inner`; `harm` sees every received frame and its length.
    pub fn new(inner: X, harm: Harm) -> Self {
        Self { inner, harm }
    }
}

impl<X> fmt::Debug for Tamper<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tamper")
    }
}

impl<X: Transport> Transport for Tamper<X> {
    type Frame = X::Frame;
    type Error = X::Error;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn frame_capacity(&self) -> usize {
        self.inner.frame_capacity()
    }

    fn poll_frame(&mut self) -> Poll<Result<Self::Frame, Self::Error>> {
        self.inner.poll_frame()
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(to, tag)
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: Self::Frame,
        n_bytes: usize,
    ) -> Result<(), Self::Error> {
        self.inner.send(to, tag, frame, n_bytes)
    }

    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(Self::Frame, usize), Self::Error>> {
        self.inner.poll_recv(from, tag).map_ok(|(mut frame, n_bytes)| {
            let n_bytes = (self.harm)(frame.as_mut(), n_bytes);
            (frame, n_bytes)
        })
    }

    fn recycle(&mut self, frame: Self::Frame) {
        self.inner.recycle(frame);
    }

    fn progress(&mut self) -> Result<(), Self::Error> {
        self.inner.progress()
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        self.inner.expect(from, tag);
    }

    fn forget(&mut self, peer: Rank) {
        self.inner.forget(peer);
    }

    fn undelivered(&self) -> Option<Rank> {
        self.inner.undelivered()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn link_rate(&self) -> Option<f64> {
        self.inner.link_rate()
    }

    fn idle(&mut self, budget: Duration) {
        self.inner.idle(budget);
    }
}
