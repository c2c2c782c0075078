//! The program's requests for non-blocking calls that Foldwire takes. They are MPI's generalized
//! requests, so all MPI functions that wait for, test or free requests support them.
//!
//! In MPICH 5.0.2 (`MPIR_Waitall_state`), `MPI_Waitall` crashes with an incomplete generalized
//! request and null requests. This does not happen if the request has a wait function, which MPICH
//! supports as an extension.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{MpiErrorCode, MpiLibrary, SUCCESS};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::ffi::progress::move_along;

pub(super) type QueryFn = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
pub(super) type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(super) type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
pub(super) type PollFn = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
pub(super) type WaitFn = unsafe extern "C" fn(c_int, *mut *mut c_void, f64, *mut c_int) -> c_int;

/// Requests that the program sees.
pub(crate) trait RequestApi {
    /// Creates a request for a call. If `has_failed` is set when the request is complete, the
    /// request fails.
    fn new_request(&self, has_failed: Arc<AtomicBool>) -> Result<MpiHandle, MpiErrorCode>;
    /// Marks the request as complete. Must be called once, even if the program has freed the
    /// request.
    fn complete(&self, request: MpiHandle);
}

impl<A: Abi> RequestApi for MpiLibrary<A> {
    fn new_request(&self, has_failed: Arc<AtomicBool>) -> Result<MpiHandle, MpiErrorCode> {
        let extra = Arc::into_raw(has_failed).cast_mut().cast::<c_void>();
        let (query, start) = (query::<A>, self.functions.grequest_start);
        // SAFETY: the functions exist as long as the process. `extra` owns a reference, which
        // `free` releases when MPI is done with it.
        let made = self.made(|made| unsafe {
            match self.functions.grequest_start_with_wait {
                Some(start) => start(query, free, cancel, poll, wait, extra, made),
                None => start(query, free, cancel, extra, made),
            }
        });
        if made.is_err() {
            // SAFETY: MPI has not taken the reference.
            drop(unsafe { Arc::from_raw(extra.cast::<AtomicBool>()) });
        }
        made
    }

    fn complete(&self, request: MpiHandle) {
        // SAFETY: the caller passes a request from `new_request`. Nothing can handle an error here.
        let _ = unsafe { (self.functions.grequest_complete)(A::restore(request)) };
    }
}

/// Returns the status to MPI, which is empty unless the call has failed.
unsafe extern "C" fn query<A: Abi>(extra: *mut c_void, status: *mut c_int) -> c_int {
    let [_, error, _] = A::STATUS;
    // SAFETY: the pointer from `new_request`. MPI still owns the reference.
    let has_failed = unsafe { &*extra.cast::<AtomicBool>() };
    if !has_failed.load(Ordering::Acquire) {
        return SUCCESS;
    }
    // SAFETY: MPI passes a writable status.
    unsafe { status.add(error).write(A::ERRORS[1]) };
    A::ERRORS[1]
}

unsafe extern "C" fn free(extra: *mut c_void) -> c_int {
    // SAFETY: the pointer from `new_request`. MPI calls this function once.
    drop(unsafe { Arc::from_raw(extra.cast::<AtomicBool>()) });
    SUCCESS
}

/// Collectives cannot be cancelled.
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

/// MPICH calls this when it tests the request, and repeatedly when it waits for this request alone.
unsafe extern "C" fn poll(_: *mut c_void, _: *mut c_int) -> c_int {
    move_along();
    SUCCESS
}

/// MPICH calls this repeatedly until the request is complete.
unsafe extern "C" fn wait(_: c_int, _: *mut *mut c_void, _: f64, _: *mut c_int) -> c_int {
    move_along();
    SUCCESS
}
