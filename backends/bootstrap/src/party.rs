//! A group that has come together, as one of its ranks sees it.

use std::process;
use std::time::Duration;

use foldwire::Rank;

use crate::error::Error;
use crate::exchange::Exchange;
use crate::hub::Hub;
use crate::member::Member;
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
pub struct Party {
    /// The process that joined.
    home: u32,
    rank: Rank,
    size: usize,
    limit: Duration,
    side: Side,
}

#[derive(Debug)]
pub(crate) enum Side {
    /// There are no others.
    Alone,
    /// Rank 0.
    Root(Hub),
    /// Any other.
    Member(Box<Member>),
}

impl Party {
    pub(crate) fn new(rank: Rank, size: usize, limit: Duration, side: Side) -> Self {
        Self { home: process::id(), rank, size, limit, side }
    }
}

impl Exchange for Party {
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if process::id() != self.home {
            return Err(Error::OtherProcess);
        }
        if mine.len() > MAX_GIVEN_BYTES {
            return Err(Error::TooLong { n_bytes: mine.len() });
        }
        match &mut self.side {
            Side::Alone => Ok(vec![mine.to_vec()]),
            Side::Root(hub) => hub.all_gather(mine, self.limit),
            Side::Member(member) => member.all_gather(mine),
        }
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        match &mut self.side {
            // What it would read, its parent would never hear.
            _ if process::id() != self.home => None,
            Side::Alone => None,
            Side::Root(hub) => hub.poll_lost(),
            Side::Member(member) => member.poll_lost(),
        }
    }
}
