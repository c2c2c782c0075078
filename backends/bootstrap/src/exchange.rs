//! What a backend needs to set itself up, whoever provides it: TCP here, or MPI.

use foldwire::Rank;

/// A slow, sure way to tell all ranks something, before there is a fast one.
///
/// Every rank makes the same calls in the same order.
pub trait Exchange {
    /// Why it failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// This process's rank.
    fn rank(&self) -> Rank;

    /// Number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Gives every rank every rank's `mine`, in rank order. Waits for all ranks.
    ///
    /// # Errors
    /// When a rank does not take part within the time limit, or is lost.
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    fn barrier(&mut self) -> Result<(), Self::Error> {
        self.all_gather(&[]).map(|_| ())
    }

    /// A rank that has ended since the last call without saying goodbye, if this way knows of any.
    /// Never waits.
    fn poll_lost(&mut self) -> Option<Rank> {
        None
    }
}
