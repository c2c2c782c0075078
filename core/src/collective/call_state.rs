//! A running call, and its state. A repeated call replays its compiled steps; any other call runs
//! in full.

#[cfg(feature = "alloc")]
use super::device_operands::DeviceOperands;
use super::full_call::{CallPhase, FullCall, Phase, Running, exchange};
use super::operands::Operands;
#[cfg(feature = "alloc")]
use super::resolved::{Origin, RecentCall};
use super::resolved::{Preparation, Resolved};
use super::state::{OnHeap, on_heap};
use super::{Communicator, Request};
use crate::engine::Coding;
use crate::engine::Computing;
#[cfg(feature = "alloc")]
use crate::engine::Replay;
use crate::engine::Work;
use crate::error::Error;
use crate::handle::{Advance, Handle, Limited, Progress};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Limits;
#[cfg(feature = "alloc")]
use alloc::boxed::Box;
use core::fmt;
use core::task::Waker;
use core::time::Duration;

/// A collective call in progress. Poll it, wait for it, or `.await` it.
///
/// Dropping an unfinished call poisons the communicator on all ranks. [`cancel`](Handle::cancel)
/// does the same explicitly.
pub type Operation<'a, X, T> = Handle<RunningCall<'a, X, Work<'a, 'a, T>>>;

/// A collective call on a device's memory in progress. Poll it, wait for it, or `.await` it.
///
/// Dropping an unfinished call poisons the communicator on all ranks, and waits for the device.
#[cfg(feature = "alloc")]
pub type DeviceOperation<'a, X> = Handle<RunningCall<'a, X, DeviceOperands<'a>>>;

/// A collective call in progress, with its communicator and buffers.
#[expect(private_bounds, reason = "only this crate has operands")]
pub struct RunningCall<'a, X: Transport, W: Operands> {
    pub(super) comm: &'a mut Communicator<X>,
    pub(super) work: W,
    pub(super) call: CallState<'a>,
}

#[expect(private_bounds, reason = "only this crate has operands")]
impl<'a, X: Transport, W: Operands> RunningCall<'a, X, W> {
    pub(crate) fn start(
        comm: &'a mut Communicator<X>,
        request: Request<'a>,
        mut work: W,
        plan: &Plan,
    ) -> Result<Handle<Self>, Error> {
        let call = CallState::start(comm, request, &mut work, plan)?;
        Ok(Handle(Self { comm, work, call }))
    }
}

impl<X: Transport, W: Operands> Advance for RunningCall<'_, X, W> {
    type Output = Result<Report, Error>;

    fn advance(&mut self) -> Result<Progress, Error> {
        self.call.advance(self.comm, &mut self.work)
    }

    fn output(&mut self, ended: Result<(), Error>) -> Self::Output {
        ended.map(|()| self.call.finish(self.comm))
    }

    fn idle(&mut self) {
        self.comm.idle(self.call.limits, self.call.rest());
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.comm.transport.register(waker)
    }
}

impl<X: Transport, W: Operands> Limited for RunningCall<'_, X, W> {
    fn change_limits(&mut self, change: impl FnOnce(&mut Limits, Duration)) {
        change(&mut self.call.limits, self.comm.transport.now());
    }
}

impl<X: Transport, W: Operands> Drop for RunningCall<'_, X, W> {
    fn drop(&mut self) {
        if !self.call.is_over() {
            self.call.give_up(self.comm, Some(&mut self.work), None);
        }
    }
}

impl<X: Transport, W: Operands> fmt::Debug for RunningCall<'_, X, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.describe(f)
    }
}

/// State of a running call, without the communicator and the buffers that it works on.
///
/// The owner of the state passes both to [`advance`](Self::advance). Before it drops an unfinished
/// call, it must [give the call up](Self::give_up).
pub(crate) struct CallState<'s> {
    pub(crate) limits: Limits,
    stage: CallStage<'s>,
}

#[cfg_attr(not(feature = "alloc"), expect(clippy::large_enum_variant, reason = "there is no heap"))]
enum CallStage<'s> {
    /// The communicator ran this call before, and replays the steps that were compiled then.
    #[cfg(feature = "alloc")]
    Replay(Box<RecentCall>),
    /// The engine runs the call, perhaps after other phases.
    Full(OnHeap<FullCall<'s>>),
    /// The call has finished, failed, or returned its result.
    Over,
}

impl<X: Transport> Communicator<X> {
    /// Returns the time limits of a call that begins now.
    pub(super) fn limits(&self) -> Limits {
        let deadline = |left| self.transport.now().saturating_add(left);
        Limits { stall: self.config.timeout, deadline: self.config.deadline.map(deadline) }
    }

