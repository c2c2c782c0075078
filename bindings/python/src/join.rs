//! Functions of `foldwire._native` that create communicators: of threads, and of processes that
//! meet by a unique id, a launcher or a store, or that join a running group. Also the names of
//! environment variables that nothing reads.
//!
//! A rank waits for the others in a thread of its own, so that the caller's thread can handle
//! signals meanwhile. After Ctrl-C, that thread goes on until the time limit, and then drops the
//! result. Stores are called by the caller's thread alone, and check for signals themselves.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use foldwire::Config;
use foldwire_bootstrap::StorePlace;
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{self, seconds};
use foldwire_c::ffi::types::{FW_INTERNAL_ERROR, FW_INVALID_ARGUMENT};
use pyo3::prelude::*;

use crate::communicator::{PyCommunicator, PyGrown};
use crate::endpoint::SIGNALS;
use crate::failure::raise;
use crate::store::ObjectStore;

/// Settings of a new communicator, as `settings` of the Python package makes them: time limit of
/// waiting and of whole calls, in seconds, lanes, and calls at once.
type Settings = (Option<f64>, Option<f64>, Option<usize>, usize);

/// Creates core's configuration of a communicator, and returns its number of calls at once.
fn config(
    (timeout, deadline, lanes, n_calls): Settings,
    link_rate: Option<f64>,
) -> Result<(Config, usize), ApiError> {
    let mut config = Config::default();
    if let Some(timeout) = timeout {
        config.timeout = seconds(timeout, "timeout")?;
    }
    if let Some(deadline) = deadline {
        config.deadline = Some(seconds(deadline, "deadline")?);
    }
    if let Some(lanes) = lanes {
        config.lanes = lanes;
    }
    config.link_rate = link_rate;
    Ok((config, n_calls))
}

/// Creates the communicators of `n_ranks` ranks that are threads, in order of ranks.
#[pyfunction]
pub(crate) fn threads(
    py: Python<'_>,
    n_ranks: usize,
    rate: Option<f64>,
    settings: Settings,
) -> PyResult<Vec<PyCommunicator>> {
    let all = || -> Result<Vec<PyCommunicator>, ApiError> {
        let (config, n_calls) = config(settings, None)?;
        let transports = rust::threads(n_ranks, rate)?.into_iter();
        transports.map(|transport| PyCommunicator::create(transport, config, n_calls)).collect()
    };
    all().map_err(|fault| raise(py, &fault))
}

/// Creates a unique id. One rank calls this and passes the id to all others.
#[pyfunction]
pub(crate) fn unique_id(py: Python<'_>) -> PyResult<Vec<u8>> {
    let id = py.detach(rust::new_unique_id).map_err(|fault| raise(py, &fault))?;
    Ok(id.to_vec())
}

/// Joins ranks in other processes: those with the same unique id, or without one, those that a
/// launcher started.
#[pyfunction]
pub(crate) fn join(
    py: Python<'_>,
    id: Option<Vec<u8>>,
    n_ranks: usize,
    rank: usize,
    limit: f64,
    settings: Settings,
    link_rate: Option<f64>,
) -> PyResult<PyCommunicator> {
    let fault = |fault: ApiError| raise(py, &fault);
    let (config, n_calls) = config(settings, link_rate).map_err(fault)?;
    let limit = seconds(limit, "limit").map_err(fault)?;
    let transport = with_signals(py, "foldwire join", move || match id {
        Some(id) => rust::join(&id.try_into().map_err(wrong_id)?, n_ranks, rank, limit),
        None => rust::join_env(limit),
    })?;
    py.detach(|| PyCommunicator::create(transport, config, n_calls)).map_err(fault)
}

/// The error for a unique id of another length.
fn wrong_id(id: Vec<u8>) -> ApiError {
    let message = format!("a unique id has 128 bytes, not {}", id.len());
    ApiError::new(FW_INVALID_ARGUMENT, message)
}

/// Calls `then` in another thread of this name, and waits for its result.
///
/// # Errors
/// The errors of `then`, and the exception of a signal handler.
pub(crate) fn with_signals<R: Send + 'static>(
    py: Python<'_>,
    name: &str,
    then: impl FnOnce() -> Result<R, ApiError> + Send + 'static,
) -> PyResult<R> {
    let (sender, receiver) = mpsc::channel();
    let started = py.detach(|| {
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // After a signal the receiver is gone.
            let _ = sender.send(then());
        })
    });
    let none = |why: String| raise(py, &ApiError::new(FW_INTERNAL_ERROR, why));
    started.map_err(|error| none(format!("no thread could be started ({error})")))?;
    let mut receiver = receiver;
    loop {
        let waited = py.detach(|| {
            let waited = receiver.recv_timeout(SIGNALS);
            (waited, receiver)
        });
        receiver = waited.1;
        match waited.0 {
            Ok(made) => return made.map_err(|fault| raise(py, &fault)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(none("the thread panicked; please report it".to_owned()));
            }
        }
    }
}

/// Says for each environment variable with the prefix `FOLDWIRE_` that nothing reads it, if so.
#[pyfunction]
pub(crate) fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    foldwire::variables::unknown(names).map(|unknown| unknown.to_string()).collect()
}

/// Joins the ranks that meet in a store. `store` has the methods that `store.rs` names.
#[pyfunction]
pub(crate) fn meet(
    py: Python<'_>,
    store: Py<PyAny>,
    place: (usize, usize, String, u64),
    limit: f64,
    settings: Settings,
    link_rate: Option<f64>,
) -> PyResult<PyCommunicator> {
    let mut store = ObjectStore::new(py, store)?;
    let made = py.detach(|| {
        let (config, n_calls) = config(settings, link_rate)?;
        let limit = seconds(limit, "limit")?;
        let (rank, size, job, epoch) = place;
        let place = StorePlace { rank, size, job, epoch, limit };
        PyCommunicator::create(rust::join_store(&mut store, place)?, config, n_calls)
    });
    store.outcome(made, |fault| raise(py, fault))
}

/// Waits until a group admits this process. Returns what `Comm.admit` returns.
#[pyfunction]
pub(crate) fn rejoin(
    py: Python<'_>,
    store: Py<PyAny>,
    job: &str,
    limit: f64,
    settings: Settings,
) -> PyResult<PyGrown> {
    let mut store = ObjectStore::new(py, store)?;
    let made = py.detach(|| {
        let (config, n_calls) = config(settings, None)?;
        let limit = seconds(limit, "limit")?;
        let rejoined = store.watched(|store| rust::rejoin(store, job, limit, config, n_calls));
        rejoined.map(PyCommunicator::grown)
    });
    store.outcome(made, |fault| raise(py, fault))
}
