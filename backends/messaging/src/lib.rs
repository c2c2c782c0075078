//! A Foldwire transport over any two-sided message layer.
//!
//! MPI, libfabric and TCP offer the same operations under different names: start a send, post a
//! receive, poll for completions. A crate that wraps such a layer implements [`Net`]. [`Endpoint`]
//! turns it into a [`Transport`](foldwire::Transport), with a pool of frames, credit for each link,
//! receives posted ahead, one wildcard receive for abort notices, and an orderly shutdown.
//!
//! On Linux, [`Messages`] can pass frames between ranks of one node through shared memory. A layer
//! with a protocol of its own uses [`NodeMemory`] for that.
//!
//! Only the process that made an endpoint can use it. In a forked child its calls fail with
//! [`Error::OtherProcess`], and dropping it sends nothing.
//!
//! For implementors: `net.rs` defines the contract. A message travels under the tag [`on_wire`].
//! `foldwire::HeapFrame` is a buffer for layers that need no registered memory. [`Backoff`] waits
//! without starving ranks on the same core. If your library represents messages as requests, as MPI
//! does, implement [`Requests`] instead, which is less work: [`Messages`] is a `Net` over it.

mod backoff;
mod endpoint;
mod error;
mod ffi;
mod frame;
mod link;
mod messages;
mod net;
#[cfg_attr(not(target_os = "linux"), path = "node_memory/unsupported.rs")]
mod node_memory;
mod process;
#[cfg_attr(not(target_os = "linux"), path = "shared_memory/unsupported.rs")]
mod shared_memory;
#[cfg(target_os = "linux")]
mod sync;

pub use backoff::Backoff;
pub use endpoint::{Endpoint, Options};
pub use error::Error;
pub use ffi::requests::{Completion, Requests};
#[cfg(target_os = "linux")]
pub use ffi::socket::n_unacknowledged;
pub use frame::{MessageFrame, SlotId};
pub use messages::Messages;
pub use net::{Event, Net, Refused, Source, on_wire};
pub use node_memory::{MemoryOffer, NodeMemory};
