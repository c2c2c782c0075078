//! Communicators and requests as the package around has them: calls by their names, arrays that
//! were made fit.

use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use foldwire::op::OpCode;
use foldwire::{Config, DType, Report};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{
    self, CollectiveArgs, CountArgs, ErasedCommunicator, MessageArgs, ParsedPlan, RankEndpoint,
    RawArray, collective,
};
use foldwire_c::ffi::types::FW_INVALID_ARGUMENT;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::endpoint::{LockedEndpoint, LockedState, ObjectId};
use crate::failure::raise;
use crate::ffi::{self, CallWithArrays};
use crate::report::dict;

/// Seconds beyond which a limit of time is none.
const FOREVER: f64 = 1e9;

fn argument(message: impl Into<String>) -> ApiError {
    ApiError::new(FW_INVALID_ARGUMENT, message)
}

fn seconds(value: f64, what: &str) -> Result<Duration, ApiError> {
    if value >= FOREVER {
        return Ok(Config::NEVER);
    }
    let wrong = |_| argument(format!("{value} is no number of seconds for the {what}"));
    Duration::try_from_secs_f64(value).map_err(wrong)
}

/// What calls of a communicator have in common.
pub(crate) fn config(
    timeout: Option<f64>,
    deadline: Option<f64>,
    lanes: Option<usize>,
    link_rate: Option<f64>,
) -> Result<Config, ApiError> {
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
    Ok(config)
}

/// A plan that was read.
#[pyclass(frozen, name = "Plan", module = "foldwire._native")]
pub(crate) struct PyPlan(ParsedPlan);

#[pymethods]
impl PyPlan {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        Ok(Self(ParsedPlan::parse(text).map_err(|fault| raise(py, &fault))?))
    }
}

/// A rank of a communicator.
#[pyclass(frozen, name = "Comm", module = "foldwire._native")]
pub(crate) struct PyCommunicator {
    endpoint: Arc<LockedEndpoint>,
    id: ObjectId,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    n_calls: usize,
}

impl PyCommunicator {
    /// The communicator of all ranks of a network.
    pub(crate) fn create(
        rank_endpoint: RankEndpoint,
        config: Config,
        n_calls: usize,
    ) -> Result<Self, ApiError> {
        let (endpoint, id) = LockedEndpoint::create(rank_endpoint, config, n_calls)?;
        let (rank, size, n_calls) = endpoint.enter(|state| Ok(properties(state.comm(id)?)))?;
        Ok(Self { endpoint: Arc::new(endpoint), id, rank, size, n_calls })
    }

    /// The request of what `start` starts.
    fn request(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&ErasedCommunicator) -> Result<CallWithArrays, ApiError> + Send,
    ) -> PyResult<PyRequest> {
        let id = py.detach(|| {
            self.endpoint.enter(|state| {
                let running = start(state.comm(self.id)?)?;
                Ok(state.add_call(running))
            })
        });
        let id = id.map_err(|fault| self.endpoint.raise(py, &fault))?;
        let endpoint = Arc::clone(&self.endpoint);
        Ok(PyRequest { endpoint, id, outcome: Mutex::new(None) })
    }

    fn derived(&self, (id, (rank, size, n_calls)): (ObjectId, (usize, usize, usize))) -> Self {
        Self { endpoint: Arc::clone(&self.endpoint), id, rank, size, n_calls }
    }
}

/// Array, type, peer, tag, and of what is sent the plan.
type MessageTuple<'py> = (Bound<'py, PyAny>, u8, usize, u32, Option<Bound<'py, PyPlan>>);

/// A message as it goes over.
fn message_args(message: &MessageTuple<'_>) -> PyResult<MessageArgs> {
    let (array, dtype, peer, tag, plan) = message;
    let dtype = ffi::dtype(array.py(), *dtype)?;
    let array = ffi::array(Some(array), dtype, plan.is_none())?;
    let plan = plan.as_ref().map(|plan| plan.get().0);
    Ok(MessageArgs { array, dtype, peer: *peer, tag: *tag, plan })
}

/// Where an array lies.
fn range(array: RawArray, dtype: DType) -> Range<usize> {
    array.address..array.address + array.n_values * dtype.n_bytes()
}

fn properties(comm: &ErasedCommunicator) -> (usize, usize, usize) {
    (comm.rank(), comm.size(), comm.n_calls())
}

impl Drop for PyCommunicator {
    fn drop(&mut self) {
        self.endpoint.release(self.id);
    }
}

