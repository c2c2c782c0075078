//! A set of small integers, for ranks and parts.

use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// The empty set, with space for `0..capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        Self { words: vec![0; capacity.div_ceil(64)] }
    }

    /// The set `0..n`, with space for `0..capacity`.
    pub(super) fn first(n: usize, capacity: usize) -> Self {
        let mut set = Self::new(capacity);
        set.words[..n.div_ceil(64)].fill(u64::MAX);
        if !n.is_multiple_of(64) {
            set.words[n / 64] = (1 << (n % 64)) - 1;
        }
        set
    }

    pub(super) fn contains(&self, i: usize) -> bool {
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, i: usize) {
        self.words[i / 64] |= 1 << (i % 64);
    }

    pub(super) fn remove(&mut self, i: usize) {
        self.words[i / 64] &= !(1 << (i % 64));
    }

    /// Number of integers in the set.
    pub(super) fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The smallest integer that is in both sets.
    pub(super) fn first_common(&self, other: &Self) -> Option<usize> {
        self.first_where(other, |a, b| a & b)
    }

    /// The smallest integer that is in exactly one of the sets.
    pub(super) fn first_difference(&self, other: &Self) -> Option<usize> {
        self.first_where(other, |a, b| a ^ b)
    }

    /// Adds the integers in `other`.
    pub(super) fn unite(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    fn first_where(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Option<usize> {
        self.words.iter().zip(&other.words).enumerate().find_map(|(i, (&a, &b))| {
            let hits = combine(a, b);
            (hits != 0).then(|| 64 * i + hits.trailing_zeros() as usize)
        })
    }
}
