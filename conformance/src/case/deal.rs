//! Division of a [`Case`]'s values among its ranks. Shares are as equal as possible, or, in calls
//! whose names end in `_v`, given by a count for each rank. Many of these counts are 0.
//!
//! The values of one rank for another are a *block*. In an even division, blocks are the shares of
//! one array. In an uneven division, the values of a block depend only on its source and
//! destination. So ranks that disagree about the lengths of other blocks still expect the same
//! values in this one.

use super::Case;
use crate::data::Random;
use foldwire::{Collective, Float};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Division of the values among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// Shares as equal as possible.
    Even,
    /// Random counts from this seed.
    Uneven(u64),
}

/// Counts of a rank in a call whose name ends in `_v`. An all-to-all uses both lists, other
/// collectives the first.
#[derive(Clone, PartialEq, Eq)]
pub struct Counts {
    pub(super) send: Vec<usize>,
    pub(super) recv: Vec<usize>,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counts {:?}", self.send)
    }
}

impl Counts {
    /// Counts of calls that take none.
    pub const NONE: Self = Self { send: Vec::new(), recv: Vec::new() };
}

/// Returns whether the collective has a call that takes counts.
pub(super) const fn takes_counts(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Scatter
            | Collective::Gather
            | Collective::AllToAll
    )
}

impl Case {
    /// Counts that `rank` passes to the call.
    #[must_use]
    pub fn counts(&self, rank: usize) -> Counts {
        match (self.deal, self.collective) {
            (Deal::Even, _) => Counts::NONE,
            (_, Collective::AllToAll) => {
                let recv = (0..self.size).map(|source| self.lens(source)[rank]).collect();
                Counts { send: self.lens(rank), recv }
            }
            _ => Counts { send: self.lens(rank), recv: Vec::new() },
        }
    }

    /// Number of values that `source` has for each rank. These numbers depend on `source` only in
    /// an all-to-all.
    fn lens(&self, source: usize) -> Vec<usize> {
        let Deal::Uneven(seed) = self.deal else {
            let share = |rank| foldwire::layout::share(self.count, self.size, rank).len();
            return (0..self.size).map(share).collect();
        };
        let is_exchange = self.collective == Collective::AllToAll;
        let row = if is_exchange { source as u64 + 1 } else { 0 };
        let mut random = Random(seed ^ row << 48);
        let count = match random.below(3) {
            0 if is_exchange => 0,
            1 if is_exchange => self.count / 3,
            _ => self.count,
        };
        let weights: Vec<usize> =
            (0..self.size).map(|_| *random.pick(&[0, 0, 1, 1, 2, 5, 20])).collect();
        let all = weights.iter().sum::<usize>().max(1);
        let mut lens: Vec<usize> = weights.iter().map(|weight| count * weight / all).collect();
        // One rank gets the remainder.
        lens[random.below(self.size)] += count - lens.iter().sum::<usize>();
        lens
    }

    /// Number of values that pass from one rank to another by this case; `None` if no rank can
    /// tell.
    #[must_use]
    pub fn n_passing(&self, source: usize, to: usize) -> Option<usize> {
        let block = match self.collective {
            Collective::AllToAll | Collective::ReduceScatter => to,
            Collective::Scatter if source == self.root => to,
            Collective::AllGather => source,
            Collective::Gather if to == self.root => source,
            _ => return None,
        };
        Some(self.lens(source)[block])
    }

    /// Share of `rank` in the divided array.
    pub(super) fn share(&self, rank: usize) -> Range<usize> {
        if self.deal == Deal::Even {
            return foldwire::layout::share(self.count, self.size, rank);
        }
        let lens = self.lens(rank);
        let start = lens[..rank].iter().sum();
        start..start + lens[rank]
    }