/// The ranks of a group of threads, in order.
#[pyfunction]
#[pyo3(signature = (n_ranks, rate=None, timeout=None, deadline=None, lanes=None, n_calls=8))]
pub(crate) fn threads(
    py: Python<'_>,
    n_ranks: usize,
    rate: Option<f64>,
    timeout: Option<f64>,
    deadline: Option<f64>,
    lanes: Option<usize>,
    n_calls: usize,
) -> PyResult<Vec<PyCommunicator>> {
    let all = || -> Result<Vec<PyCommunicator>, ApiError> {
        let config = config(timeout, deadline, lanes, None)?;
        let rank_endpoints = RankEndpoint::threads(n_ranks, rate)?.into_iter();
        rank_endpoints
            .map(|rank_endpoint| PyCommunicator::create(rank_endpoint, config, n_calls))
            .collect()
    };
    all().map_err(|fault| raise(py, &fault))
}

/// What ranks need to find each other; one of them makes it.
#[pyfunction]
pub(crate) fn unique_id(py: Python<'_>) -> PyResult<Vec<u8>> {
    py.detach(rust::unique_id).map_err(|fault| raise(py, &fault))
}

/// A rank of processes: of those with a unique id, or of those that a launcher has started.
#[pyfunction]
#[pyo3(signature = (
    id=None, n_ranks=1, rank=0, limit=60.0, timeout=None, deadline=None, lanes=None,
    link_rate=None, n_calls=8,
))]
#[allow(clippy::too_many_arguments, reason = "settings that Python names")]
pub(crate) fn join(
    py: Python<'_>,
    id: Option<Vec<u8>>,
    n_ranks: usize,
    rank: usize,
    limit: f64,
    timeout: Option<f64>,
    deadline: Option<f64>,
    lanes: Option<usize>,
    link_rate: Option<f64>,
    n_calls: usize,
) -> PyResult<PyCommunicator> {
    let made = py.detach(|| {
        let (config, limit) =
            (config(timeout, deadline, lanes, link_rate)?, seconds(limit, "limit")?);
        let rank_endpoint = match id {
            Some(id) => RankEndpoint::join(&id, n_ranks, rank, limit)?,
            None => RankEndpoint::from_env(limit)?,
        };
        PyCommunicator::create(rank_endpoint, config, n_calls)
    });
    made.map_err(|fault| raise(py, &fault))
}

/// A call by its name: its arrays, how long they are, and what is done with them.
#[derive(FromPyObject)]
struct CallArgs<'py> {
    name: String,
    send: Option<Bound<'py, PyAny>>,
    recv: Option<Bound<'py, PyAny>>,
    dtype: u8,
    op: u8,
    root: usize,
    count: usize,
    /// Of each rank's share.
    counts: Option<Vec<usize>>,
    /// Of what comes from each rank.
    recv_counts: Option<Vec<usize>>,
    plan: Bound<'py, PyPlan>,
    /// Seconds; of the communicator for none.
    timeout: Option<f64>,
}

impl CallArgs<'_> {
    fn to_collective(&self, py: Python<'_>) -> PyResult<CollectiveArgs> {
        let fault = |message: String| raise(py, &argument(message));
        let name = collective(&self.name)
            .ok_or_else(|| fault(format!("there is no collective {}", self.name)))?;
        let dtype = ffi::dtype(py, self.dtype)?;
        let op = OpCode::from_code(self.op).filter(|&op| op != OpCode::User);
        let op = op.ok_or_else(|| fault(format!("{} is no operation", self.op)))?;
        let lengths = match (&self.counts, &self.recv_counts) {
            (None, _) => CountArgs::Same(self.count),
            (Some(counts), None) => CountArgs::Given(counts.clone()),
            (Some(to), Some(from)) => CountArgs::Exchanged(to.clone(), from.clone()),
        };
        let send = ffi::array(self.send.as_ref(), dtype, false)?;
        let recv = ffi::array(self.recv.as_ref(), dtype, true)?;
        let (root, plan) = (self.root, self.plan.get().0);
        Ok(CollectiveArgs { name, lengths, send, recv, dtype, op, root, plan })
    }

    fn timeout(&self, py: Python<'_>) -> PyResult<Option<Duration>> {
        let timeout = self.timeout.map(|timeout| seconds(timeout, "timeout")).transpose();
        timeout.map_err(|fault| raise(py, &fault))
    }

    fn arrays(&self) -> Vec<Py<PyAny>> {
        let both = [&self.send, &self.recv];
        both.into_iter().flatten().map(|array| array.clone().unbind()).collect()
    }
}

