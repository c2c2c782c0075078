//! An exchange between the ranks of a job through a store.
//!
//! In each all-gather, every rank sets a key. Rank 0 waits for all of them and sets one more, which
//! has all inputs. If a rank does not come, that key lists the missing ranks instead, so that all
//! ranks fail with the same list. Every rank sets a last key when it has read the inputs, so that a
//! rank that hosts the store serves it until then. In all, 2n values are written and 2n read.

use std::time::{Duration, Instant};

use foldwire::Rank;
use foldwire::store::{Namespace, Store, StoreError};

use crate::error::{Error, RankList};
use crate::exchange::Exchange;
use crate::message::{MAX_GIVEN_BYTES, Refusal};
use crate::place::MAX_RANKS;
use crate::rendezvous::{DEFAULT_LIMIT, HANDSHAKE_LIMIT, LONGEST_LIMIT, deadline_after};

/// Longest single wait in a store.
const SLICE: Duration = Duration::from_secs(1);

/// This rank's place in a job whose ranks meet in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Name of the job: letters, digits and `.-_/`. Jobs of one name must not use one store.
    pub job: String,
    /// Number of times that the job was started before in this store.
    pub epoch: u64,
    /// Longest wait for other ranks, in each all-gather; more than a year counts as a year.
    pub limit: Duration,
}

impl StorePlace {
    /// The place of `rank` among `size` ranks of the job `job`, which was not started before.
    #[must_use]
    pub fn new(rank: usize, size: usize, job: impl Into<String>) -> Self {
        Self { rank, size, job: job.into(), epoch: 0, limit: DEFAULT_LIMIT }
    }
}

/// One rank of a job whose ranks meet in a store.
///
/// # Examples
/// ```
/// use foldwire_bootstrap::{Exchange, MemoryStore, StoreExchange, StorePlace};
///
/// let store = MemoryStore::default();
/// std::thread::scope(|scope| {
///     for rank in 0..3 {
///         let store = store.clone();
///         scope.spawn(move || {
///             let place = StorePlace::new(rank, 3, "example");
///             let mut exchange = StoreExchange::new(store, place).unwrap();
///             let all = exchange.all_gather(&[rank as u8]).unwrap();
///             assert_eq!(all, [[0], [1], [2]]);
///         });
///     }
/// });
/// ```
#[derive(Debug)]
pub struct StoreExchange<S> {
    store: Namespace<S>,
    place: StorePlace,
    n_rounds: u64,
}

impl<S: Store> StoreExchange<S> {
    /// Prepares to meet the other ranks of a job.
    ///
    /// # Errors
    /// [`Error::Store`] if the job's name cannot be part of a key; [`Error::BadPlace`] if the rank
    /// is not below the number of ranks, or there are too many ranks.
    pub fn new(store: S, place: StorePlace) -> Result<Self, Error> {
        let StorePlace { rank, size, epoch, .. } = place;
        if rank >= size || size > MAX_RANKS {
            return Err(Error::BadPlace { rank, size });
        }
        let store = Namespace::new(store, &format!("{}/{epoch}", place.job))?;
        let place = StorePlace { limit: place.limit.min(LONGEST_LIMIT), ..place };
        Ok(Self { store, place, n_rounds: 0 })
    }

    /// Waits for a key. Returns `None` at the deadline.
    fn wait(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let value = self.store.wait(key, left.min(SLICE))?;
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
        }
    }

    /// Tells that this rank needs nothing more of a round. If it hosts the store, waits until that
    /// is true of all ranks.
    fn end_round(&mut self, round: u64) -> Result<(), Error> {
        let StorePlace { rank, size, limit, .. } = self.place;
        self.store.set(&format!("{round}/{rank}/done"), &[])?;
        if self.store.is_hosted_here() {
            let deadline = deadline_after(limit.min(HANDSHAKE_LIMIT));
            for other in 0..size {
                self.wait(&format!("{round}/{other}/done"), deadline)?;
            }
        }
        Ok(())
    }

    fn missing(&self, ranks: impl Iterator<Item = Rank>) -> Error {
        let StorePlace { size, limit, .. } = self.place;
        Error::Missing { missing: RankList::of(ranks), size, limit, turned_away: None }
    }

    /// Rank 0's part: collects the inputs and publishes them.
    fn collect(&mut self, round: u64, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let deadline = deadline_after(self.place.limit);
        let (size, mut parts) = (self.place.size, vec![Some(mine.to_vec())]);
        let mut unfit = None;
        for rank in 1..size {
            let part = self.wait(&format!("{round}/{rank}"), deadline)?;
            parts.push(match part.as_deref().map(read_part) {
                None => None,
                Some(None) => return Err(StoreError::Damaged.into()),
                Some(Some((theirs, _))) if theirs != size => {
                    unfit = Some((rank, theirs));
                    None
                }
                Some(Some((_, bytes))) => Some(bytes.to_vec()),
            });
        }
        let gathered = Gathered::of(parts);
        self.store.set(&round.to_string(), &gathered.encode(size))?;
        match (gathered, unfit) {
            (Gathered::Parts(parts), _) => Ok(parts),
            (Gathered::Missing(_), Some((rank, theirs))) => {
                let reason = Refusal::Size { theirs: theirs as u32, ours: size as u32 };
                Err(Error::Unfit { rank: Rank::new(rank), size, reason })
            }
            (Gathered::Missing(ranks), None) => Err(self.missing(ranks.into_iter())),
        }
    }

    /// Another rank's part: waits for what rank 0 publishes.
    fn receive(&mut self, round: u64, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let StorePlace { rank, size, limit, .. } = self.place;
        let own = [&(size as u32).to_le_bytes()[..], mine].concat();
        self.store.set(&format!("{round}/{rank}"), &own)?;
        // Rank 0 may have started as late as its limit allows, and then lists the missing ranks.
        let deadline = deadline_after(limit) + HANDSHAKE_LIMIT;
        let Some(value) = self.wait(&round.to_string(), deadline)? else {
            return Err(self.missing([Rank(0)].into_iter()));
        };
        let (theirs, value) = value.split_first_chunk().ok_or(StoreError::Damaged)?;
        let root_size = u32::from_le_bytes(*theirs);
        if root_size as usize != size {
            let reason = Refusal::Size { theirs: size as u32, ours: root_size };
            return Err(Error::Unfit { rank: Rank::new(rank), size, reason });
        }
        match Gathered::decode(value, size) {
            None => Err(StoreError::Damaged.into()),
            Some(Gathered::Missing(ranks)) => Err(self.missing(ranks.into_iter())),
            Some(Gathered::Parts(parts)) if parts[rank] != mine => {
                Err(Error::SameRank { rank: Rank::new(rank) })
            }
            Some(Gathered::Parts(parts)) => Ok(parts),
        }
    }
}

