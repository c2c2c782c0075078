//! What crosses the border back: a result, and words for it. Panics do not.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use foldwire::Error;
use foldwire::transport::TransportErrorKind;

use crate::ffi::types::*;

/// Why a call failed, in a number and in words.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// Not `FW_SUCCESS`.
    pub code: fwResult,
    /// What the caller should change.
    pub message: String,
    /// Core's error, if it is one.
    pub error: Option<Error>,
    /// It may go well once another call is done.
    pub(crate) is_full: bool,
}

impl ApiError {
    /// With these words.
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

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let is_full = matches!(error, Error::TooManyCalls { .. });
        let message = match error {
            Error::Transport { kind: TransportErrorKind::Stopped, .. } => {
                "fwCommAbort has ended this call, by another thread".to_owned()
            }
            error => error.to_string(),
        };
        Self { is_full, error: Some(error), ..Self::new(code_of(&error), message) }
    }
}

pub(crate) const fn code_of(error: &Error) -> fwResult {
    match error {
        Error::Bound(_)
        | Error::Root { .. }
        | Error::Peer { .. }
        | Error::Length { .. }
        | Error::NoBound { .. }
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
        Error::Poisoned => FW_POISONED,
        Error::Excluded { .. } => FW_EXCLUDED,
        _ => FW_INTERNAL_ERROR,
    }
}

/// What a result means, whatever the call.
pub(crate) const fn words(code: fwResult) -> &'static CStr {
    match code {
        FW_SUCCESS => c"no error",
        FW_INVALID_ARGUMENT => c"an argument cannot be used",
        FW_INVALID_HANDLE => c"no such communicator or request, or no longer",
        FW_INVALID_USAGE => c"the call may not be made here and now",
        FW_IN_USE => c"another thread is inside a call on this communicator",
        FW_UNSUPPORTED => c"there is no such thing",
        FW_NO_ROOM => c"frames, channels or room in a buffer do not suffice",
        FW_MISMATCH => c"ranks disagree on what they call",
        FW_TIMEOUT => c"the time limit or the deadline passed",
        FW_PEER_LOST => c"a rank is gone",
        FW_ABORTED => c"another rank gave the call up",
        FW_POISONED => c"an earlier call failed; shrink the communicator, or make a new one",
        FW_EXCLUDED => c"the survivors went on without this rank",
        FW_DAMAGED => c"bytes are damaged, or not made by Foldwire",
        FW_TRANSPORT_ERROR => c"the network failed",
        FW_INTERNAL_ERROR => c"a defect of Foldwire; please report it",
        _ => c"not a result of Foldwire's",
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the inside of a function of the header. A panic becomes `FW_INTERNAL_ERROR`.
pub fn catch_errors(inside: impl FnOnce() -> Result<(), ApiError>) -> fwResult {
    // What a panic leaves half done is behind a lock, which it poisons.
    let fault = match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(())) => return FW_SUCCESS,
        Ok(Err(fault)) => fault,
        Err(payload) => {
            let said = payload.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| payload.downcast_ref::<&str>().copied());
            let message = format!("a panic, please report it: {}", said.unwrap_or("no message"));
            // Dropping what was thrown could throw again.
            std::mem::forget(payload);
            ApiError::new(FW_INTERNAL_ERROR, message)
        }
    };
    let message = fault.message.replace('\0', " ");
    let message = CString::new(message).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = message);
    fault.code
}

/// Of this thread's last failure, its words, until it fails again.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
