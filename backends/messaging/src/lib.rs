//! A Foldwire transport over any two-sided message layer.
//!
//! MPI and libfabric offer the same thing in different words: start a send, post a receive, ask
//! what has completed. A crate that wraps such a layer implements [`Net`]; [`Endpoint`] makes a
//! [`Transport`](foldwire::Transport) of it, with a pool of frames, credit for each link, receives
//! posted ahead, one wildcard receive for abort notices, and an orderly end.
//!
//! An endpoint is of use in the process that made it; in one that was forked off, its calls fail
//! with [`Error::OtherProcess`], and dropping it tells nobody anything.
//!
//! For implementors: `net.rs` has the contract, `foldwire::HeapFrame` is a buffer for layers that
//! need no registered memory, [`Backoff`] a way to wait that is kind to ranks on the same core.
//! Where messages are a library's requests, as MPI's are, [`Requests`] is less to implement.

mod backoff;
mod endpoint;
mod error;
mod ffi;
mod frame;
mod link;
mod messages;
mod net;
mod process;
#[cfg_attr(not(target_os = "linux"), path = "shared_memory/unsupported.rs")]
mod shared_memory;

pub use backoff::Backoff;
/// The same, for users of its former name.
#[doc(hidden)]
pub use backoff::Backoff as Patience;
pub use endpoint::{Endpoint, Options};
pub use error::Error;
pub use ffi::requests::{Completion, Requests};
pub use frame::MessageFrame;
pub use messages::Messages;
pub use net::{Event, Net, Refused, Source, on_wire};
