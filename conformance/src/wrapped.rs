//! A wrapper that changes a few properties of a transport through [`Hooks`].

use foldwire::transport::{Distance, Rank, Tag, Transport, TransportError, TransportErrorKind};
use std::fmt;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Changes to the wrapped transport. The default methods change nothing, except the
/// [distance](Self::distance).
pub trait Hooks {
    /// Sees a received message, the first `n_bytes` of `frame`, and may change it. Returns its new
    /// length.
    fn received(&mut self, frame: &mut [u8], n_bytes: usize) -> usize {
        let _ = frame;
        n_bytes
    }

    /// Sees a frame that the transport gets, to send it or to use it again.
    fn gets(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// Called when a receive from `from` with `tag` found no message.
    fn found_nothing(&mut self, from: Rank, tag: Tag) {
        let _ = (from, tag);
    }

    /// Called before the transport is polled: between two steps, or while the rank computes.
    fn looks(&mut self, is_computing: bool) {
        let _ = is_computing;
    }

    /// Returns whether the wrapper passes on the inner transport's reports of lost peers.
    fn tells_of_loss(&self) -> bool {
        true
    }

    /// Returns the reported time, where `now` is the inner transport's time.
    fn time(&self, now: Duration) -> Duration {
        now
    }

    /// Returns the reported number of frames, given the inner transport's.
    fn n_frames(&self, inside: Option<usize>) -> Option<usize> {
        inside
    }

    /// Returns the reported link rate, given the inner transport's.
    fn link_rate(&self, inside: Option<f64>) -> Option<f64> {
        inside
    }

    /// Returns the reported distance of all peers, whatever the inner transport's.
    fn distance(&self) -> Distance {
        Distance::Network
    }

    /// Returns whether bytes can be damaged on the wire, given the inner transport's answer.
    fn needs_checksum(&self, inside: bool) -> bool {
        inside
    }
}

/// A transport with hooks, and with one [channel](Transport::n_channels). It is one type for all
/// hooks, so collectives are compiled for it once.
pub struct Wrapped<X> {
    inner: X,
    hooks: Box<dyn Hooks>,
}

impl<X> Wrapped<X> {
    /// Wraps `inner`.
    pub fn new(inner: X, hooks: impl Hooks + 'static) -> Self {
        Self { inner, hooks: Box::new(hooks) }
    }
}

impl<X: fmt::Debug> fmt::Debug for Wrapped<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<X: Transport> Wrapped<X> {
    /// Returns whether this result reports the loss of a peer and the hooks hide such reports.
    fn hides<R>(&self, polled: &Poll<Result<R, X::Error>>) -> bool {
        let lost = TransportErrorKind::PeerLost;
        !self.hooks.tells_of_loss()
            && matches!(polled, Poll::Ready(Err(error)) if error.kind() == lost)
    }
}

impl<X: Transport> Transport for Wrapped<X> {
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

    fn n_frames(&self) -> Option<usize> {
        self.hooks.n_frames(self.inner.n_frames())
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Self::Error>> {
        let polled = self.inner.poll_ready(to, tag);
        if self.hides(&polled) { Poll::Pending } else { polled }
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: Self::Frame,
        n_bytes: usize,
    ) -> Result<(), Self::Error> {
        self.hooks.gets(frame.as_ref());
        self.inner.send(to, tag, frame, n_bytes)
    }

    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(Self::Frame, usize), Self::Error>> {
        let mut polled = self.inner.poll_recv(from, tag);
        if self.hides(&polled) {
            polled = Poll::Pending;
        }
        if polled.is_pending() {
            self.hooks.found_nothing(from, tag);
        }
        polled.map_ok(|(mut frame, n_bytes)| {
            let n_bytes = self.hooks.received(frame.as_mut(), n_bytes);
            (frame, n_bytes)
        })
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        self.inner.expect(from, tag);
    }

    fn forget(&mut self, peer: Rank) {
        self.inner.forget(peer);
    }

    fn recycle(&mut self, frame: Self::Frame) {
        self.hooks.gets(frame.as_ref());
        self.inner.recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        self.inner.undelivered()
    }

    fn progress(&mut self) -> Result<(), Self::Error> {
        self.hooks.looks(false);
        self.inner.progress()
    }

    fn nudge(&mut self) {
        self.hooks.looks(true);
        self.inner.nudge();
    }

    fn now(&self) -> Duration {
        self.hooks.time(self.inner.now())
    }

    fn idle(&mut self, budget: Duration) {
        self.inner.idle(budget);
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.inner.register(waker)
    }

    fn link_rate(&self) -> Option<f64> {
        self.hooks.link_rate(self.inner.link_rate())
    }

    fn distance(&self, _: Rank) -> Distance {
        self.hooks.distance()
    }

    fn needs_checksum(&self) -> bool {
        self.hooks.needs_checksum(self.inner.needs_checksum())
    }
}
