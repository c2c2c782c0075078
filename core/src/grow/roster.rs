//! The plan of a new group: its members, in the order of their ranks, and what they must know.
//!
//! It is read from a store that anyone may write to, so every length is checked. Integers are
//! little-endian.

use super::tuning::Tuning;
use super::waiting::Newcomer;
use super::{Admission, MAX_FACT_BYTES, MAX_OFFER_BYTES, MAX_PATIENCE};
use crate::error::Error;
use crate::group::MAX_RANKS;
use crate::transport::Rank;
use alloc::vec::Vec;
use core::time::Duration;

/// First bytes of an encoded plan; the last one is the version.
const MAGIC: [u8; 8] = *b"fwplan\0\x01";
/// Bytes of each survivor's contribution.
pub(super) const BLOCK_BYTES: usize = 512;
/// Bytes of a block before its offer.
const BLOCK_HEAD_BYTES: usize = 16 + 4 + 8 + 2;
/// Old rank of a newcomer.
const NO_RANK: u32 = u32::MAX;
const _: () = assert!(BLOCK_HEAD_BYTES + MAX_OFFER_BYTES <= BLOCK_BYTES);

/// The plan of a new group.
#[derive(Clone, Debug, PartialEq)]
pub struct Roster {
    /// Number of times that the group has grown.
    pub generation: u64,
    /// Time after which a silent member counts as lost.
    pub patience: Duration,
    /// The group's settings, which newcomers take over.
    pub tuning: Tuning,
    /// Rank of this process.
    pub rank: usize,
    /// The planned members, by rank.
    pub members: Vec<Member>,
    /// The survivors' bytes for newcomers.
    pub facts: Vec<u8>,
}

/// A planned member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Random number of the process.
    pub unique: u128,
    /// Rank in the group before; `None` for a newcomer.
    pub old_rank: Option<u32>,
    /// Its address, as it offered it.
    pub offer: Vec<u8>,
}

/// Contribution of a survivor, for the other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SurvivorBlock<'a> {
    pub(super) unique: u128,
    pub(super) old_rank: u32,
    pub(super) generation: u64,
    /// Empty if the survivor cannot be reached.
    pub(super) offer: &'a [u8],
}

impl<'a> SurvivorBlock<'a> {
    /// Encodes the block. An offer that is too long counts as none.
    pub(super) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let offer = if self.offer.len() > MAX_OFFER_BYTES { &[] } else { self.offer };
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.extend(self.unique.to_le_bytes());
        bytes.extend(self.old_rank.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend((offer.len() as u16).to_le_bytes());
        bytes.extend(offer);
        let mut block = [0; BLOCK_BYTES];
        block[..bytes.len()].copy_from_slice(&bytes);
        block
    }

    pub(super) fn decode(block: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(block);
        let unique = u128::from_le_bytes(reader.array()?);
        let old_rank = u32::from_le_bytes(reader.array()?);
        let generation = u64::from_le_bytes(reader.array()?);
        let offer = reader.offer()?;
        Some(Self { unique, old_rank, generation, offer })
    }
}

