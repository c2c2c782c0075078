//! Agreement on the survivors: a state machine without clock and network.
//!
//! Each rank has a *view*: the ranks that it counts as survivors. The view starts with the whole
//! group. A rank sends its view to all others, and leaves out ranks that others leave out, so views
//! only shrink. It also leaves out a rank that its transport reports lost, or that has not answered
//! in time. A changed view is sent again. When every member of a rank's view has sent that very
//! view, the rank *decides* it. The caller then sends a fence to each member, and waits for the
//! members' fences.
//!
//! *Epochs.* A rank decides once per epoch, and keeps its view from then on. If something fails
//! after that, it goes on to the next epoch, and every rank that receives its ballot follows.
//! Epochs wrap, so a rank counts them from the epoch of the group that failed: the next
//! [`MAX_EPOCHS`] epochs are later ones, and all others are earlier ones.
//!
//! *No two groups overlap.* A rank finishes epoch e with members S only after it has a fence (e, S)
//! from each member. A member sends that fence only after it decided (e, S), and it decides once
//! per epoch. So if one rank finishes with (e, S), no member of S ever finishes with (e, S′).
//! Groups of other epochs are told apart by the epoch in each header.
//!
//! *Ranks that leave each other out.* A rank that leaves out another is left out in return. In the
//! end, a rank is excluded if a larger group than its own has left it out. It is also excluded by a
//! group of equal size if the other group left it out first, or if its own group lacks the lowest
//! rank of both.
//!
//! Source: after the agreement and shrink of ULFM (Bland et al., 2013), without its failure
//! detector, and the views of group communication (Birman and Joseph, 1987).

use super::MAX_EPOCHS;
use super::ballot::{Ballot, View};
use crate::group::RankSet;
use crate::transport::Rank;

/// State of one rank in the agreement. Ranks have the transport's numbers.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    own: Rank,
    /// Ranks that take part, this one included.
    group: RankSet,
    context: u8,
    /// Epoch of the group that failed.
    failed: u16,
    /// Number of epochs from that one to the current one.
    n_epochs: u16,
    view: View,
    is_decided: bool,
    /// Members whose latest view equals this rank's.
    agreeing: RankSet,
    /// Ranks whose view of this epoch has arrived.
    heard: RankSet,
    /// Ranks to which this rank's view must be sent.
    owed: RankSet,
    /// The best of the groups that left this rank out.
    excluder: Option<Excluder>,
    n_changes: u32,
}

/// A rank whose view left this rank out, and its group.
#[derive(Clone, Copy, Debug)]
struct Excluder {
    rank: Rank,
    n_members: usize,
    /// True if `rank` left this rank out first: this rank's view still contained `rank` then.
    is_first: bool,
    /// Lowest rank of the group of `rank`.
    lowest: Option<Rank>,
}

impl Excluder {
    /// Returns whether the group of `rank` wins against a group with this size and lowest rank.
    fn is_better_than(&self, n_members: usize, lowest: Option<Rank>) -> bool {
        let wins_ties = self.is_first || self.lowest < lowest;
        self.n_members > n_members || self.n_members == n_members && wins_ties
    }
}

/// Result for the members of a view, once all of them have sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// They are a group.
    Group,
    /// A better group has left this rank out. The value is a member of that group.
    Excluded(Rank),
}

impl Agreement {
    /// Starts an agreement among `group`, which includes `own` and had this context and epoch.
    pub(super) fn new(own: Rank, group: RankSet, (context, failed): (u8, u16), n_tags: u8) -> Self {
        Self {
            own,
            group,
            context,
            failed,
            n_epochs: 1,
            view: View { members: group, n_tags },
            is_decided: false,
            agreeing: RankSet::EMPTY,
            heard: RankSet::EMPTY,
            owed: group.without(own),
            excluder: None,
            n_changes: 0,
        }
    }

    /// Returns the epoch of the group that is being formed.
    pub(super) const fn epoch(&self) -> u16 {
        self.failed.wrapping_add(self.n_epochs)
    }

    /// Returns whether other ranks would take this epoch for an earlier one.
    pub(super) const fn is_too_late(&self) -> bool {
        self.n_epochs > MAX_EPOCHS
    }

    /// Returns the fence to send to the members once the view is decided.
    pub(super) const fn fence(&self) -> Ballot {
        Ballot { context: self.context, epoch: self.epoch(), view: self.view, heard: true }
    }

    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// Returns a member's rank in the group that failed.
    pub(super) fn former_rank(&self, rank: Rank) -> Rank {
        self.group.member(rank).unwrap_or(rank)
    }

    /// Returns all ranks that take part, except this one.
    pub(super) fn others(&self) -> RankSet {
        self.group.without(self.own)
    }

