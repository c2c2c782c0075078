//! How calls move along while the program is in MPI for something else: whatever it waits for
//! there, the library calls back those who have asked for it. Open MPI has
//! `opal_progress_register` for that since its first version, MPICH `MPIX_Async_start` since 4.3.
//!
//! MPICH holds a lock while it calls back, and would take it again to move messages along. So in
//! its callback no request is tested before `MPIX_Request_is_complete` has said that it is done
//! (`library/messages.rs`).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
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
/// The last argument is `MPIX_STREAM_NULL` by its number: calls back in the progress of all.
type AsyncStart = unsafe extern "C" fn(AsyncCallback, *mut c_void, c_int) -> c_int;
type StreamProgress = unsafe extern "C" fn(c_int) -> c_int;

/// The library's functions for that.
pub(crate) enum ProgressCallback {
    Opal { register: OpalChange, unregister: OpalChange },
    Async { start: AsyncStart, progress: StreamProgress },
}

/// What is called back for: a process has one library of ours.
static STATE: OnceLock<&'static PreloadState> = OnceLock::new();
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// How a rank of MPICH's has all move along that can.
static PROGRESS: OnceLock<StreamProgress> = OnceLock::new();

thread_local! {
    static IS_IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// `MPIX_STREAM_NULL`, and what MPICH's callbacks return.
const STREAM_NULL: c_int = 0x3c00_0000;
const ASYNC_NOPROGRESS: c_int = 0;
const ASYNC_DONE: c_int = 1;

/// Whether this thread was called back by a library that must not be entered to move it along.
pub(crate) fn is_in_callback() -> bool {
    IS_IN_CALLBACK.get()
}

/// Has MPICH move all along that can, and call back; elsewhere nothing.
pub(crate) fn move_along() {
    if let Some(progress) = PROGRESS.get() {
        // SAFETY: the function is there as long as the process, and MPI is up: a request is.
        let _ = unsafe { progress(STREAM_NULL) };
    }
}

impl ProgressCallback {
    /// `None` if the library has no such functions.
    pub(crate) fn find(symbols: &Symbols) -> Option<Self> {
        let opal = |name| {
            // SAFETY: Open MPI's functions of these names have this type since its first version.
            let typed = |found| unsafe { mem::transmute::<*mut c_void, OpalChange>(found) };
            symbols.find(name).map(typed)
        };
        if let Some(register) = opal(c"opal_progress_register") {
            return Some(Self::Opal { register, unregister: opal(c"opal_progress_unregister")? });
        }
        symbols.find(c"PMPIX_Request_is_complete")?;
        symbols.find(c"PMPIX_Grequest_start")?;
        let start = symbols.find(c"PMPIX_Async_start")?;
        let progress = symbols.find(c"PMPIX_Stream_progress")?;
        // SAFETY: MPICH's functions of these names have these types since their first versions:
        // pointers to a function and to what it may ask for, and the number of a stream.
        Some(unsafe {
            Self::Async {
                start: mem::transmute::<*mut c_void, AsyncStart>(start),
                progress: mem::transmute::<*mut c_void, StreamProgress>(progress),
            }
        })
    }

    /// From now on calls move along; or the library's code.
    pub(crate) fn begin(&self, state: &'static PreloadState) -> Result<(), MpiErrorCode> {
        let _ = STATE.set(state);
        // SAFETY: the functions are there as long as the process, and MPI is up.
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

    /// No longer.
    pub(crate) fn end(&self) {
        HAS_ENDED.store(true, Ordering::Release);
        if let Self::Opal { unregister, .. } = self {
            // SAFETY: as above.
            let _ = unsafe { unregister(advance) };
        }
    }
}

/// Says how much has moved; where nothing has, the library may let others have the core.
unsafe extern "C" fn advance() -> c_int {
    STATE.get().filter(|_| !is_forked()).map_or(0, |state| c_int::from(state.advance()))
}

/// The same for MPICH, which goes on with its messages after those who say that nothing has moved.
unsafe extern "C" fn advance_in_callback(_: *mut c_void) -> c_int {
    if HAS_ENDED.load(Ordering::Acquire) || is_forked() {
        return ASYNC_DONE;
    }
    let before = IS_IN_CALLBACK.replace(true);
    // It catches panics.
    let _ = STATE.get().map(|state| state.advance());
    IS_IN_CALLBACK.set(before);
    ASYNC_NOPROGRESS
}
