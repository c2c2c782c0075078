//! A call that this thread waits in, and somebody who may end it, as by Ctrl-C: they are asked
//! whenever the network is looked at.

use std::cell::RefCell;
use std::time::Duration;

use super::Failure;

/// Longest rest of a call, which may be ended meanwhile.
pub(crate) const REST: Duration = Duration::from_millis(50);

/// Says whether to go on.
type Watch = Box<dyn FnMut() -> bool>;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Asks `goes_on` while `then` runs: once it says no, calls of this thread fail.
pub(crate) fn watched<R>(goes_on: Watch, then: impl FnOnce() -> R) -> R {
    /// Also after a panic.
    struct Restore(Option<Watch>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            // A thread that is ending has none any more.
            let _ = WATCH.try_with(|watch| watch.replace(before));
        }
    }
    let _restore = Restore(WATCH.with(|watch| watch.replace(Some(goes_on))));
    then()
}

/// # Errors
/// If the call is to end.
pub(crate) fn ask() -> Result<(), Failure> {
    let goes_on = WATCH.try_with(|watch| {
        // Borrowed only by a call that is made while it is asked, which nobody ends.
        let Ok(mut watch) = watch.try_borrow_mut() else { return true };
        watch.as_mut().is_none_or(|goes_on| goes_on())
    });
    if goes_on.unwrap_or(true) { Ok(()) } else { Err(Failure::ENDED) }
}
