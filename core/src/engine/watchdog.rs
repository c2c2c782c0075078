//! A rank that was found lost: why, if it or somebody else has said so before, which may still be
//! on its way.

use super::{Limits, Notices};
use crate::error::Error;
use crate::frame::CallHeader;
use crate::transport::{Rank, Transport, TransportErrorKind};
use core::task::Poll;
use core::time::Duration;

/// How long what a rank sent before is looked for, if the network does not say that nothing more
/// will come.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Who is lost, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) rank: Rank,
    since: Duration,
    error: Error,
}

impl Loss {
    /// What an error says at this time.
    ///
    /// # Errors
    /// The error, if it says something else.
    pub(crate) const fn of(error: Error, now: Duration) -> Result<Self, Error> {
        match error {
            Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(rank) } => {
                Ok(Self { rank, since: now, error })
            }
            _ => Err(error),
        }
    }

    /// Looks for what says more than that the rank is gone. `has_all`: all else that it sent was
    /// taken.
    ///
    /// # Errors
    /// What was found, or that the rank is gone where nothing more will come, or not in time.
    pub(crate) fn explain<X: Transport>(
        &self,
        transport: &mut X,
        notices: &mut Notices,
        ours: &CallHeader,
        limits: Limits,
        has_all: bool,
    ) -> Result<(), Error> {
        match notices.last_words(transport, ours, self.rank) {
            Poll::Ready(Some(told)) => return Err(told),
            Poll::Ready(None) if has_all => return Err(self.error),
            _ => {}
        }
        notices.listen_in_turn(transport, ours)?;
        let now = transport.now();
        let is_over = now.saturating_sub(self.since) >= LAST_WORDS.min(limits.stall)
            || limits.deadline.is_some_and(|deadline| now >= deadline);
        if is_over { Err(self.error) } else { Ok(()) }
    }
}
