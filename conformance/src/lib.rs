//! The conformance suite: what every backend, schedule, pipeline and codec must do.
//!
//! A [`Case`] is one point of the product; [`Case::check`] runs it on a [`Backend`] and compares
//! every rank's result with a plain oracle in `f64` and with the other ranks' bits. [`pairwise`]
//! picks few cases such that every pair of choices occurs in one; [`all`] is the whole product.
//!
//! A new backend implements [`Backend`] and calls [`pairwise`] in one test.

pub mod case;
pub mod data;
pub mod oracle;
pub mod suite;
pub mod tamper;
pub mod wrapped;

pub use case::{Case, Operation, all, pairwise, pairwise_of};

use foldwire::{Communicator, Transport};
use std::ops::Range;

/// A way to run one closure on every rank of a new group: in this process, or in several that all
/// run the same program, of which this is one.
pub trait Backend {
    /// Its transport.
    type Transport: Transport;

    /// Runs `body` on each of `size` ranks at the same time, and returns the results of those ranks
    /// that live in this process, in rank order.
    fn run_transports<R: Send>(
        &self,
        size: usize,
        body: impl Fn(Self::Transport) -> R + Sync,
    ) -> Vec<R>;

    /// The same with communicators.
    fn run<R: Send>(
        &self,
        size: usize,
        body: impl Fn(Communicator<Self::Transport>) -> R + Sync,
    ) -> Vec<R> {
        self.run_transports(size, |transport| {
            body(Communicator::new(transport).expect("frames are large enough"))
        })
    }

    /// The ranks of a group of `size` that live in this process.
    fn ranks(&self, size: usize) -> Range<usize> {
        0..size
    }

    /// A word of every rank, in rank order, given those of the ranks here.
    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        own
    }
}

/// Ranks as threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    /// Bytes of a frame; `None`: the backend's default.
    pub frame_bytes: Option<usize>,
}

impl Backend for Threads {
    type Transport = foldwire_threads::Endpoint;

    fn run_transports<R: Send>(
        &self,
        size: usize,
        body: impl Fn(Self::Transport) -> R + Sync,
    ) -> Vec<R> {
        let mut world = foldwire_threads::World::new(size);
        if let Some(bytes) = self.frame_bytes {
            world = world.frame_bytes(bytes);
        }
        world.run_endpoints(body)
    }
}
