//! Result codes and error messages of the exported functions. Panics become result codes, because
//! they must not unwind into C.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use foldwire::Error;
use foldwire::error::FillError;
use foldwire::plan::{ParsePlanError, PlanConflict};
use foldwire::transport::TransportErrorKind;

use crate::ffi::types::*;

/// Error of an exported function: a result code and a message.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// Result code; never `FW_SUCCESS`.
    pub code: fwResult,
    /// Message that says what was wrong and what to change.
    pub message: String,
    /// Core's error, if the error is from core.
    pub error: Option<Error>,
    /// True if too many calls are in progress, so that a retry can succeed when one has finished.
    pub(crate) is_full: bool,
}

impl ApiError {
    /// Creates an error that is not from core.
    pub fn new(code: fwResult, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), error: None, is_full: false }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(FW_INVALID_ARGUMENT, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(FW_INVALID_USAGE, message)
    }
}

impl From<ParsePlanError> for ApiError {
    fn from(error: ParsePlanError) -> Self {
        Self::argument(error.to_string())
    }
}

impl From<PlanConflict> for ApiError {
    fn from(conflict: PlanConflict) -> Self {
        ParsePlanError::from(conflict).into()
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let is_full = matches!(error, Error::TooManyCalls { .. });
        let message = match error {
            Error::Transport { kind: TransportErrorKind::Stopped, .. } => {
                "another thread aborted this call with fwCommAbort".to_owned()
            }
            error => error.to_string(),
        };
        Self { is_full, error: Some(error), ..Self::new(code_of(&error), message) }
    }
}

/// Returns the result code of an error of core.
pub(crate) const fn code_of(error: &Error) -> fwResult {
    match error {
        Error::Bound(_)
        | Error::Fill(FillError::Suspected { .. })
        | Error::Root { .. }
        | Error::Peer { .. }
        | Error::Length { .. }
        | Error::OwnCount { .. }
        | Error::NoBound { .. }
        | Error::ArraysOnly { .. }
        | Error::Setting { .. }
        | Error::TooManyBits { .. } => FW_INVALID_ARGUMENT,
        Error::ToItself { .. }
        | Error::TooManyCalls { .. }
        | Error::TooManyMessages { .. }
        | Error::NotAsPrepared
        | Error::Finished => FW_INVALID_USAGE,
        Error::Unsupported { .. }
        | Error::NoAverage { .. }
        | Error::NoSuchCall { .. }
        | Error::NoIntegerAverage { .. }
        | Error::NoLattice { .. }
        | Error::NoRoomToRound
        | Error::Fill(_)
        | Error::NotOnDevice { .. }
        | Error::FeedbackOnResult => FW_UNSUPPORTED,
        Error::FrameTooSmall { .. }
        | Error::TooFewFrames { .. }
        | Error::TooFewChannels { .. }
        | Error::NoMessages
        | Error::TooManyRanks { .. }
        | Error::TooManyGroups { .. } => FW_NO_ROOM,
        Error::Mismatch { .. } => FW_MISMATCH,
        Error::Frame { .. } | Error::Codec(_) => FW_DAMAGED,
        Error::Transport { kind: TransportErrorKind::PeerLost, .. } => FW_PEER_LOST,
        Error::Transport { kind: TransportErrorKind::Stopped, .. } => FW_ABORTED,
        Error::Transport { .. } => FW_TRANSPORT_ERROR,
        Error::Stalled { .. } | Error::Deadline { .. } => FW_TIMEOUT,
        Error::Aborted { .. } => FW_ABORTED,
        Error::Device { .. } => FW_DEVICE_ERROR,
        Error::Poisoned => FW_POISONED,
        Error::Excluded { .. } => FW_EXCLUDED,
        _ => FW_INTERNAL_ERROR,
    }
}

/// Returns the description of a result code.
pub(crate) const fn words(code: fwResult) -> &'static CStr {
    match code {
        FW_SUCCESS => c"no error",
        FW_INVALID_ARGUMENT => c"an argument is invalid",
        FW_INVALID_HANDLE => c"the communicator or request does not exist, or was freed",
        FW_INVALID_USAGE => c"the call is not allowed in this state",
        FW_IN_USE => c"another thread is in a call on this communicator",
        FW_UNSUPPORTED => c"this combination is not supported",
        FW_NO_ROOM => c"a buffer is too small, or message frames or channels are missing",
        FW_MISMATCH => c"ranks made different calls, or passed different arguments",
        FW_TIMEOUT => c"the timeout or the deadline passed",
        FW_PEER_LOST => c"another rank ended, or its connection broke",
        FW_ABORTED => c"the call was aborted, by another rank or with fwCommAbort",
        FW_POISONED => c"an earlier call failed; shrink the communicator, or create a new one",
        FW_EXCLUDED => c"the other ranks shrank the communicator without this rank",
        FW_DAMAGED => c"the bytes are damaged, or were not made by Foldwire",
        FW_TRANSPORT_ERROR => c"the network failed",
        FW_INTERNAL_ERROR => c"a bug in Foldwire; please report it",
        FW_DEVICE_ERROR => c"a device failed",
        _ => c"not a result code of Foldwire",
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of an exported function. Stores the message of an error for `fwGetLastError`, and
/// returns its code. A panic becomes `FW_INTERNAL_ERROR`.
pub fn catch_errors(body: impl FnOnce() -> Result<(), ApiError>) -> fwResult {
    // State that a panic leaves inconsistent is behind a lock, which the panic poisons.
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return FW_SUCCESS,
        Ok(Err(fault)) => fault,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            let message = format!("a panic, please report it: {}", text.unwrap_or("no message"));
            // Dropping the payload could panic again.
            std::mem::forget(payload);
            ApiError::new(FW_INTERNAL_ERROR, message)
        }
    };
    let message = fault.message.replace('\0', " ");
    let message = CString::new(message).unwrap_or_default();
    // A thread that is ending has no thread-local storage left.
    let _ = LAST.try_with(|last| *last.borrow_mut() = message);
    fault.code
}

/// Returns this thread's last error message. The pointer is valid until the thread's next error.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
