//! Calls that are only checked, so that of several that belong together none begins unless all may.

use super::SharedCommunicator;
use crate::collective::Communicator;
use crate::error::Error;
use crate::node::Port;
use crate::transport::Transport;
use core::cell::Cell;

/// Says if calls are only checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CheckState {
    #[default]
    No,
    Yes,
    /// They are, and one was found possible.
    Passed,
}

/// Ends a check, also one that unwinds.
struct CheckGuard<'c>(&'c Cell<CheckState>);

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.0.set(CheckState::No);
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Checks a call without making it. `start` starts it: a collective, a group call or a message,
    /// or an [`exchange`](Self::exchange). Here these only look at their arguments; nothing is
    /// sent, and no array is written. They return an error in any case, which `start` hands on.
    ///
    /// A check takes no account of how many calls are under way.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    ///
    /// # Examples
    /// Two sums, or none:
    /// ```
    /// use foldwire::{Call, Error, Op, Plan, SharedCommunicator, Transport};
    ///
    /// fn both<X: Transport>(
    ///     comm: &SharedCommunicator<'_, X>,
    ///     a: &mut [f32],
    ///     b: &mut [i64],
    ///     op: Op<'_, i64>,
    /// ) -> Result<(), Error> {
    ///     comm.check(|comm| comm.start(Call::all_reduce(b.to_vec(), Op::Sum), &Plan::raw()))?;
    ///     comm.all_reduce(a, Op::Sum, &Plan::raw())?;
    ///     comm.all_reduce(b, op, &Plan::raw())?;
    ///     Ok(())
    /// }
    /// ```
    pub fn check<R>(&self, start: impl FnOnce(&Self) -> Result<R, Error>) -> Result<(), Error> {
        let _end = CheckGuard(&self.checking);
        self.checking.set(CheckState::Yes);
        match start(self) {
            Err(_) if self.checking.get() == CheckState::Passed => Ok(()),
            result => result.map(drop),
        }
    }

    /// How many more messages may be under way: sends, receives.
    ///
    /// # Errors
    /// [`Error::NoMessages`] without a channel for messages; [`Error::TooManyMessages`] if there
    /// may not be so many.
    pub fn check_room(&self, n_sends: usize, n_recvs: usize) -> Result<(), Error> {
        self.mailbox()?.check_room([n_recvs, n_sends])
    }

    pub(super) fn is_checking(&self) -> bool {
        self.checking.get() != CheckState::No
    }

    /// The result of a check, as the error that starting returns.
    pub(super) fn checked(
        &self,
        check: impl FnOnce(&mut Communicator<Port<'a, X>>) -> Result<(), Error>,
    ) -> Error {
        self.checking.set(CheckState::Yes);
        if self.is_poisoned() {
            return Error::Poisoned;
        }
        // A group call under way has borrowed its seats.
        let mut call_slots =
            self.call_slots.iter().filter_map(|call_slot| call_slot.comm.try_borrow_mut().ok());
        let Some(mut comm) = call_slots.next() else { return Error::Internal };
        match comm.as_mut().map_or(Err(Error::Poisoned), check) {
            Ok(()) => {
                self.checking.set(CheckState::Passed);
                Error::Finished
            }
            Err(error) => error,
        }
    }
}
