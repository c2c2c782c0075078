//! The last calls of a rank, to compare with other ranks' calls.

use crate::frame::CallHeader;

/// Number of calls that are stored, including the running one.
pub(super) const N_CALLS: usize = 8;

/// A rank's last calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallHistory {
    /// Call n is at index n mod [`N_CALLS`].
    calls: [Option<CallHeader>; N_CALLS],
}

impl CallHistory {
    pub(super) fn insert(&mut self, call: CallHeader) {
        self.calls[place(call.sequence)] = Some(call);
    }

    /// Returns the call of this number, if it is stored.
    pub(super) fn of(&self, sequence: u32) -> Option<CallHeader> {
        self.calls[place(sequence)].filter(|call| call.sequence == sequence)
    }

    /// Iterates over the stored calls before the call of this number, the oldest first.
    pub(super) fn before(&self, sequence: u32) -> impl Iterator<Item = CallHeader> {
        (1..N_CALLS as u32).rev().filter_map(move |back| self.of(sequence.wrapping_sub(back)))
    }
}

/// Returns the index of the call of this number.
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
