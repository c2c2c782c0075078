//! Handles to running operations, and how to drive them: poll, wait, or await as a future.
//!
//! Calls, messages, group calls, splits and shrinks define a step of progress ([`Advance`]). This
//! module builds the caller's interface on top, once for all of them.

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
    /// The operation has finished.
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

    /// Returns the result, once, right after [`advance`](Self::advance) has finished or failed as
    /// `ended` says. It is separate from `advance` because a report is large.
    fn output(&mut self, ended: Result<(), Error>) -> Self::Output;

    /// Rests until something arrives, or until the next poll is due.
    fn idle(&mut self);

    /// Registers `waker`. Returns whether it will be woken when something arrives.
    fn register(&mut self, waker: &Waker) -> bool;
}

/// A running operation with time limits.
pub trait Limited: Advance {
    /// Calls `change` with its time limits, and with the time on the transport's clock.
    fn change_limits(&mut self, change: impl FnOnce(&mut Limits, Duration));
}

/// A running operation: a call on a communicator ([`Operation`](crate::Operation)) or on a shared
/// one (`Pending`), messages ([`Exchange`](crate::Exchange), `Pending`), a call on several arrays
/// (`GroupCall`), a `Split`, or a [`Shrink`](crate::Shrink).
///
/// Drive it with [`poll`](Self::poll), [`wait`](Self::wait), or `.await` it. Any executor works:
/// the transport wakes the task ([`Transport::register`](crate::Transport::register)), or the task
/// requests an immediate poll.
#[must_use = "nothing moves unless it is polled or waited for, and a dropped call is aborted"]
pub struct Handle<U>(pub(crate) U);

impl<V, U: Advance<Output = Result<V, Error>>> Handle<U> {
    /// Advances the operation by a bounded amount of work.
    ///
    /// # Errors
    /// The reason why it failed. Its communicator is then unusable, here and on all other ranks.
    /// Two exceptions depend on the data, and all ranks find them together: [`Error::Bound`] (the
    /// bound on the result is too small) and [`Error::Fill`] (a suspected fill value). The
    /// communicator stays usable after them. [`Error::Finished`] once the result has been returned.
    pub fn poll(&mut self) -> Poll<U::Output> {
        let step = self.0.advance();
        ready(&mut self.0, step)
    }
}

impl<U: Advance> Handle<U> {
    /// Drives the operation to its end. The result is an error if the operation failed.
    ///
    /// # Panics
    /// If a `Pending` can never end: a future has returned its result, or a
    /// [user-defined operation](crate::Op::User) waits for the same call that is computing with it.
    pub fn wait(mut self) -> U::Output {
        loop {
            match self.0.advance() {
                Ok(Progress::Finished) => return self.0.output(Ok(())),
                Ok(Progress::Moved) => {}
                Ok(Progress::Waiting) => self.0.idle(),
                Err(error) => return self.0.output(Err(error)),
            }
        }
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
        self.0.change_limits(|limits, _| limits.stall = timeout);
        self
    }

    /// Sets the time from now after which an unfinished operation fails with [`Error::Deadline`].
    /// It overrides [`Config::deadline`](crate::Config::deadline).
    ///
    /// The deadline applies to this rank only. The other ranks learn of it as of any other failure.
    pub fn with_deadline(mut self, left: Duration) -> Self {
        self.0.change_limits(|limits, now| limits.deadline = Some(now.saturating_add(left)));
        self
    }
}

/// Operations contain nothing that must stay in place, whatever their elements and frames are.
impl<U> Unpin for Handle<U> {}

/// The task is woken when something arrives, or polled again at once.
impl<U: Advance> Future for Handle<U> {
    type Output = U::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<U::Output> {
        let operation = &mut self.0;
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
}

impl<U: fmt::Debug> fmt::Debug for Handle<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn ready<A: Advance>(operation: &mut A, step: Result<Progress, Error>) -> Poll<A::Output> {
    match step {
        Ok(Progress::Moved | Progress::Waiting) => Poll::Pending,
        Ok(Progress::Finished) => Poll::Ready(operation.output(Ok(()))),
        Err(error) => Poll::Ready(operation.output(Err(error))),
    }
}
