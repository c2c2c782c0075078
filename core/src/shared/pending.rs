//! A call or message in progress that owns its buffers.

use crate::collective::{Call, CallState, Communicator, DeviceOperands};
use crate::device::{Device, OnDevice};
use crate::element::Element;
use crate::error::{Buffer, Error};
use crate::handle::Progress;
use crate::plan::Plan;
use crate::report::Report;
use crate::shared_transport::{CallSlot, Drive, Port, SharedTransport};
use crate::transport::Transport;
use crate::wait::Limits;
use alloc::boxed::Box;
use alloc::rc::{Rc, Weak};
use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
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
/// communicator lives.
///
/// [`wait`](Self::wait) for it, [`poll`](Self::poll) it, or `.await` it. It advances whenever any
/// call over the same transport is waited for, or [`progress`](crate::SharedCommunicator::progress)
/// is called. Dropping it unfinished aborts it on all ranks and poisons the communicator.
#[must_use = "a dropped call is aborted"]
pub struct Pending<'a, X: Transport + 'a, T: Element, R> {
    shared: Rc<SharedTransport<'a, X>>,
    /// `None` once the result has been taken.
    work: Option<Rc<RefCell<dyn BufferOwner<R> + 'a>>>,
    values: PhantomData<T>,
}

/// A call or message in progress.
pub(super) trait PendingWork: Drive {
    /// Result, once it has finished.
    fn outcome(&self) -> Option<Result<Report, Error>>;

    /// Time limits.
    fn limits(&mut self) -> &mut Limits;

    /// Records that the caller waits. The timeouts of messages count only from then on.
    fn note_wait(&mut self) {}

    /// Returns how long to rest before the next poll.
    fn rest(&self, now: Duration) -> Duration;
}

/// A call or message that holds the caller's buffer.
pub(super) trait BufferOwner<R>: PendingWork {
    /// Returns the buffer, the first time only.
    fn give_back(&mut self) -> Option<R>;
}

/// Buffers of a call in progress.
trait CallBuffers<X: Transport> {
    /// What the finished call returns to the caller.
    type Given;

    /// Advances the call.
    fn advance(
        &mut self,
        comm: &mut Communicator<X>,
        call_state: &mut CallState<'_>,
    ) -> Result<Progress, Error>;

    fn into_given(self) -> Self::Given;
}

/// Buffers in the host's memory.
struct HostBuffers<'a, T: Element, S, R> {
    call: Call<'a, T, S, R>,
    /// Lengths at the start.
    lengths: [usize; 2],
}

impl<X: Transport, T: Element, S: AsRef<[T]>, R: AsMut<[T]>> CallBuffers<X>
    for HostBuffers<'_, T, S, R>
{
    type Given = R;

    fn advance(
        &mut self,
        comm: &mut Communicator<X>,
        call_state: &mut CallState<'_>,
    ) -> Result<Progress, Error> {
        let lengths = [Buffer::Send, Buffer::Recv].into_iter().zip(self.call.lengths());
        for ((buffer, have), need) in lengths.zip(self.lengths) {
            if have != need {
                let error = Error::Length { buffer, need, have };
                call_state.give_up(comm, Some(&error));
                return Err(error);
            }
        }
        call_state.advance(comm, &mut self.call.work())
    }

    fn into_given(self) -> R {
        self.call.into_result()
    }
}

impl<X: Transport> CallBuffers<X> for DeviceOperands<'_> {
    type Given = ();

    fn advance(
        &mut self,
        comm: &mut Communicator<X>,
        call_state: &mut CallState<'_>,
    ) -> Result<Progress, Error> {
        call_state.advance(comm, self)
    }

    fn into_given(self) {}
}

/// A collective call, as the shared transport drives it.
struct PendingCall<'a, X: Transport, B> {
    call_slot: Rc<CallSlot<'a, X>>,
    call_state: CallState<'a>,
    /// `None` once the caller has them back.
    buffers: Option<B>,
    outcome: Option<Result<Report, Error>>,
}

impl<'a, X: Transport + 'a, T: Element, R: AsMut<[T]> + 'a> Pending<'a, X, T, R> {
    pub(super) fn start<S: AsRef<[T]> + 'a>(
        shared: Rc<SharedTransport<'a, X>>,
        call_slot: Rc<CallSlot<'a, X>>,
        mut call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let lengths = call.lengths();
        let call_state = {
            let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
            let comm = comm.as_mut().ok_or(Error::Poisoned)?;
            let (request, mut work) = call.parts(comm.rank());
            CallState::start(comm, request, &mut work, plan)?
        };
        let buffers = HostBuffers { call, lengths };
        Ok(Self::of(shared, PendingCall::new(call_slot, call_state, buffers)))
    }
}

