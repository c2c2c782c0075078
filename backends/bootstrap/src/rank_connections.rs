//! Rank 0's table of ranks: the connection of each rank, or how it ended.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::connection::{Connection, ReadStatus};
use crate::error::Error;
use crate::message::Message;
use crate::protocol::{Departure, MemberState};

/// Longest time to close all connections if a peer does not read what was sent.
pub(crate) const GOODBYE_LIMIT: Duration = Duration::from_millis(250);

/// State of all ranks.
///
/// Dropping it sends a goodbye to all ranks, unless the thread panics: then the other ranks count
/// rank 0 as lost. In a forked process it sends nothing.
#[derive(Debug)]
pub(crate) struct RankConnections {
    owner_pid: u32,
    /// By rank; the first entry is rank 0 itself.
    ranks: Vec<RankConnection>,
    /// Lost ranks not yet returned by [`take_lost`](Self::take_lost).
    unreported: VecDeque<Rank>,
}

/// State of one rank.
#[derive(Debug)]
enum RankConnection {
    /// Rank 0, this process.
    Local,
    /// Not yet admitted.
    Absent,
    Open {
        connection: Connection,
        member_state: MemberState,
    },
    /// Ended with a goodbye.
    Left,
    /// Ended without a goodbye, or broke the protocol.
    Lost,
}

impl RankConnections {
    pub(crate) fn new(size: usize) -> Self {
        let mut ranks = vec![RankConnection::Local];
        ranks.resize_with(size, || RankConnection::Absent);
        Self { owner_pid: process::id(), ranks, unreported: VecDeque::new() }
    }

    pub(crate) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Ranks that have not been admitted.
    pub(crate) fn absent(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|state| matches!(state, RankConnection::Absent))
    }

    /// Ranks whose input for the next all-gather has not arrived.
    pub(crate) fn without_part(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|state| match state {
            RankConnection::Local => false,
            RankConnection::Open { member_state, .. } => !member_state.has_given(),
            _ => true,
        })
    }

    /// This machine's addresses on the connections to the ranks.
    pub(crate) fn local_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ranks.iter().filter_map(|state| match state {
            RankConnection::Open { connection, .. } => connection.local_address(),
            _ => None,
        })
    }

    /// Ranks to which some bytes have not yet been sent.
    pub(crate) fn with_unsent(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|state| match state {
            RankConnection::Open { connection, .. } => connection.has_unsent(),
            _ => false,
        })
    }

    fn ranks_where(
        &self,
        is_meant: impl Fn(&RankConnection) -> bool,
    ) -> impl Iterator<Item = Rank> {
        let ranks = self.ranks.iter().enumerate();
        ranks.filter(move |(_, state)| is_meant(state)).map(|(rank, _)| Rank::new(rank))
    }

    /// Adds the connection of a rank that was absent.
    pub(crate) fn admit(&mut self, rank: Rank, connection: Connection) {
        debug_assert!(matches!(self.ranks[rank.index()], RankConnection::Absent));
        self.ranks[rank.index()] =
            RankConnection::Open { connection, member_state: MemberState::default() };
    }

    pub(crate) fn is_admitted(&self, rank: Rank) -> bool {
        !matches!(self.ranks.get(rank.index()), Some(RankConnection::Absent))
    }

    /// Processes the messages of a rank, and sends what is queued for it.
    pub(crate) fn receive(&mut self, index: usize) {
        let Some(state @ RankConnection::Open { .. }) = self.ranks.get_mut(index) else { return };
        match state.receive() {
            None => {}
            Some(Departure::Goodbye) => *state = RankConnection::Left,
            Some(Departure::Breach) => {
                *state = RankConnection::Lost;
                let rank = Rank::new(index);
                self.unreported.push_back(rank);
                self.send_to_all(&Message::Lost(rank));
            }
        }
    }

    /// Takes the inputs of all ranks for an all-gather. `mine` is rank 0's input.
    pub(crate) fn take_parts(&mut self, mine: &[u8]) -> Vec<Vec<u8>> {
        let parts = self.ranks.iter_mut().map(|state| match state {
            RankConnection::Open { member_state, .. } => {
                member_state.take_given().unwrap_or_default()
            }
            _ => mine.to_vec(),
        });
        parts.collect()
    }

    pub(crate) fn take_lost(&mut self) -> Option<Rank> {
        self.unreported.pop_front()
    }

    pub(crate) fn send_to_all(&mut self, message: &Message<'_>) {
        for state in &mut self.ranks {
            if let RankConnection::Open { connection, .. } = state {
                connection.send(message);
            }
        }
    }

    /// Sends the inputs of all ranks to every rank, in one write for each rank. A write for each
    /// input would make size² writes.
    pub(crate) fn send_parts(&mut self, parts: &[Vec<u8>]) {
        let mut shares = Vec::new();
        for (from, bytes) in parts.iter().enumerate() {
            Message::Share { from: Rank::new(from), bytes }.emit(&mut shares);
        }
        for state in &mut self.ranks {
            if let RankConnection::Open { connection, .. } = state {
                connection.send_encoded(&shares);
            }
        }
    }

    /// Fails if a rank was lost or has left, and reports a rank that has left to the other ranks.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        if let Some(rank) = self.ranks_where(|state| matches!(state, RankConnection::Lost)).next() {
            return Err(Error::Lost { rank });
        }
        let left = self.ranks_where(|state| matches!(state, RankConnection::Left)).next();
        if let Some(rank) = left {
            self.send_to_all(&Message::Left(rank));
            return Err(Error::Left { rank });
        }
        Ok(())
    }
}

impl RankConnection {
    fn receive(&mut self) -> Option<Departure> {
        let Self::Open { connection, member_state } = self else { return None };
        connection.flush();
        loop {
            let status = connection.read();
            while let Some(received) = connection.next().transpose() {
                if let Some(departure) = member_state.receive(received) {
                    return Some(departure);
                }
            }
            match status {
                ReadStatus::Data => {}
                ReadStatus::Blocked => return None,
                // No goodbye came before the end, so the rank is lost.
                ReadStatus::Closed => return Some(Departure::Breach),
            }
        }
    }
}

impl Drop for RankConnections {
    fn drop(&mut self) {
        if thread::panicking() || process::id() != self.owner_pid {
            return;
        }
        // Detect losses that this rank has not noticed yet, and report them to the other ranks.
        for index in 0..self.ranks.len() {
            self.receive(index);
        }
        self.send_to_all(&Message::Goodbye);
        let deadline = Instant::now() + GOODBYE_LIMIT;
        for state in &mut self.ranks {
            if let RankConnection::Open { connection, .. } = state {
                connection.close(deadline);
            }
        }
    }
}
