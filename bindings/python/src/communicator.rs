//! Communicators and requests as the package around has them: calls by their names, arrays that
//! were made fit.

use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use foldwire::op::OpCode;
use foldwire::{Config, DType, Report};
use foldwire_c::border::Fault;
use foldwire_c::ffi::rust::{
    self, Array, Collective, Lengths, Letter, Link, Member, PlanText, collective,
};
use foldwire_c::ffi::types::FW_INVALID_ARGUMENT;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::raise;
use crate::family::{Family, Place, State};
use crate::ffi::{self, Running};
use crate::report::dict;

/// Seconds beyond which a limit of time is none.
const FOREVER: f64 = 1e9;

fn argument(message: impl Into<String>) -> Fault {
    Fault::new(FW_INVALID_ARGUMENT, message)
}

fn seconds(value: f64, what: &str) -> Result<Duration, Fault> {
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
) -> Result<Config, Fault> {
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
#[pyclass(frozen, module = "foldwire._native")]
pub(crate) struct Plan(PlanText);

#[pymethods]
impl Plan {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        Ok(Self(PlanText::parse(text).map_err(|fault| raise(py, &fault))?))
    }
}

/// A rank of a communicator.
#[pyclass(frozen, module = "foldwire._native")]
pub(crate) struct Comm {
    family: Arc<Family>,
    place: Place,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    n_calls: usize,
}

impl Comm {
    /// The communicator of all ranks of a network.
    pub(crate) fn found(link: Link, config: Config, n_calls: usize) -> Result<Self, Fault> {
        let (family, place) = Family::found(link, config, n_calls)?;
        let (rank, size, n_calls) = family.enter(|state| Ok(numbers(state.member(place)?)))?;
        Ok(Self { family: Arc::new(family), place, rank, size, n_calls })
    }

    /// The request of what `start` starts.
    fn request(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&Member) -> Result<Running, Fault> + Send,
    ) -> PyResult<Request> {
        let place = py.detach(|| {
            self.family.enter(|state| {
                let running = start(state.member(self.place)?)?;
                Ok(state.keep(running))
            })
        });
        let place = place.map_err(|fault| self.family.raise(py, &fault))?;
        let family = Arc::clone(&self.family);
        Ok(Request { family, place, outcome: Mutex::new(None) })
    }

    fn of(&self, (place, (rank, size, n_calls)): (Place, (usize, usize, usize))) -> Self {
        Self { family: Arc::clone(&self.family), place, rank, size, n_calls }
    }
}

/// Array, type, peer, tag, and of what is sent the plan.
type Message<'py> = (Bound<'py, PyAny>, u8, usize, u32, Option<Bound<'py, Plan>>);

/// A message as it goes over.
fn letter(message: &Message<'_>) -> PyResult<Letter> {
    let (array, dtype, peer, tag, plan) = message;
    let dtype = ffi::dtype(array.py(), *dtype)?;
    let array = ffi::array(Some(array), dtype, plan.is_none())?;
    let plan = plan.as_ref().map(|plan| plan.get().0);
    Ok(Letter { array, dtype, peer: *peer, tag: *tag, plan })
}

/// Where an array lies.
fn range(array: Array, dtype: DType) -> Range<usize> {
    array.address..array.address + array.n_values * dtype.n_bytes()
}

fn numbers(member: &Member) -> (usize, usize, usize) {
    (member.rank(), member.size(), member.n_calls())
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.family.let_go(self.place);
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
) -> PyResult<Vec<Comm>> {
    let all = || -> Result<Vec<Comm>, Fault> {
        let config = config(timeout, deadline, lanes, None)?;
        let links = Link::threads(n_ranks, rate)?.into_iter();
        links.map(|link| Comm::found(link, config, n_calls)).collect()
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
) -> PyResult<Comm> {
    let made = py.detach(|| {
        let (config, limit) =
            (config(timeout, deadline, lanes, link_rate)?, seconds(limit, "limit")?);
        let link = match id {
            Some(id) => Link::join(&id, n_ranks, rank, limit)?,
            None => Link::from_env(limit)?,
        };
        Comm::found(link, config, n_calls)
    });
    made.map_err(|fault| raise(py, &fault))
}

/// A call by its name: its arrays, how long they are, and what is done with them.
#[derive(FromPyObject)]
struct Call<'py> {
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
    plan: Bound<'py, Plan>,
    /// Seconds; of the communicator for none.
    timeout: Option<f64>,
}

