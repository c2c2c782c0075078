//! Conversion of errors to `foldwire.Error`: a kind, a message that says what to change, and the
//! ranks and the argument that are involved.

use std::borrow::Cow;

use foldwire::Error;
use foldwire::error::AbortReason;
use foldwire::transport::TransportErrorKind;
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::types::*;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

static ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Returns the kind of an error. `foldwire.Error` documents the kinds.
const fn kind(fault: &ApiError) -> &'static str {
    if matches!(fault.error, Some(Error::TooManyCalls { .. } | Error::TooManyMessages { .. })) {
        return "too_many_calls";
    }
    match fault.code {
        FW_INVALID_ARGUMENT => "argument",
        FW_INVALID_HANDLE => "closed",
        FW_INVALID_USAGE | FW_IN_USE => "usage",
        FW_UNSUPPORTED => "unsupported",
        FW_NO_ROOM => "no_room",
        FW_MISMATCH => "mismatch",
        FW_TIMEOUT => "timeout",
        FW_PEER_LOST => "peer_lost",
        FW_ABORTED => "aborted",
        FW_POISONED => "poisoned",
        FW_EXCLUDED => "excluded",
        FW_DAMAGED => "damaged",
        FW_TRANSPORT_ERROR => "transport",
        FW_DEVICE_ERROR => "device",
        _ => "internal",
    }
}

/// Returns the rank that an error is about.
fn rank(error: &Error) -> Option<usize> {
    let rank = match *error {
        Error::Mismatch { rank, .. }
        | Error::Frame { rank, .. }
        | Error::Peer { rank, .. }
        | Error::Stalled { rank, .. }
        | Error::Deadline { rank, .. }
        | Error::Aborted { rank, .. }
        | Error::Excluded { rank } => rank,
        Error::Root { root, .. } => root,
        Error::Transport { peer, .. } => peer?,
        _ => return None,
    };
    Some(rank.index())
}

/// Phrases of the C API in error messages, and their replacements for Python.
const NAMES: [(&str, &str); 7] = [
    ("cargo build --features cuda", "in a clone, `pip install bindings/python` does"),
    ("set its mode to FW_COMPRESS or FW_AUTO", "leave one of them out"),
    ("set its mode to FW_LOSSLESS or FW_COMPRESS", "write `lossless`, or a bound, instead"),
    ("as foldwire.h defines it", "as documented"),
    ("use the raw codec", "leave the bound out, or write `exact`"),
    ("fwCommInitRank", "foldwire.join"),
    ("fwGetUniqueId", "foldwire.unique_id"),
];

/// Returns the message of an error, in terms of the Python API.
fn words(fault: &ApiError) -> Cow<'_, str> {
    match fault.error {
        Some(Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(rank) }) => {
            let rank = rank.index();
            format!("rank {rank} is gone: it ended, was killed, or closed its communicator").into()
        }
        Some(Error::TooFewFrames { have, lanes, need }) => format!(
            "{lanes} lanes need {need} frames, but there are {have}: pass a smaller lanes= on all \
             ranks"
        )
        .into(),
        Some(Error::TooFewChannels { need, have }) => format!(
            "the communicator needs {need} channels, but {have} are free: delete other split \
             communicators, or pass a smaller calls="
        )
        .into(),
        Some(Error::TooManyCalls { max }) => format!(
            "{max} calls are in progress already: wait for one, or create the communicator with a \
             larger calls="
        )
        .into(),
        _ => NAMES
            .iter()
            .filter(|(theirs, _)| fault.message.contains(theirs))
            .fold(Cow::Borrowed(&*fault.message), |message, (theirs, ours)| {
                message.replace(theirs, ours).into()
            }),
    }
}

/// Returns the exception for an error.
pub(crate) fn raise(py: Python<'_>, fault: &ApiError) -> PyErr {
    exception(py, fault, kind(fault)).unwrap_or_else(|error| error)
}

/// Returns the exception for a call that another thread has interrupted.
pub(crate) fn interrupted(py: Python<'_>) -> PyErr {
    let fault =
        ApiError::new(FW_ABORTED, "the call was interrupted, and its communicator is unusable");
    exception(py, &fault, "interrupted").unwrap_or_else(|error| error)
}

/// Creates a `foldwire.Error`.
fn exception(py: Python<'_>, fault: &ApiError, kind: &str) -> PyResult<PyErr> {
    let class = ERROR.import(py, "foldwire._errors", "Error")?;
    let fields = PyDict::new(py);
    fields.set_item("kind", kind)?;
    if let Some(error) = fault.error {
        fields.set_item("rank", rank(&error))?;
        match error {
            Error::Mismatch { field, ours, theirs, .. } => {
                fields.set_item("field", field.to_string())?;
                fields.set_item("ours", ours.to_string())?;
                fields.set_item("theirs", theirs.to_string())?;
            }
            Error::Length { buffer, .. } => fields.set_item("field", format!("{buffer} array"))?,
            Error::OwnCount { .. } => fields.set_item("field", "recv_counts")?,
            Error::Bound(_) | Error::NoBound { .. } => fields.set_item("field", "bound")?,
            Error::Root { .. } => fields.set_item("field", "root")?,
            Error::Aborted { culprit, reason, .. } => {
                fields.set_item("culprit", culprit.index())?;
                if let AbortReason::Mismatch(field) = reason {
                    fields.set_item("field", field.to_string())?;
                }
            }
            _ => {}
        }
    }
    Ok(PyErr::from_value(class.call((words(fault),), Some(&fields))?))
}
