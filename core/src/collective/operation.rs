//! A call under way: learn the extent of the data if the bound needs it, then run the engine.

use super::survey;
use super::{Communicator, EXTENT_SCHEDULE, Job, Request};
use crate::bound::{Extent, Quantum};
use crate::budget::{ask, resolve};
use crate::codec::{AnyCodec, CodecId};
use crate::element::Element;
use crate::engine::{Buffers, Engine, Limits, Progress, Work};
use crate::error::Error;
use crate::frame::{CallHeader, Measure};
use crate::layout::{Division, Shares, Window};
use crate::op::{Op, OpCode};
use crate::pipeline;
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::{self, Call, Collective, Schedule};
use crate::transport::{Rank, Transport};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// A collective call under way.
///
/// Drive it with [`poll`](Self::poll), [`wait`](Self::wait), or `.await` it. Any executor will do:
/// the transport wakes the task ([`Transport::register`]), or the task asks to be polled again at
/// once. Dropping it unfinished ends the communicator on all ranks ([`cancel`](Self::cancel) says
/// so in the code).
#[must_use = "nothing moves unless the operation is polled or waited for"]
pub struct Operation<'a, X: Transport, T: Element> {
    comm: &'a mut Communicator<X>,
    request: Request<'a, T>,
    plan: Plan,
    schedule: &'static dyn Schedule,
    limits: Limits,
    state: State<'a, X::Frame, T>,
}

enum State<'a, F, T: Element> {
    /// Exchanging what each rank saw of its data, in a sample or in all; what an earlier exchange
    /// cost.
    Extent {
        engine: Engine<'static, F>,
        values: [f64; survey::N_VALUES],
        sampled: bool,
        before: Report,
    },
    /// Running the call itself; what the exchange cost.
    Running { engine: Engine<'a, F>, codec: AnyCodec<T>, before: Report },
    /// Its result has been returned.
    Finished,
}

impl<'a, X: Transport, T: Element> Operation<'a, X, T> {
    pub(super) fn new(
        comm: &'a mut Communicator<X>,
        request: Request<'a, T>,
        plan: Plan,
        schedule: &'static dyn Schedule,
    ) -> Result<Self, Error> {
        let now = comm.transport.now();
        let limits = Limits {
            stall: comm.config.timeout,
            deadline: comm.config.deadline.map(|left| now.saturating_add(left)),
        };
        let mut operation = Self { comm, request, plan, schedule, limits, state: State::Finished };
        operation.state = if plan.needs_extent() {
            let sampled = plan.samples(operation.request.shares.count());
            operation.start_extent(sampled, Report::default())?
        } else {
            operation.start_running(None, Report::default())?
        };
        Ok(operation)
    }

