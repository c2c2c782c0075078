//! All that comes of one link: communicators, those split from them, and calls under way. One
//! thread at a time is inside; others wait, without the GIL.
//!
//! A fork of the process has a copy of all of this, and the same sockets: what it sent would come
//! as this rank's, and what it closed would end this rank. So a family is its process's own:
//! elsewhere calls are errors, and nothing is dropped. Locks may be held there by threads that do
//! not exist, so the process is looked at first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{mem, process};

use foldwire::{Config, Report};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{ErasedCommunicator, RankEndpoint, with_stop_check};
use foldwire_c::ffi::types::{FW_INTERNAL_ERROR, FW_INVALID_HANDLE, FW_TRANSPORT_ERROR};
use pyo3::prelude::*;

use crate::failure::{interrupted, raise};
use crate::ffi::{CallWithArrays, SendWrapper};

/// What communicators of one link share.
pub(crate) struct LockedEndpoint {
    state: Mutex<SendWrapper<LockedState>>,
    /// What Python let go of while another thread was inside.
    released: Mutex<Vec<ObjectId>>,
    end: Arc<StopSignal>,
    /// The process that it belongs to.
    process: u32,
}

/// How calls end from outside.
#[derive(Default)]
struct StopSignal {
    /// Another thread has said so.
    is_ended: AtomicBool,
    /// What a signal's handler has raised.
    raised: Mutex<Option<PyErr>>,
}

impl StopSignal {
    /// Asked while a thread waits, for as long as it says yes; `looked` is when signals were last
    /// looked for.
    fn goes_on(&self, looked: &mut Instant) -> bool {
        if looked.elapsed() > SIGNALS {
            #[allow(clippy::redundant_closure_for_method_calls, reason = "it is for one lifetime")]
            let handled = Python::try_attach(|py| py.check_signals());
            *looked = Instant::now();
            if let Some(Err(raised)) = handled {
                *self.raised() = Some(raised);
                return false;
            }
        }
        !self.is_ended.load(Ordering::Relaxed)
    }

    fn raised(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often signals are looked for.
const SIGNALS: Duration = Duration::from_millis(100);

/// Where something is in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(u64);

/// By their places.
#[derive(Default)]
pub(crate) struct LockedState {
    /// Above the communicators: calls that are dropped are given up on them.
    requests: HashMap<ObjectId, CallWithArrays>,
    comms: HashMap<ObjectId, ErasedCommunicator>,
    n_ids: u64,
}

fn closed() -> ApiError {
    let message = "this communicator was closed or shrunk, or its rank has ended";
    ApiError::new(FW_INVALID_HANDLE, message)
}

impl LockedEndpoint {
    /// A family of one communicator, and its place.
    pub(crate) fn create(
        endpoint: RankEndpoint,
        config: Config,
        n_calls: usize,
    ) -> Result<(Self, ObjectId), ApiError> {
        let mut state = LockedState::default();
        let id = state.add_comm(ErasedCommunicator::new(endpoint, config, n_calls)?);
        let state = Mutex::new(SendWrapper(state));
        let process = process::id();
        Ok((Self { state, released: Mutex::default(), end: Arc::default(), process }, id))
    }

    fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// # Errors
    /// A fault in a fork of the process that it belongs to.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.is_of_this_process() {
            return Ok(());
        }
        let message = format!(
            "this communicator is of process {}, and this one was forked off that: make calls \
             there, or make a communicator after the fork",
            self.process
        );
        Err(ApiError::new(FW_INVALID_HANDLE, message))
    }

    /// Goes in, once nobody else is inside, with no GIL.
    ///
    /// # Errors
    /// A fault in a fork of the process, or if a panic has left it half way; what `then` returns.
    pub(crate) fn enter<R>(
        &self,
        then: impl FnOnce(&mut LockedState) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        self.check()?;
        let mut guard = self.state.lock().map_err(|_| {
            let message = "a panic has left this communicator half way; please report it";
            ApiError::new(FW_INTERNAL_ERROR, message)
        })?;
        self.drop_released(&mut guard.0);
        let (end, mut looked) = (Arc::clone(&self.end), Instant::now());
        let mut goes_on = true;
        let ask = move || {
            goes_on = goes_on && end.goes_on(&mut looked);
            goes_on
        };
        with_stop_check(Box::new(ask), || then(&mut guard.0))
    }

