//! The state of one transport endpoint: communicators, those split from them, and calls in
//! progress. A lock allows one thread at a time. Other threads wait for it without the GIL.
//!
//! A fork of the process has a copy of this state, and the same sockets. If it used them, its
//! messages would appear as this rank's, and closing them would end this rank. So an endpoint
//! belongs to its process: in a fork, calls are errors and nothing is dropped. Threads that do not
//! exist in the fork may hold locks, so the process is checked before any lock.
//!
//! Code of the user may run while its thread holds the lock: a signal handler during a call, or a
//! store that `admit` asks. If it called the same endpoint it would wait for itself. So the lock
//! remembers its thread: such a call is an error, and closing happens when the outer call leaves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use std::{mem, process};

use foldwire::{Config, Report};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{AnyTransport, CoreCommunicator, communicator, with_stop_check};
use foldwire_c::ffi::types::{
    FW_INTERNAL_ERROR, FW_INVALID_HANDLE, FW_INVALID_USAGE, FW_TRANSPORT_ERROR,
};
use pyo3::prelude::*;

use crate::failure::{interrupted, raise};
use crate::ffi::SendWrapper;
use crate::request::CallWithArrays;

/// The communicators and calls of one endpoint, behind a lock.
pub(crate) struct LockedEndpoint {
    state: Mutex<SendWrapper<LockedState>>,
    /// The thread that holds the lock of `state` during a call.
    owner: Mutex<Option<ThreadId>>,
    /// Objects that Python released while another thread held the lock.
    released: Mutex<Vec<ObjectId>>,
    end: Arc<StopSignal>,
    /// Id of the process that created the endpoint.
    process: u32,
}

/// Requests to stop running calls.
#[derive(Default)]
struct StopSignal {
    /// True after `Comm.interrupt`.
    is_ended: AtomicBool,
    /// True if the running call is to close the endpoint when it leaves.
    is_closing: AtomicBool,
    /// Exception that a signal handler raised.
    raised: Mutex<Option<PyErr>>,
}

impl StopSignal {
    /// Returns whether the running calls should continue. Waiting threads poll this. `last_check`
    /// is the time of the last check for signals.
    fn goes_on(&self, last_check: &mut Instant) -> bool {
        if last_check.elapsed() > SIGNALS {
            #[allow(
                clippy::redundant_closure_for_method_calls,
                reason = "the path is for one lifetime"
            )]
            let handled = Python::try_attach(|py| py.check_signals());
            *last_check = Instant::now();
            if let Some(Err(raised)) = handled {
                *self.raised() = Some(raised);
                return false;
            }
        }
        !self.is_ended.load(Ordering::Relaxed) && !self.is_closing.load(Ordering::Relaxed)
    }

    /// Locks the exception of a signal handler.
    fn raised(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Interval between checks for signals.
pub(crate) const SIGNALS: Duration = Duration::from_millis(100);

/// Key of a communicator or call in a [`LockedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(u64);

/// Communicators and calls, by id.
#[derive(Default)]
pub(crate) struct LockedState {
    /// First, because fields are dropped in order: dropping a call aborts it on its communicator.
    requests: HashMap<ObjectId, CallWithArrays>,
    comms: HashMap<ObjectId, CoreCommunicator>,
    /// Number of ids that were assigned.
    n_ids: u64,
}

/// The error for an id that is no longer in the state.
fn closed() -> ApiError {
    let message = "this communicator was closed or shrunk, or its rank has ended";
    ApiError::new(FW_INVALID_HANDLE, message)
}

impl LockedEndpoint {
    /// Creates an endpoint with one communicator, and returns the communicator's id.
    pub(crate) fn create(
        transport: AnyTransport,
        config: Config,
        n_calls: usize,
    ) -> Result<(Self, ObjectId), ApiError> {
        Ok(Self::of(communicator(transport, config, n_calls)?))
    }

    /// Creates an endpoint of a communicator, and returns the communicator's id.
    pub(crate) fn of(comm: CoreCommunicator) -> (Self, ObjectId) {
        let mut state = LockedState::default();
        let id = state.add_comm(comm);
        let state = Mutex::new(SendWrapper(state));
        let process = process::id();
        let (owner, released, end) = (Mutex::default(), Mutex::default(), Arc::default());
        (Self { state, owner, released, end, process }, id)
    }

    fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Checks that the current process created the endpoint.
    ///
    /// # Errors
    /// If the current process is a fork of the one that created it.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.is_of_this_process() {
            return Ok(());
        }
        let message = format!(
            "this communicator belongs to process {}, and this process was forked from it; make \
             calls there, or create a communicator after the fork",
            self.process
        );
        Err(ApiError::new(FW_INVALID_HANDLE, message))
    }

    /// Checks that the current thread may make a call.
    ///
    /// # Errors
    /// In a fork of the process, and during another call of this thread.
    pub(crate) fn check_entry(&self) -> Result<(), ApiError> {
        self.check()?;
        if !self.is_held_here() {
            return Ok(());
        }
        let message = "this thread is in a call of this rank: a signal handler, or a store, can \
                       only close or interrupt its communicator";
        Err(ApiError::new(FW_INVALID_USAGE, message))
    }

    /// Returns whether the current thread holds the lock.
    fn is_held_here(&self) -> bool {
        *self.owner() == Some(thread::current().id())
    }

    /// Locks the owner. Nothing panics while it is locked.
    fn owner(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the lock and calls `then` with the state. The caller must not hold the GIL.
    ///
    /// # Errors
    /// The errors of [`check_entry`](Self::check_entry), or if an earlier panic has poisoned the
    /// lock; otherwise the errors of `then`.
    pub(crate) fn enter<R>(
        &self,
        then: impl FnOnce(&mut LockedState) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        self.check_entry()?;
        let mut guard = self.state.lock().map_err(|_| {
            let message = "an earlier panic left this communicator unusable; please report it";
            ApiError::new(FW_INTERNAL_ERROR, message)
        })?;
        let entered = Entered::new(self);
        self.drop_released(&mut guard.0);
        let (end, mut last_check) = (Arc::clone(&self.end), Instant::now());
        let mut goes_on = true;
        let ask = move || {
            goes_on = goes_on && end.goes_on(&mut last_check);
            goes_on
        };
        let made = with_stop_check(Box::new(ask), || then(&mut guard.0));
        if self.end.is_closing.load(Ordering::Relaxed) {
            guard.0.clear();
        }
        // The next thread that takes the lock becomes its owner.
        drop(entered);
        made
    }

    /// Same as [`enter`](Self::enter), without the GIL, and raises errors.
    pub(crate) fn call<R: Send>(
        &self,
        py: Python<'_>,
        then: impl FnOnce(&mut LockedState) -> Result<R, ApiError> + Send,
    ) -> PyResult<R> {
        py.detach(|| self.enter(then)).map_err(|fault| self.raise(py, &fault))
    }

    /// Stops running calls, and all later ones.
    pub(crate) fn interrupt(&self) {
        self.end.is_ended.store(true, Ordering::Relaxed);
    }

    /// Returns the exception for a failed call.
    pub(crate) fn raise(&self, py: Python<'_>, fault: &ApiError) -> PyErr {
        if fault.code == FW_TRANSPORT_ERROR {
            let raised = self.end.raised().take();
            if let Some(raised) = raised {
                return raised;
            }
            let end = &self.end;
            if end.is_ended.load(Ordering::Relaxed) || end.is_closing.load(Ordering::Relaxed) {
                return interrupted(py);
            }
        }
        raise(py, fault)
    }

    /// Drops an object that Python has released: now, or when the lock is next free.
    pub(crate) fn release(&self, id: ObjectId) {
        if !self.is_of_this_process() {
            return;
        }
        self.released().push(id);
        match self.state.try_lock() {
            Ok(mut guard) => self.drop_released(&mut guard.0),
            // The next thread that takes the lock drops it.
            Err(TryLockError::WouldBlock) => {}
            // It is dropped with the endpoint.
            Err(TryLockError::Poisoned(_)) => {}
        }
    }

    /// Drops all communicators and calls. The other ranks notice that this rank has ended. Does
    /// nothing in a fork. During a call of this thread, ends that call, which then drops them.
    pub(crate) fn close(&self) {
        if !self.is_of_this_process() {
            return;
        }
        if self.is_held_here() {
            self.end.is_closing.store(true, Ordering::Relaxed);
            return;
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
    }

    /// Drops the objects that Python has released.
    fn drop_released(&self, state: &mut LockedState) {
        // Unlock first: dropping an object may release others.
        let ids = mem::take(&mut *self.released());
        for id in ids {
            state.requests.remove(&id);
            state.comms.remove(&id);
        }
    }

    /// Locks the list of released objects. Nothing panics while it is locked.
    fn released(&self) -> MutexGuard<'_, Vec<ObjectId>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LockedEndpoint {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // The system frees memory and sockets when the fork ends. Other ranks do not notice.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(mem::take(&mut state.0));
        }
    }
}

