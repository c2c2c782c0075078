//! Processes that the program forks. They have the memory of a rank, but are not ranks.
//!
//! A rank's connections belong to the rank alone. If a child used them, peers would mistake its
//! messages for its parent's. So in a child all calls go to the MPI library, as without Foldwire,
//! and nothing is printed.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked by a rank.
#[must_use]
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// Registers a handler that marks children.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler exists as long as the process. It only stores an atomic, which is
        // allowed in a child of a process with threads. If there is no memory to register the
        // handler, children act as ranks.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

unsafe extern "C" fn in_child() {
    IS_FORKED.store(true, Ordering::Relaxed);
}
