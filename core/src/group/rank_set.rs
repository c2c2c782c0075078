//! A set of ranks of one transport: a bit for each rank, 512 bytes in all. Messages contain such
//! sets.

use crate::transport::Rank;
use core::fmt;

/// Number of ranks that a set can hold, `0..MAX_RANKS`.
pub const MAX_RANKS: usize = 4096;
const BITS: usize = u64::BITS as usize;

/// A set of ranks below [`MAX_RANKS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankSet {
    words: [u64; MAX_RANKS / BITS],
}

impl RankSet {
    pub(crate) const EMPTY: Self = Self { words: [0; MAX_RANKS / BITS] };

    /// Returns the set `0..size`, where `size` is at most [`MAX_RANKS`].
    pub(crate) fn first(size: usize) -> Self {
        let word = |at: usize| match size.saturating_sub(at * BITS) {
            0 => 0,
            n if n >= BITS => u64::MAX,
            n => (1 << n) - 1,
        };
        Self { words: core::array::from_fn(word) }
    }

    /// Returns whether a set can hold this rank.
    pub(crate) const fn can_hold(rank: Rank) -> bool {
        rank.index() < MAX_RANKS
    }

    pub(crate) fn contains(&self, rank: Rank) -> bool {
        let (word, bit) = place(rank);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn insert(&mut self, rank: Rank) {
        let (word, bit) = place(rank);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    pub(crate) fn remove(&mut self, rank: Rank) {
        let (word, bit) = place(rank);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Returns the set without `rank`.
    pub(crate) fn without(mut self, rank: Rank) -> Self {
        self.remove(rank);
        self
    }

    /// Returns the ranks in both sets.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self { words: core::array::from_fn(|i| self.words[i] & other.words[i]) }
    }

    /// Returns the ranks in this set that are not in `other`.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self { words: core::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the ranks in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rank> + use<> {
        let mut left = self.words;
        let mut at = 0;
        core::iter::from_fn(move || {
            while *left.get(at)? == 0 {
                at += 1;
            }
            let rank = Rank::new(at * BITS + left[at].trailing_zeros() as usize);
            left[at] &= left[at] - 1;
            Some(rank)
        })
    }

    /// Returns the number of members below `rank`, which is its number in a group of the members.
    pub(crate) fn n_below(&self, rank: Rank) -> usize {
        let (at, bit) = place(rank);
        let whole: u32 = self.words.iter().take(at).map(|word| word.count_ones()).sum();
        let part = self.words.get(at).map_or(0, |word| (word & (bit - 1)).count_ones());
        (whole + part) as usize
    }

    /// Returns the number of this member, or `None` if the rank is not a member.
    pub(crate) fn member(&self, rank: Rank) -> Option<Rank> {
        self.contains(rank).then(|| Rank::new(self.n_below(rank)))
    }

    /// Returns the member with `n` members below it.
    pub(crate) fn nth(&self, n: usize) -> Option<Rank> {
        let mut below = n;
        for (at, &word) in self.words.iter().enumerate() {
            let here = word.count_ones() as usize;
            if below < here {
                let left = (0..below).fold(word, |left, _| left & (left - 1));
                return Some(Rank::new(at * BITS + left.trailing_zeros() as usize));
            }
            below -= here;
        }
        None
    }

    /// Returns the number of bytes of an encoded set of ranks below `size`.
    pub(crate) const fn n_bytes(size: usize) -> usize {
        size.div_ceil(8)
    }

    /// Writes the bits of the ranks below `8 · bytes.len()`: rank r is bit r mod 8 of byte ⌊r/8⌋.
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self.words[at / 8].to_le_bytes()[at % 8];
        }
    }

    /// Reads a set of ranks below `size`. `None` if `size` is too large, if the number of bytes is
    /// wrong, or if a bit of another rank is set.
    pub(crate) fn read(bytes: &[u8], size: usize) -> Option<Self> {
        if size > MAX_RANKS || bytes.len() != Self::n_bytes(size) {
            return None;
        }
        let mut set = Self::EMPTY;
        for (at, &byte) in bytes.iter().enumerate() {
            set.words[at / 8] |= u64::from(byte) << (at % 8 * 8);
        }
        (set.and(&Self::first(size)) == set).then_some(set)
    }
}

impl Default for RankSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Returns the word index and the bit of a rank.
const fn place(rank: Rank) -> (usize, u64) {
    (rank.index() / BITS, 1 << (rank.index() % BITS))
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Rank::index)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn set(ranks: &[usize]) -> RankSet {
        let mut set = RankSet::EMPTY;
        ranks.iter().for_each(|&rank| set.insert(Rank::new(rank)));
        set
    }

    #[test]
    fn numbers_of_members_and_members_of_numbers_are_inverse() {
        let ranks = [0, 3, 63, 64, 65, 127, 128, 1000, 4095];
        let members = set(&ranks);
        assert_eq!(members.iter().map(Rank::index).collect::<Vec<_>>(), ranks);
        for (i, &rank) in ranks.iter().enumerate() {
            assert_eq!(members.nth(i), Some(Rank::new(rank)));
            assert_eq!(members.n_below(Rank::new(rank)), i);
        }
        assert_eq!((members.nth(ranks.len()), members.len()), (None, ranks.len()));
    }

    #[test]
    fn the_first_ranks_are_all_below_the_size() {
        for size in [0, 1, 63, 64, 65, 200, MAX_RANKS] {
            let first = RankSet::first(size);
            assert_eq!(first.len(), size);
            assert!(first.iter().map(Rank::index).eq(0..size));
        }
    }

    #[test]
    fn what_was_written_is_read_and_bits_past_the_size_are_refused() {
        for size in [1, 7, 8, 9, 64, 65, MAX_RANKS] {
            let members = set(&[0, size / 2, size - 1]);
            let mut bytes = vec![0xff; RankSet::n_bytes(size)];
            members.write(&mut bytes);
            assert_eq!(RankSet::read(&bytes, size), Some(members));
            assert_eq!(RankSet::read(&bytes[1..], size), None);
            if size % 8 != 0 {
                bytes[size / 8] |= 1 << (size % 8);
                assert_eq!(RankSet::read(&bytes, size), None);
            }
        }
        assert_eq!(RankSet::read(&[0; 513], MAX_RANKS + 1), None);
    }

    #[test]
    fn ranks_too_large_are_in_no_set() {
        let mut members = RankSet::first(MAX_RANKS);
        let large = Rank::new(MAX_RANKS);
        members.insert(large);
        assert!(!members.contains(large));
        members.remove(Rank(7));
        assert!(
            !members.contains(Rank(7)) && members == RankSet::first(MAX_RANKS).without(Rank(7))
        );
    }
}
