//! Values as symbols: the contributors, the tree of combinations, and whether the value crossed the
//! wire.

use alloc::rc::Rc;

use super::bit_set::BitSet;
use crate::schedule::Part;
use crate::transport::Rank;

/// Symbol of the values of one part.
#[derive(Clone)]
pub(super) struct PartValue {
    /// Shared with copies, because moving a value does not change its contributors.
    pub(super) contributors: Rc<BitSet>,
    /// Fingerprint of the tree of combinations.
    pub(super) tree: u64,
    /// True if these are the values that a receiver decodes.
    pub(super) as_sent: bool,
}

impl PartValue {
    pub(super) fn local(size: usize, rank: Rank, part: Part) -> Self {
        let mut contributors = BitSet::new(size);
        contributors.insert(rank.index());
        let tree = scramble(u64::from(rank.0) << 32 | u64::from(part.0));
        Self { contributors: Rc::new(contributors), tree, as_sent: false }
    }

    /// Combines both values in `self`. Returns a rank as the error if it contributed to both.
    pub(super) fn combine(&mut self, other: &Self) -> Result<(), Rank> {
        if let Some(r) = self.contributors.first_common(&other.contributors) {
            return Err(Rank::new(r));
        }
        Rc::make_mut(&mut self.contributors).unite(&other.contributors);
        // Symmetric, so that swapped operands give the same tree.
        self.tree = scramble(self.tree.wrapping_add(other.tree));
        self.as_sent = false;
        Ok(())
    }
}

/// A bijection that destroys patterns (the output function of SplitMix64; Steele, Lea, Flood 2014).
fn scramble(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
