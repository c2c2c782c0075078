//! A call under way: learn the extent of the data if the bound needs it, then run the engine.

use super::survey;
use super::terms::Terms;
use super::{Communicator, Request};
use crate::bound::{Extent, Quantum};
use crate::budget::{Budget, ask, resolve};
use crate::codec::{AnyCodec, Raw};
use crate::element::Element;
use crate::engine::{Buffers, Codecs, Engine, Frame, Limits, Progress, Work};
use crate::error::Error;
use crate::frame::Measure;
use crate::op::{Op, OpCode};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
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
    request: Request<'a, 'a, T>,
    call: Underway<'a, X::Frame, T>,
}

impl<'a, X: Transport, T: Element> Operation<'a, X, T> {
    pub(super) fn new(
        comm: &'a mut Communicator<X>,
        request: Request<'a, 'a, T>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let call = Underway::start(comm, &request, plan)?;
        Ok(Self { comm, request, call })
    }

    /// Fails with [`Error::Stalled`] after `timeout` without any progress, whatever
    /// [`Config::timeout`](crate::Config::timeout) says. Time before the first poll does not count,
    /// and of the time between two polls a quarter of `timeout` at most. With
    /// [`Config::NEVER`](crate::Config::NEVER) it never does.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.call.limits.stall = timeout;
        self
    }

    /// Fails with [`Error::Deadline`] unless finished in `left` from now, whatever
    /// [`Config::deadline`](crate::Config::deadline) says. The deadline is this rank's own; the
    /// others learn of it as of any other failure.
    pub fn with_deadline(mut self, left: Duration) -> Self {
        self.call.limits.deadline = Some(self.comm.transport.now().saturating_add(left));
        self
    }

    /// Gives the call up: the other ranks get [`Error::Aborted`], and the communicator is poisoned.
    /// Nothing happens if the result has been returned. The caller's buffers hold a part of the
    /// result, or none. Dropping an unfinished operation does the same.
    pub fn cancel(self) {
        drop(self);
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
                Step::Waiting => self.call.idle(self.comm),
            }
        }
    }

    fn advance(&mut self) -> Result<Step, Error> {
        self.call.advance(self.comm, &mut self.request)
    }
}

/// A call under way, without the communicator and the buffers that it works on: whoever has those
/// lends them at each poll, and gives the call up if it is not finished.
pub(crate) struct Underway<'s, F, T: Element> {
    terms: Terms<'s>,
    pub(crate) limits: Limits,
    state: State<'s, F, T>,
}

enum State<'s, F, T: Element> {
    /// Exchanging what each rank saw of its data, in a sample or in all; what an earlier exchange
    /// cost.
    Extent {
        engine: Engine<'static, F>,
        values: [f64; survey::N_VALUES],
        sampled: bool,
        before: Report,
    },
    /// Running the call itself; what the exchange cost.
    Running { engine: Engine<'s, F>, codec: AnyCodec<T>, before: Report },
    /// Its result has been returned.
    Finished,
}

impl<'s, F: Frame, T: Element> Underway<'s, F, T> {
    /// Starts a call.
    ///
    /// # Errors
    /// Errors of use, and [`Error::Poisoned`].
    pub(crate) fn start<X: Transport<Frame = F>>(
        comm: &mut Communicator<X>,
        request: &Request<'_, 's, T>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let mut call = Self::prepare(comm, request, plan)?;
        let plan = &call.terms.plan;
        call.state = if plan.needs_extent() {
            let sampled = plan.samples(call.terms.shares.count());
            call.start_extent(comm, request, sampled, Report::default())?
        } else {
            call.start_running(comm, None, Report::default())?
        };
        Ok(call)
    }

    /// Starts a call of which all ranks have found the extent of the data, if the bound needs that.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`Error::Bound`] on all ranks alike.
    #[cfg(feature = "alloc")]
    pub(crate) fn start_knowing<X: Transport<Frame = F>>(
        comm: &mut Communicator<X>,
        request: &Request<'_, 's, T>,
        plan: &Plan,
        extent: Option<Extent>,
    ) -> Result<Self, Error> {
        let mut call = Self::prepare(comm, request, plan)?;
        call.state = call.start_running(comm, extent, Report::default())?;
        Ok(call)
    }

    fn prepare<X: Transport<Frame = F>>(
        comm: &mut Communicator<X>,
        request: &Request<'_, 's, T>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let terms = comm.prepare(request, plan)?;
        let now = comm.transport.now();
        let limits = Limits {
            stall: comm.config.timeout,
            deadline: comm.config.deadline.map(|left| now.saturating_add(left)),
        };
        Ok(Self { terms, limits, state: State::Finished })
    }

