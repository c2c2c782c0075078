//! Detection of forks. A child process has copies of its parent's handles. Using one in the child
//! is an error, and the child never closes the parent's connections.
//!
//! The C library calls `before`, and then `after` or `in_child`, around each `fork`. The forking
//! thread holds the locks of this library's tables in between. Otherwise another thread could hold
//! one during the fork, and the child, which lacks that thread, could never take it.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{ffi, handle_table, transport};

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<unsafe extern "C" fn()>,
        after: Option<unsafe extern "C" fn()>,
        in_child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// Number of forks between the process that loaded the library and this process.
static N_FORKS: AtomicU32 = AtomicU32::new(0);
static IS_REGISTERED: Once = Once::new();

thread_local! {
    /// Lock guards of the tables, held by the forking thread.
    static HELD: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn before() {
    // A thread that is ending has no thread-local storage left. It forks without the locks.
    let _ = HELD.try_with(|held| {
        let tables: [Box<dyn Any>; 4] = [
            Box::new(handle_table::table()),
            Box::new(ffi::operations::table()),
            Box::new(transport::listeners()),
            Box::new(transport::local_ranks()),
        ];
        held.borrow_mut().extend(tables);
    });
}

extern "C" fn after() {
    let _ = HELD.try_with(RefCell::take);
}

extern "C" fn in_child() {
    N_FORKS.fetch_add(1, Ordering::Relaxed);
    after();
}

/// The process that created a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerProcess {
    n_forks: u32,
    /// Process id.
    pub(crate) id: u32,
}

impl OwnerProcess {
    /// Returns the current process.
    pub(crate) fn this() -> Self {
        IS_REGISTERED.call_once(|| {
            // SAFETY: the functions stay loaded as long as this library, and the C library
            // unregisters them when it unloads this library. Registration fails only without
            // memory; forks then go undetected.
            let _ = unsafe { pthread_atfork(Some(before), Some(after), Some(in_child)) };
        });
        Self { n_forks: N_FORKS.load(Ordering::Relaxed), id: process::id() }
    }

    /// Returns whether this is the current process.
    pub(crate) fn is_this(self) -> bool {
        self.n_forks == N_FORKS.load(Ordering::Relaxed)
    }
}
