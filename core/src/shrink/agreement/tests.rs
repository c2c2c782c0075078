//! Agreement of whole groups over a network in memory. A seed decides what happens next.
//!
//! The parent module explains the protocol. In short: a *view* is the set of ranks that a rank
//! counts as survivors. A *ballot* is a message with the sender's view; its flag `heard` says that
//! the sender has a ballot of this epoch from the receiver. A rank *decides* its view when every
//! member has sent the same view. It then sends each member a *fence*, and finishes when it has all
//! members' fences. If that fails, it goes on to the next *epoch*.
//!
//! The tests start with `Agreement::new(rank, group, (0, 0), n_tags)`: context 0, and epoch 0 as
//! the epoch of the group that failed. So the first agreement is about epoch 1.

use super::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a few of them, in a test")]
enum RankOutcome {
    Busy,
    Done(u16, View),
    Excluded,
    Dead,
}

struct SimulatedRank {
    agreement: Agreement,
    /// Ranks whose fence of this epoch has arrived.
    fences: RankSet,
    outcome: RankOutcome,
}

/// Ranks, and links that keep the order of messages. A seed decides what happens next.
struct Network {
    random: Random,
    ranks: Vec<SimulatedRank>,
    /// The link from a to b is at a · size + b.
    ballots: Vec<VecDeque<Ballot>>,
    fences: Vec<VecDeque<(u16, View)>>,
}

impl Network {
    fn new(seed: u64, size: usize) -> Self {
        let all = RankSet::first(size);
        let node = |rank| SimulatedRank {
            agreement: Agreement::new(Rank::new(rank), all, (0, 0), (rank % 3) as u8),
            fences: RankSet::EMPTY,
            outcome: RankOutcome::Busy,
        };
        Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            ranks: (0..size).map(node).collect(),
            ballots: vec![VecDeque::new(); size * size],
            fences: vec![VecDeque::new(); size * size],
        }
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn is_busy(&self, rank: usize) -> bool {
        self.ranks[rank].outcome == RankOutcome::Busy
    }

    /// Changes a rank's agreement. In a new epoch, the fences that it received no longer count.
    fn touch(&mut self, rank: usize, act: impl FnOnce(&mut Agreement)) {
        let node = &mut self.ranks[rank];
        let epoch = node.agreement.epoch();
        act(&mut node.agreement);
        if node.agreement.epoch() != epoch {
            node.fences = RankSet::EMPTY;
        }
    }

    /// Lets a rank send the ballots that it owes, and decide if it can. A rank that decides for a
    /// group sends fences.
    fn speak(&mut self, rank: usize) {
        let (size, agreement) = (self.size(), &mut self.ranks[rank].agreement);
        for to in agreement.owed().iter() {
            self.ballots[rank * size + to.index()].push_back(agreement.ballot(to));
            agreement.settle(to);
        }
        if agreement.is_decided() {
            return;
        }
        match agreement.decide() {
            None => {}
            Some(Decision::Excluded(_)) => self.ranks[rank].outcome = RankOutcome::Excluded,
            Some(Decision::Group) => {
                let fence = (agreement.epoch(), *agreement.view());
                for to in fence.1.members.without(Rank::new(rank)).iter() {
                    self.fences[rank * size + to.index()].push_back(fence);
                }
            }
        }
    }

    /// Delivers the oldest ballot. If the receiver has decided for a group with the sender, also
    /// delivers the oldest fence.
    fn deliver(&mut self, from: usize, to: usize) {
        let link = from * self.size() + to;
        if let Some(ballot) = self.ballots[link].pop_front() {
            self.touch(to, |agreement| agreement.hear(Rank::new(from), &ballot));
        }
        let node = &mut self.ranks[to];
        if node.agreement.is_decided()
            && node.agreement.view().members.contains(Rank::new(from))
            && let Some((epoch, view)) = self.fences[link].pop_front()
        {
            assert!(epoch <= node.agreement.epoch(), "a fence of an epoch to come");
            if epoch == node.agreement.epoch() {
                assert_eq!(view, *node.agreement.view(), "a fence of another group");
                node.fences.insert(Rank::new(from));
            }
        }
    }

