//! All that is not safe: MPI's functions, the program's memory, and the names that are exported.
//!
//! MPI's handles are pointers in some libraries and integers in others. [`abi`] has what differs;
//! `library` calls MPI by it and shows the rest of the package one kind of handle, so that all
//! but a thin layer is compiled once. MPI's functions are looked up by their `PMPI_` names in the
//! library that the program has loaded, when it calls its first one: nothing of MPI is needed to
//! build, and a library that a program loads privately (as Python does) is found as well.
//!
//! What the program passes is as MPI's standard says: buffers are there and as long as counts and
//! types say, handles are MPI's. Every `unsafe` block of an exported function rests on that.
#![allow(unsafe_code, reason = "calls MPI, and works on the program's memory")]

pub mod abi;
mod arguments;
pub mod counts;
mod entries;
mod environment;
pub mod fork;
pub mod fortran;
pub mod interceptor;
pub mod library;
pub(crate) mod memory;
pub mod original;
pub(crate) mod private_comm;
pub(crate) mod program_request;
pub(crate) mod progress;
mod send;
pub mod symbols;

pub(crate) use environment::FloatEnvironment;
