//! Errors while a group forms, and of a group that fails later.

use std::fmt;
use std::io;
use std::time::Duration;

use foldwire::Rank;
use foldwire::store::StoreError;

use crate::message::{MAX_GIVEN_BYTES, MAX_NAMED, Message, Refusal};
use crate::place::{MAX_RANKS, PlaceError};
use crate::root::Root;
use crate::token::NoRandomNumbers;

/// Failure to join a group, or failure of a group after it has joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment does not give this process a rank.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Other programs could reach rank 0, and there is no token.
    #[error(
        "rank 0 listens at {root}, which other programs can reach; set FOLDWIRE_TOKEN to the same \
        secret on every rank, such as the output of `openssl rand -hex 16`"
    )]
    NoToken {
        /// Rank 0's address.
        root: Root,
    },
    /// The system gave no random numbers for a nonce.
    #[error(transparent)]
    NoRandomNumbers(#[from] NoRandomNumbers),
    /// The root's host name cannot be resolved.
    #[error(
        "the name of {root} did not resolve within {limit:?} ({source}); is rank 0 running, and \
        does FOLDWIRE_ROOT=HOST:PORT name its machine?"
    )]
    Resolve {
        /// Rank 0's address.
        root: Root,
        /// The time limit.
        limit: Duration,
        /// The system's error.
        source: io::Error,
    },
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {root} ({source}); set FOLDWIRE_ROOT=HOST:PORT to an address of \
        this machine and a free port, the same on every rank"
    )]
    Listen {
        /// Rank 0's address.
        root: Root,
        /// The system's error.
        source: io::Error,
    },
    /// No rank 0 answers at the root.
    #[error(
        "no rank 0 at {root} within {limit:?} ({source}); is rank 0 running, is FOLDWIRE_ROOT the \
        same everywhere, and does a firewall let it through?"
    )]
    Unreachable {
        /// Rank 0's address.
        root: Root,
        /// The time limit.
        limit: Duration,
        /// Error of the last attempt.
        source: io::Error,
    },
    /// Another program answers at the root, or a rank 0 with another token.
    #[error(
        "the process that listens at {root} does not know this rank's FOLDWIRE_TOKEN, or is not \
        rank 0 of {size} ranks; set the same token and size on every rank, and another \
        FOLDWIRE_ROOT for each job"
    )]
    Impostor {
        /// Rank 0's address.
        root: Root,
        /// Number of ranks.
        size: usize,
    },
    /// Rank 0 refuses this rank.
    #[error("rank 0 at {root} refuses this process: {reason}")]
    Refused {
        /// Rank 0's address.
        root: Root,
        /// Rank 0's reason.
        reason: Refusal,
    },
    /// Ranks did not join in time, or joined and did not take part in an all-gather.
    #[error(
        "waited {limit:?} for {missing} of {size} ranks{}; read the output of these ranks, or \
        raise the time limit",
        turned_away_note(turned_away)
    )]
    Missing {
        /// The missing ranks.
        missing: RankList,
        /// Number of ranks.
        size: usize,
        /// The time limit.
        limit: Duration,
        /// Number of connections refused meanwhile, and the reason for the last one.
        turned_away: Option<(usize, Refusal)>,
    },
    /// Rank 0 refused a rank, and no process has joined as this rank since.
    #[error("rank {rank} of {size} cannot join: {reason}")]
    Unfit {
        /// The rank.
        rank: Rank,
        /// Number of ranks.
        size: usize,
        /// Rank 0's reason.
        reason: Refusal,
    },
    /// Rank 0 is connected, but sends nothing.
    #[error(
        "rank 0 at {root} sent nothing for {limit:?}: it is busy, or itself waits for ranks; read \
        its output, or raise the time limit"
    )]
    Silent {
        /// Rank 0's address.
        root: Root,
        /// The time limit.
        limit: Duration,
    },
    /// A rank has ended without a goodbye.
    #[error("rank {rank} has ended, or its connection broke; read its last output")]
    Lost {
        /// The rank.
        rank: Rank,
    },
    /// A rank has left with a goodbye while other ranks wait for it.
    #[error(
        "rank {rank} has left the group, but other ranks wait for it; every rank must make the \
        same calls"
    )]
    Left {
        /// The rank.
        rank: Rank,
    },
    /// This process is a fork of the one that joined.
    #[error(
        "this process is a fork of the one that joined the group, and only that one may use the \
        group; join after the fork, or make this call in the parent"
    )]
    OtherProcess,
    /// The input of an all-gather is too long.
    #[error(
        "{n_bytes} bytes are too many for an all-gather of the bootstrap, which takes at most \
        {MAX_GIVEN_BYTES} from each rank"
    )]
    TooLong {
        /// Bytes of the input.
        n_bytes: usize,
    },
    /// A rank sent a message that is invalid or unexpected.
    #[error(
        "rank {rank} broke the protocol; run the same program everywhere, and make the same calls \
        on every rank"
    )]
    Protocol {
        /// The rank.
        rank: Rank,
    },
    /// The store in which ranks meet has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A rank is not below the number of ranks, or there are too many ranks.
    #[error("rank {rank} of {size} does not exist; there are 1 to {MAX_RANKS} ranks, from rank 0")]
    BadPlace {
        /// The rank.
        rank: usize,
        /// Number of ranks.
        size: usize,
    },
    /// Another process has come to the store as this rank.
    #[error(
        "another process has come to the store as rank {rank}; give each process its own rank, and \
        each job its own name or store"
    )]
    SameRank {
        /// The rank.
        rank: Rank,
    },
    /// The system cannot watch or accept connections.
    #[error(
        "the system cannot watch or accept connections ({0}); is the limit of open files too low \
        (ulimit -n)?"
    )]
    System(io::Error),
}