    fn finish(&mut self, rank: usize) {
        let node = &mut self.ranks[rank];
        let agreement = &node.agreement;
        let needed = agreement.view().members.without(Rank::new(rank));
        if agreement.is_decided() && node.fences == needed {
            node.outcome = RankOutcome::Done(agreement.epoch(), *agreement.view());
        }
    }

    /// Lets a random rank send, and receive from another one. With `chaos` = n, it also has random
    /// failures: with probability 1/n it dies, with 2/n it runs out of patience, and with 1/n it
    /// takes a random rank for lost.
    fn step(&mut self, chaos: Option<usize>) {
        let size = self.size();
        let (rank, from) = (self.random.below(size), self.random.below(size));
        if !self.is_busy(rank) {
            return;
        }
        self.speak(rank);
        if !self.is_busy(rank) {
            return;
        }
        self.deliver(from, rank);
        match chaos.map(|one_in| self.random.below(one_in)) {
            Some(0) => return self.ranks[rank].outcome = RankOutcome::Dead,
            Some(1 | 2) => self.run_out_of_patience(rank),
            Some(3) => {
                let lost = self.random.below(size);
                if lost != rank {
                    self.touch(rank, |agreement| agreement.remove(Rank::new(lost)));
                }
            }
            _ => {}
        }
        self.finish(rank);
    }

    fn run_out_of_patience(&mut self, rank: usize) {
        self.touch(rank, |agreement| {
            if agreement.is_decided() {
                agreement.go_on();
            } else {
                agreement.remove_silent();
            }
        });
    }

    fn groups(&self) -> Vec<(usize, u16, View)> {
        let done = |(rank, node): (usize, &SimulatedRank)| match node.outcome {
            RankOutcome::Done(epoch, view) => Some((rank, epoch, view)),
            _ => None,
        };
        self.ranks.iter().enumerate().filter_map(done).collect()
    }

    /// Checks what must hold at any time.
    fn check(&self, seed: u64) {
        let groups = self.groups();
        for &(a, epoch, ours) in &groups {
            assert!(ours.members.contains(Rank::new(a)), "seed {seed}");
            for &(b, other_epoch, theirs) in &groups {
                let disjoint = ours.members.and(&theirs.members) == RankSet::EMPTY;
                let apart = epoch != other_epoch || disjoint || ours == theirs;
                assert!(apart, "seed {seed}: rank {a} has {ours:?}, rank {b} has {theirs:?}");
            }
        }
    }
}

#[test]
fn groups_of_an_epoch_are_equal_or_disjoint_whatever_happens() {
    let (mut n_groups, mut n_partial) = (0, 0);
    for seed in 0..6000 {
        let size = 2 + seed as usize % 6;
        let mut network = Network::new(seed, size);
        for _ in 0..600 {
            network.step(Some(8 + seed as usize % 90));
        }
        network.check(seed);
        let groups = network.groups();
        n_groups += groups.len();
        n_partial += groups.iter().filter(|(.., v)| (2..size).contains(&v.members.len())).count();
    }
    // The test is about groups that form in spite of failures.
    assert!(n_groups > 5000 && n_partial > 500, "{n_groups} groups, {n_partial} of some");
}

#[test]
fn without_failures_all_agree_on_all() {
    for seed in 0..300 {
        let size = 1 + seed as usize % 8;
        let mut network = Network::new(seed, size);
        for _ in 0..200 * size * size {
            network.step(None);
        }
        let all = View { members: RankSet::first(size), n_tags: (size.min(3) - 1) as u8 };
        let groups = network.groups();
        assert_eq!(groups.len(), size, "seed {seed}");
        assert!(groups.iter().all(|&(_, epoch, view)| (epoch, view) == (1, all)), "{groups:?}");
    }
}