/// Names the current thread as the owner of an endpoint's lock, until it is dropped.
struct Entered<'a>(&'a LockedEndpoint);

impl<'a> Entered<'a> {
    fn new(endpoint: &'a LockedEndpoint) -> Self {
        *endpoint.owner() = Some(thread::current().id());
        Self(endpoint)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        *self.0.owner() = None;
    }
}

impl LockedState {
    /// Drops all communicators and calls.
    fn clear(&mut self) {
        self.requests.clear();
        self.comms.clear();
    }

    /// Assigns an id.
    fn id(&mut self) -> ObjectId {
        self.n_ids += 1;
        ObjectId(self.n_ids)
    }

    /// Adds a communicator and returns its id.
    pub(crate) fn add_comm(&mut self, comm: CoreCommunicator) -> ObjectId {
        let id = self.id();
        self.comms.insert(id, comm);
        id
    }

    /// Adds a running call and returns its id.
    pub(crate) fn add_call(&mut self, running: CallWithArrays) -> ObjectId {
        let id = self.id();
        self.requests.insert(id, running);
        id
    }

    /// Returns a communicator.
    pub(crate) fn comm(&self, id: ObjectId) -> Result<&CoreCommunicator, ApiError> {
        self.comms.get(&id).ok_or_else(closed)
    }

    /// Removes a communicator and returns it.
    pub(crate) fn take_comm(&mut self, id: ObjectId) -> Result<CoreCommunicator, ApiError> {
        self.comms.remove(&id).ok_or_else(closed)
    }

    /// Returns a running call.
    pub(crate) fn request(&mut self, id: ObjectId) -> Result<&mut CallWithArrays, ApiError> {
        self.requests.get_mut(&id).ok_or_else(closed)
    }

    /// Drops a finished call.
    pub(crate) fn forget(&mut self, id: ObjectId) {
        self.requests.remove(&id);
    }

    /// Waits until a call has finished.
    pub(crate) fn finish(&mut self, id: ObjectId) -> Result<Report, ApiError> {
        let running = self.requests.remove(&id).ok_or_else(closed)?;
        running.wait()
    }

    /// Advances all calls in progress.
    pub(crate) fn progress(&self) {
        // Any communicator advances all calls of the endpoint.
        if let Some(comm) = self.comms.values().next() {
            comm.progress();
        }
    }
}