#[pymethods]
impl PyCommunicator {
    /// Makes a call; what it did.
    fn call<'py>(&self, py: Python<'py>, call: CallArgs<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (collective, arrays) = (call.to_collective(py)?, call.arrays());
        let timeout = call.timeout(py)?;
        let report = py.detach(|| {
            self.endpoint.enter(|state| {
                let running = CallWithArrays::start(state.comm(self.id)?, &collective, arrays)?;
                Ok(running.with_timeout(timeout).wait()?)
            })
        });
        dict(py, &report.map_err(|fault| self.endpoint.raise(py, &fault))?)
    }

    /// Starts a call.
    fn start(&self, py: Python<'_>, call: CallArgs<'_>) -> PyResult<PyRequest> {
        let (collective, arrays) = (call.to_collective(py)?, call.arrays());
        let timeout = call.timeout(py)?;
        self.request(py, |comm| {
            Ok(CallWithArrays::start(comm, &collective, arrays)?.with_timeout(timeout))
        })
    }

    /// Starts to send or receive: an array, its type, peer, tag, and if it is sent the plan.
    fn start_message(&self, py: Python<'_>, message: MessageTuple<'_>) -> PyResult<PyRequest> {
        let (message_args, array) = (message_args(&message)?, message.0.unbind());
        self.request(py, |comm| CallWithArrays::start_message(comm, &message_args, array))
    }

    /// Sends and receives side by side: of each its array, type, peer, tag, and of what is sent the
    /// plan.
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<MessageTuple<'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let messages = messages.iter().map(message_args).collect::<PyResult<Vec<_>>>()?;
        let report = py
            .detach(|| self.endpoint.enter(|state| ffi::exchange(state.comm(self.id)?, &messages)));
        dict(py, &report.map_err(|fault| self.endpoint.raise(py, &fault))?)
    }

    /// All-reduces of several arrays of floats in place as one call, each within a bound of its own
    /// or the plan's; what they did together.
    #[pyo3(signature = (arrays, bounds, feedback, dtype, residue, op, plan))]
    #[allow(clippy::too_many_arguments, reason = "the package around gives them by place")]
    fn all_reduce_group<'py>(
        &self,
        py: Python<'py>,
        arrays: Vec<Bound<'py, PyAny>>,
        bounds: Vec<Option<String>>,
        feedback: Option<Vec<Bound<'py, PyAny>>>,
        dtype: u8,
        residue: u8,
        op: u8,
        plan: &Bound<'py, PyPlan>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let fault = |message: String| raise(py, &argument(message));
        let op = OpCode::from_code(op).ok_or_else(|| fault(format!("{op} is no operation")))?;
        let (dtype, residue) = (ffi::dtype(py, dtype)?, ffi::dtype(py, residue)?);
        let mut lent = Vec::new();
        for (array, bound) in arrays.iter().zip(&bounds) {
            let bound = bound.as_ref().map(|text| text.parse()).transpose();
            let bound = bound.map_err(|error| fault(format!("{error}")))?;
            lent.push((ffi::array(Some(array), dtype, true)?, bound));
        }
        let residues = feedback.as_ref().map(|residues| {
            residues.iter().map(|array| ffi::array(Some(array), residue, true)).collect()
        });
        let residues: Option<Vec<_>> = residues.transpose()?;
        let own = lent.iter().map(|(array, _)| range(*array, dtype));
        let kept = residues.iter().flatten().map(|array| range(*array, residue));
        let mut ranges: Vec<Range<usize>> = own.chain(kept).filter(|r| !r.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        if ranges.windows(2).any(|two| two[0].end > two[1].start) {
            return Err(fault("arrays of a group overlap".to_owned()));
        }
        let plan = plan.get().0;
        let reports = py.detach(|| {
            self.endpoint.enter(|state| {
                let comm = state.comm(self.id)?;
                ffi::all_reduce_group(comm, &lent, residues.as_deref(), dtype, op, plan)
            })
        });
        let reports = reports.map_err(|fault| self.endpoint.raise(py, &fault))?;
        let sum = reports.into_iter().reduce(|mut sum, report| {
            sum += report;
            sum
        });
        dict(py, &sum.unwrap_or_default())
    }

    /// The communicator of the ranks with the same color, if there is one.
    fn split(
        &self,
        py: Python<'_>,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> PyResult<Option<Self>> {
        let made = py.detach(|| {
            self.endpoint.enter(|state| {
                let made = state.comm(self.id)?.split(color, key, n_calls)?;
                Ok(made.map(|comm| {
                    let properties = properties(&comm);
                    (state.add_comm(comm), properties)
                }))
            })
        });
        Ok(made.map_err(|fault| self.endpoint.raise(py, &fault))?.map(|made| self.derived(made)))
    }

    /// The communicator of the ranks that call this.
    fn shrink(&self, py: Python<'_>, patience: f64) -> PyResult<Self> {
        let made = py.detach(|| {
            let patience = seconds(patience, "patience")?;
            self.endpoint.enter(|state| {
                let comm = state.take_comm(self.id)?.shrink(patience)?;
                let properties = properties(&comm);
                Ok((state.add_comm(comm), properties))
            })
        });
        Ok(self.derived(made.map_err(|fault| self.endpoint.raise(py, &fault))?))
    }

    /// Where this rank's share of so many values begins and ends.
    fn share(&self, py: Python<'_>, n_values: usize) -> PyResult<(usize, usize)> {
        let share = py
            .detach(|| self.endpoint.enter(|state| Ok(state.comm(self.id)?.share(n_values))))
            .map_err(|fault| self.endpoint.raise(py, &fault))?;
        Ok((share.start, share.end))
    }

    /// Whether an earlier call has failed.
    fn is_poisoned(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.endpoint.enter(|state| Ok(state.comm(self.id)?.is_poisoned())))
            .map_err(|fault| self.endpoint.raise(py, &fault))
    }

    /// Advances all calls under way.
    fn progress(&self, py: Python<'_>) -> PyResult<()> {
        let moved = py.detach(|| {
            self.endpoint.enter(|state| {
                state.progress();
                Ok(())
            })
        });
        moved.map_err(|fault| self.endpoint.raise(py, &fault))
    }

    /// Ends the calls that threads wait in, and all that come.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.check().map_err(|fault| raise(py, &fault))?;
        self.endpoint.interrupt();
        Ok(())
    }

    /// Ends this rank, with all communicators that came of the same link.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.endpoint.close());
    }
}

