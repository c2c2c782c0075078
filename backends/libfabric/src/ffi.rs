//! Safe wrappers of libfabric. Only this module calls it.
//!
//! | file | what it wraps |
//! |---|---|
//! | `info.rs` | `fi_getinfo`: the providers and their requirements |
//! | `domain.rs` | a fabric and a domain, opened from such a description |
//! | `memory.rs` | buffers in slabs of memory, registered where the provider asks for it |
//! | `contexts.rs` | the `fi_context2` of each request, fixed in memory |
//! | `rdm.rs` | endpoint, address vector, completion queue, and pending requests |
//!
//! **Closing.** libfabric refuses to close an object that another object still uses. An
//! [`RdmEndpoint`] closes its endpoint first, and only then releases the buffers of pending
//! requests. Slabs close their registration before they free memory. Slabs keep the domain open,
//! and the domain keeps the fabric open.
//!
//! **Threads.** Nothing here is `Send`: a domain and all objects in it belong to one thread.
//! `FI_THREAD_DOMAIN` announces this to the provider.
#![allow(unsafe_code, reason = "calls the libfabric library")]

mod contexts;
mod domain;
mod info;
mod memory;
mod rdm;

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

use libfabric_sys as sys;

pub(crate) use domain::Domain;
pub(crate) use info::{
    Description, Descriptions, ProviderQuery, Requirements, is_known_by_parameters, names_of,
};
pub use memory::MessageBuffer;
pub(crate) use rdm::{CompletedRequest, RdmEndpoint};

/// Requested interface version, 1.11: the oldest that suffices, so that every library behaves
/// alike.
const API_VERSION: u32 = (1 << 16) | 11;

/// Error number of libfabric: one of the system's, or one from 256 on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(c_int);

impl Errno {
    pub(crate) const AGAIN: Self = Self(sys::FI_EAGAIN);
    pub(crate) const CANCELED: Self = Self(sys::FI_ECANCELED);
    pub(crate) const INVALID: Self = Self(sys::FI_EINVAL);
    pub(crate) const NO_DATA: Self = Self(sys::FI_ENODATA);
    pub(crate) const NO_MEMORY: Self = Self(sys::FI_ENOMEM);
    pub(crate) const TRUNCATED: Self = Self(sys::FI_ETRUNC);

    #[cfg(test)]
    pub(crate) const fn of_code(code: c_int) -> Self {
        Self(code)
    }

    /// Returns the positive number.
    #[must_use]
    pub const fn code(self) -> i32 {
        self.0
    }

    /// Returns whether the error means that the other end of a connection has gone, or never
    /// existed. (`sockets` reports `FI_ENOENT`; providers of devices report `FI_EIO`.)
    pub(crate) const fn is_of_connection(self) -> bool {
        matches!(
            self.0,
            sys::FI_ECONNABORTED
                | sys::FI_ECONNREFUSED
                | sys::FI_ECONNRESET
                | sys::FI_EHOSTDOWN
                | sys::FI_EHOSTUNREACH
                | sys::FI_EIO
                | sys::FI_ENETDOWN
                | sys::FI_ENETUNREACH
                | sys::FI_ENOENT
                | sys::FI_ENOTCONN
                | sys::FI_EREMOTEIO
                | sys::FI_ESHUTDOWN
                | sys::FI_ETIMEDOUT
        )
    }
}

impl Errno {
    /// Returns whether a send fails with this error by this rank's fault, and not by its peer's.
    pub(crate) fn is_of_sender(self) -> bool {
        [Self::TRUNCATED, Self::INVALID, Self::NO_MEMORY].contains(&self)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: for any number, returns a terminated string that lives as long as the library (or
        // the thread).
        let text = unsafe { CStr::from_ptr(sys::fi_strerror(self.0)) };
        write!(f, "{} (error {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Version of libfabric or of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes with the interface.
    pub major: u16,
    /// Changes with each release.
    pub minor: u16,
}

impl Version {
    /// Returns the version of the loaded libfabric.
    #[must_use]
    pub fn of_library() -> Self {
        // SAFETY: takes no arguments and has no state.
        Self::unpack(unsafe { sys::fi_version() })
    }

    const fn unpack(packed: u32) -> Self {
        Self { major: (packed >> 16) as u16, minor: packed as u16 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Converts a status: 0, or a negated error number.
fn checked(status: c_int) -> Result<(), Errno> {
    if status == 0 { Ok(()) } else { Err(Errno(status.saturating_neg())) }
}

/// As [`checked`], for functions that return a count.
fn checked_count(status: isize) -> Result<usize, Errno> {
    usize::try_from(status)
        .map_err(|_| Errno(c_int::try_from(status.saturating_neg()).unwrap_or(c_int::MAX)))
}

/// C structure of libfabric that begins with a `struct fid`.
///
/// # Safety
/// Its first field must be a `struct fid`.
unsafe trait Object {}

// SAFETY: in all releases its first field is `struct fid fid` ("All fabric interface descriptors
// must start with this structure", rdma/fabric.h).
unsafe impl Object for sys::fid_fabric {}
// SAFETY: as above.
unsafe impl Object for sys::fid_domain {}
// SAFETY: as above.
unsafe impl Object for sys::fid_ep {}
// SAFETY: as above.
unsafe impl Object for sys::fid_av {}
// SAFETY: as above.
unsafe impl Object for sys::fid_cq {}
// SAFETY: as above.
unsafe impl Object for sys::fid_mr {}

/// Object of libfabric. The process that opened it closes it on drop. A forked child must not: it
/// would end its parent's connections.
struct FidHandle<T: Object> {
    object: NonNull<T>,
    creator: u32,
}

impl<T: Object> FidHandle<T> {
    /// Returns the object that `open` writes, unless `open` returns an error.
    fn open(open: impl FnOnce(*mut *mut T) -> c_int) -> Result<Self, Errno> {
        let mut raw = ptr::null_mut();
        checked(open(&raw mut raw))?;
        let object = NonNull::new(raw).ok_or(Errno::NO_MEMORY)?;
        Ok(Self { object, creator: std::process::id() })
    }

    const fn raw(&self) -> *mut T {
        self.object.as_ptr()
    }

    /// Returns the object as the type that libfabric's generic functions take.
    const fn fid(&self) -> *mut sys::fid {
        self.object.as_ptr().cast()
    }

    fn is_own(&self) -> bool {
        self.creator == std::process::id()
    }

    /// Closes the object now. On failure, it stays open for good.
    fn close(self) -> Result<(), Errno> {
        let (fid, is_own) = (self.fid(), self.is_own());
        std::mem::forget(self);
        if !is_own {
            return Ok(());
        }
        // SAFETY: the object is open, and no one can use it any more, since `self` is consumed.
        checked(unsafe { sys::fi_close(fid) })
    }
}

impl<T: Object> Drop for FidHandle<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            return;
        }
        // SAFETY: the object is open, and no one can use it after this drop. If other objects still
        // need it, libfabric refuses and it stays open for good, which is harmless.
        let _ = unsafe { sys::fi_close(self.fid()) };
    }
}

/// Value for the context argument of functions that open objects. Foldwire uses no such context.
const NO_CONTEXT: *mut c_void = ptr::null_mut();
