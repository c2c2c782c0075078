//! Reasons for aborting a call, as one rank reports them to the others.

use super::{Error, Field};
use crate::transport::{Rank, TransportErrorKind};
use core::fmt;

/// Failure at the culprit of an [`Error::Aborted`], as the first rank that aborted reports it. In
/// the descriptions, *it* is the culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AbortReason {
    /// Its caller cancelled or dropped the operation, or the reason is unknown.
    Dropped,
    /// It made a different call.
    Mismatch(Field),
    /// It ended, or its connections broke.
    PeerLost,
    /// It did not respond within the time limit.
    Stalled,
    /// Another rank's deadline passed while waiting for it.
    Deadline,
    /// A message from it was damaged.
    Damaged,
    /// It could not encode, decode or combine a segment.
    Codec,
    /// Its transport failed.
    Transport,
    /// It went on to another group of survivors.
    Left,
    /// Its library found a contradiction in itself.
    Internal,
    /// A message from it to another rank did not match that rank's receive.
    Message,
    /// Its device failed.
    Device,
}

impl AbortReason {
    /// Returns the reason for which rank `own` aborts after this error, and the rank that it
    /// blames.
    pub(crate) fn of(error: &Error, own: Rank) -> (Self, Rank) {
        match *error {
            Error::Mismatch { rank, field, .. } => (Self::Mismatch(field), rank),
            Error::Frame { rank, .. } => (Self::Damaged, rank),
            Error::Stalled { rank, .. } => (Self::Stalled, rank),
            Error::Deadline { rank, .. } => (Self::Deadline, rank),
            Error::Aborted { culprit, reason, .. } => (reason, culprit),
            Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(peer) } => {
                (Self::PeerLost, peer)
            }
            Error::Transport { kind: TransportErrorKind::Stopped, .. } => (Self::Dropped, own),
            Error::Codec(_) => (Self::Codec, own),
            Error::Internal => (Self::Internal, own),
            Error::Device { .. } => (Self::Device, own),
            _ => (Self::Transport, own),
        }
    }

    /// Returns the wire codes of the reason and of its field.
    pub(crate) const fn code(self) -> (u8, u8) {
        match self {
            Self::Dropped => (0, 0),
            Self::Mismatch(field) => (1, field as u8),
            Self::PeerLost => (2, 0),
            Self::Stalled => (3, 0),
            Self::Deadline => (4, 0),
            Self::Damaged => (5, 0),
            Self::Codec => (6, 0),
            Self::Transport => (7, 0),
            Self::Left => (8, 0),
            Self::Internal => (9, 0),
            Self::Message => (10, 0),
            Self::Device => (11, 0),
        }
    }

    /// Returns the reason with these codes.
    pub(crate) fn from_code(code: (u8, u8)) -> Option<Self> {
        Some(match code {
            (0, 0) => Self::Dropped,
            (1, field) => Self::Mismatch(Field::from_code(field)?),
            (2, 0) => Self::PeerLost,
            (3, 0) => Self::Stalled,
            (4, 0) => Self::Deadline,
            (5, 0) => Self::Damaged,
            (6, 0) => Self::Codec,
            (7, 0) => Self::Transport,
            (8, 0) => Self::Left,
            (9, 0) => Self::Internal,
            (10, 0) => Self::Message,
            (11, 0) => Self::Device,
            _ => return None,
        })
    }

    /// Describes the failure at `culprit`.
    pub(super) fn description(self, culprit: Rank) -> impl fmt::Display {
        AbortDescription { reason: self, culprit }
    }
}

struct AbortDescription {
    reason: AbortReason,
    culprit: Rank,
}

impl fmt::Display for AbortDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let culprit = self.culprit;
        match self.reason {
            AbortReason::Dropped => write!(f, "rank {culprit} dropped it"),
            AbortReason::Mismatch(field) => write!(f, "rank {culprit} disagrees on the {field}"),
            AbortReason::PeerLost => write!(f, "rank {culprit} is gone"),
            AbortReason::Stalled => {
                write!(f, "rank {culprit} did not respond within the time limit")
            }
            AbortReason::Deadline => {
                write!(f, "the deadline passed while it waited for rank {culprit}")
            }
            AbortReason::Damaged => write!(f, "a message from rank {culprit} was damaged"),
            AbortReason::Codec => write!(f, "rank {culprit} could not encode or decode a segment"),
            AbortReason::Transport => write!(f, "the transport of rank {culprit} failed"),
            AbortReason::Left => write!(f, "rank {culprit} went on to another group"),
            AbortReason::Internal => write!(f, "rank {culprit} found a defect of Foldwire"),
            AbortReason::Message => {
                write!(f, "a message from rank {culprit} did not match its receive")
            }
            AbortReason::Device => write!(f, "the device of rank {culprit} failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut n_known = 0;
        for code in 0..=u8::MAX {
            for field in 0..=u8::MAX {
                if let Some(reason) = AbortReason::from_code((code, field)) {
                    assert_eq!(reason.code(), (code, field));
                    n_known += 1;
                }
            }
        }
        assert!(n_known > 20);
    }
}
