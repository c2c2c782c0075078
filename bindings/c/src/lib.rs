//! Foldwire for C, C++ and Fortran: the API of nccl.h, with error bounds.
//!
//! The header, `include/foldwire.h`, is generated from [`ffi`]; a test compares the two. README.md
//! has the steps from a fresh machine to a first result. The modules, from a caller's pointers to
//! the network:
//!
//! | module | contents |
//! |---|---|
//! | [`ffi`] | the functions of the header, and all `unsafe` code |
//! | [`errors`] | result codes, error messages, and conversion of panics to result codes |
//! | `handle_table` | a table of handles, so that an invalid handle is an error |
//! | `endpoint` | the communicators and requests of one endpoint, for one thread at a time |
//! | `group` | calls between fwGroupStart and fwGroupEnd: all of them are made, or none |
//! | `plan` | plans from and to structs |
//! | [`ffi::rust`] | an API for bindings to other languages that are written in Rust |
//! | `transport` | the choice between memory and TCP; unique ids |
//!
//! *Threads.* Core's communicators count references without atomics, and communicators that were
//! split from each other share one transport. So all of them are behind one lock. Calls only try
//! the lock: if another thread holds it, they return `FW_IN_USE`. This is `MPI_THREAD_SERIALIZED`
//! for each endpoint. Any thread may query a communicator's state and abort its calls, which needs
//! no lock.

mod endpoint;
pub mod errors;
pub mod ffi;
mod group;
mod handle_table;
mod plan;
mod transport;
