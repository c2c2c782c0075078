//! The state of one transport endpoint: communicators, those split from them, and calls in
//! progress. One thread at a time owns it. Other threads wait for it without the GIL, and handle
//! signals meanwhile.
//!
//! A fork of the process has a copy of this state, and the same sockets. If it used them, its
//! messages would appear as this rank's, and closing them would end this rank. So an endpoint
//! belongs to its process: in a fork, calls are errors and nothing is dropped. Threads that do not
//! exist in the fork may hold locks, so the process is checked before any lock.
//!
//! Code of the user may run while its thread owns the state: a signal handler during a call, or a
//! store that `admit` asks. If it called the same endpoint it would wait for itself. So such a call
//! is an error, and closing happens when the outer call leaves.
//!
//! Objects that Python releases are dropped at once, or by the owner when it leaves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LockResult, Mutex, MutexGuard, PoisonError};
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
use crate::join::with_signals;
use crate::request::CallWithArrays;

/// The communicators and calls of one endpoint, for one thread at a time.
pub(crate) struct LockedEndpoint {
    /// Only the owner locks it.
    state: Mutex<SendWrapper<LockedState>>,
    owner: Mutex<Owner>,
    /// Wakes a thread that waits, when there is no owner any more.
    is_free: Condvar,
    /// Objects that Python released, and that are not dropped yet.
    released: Mutex<Vec<ObjectId>>,
    end: Arc<StopSignal>,
    /// Id of the process that created the endpoint.
    process: u32,
}

/// The thread that may use the state, and the number of those that wait for it.
#[derive(Default)]
struct Owner {
    thread: Option<ThreadId>,
    n_waiting: usize,
}

/// Requests to stop running calls.
#[derive(Default)]
struct StopSignal {
    /// True after `Comm.interrupt`.
    is_ended: AtomicBool,
    /// True if the running call is to close the endpoint when it leaves.
    is_closing: AtomicBool,
    /// Exception that a signal handler raised.
    raised: Raised,
}

impl StopSignal {
    /// Returns whether the calls should continue. Waiting threads poll this. `last_check` is the
    /// time of the last check for signals.
    fn goes_on(&self, last_check: &mut Instant) -> bool {
        self.raised.handles_signals(last_check)
            && !self.is_ended.load(Ordering::Relaxed)
            && !self.is_closing.load(Ordering::Relaxed)
    }
}

/// An exception that code of the user raised during a call.
#[derive(Default)]
pub(crate) struct Raised(Mutex<Option<PyErr>>);

