//! Statuses and requests of the program's messages.

use std::ffi::c_int;

use super::{MessageApi, MpiErrorCode, MpiLibrary, checked};
use crate::ffi::abi::{Abi, MpiHandle};

/// Address of a status of the program, or of [`StatusBuffer`].
pub(crate) type StatusPtr = *mut c_int;

/// Memory for statuses of any library.
pub(crate) struct StatusBuffer(Vec<u64>);

impl StatusBuffer {
    pub(crate) fn start(&mut self) -> StatusPtr {
        self.0.as_mut_ptr().cast()
    }
}

/// Messages with the program's statuses and requests.
///
/// Statuses that are passed must be statuses of the program or of a [`StatusBuffer`], which MPI has
/// written.
pub(crate) trait StatusApi: MessageApi {
    /// Memory for `n` statuses.
    fn status_buffer(&self, n: usize) -> StatusBuffer;
    /// Returns whether the address is `MPI_STATUS_IGNORE` or `MPI_STATUSES_IGNORE`.
    fn is_ignored(&self, status: StatusPtr) -> bool;
    /// Address of a status in an array.
    fn status_at(&self, statuses: StatusPtr, at: usize) -> StatusPtr;
    /// Bytes of a received message; `None` if it was cancelled.
    fn received_bytes(&self, status: StatusPtr) -> Option<usize>;
    /// Bytes of a message that a probe found. A probe need not write whether it was cancelled.
    fn probed_bytes(&self, status: StatusPtr) -> Option<usize>;
    fn set_received_bytes(&self, status: StatusPtr, n_bytes: usize);
    fn status_error(&self, status: StatusPtr) -> MpiErrorCode;
    fn set_status_error(&self, status: StatusPtr, code: MpiErrorCode);
    /// Returns whether an error in a status says that the request is not complete.
    fn is_pending(&self, code: MpiErrorCode) -> bool;
    /// Tests a request. If it is complete, writes its status, and frees it unless it is persistent.
    fn test(&self, request: MpiHandle, status: StatusPtr) -> Result<bool, MpiErrorCode>;
    /// Writes the status of a request if it is complete, which an inactive one is. Frees nothing.
    fn peek(&self, request: MpiHandle, status: StatusPtr) -> Result<bool, MpiErrorCode>;
    fn free_request(&self, request: MpiHandle);
    /// Calls the program's error handler, and returns the code.
    fn fail(&self, comm: MpiHandle, code: MpiErrorCode) -> MpiErrorCode;
    /// `MPI_ERR_TRUNCATE`, `MPI_ERR_OTHER`, `MPI_ERR_IN_STATUS`.
    fn codes(&self) -> [MpiErrorCode; 3];
    /// Returns whether the library has all functions for messages.
    fn has_statuses(&self) -> bool;
}

// SAFETY of the blocks below: callers guarantee valid handles and statuses and an initialised MPI.
// MPI writes through pointers to locals of the types in its standard, and accesses them only during
// the call. Each block states what else it relies on.
impl<A: Abi> StatusApi for MpiLibrary<A> {
    fn status_buffer(&self, n: usize) -> StatusBuffer {
        // A status has the alignment of a 64-bit number at most.
        StatusBuffer(vec![0; (n * A::STATUS[2]).div_ceil(2).max(1)])
    }

    fn is_ignored(&self, status: StatusPtr) -> bool {
        status.addr() == A::STATUS_IGNORE
    }

    fn status_at(&self, statuses: StatusPtr, at: usize) -> StatusPtr {
        statuses.wrapping_add(at * A::STATUS[2])
    }

    fn received_bytes(&self, status: StatusPtr) -> Option<usize> {
        let mut cancelled = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.test_cancelled)(status, &raw mut cancelled) }).ok()?;
        self.probed_bytes(status).filter(|_| cancelled == 0)
    }

    fn probed_bytes(&self, status: StatusPtr) -> Option<usize> {
        let mut n_bytes = 0;
        let byte = A::restore(self.handles.byte);
        // SAFETY: see above.
        checked(unsafe { self.functions.elements?(status, byte, &raw mut n_bytes) }).ok()?;
        usize::try_from(n_bytes).ok()
    }

    fn set_received_bytes(&self, status: StatusPtr, n_bytes: usize) {
        let byte = A::restore(self.handles.byte);
        if let Some(set) = self.functions.set_elements {
            // SAFETY: see above. It cannot fail for a predefined datatype.
            let _ = unsafe { set(status, byte, n_bytes as i64) };
        }
    }

    fn status_error(&self, status: StatusPtr) -> MpiErrorCode {
        // SAFETY: a valid status has an error code at this place.
        unsafe { status.add(A::STATUS[1]).read() }
    }

    fn set_status_error(&self, status: StatusPtr, code: MpiErrorCode) {
        // SAFETY: as above.
        unsafe { status.add(A::STATUS[1]).write(code) };
    }

    fn is_pending(&self, code: MpiErrorCode) -> bool {
        self.class(code) == Some(A::ERRORS[5])
    }

    fn test(&self, request: MpiHandle, status: StatusPtr) -> Result<bool, MpiErrorCode> {
        let (mut request, mut flag) = (A::restore(request), 0);
        // SAFETY: see above. The caller drops its handle of a complete request.
        let code = unsafe { (self.functions.test)(&raw mut request, &raw mut flag, status) };
        checked(code).map(|()| flag != 0)
    }

    fn peek(&self, request: MpiHandle, status: StatusPtr) -> Result<bool, MpiErrorCode> {
        let mut flag = 0;
        let peek = self.functions.request_get_status;
        // SAFETY: see above.
        checked(unsafe { peek(A::restore(request), &raw mut flag, status) })?;
        Ok(flag != 0)
    }

    fn free_request(&self, request: MpiHandle) {
        let mut request = A::restore(request);
        // SAFETY: see above. Nothing can handle an error here.
        let _ = unsafe { (self.functions.request_free)(&raw mut request) };
    }

    fn fail(&self, comm: MpiHandle, code: MpiErrorCode) -> MpiErrorCode {
        self.call_handler(comm, code)
    }

    fn codes(&self) -> [MpiErrorCode; 3] {
        [A::ERRORS[0], A::ERRORS[1], A::ERRORS[2]]
    }

    fn has_statuses(&self) -> bool {
        self.functions.elements.is_some() && self.functions.set_elements.is_some()
    }
}
