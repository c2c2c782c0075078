//! Raw bindings to [libfabric](https://ofiwg.github.io/libfabric/): the C functions, types and
//! constants that `foldwire-libfabric` needs, under their C names.
//!
//! The build generates the declarations from the installed headers of libfabric, so layouts always
//! match the linked library. Functions that the headers define as `static inline` have no symbol; a
//! C shim provides one for each. Enumerations are plain integers, because a newer library may
//! return values that these headers do not define.

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

/// `((uint64_t) -1)`, no particular address. bindgen cannot read the C form.
pub const FI_ADDR_UNSPEC: fi_addr_t = fi_addr_t::MAX;
/// `((uint64_t) -1)`, an address that was not accepted.
pub const FI_ADDR_NOTAVAIL: fi_addr_t = fi_addr_t::MAX;
