//! What every Foldwire transport must do, as tests for whoever writes one.
//!
//! A backend tells how to run something on every rank of a new group, and [`suite::run`] tries it:
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
//!     fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
//!         World::new(size).run_endpoints(body)
//!     }
//! }
//!
//! suite::SIZES.into_iter().for_each(|size| suite::run(&|_| Mine, size));
//! ```
//!
//! That takes about twelve seconds with two cores, optimised (a debug build of the codecs is ten
//! times slower). Ranks that are processes all run the same program; two more methods of
//! [`Backend`] say which rank a process is, and gather a word of each.
//!
//! | module | what it is |
//! |---|---|
//! | [`suite`] | the checks: results, calls in a row, prepared calls, disagreement, damage, silence, loss, survivors, inattention |
//! | [`case`](mod@case) | a [`Case`]: a point of the product collective × schedule × pipeline × codec × …; [`pairwise`] picks few such that every pair of choices occurs in one, [`all`] is the whole product |
//! | [`oracle`] | what a reduction should give, in `f64`, and how far a result may be off |
//! | [`data`] | inputs, the same on every machine |
//! | [`integers`] | every call on integers of any type, which has its own oracle |
//! | [`wrapped`], [`tamper`] | a transport that differs from the one inside it in a few things; one that damages frames |
//!
//! A [`Case`] alone [checks](Case::check) every rank's result against the oracle and against the
//! other ranks' bits. The results of the threads backend are checked so; those of any other must
//! have the same bits.

pub mod case;
mod concurrent_calls;
mod concurrent_messages;
pub mod data;
pub mod integers;
mod messages;
pub mod oracle;
mod prepared;
pub mod suite;
pub mod tamper;
pub mod wrapped;

pub use case::{Case, Operation, all, pairwise, pairwise_of};

use foldwire::{Communicator, Transport};
use std::ops::Range;

/// Evaluates an expression with the element type of a [`DType`](foldwire::DType) by a name.
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
        match $dtype {
            ::foldwire::DType::F32 => {
                type $T = f32;
                $body
            }
            ::foldwire::DType::F64 => {
                type $T = f64;
                $body
            }
            ::foldwire::DType::F16 => {
                type $T = ::foldwire::f16;
                $body
            }
            ::foldwire::DType::Bf16 => {
                type $T = ::foldwire::bf16;
                $body
            }
            other => panic!("the suite does not know {other}"),
        }
    };
}

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
