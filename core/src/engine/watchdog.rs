//! Rules of waiting, the same for calls and for messages. While nothing moves, a rank receives
//! other ranks' notices, asks which call they make, and aborts when its time limit passes. If it
//! finds a rank lost, it waits a moment before it aborts: the lost rank or another one may have
//! sent the reason, which may still be in transit.

use super::{Notices, notices};
use crate::error::Error;
use crate::frame::CallHeader;
use crate::handle::Progress;
use crate::transport::{MAX_LANES, Rank, Transport, TransportErrorKind};
use crate::wait::{Limits, Wait, rest};
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;

/// Longest wait for messages that a lost rank sent before, unless the network reports that nothing
/// more will come.
const LOST_RANK_GRACE: Duration = Duration::from_secs(1);

/// Most ranks that are polled in every pass: for a call, one for each lane, and one to which a
/// frame is still in transit.
pub(crate) const MAX_AWAITED: usize = MAX_LANES + 1;

/// A call or exchange that waits for other ranks.
pub(crate) trait Waiter {
    /// Returns the ranks that it waits for.
    fn awaited(&self) -> Vec<Rank, MAX_AWAITED>;

    /// Returns the rank and the step that a timeout error names.
    fn blamed(&self) -> (Rank, usize);

    /// Returns whether the caller polls this call. Waiting time counts only then.
    fn is_polled(&self) -> bool {
        true
    }

    /// Returns the interface for questions to the ranks that it waits for. `None` for exchanges of
    /// messages, which ask no rank.
    fn question(&self) -> Option<&dyn Question> {
        None
    }
}

/// A call that asks other ranks which call they make, and answers their questions.
pub(crate) trait Question {
    /// Returns how many free frames the call may still need. Questions must leave that many.
    fn n_needed(&self) -> usize;

    /// Returns whether messages need checksums.
    fn checksum(&self) -> bool;
}

/// Watches a running call or exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watchdog {
    wait: Wait,
    lost: Option<LostRank>,
}

/// A lost rank, the time when it was found lost, and the error.
#[derive(Clone, Copy, Debug)]
struct LostRank {
    rank: Rank,
    since: Duration,
    error: Error,
}

impl Watchdog {
    /// Returns the lost rank, if there is one.
    pub(crate) fn lost(&self) -> Option<Rank> {
        self.lost.map(|loss| loss.rank)
    }

    /// Records that a rank is lost. [`explain`](Self::explain) then looks for the reason.
    ///
    /// # Errors
    /// The given error, if it does not say that a rank is lost, or if one was lost before.
    pub(crate) const fn lose(&mut self, error: Error, now: Duration) -> Result<(), Error> {
        match error {
            Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(rank) }
                if self.lost.is_none() =>
            {
                self.lost = Some(LostRank { rank, since: now, error });
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Looks for an error that says more than that a rank is lost. `take_last` receives what the
    /// rank sent on tags other than the control tag, and returns whether everything has arrived.
    ///
    /// # Errors
    /// The error that was found. Otherwise the loss of the rank, once nothing more will come from
    /// it or [`LOST_RANK_GRACE`] has passed.
    pub(crate) fn explain<X: Transport>(
        &self,
        (transport, notices): (&mut X, &mut Notices),
        ours: &CallHeader,
        limits: Limits,
        take_last: impl FnOnce(&mut X, &mut Notices) -> Result<bool, Error>,
    ) -> Result<Progress, Error> {
        let Some(loss) = self.lost else { return Ok(Progress::Waiting) };
        // Ignore a failure of the whole network: a rank is already lost.
        let _ = transport.progress();
        let has_all = take_last(transport, notices)?;
        match notices.last_words(transport, ours, loss.rank) {
            Poll::Ready(Some(told)) => return Err(told),
            Poll::Ready(None) if has_all => return Err(loss.error),
            _ => {}
        }
        notices.listen_in_turn(transport, ours)?;
        let now = transport.now();
        let is_over = now.saturating_sub(loss.since) >= LOST_RANK_GRACE.min(limits.stall)
            || limits.deadline.is_some_and(|deadline| now >= deadline);
        if is_over { Err(loss.error) } else { Ok(Progress::Waiting) }
    }

    /// Follows a poll that did not finish the call. If nothing `moved`, the call waits: receives
    /// notices, asks and answers questions, and checks the time limit.
    ///
    /// # Errors
    /// [`Error::Deadline`], [`Error::Stalled`], and the errors that other ranks report.
    pub(crate) fn settle<X: Transport>(
        &mut self,
        moved: bool,
        waiter: &dyn Waiter,
        (transport, notices): (&mut X, &mut Notices),
        ours: &CallHeader,
        limits: Limits,
    ) -> Result<Progress, Error> {
        // Read the clock only if needed, because that costs as much as adding a few values.
        if limits.deadline.is_some_and(|deadline| transport.now() >= deadline) {
            let (rank, step) = waiter.blamed();
            return Err(Error::Deadline { rank, step });
        }
        if moved {
            self.wait = Wait::default();
            return Ok(Progress::Moved);
        }
        let (awaited, question) = (waiter.awaited(), waiter.question());
        let heard = notices.listen(transport, ours, &awaited)?;
        if let Some(question) = question {
            notices.answer(transport, ours, question.checksum());
        }
        if heard {
            return Ok(Progress::Moved);
        }
        let stall = limits.stall;
        if waiter.is_polled() {
            self.wait.look(transport.now(), stall);
        }
        let waited = self.waited();
        if let Some(question) = question
            && waited >= ask_after(stall)
        {
            let (n_needed, checksum) = (question.n_needed(), question.checksum());
            notices.query(transport, ours, &awaited, n_needed, checksum);
        }
        // If all ranks stall together, the rank that waits for the silent one should name it. So
        // near the limit it does not listen to a third rank that was quicker to abort.
        if waited < stall - stall / 8 {
            notices.listen_in_turn(transport, ours)?;
        }
        if waited > stall {
            let (rank, step) = waiter.blamed();
            return Err(Error::Stalled { rank, step });
        }
        Ok(Progress::Waiting)
    }

    /// Returns for how long nothing had moved at the last poll.
    pub(crate) const fn waited(&self) -> Duration {
        self.wait.waited()
    }

    /// Returns how long to rest before the next poll, if nothing arrives earlier.
    pub(crate) fn rest(&self, limits: Limits) -> Duration {
        let ask_after = ask_after(limits.stall);
        if self.waited() < ask_after { ask_after } else { rest(limits.stall) }
    }
}

/// Returns the time after which a waiting rank asks the others which call they make.
pub(super) fn ask_after(stall: Duration) -> Duration {
    notices::ASK_AFTER.min(stall / 8)
}
