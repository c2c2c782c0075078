//! A call that this thread waits in, and somebody who may end it, as by Ctrl-C: they are asked
//! whenever the network is looked at.

use std::cell::RefCell;
use std::time::Duration;

use super::TransportFailure;

/// Longest rest of a call, which may be ended meanwhile.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Says whether to go on.
type StopCheck = Box<dyn FnMut() -> bool>;

thread_local! {
    static WATCH: RefCell<Option<StopCheck>> = const { RefCell::new(None) };
}

/// Asks `goes_on` while `then` runs: once it says no, calls of this thread fail.
pub(crate) fn with_stop_check<R>(goes_on: StopCheck, then: impl FnOnce() -> R) -> R {
    /// Also after a panic.
    struct Restore(Option<StopCheck>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            // A thread that is ending has none any more.
            let _ = WATCH.try_with(|stop_check| stop_check.replace(before));
        }
    }
    let _restore = Restore(WATCH.with(|stop_check| stop_check.replace(Some(goes_on))));
    then()
}

/// # Errors
/// If the call is to end.
pub(crate) fn check() -> Result<(), TransportFailure> {
    let goes_on = WATCH.try_with(|stop_check| {
        // Borrowed only by a call that is made while it is asked, which nobody ends.
        let Ok(mut stop_check) = stop_check.try_borrow_mut() else { return true };
        stop_check.as_mut().is_none_or(|goes_on| goes_on())
    });
    if goes_on.unwrap_or(true) { Ok(()) } else { Err(TransportFailure::STOPPED) }
}
