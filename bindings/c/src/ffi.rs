//! The functions of `foldwire.h`, and all `unsafe` code of the package.
//!
//! A function takes what C gives: numbers and pointers, of which `memory` checks what can be
//! checked. What cannot is the caller's promise, said once at the head of the header: memory that
//! is passed is there and as long as the function's description says, nobody writes what is sent
//! and nobody uses what is received until the call is over. Every `unsafe` block of a function that
//! is exported rests on that, and is called by C only.
#![allow(unsafe_code, reason = "memory of C's callers")]
#![allow(clippy::missing_safety_doc, reason = "the head of the header has it, for all functions")]
#![allow(rustdoc::broken_intra_doc_links, reason = "comments of a C header, with arrays in them")]
#![allow(non_camel_case_types, non_snake_case, reason = "names of a C header")]

pub(crate) mod assert_send;
pub(crate) mod call;
pub mod codec;
pub mod collectives;
pub mod communicators;
pub(crate) mod memory;
pub(crate) mod messages;
pub mod operations;
pub(crate) mod process;
pub mod requests;
pub mod rust;
pub mod types;
