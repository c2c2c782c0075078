//! What a call that was begun owes the program: a request that will be complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};

/// A request of the program's. One that is dropped before it is [kept](Self::succeed) fails, or
/// whoever waits for it would wait for ever.
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

    /// What the program waits for.
    pub(crate) const fn handle(&self) -> MpiHandle {
        self.request
    }

    /// The call is done.
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
