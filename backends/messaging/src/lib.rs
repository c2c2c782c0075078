//! A Foldwire transport over any two-sided message layer.
//!
//! MPI and libfabric offer the same thing in different words: start a send, post a receive, ask what has
//! completed. A crate that wraps such a layer implements [`Net`]; [`Endpoint`] makes a
//! [`Transport`](foldwire::Transport) of it, with a pool of frames, credit for each link, receives posted
//! ahead, one wildcard receive for abort notices, and an orderly end.

mod net;

pub use net::{Event, Net, Refused, Source};
