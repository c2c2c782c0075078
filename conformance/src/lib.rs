//! Requirements of every Foldwire transport, as tests for authors of transports.
//!
//! A [`Backend`] runs a closure on every rank of a new group, and [`suite::run`] tests it:
//!
//! ```no_run
//! use foldwire_conformance::{Backend, suite};
//! # use foldwire_threads::{Endpoint, World};
//!
//! struct Mine;
//!
//! impl Backend for Mine {
//!     type Transport = Endpoint;
//!
//!     fn run_transports<R>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R>
//!     where
//!         R: Send,
//!     {
//!         World::new(size).run_endpoints(body)
//!     }
//! }
//!
//! suite::SIZES.into_iter().for_each(|size| suite::run(&|_| Mine, size));
//! ```
//!
//! The tests take about twelve seconds with two cores in an optimized build (a debug build of the
//! codecs is ten times slower). If ranks are processes, all of them run the same program. Two more
//! methods of [`Backend`] then return the ranks that live in this process, and gather a `u64` from
//! every rank.
//!
//! | module | contents |
//! |---|---|
//! | [`suite`] | the checks: results, calls in a row, prepared calls, disagreement, damage, silence, loss, survivors, inattention |
//! | [`case`](mod@case) | a [`Case`]: a point of the product collective × schedule × pipeline × codec × …; [`pairwise`] selects a few cases in which every pair of choices occurs, [`all`] is the whole product |
//! | [`oracle`] | the expected result of a reduction, in `f64`, and its allowed error |
//! | [`data`] | inputs, the same on every machine |
//! | [`integers`] | every call on integers of any type, with an oracle of its own |
//! | [`AnyBackend`], [`AnyTransport`] | one type for all backends and one for their transports, so that the suite is compiled once |
//! | [`OnDevices`], [`DeviceMemory`] | calls whose values are in the memory of a device |
//! | [`wrapped`], [`tamper`] | wrappers of a transport: one changes a few of its properties, the other damages frames |
//!
//! A [`Case`] [checks](Case::check) every rank's result against the oracle and against the other
//! ranks' bits. The threads backend's results are checked that way. The results of any other
//! backend must have the same bits.

mod any;
pub mod case;
mod concurrent_calls;
mod concurrent_messages;
pub mod data;
pub mod integers;
mod messages;
pub mod oracle;
mod places;
mod prepared;
pub mod repro_sums;
pub mod suite;
pub mod tamper;
pub mod wrapped;

pub use any::{AnyBackend, AnyError, AnyFrame, AnyTransport};
pub use case::{Case, Operation, all, pairwise, pairwise_of};
pub use places::{DeviceBytes, DeviceMemory, OnDevices};

use foldwire::{Communicator, Transport};
use std::ops::Range;

/// Evaluates an expression with a type alias for the element type of a [`DType`](foldwire::DType).
///
/// # Examples
/// ```
/// use foldwire::{DType, Element};
/// use foldwire_conformance::with_type;
///
/// assert_eq!(with_type!(DType::F16, T => T::BYTES), 2);
/// ```
///
/// # Panics
/// If the suite does not know the type.
#[macro_export]
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        ::foldwire::with_float!($dtype, $T => $body, else {
            panic!("the suite does not know {}", $dtype)
        })
    };
}

/// A way to run one closure on every rank of a new group. The ranks live in this process, or in
/// several processes that run the same program.
pub trait Backend {
    /// Transport of a rank.
    type Transport: Transport;

    /// Runs `body` on each of `size` ranks at the same time. Returns the results of the ranks that
    /// live in this process, in rank order.
    fn run_transports<R: Send>(
        &self,
        size: usize,
        body: impl Fn(Self::Transport) -> R + Sync,
    ) -> Vec<R>;

    /// Like [`run_transports`](Self::run_transports), but passes a communicator to `body`.
    fn run<R: Send>(
        &self,
        size: usize,
        body: impl Fn(Communicator<Self::Transport>) -> R + Sync,
    ) -> Vec<R> {
        self.run_transports(size, |transport| {
            body(Communicator::new(transport).expect("frames are large enough"))
        })
    }

    /// Ranks of a group of `size` that live in this process.
    fn ranks(&self, size: usize) -> Range<usize> {
        0..size
    }

    /// Gathers one number from every rank, in rank order. `own` has the numbers of the ranks in
    /// this process.
    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        own
    }

    /// Device that holds the values of this rank's calls; `None` if they are slices.
    fn memory(&self, _rank: usize) -> Option<&dyn DeviceMemory> {
        None
    }
}

/// Backend whose ranks are threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    /// Bytes in a frame; `None`: the backend's default.
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