    /// Fails with [`Error::Stalled`] after `timeout` without any progress, whatever
    /// [`Config::timeout`](crate::Config::timeout) says. Time before the first poll does not count,
    /// and of the time between two polls a quarter of `timeout` at most. With
    /// [`Config::NEVER`](crate::Config::NEVER) it never does.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.limits.stall = timeout;
        self
    }

    /// Fails with [`Error::Deadline`] unless finished in `left` from now, whatever
    /// [`Config::deadline`](crate::Config::deadline) says. The deadline is this rank's own; the
    /// others learn of it as of any other failure.
    pub fn with_deadline(mut self, left: Duration) -> Self {
        self.limits.deadline = Some(self.comm.transport.now().saturating_add(left));
        self
    }

    /// Gives the call up: the other ranks get [`Error::Aborted`], and the communicator is poisoned.
    /// Nothing happens if the result has been returned. The caller's buffers hold a part of the
    /// result, or none. Dropping an unfinished operation does the same.
    pub fn cancel(self) {
        drop(self);
    }

    fn call(&self) -> Call {
        self.request.call(self.comm.size())
    }

    fn division(&self) -> Division {
        match self.request.collective {
            Collective::AllReduce => self.plan.division,
            // Elsewhere parts are ranks' shares.
            _ => Division::Blocks,
        }
    }

    /// What peers are told of the call, in a look at the extent of its data as well. The
    /// communicator counts it.
    fn header(&self, measure: Measure, step: f64) -> CallHeader {
        CallHeader {
            epoch: 0,
            sequence: 0,
            collective: self.request.collective,
            dtype: T::DTYPE,
            op: self.request.op_code(),
            codec: self.plan.codec,
            division: self.division(),
            pipeline: self.plan.pipeline.code(),
            schedule: schedule::code(self.schedule),
            lanes: self.comm.lanes() as u8,
            root: self.request.root.0,
            count: self.request.shares.count() as u64,
            measure,
            step,
        }
    }

    fn start_extent(
        &mut self,
        sampled: bool,
        before: Report,
    ) -> Result<State<'a, X::Frame, T>, Error> {
        let own = self.request.own_values(self.comm.size(), self.comm.rank());
        let values = survey::look(own, self.comm.config.level, sampled);
        let schedule = self.schedule;
        let (measure, asked) =
            ask(&self.plan, schedule, self.call(), self.request.op_code(), sampled);
        let header = self.header(measure, asked);
        let job = Job {
            schedule: EXTENT_SCHEDULE,
            call: Call { collective: Collective::AllReduce, root: Rank(0), ..self.call() },
            pipeline: pipeline::RAW,
            codec: &self.comm.codec::<f64>(CodecId::Raw, Quantum::LOSSLESS, OpCode::Max),
            op: OpCode::Max,
            shares: Shares::Even(survey::N_VALUES),
            window: Window::Whole,
            division: Division::Blocks,
        };
        let engine = self.comm.engine(job, header)?;
        Ok(State::Extent { engine, values, sampled, before })
    }

    fn start_running(
        &mut self,
        extent: Option<Extent>,
        before: Report,
    ) -> Result<State<'a, X::Frame, T>, Error> {
        let (call, op) = (self.call(), self.request.op_code());
        let (quantum, worst_case) = resolve::<T>(&self.plan, self.schedule, call, op, extent)?;
        let codec = self.comm.codec::<T>(self.plan.codec, quantum, op);
        let job = Job {
            schedule: self.schedule,
            call,
            pipeline: self.plan.pipeline,
            codec: &codec,
            op,
            shares: self.request.shares,
            window: self.request.buffers.window(),
            division: self.division(),
        };
        let mut engine = self.comm.engine(job, self.header(Measure::Lattice, quantum.step()))?;
        engine.report.bound = quantum.bound();
        engine.report.worst_case = worst_case;
        Ok(State::Running { engine, codec, before })
    }

    /// Advances the call by a bounded amount of work.
    ///
    /// # Errors
    /// [`Error`]; the communicator is then unusable, here and on all other ranks. [`Error::Bound`]
    /// is the exception: all ranks find that the bound on the result is too small for the data, and
    /// the communicator lives. [`Error::Finished`] once the result has been returned.
    pub fn poll(&mut self) -> Poll<Result<Report, Error>> {
        match self.advance() {
            Ok(Step::Moved | Step::Waiting) => Poll::Pending,
            Ok(Step::Finished(report)) => Poll::Ready(Ok(report)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Drives the call to its end.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<Report, Error> {
        loop {
            match self.advance()? {
                Step::Finished(report) => return Ok(report),
                Step::Moved => {}
                Step::Waiting => {
                    let rest = self.rest();
                    let transport = &mut self.comm.transport;
                    let left = self.limits.deadline.map(|d| d.saturating_sub(transport.now()));
                    transport.idle(left.map_or(rest, |left| left.min(rest)));
                }
            }
        }
    }

    fn rest(&self) -> Duration {
        match &self.state {
            State::Extent { engine, .. } | State::Running { engine, .. } => {
                engine.rest(self.limits)
            }
            State::Finished => Duration::ZERO,
        }
    }

    fn advance(&mut self) -> Result<Step, Error> {
        let result = self.try_advance();
        match &result {
            Ok(Step::Finished(_)) | Err(Error::Finished) => self.state = State::Finished,
            Ok(_) => {}
            Err(error) => self.give_up(Some(error)),
        }
        result
    }

    fn try_advance(&mut self) -> Result<Step, Error> {
        let Communicator { transport, notices, .. } = &mut *self.comm;
        match &mut self.state {
            State::Finished => Err(Error::Finished),
            State::Extent { engine, values, sampled, before } => {
                let codec = AnyCodec::<f64>::Raw(crate::codec::Raw::new());
                let mut buffers = Buffers::InPlace(values);
                let codec = codec.as_dyn();
                let mut work = Work { codec, op: Op::Max, divisor: 1, buffers: &mut buffers };
                Ok(match engine.poll(transport, &mut work, self.limits, notices)? {
                    Progress::Moved => Step::Moved,
                    Progress::Waiting => Step::Waiting,
                    Progress::Finished => {
                        let mut before = *before;
                        before += engine.report;
                        let conclusion = survey::conclude(*values, *sampled);
                        // An unusable bound shows here on all ranks alike, with nothing under way:
                        // the call ends, the communicator lives.
                        self.state = State::Finished;
                        self.state = match conclusion {
                            Some(extent) => self.start_running(extent, before)?,
                            None => self.start_extent(false, before)?,
                        };
                        Step::Moved
                    }
                })
            }
            State::Running { engine, codec, before } => {
                let buffers = &mut self.request.buffers;
                let op = self.request.op.unwrap_or(Op::Sum);
                let divisor = if op.code() == OpCode::Avg { transport.size() as u32 } else { 1 };
                let mut work = Work { codec: codec.as_dyn(), op, divisor, buffers };
                Ok(match engine.poll(transport, &mut work, self.limits, notices)? {
                    Progress::Moved => Step::Moved,
                    Progress::Waiting => Step::Waiting,
                    Progress::Finished => {
                        let mut report = engine.report;
                        report += *before;
                        Step::Finished(report)
                    }
                })
            }
        }
    }

    /// Tells the other ranks, and makes the communicator refuse further calls.
    fn give_up(&mut self, error: Option<&Error>) {
        match core::mem::replace(&mut self.state, State::Finished) {
            State::Finished => {}
            State::Extent { mut engine, .. } | State::Running { mut engine, .. } => {
                let Communicator { transport, notices, .. } = &mut *self.comm;
                engine.abort(transport, notices, error);
                self.comm.poisoned = true;
            }
        }
    }
}

enum Step {
    Moved,
    Waiting,
    Finished(Report),
}

impl<X: Transport, T: Element> Drop for Operation<'_, X, T> {
    fn drop(&mut self) {
        self.give_up(None);
    }
}

/// Nothing in an operation is ever pinned, whatever its elements and frames are.
impl<X: Transport, T: Element> Unpin for Operation<'_, X, T> {}

impl<X: Transport, T: Element> Future for Operation<'_, X, T> {
    type Output = Result<Report, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.advance();
        if let Ok(Step::Waiting) = step
            && self.comm.transport.register(context.waker())
        {
            // What came before it was registered is found now.
            step = self.advance();
            if let Ok(Step::Waiting) = step {
                return Poll::Pending;
            }
        }
        match step {
            Ok(Step::Moved | Step::Waiting) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Step::Finished(report)) => Poll::Ready(Ok(report)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<X: Transport, T: Element> core::fmt::Debug for Operation<'_, X, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let state = match self.state {
            State::Extent { .. } => "learning the extent",
            State::Running { .. } => "running",
            State::Finished => "finished",
        };
        let (name, count) = (self.request.collective.name(), self.request.shares.count());
        write!(f, "{name} of {count} values, {state}")
    }
}