/// Splits a rank's value into the number of ranks that it expects, and its input.
fn read_part(value: &[u8]) -> Option<(usize, &[u8])> {
    let (size, bytes) = value.split_first_chunk()?;
    (bytes.len() <= MAX_GIVEN_BYTES).then_some((u32::from_le_bytes(*size) as usize, bytes))
}

/// The value that rank 0 publishes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// The inputs of all ranks.
    Parts(Vec<Vec<u8>>),
    /// The ranks that did not come.
    Missing(Vec<Rank>),
}

impl Gathered {
    fn of(parts: Vec<Option<Vec<u8>>>) -> Self {
        let missing = parts.iter().zip(0..).filter(|(part, _)| part.is_none());
        let missing: Vec<_> = missing.map(|(_, rank)| Rank(rank)).collect();
        if missing.is_empty() {
            Self::Parts(parts.into_iter().flatten().collect())
        } else {
            Self::Missing(missing)
        }
    }

    /// Number of ranks; a byte for the kind; then each input with its length before it, or each
    /// missing rank.
    pub(crate) fn encode(&self, size: usize) -> Vec<u8> {
        let number = |n: usize| (n as u32).to_le_bytes();
        let mut bytes = number(size).to_vec();
        match self {
            Self::Parts(parts) => {
                bytes.push(1);
                for part in parts {
                    bytes.extend(number(part.len()));
                    bytes.extend(part);
                }
            }
            Self::Missing(ranks) => {
                bytes.push(0);
                bytes.extend(ranks.iter().flat_map(|rank| number(rank.index())));
            }
        }
        bytes
    }

    /// Decodes the value after the number of ranks; `None` if rank 0 did not write it.
    pub(crate) fn decode(value: &[u8], size: usize) -> Option<Self> {
        let (kind, mut rest) = value.split_first()?;
        let mut numbers = Vec::new();
        let mut parts = Vec::new();
        while let Some((number, after)) = rest.split_first_chunk() {
            let number = u32::from_le_bytes(*number);
            rest = after;
            match kind {
                1 => {
                    let (part, after) = rest.split_at_checked(number as usize)?;
                    parts.push(part.to_vec());
                    rest = after;
                }
                _ => numbers.push(Rank(number)),
            }
        }
        match kind {
            _ if !rest.is_empty() => None,
            1 if parts.len() == size => Some(Self::Parts(parts)),
            0 if !numbers.is_empty() && numbers.iter().all(|rank| rank.index() < size) => {
                Some(Self::Missing(numbers))
            }
            _ => None,
        }
    }
}

impl<S: Store> Exchange for StoreExchange<S> {
    type Error = Error;

    fn rank(&self) -> Rank {
        Rank::new(self.place.rank)
    }

    fn size(&self) -> usize {
        self.place.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if mine.len() > MAX_GIVEN_BYTES {
            return Err(Error::TooLong { n_bytes: mine.len() });
        }
        let round = self.n_rounds;
        self.n_rounds += 1;
        match self.place.rank {
            _ if self.place.size == 1 => Ok(vec![mine.to_vec()]),
            rank => {
                let all =
                    if rank == 0 { self.collect(round, mine) } else { self.receive(round, mine) };
                self.end_round(round)?;
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_as_written_and_nothing_else() {
        let parts = Gathered::Parts(vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]);
        let missing = Gathered::Missing(vec![Rank(1), Rank(2)]);
        for gathered in [parts, missing] {
            let bytes = gathered.encode(3);
            let (size, bytes) = bytes.split_at(4);
            assert_eq!(size, [3, 0, 0, 0]);
            assert_eq!(Gathered::decode(bytes, 3).as_ref(), Some(&gathered));
            for end in 0..bytes.len() {
                let cut = Gathered::decode(&bytes[..end], 3);
                // A list of missing ranks has no length.
                assert!(cut.is_none_or(|cut| matches!(cut, Gathered::Missing(_))), "{end}");
            }
            assert_eq!(Gathered::decode(bytes, 2), None);
        }
        let hostile = [&[1][..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(Gathered::decode(&hostile, 1), None);
    }
}
