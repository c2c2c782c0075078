//! The calls that a rank has made last, to compare with those of others.

use crate::frame::CallHeader;

/// Calls that are remembered, the one under way included.
pub(super) const N_CALLS: usize = 8;

/// A rank's last calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Calls {
    /// The call of number n at n mod [`N_CALLS`].
    calls: [Option<CallHeader>; N_CALLS],
}

impl Calls {
    pub(super) fn insert(&mut self, call: CallHeader) {
        self.calls[place(call.sequence)] = Some(call);
    }

    /// The call of this number, if it is remembered.
    pub(super) fn of(&self, sequence: u32) -> Option<CallHeader> {
        self.calls[place(sequence)].filter(|call| call.sequence == sequence)
    }

    /// Those before the call of this number, in their order.
    pub(super) fn before(&self, sequence: u32) -> impl Iterator<Item = CallHeader> {
        (1..N_CALLS as u32).rev().filter_map(move |back| self.of(sequence.wrapping_sub(back)))
    }
}

/// Where the call of this number is remembered.
const fn place(sequence: u32) -> usize {
    sequence as usize % N_CALLS
}
