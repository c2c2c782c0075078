//! One rank's handle of a group that has joined.

use std::net::IpAddr;
use std::process;
use std::time::Duration;

use foldwire::Rank;

use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::member::MemberConnection;
use crate::message::MAX_GIVEN_BYTES;
use crate::place::Place;
use crate::pmi::meet::is_for_others;
use crate::token::Token;

/// This rank's membership in a group, whose ranks are connected through rank 0.
///
/// Dropping a session sends a goodbye to the other ranks and takes at most a quarter of a second.
/// The other ranks count this rank as lost if its process ends without dropping the session, or
/// drops it in a panic.
///
/// Rank 0 forwards losses when it calls [`poll_lost`](Exchange::poll_lost) or
/// [`all_gather`](Exchange::all_gather), or drops its session. After rank 0 has left, the other
/// ranks learn of no further losses.
///
/// Only the process that joined can use a session. In a forked child, all-gathers fail with
/// [`Error::OtherProcess`], and dropping the session sends nothing.
#[derive(Debug)]
pub struct Session {
    /// Process that joined.
    owner_pid: u32,
    rank: Rank,
    size: usize,
    limit: Duration,
    token: Option<Token>,
    role: SessionRole,
}

#[derive(Debug)]
pub(crate) enum SessionRole {
    /// The only rank.
    Alone,
    /// Rank 0.
    Root(Coordinator),
    /// Another rank.
    Member(Box<MemberConnection>),
}

impl Session {
    pub(crate) fn new(place: Place, limit: Duration, role: SessionRole) -> Self {
        let Place { rank, size, token, .. } = place;
        Self { owner_pid: process::id(), rank, size, limit, token, role }
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
            // A fork must not read from its parent's connections.
            _ if process::id() != self.owner_pid => None,
            SessionRole::Alone => None,
            SessionRole::Root(coordinator) => coordinator.poll_lost(),
            SessionRole::Member(member) => member.poll_lost(),
        }
    }

    fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    fn local_address(&self) -> Option<IpAddr> {
        let address = match &self.role {
            SessionRole::Alone => None,
            SessionRole::Root(coordinator) => coordinator.local_address(),
            SessionRole::Member(member) => member.local_address(),
        };
        address.filter(|&address| is_for_others(address))
    }
}
