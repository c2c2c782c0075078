//! The class `Request` of `foldwire._native`: a call in progress.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use foldwire::Report;
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{self, CollectiveArgs, CoreCommunicator, DynCall};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::endpoint::{LockedEndpoint, LockedState, ObjectId};
use crate::failure::raise;
use crate::report::dict;

/// A running call, and references to its arrays.
pub(crate) struct CallWithArrays {
    /// First, because fields are dropped in order: the call uses the arrays.
    pub(crate) call: Box<dyn DynCall>,
    pub(crate) arrays: Vec<Py<PyAny>>,
}

impl CallWithArrays {
    /// Starts a collective. `arrays` are the Python objects of its arrays. The call fails after
    /// `timeout` without progress. `None` is the communicator's time limit.
    pub(crate) fn start(
        comm: &CoreCommunicator,
        call: &CollectiveArgs,
        arrays: Vec<Py<PyAny>>,
        timeout: Option<Duration>,
    ) -> Result<Self, ApiError> {
        let call = rust::start(comm, call)?;
        let call = match timeout {
            Some(timeout) => call.with_timeout(timeout),
            None => call,
        };
        Ok(Self { call, arrays })
    }

    /// Advances all calls of the endpoint until this one has finished.
    pub(crate) fn wait(self) -> Result<Report, ApiError> {
        let Self { call, arrays: _arrays } = self;
        call.wait()
    }
}

/// A call in progress.
#[pyclass(frozen, name = "Request", module = "foldwire._native")]
pub(crate) struct PyRequest {
    endpoint: Arc<LockedEndpoint>,
    id: ObjectId,
    /// Result, once the call has finished.
    outcome: Mutex<Option<Result<Report, ApiError>>>,
}

impl PyRequest {
    pub(crate) fn new(endpoint: Arc<LockedEndpoint>, id: ObjectId) -> Self {
        Self { endpoint, id, outcome: Mutex::new(None) }
    }
}

impl Drop for PyRequest {
    fn drop(&mut self) {
        // In a fork, a thread that does not exist there may hold the lock.
        if self.endpoint.check().is_ok() && self.outcome().is_none() {
            self.endpoint.release(self.id);
        }
    }
}

/// Waker that calls a Python function once.
struct WakeCallback(Mutex<Option<Py<PyAny>>>);

impl Wake for WakeCallback {
    fn wake(self: Arc<Self>) {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(function) = function {
            // If the interpreter has ended, nothing waits for the call. If the event loop was
            // closed meanwhile, the function raises, and the exception is ignored for the same
            // reason.
            Python::try_attach(|py| drop(function.call0(py)));
        }
    }
}

impl PyRequest {
    /// Locks the result.
    fn outcome(&self) -> MutexGuard<'_, Option<Result<Report, ApiError>>> {
        // No thread waits for the GIL or the endpoint while it holds this lock.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the call's result if it has finished. `advance` advances or finishes the call. It
    /// runs only if no thread has stored the result before.
    ///
    /// # Errors
    /// The errors of [`LockedEndpoint::enter`]. The call is then as it was.
    fn settle(
        &self,
        py: Python<'_>,
        advance: impl FnOnce(&mut LockedState) -> Option<Result<Report, ApiError>> + Send,
    ) -> PyResult<Option<Result<Report, ApiError>>> {
        self.endpoint.check_entry().map_err(|fault| raise(py, &fault))?;
        let known = self.outcome().clone();
        if known.is_some() {
            return Ok(known);
        }
        self.endpoint.call(py, |state| {
            let known = self.outcome().clone();
            let outcome = known.or_else(|| advance(state));
            self.outcome().clone_from(&outcome);
            Ok(outcome)
        })
    }

    /// Advances all calls of the endpoint, and returns whether this one has finished.
    fn poll_with(&self, py: Python<'_>, waker: &Waker) -> PyResult<bool> {
        let done = self.settle(py, |state| {
            let running = match state.request(self.id) {
                Ok(running) => running,
                Err(fault) => return Some(Err(fault)),
            };
            match Pin::new(&mut *running.call).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => None,
                Poll::Ready(report) => {
                    state.forget(self.id);
                    Some(report)
                }
            }
        })?;
        Ok(done.is_some())
    }
}

#[pymethods]
impl PyRequest {
    /// Advances all calls, and returns whether this one has finished.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        self.poll_with(py, Waker::noop())
    }

    /// Returns whether the call has finished. If not, `wake` is called once, on any thread, when
    /// the call may have made progress.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        self.poll_with(py, &Waker::from(Arc::new(WakeCallback(Mutex::new(Some(wake))))))
    }

    /// Waits until the call has finished, and returns its report.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.settle(py, |state| Some(state.finish(self.id)))? {
            Some(Ok(report)) => dict(py, &report),
            Some(Err(fault)) => Err(self.endpoint.raise(py, &fault)),
            None => unreachable!("`finish` waits until the call has finished"),
        }
    }
}
