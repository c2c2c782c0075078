//! Conversion of errors of joining to errors of the API.

use std::net::SocketAddr;

use foldwire::store::StoreError;
use foldwire_bootstrap::message::Refusal;
use foldwire_bootstrap::{Error, PlaceError};
use foldwire_tcp::JoinError;

use crate::errors::ApiError;
use crate::ffi::types::*;

const fn code_of_refusal(refusal: Refusal) -> fwResult {
    match refusal {
        Refusal::Size { .. } | Refusal::Version { .. } => FW_MISMATCH,
        Refusal::Slow => FW_TIMEOUT,
        _ => FW_INVALID_ARGUMENT,
    }
}

fn code_of(error: &Error) -> fwResult {
    match error {
        Error::Place(PlaceError::Pmi(error)) if error.is_late() => FW_TIMEOUT,
        Error::Place(PlaceError::Pmi(_)) => FW_TRANSPORT_ERROR,
        Error::Place(_)
        | Error::NoToken { .. }
        | Error::Impostor { .. }
        | Error::BadPlace { .. }
        | Error::SameRank { .. } => FW_INVALID_ARGUMENT,
        Error::Store(error) => code_of_store(*error),
        Error::Refused { reason, .. } | Error::Unfit { reason, .. } => code_of_refusal(*reason),
        // The rank that was refused may be the one that is missing.
        Error::Missing { turned_away: Some((_, Refusal::Size { .. })), .. }
        | Error::Protocol { .. } => FW_MISMATCH,
        Error::Missing { .. }
        | Error::Silent { .. }
        | Error::Unreachable { .. }
        | Error::Resolve { .. } => FW_TIMEOUT,
        Error::Lost { .. } | Error::Left { .. } => FW_PEER_LOST,
        _ => FW_TRANSPORT_ERROR,
    }
}

const fn code_of_store(error: StoreError) -> fwResult {
    match error {
        StoreError::Key | StoreError::TooLong { .. } | StoreError::Untrusted => FW_INVALID_ARGUMENT,
        StoreError::Damaged => FW_MISMATCH,
        StoreError::Full => FW_NO_ROOM,
        _ => FW_TRANSPORT_ERROR,
    }
}

/// Converts an error of a store.
#[must_use]
pub fn from_store(error: StoreError) -> ApiError {
    ApiError::new(code_of_store(error), error.to_string())
}

/// Converts an error of ranks that a launcher started, or that met in a store.
pub(super) fn from_bootstrap(error: Error) -> ApiError {
    ApiError::new(code_of(&error), error.to_string())
}

/// Converts an error of ranks with a unique id. The messages do not mention environment variables
/// of launchers.
pub(super) fn from_unique_id(error: Error, address: SocketAddr) -> ApiError {
    let message = match &error {
        Error::Impostor { .. }
        | Error::Refused { reason: Refusal::Token | Refusal::Job { .. }, .. } => {
            return not_listening(address);
        }
        Error::Refused { reason: Refusal::Size { theirs, ours }, .. } => {
            format!("this rank passed {theirs} ranks, but rank 0 passed {ours}")
        }
        Error::Unfit { rank, reason: Refusal::Size { theirs, ours }, .. } => {
            format!("rank {rank} passed {theirs} ranks, but rank 0 passed {ours}")
        }
        Error::Refused { reason: Refusal::Duplicate { rank }, .. } => {
            format!("rank {rank} has joined already; each rank can join once")
        }
        Error::Unreachable { limit, source, .. } => format!(
            "rank 0 did not answer at {address} within {limit:?} ({source}); check that it has \
             called fwCommInitRank, and that no firewall blocks the connection"
        ),
        other => other.to_string(),
    };
    ApiError::new(code_of(&error), message)
}

/// The error if rank 0's listening socket is closed.
pub(super) fn not_listening(address: SocketAddr) -> ApiError {
    let elsewhere = if address.ip().is_loopback() {
        " If rank 0 is on another host, set FOLDWIRE_IFACE or FOLDWIRE_ADDRESS on all ranks to \
         choose the network."
    } else {
        ""
    };
    let message = format!(
        "no rank 0 waits at {address} for ranks of this unique id: all its ranks have joined, or \
         rank 0 has failed or ended. Create another id.{elsewhere}"
    );
    ApiError::new(FW_PEER_LOST, message)
}

/// Converts an error of ranks that have found each other but cannot connect.
pub(super) fn from_tcp(error: JoinError) -> ApiError {
    let code = match &error {
        JoinError::Exchange(source) => {
            let source: &(dyn std::error::Error + 'static) = &**source;
            return match source.downcast_ref::<Error>() {
                Some(error) => ApiError::new(code_of(error), error.to_string()),
                None => ApiError::new(FW_TRANSPORT_ERROR, source.to_string()),
            };
        }
        JoinError::Streams { .. }
        | JoinError::NoInterface { .. }
        | JoinError::Unspecified { .. }
        | JoinError::NoToken { .. }
        | JoinError::OnlyLoopback { .. } => FW_INVALID_ARGUMENT,
        JoinError::NoEncryption => FW_UNSUPPORTED,
        JoinError::SettingsDiffer { .. } | JoinError::Unintelligible { .. } => FW_MISMATCH,
        JoinError::TokenDiffers { .. } => FW_INVALID_ARGUMENT,
        JoinError::Missing { .. } => FW_TIMEOUT,
        JoinError::PeerFailed { .. } => FW_ABORTED,
        _ => FW_TRANSPORT_ERROR,
    };
    ApiError::new(code, error.to_string())
}
