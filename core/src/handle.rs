//! Handles to running operations, and how to drive them: poll, wait, or await as a future.
//!
//! Calls, exchanges of messages and shrinks define a step of progress ([`Advance`]). This module
//! builds the caller's interface on top, once for all of them.

use crate::error::Error;
use crate::wait::Limits;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// Result of an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved; advance again at once.
    Moved,
    /// The operation waits for other ranks.
    Waiting,
    /// The operation has finished, and [`Advance::output`] returns the result.
    Finished,
}

/// A running operation that makes progress when it is advanced.
pub trait Advance {
    /// The result of the operation.
    type Output;

    /// Does a bounded amount of work.
    ///
    /// # Errors
    /// The reason why it failed. [`Error::Finished`] once it has returned its result.
    fn advance(&mut self) -> Result<Progress, Error>;

    /// Returns the result, once, right after the operation has finished. It is separate from
    /// [`advance`](Self::advance) because a report is large.
    ///
    /// # Errors
    /// The reason why there is no result after all.
    fn output(&mut self) -> Result<Self::Output, Error>;

    /// Rests until something arrives, or until the next poll is due.
    fn idle(&mut self);

    /// Registers `waker`. Returns whether it will be woken when something arrives.
    fn register(&mut self, waker: &Waker) -> bool;
}

/// A running operation with time limits.
pub trait Limited: Advance {
    /// Returns its time limits.
    fn limits(&mut self) -> &mut Limits;

    /// Returns the time on the transport's clock.
    fn now(&self) -> Duration;
}

/// A running operation: an [`Operation`](crate::Operation), an [`Exchange`](crate::Exchange) or a
/// [`Shrink`](crate::Shrink).
///
/// Drive it with [`poll`](Self::poll), [`wait`](Self::wait), or `.await` it. Any executor works:
/// the transport wakes the task ([`Transport::register`](crate::Transport::register)), or the task
/// requests an immediate poll.
#[must_use = "nothing moves unless it is polled or waited for"]
pub struct Handle<U>(pub(crate) U);

impl<U: Advance> Handle<U> {
    /// Advances the operation by a bounded amount of work.
    ///
    /// # Errors
    /// The reason why it failed. Its communicator is then unusable, here and on all other ranks.
    /// The exception is [`Error::Bound`]: all ranks find that the bound on the result is too small
    /// for the data, and the communicator stays usable. [`Error::Finished`] once the result has
    /// been returned.
    pub fn poll(&mut self) -> Poll<Result<U::Output, Error>> {
        let step = self.0.advance();
        ready(&mut self.0, step)
    }

    /// Drives the operation to its end.
    ///
    /// # Errors
    /// Same as [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<U::Output, Error> {
        wait(&mut self.0)
    }

    /// Cancels the operation, as dropping it unfinished does. If it is a call or an exchange, the
    /// other ranks get [`Error::Aborted`], and the communicator is poisoned. The caller's buffers
    /// may then hold a part of the result. If it is a shrink, this rank notifies the other ranks
    /// that they need not wait for it. Nothing happens if the result has been returned.
    pub fn cancel(self) {
        drop(self);
    }
}

impl<U: Limited> Handle<U> {
    /// Sets the time without any progress after which the operation fails with [`Error::Stalled`].
    /// It overrides [`Config::timeout`](crate::Config::timeout).
    ///
    /// The time before the first poll does not count. A gap between two polls counts as at most a
    /// quarter of `timeout`, because messages may have arrived meanwhile. With
    /// [`Config::NEVER`](crate::Config::NEVER) the operation never stalls.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.0.limits().stall = timeout;
        self
    }

    /// Sets the time from now after which an unfinished operation fails with [`Error::Deadline`].
    /// It overrides [`Config::deadline`](crate::Config::deadline).
    ///
    /// The deadline applies to this rank only. The other ranks learn of it as of any other failure.
    pub fn with_deadline(mut self, left: Duration) -> Self {
        self.0.limits().deadline = Some(self.0.now().saturating_add(left));
        self
    }
}

/// Operations contain nothing that must stay in place, whatever their elements and frames are.
impl<U> Unpin for Handle<U> {}

impl<U: Advance> Future for Handle<U> {
    type Output = Result<U::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_task(&mut self.0, context)
    }
}

impl<U: fmt::Debug> fmt::Debug for Handle<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Drives an operation to its end.
pub(crate) fn wait<A: Advance>(operation: &mut A) -> Result<A::Output, Error> {
    loop {
        match operation.advance()? {
            Progress::Finished => return operation.output(),
            Progress::Moved => {}
            Progress::Waiting => operation.idle(),
        }
    }
}

/// Same as [`Future::poll`]: the task is woken when something arrives, or polled again at once.
pub(crate) fn poll_task<A: Advance>(
    operation: &mut A,
    context: &Context<'_>,
) -> Poll<Result<A::Output, Error>> {
    let mut step = operation.advance();
    if matches!(step, Ok(Progress::Waiting)) && operation.register(context.waker()) {
        // Find what arrived before the waker was registered.
        step = operation.advance();
        if matches!(step, Ok(Progress::Waiting)) {
            return Poll::Pending;
        }
    }
    let ready = ready(operation, step);
    if ready.is_pending() {
        context.waker().wake_by_ref();
    }
    ready
}

fn ready<A: Advance>(
    operation: &mut A,
    step: Result<Progress, Error>,
) -> Poll<Result<A::Output, Error>> {
    match step {
        Ok(Progress::Moved | Progress::Waiting) => Poll::Pending,
        Ok(Progress::Finished) => Poll::Ready(operation.output()),
        Err(error) => Poll::Ready(Err(error)),
    }
}