    /// Rests until a frame arrives, for at most `rest` and at most until the deadline.
    pub(super) fn idle(&mut self, limits: Limits, rest: Duration) {
        // Reading the clock takes longer than a short rest, so read it only for a deadline.
        let rest = match limits.deadline {
            Some(_) => limits.rest_from(self.transport.now(), rest),
            None => rest,
        };
        self.transport.idle(rest);
    }
}

impl<'s> CallState<'s> {
    /// Starts a call.
    ///
    /// # Errors
    /// Usage errors, and [`Error::Poisoned`].
    #[inline(never)]
    pub(crate) fn start<X: Transport>(
        comm: &mut Communicator<X>,
        request: Request<'s>,
        work: &mut dyn Operands,
        plan: &Plan,
    ) -> Result<Self, Error> {
        #[cfg(feature = "alloc")]
        if work.may_replay()
            && let Some(recent) = comm.take_recent(&request, plan)
        {
            return Ok(Self::start_again(comm, recent));
        }
        let spec = comm.spec(&request, plan)?;
        work.check(&spec)?;
        let mut call = FullCall::new(request, spec);
        #[cfg(feature = "alloc")]
        if call.is_trial_due(comm, plan) {
            call.start_trial(comm, plan)?;
            return Ok(Self::full(comm, call));
        }
        call.begin(comm, work, plan)?;
        Ok(Self::full(comm, call))
    }

    /// Starts a call that the communicator keeps. It is replayed if all its steps have been
    /// compiled and it has no deadline. Otherwise the engine runs it and compiles its steps.
    #[cfg(feature = "alloc")]
    #[inline(never)]
    pub(super) fn start_again<X: Transport>(
        comm: &mut Communicator<X>,
        mut recent: Box<RecentCall>,
    ) -> Self {
        let resolved = &recent.resolved;
        let limits = comm.limits();
        if !recent.compiled.is_whole(resolved.program.n_steps) || limits.deadline.is_some() {
            let (resolved, compiled) = (*resolved, core::mem::take(&mut recent.compiled));
            let mut call = FullCall::new(recent.request, resolved.spec);
            call.start(comm, &resolved, CallPhase::of_recent(recent));
            comm.state.lanes.record = Some(compiled);
            return Self::full(comm, call);
        }
        let (sequence, now) = (comm.next_sequence(), comm.transport.now());
        recent.replay.begin(sequence, now, &mut comm.state.lanes);
        Self { limits, stage: CallStage::Replay(recent) }
    }

    /// Starts a prepared call that is not kept.
    #[inline(never)]
    pub(super) fn start_prepared<X: Transport>(
        comm: &mut Communicator<X>,
        request: Request<'s>,
        (resolved, coding): (&Resolved<'s>, &Coding),
        _preparation: &Preparation,
    ) -> Self {
        #[cfg(feature = "alloc")]
        if let Some(recent) =
            RecentCall::new(&request, Origin::Preparation(_preparation.clone()), resolved, coding)
        {
            return Self::start_again(comm, Box::new(recent));
        }
        let mut call = FullCall::new(request, resolved.spec);
        call.start(comm, resolved, CallPhase::new(coding.clone()));
        Self::full(comm, call)
    }

    pub(super) fn full<X: Transport>(comm: &Communicator<X>, call: FullCall<'s>) -> Self {
        Self { limits: comm.limits(), stage: CallStage::Full(on_heap(call)) }
    }

    /// Returns how long to rest before the next poll.
    pub(crate) fn rest(&self) -> Duration {
        match &self.stage {
            #[cfg(feature = "alloc")]
            CallStage::Replay(..) => Replay::rest(self.limits),
            CallStage::Full(call) => call.rest(self.limits),
            CallStage::Over => Duration::ZERO,
        }
    }

    /// Does a bounded amount of work. An error ends the call. After `Progress::Finished`,
    /// [`finish`](Self::finish) returns the report.
    ///
    /// # Errors
    /// The failure of the call; [`Error::Finished`] once it is over.
    #[inline(never)]
    pub(crate) fn advance<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
    ) -> Result<Progress, Error> {
        #[cfg(feature = "alloc")]
        if let CallStage::Replay(recent) = &mut self.stage {
            let Communicator { transport, notices, state, .. } = &mut *comm;
            let RecentCall { resolved, coding, compiled, replay, request, .. } = &mut **recent;
            let (on, lanes) = ((&resolved.program, &*compiled), &mut state.lanes);
            let compute = &mut Computing::new(work, coding);
            // A replay does not watch deadlines, and one may have been set since the start.
            let replayed = match self.limits.deadline {
                None => replay.poll(on, transport, lanes, compute, notices),
                Some(_) => Ok(None),
            };
            match replayed {
                Ok(Some(Progress::Finished)) => {
                    request.end(comm.size(), comm.rank(), work)?;
                    return Ok(Progress::Finished);
                }
                Ok(Some(progress)) => return Ok(progress),
                Ok(None) => self.take_over(comm),
                Err(error) => {
                    self.take_over(comm);
                    return self.lose(comm, work, error);
                }
            }
        }
        let CallStage::Full(call) = &mut self.stage else { return Err(Error::Finished) };
        if let Some(error) = work.failure() {
            return self.lose(comm, work, error);
        }
        call.round_input(comm, work);
        let Communicator { transport, notices, state, .. } = &mut *comm;
        let Running { engine, phase } = call.running.as_mut().ok_or(Error::Finished)?;
        let (lanes, limits) = (&mut state.lanes, self.limits);
        let polled = if let Phase::Call(CallPhase { coding, .. }) = phase {
            let compute = &mut Computing::new(work, coding);
            engine.poll(transport, lanes, compute, limits, notices)
        } else {
            let (mut work, coding) = exchange(phase.exchanged());
            let compute = &mut Computing::new(&mut work, &coding);
            engine.poll(transport, lanes, compute, limits, notices)
        };
        let progress = match polled {
            Ok(Progress::Finished) => call.end_phase(comm, work),
            polled => polled,
        };
        match progress.and_then(|progress| work.after_poll(progress)) {
            Err(error) => self.lose(comm, work, error),
            progress => progress,
        }
    }

