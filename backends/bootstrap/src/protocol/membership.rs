//! An admitted rank's view of its group, from the messages of rank 0.

use std::collections::{BTreeSet, VecDeque};

use foldwire::Rank;

use crate::error::RankList;
use crate::message::{Malformed, Message, Refusal};

/// State of the group as a rank other than 0 knows it.
#[derive(Debug)]
pub struct Membership {
    size: usize,
    is_welcome: bool,
    is_over: bool,
    /// Inputs of the current all-gather received so far, in rank order.
    parts: Vec<Vec<u8>>,
    /// Ranks known to be lost.
    lost: BTreeSet<Rank>,
    /// Lost ranks not yet returned by [`take_lost`](Self::take_lost).
    unreported: VecDeque<Rank>,
    failure: Option<GroupFailure>,
}

/// Reason for which a group has failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GroupFailure {
    /// Rank 0 refused this rank after the rank had answered the challenge.
    Refused(Refusal),
    /// These ranks did not join, or did not take part in an all-gather, before rank 0's time limit.
    Missing(RankList),
    /// Rank 0 refused the named rank for this reason, and waits no longer for it.
    Unfit(Rank, Refusal),
    /// Rank 0 sent nothing before the time limit.
    Silent,
    /// The named rank has ended without a goodbye.
    Lost(Rank),
    /// The named rank has left while other ranks wait for it.
    Left(Rank),
    /// Rank 0 sent an invalid or unexpected message.
    Protocol,
}

impl Membership {
    /// Creates the state of a rank that waits for its welcome to a group of `size` ranks.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self {
            size,
            is_welcome: false,
            is_over: false,
            parts: Vec::new(),
            lost: BTreeSet::new(),
            unreported: VecDeque::new(),
            failure: None,
        }
    }

    /// Processes a message of rank 0. Ignores messages after the end of the connection.
    pub fn receive(&mut self, received: Result<Message<'_>, Malformed>) {
        if self.is_over {
            return;
        }
        let size = self.size;
        let failure = match received {
            Ok(Message::Welcome) => {
                self.is_welcome = true;
                return;
            }
            Ok(Message::Share { from, bytes })
                if from.index() == self.parts.len() && from.index() < size =>
            {
                self.parts.push(bytes.to_vec());
                return;
            }
            Ok(Message::Lost(rank)) if rank.index() < size => {
                self.note_lost(rank);
                GroupFailure::Lost(rank)
            }
            Ok(Message::Left(rank)) if rank.index() < size => GroupFailure::Left(rank),
            Ok(Message::Missing { n_missing, ranks }) => {
                GroupFailure::Missing(RankList::received(n_missing, ranks))
            }
            Ok(Message::Unfit { rank, reason }) if rank.index() < size => {
                GroupFailure::Unfit(rank, reason)
            }
            Ok(Message::Refusal(reason)) => GroupFailure::Refused(reason),
            Ok(Message::Goodbye) => {
                self.is_over = true;
                GroupFailure::Left(Rank(0))
            }
            Ok(_) | Err(_) => return self.end(GroupFailure::Protocol),
        };
        self.fail(failure);
    }

    /// Records that the connection has ended and rank 0 is lost. `why` is the group's failure.
    pub fn end(&mut self, why: GroupFailure) {
        self.is_over = true;
        self.note_lost(Rank(0));
        self.fail(why);
    }

    /// Records that the group has failed. The first reason is kept.
    pub fn fail(&mut self, why: GroupFailure) {
        self.failure.get_or_insert(why);
    }

    fn note_lost(&mut self, rank: Rank) {
        if self.lost.insert(rank) {
            self.unreported.push_back(rank);
        }
    }

    /// Returns whether rank 0 has reported that all ranks have joined.
    #[must_use]
    pub fn is_welcome(&self) -> bool {
        self.is_welcome
    }

    /// Returns whether rank 0 will send nothing more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The reason for which the group has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<&GroupFailure> {
        self.failure.as_ref()
    }

    /// Takes the inputs of all ranks for an all-gather, once all have arrived.
    pub fn take_parts(&mut self) -> Option<Vec<Vec<u8>>> {
        (self.parts.len() == self.size).then(|| std::mem::take(&mut self.parts))
    }

    /// Takes a lost rank that was not taken before.
    pub fn take_lost(&mut self) -> Option<Rank> {
        self.unreported.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_lost_once_however_often_it_is_told() {
        let mut membership = Membership::new(3);
        for _ in 0..1000 {
            membership.receive(Ok(Message::Lost(Rank(2))));
        }
        assert_eq!((membership.take_lost(), membership.take_lost()), (Some(Rank(2)), None));
        assert!(matches!(membership.failure(), Some(GroupFailure::Lost(Rank(2)))));
    }

    #[test]
    fn parts_come_in_rank_order_and_no_more_than_there_are_ranks() {
        let mut membership = Membership::new(2);
        for from in [0, 1] {
            assert!(membership.take_parts().is_none());
            membership.receive(Ok(Message::Share { from: Rank(from), bytes: &[from as u8] }));
        }
        assert_eq!(membership.take_parts(), Some(vec![vec![0], vec![1]]));
        membership.receive(Ok(Message::Share { from: Rank(1), bytes: &[] }));
        assert!(membership.is_over() && membership.take_lost() == Some(Rank(0)));
        assert!(matches!(membership.failure(), Some(GroupFailure::Protocol)));
    }
}
