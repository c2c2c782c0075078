//! What a call that was begun owes the program: a request that will be complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::Handle;
use super::library::{Code, Mpi};

/// A request of the program's. One that is dropped before it is [kept](Self::keep) fails, or
/// whoever waits for it would wait for ever.
pub(crate) struct Promise {
    mpi: &'static dyn Mpi,
    request: Handle,
    has_failed: Arc<AtomicBool>,
    is_kept: bool,
}

impl Promise {
    pub(crate) fn new(mpi: &'static dyn Mpi) -> Result<Self, Code> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let request = mpi.new_request(Arc::clone(&has_failed))?;
        Ok(Self { mpi, request, has_failed, is_kept: false })
    }

    /// What the program waits for.
    pub(crate) const fn request(&self) -> Handle {
        self.request
    }

    /// The call is done.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.has_failed.store(!self.is_kept, Ordering::Release);
        self.mpi.complete(self.request);
    }
}
