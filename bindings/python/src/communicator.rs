//! The classes `Comm` and `Plan` of `foldwire._native`. The Python package passes the
//! name of a call and arrays that are contiguous and aligned.
//!
//! `failure::raise` creates the exception for an error. For the error of a call, use
//! `LockedEndpoint::raise`: a signal handler or another thread may have ended the call.

use std::sync::Arc;
use std::time::Duration;

use foldwire::grow::Admission;
use foldwire::op::OpCode;
use foldwire::plan::PlanSpec;
use foldwire::{Collective, Config, DType, Plan};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{
    self, AnyTransport, ArrayMemory, CollectiveArgs, CoreCommunicator, DeviceStream,
    GrownCommunicator, MessageArgs, ValueCounts, collective, seconds,
};
use foldwire_c::ffi::types::FW_INVALID_ARGUMENT;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::endpoint::{LockedEndpoint, ObjectId};
use crate::failure::raise;
use crate::ffi;
use crate::report::{PyReport, dict};
use crate::request::{CallWithArrays, PyRequest};
use crate::store::ObjectStore;

/// Creates the error for an invalid argument.
fn argument(message: impl Into<String>) -> ApiError {
    ApiError::new(FW_INVALID_ARGUMENT, message)
}

/// A parsed plan.
#[pyclass(frozen, name = "Plan", module = "foldwire._native")]
pub(crate) struct PyPlan(Plan);

#[pymethods]
impl PyPlan {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let plan = text.parse::<PlanSpec>().and_then(|spec| Ok(spec.plan()?));
        Ok(Self(plan.map_err(|error| raise(py, &error.into()))?))
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
    /// Creates the communicator of all ranks of an endpoint.
    pub(crate) fn create(
        transport: AnyTransport,
        config: Config,
        n_calls: usize,
    ) -> Result<Self, ApiError> {
        let (endpoint, id) = LockedEndpoint::create(transport, config, n_calls)?;
        let (rank, size, n_calls) = endpoint.enter(|state| Ok(properties(state.comm(id)?)))?;
        Ok(Self { endpoint: Arc::new(endpoint), id, rank, size, n_calls })
    }

    /// Calls `then` with core's communicator, without the GIL.
    fn with_core<R: Send>(
        &self,
        py: Python<'_>,
        then: impl FnOnce(&CoreCommunicator) -> Result<R, ApiError> + Send,
    ) -> PyResult<R> {
        self.endpoint.call(py, |state| then(state.comm(self.id)?))
    }

    /// Starts a call with `start` and returns its request.
    fn request(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&CoreCommunicator) -> Result<CallWithArrays, ApiError> + Send,
    ) -> PyResult<PyRequest> {
        let id = self.endpoint.call(py, |state| {
            let running = start(state.comm(self.id)?)?;
            Ok(state.add_call(running))
        })?;
        Ok(PyRequest::new(Arc::clone(&self.endpoint), id))
    }

    /// Wraps the communicator of a group that has grown.
    pub(crate) fn grown(grown: GrownCommunicator) -> PyGrown {
        let GrownCommunicator { comm, generation, facts, old_ranks } = grown;
        let (rank, size, n_calls) = properties(&comm);
        let (endpoint, id) = LockedEndpoint::of(comm);
        (
            Self { endpoint: Arc::new(endpoint), id, rank, size, n_calls },
            generation,
            facts,
            old_ranks,
        )
    }

    /// Wraps another communicator of the same endpoint.
    fn derived(&self, (id, (rank, size, n_calls)): (ObjectId, (usize, usize, usize))) -> Self {
        Self { endpoint: Arc::clone(&self.endpoint), id, rank, size, n_calls }
    }
}

/// A communicator, its generation, the facts, and each rank's rank before.
pub(crate) type PyGrown = (PyCommunicator, u64, Vec<u8>, Vec<Option<u32>>);

/// A message: array, type, peer, tag and plan. It is sent if it has a plan, else received.
type MessageTuple<'py> = (Bound<'py, PyAny>, u8, usize, u32, Option<Bound<'py, PyPlan>>);

