//! Grow of a communicator that shares its transport.

use super::SharedCommunicator;
use crate::collective::Config;
use crate::error::Error;
use crate::grow::{self, Admission, Connector, GrowError, Grown, Roster};
use crate::store::Store;
use crate::transport::Transport;

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// The configuration.
    pub fn config(&self) -> Config {
        self.shared.config
    }

    /// Survivors' side of a [grow](crate::grow): forms a group of the ranks that call this and of
    /// newcomers, and returns the transport between its planned members. Make a communicator of it,
    /// and let that [vote](Self::vote).
    ///
    /// Calls in progress on this communicator are aborted.
    ///
    /// # Errors
    /// As [`grow::admit`].
    pub fn admit<C: Connector>(
        self,
        store: &mut dyn Store,
        connector: &mut C,
        wanted: &Admission<'_>,
    ) -> Result<Grown<C::Transport>, GrowError<C::Error>> {
        self.abort_calls();
        // The survivors agree over the first channel.
        let mut first = self.call_slots[0].comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let comm = first.take().ok_or(Error::Poisoned)?;
        grow::block_on(grow::admit(comm, store, connector, wanted))
    }
    /// Last step of both sides of a grow, on a communicator of all planned members: agrees on those
    /// that are there, and serves the store meanwhile. The new communicator runs up to `n_calls`
    /// calls at once.
    ///
    /// # Errors
    /// As [`grow::vote`], and [`shrink`](Self::shrink).
    pub fn vote(
        self,
        roster: &Roster,
        store: &mut dyn Store,
        n_calls: usize,
    ) -> Result<Self, Error> {
        self.shrink_by(|comm| grow::block_on(grow::vote(comm, roster, store)), n_calls)
    }
}
