//! Exchange between ranks that are threads of one process. It needs no rendezvous; use it for
//! tests and to try a network on one machine.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use foldwire::Rank;

use crate::error::Error;
use crate::exchange::Exchange;

/// One rank of a group whose ranks are threads.
///
/// # Examples
/// ```
/// use foldwire_bootstrap::{Exchange, InProcess};
///
/// std::thread::scope(|scope| {
///     for mut rank in InProcess::ranks(3) {
///         scope.spawn(move || {
///             let all = rank.all_gather(&[rank.rank().0 as u8]).unwrap();
///             assert_eq!(all, [[0], [1], [2]]);
///         });
///     }
/// });
/// ```
pub struct InProcess {
    rank: Rank,
    size: usize,
    n_rounds: usize,
    shared: Arc<SharedExchange>,
}

/// State that all ranks share.
#[derive(Default)]
struct SharedExchange {
    state: Mutex<ExchangeState>,
    changed: Condvar,
}

#[derive(Default)]
struct ExchangeState {
    /// For each round: the inputs by rank, and the number of ranks that have read them.
    rounds: BTreeMap<usize, (BTreeMap<u32, Vec<u8>>, usize)>,
    ended: Vec<Rank>,
}

impl SharedExchange {
    fn lock(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InProcess {
    /// Creates a group of `size` ranks and returns them in rank order.
    pub fn ranks(size: usize) -> impl Iterator<Item = Self> {
        let shared = Arc::new(SharedExchange::default());
        (0..size).map(move |rank| Self {
            rank: Rank::new(rank),
            size,
            n_rounds: 0,
            shared: Arc::clone(&shared),
        })
    }
}

impl Exchange for InProcess {
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// Waits without a time limit. Fails if a rank has ended without taking part.
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let round = self.n_rounds;
        self.n_rounds += 1;
        let mut state = self.shared.lock();
        state.rounds.entry(round).or_default().0.insert(self.rank.0, mine.to_vec());
        self.shared.changed.notify_all();
        loop {
            let ExchangeState { rounds, ended } = &mut *state;
            let (given, n_readers) = rounds.entry(round).or_default();
            if given.len() == self.size {
                *n_readers += 1;
                let all = given.values().cloned().collect();
                if *n_readers == self.size {
                    rounds.remove(&round);
                }
                return Ok(all);
            }
            if let Some(&rank) = ended.iter().find(|rank| !given.contains_key(&rank.0)) {
                return Err(Error::Left { rank });
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.lock().ended.push(self.rank);
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_get_what_all_gave_in_every_round() {
        thread::scope(|scope| {
            for mut rank in InProcess::ranks(4) {
                scope.spawn(move || {
                    for round in 0..50u8 {
                        let all = rank.all_gather(&[round, rank.rank.0 as u8]).unwrap();
                        let expected: Vec<_> = (0..4).map(|of| vec![round, of]).collect();
                        assert_eq!(all, expected);
                    }
                });
            }
        });
    }

    #[test]
    fn nobody_waits_for_a_rank_that_has_ended() {
        let mut ranks: Vec<_> = InProcess::ranks(2).collect();
        drop(ranks.pop());
        let mut first = ranks.remove(0);
        assert!(matches!(first.barrier(), Err(Error::Left { rank: Rank(1) })));
    }
}