    /// Others are told of the call itself, and what it asks of each operand.
    fn start_extent<X: Transport<Frame = F>>(
        &self,
        comm: &mut Communicator<X>,
        request: &Request<'_, 's, T>,
        sampled: bool,
        before: Report,
    ) -> Result<State<'s, F, T>, Error> {
        let own = request.own_values(comm.size(), comm.rank());
        let values = survey::look(own, comm.config.level, sampled);
        let (measure, asked) = ask(&self.terms, sampled);
        let look = self.terms.of_extent();
        let codec = comm.codec::<f64>(&look, Quantum::LOSSLESS);
        let engine = comm.engine(look, &codec, self.terms.header(measure, asked))?;
        Ok(State::Extent { engine, values, sampled, before })
    }

    fn start_running<X: Transport<Frame = F>>(
        &self,
        comm: &mut Communicator<X>,
        extent: Option<Extent>,
        before: Report,
    ) -> Result<State<'s, F, T>, Error> {
        let Budget { quantum, bound, worst_case } = resolve::<T>(&self.terms, extent)?;
        let codec = comm.codec::<T>(&self.terms, quantum);
        let header = self.terms.header(Measure::Lattice, quantum.step());
        let mut engine = comm.engine(self.terms, &codec, header)?;
        engine.report.bound = bound;
        engine.report.worst_case = worst_case;
        Ok(State::Running { engine, codec, before })
    }

    /// Rests until something comes, or until it is time to look.
    pub(crate) fn idle<X: Transport<Frame = F>>(&self, comm: &mut Communicator<X>) {
        let (rest, transport) = (self.rest(), &mut comm.transport);
        let left = self.limits.deadline.map(|at| at.saturating_sub(transport.now()));
        transport.idle(left.map_or(rest, |left| left.min(rest)));
    }

    /// How long to rest before the next look.
    pub(crate) fn rest(&self) -> Duration {
        match &self.state {
            State::Extent { engine, .. } | State::Running { engine, .. } => {
                engine.rest(self.limits)
            }
            State::Finished => Duration::ZERO,
        }
    }

    pub(crate) fn advance<X: Transport<Frame = F>>(
        &mut self,
        comm: &mut Communicator<X>,
        request: &mut Request<'_, 's, T>,
    ) -> Result<Step, Error> {
        let result = self.try_advance(comm, request);
        match &result {
            Ok(Step::Finished(_)) | Err(Error::Finished) => self.state = State::Finished,
            Ok(_) => {}
            Err(error) => self.give_up(comm, Some(error)),
        }
        result
    }

    fn try_advance<X: Transport<Frame = F>>(
        &mut self,
        comm: &mut Communicator<X>,
        request: &mut Request<'_, 's, T>,
    ) -> Result<Step, Error> {
        let Communicator { transport, notices, .. } = &mut *comm;
        match &mut self.state {
            State::Finished => Err(Error::Finished),
            State::Extent { engine, values, sampled, before } => {
                let raw = AnyCodec::Raw(Raw::new());
                let codecs = Codecs { call: raw.as_dyn(), raw: raw.as_dyn() };
                let mut buffers = Buffers::InPlace(values);
                let buffers = &mut buffers;
                let mut work = Work { codecs, op: Op::Max, divisor: 1, buffers };
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
                            Some(extent) => self.start_running(comm, extent, before)?,
                            None => self.start_extent(comm, request, false, before)?,
                        };
                        Step::Moved
                    }
                })
            }
            State::Running { engine, codec, before } => {
                let buffers = &mut request.buffers;
                let op = request.op.unwrap_or(Op::Sum);
                let divisor = if op.code() == OpCode::Avg { transport.size() as u32 } else { 1 };
                let codec = codec.as_dyn();
                let raw = AnyCodec::Raw(Raw::with_weight(codec.weight()));
                let codecs = Codecs { call: codec, raw: raw.as_dyn() };
                let mut work = Work { codecs, op, divisor, buffers };
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
    pub(crate) fn give_up<X: Transport<Frame = F>>(
        &mut self,
        comm: &mut Communicator<X>,
        error: Option<&Error>,
    ) {
        match core::mem::replace(&mut self.state, State::Finished) {
            State::Finished => {}
            State::Extent { mut engine, .. } | State::Running { mut engine, .. } => {
                let Communicator { transport, notices, .. } = &mut *comm;
                engine.abort(transport, notices, error);
                comm.poisoned = true;
            }
        }
    }
}

/// What an advance came to.
pub(crate) enum Step {
    Moved,
    Waiting,
    Finished(Report),
}

impl<X: Transport, T: Element> Drop for Operation<'_, X, T> {
    fn drop(&mut self) {
        self.call.give_up(self.comm, None);
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
        let state = match self.call.state {
            State::Extent { .. } => "learning the extent",
            State::Running { .. } => "running",
            State::Finished => "finished",
        };
        let (name, count) = (self.request.collective.name(), self.request.shares.count());
        write!(f, "{name} of {count} values, {state}")
    }
}
