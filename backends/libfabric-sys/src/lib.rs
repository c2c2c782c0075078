//! Raw bindings to [libfabric](https://ofiwg.github.io/libfabric/): the C functions, types and
//! constants that `foldwire-libfabric` needs, under their C names.
//!
//! The declarations are made at build time from the headers of the libfabric that is installed, so
//! layouts are always those of the library that is linked. Functions that the headers define
//! `static inline` have no symbol; a C shim provides one for each. Enumerations are plain integers:
//! a newer library may return values that these headers do not know.

#![allow(unsafe_code, reason = "declarations of C functions")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated from C headers"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// `((uint64_t) -1)`, in a form that bindgen cannot read: no particular address.
pub const FI_ADDR_UNSPEC: fi_addr_t = fi_addr_t::MAX;
/// `((uint64_t) -1)`: an address that was not accepted.
pub const FI_ADDR_NOTAVAIL: fi_addr_t = fi_addr_t::MAX;
