//! A rank that is in: what rank 0 has told it.

use std::collections::{BTreeSet, VecDeque};

use foldwire::Rank;

use crate::error::RankList;
use crate::message::{Malformed, Message, Refusal};

/// What a rank other than 0 knows of its group.
#[derive(Debug)]
pub struct Membership {
    size: usize,
    is_welcome: bool,
    is_over: bool,
    /// The parts of the all-gather that have come, in rank order.
    parts: Vec<Vec<u8>>,
    /// Ranks known to be lost.
    lost: BTreeSet<Rank>,
    /// Those of them that nobody has asked for yet.
    unreported: VecDeque<Rank>,
    failure: Option<GroupFailure>,
}

/// Why the group is no longer whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GroupFailure {
    /// Rank 0 does not want this rank any more.
    Refused(Refusal),
    /// Rank 0 has waited for these in vain.
    Missing(RankList),
    /// Rank 0 has given up, since it turned this rank away for this reason.
    Unfit(Rank, Refusal),
    /// Rank 0 said nothing in time.
    Silent,
    /// This rank has ended without a goodbye.
    Lost(Rank),
    /// This rank has left while others wait for it.
    Left(Rank),
    /// Rank 0 says what does not belong there.
    Protocol,
}

impl Membership {
    /// In a group of `size` ranks.
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

    /// Heeds a message of rank 0's. After one that ends it all others are passed over.
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

    /// Rank 0 is lost, for this reason: nothing more will come.
    pub fn end(&mut self, why: GroupFailure) {
        self.is_over = true;
        self.note_lost(Rank(0));
        self.fail(why);
    }

    /// The group is no longer whole. The first reason counts.
    pub fn fail(&mut self, why: GroupFailure) {
        self.failure.get_or_insert(why);
    }

    fn note_lost(&mut self, rank: Rank) {
        if self.lost.insert(rank) {
            self.unreported.push_back(rank);
        }
    }

    /// Whether all ranks are known to be there.
    #[must_use]
    pub fn is_welcome(&self) -> bool {
        self.is_welcome
    }

    /// Whether nothing more will come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Why the group is no longer whole, if it is not.
    #[must_use]
    pub fn failure(&self) -> Option<&GroupFailure> {
        self.failure.as_ref()
    }

    /// All ranks' parts of an all-gather, once they are there.
    pub fn take_parts(&mut self) -> Option<Vec<Vec<u8>>> {
        (self.parts.len() == self.size).then(|| std::mem::take(&mut self.parts))
    }

    /// A lost rank that nobody has asked for yet.
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
