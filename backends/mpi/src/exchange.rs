//! MPI as a bootstrap for other backends: it provides ranks and exchanges addresses.

use std::ffi::c_int;

use foldwire::Rank;
use foldwire_bootstrap::Exchange;
use mpi::traits::{Communicator, CommunicatorCollectives};

use crate::Error;

/// An [`Exchange`] over an MPI communicator.
#[derive(Debug)]
pub struct OverMpi<'c, C>(pub &'c C);

impl<C: Communicator + CommunicatorCollectives> Exchange for OverMpi<'_, C> {
    type Error = Error;

    fn rank(&self) -> Rank {
        Rank::new(self.0.rank() as usize)
    }

    fn size(&self) -> usize {
        self.0.size() as usize
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut lengths = vec![0u64; self.size()];
        self.0.all_gather_into(&(mine.len() as u64), &mut lengths);
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        if longest > c_int::MAX as usize {
            return Err(Error::new(crate::ffi::COUNT_ERROR, None));
        }
        // Pad every input to the longest, so that one call without displacements suffices.
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0u8; longest * self.size()];
        if longest > 0 {
            self.0.all_gather_into(&padded[..], &mut all[..]);
        }
        let parts = (0..self.size()).map(|rank| &all[rank * longest..][..longest]);
        Ok(parts.zip(&lengths).map(|(part, &n)| part[..n as usize].to_vec()).collect())
    }
}
