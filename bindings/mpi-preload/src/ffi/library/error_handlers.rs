//! Error handlers of the program's communicators.
//!
//! In MPICH a communicator has no handler until the program sets one, and copies have none either.
//! MPICH then calls the handler that `MPI_COMM_SELF` or `MPI_COMM_WORLD` has at that moment. It
//! reports `MPI_ERRORS_ARE_FATAL` for such a communicator, but to set that handler would change
//! whom it calls. So Foldwire sets no handler where it reads this one.

use super::{MpiErrorCode, MpiLibrary, checked, text};
use crate::comm_state::locked;
use crate::ffi::abi::{Abi, MpiHandle};

/// A communicator whose errors are hidden.
pub(super) struct QuietComm {
    comm: MpiHandle,
    /// The program's error handler.
    handler: MpiHandle,
    /// Number of threads that hide the errors.
    n_threads: usize,
}

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles, from the program or from
// this library. Pointers are to locals.
impl<A: Abi> MpiLibrary<A> {
    /// Returns whether communicators may have no error handler in this library.
    pub(super) fn has_unset_handlers(&self) -> bool {
        *self.has_unset_handlers.get_or_init(|| {
            let version = self.functions.library_version;
            // SAFETY: the array has space for the longest text and its terminator.
            let version = text(|start, length| unsafe { version(start, length) });
            A::has_unset_handlers(&version.unwrap_or_default())
        })
    }

    /// Makes calls and hides their errors on this communicator from the program, unless it may have
    /// no error handler.
    pub(super) fn quietly<R>(
        &self,
        comm: MpiHandle,
        inside: impl FnOnce() -> R,
    ) -> Result<R, MpiErrorCode> {
        let is_hidden = self.hide_errors(comm)?;
        let answer = inside();
        if is_hidden {
            self.show_errors(comm);
        }
        Ok(answer)
    }

    /// Calls the program's error handler. If the communicator may have none, calls the one that
    /// MPICH would call.
    pub(super) fn call_handler(&self, comm: MpiHandle, code: MpiErrorCode) -> MpiErrorCode {
        let has_handler = |comm: &MpiHandle| {
            let handler = self.handler(*comm);
            !handler.is_ok_and(|handler| {
                self.release(handler);
                self.is_unset(handler)
            })
        };
        let found = [comm, self.handles.comm_self].into_iter().find(has_handler);
        let comm = A::restore(found.unwrap_or(self.handles.comm_world));
        // SAFETY: see above.
        let _ = unsafe { (self.functions.comm_call_errhandler)(comm, code) };
        code
    }

    /// Replaces the program's error handler. Returns false if there may be none. Several threads
    /// may hide the errors of a communicator at once; the last one restores the handler. No thread
    /// holds the lock while it waits in MPI.
    fn hide_errors(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode> {
        let mut all = locked(&self.quiet);
        if let Some(known) = all.iter_mut().find(|known| known.comm == comm) {
            known.n_threads += 1;
            return Ok(true);
        }
        let handler = self.handler(comm)?;
        if self.is_unset(handler) {
            self.release(handler);
            return Ok(false);
        }
        self.set_handler(comm, self.handles.errors_return)?;
        all.push(QuietComm { comm, handler, n_threads: 1 });
        Ok(true)
    }

    fn show_errors(&self, comm: MpiHandle) {
        let mut all = locked(&self.quiet);
        let Some(at) = all.iter().position(|known| known.comm == comm) else { return };
        all[at].n_threads -= 1;
        if all[at].n_threads > 0 {
            return;
        }
        let old = all.swap_remove(at).handler;
        // The program may have set another one meanwhile.
        if let Ok(now) = self.handler(comm) {
            if now == self.handles.errors_return {
                let _ = self.set_handler(comm, old);
            }
            self.release(now);
        }
        self.release(old);
    }

    /// Returns whether a communicator that reports this handler may have none.
    fn is_unset(&self, handler: MpiHandle) -> bool {
        handler == self.handles.errors_are_fatal && self.has_unset_handlers()
    }

    /// A reference to the error handler of a communicator, to be [released](Self::release).
    fn handler(&self, comm: MpiHandle) -> Result<MpiHandle, MpiErrorCode> {
        let comm = A::restore(comm);
        // SAFETY: see above.
        self.made(|made| unsafe { (self.functions.comm_get_errhandler)(comm, made) })
    }

    pub(super) fn set_handler(
        &self,
        comm: MpiHandle,
        handler: MpiHandle,
    ) -> Result<(), MpiErrorCode> {
        let (comm, handler) = (A::restore(comm), A::restore(handler));
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_set_errhandler)(comm, handler) })
    }

    fn release(&self, handler: MpiHandle) {
        let mut handler = A::restore(handler);
        // SAFETY: see above. Nothing can handle an error here.
        let _ = unsafe { (self.functions.errhandler_free)(&raw mut handler) };
    }
}
