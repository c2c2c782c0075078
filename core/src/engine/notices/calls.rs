//! The calls that a rank has made last, to compare with those of others.

use crate::frame::CallHeader;

/// Calls that are remembered, the one under way included.
pub(super) const N_CALLS: usize = 8;

/// A rank's last calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallHistory {
    /// The call of number n at n mod [`N_CALLS`].
    calls: [Option<CallHeader>; N_CALLS],
}

impl CallHistory {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn calls_are_found_by_their_numbers_also_where_these_wrap() {
        for first in [1, u32::MAX - 20, u32::MAX - 3] {
            let mut calls = CallHistory::default();
            for n in 0..20_u32 {
                let sequence = first.wrapping_add(n);
                calls.insert(CallHeader { sequence, ..CallHeader::of_no_call(0, 0) });
                let before: Vec<u32> = calls.before(sequence).map(|call| call.sequence).collect();
                let n_before = n.min(N_CALLS as u32 - 1);
                let expected = (1..=n_before).rev().map(|back| sequence.wrapping_sub(back));
                assert!(before.iter().copied().eq(expected), "{before:?} before {sequence}");
                let forgotten = sequence.wrapping_sub(N_CALLS as u32);
                assert_eq!(calls.of(forgotten), None);
                assert_eq!(calls.of(sequence).map(|call| call.sequence), Some(sequence));
            }
        }
    }
}
