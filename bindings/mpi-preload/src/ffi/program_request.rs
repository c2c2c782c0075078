//! The program's request for a non-blocking call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};

/// The program's request. If this value is dropped before it [succeeds](Self::succeed), the request
/// completes with an error, so that the program does not wait forever.
pub(crate) struct ProgramRequest {
    mpi: &'static dyn MpiApi,
    request: MpiHandle,
    has_failed: Arc<AtomicBool>,
    has_succeeded: bool,
}

impl ProgramRequest {
    pub(crate) fn new(mpi: &'static dyn MpiApi) -> Result<Self, MpiErrorCode> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let request = mpi.new_request(Arc::clone(&has_failed))?;
        Ok(Self { mpi, request, has_failed, has_succeeded: false })
    }

    /// MPI handle of the request.
    pub(crate) const fn handle(&self) -> MpiHandle {
        self.request
    }

    /// Completes the request without an error.
    pub(crate) fn succeed(mut self) {
        self.has_succeeded = true;
    }
}

impl Drop for ProgramRequest {
    fn drop(&mut self) {
        self.has_failed.store(!self.has_succeeded, Ordering::Release);
        self.mpi.complete(self.request);
    }
}
