//! Foldwire backend whose ranks are threads of one process and pass frames by ownership.
//!
//! A [`World`] makes one [`Endpoint`] per rank. An endpoint is a
//! [`Transport`](foldwire::transport::Transport). A frame is a heap buffer that its sender fills
//! and its receiver reads, so nothing is copied on the way. This makes the backend the fastest
//! network on a given machine, and the baseline of every comparison. [`World::link_rate`] turns it
//! into a slower network, to show what compression gains there.
//!
//! ```text
//!         poll_frame             send                    poll_recv             recycle
//!   pool ───────────▶ Endpoint A ─────▶ ring (A, B, tag) ──────────▶ Endpoint B ───────▶ pool
//!                          │ notify                                       ▲
//!                          └──────────────▶ parker of B ──────────────────┘ wakes
//! ```
//!
//! | module | content |
//! |---|---|
//! | `world` | settings; threads; panics |
//! | `drive` | one thread that polls all ranks in turn |
//! | `endpoint` | the `Transport` |
//! | `inbox`, `links` | receiving; links by (peer, tag) |
//! | `fabric` | shared state: ports, clock, closing |
//! | `ring` | the link: a lock-free single-producer single-consumer queue |
//! | `parker`, `ticker` | sleeping and waking without lost wake-ups; wake-ups by the clock |
//! | `pool`, `frame` | message buffers |
//! | `pace` | the rate limit |
//! | `sync` | `std` or `loom` |
//!
//! loom model-checks the ring, the parker, the pool, and the closing of a rank; `loom_tests.rs`
//! shows the command.

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
#[allow(unsafe_code)] // slots are written and read through shared references
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
