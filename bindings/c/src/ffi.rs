//! The functions of `foldwire.h`, and all `unsafe` code of the package.
//!
//! The functions receive numbers and pointers from C. `memory` checks what can be checked about a
//! pointer. The rest is the caller's guarantee, stated once at the top of the header:
//!
//! - memory that is passed exists, and is as long as the function's description requires;
//! - until the call has finished, nobody writes an array that is sent, and nobody uses an array
//!   that is received.
//!
//! Every `unsafe` block in an exported function relies on this guarantee ("guaranteed by the
//! caller"). Only C calls these functions.
#![allow(unsafe_code, reason = "memory of C callers")]
#![allow(clippy::missing_safety_doc, reason = "the top of the header has it, for all functions")]
#![allow(rustdoc::broken_intra_doc_links, reason = "comments of a C header, with arrays in them")]
#![allow(non_camel_case_types, non_snake_case, reason = "names of a C header")]

pub(crate) mod assert_send;
pub(crate) mod call;
pub mod codec;
pub mod collectives;
pub mod communicators;
pub mod device;
pub mod located;
pub(crate) mod memory;
pub(crate) mod messages;
pub mod operations;
pub(crate) mod process;
pub mod requests;
pub mod rust;
pub(crate) mod started;
pub mod stores;
pub mod sums;
pub mod types;
