//! Calls and messages in progress that own their buffers.

use super::driven::{BufferOwner, CallWork, DeviceBuffers, Driven, HostBuffers};
use crate::collective::{Call, CallState, DeviceOperands, HeldDevice};
use crate::device::{Device, OnDevice};
use crate::element::Element;
use crate::error::Error;
use crate::handle::{Advance, Handle, Limited, Progress};
use crate::plan::Plan;
use crate::report::Report;
use crate::shared_transport::{CallSlot, Drive, SharedTransport};
use crate::transport::Transport;
use crate::wait::Limits;
use alloc::boxed::Box;
use alloc::rc::{Rc, Weak};
use core::cell::RefCell;
use core::fmt;
use core::task::{Poll, Waker};
use core::time::Duration;

/// Result of a finished call, together with the caller's array.
#[derive(Debug)]
#[must_use = "this value holds the caller's array"]
pub struct Finished<B> {
    /// The array with the result. After an error other than a usage error its contents are
    /// unspecified.
    pub data: B,
    /// Report of the call, or its error.
    pub outcome: Result<Report, Error>,
}

impl<B> Finished<B> {
    /// Returns the array and the report. If the call failed, returns its error and drops the array.
    ///
    /// # Errors
    /// The error of the call.
    pub fn into_result(self) -> Result<(B, Report), Error> {
        self.outcome.map(|report| (self.data, report))
    }
}

/// A call or message in progress that owns its buffers, or borrows them for longer than the
/// communicator lives. Its result is a [`Finished`], which holds the array.
///
/// It advances whenever any call over the same transport is waited for, or
/// [`progress`](crate::SharedCommunicator::progress) is called. Dropping it unfinished aborts it on
/// all ranks and poisons the communicator.
pub type Pending<'a, X, R> = Handle<RunningPending<'a, X, R>>;

/// A call or message that the shared transport drives.
pub struct RunningPending<'a, X: Transport + 'a, R> {
    shared: Rc<SharedTransport<'a, X>>,
    /// `None` once the result has been taken.
    work: Option<Rc<RefCell<dyn BufferOwner<R> + 'a>>>,
}

impl<'a, X: Transport + 'a, R: 'a> Handle<RunningPending<'a, X, R>> {
    pub(super) fn start<T: Element, S: AsRef<[T]> + 'a>(
        shared: Rc<SharedTransport<'a, X>>,
        call_slot: &Rc<CallSlot<'a, X>>,
        call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Self, Error>
    where
        R: AsMut<[T]>,
    {
        let mut buffers = HostBuffers::new(call);
        let call_state = call_slot.with(|comm| {
            let (request, mut work) = buffers.call.parts(comm.rank());
            CallState::start(comm, request, &mut work, plan)
        })?;
        Ok(Self::of(shared, Driven::call(call_slot, CallWork { call_state, buffers })))
    }

    /// Registers a started call or message with the shared transport, which drives it from now on.
    pub(super) fn of(shared: Rc<SharedTransport<'a, X>>, work: impl BufferOwner<R> + 'a) -> Self {
        let work: Rc<RefCell<dyn BufferOwner<R> + 'a>> = Rc::new(RefCell::new(work));
        let driven: Rc<RefCell<dyn Drive + 'a>> = work.clone();
        let driven: Weak<RefCell<dyn Drive + 'a>> = Rc::downgrade(&driven);
        shared.add(driven);
        Self(RunningPending { shared, work: Some(work) })
    }

    /// Advances all calls over the transport by a bounded amount of work each. Once this call has
    /// finished, each poll returns `Ready` with the report or the error. [`wait`](Self::wait) then
    /// returns the array.
    ///
    /// # Errors
    /// As [`Operation::poll`](crate::Operation::poll).
    pub fn poll(&mut self) -> Poll<Result<Report, Error>> {
        // The call's error is its outcome.
        let _ = self.0.advance();
        let outcome = self.0.work.as_ref().and_then(|work| work.try_borrow().ok()?.outcome());
        outcome.map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns whether the call has finished, without driving it.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    pub(super) fn start_on<T: Element, S: OnDevice<T> + 'a>(
        shared: Rc<SharedTransport<'a, X>>,
        call_slot: &Rc<CallSlot<'a, X>>,
        device: Box<dyn Device + 'a>,
        call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Self, Error>
    where
        R: OnDevice<T>,
    {
        let work = call_slot.with(|comm| {
            let rank = comm.rank();
            let (request, mut operands, plan, given) =
                DeviceOperands::of(call, HeldDevice::Owned(device), rank, plan)?;
            let call_state = CallState::start(comm, request, &mut operands, &plan)?;
            Ok(CallWork { call_state, buffers: DeviceBuffers { operands, given } })
        })?;
        Ok(Self::of(shared, Driven::call(call_slot, work)))
    }
}

impl<X: Transport, R> RunningPending<'_, X, R> {
    fn is_finished(&self) -> bool {
        let is_finished = |work: &Rc<RefCell<dyn BufferOwner<R> + '_>>| {
            work.try_borrow().is_ok_and(|work| work.is_finished())
        };
        self.work.as_ref().is_none_or(is_finished)
    }

    /// Returns the array and the outcome of a finished call, the first time only.
    fn take(&mut self) -> Option<Finished<R>> {
        let work = self.work.take()?;
        let mut work = work.try_borrow_mut().ok()?;
        Some(Finished { outcome: work.outcome()?, data: work.give_back()? })
    }
}

/// Stays pending forever after it has returned its result.
impl<'a, X: Transport + 'a, R: 'a> Advance for RunningPending<'a, X, R> {
    type Output = Finished<R>;

    /// Advances all calls over the transport by a bounded amount of work each.
    fn advance(&mut self) -> Result<Progress, Error> {
        // The borrow fails if this call is computing, and its operation polls the call itself.
        let Some(Ok(mut own)) = self.work.as_ref().map(|work| work.try_borrow_mut()) else {
            return Ok(Progress::Waiting);
        };
        if own.is_finished() {
            return Ok(Progress::Finished);
        }
        own.note_wait();
        // If another call is computing with a user-defined operation, that operation polls this
        // call.
        let moved = self.shared.is_in_pass() && own.drive();
        drop(own);
        // Ignore an error of the transport here: the call also gets it, as its outcome.
        let moved = moved || self.shared.pass().unwrap_or(false);
        Ok(match (self.is_finished(), moved) {
            (true, _) => Progress::Finished,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Waiting,
        })
    }

    fn output(&mut self, _: Result<(), Error>) -> Finished<R> {
        self.take().expect("a finished call has its array, and is not driven")
    }

    fn idle(&mut self) {
        let work = self.work.as_ref().expect("a future has returned the result");
        let rest =
            work.try_borrow().expect("a call cannot wait for itself").rest(self.shared.now());
        self.shared.idle(rest);
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.shared.register(waker)
    }
}

impl<'a, X: Transport + 'a, R: 'a> Limited for RunningPending<'a, X, R> {
    fn change_limits(&mut self, change: impl FnOnce(&mut Limits, Duration)) {
        if let Some(Ok(mut work)) = self.work.as_ref().map(|work| work.try_borrow_mut())
            && let Some(limits) = work.limits()
        {
            change(limits, self.shared.now());
        }
    }
}

impl<X: Transport, R> fmt::Debug for RunningPending<'_, X, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_finished() { "a call, done" } else { "a call, under way" })
    }
}