#[test]
fn survivors_end_in_one_group_and_know_it_whenever_the_others_die() {
    for seed in 0..600 {
        let size = 3 + seed as usize % 6;
        let mut network = Network::new(seed, size);
        let n_lost = 1 + network.random.below(size - 1);
        let lost: Vec<usize> = (0..n_lost).map(|_| network.random.below(size)).collect();
        let dies_first = seed % 2 == 0;
        for _ in 0..if dies_first { 0 } else { network.random.below(20 * size) } {
            network.step(None);
        }
        // A rank that has finished has its group already, so its death changes nothing.
        for &rank in &lost {
            if network.is_busy(rank) {
                network.ranks[rank].outcome = RankOutcome::Dead;
            }
        }
        for _ in 0..2 * size {
            for _ in 0..200 * size * size {
                network.step(None);
            }
            for rank in 0..size {
                if network.is_busy(rank) {
                    network.run_out_of_patience(rank);
                }
            }
        }
        network.check(seed);
        let outcomes: Vec<RankOutcome> = network.ranks.iter().map(|node| node.outcome).collect();
        assert!(!outcomes.contains(&RankOutcome::Busy), "seed {seed}: {outcomes:?}");
        if dies_first {
            let alive = |rank: &usize| !lost.contains(rank);
            let groups = network.groups();
            assert!(groups.iter().map(|group| group.0).eq((0..size).filter(alive)), "{seed}");
            for (_, _, view) in groups {
                assert!(view.members.iter().map(Rank::index).eq((0..size).filter(alive)));
            }
        }
    }
}

#[test]
fn a_late_rank_is_excluded_and_not_a_group_of_its_own() {
    let all = RankSet::first(3);
    let mut late = Agreement::new(Rank(0), all, (0, 0), 1);
    for from in [Rank(1), Rank(2)] {
        let members = all.without(Rank(0));
        let ballot =
            Ballot { context: 0, epoch: 1, view: View { members, n_tags: 1 }, heard: false };
        assert_eq!(late.decide(), None);
        late.hear(from, &ballot);
    }
    assert!(matches!(late.decide(), Some(Decision::Excluded(Rank(1 | 2)))));
    // Also if the groups have equal sizes.
    let mut late = Agreement::new(Rank(0), RankSet::first(2), (0, 0), 1);
    let members = RankSet::first(2).without(Rank(0));
    late.hear(
        Rank(1),
        &Ballot { context: 0, epoch: 1, view: View { members, n_tags: 1 }, heard: false },
    );
    assert_eq!(late.decide(), Some(Decision::Excluded(Rank(1))));
}

#[test]
fn an_impatient_rank_excludes_itself() {
    let all = RankSet::first(4);
    let mut alone = RankSet::EMPTY;
    alone.insert(Rank(3));
    let mut patient = Agreement::new(Rank(0), all, (0, 0), 1);
    let ballot =
        Ballot { context: 0, epoch: 1, view: View { members: alone, n_tags: 1 }, heard: false };
    patient.hear(Rank(3), &ballot);
    let three = View { members: RankSet::first(3), n_tags: 1 };
    for from in [Rank(1), Rank(2)] {
        patient.hear(from, &Ballot { context: 0, epoch: 1, view: three, heard: true });
    }
    assert_eq!(patient.decide(), Some(Decision::Group));
    let mut impatient = Agreement::new(Rank(3), all, (0, 0), 1);
    impatient.remove_silent();
    impatient.hear(Rank(0), &Ballot { context: 0, epoch: 1, view: three, heard: true });
    assert_eq!(impatient.decide(), Some(Decision::Excluded(Rank(0))));
}