/// Converts a message.
fn message_args(message: &MessageTuple<'_>) -> PyResult<MessageArgs> {
    let (array, dtype, peer, tag, plan) = message;
    let dtype = ffi::dtype(array.py(), *dtype)?;
    let array = ffi::array(Some(array), dtype, plan.is_none())?;
    let plan = plan.as_ref().map(|plan| plan.get().0);
    Ok(MessageArgs { array, dtype, peer: *peer, tag: *tag, plan })
}

/// Converts the seconds without progress after which a call fails.
fn limit(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let timeout = timeout.map(|timeout| seconds(timeout, "timeout")).transpose();
    timeout.map_err(|fault| raise(py, &fault))
}

/// Calls `then`, with another time limit of the communicator: operations that it starts fail after
/// `timeout` without progress. `None` keeps the communicator's time limit.
fn within<R>(comm: &CoreCommunicator, timeout: Option<Duration>, then: impl FnOnce() -> R) -> R {
    let Some(timeout) = timeout else { return then() };
    comm.set_timeout(timeout);
    let made = then();
    comm.set_timeout(comm.config().timeout);
    made
}

/// Returns rank, number of ranks, and largest number of calls at once.
fn properties(comm: &CoreCommunicator) -> (usize, usize, usize) {
    (comm.rank().index(), comm.size(), comm.n_calls())
}

impl Drop for PyCommunicator {
    fn drop(&mut self) {
        self.endpoint.release(self.id);
    }
}

/// Arguments of a collective from Python.
#[derive(FromPyObject)]
struct CallArgs<'py> {
    name: String,
    send: Option<Bound<'py, PyAny>>,
    recv: Option<Bound<'py, PyAny>>,
    dtype: u8,
    op: u8,
    root: usize,
    count: usize,
    /// Length of each rank's block.
    counts: Option<Vec<usize>>,
    /// Length of the block from each rank, for an all-to-all.
    recv_counts: Option<Vec<usize>>,
    plan: Bound<'py, PyPlan>,
    /// Seconds without progress after which the call fails. `None`: the communicator's.
    timeout: Option<f64>,
    /// Number of the device that has the arrays, and its stream. `None`: the CPU.
    memory: Option<(usize, Option<u64>)>,
}

impl CallArgs<'_> {
    /// Converts and checks the arguments.
    fn to_collective(&self, py: Python<'_>) -> PyResult<CollectiveArgs> {
        let fault = |message: String| raise(py, &argument(message));
        let collective = collective(&self.name).map_err(|fault| raise(py, &fault))?;
        let dtype = ffi::dtype(py, self.dtype)?;
        let op = OpCode::from_code(self.op).filter(|&op| op != OpCode::User);
        let op = op.ok_or_else(|| fault(format!("unknown operation code {}", self.op)))?;
        let shared = |counts: &Vec<usize>| Arc::from(&counts[..]);
        let counts = match (&self.counts, &self.recv_counts) {
            (None, _) => ValueCounts::Same(self.count),
            (Some(counts), None) => ValueCounts::Given(shared(counts)),
            (Some(to), Some(from)) => ValueCounts::Exchanged(shared(to), shared(from)),
        };
        let (send, recv) = (self.send.as_ref(), self.recv.as_ref());
        let (send, recv, memory) = match self.memory {
            None => {
                let (send, recv) =
                    (ffi::array(send, dtype, false)?, ffi::array(recv, dtype, true)?);
                (send, recv, ArrayMemory::Host)
            }
            Some((device, stream)) => {
                let (send, recv) =
                    (ffi::device_array(send, dtype)?, ffi::device_array(recv, dtype)?);
                (send, recv, ArrayMemory::Device(DeviceStream { device, stream }))
            }
        };
        let (root, plan) = (self.root, self.plan.get().0);
        Ok(CollectiveArgs { collective, counts, send, recv, dtype, op, root, plan, memory })
    }

    fn timeout(&self, py: Python<'_>) -> PyResult<Option<Duration>> {
        limit(py, self.timeout)
    }

    /// Returns references to the arrays.
    fn arrays(&self) -> Vec<Py<PyAny>> {
        let both = [&self.send, &self.recv];
        both.into_iter().flatten().map(|array| array.clone().unbind()).collect()
    }
}