/// A call under way.
#[pyclass(frozen, name = "Request", module = "foldwire._native")]
pub(crate) struct PyRequest {
    endpoint: Arc<LockedEndpoint>,
    id: ObjectId,
    /// Once it is done.
    outcome: Mutex<Option<Result<Report, ApiError>>>,
}

impl Drop for PyRequest {
    fn drop(&mut self) {
        self.endpoint.release(self.id);
    }
}

/// Calls a function of Python's, once.
struct WakeCallback(Mutex<Option<Py<PyAny>>>);

impl Wake for WakeCallback {
    fn wake(self: Arc<Self>) {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(function) = function {
            // Where the interpreter has ended nobody waits; a loop that was closed meanwhile
            // raises, of which nobody is to hear either.
            Python::try_attach(|py| drop(function.call0(py)));
        }
    }
}

impl PyRequest {
    fn outcome(&self) -> MutexGuard<'_, Option<Result<Report, ApiError>>> {
        // Never locked while the GIL or a family is waited for.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call's outcome, once it is done, which `by` may find out, for whoever is first.
    fn settle(
        &self,
        py: Python<'_>,
        by: impl FnOnce(&mut LockedState) -> Option<Result<Report, ApiError>> + Send,
    ) -> Option<Result<Report, ApiError>> {
        let known = self.outcome().clone();
        known.or_else(|| {
            let outcome = py.detach(|| {
                self.endpoint.enter(|state| {
                    let known = self.outcome().clone();
                    let outcome = known.or_else(|| by(state));
                    self.outcome().clone_from(&outcome);
                    Ok(outcome)
                })
            });
            outcome.unwrap_or_else(|fault| Some(Err(fault)))
        })
    }

    fn poll_with(&self, py: Python<'_>, waker: &Waker) -> PyResult<bool> {
        self.endpoint.check().map_err(|fault| raise(py, &fault))?;
        let done = self.settle(py, |state| {
            let running = match state.request(self.id) {
                Ok(running) => running,
                Err(fault) => return Some(Err(fault)),
            };
            match Pin::new(running.call()).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => None,
                Poll::Ready(report) => {
                    state.forget(self.id);
                    Some(report.map_err(ApiError::from))
                }
            }
        });
        Ok(done.is_some())
    }
}

#[pymethods]
impl PyRequest {
    /// Whether it is done, after all calls have been advanced.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        self.poll_with(py, Waker::noop())
    }

    /// Whether it is done; if not, the function is called, by any thread, when that may have
    /// changed.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        self.poll_with(py, &Waker::from(Arc::new(WakeCallback(Mutex::new(Some(wake))))))
    }

    /// Waits until it is done; what it did.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.endpoint.check().map_err(|fault| raise(py, &fault))?;
        match self.settle(py, |state| Some(state.finish(self.id))) {
            Some(Ok(report)) => dict(py, &report),
            Some(Err(fault)) => Err(self.endpoint.raise(py, &fault)),
            None => unreachable!("it was finished"),
        }
    }
}