    /// Index in the rank's input of a value that has index `index` in the rank's block for `to`.
    /// Uneven blocks begin 37 values apart, an arbitrary number, and wrap around the input.
    fn place_of(&self, to: usize, index: usize) -> usize {
        match self.deal {
            Deal::Even => foldwire::layout::share(self.count, self.size, to).start + index,
            Deal::Uneven(_) => (index + 37 * to) % self.count,
        }
    }

    /// All values that a rank sends, taken from its input.
    pub(super) fn dealt<'a, T: Float>(&self, input: &'a [T], rank: usize) -> Cow<'a, [T]> {
        if self.deal == Deal::Even {
            return Cow::Borrowed(input);
        }
        let lens = self.lens(rank).into_iter().enumerate();
        let places = lens.flat_map(|(to, len)| (0..len).map(move |index| (to, index)));
        places.map(|(to, index)| input[self.place_of(to, index)]).collect()
    }

    /// Origin of each value that `rank` ends with: the owner, and the index in the owner's input.
    /// In a reduction, all ranks' inputs have the operands at this index, and 0 is an arbitrary
    /// owner. `dealt_by` returns the case that an owner has, since ranks may disagree.
    pub(super) fn origins(
        &self,
        rank: usize,
        dealt_by: &dyn Fn(usize) -> Self,
    ) -> Vec<(usize, usize)> {
        // Blocks as (owner, destination).
        let blocks: Vec<(usize, usize)> = match self.collective {
            Collective::ReduceScatter => vec![(0, rank)],
            Collective::Scatter => vec![(self.root, rank)],
            Collective::AllGather => (0..self.size).map(|owner| (owner, owner)).collect(),
            Collective::Gather if rank == self.root => {
                (0..self.size).map(|owner| (owner, owner)).collect()
            }
            Collective::AllToAll => (0..self.size).map(|owner| (owner, rank)).collect(),
            Collective::Broadcast => {
                return (0..self.count).map(|place| (self.root, place)).collect();
            }
            _ => return self.result_range(rank).map(|place| (0, place)).collect(),
        };
        let values = blocks.into_iter().flat_map(|(owner, to)| {
            let len = self.lens(owner)[to];
            (0..len).map(move |index| (owner, to, index))
        });
        values.map(|(owner, to, index)| (owner, dealt_by(owner).place_of(to, index))).collect()
    }

    /// Number of values that `rank` receives in an all-to-all.
    pub(super) fn n_received(&self, rank: usize) -> usize {
        (0..self.size).map(|source| self.lens(source)[rank]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_all_values_many_are_0_and_blocks_are_what_is_received() {
        let mut n_empty = 0;
        for seed in 0..200 {
            let (size, count) = (1 + seed as usize % 7, [0, 1, 5, 100][seed as usize % 4]);
            let deal = Deal::Uneven(seed);
            let gather =
                Case { collective: Collective::AllGather, deal, ..Case::all_reduce(size, count) };
            let exchange = Case { collective: Collective::AllToAll, ..gather };
            for rank in 0..size {
                let counts = gather.counts(rank);
                assert_eq!(counts.send.iter().sum::<usize>(), count);
                assert_eq!(gather.share(rank).len(), counts.send[rank]);
                n_empty += counts.send.iter().filter(|&&n| count > 0 && n == 0).count();
                let Counts { send, recv } = exchange.counts(rank);
                assert_eq!(recv.iter().sum::<usize>(), exchange.origins(rank, &|_| exchange).len());
                assert_eq!(exchange.n_received(rank), recv.iter().sum::<usize>());
                let input: Vec<f32> = (0..count).map(|i| i as f32).collect();
                assert_eq!(exchange.dealt(&input, rank).len(), send.iter().sum::<usize>());
                for (to, n_values) in send.into_iter().enumerate() {
                    assert_eq!(exchange.n_passing(rank, to), Some(n_values));
                    assert_eq!(exchange.counts(to).recv[rank], n_values);
                }
            }
        }
        assert!(n_empty > 500, "{n_empty}");
    }
}
