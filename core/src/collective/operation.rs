//! A call under way with all that it works on, as its caller drives it.

use super::underway::Underway;
use super::{Communicator, Request};
use crate::element::Element;
use crate::engine::Work;
use crate::error::Error;
use crate::handle::{self, Advance, Step};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// A collective call under way.
///
/// Drive it with [`poll`](Self::poll), [`wait`](Self::wait), or `.await` it. Any executor will do:
/// the transport wakes the task ([`Transport::register`]), or the task asks to be polled again at
/// once. Dropping it unfinished ends the communicator on all ranks ([`cancel`](Self::cancel) says
/// so in the code).
#[must_use = "nothing moves unless the operation is polled or waited for"]
pub struct Operation<'a, X: Transport, T: Element> {
    pub(super) comm: &'a mut Communicator<X>,
    pub(super) work: Work<'a, 'a, T>,
    pub(super) call: Underway<'a>,
}

impl<'a, X: Transport, T: Element> Operation<'a, X, T> {
    pub(crate) fn new(
        comm: &'a mut Communicator<X>,
        request: Request<'a>,
        mut work: Work<'a, 'a, T>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let call = Underway::start(comm, request, &mut work, plan)?;
        Ok(Self { comm, work, call })
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
        handle::poll(self)
    }

    /// Drives the call to its end.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<Report, Error> {
        handle::wait(&mut self)
    }
}

impl<X: Transport, T: Element> Advance for Operation<'_, X, T> {
    type Output = Report;

    fn advance(&mut self) -> Result<Step, Error> {
        self.call.advance(self.comm, &mut self.work)
    }

    fn output(&mut self) -> Result<Report, Error> {
        Ok(self.call.finish(self.comm))
    }

    fn idle(&mut self) {
        self.comm.idle(self.call.limits, self.call.rest());
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.comm.transport.register(waker)
    }
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
        handle::poll_task(&mut *self, context)
    }
}

impl<X: Transport, T: Element> core::fmt::Debug for Operation<'_, X, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.call.describe(f)
    }
}