impl<'a, X: Transport + 'a, T: Element> Pending<'a, X, T, ()> {
    pub(super) fn start_on<S: OnDevice<T>, R: OnDevice<T>>(
        shared: Rc<SharedTransport<'a, X>>,
        call_slot: Rc<CallSlot<'a, X>>,
        device: Box<dyn Device + 'a>,
        call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let (call_state, buffers) = {
            let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
            let comm = comm.as_mut().ok_or(Error::Poisoned)?;
            let rank = comm.rank();
            let (request, mut work, plan) = DeviceOperands::of(call, device, rank, plan)?;
            (CallState::start(comm, request, &mut work, &plan)?, work)
        };
        Ok(Self::of(shared, PendingCall::new(call_slot, call_state, buffers)))
    }
}

impl<'a, X: Transport + 'a, T: Element, R: 'a> Pending<'a, X, T, R> {
    /// Registers a started call or message with the shared transport, which drives it from now on.
    pub(super) fn of(shared: Rc<SharedTransport<'a, X>>, work: impl BufferOwner<R> + 'a) -> Self {
        let work = Rc::new(RefCell::new(work));
        let driven: Rc<RefCell<dyn Drive + 'a>> = work.clone();
        let driven: Weak<RefCell<dyn Drive + 'a>> = Rc::downgrade(&driven);
        shared.add(driven);
        Self { shared, work: Some(work), values: PhantomData }
    }

    /// Advances all calls over the transport by a bounded amount of work each. Once this call has
    /// finished, each poll returns `Ready` with the report or the error. [`wait`](Self::wait) then
    /// returns the buffer.
    ///
    /// # Errors
    /// As [`Operation::poll`](crate::Operation::poll).
    pub fn poll(&mut self) -> Poll<Result<Report, Error>> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        self.note_wait();
        // Ignore an error of the transport here: the call also gets it, as its outcome.
        let _ = self.shared.pass();
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns whether the call has finished, without driving it.
    pub fn is_finished(&self) -> bool {
        self.outcome().is_some()
    }

    /// Drives all calls over the transport until this one has finished.
    ///
    /// # Panics
    /// If a [user-defined operation](crate::Op::User) waits for the same call that is computing
    /// with it.
    pub fn wait(mut self) -> Finished<R> {
        self.note_wait();
        loop {
            if let Some(finished) = self.take() {
                return finished;
            }
            let moved = if self.shared.is_in_pass() {
                // Another call is computing with a user-defined operation, and that operation waits
                // for this call.
                let work = self.work.as_ref().map(|work| work.try_borrow_mut());
                work.and_then(Result::ok).expect("a call cannot wait for itself").drive()
            } else {
                // Ignore an error of the transport here: the call also gets it, as its outcome.
                self.shared.pass().unwrap_or(false)
            };
            if !moved {
                self.shared.idle(self.rest());
            }
        }
    }

    /// Makes the call fail with [`Error::Stalled`] after `timeout` without any progress, as
    /// [`Operation::with_timeout`](crate::Operation::with_timeout) does.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.change(|limits| limits.stall = timeout);
        self
    }

    /// Makes the call fail with [`Error::Deadline`] unless it finishes in `left` from now, as
    /// [`Operation::with_deadline`](crate::Operation::with_deadline) does.
    pub fn with_deadline(self, left: Duration) -> Self {
        let deadline = self.shared.now().saturating_add(left);
        self.change(|limits| limits.deadline = Some(deadline));
        self
    }

    /// Aborts the call: the other ranks get [`Error::Aborted`], and the communicator is poisoned.
    /// Dropping the call unfinished does the same.
    pub fn cancel(self) {
        drop(self);
    }

    fn change(&self, change: impl FnOnce(&mut Limits)) {
        if let Some(Ok(mut work)) = self.work.as_ref().map(|work| work.try_borrow_mut()) {
            change(work.limits());
        }
    }

    fn note_wait(&self) {
        if let Some(Ok(mut work)) = self.work.as_ref().map(|work| work.try_borrow_mut()) {
            work.note_wait();
        }
    }

    fn outcome(&self) -> Option<Result<Report, Error>> {
        self.work.as_ref()?.try_borrow().ok()?.outcome()
    }

    /// Returns the buffer and the outcome once the call has finished, the first time only.
    fn take(&mut self) -> Option<Finished<R>> {
        let outcome = self.outcome()?;
        // The shared transport does not drive a finished call, so the borrow succeeds.
        let data = self.work.take()?.try_borrow_mut().ok()?.give_back()?;
        Some(Finished { data, outcome })
    }

    /// Returns how long to rest before the next poll.
    fn rest(&self) -> Duration {
        let work = self.work.as_ref().map(|work| work.try_borrow());
        let Some(Ok(work)) = work else { return Duration::ZERO };
        work.rest(self.shared.now())
    }
}

