//! A group that has come together, as one of its ranks sees it.

use std::process;
use std::time::Duration;

use foldwire::Rank;

use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::member::MemberConnection;
use crate::message::MAX_GIVEN_BYTES;

/// This rank's connection to its group, by way of rank 0.
///
/// Dropping it says goodbye to the others and takes at most a quarter of a second. A process that
/// ends without dropping it, or drops it in a panic, is lost to the others.
///
/// Rank 0 passes news on when it calls [`poll_lost`](Exchange::poll_lost) or
/// [`all_gather`](Exchange::all_gather), or drops its party; after it has left, nobody hears of
/// others that are lost.
///
/// It is of use in the process that joined. In one that was forked off, all-gathers fail with
/// [`Error::OtherProcess`], and dropping it says nothing to anybody.
#[derive(Debug)]
pub struct Session {
    /// The process that joined.
    owner_pid: u32,
    rank: Rank,
    size: usize,
    limit: Duration,
    role: SessionRole,
}

#[derive(Debug)]
pub(crate) enum SessionRole {
    /// There are no others.
    Alone,
    /// Rank 0.
    Root(Coordinator),
    /// Any other.
    Member(Box<MemberConnection>),
}

impl Session {
    pub(crate) fn new(rank: Rank, size: usize, limit: Duration, role: SessionRole) -> Self {
        Self { owner_pid: process::id(), rank, size, limit, role }
    }
}

impl Exchange for Session {
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if process::id() != self.owner_pid {
            return Err(Error::OtherProcess);
        }
        if mine.len() > MAX_GIVEN_BYTES {
            return Err(Error::TooLong { n_bytes: mine.len() });
        }
        match &mut self.role {
            SessionRole::Alone => Ok(vec![mine.to_vec()]),
            SessionRole::Root(coordinator) => coordinator.all_gather(mine, self.limit),
            SessionRole::Member(member) => member.all_gather(mine),
        }
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        match &mut self.role {
            // What it would read, its parent would never hear.
            _ if process::id() != self.owner_pid => None,
            SessionRole::Alone => None,
            SessionRole::Root(coordinator) => coordinator.poll_lost(),
            SessionRole::Member(member) => member.poll_lost(),
        }
    }
}
