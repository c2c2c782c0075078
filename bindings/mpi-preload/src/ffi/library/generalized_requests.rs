//! Requests of the program's that are about calls of ours: MPI's generalized requests. All of MPI's
//! functions that wait for requests, or test or free them, know those.
//!
//! MPICH (5.0.2, `MPIR_Waitall_state`) breaks down in an `MPI_Waitall` of one that is not complete
//! and of null requests, unless the one says by MPICH's own function how it is waited for.

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

/// Requests of the program's.
pub(crate) trait RequestApi {
    /// A request of the program's about a call of ours, which fails if that says so once the
    /// request is complete.
    fn new_request(&self, has_failed: Arc<AtomicBool>) -> Result<MpiHandle, MpiErrorCode>;
    /// Says that it is complete; once, and whether the program has freed it or not.
    fn complete(&self, request: MpiHandle);
}

impl<A: Abi> RequestApi for MpiLibrary<A> {
    fn new_request(&self, has_failed: Arc<AtomicBool>) -> Result<MpiHandle, MpiErrorCode> {
        let extra = Arc::into_raw(has_failed).cast_mut().cast::<c_void>();
        let (query, start) = (query::<A>, self.functions.grequest_start);
        // SAFETY: the functions are there as long as the process, and take `extra`, whose count
        // `free` gives back when MPI is done with it.
        let made = self.made(|made| unsafe {
            match self.functions.grequest_start_with_wait {
                Some(start) => start(query, free, cancel, poll, wait, extra, made),
                None => start(query, free, cancel, extra, made),
            }
        });
        if made.is_err() {
            // SAFETY: MPI has not taken it.
            drop(unsafe { Arc::from_raw(extra.cast::<AtomicBool>()) });
        }
        made
    }

    fn complete(&self, request: MpiHandle) {
        // SAFETY: one that `new_request` gave, by the promise of `MpiApi`. An error here has nobody to
        // go to.
        let _ = unsafe { (self.functions.grequest_complete)(A::restore(request)) };
    }
}

/// MPI asks for the status, which is empty unless the call has failed.
unsafe extern "C" fn query<A: Abi>(extra: *mut c_void, status: *mut c_int) -> c_int {
    let [_, error, _] = A::STATUS;
    // SAFETY: what `new_request` passed, whose count MPI still has.
    let has_failed = unsafe { &*extra.cast::<AtomicBool>() };
    if !has_failed.load(Ordering::Acquire) {
        return SUCCESS;
    }
    // SAFETY: MPI passes a status to be written.
    unsafe { status.add(error).write(A::ERRORS[1]) };
    A::ERRORS[1]
}

unsafe extern "C" fn free(extra: *mut c_void) -> c_int {
    // SAFETY: what `new_request` passed; MPI calls this once.
    drop(unsafe { Arc::from_raw(extra.cast::<AtomicBool>()) });
    SUCCESS
}

/// Collectives are never cancelled.
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

/// MPICH calls this where it tests the request, and nothing else where it waits for it alone.
unsafe extern "C" fn poll(_: *mut c_void, _: *mut c_int) -> c_int {
    move_along();
    SUCCESS
}

/// MPICH calls this again until the request is complete.
unsafe extern "C" fn wait(_: c_int, _: *mut *mut c_void, _: f64, _: *mut c_int) -> c_int {
    move_along();
    SUCCESS
}
