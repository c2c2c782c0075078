//! A check that can stop the calls of a thread, for example after Ctrl-C. It runs whenever the
//! thread polls the network.

use std::cell::RefCell;
use std::time::Duration;

use super::EndpointFailure;

/// Longest sleep of a waiting call, so that it soon notices an abort.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns false to stop the thread's calls.
type StopCheck = Box<dyn FnMut() -> bool>;

thread_local! {
    static CHECKS: RefCell<Vec<StopCheck>> = const { RefCell::new(Vec::new()) };
}

/// Runs `then` with a check that can stop its calls, beside those of outer calls of this. A call
/// that waits polls `goes_on` whenever it polls the network. If `goes_on` returns false, the call
/// fails and its communicator is unusable.
pub fn with_stop_check<R>(goes_on: Box<dyn FnMut() -> bool>, then: impl FnOnce() -> R) -> R {
    /// Ends the check when dropped, also during a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            // A thread that is ending has no thread-local storage left.
            let ended = CHECKS.try_with(|checks| checks.borrow_mut().pop());
            drop(ended);
        }
    }
    CHECKS.with(|checks| checks.borrow_mut().push(goes_on));
    let _end = End;
    then()
}

/// Runs the thread's checks.
///
/// # Errors
/// If a check stops the thread's calls.
pub(crate) fn check() -> Result<(), EndpointFailure> {
    let goes_on = CHECKS.try_with(|checks| {
        // A check may make calls itself. These have checks of their own.
        let mut running = checks.take();
        let goes_on = running.iter_mut().all(|goes_on| goes_on());
        checks.replace(running);
        goes_on
    });
    if goes_on.unwrap_or(true) { Ok(()) } else { Err(EndpointFailure::STOPPED) }
}
