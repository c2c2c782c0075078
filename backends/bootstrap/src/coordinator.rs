//! Rank 0 after all ranks have joined: it runs all-gathers and forwards losses.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::error::{Error, RankList};
use crate::message::Message;
use crate::pmi::meet::is_for_others;
use crate::poller::Poller;
use crate::rank_connections::RankConnections;
use crate::rendezvous::deadline_after;

/// Rank 0's side of a group that has joined.
#[derive(Debug)]
pub(crate) struct Coordinator {
    poller: Poller,
    ranks: RankConnections,
}

impl Coordinator {
    /// Tells all ranks that the group is complete. The tokens of `poller` are ranks.
    pub(crate) fn welcome(poller: Poller, mut ranks: RankConnections) -> Self {
        ranks.send_to_all(&Message::Welcome);
        Self { poller, ranks }
    }

    /// See [`Exchange::all_gather`](crate::Exchange::all_gather). Rank 0 sends all inputs to every
    /// rank: size² inputs in total.
    pub(crate) fn all_gather(
        &mut self,
        mine: &[u8],
        limit: Duration,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let deadline = deadline_after(limit);
        self.process_events(Duration::ZERO)?;
        self.ranks.check()?;
        while self.ranks.without_part().next().is_some() {
            self.wait(deadline, limit, |ranks| RankList::of(ranks.without_part()))?;
            self.ranks.check()?;
        }
        let parts = self.ranks.take_parts(mine);
        self.ranks.send_parts(&parts);
        // Send everything before returning: the other ranks wait for it, and the caller may not
        // call again soon.
        while self.ranks.with_unsent().next().is_some() {
            self.wait(deadline, limit, |ranks| RankList::of(ranks.with_unsent()))?;
        }
        Ok(parts)
    }

    /// See [`Exchange::local_address`](crate::Exchange::local_address).
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        self.ranks.local_addresses().find(|&address| is_for_others(address))
    }

    /// See [`Exchange::poll_lost`](crate::Exchange::poll_lost).
    pub(crate) fn poll_lost(&mut self) -> Option<Rank> {
        // This call cannot report an error of the system; the next all-gather does.
        let _ = self.process_events(Duration::ZERO);
        self.ranks.take_lost()
    }

    /// Waits for an event. At the deadline, sends the list of missing ranks to all ranks and fails.
    fn wait(
        &mut self,
        deadline: Instant,
        limit: Duration,
        missing: impl Fn(&RankConnections) -> RankList,
    ) -> Result<(), Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let missing = missing(&self.ranks);
            self.ranks.send_to_all(&missing.to_message());
            let size = self.ranks.size();
            return Err(Error::Missing { missing, size, limit, turned_away: None });
        }
        self.process_events(left)
    }

    fn process_events(&mut self, timeout: Duration) -> Result<(), Error> {
        for event in self.poller.wait(timeout)? {
            self.ranks.receive(event.token().0);
        }
        Ok(())
    }
}
