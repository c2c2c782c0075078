//! A running call together with its communicator and buffers, as the caller drives it.

use super::call_state::CallState;
use super::{Communicator, Request};
use crate::element::Element;
use crate::engine::Work;
use crate::error::Error;
use crate::handle::{Advance, Handle, Limited, Progress};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Limits;
use core::fmt;
use core::task::Waker;
use core::time::Duration;

/// A collective call in progress. Poll it, wait for it, or `.await` it.
///
/// Dropping an unfinished call poisons the communicator on all ranks. [`cancel`](Handle::cancel)
/// does the same explicitly.
pub type Operation<'a, X, T> = Handle<RunningCall<'a, X, T>>;

/// A collective call in progress, with its communicator and buffers.
pub struct RunningCall<'a, X: Transport, T: Element> {
    pub(super) comm: &'a mut Communicator<X>,
    pub(super) work: Work<'a, 'a, T>,
    pub(super) call: CallState<'a>,
}

impl<'a, X: Transport, T: Element> RunningCall<'a, X, T> {
    pub(crate) fn start(
        comm: &'a mut Communicator<X>,
        request: Request<'a>,
        mut work: Work<'a, 'a, T>,
        plan: &Plan,
    ) -> Result<Operation<'a, X, T>, Error> {
        let call = CallState::start(comm, request, &mut work, plan)?;
        Ok(Handle(Self { comm, work, call }))
    }
}

impl<X: Transport, T: Element> Advance for RunningCall<'_, X, T> {
    type Output = Report;

    fn advance(&mut self) -> Result<Progress, Error> {
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

impl<X: Transport, T: Element> Limited for RunningCall<'_, X, T> {
    fn limits(&mut self) -> &mut Limits {
        &mut self.call.limits
    }

    fn now(&self) -> Duration {
        self.comm.transport.now()
    }
}

impl<X: Transport, T: Element> Drop for RunningCall<'_, X, T> {
    fn drop(&mut self) {
        if !self.call.is_over() {
            self.call.give_up(self.comm, None);
        }
    }
}

impl<X: Transport, T: Element> fmt::Debug for RunningCall<'_, X, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.describe(f)
    }
}