#[pymethods]
impl PyCommunicator {
    /// Makes a blocking call and returns its report.
    fn call(&self, py: Python<'_>, call: CallArgs<'_>) -> PyResult<PyReport> {
        let (collective, arrays) = (call.to_collective(py)?, call.arrays());
        let timeout = call.timeout(py)?;
        let report = self.with_core(py, |comm| {
            CallWithArrays::start(comm, &collective, arrays, timeout)?.wait()
        })?;
        Ok(PyReport(report))
    }

    /// Makes a blocking all-reduce of a tensor of torch in place and returns its report. `memory`
    /// is the tensor's address and its number of values, `kind` the codes of type and operation.
    fn all_reduce_tensor(
        &self,
        py: Python<'_>,
        tensor: Py<PyAny>,
        memory: (usize, usize),
        kind: (u8, u8),
        plan: &Bound<'_, PyPlan>,
        timeout: Option<f64>,
    ) -> PyResult<PyReport> {
        let fault = |message: String| raise(py, &argument(message));
        let (dtype, op) = (ffi::dtype(py, kind.0)?, OpCode::from_code(kind.1));
        let op = op.ok_or_else(|| fault(format!("unknown operation code {}", kind.1)))?;
        let array = ffi::tensor(py, memory, dtype)?;
        let collective = CollectiveArgs {
            collective: Some(Collective::AllReduce),
            counts: ValueCounts::Same(array.n_values()),
            send: array,
            recv: array,
            dtype,
            op,
            root: 0,
            plan: plan.get().0,
            memory: ArrayMemory::Host,
        };
        let timeout = limit(py, timeout)?;
        let report = self.with_core(py, |comm| {
            CallWithArrays::start(comm, &collective, vec![tensor], timeout)?.wait()
        })?;
        Ok(PyReport(report))
    }

    /// Starts a call and returns its request.
    fn start(&self, py: Python<'_>, call: CallArgs<'_>) -> PyResult<PyRequest> {
        let (collective, arrays) = (call.to_collective(py)?, call.arrays());
        let timeout = call.timeout(py)?;
        self.request(py, |comm| CallWithArrays::start(comm, &collective, arrays, timeout))
    }

    /// Starts to send or receive a message.
    fn start_message(&self, py: Python<'_>, message: MessageTuple<'_>) -> PyResult<PyRequest> {
        let (message_args, array) = (message_args(&message)?, message.0.unbind());
        let arrays = vec![array];
        self.request(py, |comm| {
            Ok(CallWithArrays { call: rust::start_message(comm, &message_args)?, arrays })
        })
    }

