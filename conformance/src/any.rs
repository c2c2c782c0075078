//! Any backend and any transport, each as one type. So the [suite](crate::suite) and the
//! collectives that it calls are compiled once, not again for each backend.

use crate::{Backend, DeviceMemory};
use foldwire::transport::{Distance, Rank, Tag, Transport, TransportError, TransportErrorKind};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Any [`Backend`].
pub struct AnyBackend<'a>(Box<dyn ObjectBackend + 'a>);

impl<'a> AnyBackend<'a> {
    /// Makes a backend whose ranks have `backend`'s transports, each as an [`AnyTransport`].
    pub fn new<B: Backend + 'a>(backend: B) -> Self
    where
        B::Transport: 'static,
    {
        Self(Box::new(backend))
    }
}

impl fmt::Debug for AnyBackend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyBackend").finish_non_exhaustive()
    }
}

impl Backend for AnyBackend<'_> {
    type Transport = AnyTransport;

    fn run_transports<R: Send>(
        &self,
        size: usize,
        body: impl Fn(AnyTransport) -> R + Sync,
    ) -> Vec<R> {
        let ranks = self.ranks(size);
        let results = Mutex::new(ranks.clone().map(|_| None).collect::<Vec<_>>());
        self.0.run_each(size, &|transport| {
            let at = transport.rank().index() - ranks.start;
            let result = body(transport);
            results.lock().expect("no rank panics here")[at] = Some(result);
        });
        let results = results.into_inner().expect("no rank panics here").into_iter();
        results.map(|result| result.expect("each rank ran")).collect()
    }

    fn ranks(&self, size: usize) -> Range<usize> {
        self.0.ranks_of(size)
    }

    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        self.0.gather_words(own)
    }

    fn memory(&self, rank: usize) -> Option<&dyn DeviceMemory> {
        self.0.memory_of(rank)
    }
}

/// The methods of [`Backend`], without type parameters.
trait ObjectBackend {
    fn run_each(&self, size: usize, body: &(dyn Fn(AnyTransport) + Sync));
    fn ranks_of(&self, size: usize) -> Range<usize>;
    fn gather_words(&self, own: Vec<u64>) -> Vec<u64>;
    fn memory_of(&self, rank: usize) -> Option<&dyn DeviceMemory>;
}

impl<B: Backend> ObjectBackend for B
where
    B::Transport: 'static,
{
    fn run_each(&self, size: usize, body: &(dyn Fn(AnyTransport) + Sync)) {
        self.run_transports(size, |transport| body(AnyTransport::new(transport)));
    }

    fn ranks_of(&self, size: usize) -> Range<usize> {
        self.ranks(size)
    }

    fn gather_words(&self, own: Vec<u64>) -> Vec<u64> {
        self.gather(own)
    }

    fn memory_of(&self, rank: usize) -> Option<&dyn DeviceMemory> {
        self.memory(rank)
    }
}

/// Any [`Transport`].
pub struct AnyTransport(Box<dyn Transport<Frame = AnyFrame, Error = AnyError>>);

impl AnyTransport {
    /// Makes a transport that passes each call to `transport`.
    pub fn new<X: Transport + 'static>(transport: X) -> Self {
        Self(Box::new(Passing(transport)))
    }
}

impl fmt::Debug for AnyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyTransport").finish_non_exhaustive()
    }
}

/// Frame of any transport.
pub struct AnyFrame(Box<dyn ObjectFrame>);

impl fmt::Debug for AnyFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyFrame").finish_non_exhaustive()
    }
}

impl AnyFrame {
    /// Returns the frame of a transport with frames of type `F`.
    fn into_frame<F: 'static>(self) -> F {
        *self.0.into_any().downcast().expect("a frame of this transport")
    }
}