    pub(super) const fn is_decided(&self) -> bool {
        self.is_decided
    }

    /// Returns a number that rises with each change that other ranks must answer.
    pub(super) const fn n_changes(&self) -> u32 {
        self.n_changes
    }

    /// Returns the ranks to which [`ballot`](Self::ballot) must be sent.
    pub(super) const fn owed(&self) -> RankSet {
        self.owed
    }

    /// Returns the ballot to send to `to`.
    pub(super) fn ballot(&self, to: Rank) -> Ballot {
        Ballot {
            context: self.context,
            epoch: self.epoch(),
            view: self.view,
            heard: self.heard.contains(to),
        }
    }

    /// Records that the ballot to `to` was sent, or can never be sent.
    pub(super) fn settle(&mut self, to: Rank) {
        self.owed.remove(to);
    }

    /// Returns the ballot by which this rank leaves the others: its view has all members except
    /// itself. A rank that has decided sends it in the next epoch, because others may have finished
    /// the current epoch, and may be making calls.
    pub(super) fn farewell(&self) -> Ballot {
        let members = self.view.members.without(self.own);
        let epoch = self.epoch().wrapping_add(u16::from(self.is_decided));
        let view = View { members, ..self.view };
        Ballot { context: self.context, epoch, view, heard: true }
    }

    /// Processes a ballot of another rank.
    pub(super) fn hear(&mut self, from: Rank, ballot: &Ballot) {
        if !self.others().contains(from) || ballot.context != self.context {
            return;
        }
        let n_epochs = ballot.epoch.wrapping_sub(self.failed);
        let is_later = n_epochs > self.n_epochs && n_epochs <= MAX_EPOCHS;
        if is_later {
            self.go_on_to(n_epochs);
        }
        if !ballot.heard {
            // The sender may have received this rank's view while it was still in a call, where a
            // view only ends the call; see `engine/notices.rs`.
            self.owed.insert(from);
        }
        if n_epochs != self.n_epochs {
            return;
        }
        self.heard.insert(from);
        let theirs = &ballot.view.members;
        let leaves = !theirs.contains(from);
        let excludes_own = !leaves && !theirs.contains(self.own);
        if excludes_own {
            let (n_members, lowest) = (theirs.len(), theirs.nth(0));
            let is_first = self.view.members.contains(from);
            let excluder = Excluder { rank: from, n_members, is_first, lowest };
            if self.excluder.is_none_or(|known| !known.is_better_than(n_members, lowest)) {
                self.excluder = Some(excluder);
            }
        }
        if leaves || excludes_own {
            return self.remove(from);
        }
        if !self.view.members.contains(from) {
            return;
        }
        let members = self.view.members.and(theirs);
        let n_tags = self.view.n_tags.max(ballot.view.n_tags);
        self.set(View { members, n_tags });
        // The decided view may just have been given up for another epoch, in which `from` has sent
        // nothing yet.
        if (self.n_epochs, self.view) == (n_epochs, ballot.view) {
            self.agreeing.insert(from);
        }
    }

    /// Leaves out a rank.
    pub(super) fn remove(&mut self, rank: Rank) {
        let members = self.view.members.without(rank);
        self.set(View { members, ..self.view });
    }

    /// Leaves out all ranks that have not answered.
    pub(super) fn remove_silent(&mut self) {
        let mut members = self.agreeing;
        members.insert(self.own);
        self.set(View { members, ..self.view });
    }

    /// Decides, if every member has sent this rank's view.
    pub(super) fn decide(&mut self) -> Option<Decision> {
        let members = &self.view.members;
        if self.agreeing != members.without(self.own) {
            return None;
        }
        match self.excluder {
            Some(theirs) if theirs.is_better_than(members.len(), members.nth(0)) => {
                Some(Decision::Excluded(theirs.rank))
            }
            _ => {
                self.is_decided = true;
                Some(Decision::Group)
            }
        }
    }

    /// Goes on to the next epoch with the same view. Other ranks follow when they receive the
    /// ballot.
    pub(super) fn go_on(&mut self) {
        self.go_on_to(self.n_epochs.saturating_add(1));
    }

    fn go_on_to(&mut self, n_epochs: u16) {
        self.n_epochs = n_epochs;
        self.is_decided = false;
        self.heard = RankSet::EMPTY;
        self.changed();
    }

    /// Changes the view. A decided view is given up for another epoch.
    fn set(&mut self, view: View) {
        if view == self.view {
            return;
        }
        self.view = view;
        if self.is_decided {
            self.go_on();
        } else {
            self.changed();
        }
    }

    /// Requires new answers from all ranks. Ranks that are left out must be notified as well.
    fn changed(&mut self) {
        self.agreeing = RankSet::EMPTY;
        self.owed = self.others();
        self.n_changes = self.n_changes.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