impl Call<'_> {
    fn to_collective(&self, py: Python<'_>) -> PyResult<Collective> {
        let fault = |message: String| raise(py, &argument(message));
        let name = collective(&self.name)
            .ok_or_else(|| fault(format!("there is no collective {}", self.name)))?;
        let dtype = ffi::dtype(py, self.dtype)?;
        let op = OpCode::from_code(self.op).filter(|&op| op != OpCode::User);
        let op = op.ok_or_else(|| fault(format!("{} is no operation", self.op)))?;
        let lengths = match (&self.counts, &self.recv_counts) {
            (None, _) => Lengths::Same(self.count),
            (Some(counts), None) => Lengths::Given(counts.clone()),
            (Some(to), Some(from)) => Lengths::Exchanged(to.clone(), from.clone()),
        };
        let send = ffi::array(self.send.as_ref(), dtype, false)?;
        let recv = ffi::array(self.recv.as_ref(), dtype, true)?;
        let (root, plan) = (self.root, self.plan.get().0);
        Ok(Collective { name, lengths, send, recv, dtype, op, root, plan })
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
impl Comm {
    /// Makes a call; what it did.
    fn call<'py>(&self, py: Python<'py>, call: Call<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (collective, arrays) = (call.to_collective(py)?, call.arrays());
        let timeout = call.timeout(py)?;
        let report = py.detach(|| {
            self.family.enter(|state| {
                let running = Running::start(state.member(self.place)?, &collective, arrays)?;
                Ok(running.with_timeout(timeout).wait()?)
            })
        });
        dict(py, &report.map_err(|fault| self.family.raise(py, &fault))?)
    }

    /// Starts a call.
    fn start(&self, py: Python<'_>, call: Call<'_>) -> PyResult<Request> {
        let (collective, arrays) = (call.to_collective(py)?, call.arrays());
        let timeout = call.timeout(py)?;
        self.request(py, |member| {
            Ok(Running::start(member, &collective, arrays)?.with_timeout(timeout))
        })
    }

    /// Starts to send or receive: an array, its type, peer, tag, and if it is sent the plan.
    fn start_message(&self, py: Python<'_>, message: Message<'_>) -> PyResult<Request> {
        let (letter, array) = (letter(&message)?, message.0.unbind());
        self.request(py, |member| Running::start_letter(member, &letter, array))
    }

    /// Sends and receives side by side: of each its array, type, peer, tag, and of what is sent the
    /// plan.
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        letters: Vec<Message<'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let letters = letters.iter().map(letter).collect::<PyResult<Vec<_>>>()?;
        let report = py.detach(|| {
            self.family.enter(|state| ffi::exchange(state.member(self.place)?, &letters))
        });
        dict(py, &report.map_err(|fault| self.family.raise(py, &fault))?)
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
        plan: &Bound<'py, Plan>,
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
            self.family.enter(|state| {
                let member = state.member(self.place)?;
                ffi::all_reduce_group(member, &lent, residues.as_deref(), dtype, op, plan)
            })
        });
        let reports = reports.map_err(|fault| self.family.raise(py, &fault))?;
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
            self.family.enter(|state| {
                let made = state.member(self.place)?.split(color, key, n_calls)?;
                Ok(made.map(|member| {
                    let numbers = numbers(&member);
                    (state.add(member), numbers)
                }))
            })
        });
        Ok(made.map_err(|fault| self.family.raise(py, &fault))?.map(|made| self.of(made)))
    }

    /// The communicator of the ranks that call this.
    fn shrink(&self, py: Python<'_>, patience: f64) -> PyResult<Self> {
        let made = py.detach(|| {
            let patience = seconds(patience, "patience")?;
            self.family.enter(|state| {
                let member = state.take(self.place)?.shrink(patience)?;
                let numbers = numbers(&member);
                Ok((state.add(member), numbers))
            })
        });
        Ok(self.of(made.map_err(|fault| self.family.raise(py, &fault))?))
    }

    /// Where this rank's share of so many values begins and ends.
    fn share(&self, py: Python<'_>, n_values: usize) -> PyResult<(usize, usize)> {
        let share = py
            .detach(|| self.family.enter(|state| Ok(state.member(self.place)?.share(n_values))))
            .map_err(|fault| self.family.raise(py, &fault))?;
        Ok((share.start, share.end))
    }

    /// Whether an earlier call has failed.
    fn is_poisoned(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.family.enter(|state| Ok(state.member(self.place)?.is_poisoned())))
            .map_err(|fault| self.family.raise(py, &fault))
    }

    /// Advances all calls under way.
    fn progress(&self, py: Python<'_>) -> PyResult<()> {
        let moved = py.detach(|| {
            self.family.enter(|state| {
                state.progress();
                Ok(())
            })
        });
        moved.map_err(|fault| self.family.raise(py, &fault))
    }

    /// Ends the calls that threads wait in, and all that come.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        self.family.check().map_err(|fault| raise(py, &fault))?;
        self.family.interrupt();
        Ok(())
    }

    /// Ends this rank, with all communicators that came of the same link.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.family.close());
    }
}

