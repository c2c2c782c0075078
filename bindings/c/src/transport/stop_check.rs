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
    static WATCH: RefCell<Option<StopCheck>> = const { RefCell::new(None) };
}

/// Runs `then` with a check that can stop its calls. A call that waits polls `goes_on` whenever it
/// polls the network. If `goes_on` returns false, the call fails and its communicator is unusable.
pub fn with_stop_check<R>(goes_on: Box<dyn FnMut() -> bool>, then: impl FnOnce() -> R) -> R {
    /// Restores the previous check when dropped, also during a panic.
    struct Restore(Option<StopCheck>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            // A thread that is ending has no thread-local storage left.
            let _ = WATCH.try_with(|stop_check| stop_check.replace(before));
        }
    }
    let _restore = Restore(WATCH.with(|stop_check| stop_check.replace(Some(goes_on))));
    then()
}

/// Runs the thread's check.
///
/// # Errors
/// If the check stops the thread's calls.
pub(crate) fn check() -> Result<(), EndpointFailure> {
    let goes_on = WATCH.try_with(|stop_check| {
        // The check is borrowed if it makes a call itself. Such a call is not stopped.
        let Ok(mut stop_check) = stop_check.try_borrow_mut() else { return true };
        stop_check.as_mut().is_none_or(|goes_on| goes_on())
    });
    if goes_on.unwrap_or(true) { Ok(()) } else { Err(EndpointFailure::STOPPED) }
}