    /// Ends the calls that threads wait in, and all that come.
    pub(crate) fn interrupt(&self) {
        self.end.is_ended.store(true, Ordering::Relaxed);
    }

    /// The exception of a call that failed.
    pub(crate) fn raise(&self, py: Python<'_>, fault: &ApiError) -> PyErr {
        if fault.code == FW_TRANSPORT_ERROR {
            let raised = self.end.raised().take();
            if let Some(raised) = raised {
                return raised;
            }
            if self.end.is_ended.load(Ordering::Relaxed) {
                return interrupted(py);
            }
        }
        raise(py, fault)
    }

    /// Drops what Python has let go of, now if nobody is inside.
    pub(crate) fn release(&self, id: ObjectId) {
        if !self.is_of_this_process() {
            return;
        }
        self.released().push(id);
        match self.state.try_lock() {
            Ok(mut guard) => self.drop_released(&mut guard.0),
            // Who is inside next does it.
            Err(TryLockError::WouldBlock) => {}
            // It goes with the family.
            Err(TryLockError::Poisoned(_)) => {}
        }
    }

    /// Drops all: for other ranks this one has ended. In a fork there is nothing to end.
    pub(crate) fn close(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0.requests.clear();
        guard.0.comms.clear();
    }

    fn drop_released(&self, state: &mut LockedState) {
        // Not locked while they are dropped, which may let go of others.
        let ids = mem::take(&mut *self.released());
        for id in ids {
            state.requests.remove(&id);
            state.comms.remove(&id);
        }
    }

    /// Nothing panics while it is locked.
    fn released(&self) -> MutexGuard<'_, Vec<ObjectId>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LockedEndpoint {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // Memory and sockets go when the process ends, without a word to other ranks.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(mem::take(&mut state.0));
        }
    }
}

impl LockedState {
    fn id(&mut self) -> ObjectId {
        self.n_ids += 1;
        ObjectId(self.n_ids)
    }

    /// Takes a communicator in.
    pub(crate) fn add_comm(&mut self, comm: ErasedCommunicator) -> ObjectId {
        let id = self.id();
        self.comms.insert(id, comm);
        id
    }

    /// Takes a call under way in.
    pub(crate) fn add_call(&mut self, running: CallWithArrays) -> ObjectId {
        let id = self.id();
        self.requests.insert(id, running);
        id
    }

    /// A communicator.
    pub(crate) fn comm(&self, id: ObjectId) -> Result<&ErasedCommunicator, ApiError> {
        self.comms.get(&id).ok_or_else(closed)
    }

    /// Takes a communicator out.
    pub(crate) fn take_comm(&mut self, id: ObjectId) -> Result<ErasedCommunicator, ApiError> {
        self.comms.remove(&id).ok_or_else(closed)
    }

    /// A call under way.
    pub(crate) fn request(&mut self, id: ObjectId) -> Result<&mut CallWithArrays, ApiError> {
        self.requests.get_mut(&id).ok_or_else(closed)
    }

    /// Drops a call that is done.
    pub(crate) fn forget(&mut self, id: ObjectId) {
        self.requests.remove(&id);
    }

    /// Drives a call to its end.
    pub(crate) fn finish(&mut self, id: ObjectId) -> Result<Report, ApiError> {
        let running = self.requests.remove(&id).ok_or_else(closed)?;
        Ok(running.wait()?)
    }

    /// Advances all that is under way.
    pub(crate) fn progress(&self) {
        // Any of them drives all calls over the link.
        if let Some(comm) = self.comms.values().next() {
            comm.progress();
        }
    }
}