/// A call under way.
#[pyclass(frozen, module = "foldwire._native")]
pub(crate) struct Request {
    family: Arc<Family>,
    place: Place,
    /// Once it is done.
    outcome: Mutex<Option<Result<Report, Fault>>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.family.let_go(self.place);
    }
}

/// Calls a function of Python's, once.
struct Callback(Mutex<Option<Py<PyAny>>>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(function) = function {
            // Where the interpreter has ended nobody waits; a loop that was closed meanwhile
            // raises, of which nobody is to hear either.
            Python::try_attach(|py| drop(function.call0(py)));
        }
    }
}

impl Request {
    fn outcome(&self) -> MutexGuard<'_, Option<Result<Report, Fault>>> {
        // Never locked while the GIL or a family is waited for.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call's outcome, once it is done, which `by` may find out, for whoever is first.
    fn settle(
        &self,
        py: Python<'_>,
        by: impl FnOnce(&mut State) -> Option<Result<Report, Fault>> + Send,
    ) -> Option<Result<Report, Fault>> {
        let known = self.outcome().clone();
        known.or_else(|| {
            let found = py.detach(|| {
                self.family.enter(|state| {
                    let known = self.outcome().clone();
                    let found = known.or_else(|| by(state));
                    self.outcome().clone_from(&found);
                    Ok(found)
                })
            });
            found.unwrap_or_else(|fault| Some(Err(fault)))
        })
    }

    fn poll_with(&self, py: Python<'_>, waker: &Waker) -> PyResult<bool> {
        self.family.check().map_err(|fault| raise(py, &fault))?;
        let done = self.settle(py, |state| {
            let running = match state.request(self.place) {
                Ok(running) => running,
                Err(fault) => return Some(Err(fault)),
            };
            match Pin::new(running.call()).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => None,
                Poll::Ready(report) => {
                    state.forget(self.place);
                    Some(report.map_err(Fault::from))
                }
            }
        });
        Ok(done.is_some())
    }
}

#[pymethods]
impl Request {
    /// Whether it is done, after all calls have been advanced.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        self.poll_with(py, Waker::noop())
    }

    /// Whether it is done; if not, the function is called, by any thread, when that may have
    /// changed.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        self.poll_with(py, &Waker::from(Arc::new(Callback(Mutex::new(Some(wake))))))
    }

    /// Waits until it is done; what it did.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.family.check().map_err(|fault| raise(py, &fault))?;
        match self.settle(py, |state| Some(state.finish(self.place))) {
            Some(Ok(report)) => dict(py, &report),
            Some(Err(fault)) => Err(self.family.raise(py, &fault)),
            None => unreachable!("it was finished"),
        }
    }
}
