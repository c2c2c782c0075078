//! An exchange between the ranks of a job through a store.
//!
//! In each all-gather, every rank sets a key. Rank 0 waits for all of them and sets one more, which
//! has all inputs. If they are too long for one value, further keys have them, set before. If a
//! rank does not come or does not fit, or rank 0's use of the store fails, rank 0's key tells that
//! instead, so that all ranks fail with the same reason. Every rank sets a last key when it has
//! read the inputs, so that a rank that hosts the store serves it until then. In all, some 2n
//! values are written and 2n read.

use std::time::{Duration, Instant};

use foldwire::Rank;
use foldwire::store::{MAX_VALUE_BYTES, Namespace, Store, StoreError};

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
    fn wait(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, StoreError> {
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
        let published = self.gathered(round, mine).and_then(|gathered| {
            self.publish(round, &gathered)?;
            Ok(gathered)
        });
        let gathered = published.unwrap_or_else(|error| {
            let failed = Gathered::Failed(error);
            // Fails if the store itself has failed: then the other ranks find that out, too.
            let _ = self.publish(round, &failed);
            failed
        });
        self.outcome(gathered)
    }

    /// Waits for the inputs of the other ranks.
    fn gathered(&mut self, round: u64, mine: &[u8]) -> Result<Gathered, StoreError> {
        let deadline = deadline_after(self.place.limit);
        let (size, mut parts) = (self.place.size, vec![Some(mine.to_vec())]);
        let mut unfit = None;
        for rank in 1..size {
            let part = self.wait(&format!("{round}/{rank}"), deadline)?;
            parts.push(match part.as_deref().map(read_part) {
                None => None,
                Some(None) => return Err(StoreError::Damaged),
                Some(Some((theirs, _))) if theirs as usize != size => {
                    unfit = Some(Gathered::Unfit { rank: Rank::new(rank), theirs });
                    None
                }
                Some(Some((_, bytes))) => Some(bytes.to_vec()),
            });
        }
        Ok(unfit.unwrap_or_else(|| Gathered::of(parts)))
    }

    /// Tells all ranks how the round ends.
    fn publish(&mut self, round: u64, gathered: &Gathered) -> Result<(), StoreError> {
        let (key, size) = (round.to_string(), self.place.size);
        let value = gathered.encode(size);
        if value.len() <= MAX_VALUE_BYTES {
            return self.store.set(&key, &value);
        }
        let pieces = value.chunks(MAX_VALUE_BYTES);
        let n_pieces = pieces.len() as u32;
        for (nth, piece) in pieces.enumerate() {
            self.store.set(&format!("{round}/all/{nth}"), piece)?;
        }
        self.store.set(&key, &Gathered::Pieces(n_pieces).encode(size))
    }

    /// Returns the result of a round that ends in this way.
    fn outcome(&self, gathered: Gathered) -> Result<Vec<Vec<u8>>, Error> {
        let size = self.place.size;
        match gathered {
            Gathered::Parts(parts) => Ok(parts),
            Gathered::Missing(ranks) => Err(self.missing(ranks.into_iter())),
            Gathered::Unfit { rank, theirs } => {
                let reason = Refusal::Size { theirs, ours: size as u32 };
                Err(Error::Unfit { rank, size, reason })
            }
            Gathered::Failed(error) => Err(error.into()),
            Gathered::Pieces(_) => Err(StoreError::Damaged.into()),
        }
    }

    /// Another rank's part: waits for what rank 0 publishes.
    fn receive(&mut self, round: u64, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let StorePlace { rank, size, limit, .. } = self.place;
        let own = [&(size as u32).to_le_bytes()[..], mine].concat();
        self.store.set(&format!("{round}/{rank}"), &own)?;
        // Rank 0 may have started as late as its limit allows, and then lists the missing ranks.
        let deadline = deadline_after(limit) + HANDSHAKE_LIMIT;
        let gathered = match self.published(&round.to_string(), deadline)? {
            Some(Gathered::Pieces(n_pieces)) => self.joined(round, n_pieces, deadline)?,
            gathered => gathered,
        };
        let Some(gathered) = gathered else { return Err(self.missing([Rank(0)].into_iter())) };
        let all = self.outcome(gathered)?;
        if all[rank] == mine { Ok(all) } else { Err(Error::SameRank { rank: Rank::new(rank) }) }
    }

    /// Waits for rank 0's value of a round. Returns `None` at the deadline.
    fn published(&mut self, key: &str, deadline: Instant) -> Result<Option<Gathered>, Error> {
        let value = self.wait(key, deadline)?;
        value.map(|value| self.read(&value)).transpose()
    }

    /// Waits for the pieces of a value that rank 0 has cut. Returns `None` at the deadline.
    fn joined(
        &mut self,
        round: u64,
        n_pieces: u32,
        deadline: Instant,
    ) -> Result<Option<Gathered>, Error> {
        let mut value = Vec::new();
        for nth in 0..n_pieces {
            let piece = self.wait(&format!("{round}/all/{nth}"), deadline)?;
            let Some(piece) = piece else { return Ok(None) };
            value.extend(piece);
        }
        self.read(&value).map(Some)
    }

    /// Reads a value that rank 0 has published.
    fn read(&self, value: &[u8]) -> Result<Gathered, Error> {
        let StorePlace { rank, size, .. } = self.place;
        let (theirs, value) = value.split_first_chunk().ok_or(StoreError::Damaged)?;
        let root_size = u32::from_le_bytes(*theirs);
        if root_size as usize != size {
            let reason = Refusal::Size { theirs: size as u32, ours: root_size };
            return Err(Error::Unfit { rank: Rank::new(rank), size, reason });
        }
        Ok(Gathered::decode(value, size).ok_or(StoreError::Damaged)?)
    }
}

