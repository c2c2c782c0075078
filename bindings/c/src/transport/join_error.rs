//! Why ranks do not come together, as results of the header.

use std::net::SocketAddr;

use foldwire_bootstrap::Error;
use foldwire_bootstrap::message::Refusal;
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

const fn code_of(error: &Error) -> fwResult {
    match error {
        Error::Place(_) | Error::NoToken { .. } | Error::Impostor { .. } => FW_INVALID_ARGUMENT,
        Error::Refused { reason, .. } | Error::Unfit { reason, .. } => code_of_refusal(*reason),
        // Who was turned away may be who is missing.
        Error::Missing { turned_away: Some((_, Refusal::Size { .. })), .. }
        | Error::Protocol { .. } => FW_MISMATCH,
        Error::Missing { .. } | Error::Silent { .. } | Error::Unreachable { .. } => FW_TIMEOUT,
        Error::Lost { .. } | Error::Left { .. } => FW_PEER_LOST,
        _ => FW_TRANSPORT_ERROR,
    }
}

/// Of ranks that meet by what their environment says.
pub(super) fn from_bootstrap(error: Error) -> ApiError {
    ApiError::new(code_of(&error), error.to_string())
}

/// Of ranks that meet by a unique id, and know nothing of the environment's words.
pub(super) fn from_unique_id(error: Error, address: SocketAddr) -> ApiError {
    let message = match &error {
        Error::Impostor { .. }
        | Error::Refused { reason: Refusal::Token | Refusal::Job { .. }, .. } => {
            return not_listening(address);
        }
        Error::Refused { reason: Refusal::Size { theirs, ours }, .. } => {
            format!("{theirs} ranks here, {ours} by rank 0")
        }
        Error::Unfit { rank, reason: Refusal::Size { theirs, ours }, .. } => {
            format!("{theirs} ranks by rank {rank}, {ours} by rank 0")
        }
        Error::Refused { reason: Refusal::Duplicate { rank }, .. } => {
            format!("rank {rank} has come already; each rank comes once")
        }
        Error::Unreachable { limit, source, .. } => format!(
            "rank 0 did not answer at {address} within {limit:?} ({source}); has it called \
             fwCommInitRank, and does a firewall let ranks through?"
        ),
        other => other.to_string(),
    };
    ApiError::new(code_of(&error), message)
}

/// Nobody listens where the id says.
pub(super) fn not_listening(address: SocketAddr) -> ApiError {
    let elsewhere = if address.ip().is_loopback() {
        " If this is another host, name the network to use with FOLDWIRE_IFACE or \
         FOLDWIRE_ADDRESS on all ranks."
    } else {
        ""
    };
    let message = format!(
        "nobody waits at {address} for those of this unique id: all its ranks have come, or rank 0 \
         has given up or ended. Make another one.{elsewhere}"
    );
    ApiError::new(FW_PEER_LOST, message)
}

/// Of ranks that have met and do not connect.
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
