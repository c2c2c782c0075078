//! How what is under way is driven: polled, waited for, or awaited as a future.
//!
//! Operations, exchanges of messages and shrinks say what a step of theirs is ([`Advance`]); what
//! their callers do with that is here, once.

use crate::error::Error;
use core::task::{Context, Poll, Waker};

/// What an advance came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something moved; advance again at once.
    Moved,
    /// It waits for others.
    Waiting,
    /// [`Advance::output`] is what came of it.
    Finished,
}

/// Something under way that goes on when it is advanced.
pub(crate) trait Advance {
    type Output;

    /// Does a bounded amount of work.
    ///
    /// # Errors
    /// Why it failed; [`Error::Finished`] once it has returned its result.
    fn advance(&mut self) -> Result<Step, Error>;

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

/// One advance.
pub(crate) fn poll<A: Advance>(underway: &mut A) -> Poll<Result<A::Output, Error>> {
    let step = underway.advance();
    ready(underway, step)
}

/// Drives it to its end.
pub(crate) fn wait<A: Advance>(underway: &mut A) -> Result<A::Output, Error> {
    loop {
        match underway.advance()? {
            Step::Finished => return underway.output(),
            Step::Moved => {}
            Step::Waiting => underway.idle(),
        }
    }
}

/// As [`Future::poll`]: has the task woken when something comes, or polls it again at once.
pub(crate) fn poll_task<A: Advance>(
    underway: &mut A,
    context: &Context<'_>,
) -> Poll<Result<A::Output, Error>> {
    let mut step = underway.advance();
    if matches!(step, Ok(Step::Waiting)) && underway.register(context.waker()) {
        // What came before it was registered is found now.
        step = underway.advance();
        if matches!(step, Ok(Step::Waiting)) {
            return Poll::Pending;
        }
    }
    let ready = ready(underway, step);
    if ready.is_pending() {
        context.waker().wake_by_ref();
    }
    ready
}

fn ready<A: Advance>(
    underway: &mut A,
    step: Result<Step, Error>,
) -> Poll<Result<A::Output, Error>> {
    match step {
        Ok(Step::Moved | Step::Waiting) => Poll::Pending,
        Ok(Step::Finished) => Poll::Ready(underway.output()),
        Err(error) => Poll::Ready(Err(error)),
    }
}