/// Returns the ballot of epoch 1 for these members.
fn ballot(members: &[u32]) -> Ballot {
    let mut set = RankSet::EMPTY;
    members.iter().for_each(|&rank| set.insert(Rank(rank)));
    Ballot { context: 0, epoch: 1, view: View { members: set, n_tags: 1 }, heard: true }
}

#[test]
fn of_groups_that_left_a_rank_out_the_largest_counts_whoever_is_heard_first() {
    let (alone, three) = ((Rank(5), ballot(&[5])), (Rank(4), ballot(&[2, 3, 4])));
    for heard in [[alone, three], [three, alone]] {
        let mut agreement = Agreement::new(Rank(0), RankSet::first(6), (0, 0), 1);
        for (from, theirs) in heard {
            agreement.hear(from, &theirs);
        }
        agreement.hear(Rank(2), &three.1);
        agreement.hear(Rank(3), &three.1);
        agreement.hear(Rank(1), &ballot(&[0, 1]));
        assert!(matches!(agreement.decide(), Some(Decision::Excluded(Rank(2..=4)))));
    }
}

#[test]
fn of_equal_groups_that_left_each_other_out_the_one_without_the_lowest_rank_is_excluded() {
    // A rank, its group, a rank that it leaves out, that rank's group, and whether the first rank
    // is excluded.
    for (own, ours, other, theirs, is_excluded) in [
        (0, &[0][..], 1, &[1][..], false),
        (1, &[1], 0, &[0], true),
        (1, &[1, 2], 3, &[0, 3], true),
        // Both groups have the lowest rank, so neither is excluded.
        (1, &[0, 1], 2, &[0, 2], false),
    ] {
        let mut agreement = Agreement::new(Rank(own), RankSet::first(4), (0, 0), 1);
        let leaves_out: Vec<u32> = (0..4).filter(|rank| !ours.contains(rank)).collect();
        leaves_out.iter().for_each(|&rank| agreement.remove(Rank(rank)));
        agreement.hear(Rank(other), &ballot(theirs));
        for &member in ours.iter().filter(|&&member| member != own) {
            agreement.hear(Rank(member), &ballot(ours));
        }
        let excluded = Decision::Excluded(Rank(other));
        let expected = if is_excluded { excluded } else { Decision::Group };
        assert_eq!(agreement.decide(), Some(expected), "{ours:?} beside {theirs:?}");
    }
}

/// Returns the agreement of rank 0 of three, which has decided for all of them in epoch 1.
fn decided() -> Agreement {
    let all = View { members: RankSet::first(3), n_tags: 1 };
    let mut agreement = Agreement::new(Rank(0), all.members, (0, 0), 1);
    for from in [Rank(1), Rank(2)] {
        agreement.hear(from, &Ballot { context: 0, epoch: 1, view: all, heard: true });
    }
    assert_eq!(agreement.decide(), Some(Decision::Group));
    agreement
}

#[test]
fn a_ballot_is_not_counted_in_the_epoch_after_its_own() {
    let mut agreement = decided();
    let two = View { members: RankSet::first(2), n_tags: 1 };
    // Rank 1 now leaves out rank 2. So the decision does not hold, and rank 1 must send this view
    // again in the next epoch.
    agreement.hear(Rank(1), &Ballot { context: 0, epoch: 1, view: two, heard: true });
    assert_eq!((agreement.epoch(), *agreement.view()), (2, two));
    assert_eq!(agreement.decide(), None);
    agreement.hear(Rank(1), &Ballot { context: 0, epoch: 2, view: two, heard: true });
    assert_eq!(agreement.decide(), Some(Decision::Group));
}

