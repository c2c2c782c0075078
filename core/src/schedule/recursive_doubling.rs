//! Recursive doubling: in round k, ranks that differ in bit k exchange all their data and combine
//! it.
//!
//! A [`Schedule`]: the engine requests its steps one by one, and the schedule handles neither
//! values nor bytes.
//!
//! Let c be the largest power of two that is not above the number of ranks n, and e = n − c. If e >
//! 0, the first 2e ranks pair up: each even rank sends its input to the odd rank after it, its
//! *host*, and becomes that rank's *guest*. The odd ranks and the rest are the c *core* ranks,
//! numbered 0..c. In round k = 0..log₂ c, core ranks v and v ⊕ 2ᵏ send each other their partial
//! results, and each combines what it received with what it kept. At the end every core rank has
//! the result, and the hosts send it to their guests.
//!
//! All core ranks combine the same operands in the same tree, except that the two operands of a
//! combination may be swapped. So they get the same bits if the codec's combination is commutative
//! and does not depend on which operand was encoded. A guest, however, receives the result as a
//! frame, whose encoding may be lossy. So if there are guests, *every* core rank stores what a
//! guest decodes ([`Step::as_sent`]), not only the hosts.
//!
//! Cost for m bytes, with latency α per message, β per byte sent and γ per byte reduced:
//!
//! | n | time |
//! |---|---|
//! | a power of two | log₂ n·(α + m·β + m·γ) |
//! | any other | (⌊log₂ n⌋ + 2)·(α + m·β) + (⌊log₂ n⌋ + 1)·m·γ |
//!
//! The schedule has the fewest latencies, but every round carries the whole array, so it suits
//! short arrays.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), §4.

use super::{Collective, Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// All-reduce that exchanges with partners at doubling distances.
#[derive(Clone, Copy, Debug)]
pub struct RecursiveDoubling;

/// The only part.
const WHOLE: Part = Part::new(0);

impl Schedule for RecursiveDoubling {
    fn name(&self) -> &'static str {
        "recursive-doubling"
    }

    fn supports(&self, collective: Collective) -> bool {
        collective == Collective::AllReduce
    }

    fn n_parts(&self, _: ProgramSpec) -> usize {
        1
    }

    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize {
        let group = CoreAndGuests::new(call.size);
        match group.role(rank) {
            GuestRole::Guest { .. } => 2,
            GuestRole::Core { guest, .. } => {
                let for_guest = if guest.is_some() { 2 } else { 0 };
                2 * group.n_rounds() + for_guest + 1
            }
        }
    }

    fn n_encodings(&self, call: ProgramSpec) -> u64 {
        // Let e(k) be the number of errors in a partial result before round k. Both operands of the
        // round are encoded, so e(k + 1) = 2·(e(k) + 1). With e(0) = 0 this gives 2·(c − 1). Each
        // guest's input adds one error, and so does the frame with which guests receive the result.
        let group = CoreAndGuests::new(call.size);
        let core = 1u64 << group.n_rounds();
        let guests = call.size as u64 - core;
        guests + 2 * (core - 1) + u64::from(guests > 0)
    }

    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step {
        debug_assert!(index < self.n_steps(call, rank));
        let group = CoreAndGuests::new(call.size);
        match group.role(rank) {
            GuestRole::Guest { host } if index == 0 => Step::own(WHOLE).to(host),
            GuestRole::Guest { host } => Step::receive(WHOLE, host).store(),
            GuestRole::Core { number, guest: None } => group.core_step(number, index),
            GuestRole::Core { number, guest: Some(guest) } => {
                let result_to_guest = 1 + 2 * group.n_rounds();
                if index == 0 {
                    Step::receive(WHOLE, guest).reduce().keep()
                } else if index == result_to_guest {
                    Step::own(WHOLE).to(guest).keep()
                } else if index < result_to_guest {
                    group.core_step(number, index - 1)
                } else {
                    group.core_step(number, index - 2)
                }
            }
        }
    }
}

/// Role of a rank.
pub(super) enum GuestRole {
    /// Takes no part in the rounds.
    Guest { host: Rank },
    /// Takes part in the rounds as core rank `number`.
    Core { number: usize, guest: Option<Rank> },
}

/// The division of the ranks into core and guests.
pub(super) struct CoreAndGuests {
    /// A power of two.
    n_core: usize,
    n_guests: usize,
}

impl CoreAndGuests {
    pub(super) fn new(size: usize) -> Self {
        let n_core = 1 << size.ilog2();
        Self { n_core, n_guests: size - n_core }
    }

    pub(super) fn n_rounds(&self) -> usize {
        self.n_core.ilog2() as usize
    }

    pub(super) fn role(&self, rank: Rank) -> GuestRole {
        let r = rank.index();
        if r >= 2 * self.n_guests {
            GuestRole::Core { number: r - self.n_guests, guest: None }
        } else if r.is_multiple_of(2) {
            GuestRole::Guest { host: Rank::new(r + 1) }
        } else {
            GuestRole::Core { number: r / 2, guest: Some(Rank::new(r - 1)) }
        }
    }

    /// The rank that is core rank `number`.
    pub(super) fn core_rank(&self, number: usize) -> Rank {
        Rank::new(if number < self.n_guests { 2 * number + 1 } else { number + self.n_guests })
    }

    /// The first part that belongs to this core rank or to its guest, if each rank has a part.
    pub(super) fn first_part(&self, number: usize) -> usize {
        number + number.min(self.n_guests)
    }

    /// Step `index` of a core rank without a guest: two steps for each round, then the store.
    fn core_step(&self, number: usize, index: usize) -> Step {
        let round = index / 2;
        if round == self.n_rounds() {
            let end = Step::own(WHOLE);
            return if self.n_guests > 0 { end.store_as_sent() } else { end.store() };
        }
        let partner = self.core_rank(number ^ (1 << round));
        if index.is_multiple_of(2) {
            Step::own(WHOLE).to(partner).keep()
        } else {
            Step::receive(WHOLE, partner).reduce().keep()
        }
    }
}