impl<'a, X: Transport, B> PendingCall<'a, X, B> {
    fn new(call_slot: Rc<CallSlot<'a, X>>, call_state: CallState<'a>, buffers: B) -> Self {
        call_slot.is_taken.set(true);
        Self { call_slot, call_state, buffers: Some(buffers), outcome: None }
    }

    fn advance(&mut self) -> Result<Progress, Error>
    where
        B: CallBuffers<Port<'a, X>>,
    {
        let mut comm = self.call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let comm = comm.as_mut().ok_or(Error::Poisoned)?;
        let buffers = self.buffers.as_mut().ok_or(Error::Finished)?;
        let result = buffers.advance(comm, &mut self.call_state);
        if let Ok(Progress::Finished) = result {
            let report = self.call_state.finish(comm);
            self.outcome = Some(Ok(report));
        }
        result
    }

    /// Aborts the call unless it has finished, and notifies the other ranks.
    fn give_up(&mut self) {
        if let Ok(mut comm) = self.call_slot.comm.try_borrow_mut()
            && let Some(comm) = comm.as_mut()
        {
            self.call_state.give_up(comm, None);
            self.call_slot.leave(comm, None);
        }
    }
}

impl<'a, X: Transport, B: CallBuffers<Port<'a, X>>> Drive for PendingCall<'a, X, B> {
    fn drive(&mut self) -> bool {
        if self.is_finished() {
            return false;
        }
        let error = match self.advance() {
            Ok(Progress::Moved) => return true,
            Ok(Progress::Waiting) => return false,
            Ok(Progress::Finished) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            self.outcome = Some(Err(error));
        }
        if let Ok(mut comm) = self.call_slot.comm.try_borrow_mut()
            && let Some(comm) = comm.as_mut()
        {
            self.call_slot.leave(comm, error.as_ref());
        }
        true
    }

    fn is_finished(&self) -> bool {
        self.outcome.is_some()
    }

    fn channel(&self) -> usize {
        self.call_slot.channel
    }

    fn abandon(&mut self) {
        self.give_up();
        self.outcome = Some(Err(Error::Poisoned));
    }
}

impl<'a, X: Transport, B: CallBuffers<Port<'a, X>>> PendingWork for PendingCall<'a, X, B> {
    fn outcome(&self) -> Option<Result<Report, Error>> {
        self.outcome
    }

    fn limits(&mut self) -> &mut Limits {
        &mut self.call_state.limits
    }

    fn rest(&self, now: Duration) -> Duration {
        self.call_state.limits.rest_from(now, self.call_state.rest())
    }
}

impl<'a, X: Transport, B: CallBuffers<Port<'a, X>>> BufferOwner<B::Given>
    for PendingCall<'a, X, B>
{
    fn give_back(&mut self) -> Option<B::Given> {
        self.buffers.take().map(B::into_given)
    }
}

/// Aborts the call if it is unfinished.
impl<X: Transport, T: Element, R> Drop for Pending<'_, X, T, R> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && let Ok(mut work) = work.try_borrow_mut()
            && !work.is_finished()
        {
            work.abandon();
        }
    }
}

/// No field is ever pinned.
impl<X: Transport, T: Element, R> Unpin for Pending<'_, X, T, R> {}

/// Stays pending forever after it has returned its result.
impl<'a, X: Transport + 'a, T: Element, R: 'a> Future for Pending<'a, X, T, R> {
    type Output = Finished<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished<R>> {
        if let Some(finished) = self.take() {
            return Poll::Ready(finished);
        }
        self.note_wait();
        let mut moved = self.shared.pass().unwrap_or(false);
        if !moved && self.shared.register(context.waker()) {
            // Try again: a frame may have arrived before the waker was registered.
            moved = self.shared.pass().unwrap_or(false);
            if !moved {
                return self.take().map_or(Poll::Pending, Poll::Ready);
            }
        }
        if let Some(finished) = self.take() {
            return Poll::Ready(finished);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<X: Transport, T: Element, R> fmt::Debug for Pending<'_, X, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = self
            .work
            .as_ref()
            .is_none_or(|work| work.try_borrow().is_ok_and(|work| work.is_finished()));
        f.write_str(if is_done { "a call, done" } else { "a call, under way" })
    }
}