/// Splits a rank's value into the number of ranks that it expects, and its input.
fn read_part(value: &[u8]) -> Option<(u32, &[u8])> {
    let (size, bytes) = value.split_first_chunk()?;
    (bytes.len() <= MAX_GIVEN_BYTES).then_some((u32::from_le_bytes(*size), bytes))
}

/// The value that rank 0 publishes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// The inputs of all ranks.
    Parts(Vec<Vec<u8>>),
    /// The ranks that did not come.
    Missing(Vec<Rank>),
    /// A rank expects another number of ranks.
    Unfit { rank: Rank, theirs: u32 },
    /// Rank 0 could not use the store, or found a value that no rank wrote.
    Failed(StoreError),
    /// This many further values hold what is too long for one.
    Pieces(u32),
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

    /// Number of ranks; a byte for the kind; then each input with its length before it, each
    /// missing rank, the unfit rank and its number of ranks, the error with its number of bytes, or
    /// the number of pieces.
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
            Self::Unfit { rank, theirs } => {
                bytes.push(2);
                bytes.extend([rank.0, *theirs].map(u32::to_le_bytes).as_flattened());
            }
            Self::Failed(error) => {
                let (code, n_bytes) = match *error {
                    StoreError::Full => (1, 0),
                    StoreError::Damaged => (2, 0),
                    StoreError::TooLong { n_bytes } => (3, n_bytes),
                    _ => (0, 0),
                };
                bytes.push(3);
                bytes.extend([code, n_bytes as u32].map(u32::to_le_bytes).as_flattened());
            }
            Self::Pieces(n_pieces) => {
                bytes.push(4);
                bytes.extend(n_pieces.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes the value after the number of ranks; `None` if rank 0 did not write it.
    pub(crate) fn decode(value: &[u8], size: usize) -> Option<Self> {
        let (kind, rest) = value.split_first()?;
        if *kind == 1 {
            return Self::decode_parts(rest, size);
        }
        let (numbers, []) = rest.as_chunks() else { return None };
        let numbers: Vec<u32> = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let is_rank = |rank: u32| (rank as usize) < size;
        Some(match (*kind, &numbers[..]) {
            (0, [_, ..]) if numbers.iter().all(|&rank| is_rank(rank)) => {
                Self::Missing(numbers.into_iter().map(Rank).collect())
            }
            (2, &[rank, theirs]) if is_rank(rank) && theirs as usize != size => {
                Self::Unfit { rank: Rank(rank), theirs }
            }
            (3, [0, 0]) => Self::Failed(StoreError::Failed),
            (3, [1, 0]) => Self::Failed(StoreError::Full),
            (3, [2, 0]) => Self::Failed(StoreError::Damaged),
            (3, &[3, n_bytes]) => Self::Failed(StoreError::TooLong { n_bytes: n_bytes as usize }),
            (4, &[n_pieces]) if (2..=max_pieces(size)).contains(&(n_pieces as usize)) => {
                Self::Pieces(n_pieces)
            }
            _ => return None,
        })
    }

    fn decode_parts(mut rest: &[u8], size: usize) -> Option<Self> {
        let mut parts = Vec::new();
        while parts.len() < size
            && let Some((n_bytes, after)) = rest.split_first_chunk()
        {
            let (part, after) = after.split_at_checked(u32::from_le_bytes(*n_bytes) as usize)?;
            parts.push(part.to_vec());
            rest = after;
        }
        (rest.is_empty() && parts.len() == size).then_some(Self::Parts(parts))
    }
}

/// Most pieces into which rank 0 cuts the inputs of `size` ranks.
const fn max_pieces(size: usize) -> usize {
    (5 + size * (4 + MAX_GIVEN_BYTES)).div_ceil(MAX_VALUE_BYTES)
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
                let ended = self.end_round(round);
                // If both have failed, the first is the reason.
                let all = all?;
                ended?;
                Ok(all)
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
        let unfit = Gathered::Unfit { rank: Rank(2), theirs: 4 };
        let failed = [
            StoreError::Failed,
            StoreError::Full,
            StoreError::Damaged,
            StoreError::TooLong { n_bytes: 5 << 20 },
        ];
        let failed = failed.map(Gathered::Failed);
        for gathered in [parts, missing, unfit].into_iter().chain(failed) {
            let bytes = gathered.encode(3);
            let (size, bytes) = bytes.split_at(4);
            assert_eq!(size, [3, 0, 0, 0]);
            assert_eq!(Gathered::decode(bytes, 3).as_ref(), Some(&gathered));
            for end in 0..bytes.len() {
                let cut = Gathered::decode(&bytes[..end], 3);
                // A list of missing ranks has no length.
                assert!(cut.is_none_or(|cut| matches!(cut, Gathered::Missing(_))), "{end}");
            }
            let of_another = Gathered::decode(bytes, 2);
            assert!(of_another.is_none_or(|other| matches!(other, Gathered::Failed(_))));
        }
        let hostile = [&[1][..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(Gathered::decode(&hostile, 1), None);
        let pieces = |n_pieces| Gathered::Pieces(n_pieces).encode(1000)[4..].to_vec();
        for n_pieces in 2..=16 {
            let decoded = Gathered::decode(&pieces(n_pieces), 1000);
            assert_eq!(decoded, Some(Gathered::Pieces(n_pieces)));
        }
        for n_pieces in [0, 1, 17, u32::MAX] {
            assert_eq!(Gathered::decode(&pieces(n_pieces), 1000), None, "{n_pieces}");
        }
    }
}
