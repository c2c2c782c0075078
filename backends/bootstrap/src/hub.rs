//! Rank 0 among the ranks that are in: it carries all-gathers, and tells everyone of ranks that are
//! lost.

use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::error::{Error, RankList};
use crate::message::Message;
use crate::seats::Seats;
use crate::watch::Watch;

/// Rank 0's side of a group that has come together.
#[derive(Debug)]
pub(crate) struct Hub {
    watch: Watch,
    seats: Seats,
}

impl Hub {
    /// Tells all ranks that all are there. The tokens of `watch` are ranks.
    pub(crate) fn welcome(watch: Watch, mut seats: Seats) -> Self {
        seats.tell_all(&Message::Welcome);
        Self { watch, seats }
    }

    /// As [`Exchange::all_gather`](crate::Exchange::all_gather). Every rank gets every part: size²
    /// parts leave rank 0.
    pub(crate) fn all_gather(
        &mut self,
        mine: &[u8],
        limit: Duration,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let deadline = Instant::now() + limit;
        self.listen(Duration::ZERO)?;
        self.seats.check()?;
        while self.seats.silent().next().is_some() {
            self.wait(deadline, limit, |seats| RankList::of(seats.silent()))?;
            self.seats.check()?;
        }
        let parts = self.seats.take_given(mine);
        self.seats.share_out(&parts);
        // Others wait for it, and this rank may not come back here for long.
        while self.seats.clogged().next().is_some() {
            self.wait(deadline, limit, |seats| RankList::of(seats.clogged()))?;
        }
        Ok(parts)
    }

    /// As [`Exchange::poll_lost`](crate::Exchange::poll_lost).
    pub(crate) fn poll_lost(&mut self) -> Option<Rank> {
        // If the system cannot tell, the group's own traffic must.
        let _ = self.listen(Duration::ZERO);
        self.seats.take_news()
    }

    /// Waits for something to happen; gives up at the deadline, and tells the others for whom it
    /// waited.
    fn wait(
        &mut self,
        deadline: Instant,
        limit: Duration,
        missing: impl Fn(&Seats) -> RankList,
    ) -> Result<(), Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let missing = missing(&self.seats);
            self.seats.tell_all(&missing.to_message());
            let size = self.seats.size();
            return Err(Error::Missing { missing, size, limit, turned_away: None });
        }
        self.listen(left)
    }

    fn listen(&mut self, timeout: Duration) -> Result<(), Error> {
        for event in self.watch.wait(timeout)? {
            self.seats.hear(event.token().0);
        }
        Ok(())
    }
}