    /// Ends the call after an error, unless the error says that a rank is lost: then the reason may
    /// arrive in a moment.
    #[cold]
    fn lose<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        error: Error,
    ) -> Result<Progress, Error> {
        if let CallStage::Full(call) = &mut self.stage
            && let Some(Running { engine, .. }) = &mut call.running
            && engine.watchdog.lose(error, comm.transport.now()).is_ok()
        {
            return Ok(Progress::Moved);
        }
        self.give_up(comm, Some(work), Some(&error));
        Err(error)
    }

    /// Drives all phases before the call itself, and returns it. It has sent nothing.
    pub(super) fn finish_setup<X: Transport>(
        mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
    ) -> Result<OnHeap<FullCall<'s>>, Error> {
        loop {
            match self.stage {
                CallStage::Full(call) if call.is_set_up() => return Ok(call),
                _ => {}
            }
            if let Progress::Waiting = self.advance(comm, work)? {
                comm.idle(self.limits, self.rest());
            }
        }
    }

    /// Returns whether the call has finished, failed, or returned its result.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, CallStage::Over)
    }

    /// Returns the report of a call that has just finished.
    #[inline(never)]
    pub(crate) fn finish<X: Transport>(
        &mut self,
        #[cfg_attr(
            not(feature = "alloc"),
            expect(unused_variables, reason = "without a heap no calls are kept")
        )]
        comm: &mut Communicator<X>,
    ) -> Report {
        match core::mem::replace(&mut self.stage, CallStage::Over) {
            #[cfg(feature = "alloc")]
            CallStage::Replay(recent) => comm.put_back(recent),
            CallStage::Full(call) => call.report(),
            CallStage::Over => Report::default(),
        }
    }

    /// Continues a replay as a full call, from the step that it has reached.
    #[cfg(feature = "alloc")]
    #[cold]
    fn take_over<X: Transport>(&mut self, comm: &mut Communicator<X>) {
        self.stage = match core::mem::replace(&mut self.stage, CallStage::Over) {
            CallStage::Replay(recent) => {
                let on = (recent.resolved.program, &recent.compiled);
                let engine = recent.replay.into_engine(on, &mut comm.state.lanes);
                let mut call = FullCall::new(recent.request, recent.resolved.spec);
                let phase = Phase::Call(CallPhase::of_recent(recent));
                call.running = Some(Running { engine, phase });
                CallStage::Full(Box::new(call))
            }
            other => other,
        };
    }

    /// Aborts the call unless it is over: notifies the other ranks, stops what runs on its frames,
    /// and poisons the communicator. `work` is `None` if nothing can run on them.
    #[inline(never)]
    pub(crate) fn give_up<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: Option<&mut dyn Operands>,
        error: Option<&Error>,
    ) {
        #[cfg(feature = "alloc")]
        self.take_over(comm);
        if let CallStage::Full(call) = &mut self.stage {
            call.give_up(comm, work, error);
        }
        self.stage = CallStage::Over;
    }

    /// Writes the collective, the count, and what the call is doing.
    pub(super) fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, doing) = match &self.stage {
            #[cfg(feature = "alloc")]
            CallStage::Replay(recent) => (&recent.request, "running"),
            CallStage::Full(call) => (&call.request, call.doing()),
            CallStage::Over => return f.write_str("a call, finished"),
        };
        let (name, count) = (request.collective.name(), request.shares.count());
        write!(f, "{name} of {count} values, {doing}")
    }
}
