//! Progress of non-blocking calls while the program is in MPI for something else. The library calls
//! back registered functions whenever it waits. Open MPI has had `opal_progress_register` for that
//! since its first version, and MPICH `MPIX_Async_start` since 4.3.
//!
//! MPICH holds a lock during its callback, and would take it again to drive messages. So in this
//! callback a request is tested only after `MPIX_Request_is_complete` has reported it complete
//! (`library/messages.rs`).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fork::is_forked;
use super::library::MpiErrorCode;
use super::symbols::Symbols;
use crate::state::PreloadState;

type OpalCallback = unsafe extern "C" fn() -> c_int;
type OpalChange = unsafe extern "C" fn(OpalCallback) -> c_int;
type AsyncCallback = unsafe extern "C" fn(*mut c_void) -> c_int;
/// The last argument is a stream. With `MPIX_STREAM_NULL`, all progress calls back.
type AsyncStart = unsafe extern "C" fn(AsyncCallback, *mut c_void, c_int) -> c_int;
type StreamProgress = unsafe extern "C" fn(c_int) -> c_int;

/// The library's functions for progress callbacks.
pub(crate) enum ProgressCallback {
    Opal { register: OpalChange, unregister: OpalChange },
    Async { start: AsyncStart, progress: StreamProgress },
}

/// State for the callback. A process has only one library of this kind.
static STATE: OnceLock<&'static PreloadState> = OnceLock::new();
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// MPICH's function that drives all progress of a rank.
static PROGRESS: OnceLock<StreamProgress> = OnceLock::new();

thread_local! {
    static IS_IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// `MPIX_STREAM_NULL`, and the results of MPICH's callbacks.
const STREAM_NULL: c_int = 0x3c00_0000;
const ASYNC_NOPROGRESS: c_int = 0;
const ASYNC_DONE: c_int = 1;

/// Returns whether this thread is in a callback from which it must not drive the library's
/// progress.
pub(crate) fn is_in_callback() -> bool {
    IS_IN_CALLBACK.get()
}

/// Drives all progress of MPICH, which then calls the callback. Does nothing in other libraries.
pub(crate) fn move_along() {
    if let Some(progress) = PROGRESS.get() {
        // SAFETY: the function exists as long as the process. MPI is initialised, since a request
        // exists.
        let _ = unsafe { progress(STREAM_NULL) };
    }
}

impl ProgressCallback {
    /// Returns `None` if the library has no such functions.
    pub(crate) fn find(symbols: &Symbols) -> Option<Self> {
        // SAFETY: Open MPI's and MPICH's functions of these names have had these types since their
        // first versions.
        unsafe {
            if let Some(register) = symbols.find_function(c"opal_progress_register") {
                let unregister = symbols.find_function(c"opal_progress_unregister")?;
                return Some(Self::Opal { register, unregister });
            }
            symbols.find(c"PMPIX_Request_is_complete")?;
            symbols.find(c"PMPIX_Grequest_start")?;
            let start = symbols.find_function(c"PMPIX_Async_start")?;
            let progress = symbols.find_function(c"PMPIX_Stream_progress")?;
            Some(Self::Async { start, progress })
        }
    }

    /// Registers the callback. Returns the library's error code if that fails.
    pub(crate) fn begin(&self, state: &'static PreloadState) -> Result<(), MpiErrorCode> {
        let _ = STATE.set(state);
        // SAFETY: the functions exist as long as the process, and MPI is initialised.
        let code = unsafe {
            match self {
                Self::Opal { register, .. } => register(advance),
                Self::Async { start, progress } => {
                    let _ = PROGRESS.set(*progress);
                    start(advance_in_callback, ptr::null_mut(), STREAM_NULL)
                }
            }
        };
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// Removes the callback.
    pub(crate) fn end(&self) {
        HAS_ENDED.store(true, Ordering::Release);
        if let Self::Opal { unregister, .. } = self {
            // SAFETY: as above.
            let _ = unsafe { unregister(advance) };
        }
    }
}

/// Callback for Open MPI. Returns 1 if a call has made progress, else 0. After 0, the library may
/// yield the core.
unsafe extern "C" fn advance() -> c_int {
    STATE.get().filter(|_| !is_forked()).map_or(0, |state| c_int::from(state.advance()))
}

/// Callback for MPICH. Always reports that nothing has made progress, so that MPICH goes on to its
/// messages.
unsafe extern "C" fn advance_in_callback(_: *mut c_void) -> c_int {
    if HAS_ENDED.load(Ordering::Acquire) || is_forked() {
        return ASYNC_DONE;
    }
    let before = IS_IN_CALLBACK.replace(true);
    // `advance` catches panics.
    let _ = STATE.get().map(|state| state.advance());
    IS_IN_CALLBACK.set(before);
    ASYNC_NOPROGRESS
}