/// Returns the part of [`Error::Missing`]'s text that tells how many connections were refused.
fn turned_away_note(turned_away: &Option<(usize, Refusal)>) -> String {
    match turned_away {
        None => String::new(),
        Some((n, reason)) => format!(", and refused {n} connections (the last: {reason})"),
    }
}

/// A set of ranks: its size and its first members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList {
    n_ranks: usize,
    first: Vec<Rank>,
}

impl RankList {
    pub(crate) fn of(ranks: impl Iterator<Item = Rank>) -> Self {
        let mut list = Self { n_ranks: 0, first: Vec::new() };
        for rank in ranks {
            list.n_ranks += 1;
            if list.first.len() < MAX_NAMED {
                list.first.push(rank);
            }
        }
        list
    }

    /// Makes the list from a message of rank 0. `first` may hold fewer than `n_ranks` ranks.
    pub(crate) fn received(n_ranks: u32, first: Vec<Rank>) -> Self {
        Self { n_ranks: n_ranks as usize, first }
    }

    /// Number of ranks.
    #[must_use]
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// The first ranks, at most [`MAX_NAMED`].
    #[must_use]
    pub fn first(&self) -> &[Rank] {
        &self.first
    }

    /// Makes the message with which rank 0 reports these ranks as missing.
    pub(crate) fn to_message(&self) -> Message<'static> {
        Message::Missing { n_missing: self.n_ranks as u32, ranks: self.first.clone() }
    }
}

impl fmt::Display for RankList {
    /// Formats as `rank 3`, `ranks 1, 4–7`, or `ranks 1–32 and 68 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.n_ranks == 1 { "rank " } else { "ranks " })?;
        let mut separator = "";
        for run in self.first.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0)) {
            match run {
                [one] => write!(f, "{separator}{one}")?,
                [first, second] => write!(f, "{separator}{first}, {second}")?,
                [first, .., last] => write!(f, "{separator}{first}–{last}")?,
                [] => {}
            }
            separator = ", ";
        }
        match self.n_ranks.saturating_sub(self.first.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_runs_and_not_without_end() {
        let text = |ranks: &[u32]| RankList::of(ranks.iter().copied().map(Rank)).to_string();
        assert_eq!(text(&[3]), "rank 3");
        assert_eq!(text(&[1, 2]), "ranks 1, 2");
        assert_eq!(text(&[1, 3, 4, 5, 6, 9]), "ranks 1, 3–6, 9");
        let all: Vec<_> = (1..=100).collect();
        assert_eq!(text(&all), "ranks 1–32 and 68 more");
        assert_eq!(
            RankList::received(7, vec![Rank(u32::MAX)]).to_string(),
            "ranks 4294967295 and 6 more"
        );
    }
}
