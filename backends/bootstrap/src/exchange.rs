//! Interface through which a backend exchanges addresses: implemented here over TCP, and by
//! `foldwire-mpi` over MPI.

use std::net::IpAddr;

use foldwire::Rank;

use crate::token::Token;

/// A slow and reliable exchange between all ranks, to set up a fast network.
///
/// Every rank makes the same calls in the same order.
pub trait Exchange {
    /// Error of an exchange.
    type Error: std::error::Error + Send + Sync + 'static;

    /// This process's rank.
    fn rank(&self) -> Rank;

    /// Number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Waits for all ranks, and returns their inputs in rank order. `mine` is this rank's input.
    ///
    /// # Errors
    /// If a rank does not take part within the time limit, or is lost.
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    fn barrier(&mut self) -> Result<(), Self::Error> {
        self.all_gather(&[]).map(|_| ())
    }

    /// Returns a rank that has ended without a goodbye and was not returned before. Never waits.
    ///
    /// The default implementation detects no losses.
    fn poll_lost(&mut self) -> Option<Rank> {
        None
    }

    /// Secret that all ranks of this exchange know, if there is one.
    ///
    /// A backend uses it if its settings have none.
    fn token(&self) -> Option<&Token> {
        None
    }

    /// Address of this machine through which it reached another rank, unless that is loopback.
    ///
    /// A backend listens there if its settings name no address, and the ranks have a
    /// [`token`](Self::token).
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}
