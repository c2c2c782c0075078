//! Rank 0's table: for each rank its connection, or how it went.

use std::collections::VecDeque;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::connection::{Connection, ReadStatus};
use crate::error::Error;
use crate::message::Message;
use crate::protocol::{Departure, MemberState};

/// The longest time that leaving takes, when somebody does not read what is sent.
pub(crate) const GOODBYE_LIMIT: Duration = Duration::from_millis(250);

/// One seat for each rank. Dropping it says goodbye to all, unless the thread panics: then they are
/// to hear that rank 0 is lost. A process that was forked off has nothing to say to them.
#[derive(Debug)]
pub(crate) struct RankConnections {
    owner_pid: u32,
    /// By rank; the first is rank 0's own.
    ranks: Vec<RankConnection>,
    /// Lost ranks that nobody has asked for yet.
    unreported: VecDeque<Rank>,
}

/// What is known of a rank.
#[derive(Debug)]
enum RankConnection {
    /// This process's own.
    Local,
    /// It has not come yet.
    Absent,
    /// It is there.
    Open { connection: Connection, member_state: MemberState },
    /// It has said goodbye.
    Left,
    /// It has ended without, or broken the protocol.
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

    /// Ranks that have not come.
    pub(crate) fn absent(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|state| matches!(state, RankConnection::Absent))
    }

    /// Ranks that have given nothing to the next all-gather.
    pub(crate) fn without_part(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|state| match state {
            RankConnection::Local => false,
            RankConnection::Open { member_state, .. } => !member_state.has_given(),
            _ => true,
        })
    }

    /// Ranks that have not taken all that was sent to them.
    pub(crate) fn with_unsent(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|state| matches!(state, RankConnection::Open { connection, .. } if connection.has_unsent()))
    }

    fn ranks_where(
        &self,
        is_meant: impl Fn(&RankConnection) -> bool,
    ) -> impl Iterator<Item = Rank> {
        let ranks = self.ranks.iter().enumerate();
        ranks.filter(move |(_, state)| is_meant(state)).map(|(rank, _)| Rank::new(rank))
    }

    /// Gives an empty seat to its rank.
    pub(crate) fn admit(&mut self, rank: Rank, connection: Connection) {
        debug_assert!(matches!(self.ranks[rank.index()], RankConnection::Absent));
        self.ranks[rank.index()] =
            RankConnection::Open { connection, member_state: MemberState::default() };
    }

    pub(crate) fn is_admitted(&self, rank: Rank) -> bool {
        !matches!(self.ranks.get(rank.index()), Some(RankConnection::Absent))
    }

    /// Reads what a rank has to say, and sends what waits for it.
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

    /// Every rank's part, of which `mine` is rank 0's.
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

    /// Tells all ranks every rank's part, in one piece for each: a write of its own for each part
    /// would be size² of them.
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

    /// An error if the group is no longer whole; others hear of it.
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
                // As good as a breach: it said no goodbye.
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
        // Others are to know of a rank that was lost before this one left.
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