impl Roster {
    /// Plans the group of these survivors and newcomers.
    pub(super) fn plan(
        survivors: &[SurvivorBlock<'_>],
        newcomers: &[Newcomer],
        wanted: &Admission<'_>,
        tuning: Tuning,
    ) -> Self {
        let size = survivors.len() + newcomers.len();
        let mut members: Vec<Option<Member>> = (0..size).map(|_| None).collect();
        let mut others = Vec::new();
        for survivor in survivors {
            let (unique, old_rank) = (survivor.unique, Some(survivor.old_rank));
            let member = Member { unique, old_rank, offer: survivor.offer.to_vec() };
            match members.get_mut(survivor.old_rank as usize) {
                Some(free) if free.is_none() => *free = Some(member),
                _ => others.push(member),
            }
        }
        others.extend(newcomers.iter().map(|newcomer| Member {
            unique: newcomer.unique,
            old_rank: None,
            offer: newcomer.offer.clone(),
        }));
        let mut others = others.into_iter();
        let members = members.into_iter().filter_map(|member| member.or_else(|| others.next()));
        let generation = survivors.iter().map(|survivor| survivor.generation).max().unwrap_or(0);
        Self {
            generation: generation.saturating_add(1),
            patience: wanted.patience,
            tuning,
            rank: 0,
            members: members.collect(),
            facts: wanted.facts.to_vec(),
        }
    }

    /// Checks that one of these planned members was in the group before. Newcomers alone are no
    /// group: what it knew is lost to them.
    ///
    /// # Errors
    /// [`Error::Excluded`], with a planned survivor.
    pub fn check_survivors(&self, members: impl IntoIterator<Item = Rank>) -> Result<(), Error> {
        let survives = |at: usize| self.members.get(at).is_some_and(|it| it.old_rank.is_some());
        if members.into_iter().any(|rank| survives(rank.index())) {
            return Ok(());
        }
        let rank = (0..self.members.len()).find(|&at| survives(at)).unwrap_or(0);
        Err(Error::Excluded { rank: Rank::new(rank) })
    }

    /// Returns the rank of the process with this random number.
    pub(super) fn rank_of(&self, unique: u128) -> Option<usize> {
        self.members.iter().position(|member| member.unique == unique)
    }

    /// Encodes the plan, without this process's rank.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.generation.to_le_bytes());
        let patience = u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX);
        bytes.extend(patience.to_le_bytes());
        self.tuning.encode(&mut bytes);
        bytes.extend((self.members.len() as u32).to_le_bytes());
        for member in &self.members {
            bytes.extend(member.unique.to_le_bytes());
            bytes.extend(member.old_rank.unwrap_or(NO_RANK).to_le_bytes());
            bytes.extend((member.offer.len() as u16).to_le_bytes());
            bytes.extend(&member.offer);
        }
        bytes.extend((self.facts.len() as u32).to_le_bytes());
        bytes.extend(&self.facts);
        bytes
    }

    /// Decodes a plan; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC {
            return None;
        }
        let generation = u64::from_le_bytes(reader.array()?);
        let patience = Duration::from_nanos(u64::from_le_bytes(reader.array()?));
        let tuning = Tuning::decode(&mut reader)?;
        let n_members = u32::from_le_bytes(reader.array()?) as usize;
        if n_members > MAX_RANKS || patience > MAX_PATIENCE {
            return None;
        }
        let mut members: Vec<Member> = Vec::new();
        for _ in 0..n_members {
            let unique = u128::from_le_bytes(reader.array()?);
            let old_rank = u32::from_le_bytes(reader.array()?);
            let old_rank = Some(old_rank).filter(|&rank| rank != NO_RANK);
            members.push(Member { unique, old_rank, offer: reader.offer()?.to_vec() });
        }
        let n_fact_bytes = u32::from_le_bytes(reader.array()?) as usize;
        let facts = reader.0;
        if facts.len() != n_fact_bytes || n_fact_bytes > MAX_FACT_BYTES {
            return None;
        }
        Some(Self { generation, patience, tuning, rank: 0, members, facts: facts.to_vec() })
    }
}

