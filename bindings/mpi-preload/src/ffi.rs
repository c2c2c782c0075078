//! All `unsafe` code: MPI's functions, the program's memory, and the exported functions.
//!
//! MPI handles are pointers in some libraries and integers in others. [`abi`] has the differences.
//! `library` hides them: it offers the other modules one handle type, so that only a thin layer is
//! compiled for each family of libraries. MPI's functions are looked up by their `PMPI_` names at
//! the first call, in the library that the program has loaded. So the build needs no MPI. The
//! look-up also finds a library that a program loads privately, as Python does.
//!
//! The program must call MPI as the standard requires: buffers are as long as counts and datatypes
//! say, and handles are valid. Every `unsafe` block of an exported function relies on that.
#![allow(unsafe_code, reason = "calls MPI, and accesses the program's memory")]

pub mod abi;
mod arguments;
pub mod counts;
mod entries;
mod environment;
pub mod fork;
pub mod fortran;
pub(crate) mod held_counts;
pub mod interceptor;
pub mod library;
pub(crate) mod memory;
pub mod message_calls;
mod message_entries;
pub(crate) mod objects;
pub mod original;
pub(crate) mod persistent_send;
pub(crate) mod private_comm;
pub(crate) mod program_request;
pub(crate) mod progress;
pub(crate) mod receive_buffer;
mod send;
pub mod symbols;

pub(crate) use environment::FloatEnvironment;