impl AsRef<[u8]> for AnyFrame {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsMut<[u8]> for AnyFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

trait ObjectFrame {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<F: AsRef<[u8]> + AsMut<[u8]> + 'static> ObjectFrame for F {
    fn bytes(&self) -> &[u8] {
        self.as_ref()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Error of any transport.
#[derive(Clone, Copy, Debug)]
pub struct AnyError {
    kind: TransportErrorKind,
    peer: Option<Rank>,
}

impl AnyError {
    fn new(error: impl TransportError) -> Self {
        Self { kind: error.kind(), peer: error.peer() }
    }
}

impl TransportError for AnyError {
    fn kind(&self) -> TransportErrorKind {
        self.kind
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}

/// Passes the methods without frames and errors on to the transport in the first field.
macro_rules! pass_on {
    () => {
        fn rank(&self) -> Rank {
            self.0.rank()
        }

        fn size(&self) -> usize {
            self.0.size()
        }

        fn frame_capacity(&self) -> usize {
            self.0.frame_capacity()
        }

        fn n_channels(&self) -> usize {
            self.0.n_channels()
        }

        fn n_frames(&self) -> Option<usize> {
            self.0.n_frames()
        }

        fn expect(&mut self, from: Rank, tag: Tag) {
            self.0.expect(from, tag);
        }

        fn forget(&mut self, peer: Rank) {
            self.0.forget(peer);
        }

        fn undelivered(&self) -> Option<Rank> {
            self.0.undelivered()
        }

        fn undelivered_of(&self, channel: usize) -> Option<Rank> {
            self.0.undelivered_of(channel)
        }

        fn nudge(&mut self) {
            self.0.nudge();
        }

        fn now(&self) -> Duration {
            self.0.now()
        }

        fn idle(&mut self, budget: Duration) {
            self.0.idle(budget);
        }

        fn register(&mut self, waker: &Waker) -> bool {
            self.0.register(waker)
        }

        fn link_rate(&self) -> Option<f64> {
            self.0.link_rate()
        }

        fn distance(&self, peer: Rank) -> Distance {
            self.0.distance(peer)
        }

        fn needs_checksum(&self) -> bool {
            self.0.needs_checksum()
        }
    };
}

/// A transport whose frames and errors lose their types.
struct Passing<X>(X);

impl<X: Transport + 'static> Transport for Passing<X> {
    type Frame = AnyFrame;
    type Error = AnyError;

    fn poll_frame(&mut self) -> Poll<Result<AnyFrame, AnyError>> {
        let polled = self.0.poll_frame().map_err(AnyError::new);
        polled.map_ok(|frame| AnyFrame(Box::new(frame)))
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), AnyError>> {
        self.0.poll_ready(to, tag).map_err(AnyError::new)
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: AnyFrame,
        n_bytes: usize,
    ) -> Result<(), AnyError> {
        self.0.send(to, tag, frame.into_frame(), n_bytes).map_err(AnyError::new)
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(AnyFrame, usize), AnyError>> {
        let polled = self.0.poll_recv(from, tag).map_err(AnyError::new);
        polled.map_ok(|(frame, n_bytes)| (AnyFrame(Box::new(frame)), n_bytes))
    }

    fn recycle(&mut self, frame: AnyFrame) {
        self.0.recycle(frame.into_frame());
    }

    fn progress(&mut self) -> Result<(), AnyError> {
        self.0.progress().map_err(AnyError::new)
    }

    pass_on!();
}

impl Transport for AnyTransport {
    type Frame = AnyFrame;
    type Error = AnyError;

    fn poll_frame(&mut self) -> Poll<Result<AnyFrame, AnyError>> {
        self.0.poll_frame()
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), AnyError>> {
        self.0.poll_ready(to, tag)
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: AnyFrame,
        n_bytes: usize,
    ) -> Result<(), AnyError> {
        self.0.send(to, tag, frame, n_bytes)
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(AnyFrame, usize), AnyError>> {
        self.0.poll_recv(from, tag)
    }

    fn recycle(&mut self, frame: AnyFrame) {
        self.0.recycle(frame);
    }

    fn progress(&mut self) -> Result<(), AnyError> {
        self.0.progress()
    }

    pass_on!();
}
