//! Checks that validate calls without running them. A caller can check several calls that belong
//! together, and begin the first only if all are possible.

use super::SharedCommunicator;
use crate::collective::Communicator;
use crate::error::Error;
use crate::shared_transport::Port;
use crate::transport::{Rank, Transport};
use core::cell::Cell;

/// State of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CheckState {
    /// No check is running.
    #[default]
    No,
    /// A check is running.
    Yes,
    /// A check is running, and a call was found possible.
    Passed,
}

/// Ends a check when dropped, also while unwinding.
struct CheckGuard<'c>(&'c Cell<CheckState>);

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.0.set(CheckState::No);
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Checks a call without running it.
    ///
    /// `start` must start the call: a collective, a group call, a message, or an
    /// [`exchange`](Self::exchange). During a check, these functions only validate their arguments,
    /// send nothing and write no array. They always return an error, which `start` must return.
    ///
    /// A check ignores how many calls are in progress.
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`].
    ///
    /// # Examples
    /// Run two sums, or neither:
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

    /// Checks that this many more receives may start, and sends to these ranks.
    ///
    /// # Errors
    /// [`Error::NoMessages`] without a channel for messages; [`Error::TooManyMessages`] if too many
    /// would be in progress.
    pub fn check_room(&self, receivers: &[Rank], n_recvs: usize) -> Result<(), Error> {
        let mailbox = self.mailbox()?;
        mailbox.check_room([n_recvs, receivers.len()])?;
        mailbox.check_held(self.rank, receivers.iter().filter(|&&to| to == self.rank).count())
    }

    pub(super) fn is_checking(&self) -> bool {
        self.checking.get() != CheckState::No
    }

    /// Returns the result of a check, as the error that starting a call returns.
    pub(super) fn checked(
        &self,
        check: impl FnOnce(&mut Communicator<Port<'a, X>>) -> Result<(), Error>,
    ) -> Error {
        // Discard the result of an earlier call in the same check.
        self.checking.set(CheckState::Yes);
        if self.is_poisoned() {
            return Error::Poisoned;
        }
        // Use the first slot that is not borrowed: one may be computing.
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
