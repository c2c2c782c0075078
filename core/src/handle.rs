//! What a caller has of something under way, and how it is driven: polled, waited for, or awaited
//! as a future.
//!
//! Calls, exchanges of messages and shrinks say what a step of theirs is ([`Advance`]); what their
//! callers do with that is here, once.

use crate::error::Error;
use crate::wait::Limits;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// What an advance came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved; advance again at once.
    Moved,
    /// It waits for others.
    Waiting,
    /// [`Advance::output`] is what came of it.
    Finished,
}

/// Something under way that goes on when it is advanced.
pub trait Advance {
    /// What comes of it.
    type Output;

    /// Does a bounded amount of work.
    ///
    /// # Errors
    /// Why it failed; [`Error::Finished`] once it has returned its result.
    fn advance(&mut self) -> Result<Progress, Error>;

    /// What came of it, once, right after it has finished. A report is large: it is not part of
    /// what every step comes to.
    ///
    /// # Errors
    /// Why nothing came of it after all.
    fn output(&mut self) -> Result<Self::Output, Error>;

    /// Rests until something comes, or until it is time to look.
    fn idle(&mut self);

    /// Whether `waker` will be woken when something comes.
    fn register(&mut self, waker: &Waker) -> bool;
}

/// Something under way that must end in time.
pub trait Limited: Advance {
    /// How long it may take.
    fn limits(&mut self) -> &mut Limits;

    /// The transport's clock.
    fn now(&self) -> Duration;
}

/// Something under way: an [`Operation`](crate::Operation), an [`Exchange`](crate::Exchange) or a
/// [`Shrink`](crate::Shrink).
///
/// Drive it with [`poll`](Self::poll), [`wait`](Self::wait), or `.await` it. Any executor will do:
/// the transport wakes the task ([`Transport::register`](crate::Transport::register)), or the task
/// asks to be polled again at once.
#[must_use = "nothing moves unless it is polled or waited for"]
pub struct Handle<U>(pub(crate) U);

impl<U: Advance> Handle<U> {
    /// Advances it by a bounded amount of work.
    ///
    /// # Errors
    /// Why it failed. Its communicator is then unusable, here and on all other ranks, but after
    /// [`Error::Bound`]: all ranks find that the bound on the result is too small for the data.
    /// [`Error::Finished`] once the result has been returned.
    pub fn poll(&mut self) -> Poll<Result<U::Output, Error>> {
        let step = self.0.advance();
        ready(&mut self.0, step)
    }

    /// Drives it to its end.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<U::Output, Error> {
        wait(&mut self.0)
    }

    /// Gives it up, as dropping it unfinished does. After a call or an exchange the other ranks get
    /// [`Error::Aborted`], the communicator is poisoned, and the caller's buffers hold a part of
    /// the result, or none. Nothing happens if the result has been returned.
    pub fn cancel(self) {
        drop(self);
    }
}

impl<U: Limited> Handle<U> {
    /// Fails with [`Error::Stalled`] after `timeout` without any progress, whatever
    /// [`Config::timeout`](crate::Config::timeout) says. Time before the first poll does not count,
    /// and of the time between two polls a quarter of `timeout` at most. With
    /// [`Config::NEVER`](crate::Config::NEVER) it never does.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.0.limits().stall = timeout;
        self
    }

    /// Fails with [`Error::Deadline`] unless finished in `left` from now, whatever
    /// [`Config::deadline`](crate::Config::deadline) says. The deadline is this rank's own; the
    /// others learn of it as of any other failure.
    pub fn with_deadline(mut self, left: Duration) -> Self {
        self.0.limits().deadline = Some(self.0.now().saturating_add(left));
        self
    }
}

/// Nothing under way is ever pinned, whatever its elements and frames are.
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

/// Drives it to its end.
pub(crate) fn wait<A: Advance>(call_state: &mut A) -> Result<A::Output, Error> {
    loop {
        match call_state.advance()? {
            Progress::Finished => return call_state.output(),
            Progress::Moved => {}
            Progress::Waiting => call_state.idle(),
        }
    }
}

/// As [`Future::poll`]: has the task woken when something comes, or polls it again at once.
pub(crate) fn poll_task<A: Advance>(
    call_state: &mut A,
    context: &Context<'_>,
) -> Poll<Result<A::Output, Error>> {
    let mut step = call_state.advance();
    if matches!(step, Ok(Progress::Waiting)) && call_state.register(context.waker()) {
        // What came before it was registered is found now.
        step = call_state.advance();
        if matches!(step, Ok(Progress::Waiting)) {
            return Poll::Pending;
        }
    }
    let ready = ready(call_state, step);
    if ready.is_pending() {
        context.waker().wake_by_ref();
    }
    ready
}

fn ready<A: Advance>(
    call_state: &mut A,
    step: Result<Progress, Error>,
) -> Poll<Result<A::Output, Error>> {
    match step {
        Ok(Progress::Moved | Progress::Waiting) => Poll::Pending,
        Ok(Progress::Finished) => Poll::Ready(call_state.output()),
        Err(error) => Poll::Ready(Err(error)),
    }
}
