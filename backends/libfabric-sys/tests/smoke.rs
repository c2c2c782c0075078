//! The bindings link, match the library's versions and layouts, and reach the shim: C code that
//! gives symbols to libfabric's inline functions.

#![allow(unsafe_code, reason = "calls C")]

use std::ffi::CStr;
use std::ptr;

use libfabric_sys::{
    FI_EINVAL, FI_EP_RDM, FI_PROV_ATTR_ONLY, fi_allocinfo, fi_freeinfo, fi_getinfo, fi_info,
    fi_strerror, fi_version,
};

/// 1.11 as libfabric encodes versions.
const OLDEST: u32 = (1 << 16) | 11;

/// The loaded library is recent enough for the bindings.
#[test]
fn the_library_is_not_too_old() {
    // SAFETY: takes no arguments and has no state.
    let version = unsafe { fi_version() };
    assert!(version >= OLDEST, "{version:#x}");
}

/// The library lists its providers, and the names are where the bindings expect them.
#[test]
fn providers_have_names() {
    let mut list: *mut fi_info = ptr::null_mut();
    // SAFETY: the optional arguments are null; `list` is a valid place for the result.
    let status = unsafe {
        fi_getinfo(OLDEST, ptr::null(), ptr::null(), FI_PROV_ATTR_ONLY, ptr::null(), &raw mut list)
    };
    assert_eq!(status, 0);
    let mut n_providers = 0;
    let mut next = list;
    while !next.is_null() {
        // SAFETY: elements of the list stay valid until fi_freeinfo. When only provider attributes
        // are requested, every element has a fabric_attr with a terminated provider name.
        let (name, after) =
            unsafe { (CStr::from_ptr((*(*next).fabric_attr).prov_name), (*next).next) };
        assert!(name.to_bytes().iter().all(u8::is_ascii_graphic), "{name:?}");
        n_providers += 1;
        next = after;
    }
    assert!(n_providers > 0);
    // SAFETY: the list came from fi_getinfo and is not used afterwards.
    unsafe { fi_freeinfo(list) };
}

/// The shim is linked: `fi_allocinfo` is one of its functions. The bindings can write to what it
/// allocates.
#[test]
fn the_shim_allocates_a_description() {
    // SAFETY: takes no arguments.
    let info = unsafe { fi_allocinfo() };
    assert!(!info.is_null());
    // SAFETY: fi_allocinfo allocates all attributes; the description is freed once.
    unsafe {
        (*(*info).ep_attr).type_ = FI_EP_RDM;
        assert_eq!((*(*info).ep_attr).type_, FI_EP_RDM);
        fi_freeinfo(info);
    }
}

/// Error numbers of the bindings match the library's.
#[test]
fn errors_have_texts() {
    // SAFETY: returns a static, terminated string for every number.
    let text = unsafe { CStr::from_ptr(fi_strerror(FI_EINVAL)) };
    assert_eq!(text.to_str(), Ok("Invalid argument"));
}