/// Bytes that are read from the front.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads an offer with its length before it.
    pub(super) fn offer(&mut self) -> Option<&'a [u8]> {
        let n_bytes = usize::from(u16::from_le_bytes(self.array()?));
        let (offer, rest) = self.0.split_at_checked(n_bytes)?;
        self.0 = rest;
        (n_bytes <= MAX_OFFER_BYTES).then_some(offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn tuning() -> Tuning {
        Tuning::of(&crate::collective::Config::default())
    }

    fn wanted(facts: &[u8]) -> Admission<'_> {
        let patience = Duration::from_millis(700);
        Admission { size: 0, limit: Duration::ZERO, patience, generation: 4, facts }
    }

    fn survivors(old_ranks: &[u32]) -> Vec<SurvivorBlock<'static>> {
        let block = |&old_rank| SurvivorBlock {
            unique: u128::from(old_rank) + 100,
            old_rank,
            generation: u64::from(old_rank),
            offer: b"here",
        };
        old_ranks.iter().map(block).collect()
    }

    fn newcomers(n: u128) -> Vec<Newcomer> {
        (0..n).map(|unique| Newcomer { unique, offer: vec![7; 3] }).collect()
    }

    #[test]
    fn survivors_keep_their_ranks_if_the_group_has_them_and_newcomers_fill_the_rest() {
        /// Old ranks of survivors, number of newcomers, and the old rank of each member.
        type Case = (&'static [u32], u128, &'static [Option<u32>]);
        let cases: [Case; 6] = [
            (&[0, 2, 3], 1, &[Some(0), None, Some(2), Some(3)]),
            (&[1, 2], 1, &[None, Some(1), Some(2)]),
            (&[0, 2, 3], 0, &[Some(0), Some(3), Some(2)]),
            (&[3], 0, &[Some(3)]),
            (&[3], 1, &[Some(3), None]),
            (&[0, 1], 3, &[Some(0), Some(1), None, None, None]),
        ];
        for (old, n_new, expected) in cases {
            let roster = Roster::plan(&survivors(old), &newcomers(n_new), &wanted(b""), tuning());
            let ranks: Vec<_> = roster.members.iter().map(|member| member.old_rank).collect();
            assert_eq!(ranks, expected, "{old:?} and {n_new}");
            assert_eq!(roster.generation, u64::from(*old.last().unwrap()) + 1);
        }
    }

    #[test]
    fn a_plan_is_read_as_written_and_nothing_else_is_one() {
        let roster = Roster::plan(&survivors(&[0, 2]), &newcomers(2), &wanted(b"step 7"), tuning());
        let bytes = roster.encode();
        assert_eq!(Roster::decode(&bytes).as_ref(), Some(&roster));
        for end in 0..bytes.len() {
            assert_eq!(Roster::decode(&bytes[..end]), None, "{end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Roster::decode(&longer), None);
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // A plan that can be read was read whole.
            if let Some(read) = Roster::decode(&damaged) {
                assert!(read.members.len() <= MAX_RANKS && read.facts.len() <= MAX_FACT_BYTES);
            }
        }
        // A number of members without members.
        let mut hostile = MAGIC.to_vec();
        hostile.extend([0; 16]);
        tuning().encode(&mut hostile);
        hostile.extend(u32::MAX.to_le_bytes());
        assert_eq!(Roster::decode(&hostile), None);
    }

    #[test]
    fn newcomers_alone_are_no_group() {
        let roster = Roster::plan(&survivors(&[1]), &newcomers(2), &wanted(b""), tuning());
        // The survivor keeps its rank.
        assert_eq!(roster.check_survivors([Rank(2), Rank(1)]), Ok(()));
        let alone = Err(Error::Excluded { rank: Rank(1) });
        assert_eq!(roster.check_survivors([Rank(0), Rank(2)]), alone);
        assert_eq!(roster.check_survivors([Rank(7)]), alone);
    }

    #[test]
    fn blocks_are_read_as_written() {
        for survivor in survivors(&[0, 7]) {
            assert_eq!(SurvivorBlock::decode(&survivor.encode()), Some(survivor));
        }
        let long = [1; MAX_OFFER_BYTES + 1];
        let block = SurvivorBlock { offer: &long, ..survivors(&[1])[0] };
        assert!(SurvivorBlock::decode(&block.encode()).is_some_and(|it| it.offer.is_empty()));
        assert_eq!(SurvivorBlock::decode(&[0xff; BLOCK_BYTES]), None);
        assert_eq!(SurvivorBlock::decode(&[]), None);
    }
}
