//! Recursive halving and doubling: reduce-scatter, all-gather and all-reduce between pairs of
//! ranks, in ⌈log₂ n⌉ rounds each, with as few bytes as a ring if n is a power of two.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! The array is cut into n parts for n ranks; part p belongs to rank p. Let c be the largest power
//! of two that is not above n. If n > c, the first 2·(n − c) ranks pair up as in [recursive
//! doubling](super::RecursiveDoubling): each even rank is the *guest* of the odd rank after it, its
//! *host*. The c ranks that are no guests are the *core*, numbered 0..c.
//!
//! *Reduce-scatter.* In round k = 0..log₂ c, the core ranks form groups of c/2ᵏ consecutive ranks,
//! and each rank has sums of its group's parts. A rank is in one half of its group. Its *partner*
//! is the rank at the same position in the other half. The rank sends the sums of the other half's
//! parts to its partner, and adds what it receives to the sums of its own half's parts. At the end
//! it has the sum of its own part, and of its guest's part if it has a guest. Guests send all their
//! input to their hosts first, half by half, and receive the sum of their part last.
//!
//! *All-gather.* The reverse: each rank sends all its parts to its partner, and puts the received
//! parts behind or before them. Guests send their part first, and receive all parts half by half.
//!
//! *All-reduce.* Both, one after the other. Guests receive nothing in between.
//!
//! Ranks in upper halves keep the last parts of their holding, so they send the first parts
//! ([`Step::at_front`]). Ranks in lower halves send the last parts.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced. If n is no
//! power of two the costs are upper limits. Messages have up to half of the parts, or up to c parts
//! if there are guests.
//!
//! | collective | n = 2ᵏ | other n |
//! |---|---|---|
//! | reduce-scatter | log₂ n·α + (n − 1)/n·m·(β + γ) | (⌊log₂ n⌋ + 3)·α + 2m·(β + γ) |
//! | all-gather | log₂ n·α + (n − 1)/n·m·β | (⌊log₂ n⌋ + 3)·α + 12/5·m·β |
//! | all-reduce | both | (2⌊log₂ n⌋ + 4)·α + 22/5·m·β + 2m·γ |
//!
//! Among 2ᵏ ranks the costs equal a [circulant graph](super::Circulant)'s. But each rank receives
//! from the same ranks that it sends to, so it has half as many neighbours.
//!
//! Source: R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; R.
//! Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in
//! MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), §4.

use super::recursive_doubling::{CoreAndGuests, GuestRole};
use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// All-reduce, reduce-scatter and all-gather that exchange halves.
#[derive(Clone, Copy, Debug)]
pub struct RecursiveHalving;

impl Schedule for RecursiveHalving {
    fn name(&self) -> &'static str {
        "recursive-halving"
    }

    fn supports(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather
        )
    }

    fn min_run(&self, call: ProgramSpec) -> usize {
        let group = CoreAndGuests::new(call.size);
        group.first_part((1 << group.n_rounds()) / 2).max(1)
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        if call.size == 1 {
            return 1;
        }
        let (member, is_guest) = CoreRank::of(call, rank);
        match call.collective {
            collective if !is_guest => member.n_steps(collective),
            Collective::AllReduce => 4,
            _ => 3,
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // All ranks except one send their partial sum of a part once. The last rank has the
        // complete sum. It sends the sum on in an all-reduce, or if the part is its guest's.
        let n = call.size as u64;
        match call.collective {
            Collective::AllReduce if n > 1 => n,
            Collective::ReduceScatter => n - u64::from(n.is_power_of_two()),
            _ => 0,
        }
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        if call.size == 1 {
            return Step::own(Part::new(0)).store();
        }
        let (member, is_guest) = CoreRank::of(call, rank);
        if is_guest {
            return guest_step(call, &member, rank, index);
        }
        match call.collective {
            Collective::ReduceScatter => member.reduce_scatter(index),
            Collective::AllGather => member.all_gather(index),
            _ => member.all_reduce(index),
        }
    }
}

/// Step `index` of a guest: send the input, receive the result. All parts travel in two messages,
/// one for each half of the host's first round, so that the host never holds both halves.
fn guest_step(call: ProgramSpec, host: &CoreRank, rank: Rank, index: usize) -> Step {
    let own = Part::new(rank.index());
    let to = host.group.core_rank(host.number);
    let (_, is_upper) = host.partner(0);
    let from = |part| Step::receive(part, to);
    match (call.collective, index) {
        (Collective::AllGather, 0) => Step::own(own).to(to),
        (Collective::ReduceScatter, 2) => from(own).store(),
        (Collective::AllGather, 1) | (Collective::AllReduce, 2) => {
            host.half(0, is_upper, from).store()
        }
        (Collective::AllGather, _) | (Collective::AllReduce, 3) => {
            host.half(0, !is_upper, from).store()
        }
        (_, 0) => host.half(0, !is_upper, Step::own).to(to),
        _ => host.half(0, is_upper, Step::own).to(to),
    }
}

/// A core rank.
struct CoreRank {
    group: CoreAndGuests,
    number: usize,
    guest: Option<Rank>,
}

impl CoreRank {
    /// Returns the core rank that `rank` is, or the host of `rank` if `rank` is a guest. The flag
    /// says whether `rank` is a guest.
    fn of(call: ProgramSpec, rank: Rank) -> (Self, bool) {
        let group = CoreAndGuests::new(call.size);
        match group.role(rank) {
            GuestRole::Guest { host } => {
                (Self { number: host.index() / 2, guest: Some(rank), group }, true)
            }
            GuestRole::Core { number, guest } => (Self { number, guest, group }, false),
        }
    }

