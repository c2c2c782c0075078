//! This process, and its forks. A child has copies of its parent's handles: they are errors there,
//! and the child ends nothing of theirs.
//!
//! The C library calls `before`, and then `after` or `in_child`, around each `fork`. The tables of
//! this library are held meanwhile, or a thread that is not there in the child might hold one.

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

/// Forks between the process that loaded the library and this one.
static N_FORKS: AtomicU32 = AtomicU32::new(0);
static IS_REGISTERED: Once = Once::new();

thread_local! {
    /// The tables that the forking thread holds.
    static HELD: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn before() {
    // A thread that is ending has no place to keep them; then they are not held.
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

/// A process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerProcess {
    n_forks: u32,
    /// Its number in the system.
    pub(crate) id: u32,
}

impl OwnerProcess {
    /// This one.
    pub(crate) fn this() -> Self {
        IS_REGISTERED.call_once(|| {
            // SAFETY: the functions are there as long as this library is, and the C library
            // forgets them with it. It fails if memory is short; then forks go unseen.
            let _ = unsafe { pthread_atfork(Some(before), Some(after), Some(in_child)) };
        });
        Self { n_forks: N_FORKS.load(Ordering::Relaxed), id: process::id() }
    }

    pub(crate) fn is_this(self) -> bool {
        self.n_forks == N_FORKS.load(Ordering::Relaxed)
    }
}
