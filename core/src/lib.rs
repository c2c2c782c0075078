//! Foldwire: compression-accelerated collective communication.
//!
//! The collectives are all-reduce, reduce-scatter, all-gather, broadcast, scatter, gather, reduce,
//! all-to-all and scans. Floating-point values ([`Float`]: `f32`, `f64`, [`f16`](struct@f16),
//! [`bf16`]) travel compressed, within an error bound that the caller sets, and are reduced without
//! decompressing. Integers travel exactly. [`Element`] covers both.
//!
//! A tour, from the caller down to the wire:
//!
//! - [`Communicator`] has the collectives. A [`Plan`] selects a schedule, a pipeline, a codec and a
//!   [`Bound`].
//! - `engine` runs any [`schedule`] through any [`pipeline`]. The schedule determines which part
//!   goes to which rank. The pipeline determines where the part is compressed, reduced and
//!   decompressed.
//! - [`codec`] turns values into bytes. [`kernel`] holds its inner loops, one level for each
//!   instruction set.
//! - `SharedCommunicator` (feature `alloc`) runs several calls at once, on owned or borrowed
//!   arrays, and can be split into communicators of fewer ranks.
//! - [`InterStep`] turns an array into its difference from the previous time step, for programs
//!   that send the same array in each step.
//! - [`shrink`] makes a communicator of the survivors after a failure. With the feature `alloc`,
//!   `grow` takes in newcomers, which come through a `store` of values by key.
//! - `max_loc` and `min_loc` (feature `alloc`) find extremes and where they are.
//! - `repro_sum` adds the values of all ranks exactly, and rounds once. [`ExactSum`] is its local
//!   part.
//! - [`frame`] defines the header of every message. [`transport`] is the interface between engine
//!   and network. Backends are crates of their own, such as `foldwire-threads`.
//!
//! Pages such as docs/guarantees.md are in the repository's [folder
//! docs](https://github.com/foldwire/foldwire/tree/main/docs).
//!
//! The crate is `no_std` and needs no allocator. With the feature `alloc`, `compress` and
//! `decompress` convert arrays to self-describing bytes and back.
//!
//! # Memory
//! Upper limits for embedders, on x86-64. A test runs every call on stacks of this size.
//!
//! | memory | types of up to 32 bits | types of 64 bits |
//! |---|---|---|
//! | stack of a call, blocking or polled, or of a shrink; release build | 56 KiB | 88 KiB |
//! | the same without optimisation | 192 KiB | 256 KiB |
//! | stack of a call with `dense` or `fz-nd` ([`CodecId`](codec::CodecId)); release build | 384 KiB | 720 KiB |
//! | [`Operation`]; all but 512 bytes are on the heap, if there is one | 2 KiB | 2 KiB |
//! | [`Communicator`], without its transport; 3 KiB are on the heap, if there is one | 7 KiB | 7 KiB |
//! | [`Shrink`], its communicator included, without the transport | 8 KiB | 8 KiB |
//!
//! The stack figures include a blocking call's [`Operation`] and the stack that the backend
//! `foldwire-threads` needs. A backend that needs more adds the difference.
//!
//! Most of the stack holds chunks of 4096 values. [`Op::Prod`] and [`Op::User`] combine frames
//! through two chunks; other operations need at most one. `dense` and `fz-nd` use four chunks of
//! codes, and one or two chunks of other values, for each payload that they read or write.
//! Combining reads two payloads and writes one.
//!
//! The transport owns the frames: each lane of [`Config::lanes`] holds up to
//! [`FRAMES_PER_LANE`](transport::FRAMES_PER_LANE) frames of
//! [`frame_capacity`](Transport::frame_capacity) bytes. Additional [`threads`] that compute for a
//! rank need stacks, too.
//!
//! # Examples
//! An average over all ranks, on any transport:
//! ```
//! use foldwire::{Bound, Communicator, Error, Op, Plan, Report, transport::Transport};
//!
//! fn average<X: Transport>(comm: &mut Communicator<X>, data: &mut [f32]) -> Result<Report, Error>
//! { comm.all_reduce(data, Op::Avg, &Plan::foldwire(Bound::Relative(1e-4))) }
//! ```
#![no_std]

#[cfg(target_endian = "big")]
compile_error!("frames are little-endian memory images; big-endian machines are not supported");

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod bound;
mod budget;
pub mod bundle;
mod call_spec;
pub mod codec;
mod coded_enum;
pub mod collective;
#[cfg(feature = "alloc")]
pub mod compress;
#[cfg(feature = "alloc")]
pub mod device;
pub mod element;
mod engine;
pub mod error;
mod exact_sum;
mod fill;
pub mod frame;
mod group;
#[cfg(feature = "alloc")]
pub mod grow;
mod handle;
#[cfg(feature = "alloc")]
mod heap_frame;
#[doc(hidden)]
pub mod instances;
mod inter_step;
pub mod kernel;
#[cfg(test)]
mod layers;
pub mod layout;
#[cfg(feature = "alloc")]
mod located;
pub mod op;
#[cfg(feature = "alloc")]
mod page_lock;
pub mod pipeline;
pub mod plan;
pub mod preset;
pub mod primitive;
pub mod report;
mod repro_sum;
mod rounding;
pub mod schedule;
pub mod select;
#[cfg(feature = "alloc")]
mod shared;
#[cfg(feature = "alloc")]
mod shared_transport;
pub mod shrink;
#[cfg(feature = "alloc")]
pub mod store;
pub mod threads;
pub mod transport;
mod values;
#[cfg(feature = "alloc")]
pub mod variables;
mod wait;

pub use bound::{Bound, Quantum, Scope, Spacing, SuspectedFill};
#[cfg(feature = "alloc")]
pub use collective::DeviceOperation;
pub use collective::{
    Buffer, Call, Communicator, Config, Exchange, Incoming, Input, NoValues, Operation, Outgoing,
    Prepared, Rows,
};
#[cfg(feature = "alloc")]
pub use compress::{compress, decompress};
pub use element::{DType, Element, Float, Integer, bf16, f16};
pub use engine::Buffers;
pub use error::Error;
pub use exact_sum::ExactSum;
pub use fill::Fill;
pub use handle::Handle;
#[cfg(feature = "alloc")]
pub use heap_frame::HeapFrame;
pub use inter_step::InterStep;
pub use op::Op;
pub use plan::{Overlap, Plan, Rounding, Sampling};
pub use preset::Preset;
pub use report::Report;
pub use repro_sum::Summands;
pub use schedule::Collective;
#[cfg(feature = "std")]
pub use shared::Stopper;
#[cfg(feature = "alloc")]
pub use shared::{Finished, GroupCall, Pending, SharedCommunicator, Split};
pub use shrink::Shrink;
pub use transport::{Distance, Rank, Tag, Transport};
