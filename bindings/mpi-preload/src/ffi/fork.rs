//! Processes that the program forks: they have the memory of a rank, and are none.
//!
//! A rank's connections are its own. A child that acted on it would answer for its parent, so in
//! a child all calls go to the MPI library, as they would without us, and nothing is said.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// True if a rank has forked this process.
#[must_use]
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// From now on children know that they are some.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function is there as long as the process, and does no more than a child of a
        // process with threads may. Without memory for it children are taken for ranks, as before.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

unsafe extern "C" fn in_child() {
    IS_FORKED.store(true, Ordering::Relaxed);
}