    /// Sends and receives several messages concurrently, and returns their report.
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<MessageTuple<'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let messages = messages.iter().map(message_args).collect::<PyResult<Vec<_>>>()?;
        dict(py, &self.with_core(py, |comm| rust::exchange(comm, &messages))?)
    }

    /// All-reduces several arrays of floats in place as one call. Each has its own bound, or else
    /// the plan's. Returns the report of all of them.
    #[pyo3(signature = (arrays, bounds, feedback, dtype, residue, op, plan, timeout))]
    #[allow(clippy::too_many_arguments, reason = "the Python package passes them by position")]
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
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        // `dtype` and `residue` are the type codes of `arrays` and `feedback`. `feedback` holds the
        // errors that earlier calls made in each array.
        let fault = |message: String| raise(py, &argument(message));
        let op =
            OpCode::from_code(op).ok_or_else(|| fault(format!("unknown operation code {op}")))?;
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
        let (plan, timeout) = (&plan.get().0, limit(py, timeout)?);
        let reports = self.with_core(py, |comm| {
            within(comm, timeout, || {
                rust::all_reduce_group(comm, &lent, residues.as_deref(), dtype, op, plan)
            })
        })?;
        let sum = reports.into_iter().reduce(|mut sum, report| {
            sum += report;
            sum
        });
        dict(py, &sum.unwrap_or_default())
    }

    /// Makes reproducible sums of the rows or columns of `values` into `sums`, an array of `f64`.
    fn repro_sums<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
        dtype: u8,
        is_columns: bool,
        sums: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (dtype, timeout) = (ffi::dtype(py, dtype)?, limit(py, timeout)?);
        let values = ffi::array(Some(values), dtype, false)?;
        let sums = ffi::array(Some(sums), DType::F64, true)?;
        let report = self.with_core(py, |comm| {
            within(comm, timeout, || rust::repro_sums(comm, values, dtype, is_columns, sums))
        })?;
        dict(py, &report)
    }

    /// Creates the communicator of the ranks with the same color. `None`: this rank has no color.
    fn split(
        &self,
        py: Python<'_>,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
        timeout: Option<f64>,
    ) -> PyResult<Option<Self>> {
        let timeout = limit(py, timeout)?;
        let made = self.endpoint.call(py, |state| {
            let comm = state.comm(self.id)?;
            let made = within(comm, timeout, || comm.split(color, key, n_calls))?;
            Ok(made.map(|comm| {
                let properties = properties(&comm);
                (state.add_comm(comm), properties)
            }))
        })?;
        Ok(made.map(|made| self.derived(made)))
    }

    /// Creates the communicator of the ranks that call this function.
    fn shrink(&self, py: Python<'_>, patience: f64) -> PyResult<Self> {
        let made = self.endpoint.call(py, |state| {
            let patience = seconds(patience, "patience")?;
            let comm = state.take_comm(self.id)?.shrink(patience, self.n_calls)?;
            let properties = properties(&comm);
            Ok((state.add_comm(comm), properties))
        })?;
        Ok(self.derived(made))
    }

    /// Replaces the communicator by one of the ranks that call this function and of newcomers.
    /// Returns it with its generation, the facts, and each rank's rank before.
    #[pyo3(signature = (store, job, size, times, generation, facts))]
    #[allow(clippy::too_many_arguments, reason = "arguments that Python names")]
    fn admit(
        &self,
        py: Python<'_>,
        store: Py<PyAny>,
        job: &str,
        size: usize,
        times: (f64, f64),
        generation: u64,
        facts: Vec<u8>,
    ) -> PyResult<PyGrown> {
        let mut store = ObjectStore::new(py, store)?;
        let made = py.detach(|| {
            let limit = seconds(times.0, "limit")?;
            let patience = seconds(times.1, "patience")?;
            let wanted = Admission { size, limit, patience, generation, facts: &facts };
            self.endpoint.enter(|state| {
                let take = || state.take_comm(self.id);
                let grown = store.watched(|store| rust::admit(take, store, job, &wanted))?;
                Ok(Self::grown(grown))
            })
        });
        store.outcome(made, |fault| self.endpoint.raise(py, fault))
    }

    /// Returns start and end of this rank's block in an array of `n_values` values.
    fn share(&self, py: Python<'_>, n_values: usize) -> PyResult<(usize, usize)> {
        let share = self.with_core(py, |comm| Ok(comm.share(n_values)))?;
        Ok((share.start, share.end))
    }

    /// Returns whether an earlier call has failed and made the communicator unusable.
    fn is_poisoned(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_core(py, |comm| Ok(comm.is_poisoned()))
    }

    /// Advances all calls in progress.
    fn progress(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.call(py, |state| {
            state.progress();
            Ok(())
        })
    }

    /// Stops running calls, and all later ones.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.check().map_err(|fault| raise(py, &fault))?;
        self.endpoint.interrupt();
        Ok(())
    }

    /// Ends this rank, with all communicators of the same endpoint.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.close(py)
    }
}