    fn n_steps(&self, collective: Collective) -> usize {
        let (n_moves, n_guests) = (2 * self.group.n_rounds(), usize::from(self.guest.is_some()));
        match collective {
            // A host has three more steps: it receives one half of its guest's input (the other
            // half arrives in the step of the first send), sends the guest's part, and stores its
            // own part.
            Collective::ReduceScatter => n_moves + 3 * n_guests,
            // A host has two more steps: it receives its guest's part first, and sends one half of
            // all parts to its guest. The other half leaves in the last step of the last round.
            Collective::AllGather => usize::from(self.takes()) + n_moves + 2 * n_guests,
            // The step that completes a part also sends it.
            _ => 2 * n_moves - 1 + 2 * n_guests,
        }
    }

    /// Step `index` of the reduce-scatter: a send and an addition in each round.
    fn reduce_scatter(&self, index: usize) -> Step {
        let (n_moves, hosting) = (2 * self.group.n_rounds(), usize::from(self.guest.is_some()));
        if let Some(guest) = self.guest {
            let (partner, is_upper) = self.partner(0);
            let received = |upper| self.half(0, upper, |part| Step::receive(part, guest)).reduce();
            match index.checked_sub(1 + n_moves) {
                _ if index == 0 => return received(!is_upper).to(partner),
                _ if index == 1 => return received(is_upper).keep(),
                Some(0) => return Step::own(Part::new(guest.index())).at_front().to(guest),
                Some(_) => return Step::own(self.own()).store(),
                None => {}
            }
        }
        let index = index - hosting;
        let round = index / 2;
        let (partner, is_upper) = self.partner(round);
        if index.is_multiple_of(2) {
            let step = self.half(round, !is_upper, Step::own).to(partner);
            return if is_upper { step.at_front() } else { step };
        }
        let received = self.half(round, is_upper, |part| Step::receive(part, partner));
        let step =
            if round == 0 && hosting == 0 { received.reduce_local() } else { received.reduce() };
        if index + 1 == n_moves && hosting == 0 { step.store() } else { step.keep() }
    }

    /// Step `index` of the all-gather: take the rank's own part, then a send and a store in each
    /// round.
    fn all_gather(&self, index: usize) -> Step {
        let n_rounds = self.group.n_rounds();
        let index = match self.guest {
            Some(guest) if index == 0 => {
                return Step::receive(Part::new(guest.index()), guest).keep();
            }
            Some(_) => index - 1,
            None => index,
        };
        let takes = self.takes();
        if takes && index == 0 {
            return Step::own(self.own()).keep();
        }
        let index = index - usize::from(takes);
        let round = n_rounds - 1 - (index / 2).min(n_rounds - 1);
        // In the last round the guest receives both halves.
        let guest = self.guest.filter(|_| index + 1 >= 2 * n_rounds);
        let (partner, is_upper) = self.partner(round);
        if let Some(guest) = guest {
            let own_half = self.half(0, is_upper, Step::own).to(guest);
            let other = self.half(0, !is_upper, |part| Step::receive(part, partner)).store();
            return if index == 2 * n_rounds - 1 { own_half } else { other.to(guest) };
        }
        let step = if index.is_multiple_of(2) {
            let sent = self.half(round, is_upper, Step::own).to(partner);
            if index == 0 { sent.store() } else { sent }
        } else {
            let received = self.half(round, !is_upper, |part| Step::receive(part, partner)).store();
            if is_upper && round > 0 { received.at_front() } else { received }
        };
        if round > 0 || self.guest.is_some() { step.keep() } else { step }
    }

    fn all_reduce(&self, index: usize) -> Step {
        let hosting = usize::from(self.guest.is_some());
        let completion = hosting + 2 * self.group.n_rounds() - 1;
        if index < completion {
            return self.reduce_scatter(index);
        }
        // This step completes the sum and is the first send of the all-gather.
        let n_before = hosting + usize::from(self.takes());
        let first = self.all_gather(index - completion + n_before);
        if index > completion {
            return first;
        }
        let last = self.reduce_scatter(index);
        let step = Step { from: last.from, local: last.local, ..first };
        if step.keep { step.keep_as_sent() } else { step }
    }

    /// Returns whether the all-gather begins with a step that takes the rank's own part into the
    /// holding. It does unless the part is sent only once.
    fn takes(&self) -> bool {
        self.group.n_rounds() > 1 || self.guest.is_some()
    }

    /// Partner in a round, and whether this rank is in the upper half of its group.
    fn partner(&self, round: usize) -> (Rank, bool) {
        let distance = (1 << self.group.n_rounds()) >> (round + 1);
        (self.group.core_rank(self.number ^ distance), self.number & distance != 0)
    }

    /// A step on the upper or lower half of the parts of this rank's group in a round.
    fn half(&self, round: usize, upper: bool, step: impl Fn(Part) -> Step) -> Step {
        let n_half = (1 << self.group.n_rounds()) >> (round + 1);
        let first = self.number / (2 * n_half) * (2 * n_half) + if upper { n_half } else { 0 };
        let (start, end) = (self.group.first_part(first), self.group.first_part(first + n_half));
        step(Part::new(start)).run(end - start)
    }

    /// The rank's own part. Its guest's part is the one before it.
    fn own(&self) -> Part {
        Part::new(self.group.core_rank(self.number).index())
    }
}
