//! Foldwire for C, C++ and Fortran: what nccl.h has, with error bounds.
//!
//! The header, `include/foldwire.h`, is generated from [`ffi`]; a test compares them. README.md has
//! the way from a fresh machine to a first result. From a caller's pointers to the network:
//!
//! | module | what it is |
//! |---|---|
//! | [`ffi`] | the functions of the header, and all `unsafe` code |
//! | [`errors`] | results, their words, and panics that stay on this side |
//! | `handle_table` | a table, so that a wrong handle is an error |
//! | `endpoint` | a rank with its communicators and requests, for one thread at a time |
//! | `group` | calls between fwGroupStart and fwGroupEnd: all of them, or none |
//! | `plan` | plans from structs and from text |
//! | [`ffi::rust`] | the same for bindings to other languages that are written in Rust |
//! | `transport` | the transport, chosen in one place: memory or TCP; unique ids |
//!
//! *Threads.* Core's communicators count references without atomics, and what is split from one
//! shares its node. So a communicator and all that comes of it are behind one lock, which is only
//! tried: who finds it taken gets an error. That is MPI's `MPI_THREAD_SERIALIZED`, for each of
//! them. Beside the lock any thread may look at a communicator's signals, and end its calls.

mod endpoint;
pub mod errors;
pub mod ffi;
mod group;
mod handle_table;
mod plan;
mod transport;
