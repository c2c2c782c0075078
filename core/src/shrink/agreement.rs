//! How ranks agree on who survived: a state machine without clock and network.
//!
//! Each rank has a *view*: the ranks that it counts in. It starts with the whole group, sends its
//! view to all, and takes over what others leave out, so views only shrink. A rank is left out when
//! its transport says that it is lost, or when it has not answered in time. A view that changes is
//! sent again. When every member of its view has sent that very view, a rank *decides* it; the
//! caller then sends a fence to each member, and waits for theirs.
//!
//! *Epochs.* A rank decides once in an epoch, and keeps its view from then on. If something fails
//! after that, it goes on to the next epoch, and takes all with it that hear of it. Epochs wrap, so
//! a rank counts them from that of the group that failed: up to [`MAX_EPOCHS`] after it are later,
//! and all others are earlier.
//!
//! *Why no two groups overlap.* A rank is done in epoch e with members S only after a fence (e, S)
//! of each member, which that member sends only after it decided (e, S), which it does once. So if
//! one rank is done with (e, S), no member of S is ever done with (e, S′). Groups of other epochs
//! are told apart by the epoch in each header.
//!
//! *Who is wrong when two leave each other out?* Whoever left out the other is left out in return.
//! At the end, a rank that was left out by a larger group than its own is the one that was
//! excluded. Of equal ones, it is the one that left out the other in return only, or else that
//! without the lowest rank.
//!
//! Source: after the agreement and shrink of ULFM (Bland et al., 2013), without its failure
//! detector, and the views of group communication (Birman and Joseph, 1987).

use super::MAX_EPOCHS;
use super::ballot::{Ballot, View};
use crate::group::RankSet;
use crate::transport::Rank;

/// One rank's part in the agreement. Ranks are the transport's.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    own: Rank,
    /// Who is asked.
    group: RankSet,
    context: u8,
    /// Of the group that failed.
    failed: u16,
    /// How many epochs after that.
    n_epochs: u16,
    view: View,
    is_decided: bool,
    /// Members whose latest view is ours.
    agreeing: RankSet,
    /// Whose view of this epoch has come.
    heard: RankSet,
    /// To whom our view must be sent.
    owed: RankSet,
    /// The best group that left this rank out.
    excluder: Option<Excluder>,
    n_changes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Excluder {
    rank: Rank,
    n_members: usize,
    /// We had no reason of our own to leave it out.
    is_first: bool,
    lowest: Option<Rank>,
}

impl Excluder {
    fn is_better_than(&self, n_members: usize, lowest: Option<Rank>) -> bool {
        let wins_ties = self.is_first || self.lowest < lowest;
        self.n_members > n_members || self.n_members == n_members && wins_ties
    }
}

/// What the members of a view have in common once all of them sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// They are a group.
    Group,
    /// They are what is left beside a better group, that of this rank.
    Excluded(Rank),
}

impl Agreement {
    /// Among `group`, `own` included, which was the group of this context and epoch.
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

    /// Of the group that is being formed.
    pub(super) const fn epoch(&self) -> u16 {
        self.failed.wrapping_add(self.n_epochs)
    }

    /// Whether others would take this epoch for an earlier one.
    pub(super) const fn is_too_late(&self) -> bool {
        self.n_epochs > MAX_EPOCHS
    }

    /// What its members are sent once it is decided.
    pub(super) const fn fence(&self) -> Ballot {
        Ballot { context: self.context, epoch: self.epoch(), view: self.view, heard: true }
    }

    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// All that are asked, but this rank.
    pub(super) fn others(&self) -> RankSet {
        self.group.without(self.own)
    }

    pub(super) const fn is_decided(&self) -> bool {
        self.is_decided
    }

    /// Rises with each change that others must answer.
    pub(super) const fn n_changes(&self) -> u32 {
        self.n_changes
    }

    /// To whom [`ballot`](Self::ballot) must be sent.
    pub(super) const fn owed(&self) -> RankSet {
        self.owed
    }

    /// What to send to `to`.
    pub(super) fn ballot(&self, to: Rank) -> Ballot {
        Ballot {
            context: self.context,
            epoch: self.epoch(),
            view: self.view,
            heard: self.heard.contains(to),
        }
    }

    /// The ballot was sent, or cannot be.
    pub(super) fn settle(&mut self, to: Rank) {
        self.owed.remove(to);
    }

    /// A ballot for those that this rank leaves: it counts in everybody but itself. Who has decided
    /// says so in the next epoch, since others may be done with this one, and call.
    pub(super) fn farewell(&self) -> Ballot {
        let members = self.view.members.without(self.own);
        let epoch = self.epoch().wrapping_add(u16::from(self.is_decided));
        let view = View { members, ..self.view };
        Ballot { context: self.context, epoch, view, heard: true }
    }

    /// Takes in another's ballot.
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
            // Ours may have been taken for an abort notice; see `engine/notices.rs`.
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
        // What was decided may just have been given up for another epoch, in which `from` has said
        // nothing yet.
        if (self.n_epochs, self.view) == (n_epochs, ballot.view) {
            self.agreeing.insert(from);
        }
    }

    /// Leaves a rank out.
    pub(super) fn remove(&mut self, rank: Rank) {
        let members = self.view.members.without(rank);
        self.set(View { members, ..self.view });
    }

    /// Leaves out all that have not answered.
    pub(super) fn remove_silent(&mut self) {
        let mut members = self.agreeing;
        members.insert(self.own);
        self.set(View { members, ..self.view });
    }

    /// Decides, if every member has sent our view.
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

    /// Takes everybody to the next epoch, with the view as it is.
    pub(super) fn go_on(&mut self) {
        self.go_on_to(self.n_epochs.saturating_add(1));
    }

    fn go_on_to(&mut self, n_epochs: u16) {
        self.n_epochs = n_epochs;
        self.is_decided = false;
        self.heard = RankSet::EMPTY;
        self.changed();
    }

    /// Changes the view; what was decided is given up for another epoch.
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

    /// All must answer anew; also those left out must hear of it.
    fn changed(&mut self) {
        self.agreeing = RankSet::EMPTY;
        self.owed = self.others();
        self.n_changes = self.n_changes.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
