//! Why ranks do not find each other, and how they lose each other.

use std::fmt;
use std::io;
use std::time::Duration;

use foldwire::Rank;

use crate::message::{MAX_GIVEN_BYTES, MAX_NAMED, Message, Refusal};
use crate::place::PlaceError;
use crate::root::Root;
use crate::token::NoRandomNumbers;

/// Why the group did not come together, or is no longer together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment does not say which rank this is.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Strangers could reach rank 0.
    #[error(
        "rank 0 listens at {root}, where strangers can reach it; set FOLDWIRE_TOKEN to the same secret on every rank, such as the output of `openssl rand -hex 16`"
    )]
    NoToken {
        /// Where rank 0 listens.
        root: Root,
    },
    /// There is nothing to draw a nonce from.
    #[error(transparent)]
    NoRandomNumbers(#[from] NoRandomNumbers),
    /// The root's name is unknown.
    #[error(
        "cannot find the address of {root} ({source}); set FOLDWIRE_ROOT=HOST:PORT to an address of rank 0's machine"
    )]
    Resolve {
        /// Where rank 0 listens.
        root: Root,
        /// Why not.
        source: io::Error,
    },
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {root} ({source}); set FOLDWIRE_ROOT=HOST:PORT to an address of this machine and a free port, the same on every rank"
    )]
    Listen {
        /// Where it was to listen.
        root: Root,
        /// Why not.
        source: io::Error,
    },
    /// Nobody answers at the root.
    #[error(
        "no rank 0 at {root} within {limit:?} ({source}); is rank 0 running, is FOLDWIRE_ROOT the same everywhere, and does a firewall let it through?"
    )]
    Unreachable {
        /// Where rank 0 should listen.
        root: Root,
        /// The time limit.
        limit: Duration,
        /// Why the last attempt failed.
        source: io::Error,
    },
    /// Somebody answers at the root who does not know the token.
    #[error(
        "whoever listens at {root} does not know this rank's FOLDWIRE_TOKEN, or is no rank 0 of {size} ranks; set token and size alike on every rank, and a FOLDWIRE_ROOT of its own for each job"
    )]
    Impostor {
        /// Where rank 0 should listen.
        root: Root,
        /// Number of ranks.
        size: usize,
    },
    /// Rank 0 does not let this rank in.
    #[error("rank 0 at {root} refuses this process: {reason}")]
    Refused {
        /// Where rank 0 listens.
        root: Root,
        /// Why.
        reason: Refusal,
    },
    /// Ranks have not come, or have come and given nothing.
    #[error(
        "waited {limit:?} for {missing} of {size} ranks{}; look at what they say, or raise the time limit",
        after(turned_away)
    )]
    Missing {
        /// Who has not come.
        missing: RankList,
        /// Number of ranks.
        size: usize,
        /// The time limit.
        limit: Duration,
        /// How many were turned away at the door meanwhile, and why the last.
        turned_away: Option<(usize, Refusal)>,
    },
    /// A rank came and was turned away, and none came in its place.
    #[error("rank {rank} of {size} cannot join: {reason}")]
    Unfit {
        /// The rank.
        rank: Rank,
        /// Number of ranks.
        size: usize,
        /// Why rank 0 turned it away.
        reason: Refusal,
    },
    /// Rank 0 is there, but says nothing.
    #[error(
        "rank 0 at {root} said nothing for {limit:?}: it is busy, or waits for ranks itself; look at what it says, or raise the time limit"
    )]
    Silent {
        /// Where rank 0 listens.
        root: Root,
        /// The time limit.
        limit: Duration,
    },
    /// A rank has ended without a goodbye.
    #[error("rank {rank} has ended or its connection has; look at what it said last")]
    Lost {
        /// The rank.
        rank: Rank,
    },
    /// A rank has ended in good order while others wait for it.
    #[error(
        "rank {rank} has left the group, but others wait for it; every rank must make the same calls"
    )]
    Left {
        /// The rank.
        rank: Rank,
    },
    /// Another process joined.
    #[error(
        "this process was forked off the one that joined the group; only that one may use it, so join after the fork, or leave it to the parent"
    )]
    OtherProcess,
    /// More bytes were given to an all-gather than it takes.
    #[error(
        "{n_bytes} bytes are too many for an all-gather of the bootstrap, which takes {MAX_GIVEN_BYTES} of each rank"
    )]
    TooLong {
        /// Bytes given.
        n_bytes: usize,
    },
    /// A rank says what does not belong there.
    #[error(
        "rank {rank} broke the protocol; run the same program everywhere, and make the same calls on every rank"
    )]
    Protocol {
        /// The rank.
        rank: Rank,
    },
    /// The system cannot watch connections.
    #[error(
        "the system cannot watch connections ({0}); is the limit of open files too low (ulimit -n)?"
    )]
    System(io::Error),
}

fn after(turned_away: &Option<(usize, Refusal)>) -> String {
    match turned_away {
        None => String::new(),
        Some((n, reason)) => format!(", and turned away {n} at the door (the last: {reason})"),
    }
}

/// A number of ranks, the first of them by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList {
    n_ranks: usize,
    first: Vec<Rank>,
}

impl RankList {
    /// These ranks.
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

    /// As rank 0 told.
    pub(crate) fn received(n_ranks: u32, first: Vec<Rank>) -> Self {
        Self { n_ranks: n_ranks as usize, first }
    }

    /// How many ranks.
    #[must_use]
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// The first of them, at most [`MAX_NAMED`].
    #[must_use]
    pub fn first(&self) -> &[Rank] {
        &self.first
    }

    /// The list as rank 0's verdict.
    pub(crate) fn to_message(&self) -> Message<'static> {
        Message::Missing { n_missing: self.n_ranks as u32, ranks: self.first.clone() }
    }
}

impl fmt::Display for RankList {
    /// As `rank 3`, or `ranks 1, 4–7`, or `ranks 1–32 and 68 more`.
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
