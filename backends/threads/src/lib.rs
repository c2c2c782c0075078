//! Foldwire backend: ranks are threads of one process, frames are passed by ownership.
//!
//! A [`World`] makes one [`Endpoint`] per rank; an endpoint is a
//! [`Transport`](foldwire::transport::Transport). A frame is a buffer on the heap that its sender
//! fills and its receiver reads: nothing is copied on the way. That makes this backend the fastest
//! network there is for a given machine, and the baseline of every comparison; with
//! [`World::link_rate`] it becomes a slower one, to see what compression is worth there.
//!
//! ```text
//!               poll_frame                 send                    poll_recv               recycle
//!   pool ───────────────────▶ Endpoint A ────────▶ ring (A, B, tag) ─────────▶ Endpoint B ────────▶ pool
//!                                   │ notify                                      ▲
//!                                   └───────────────▶ parker of B ────────────────┘ wakes
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `world` | settings; threads; panics |
//! | `drive` | one thread that polls all ranks in turn |
//! | `endpoint` | the `Transport` |
//! | `inbox`, `links` | receiving; links by (peer, tag) |
//! | `fabric` | what ranks share: ports, clock, closing |
//! | `ring` | the link: a lock-free single-producer single-consumer queue |
//! | `parker`, `ticker` | sleeping and waking without lost wake-ups; wake-ups by the clock |
//! | `pool`, `frame` | message buffers |
//! | `pace` | the rate limit |
//! | `sync` | `std` or `loom` |
//!
//! The ring, the parker and the closing of a rank are model-checked with loom; see `loom_tests.rs`
//! for the command.

mod drive;
mod endpoint;
mod error;
mod fabric;
mod frame;
mod inbox;
mod links;
#[cfg(all(test, loom))]
mod loom_tests;
mod pace;
mod parker;
mod pool;
#[allow(unsafe_code)] // slots that are written and read through shared references
mod ring;
mod sync;
mod ticker;
mod world;

pub use drive::drive;
pub use endpoint::Endpoint;
pub use error::Error;
pub use frame::Frame;
pub use world::World;

foldwire::compile_calls!(Endpoint);