impl Raised {
    /// Calls signal handlers, if it is time. Returns false if one has raised an exception.
    pub(crate) fn handles_signals(&self, last_check: &mut Instant) -> bool {
        if last_check.elapsed() > SIGNALS {
            #[allow(
                clippy::redundant_closure_for_method_calls,
                reason = "the path is for one lifetime"
            )]
            let handled = Python::try_attach(|py| py.check_signals());
            *last_check = Instant::now();
            if let Some(Err(raised)) = handled {
                *self.lock() = Some(raised);
                return false;
            }
        }
        true
    }

    /// Keeps an exception, unless there is one.
    pub(crate) fn keep(&self, raised: PyErr) {
        self.lock().get_or_insert(raised);
    }

    pub(crate) fn is_some(&self) -> bool {
        self.lock().is_some()
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.lock().take()
    }

    /// Nothing panics while it is locked.
    fn lock(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        (Self { state, owner, is_free: Condvar::new(), released, end, process }, id)
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

    /// Returns whether the current thread is the owner.
    fn is_held_here(&self) -> bool {
        self.owner().thread == Some(thread::current().id())
    }

    /// Locks the owner. Nothing panics while it is locked.
    fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is no owner, and makes the current thread the owner. Returns `None` if
    /// `goes_on` returns false meanwhile. The caller must not hold the GIL.
    fn wait_for_turn(
        &self,
        goes_on: impl Fn(&StopSignal, &mut Instant) -> bool,
    ) -> Option<Entered<'_>> {
        let mut last_check = Instant::now();
        let mut owner = self.owner();
        while owner.thread.is_some() {
            owner.n_waiting += 1;
            let woken = self.is_free.wait_timeout(owner, SIGNALS);
            owner = woken.unwrap_or_else(PoisonError::into_inner).0;
            owner.n_waiting -= 1;
            // A signal handler may use the endpoint.
            drop(owner);
            if !goes_on(&self.end, &mut last_check) {
                // Another thread may wait, too.
                self.is_free.notify_one();
                return None;
            }
            owner = self.owner();
        }
        Some(self.become_owner(owner))
    }

    /// Makes the current thread the owner. There must be none.
    fn become_owner(&self, mut owner: MutexGuard<'_, Owner>) -> Entered<'_> {
        owner.thread = Some(thread::current().id());
        drop(owner);
        Entered { endpoint: self, state: self.state.lock() }
    }

    /// Waits for the state and calls `then` with it. The caller must not hold the GIL.
    ///
    /// # Errors
    /// The errors of [`check_entry`](Self::check_entry), or if an earlier panic has poisoned the
    /// state, or if a signal handler or another thread ends the wait; otherwise the errors of
    /// `then`.
    pub(crate) fn enter<R>(
        &self,
        then: impl FnOnce(&mut LockedState) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        self.check_entry()?;
        let mut entered = self.wait_for_turn(StopSignal::goes_on).ok_or_else(|| {
            let message = "the call was stopped while it waited for a call of another thread";
            ApiError::new(FW_TRANSPORT_ERROR, message)
        })?;
        let Ok(guard) = &mut entered.state else {
            let message = "an earlier panic left this communicator unusable; please report it";
            return Err(ApiError::new(FW_INTERNAL_ERROR, message));
        };
        let (end, mut last_check) = (Arc::clone(&self.end), Instant::now());
        let mut goes_on = true;
        let ask = move || {
            goes_on = goes_on && end.goes_on(&mut last_check);
            goes_on
        };
        let made = with_stop_check(Box::new(ask), || then(&mut guard.0));
        let closing = self.end.is_closing.load(Ordering::Relaxed).then(|| guard.take());
        drop(entered);
        let closed = closing.and_then(|state| Python::try_attach(|py| drop_waiting(py, state)));
        if let Some(Err(raised)) = closed {
            self.end.raised.keep(raised);
            let message = "a signal handler raised while this communicator was closed";
            return Err(ApiError::new(FW_TRANSPORT_ERROR, message));
        }
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
            let raised = self.end.raised.take();
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

    /// Drops an object that Python has released: now, or when the owner leaves.
    pub(crate) fn release(&self, id: ObjectId) {
        if !self.is_of_this_process() {
            return;
        }
        without_gil(|| {
            self.released().push(id);
            let owner = self.owner();
            if owner.thread.is_none() {
                drop(self.become_owner(owner));
            }
        });
    }

    /// Drops all communicators and calls. The other ranks notice that this rank has ended. Does
    /// nothing in a fork. During a call of this thread, ends that call, which then drops them.
    ///
    /// # Errors
    /// The exception of a signal handler. If the wait was for calls of other threads, all is as it
    /// was. If it was for messages to arrive, a thread goes on with that.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_of_this_process() {
            return Ok(());
        }
        if self.is_held_here() {
            self.end.is_closing.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let taken = py.detach(|| {
            let handles = |end: &StopSignal, last: &mut _| end.raised.handles_signals(last);
            let mut entered = self.wait_for_turn(handles)?;
            Some(match &mut entered.state {
                Ok(guard) => guard.take(),
                Err(poisoned) => poisoned.get_mut().take(),
            })
        });
        match taken {
            None => Err(self.end.raised.take().unwrap_or_else(|| interrupted(py))),
            Some(state) => drop_waiting(py, state),
        }
    }

    /// Locks the list of released objects. Nothing panics while it is locked.
    fn released(&self) -> MutexGuard<'_, Vec<ObjectId>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LockedEndpoint {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.is_of_this_process() {
            // The system frees memory and sockets when the fork ends. Other ranks do not notice.
            mem::forget(state);
        } else if !state.0.is_empty() {
            without_gil(move || drop(state));
        }
    }
}

/// Drops communicators and calls, and waits until what they have sent has arrived.
///
/// # Errors
/// The exception of a signal handler. A thread then goes on with the wait.
fn drop_waiting(py: Python<'_>, state: SendWrapper<LockedState>) -> PyResult<()> {
    if state.0.is_empty() {
        return Ok(());
    }
    with_signals(py, "foldwire close", move || {
        drop(state);
        Ok(())
    })
}

/// Calls `then` without the GIL, whether the current thread holds it or not.
fn without_gil(then: impl FnOnce() + Send) {
    let mut then = Some(then);
    Python::try_attach(|py| {
        let then = then.take();
        py.detach(|| then.map(|then| then()));
    });
    // The interpreter is ending.
    if let Some(then) = then {
        then();
    }
}

/// The state of an endpoint. The current thread is its owner until this is dropped.
struct Entered<'a> {
    endpoint: &'a LockedEndpoint,
    state: LockResult<MutexGuard<'a, SendWrapper<LockedState>>>,
}

/// Drops the objects that Python has released meanwhile, and lets another thread be the owner.
impl Drop for Entered<'_> {
    fn drop(&mut self) {
        loop {
            let mut owner = self.endpoint.owner();
            let ids = mem::take(&mut *self.endpoint.released());
            // After a panic, leave the state alone.
            let state = self.state.as_mut().ok().filter(|_| !thread::panicking());
            // Whoever releases an object lists it before it looks for an owner.
            let (false, Some(state)) = (ids.is_empty(), state) else {
                owner.thread = None;
                if owner.n_waiting > 0 {
                    self.endpoint.is_free.notify_one();
                }
                return;
            };
            drop(owner);
            for id in ids {
                state.0.requests.remove(&id);
                state.0.comms.remove(&id);
            }
        }
    }
}

impl SendWrapper<LockedState> {
    /// Takes all communicators and calls.
    fn take(&mut self) -> Self {
        let LockedState { requests, comms, n_ids } = &mut self.0;
        let (requests, comms) = (mem::take(requests), mem::take(comms));
        Self(LockedState { requests, comms, n_ids: *n_ids })
    }
}

impl LockedState {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.comms.is_empty()
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