#[test]
fn a_ballot_of_an_earlier_epoch_changes_nothing_but_is_answered() {
    let mut agreement = decided();
    agreement.go_on();
    (0..3).for_each(|rank| agreement.settle(Rank(rank)));
    let before = agreement.clone();
    let all = *agreement.view();
    // Rank 1 leaves out rank 2, or this rank, or leaves; or it counts more tags, or agrees.
    for members in [RankSet::first(2), all.members.without(Rank(0)), all.members.without(Rank(1))] {
        for (members, n_tags) in [(members, 1), (all.members, 8), (all.members, 1)] {
            // Some of these epochs would count as later ones, if they were not counted from the
            // epoch of the group that failed.
            for epoch in [1, 0, u16::MAX, MAX_EPOCHS + 1] {
                let view = View { members, n_tags };
                let ballot = Ballot { context: 0, epoch, view, heard: true };
                agreement.hear(Rank(1), &ballot);
                assert_eq!((agreement.epoch(), *agreement.view()), (2, all), "{ballot:?}");
                assert_eq!(agreement.owed(), RankSet::EMPTY);
                assert_eq!(agreement.n_changes(), before.n_changes());
            }
        }
    }
    let again = Ballot { context: 0, epoch: 1, view: all, heard: false };
    agreement.hear(Rank(1), &again);
    assert!(agreement.owed().contains(Rank(1)) && !agreement.owed().contains(Rank(2)));
    // Ballots of the epoch itself still count.
    for from in [Rank(1), Rank(2)] {
        assert_eq!(agreement.decide(), None);
        agreement.hear(from, &Ballot { epoch: 2, heard: true, ..again });
    }
    assert_eq!(agreement.decide(), Some(Decision::Group));
    // A ballot of another communicator is ignored.
    agreement.hear(Rank(1), &Ballot { context: 1, epoch: 9, ..again });
    assert_eq!((agreement.epoch(), agreement.is_decided()), (2, true));
}

#[test]
fn epochs_are_counted_from_the_group_that_failed_and_wrap() {
    let all = View { members: RankSet::first(2), n_tags: 1 };
    let of = |epoch| Ballot { context: 0, epoch, view: all, heard: true };
    for failed in [0, 1, MAX_EPOCHS, u16::MAX - 1, u16::MAX] {
        let mut agreement = Agreement::new(Rank(0), all.members, (0, failed), 1);
        assert_eq!(agreement.epoch(), failed.wrapping_add(1));
        for n in [2, 3, 1, MAX_EPOCHS] {
            let latest = agreement.epoch().wrapping_sub(failed).max(n);
            agreement.hear(Rank(1), &of(failed.wrapping_add(n)));
            assert_eq!(agreement.epoch(), failed.wrapping_add(latest));
        }
        for earlier in [MAX_EPOCHS + 1, u16::MAX, 0] {
            agreement.hear(Rank(1), &of(failed.wrapping_add(earlier)));
            assert_eq!(agreement.epoch(), failed.wrapping_add(MAX_EPOCHS));
        }
        assert!(!agreement.is_too_late());
        agreement.go_on();
        assert!(agreement.is_too_late());
    }
}

#[test]
fn who_leaves_after_the_decision_is_missed_in_the_next_epoch() {
    let all = View { members: RankSet::first(3), n_tags: 1 };
    let farewell = decided().farewell();
    assert_eq!((farewell.epoch, farewell.view.members), (2, all.members.without(Rank(0))));
    // It does not matter whether another member has decided.
    let mut undecided = Agreement::new(Rank(1), all.members, (0, 0), 1);
    let mut fencing = undecided.clone();
    for from in [Rank(0), Rank(2)] {
        fencing.hear(from, &Ballot { context: 0, epoch: 1, view: all, heard: true });
    }
    assert_eq!(fencing.decide(), Some(Decision::Group));
    for agreement in [&mut undecided, &mut fencing] {
        agreement.hear(Rank(0), &farewell);
        assert!(!agreement.is_decided());
        assert_eq!((agreement.epoch(), *agreement.view()), (2, farewell.view));
    }
    // Before the decision no rank can have finished.
    let leaves_early = Agreement::new(Rank(0), all.members, (0, 0), 1);
    assert_eq!(leaves_early.farewell().epoch, 1);
}
