//! The laws of waiting, the same for calls and for messages: while nothing moves, a rank listens to
//! what others tell, asks what they do, and gives up in time. If a rank is lost, it or somebody
//! else may have said why before, which may still be on its way.

use super::{Notices, notices};
use crate::error::Error;
use crate::frame::CallHeader;
use crate::handle::Progress;
use crate::transport::{MAX_LANES, Rank, Transport, TransportErrorKind};
use crate::wait::{Limits, Wait, rest};
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;

/// How long what a rank sent before is looked for, if the network does not say that nothing more
/// will come.
const LOST_RANK_GRACE: Duration = Duration::from_secs(1);

/// Most ranks that are listened to in every poll: those that lanes wait for, and one more.
pub(crate) const MAX_AWAITED: usize = MAX_LANES + 1;

/// What waits for other ranks.
pub(crate) trait Waiter {
    /// The ranks that it waits for.
    fn awaited(&self) -> Vec<Rank, MAX_AWAITED>;

    /// The rank that an error of time names, and the step.
    fn blamed(&self) -> (Rank, usize);

    /// Whether its caller looks at it, so that time counts.
    fn is_looked_at(&self) -> bool {
        true
    }

    /// What it asks ranks that make it wait. Messages ask nobody.
    fn question(&self) -> Option<&dyn Question> {
        None
    }
}

/// A call that asks ranks which call they make, and answers those that ask.
pub(crate) trait Question {
    /// Free frames that it lacks, which are not spent on questions.
    fn n_needed(&self) -> usize;

    /// Whether messages need checksums.
    fn checksum(&self) -> bool;
}

/// Watches something under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watchdog {
    wait: Wait,
    lost: Option<LostRank>,
}

/// Who is lost, and since when.
#[derive(Clone, Copy, Debug)]
struct LostRank {
    rank: Rank,
    since: Duration,
    error: Error,
}

impl Watchdog {
    /// The rank that is lost, if one is.
    pub(crate) fn lost(&self) -> Option<Rank> {
        self.lost.map(|loss| loss.rank)
    }

    /// Something has failed, of which more may be known in a moment if a rank is lost.
    ///
    /// # Errors
    /// The error, if it says something else.
    pub(crate) const fn lose(&mut self, error: Error, now: Duration) -> Result<(), Error> {
        match error {
            Error::Transport { kind: TransportErrorKind::PeerLost, peer: Some(rank) } => {
                self.lost = Some(LostRank { rank, since: now, error });
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Looks for what says more than that a rank is lost. `take_last` takes all else that it sent,
    /// and says whether that is all.
    ///
    /// # Errors
    /// What was found, or that the rank is lost where nothing more will come, or not in time.
    pub(crate) fn explain<X: Transport>(
        &self,
        (transport, notices): (&mut X, &mut Notices),
        ours: &CallHeader,
        limits: Limits,
        take_last: impl FnOnce(&mut X, &mut Notices) -> Result<bool, Error>,
    ) -> Result<Progress, Error> {
        let Some(loss) = self.lost else { return Ok(Progress::Waiting) };
        // That the network as a whole fails is no news.
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

    /// What comes of a poll in which nothing was finished: `moved`, or else waiting.
    ///
    /// # Errors
    /// [`Error::Deadline`], [`Error::Stalled`], and what others tell.
    pub(crate) fn settle<X: Transport>(
        &mut self,
        moved: bool,
        waiter: &dyn Waiter,
        (transport, notices): (&mut X, &mut Notices),
        ours: &CallHeader,
        limits: Limits,
    ) -> Result<Progress, Error> {
        // To look at the clock costs as much as to add a few values.
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
        if waiter.is_looked_at() {
            self.wait.look(transport.now(), stall);
        }
        let waited = self.waited();
        if let Some(question) = question
            && waited >= ask_after(stall)
        {
            let (n_needed, checksum) = (question.n_needed(), question.checksum());
            notices.ask(transport, ours, &awaited, n_needed, checksum);
        }
        // Where all stall together, the rank that waits for the silent one should name it, and not
        // just hear that a third one was quicker to give up.
        if waited < stall - stall / 8 {
            notices.listen_in_turn(transport, ours)?;
        }
        if waited > stall {
            let (rank, step) = waiter.blamed();
            return Err(Error::Stalled { rank, step });
        }
        Ok(Progress::Waiting)
    }

    /// How long nothing had moved in the last poll.
    pub(crate) const fn waited(&self) -> Duration {
        self.wait.waited()
    }

    /// How long to rest before the next poll, if nothing comes before.
    pub(crate) fn rest(&self, limits: Limits) -> Duration {
        let ask_after = ask_after(limits.stall);
        if self.waited() < ask_after { ask_after } else { rest(limits.stall) }
    }
}

/// After waiting how long ranks are asked what call they make.
pub(super) fn ask_after(stall: Duration) -> Duration {
    notices::ASK_AFTER.min(stall / 8)
}
