//! Call slots of one communicator, and how all of them end when one call fails.
//!
//! Each call slot has a channel, on which ranks learn of each other's failures. A rank that has all
//! it needs of an aborted call goes on to the next call, on the next channel. So a rank that aborts
//! a call notifies the other ranks on every channel of the communicator. On a channel with a
//! running call, it sends the notice after that call.

#[cfg(feature = "std")]
use super::Stopper;
use super::{Port, SharedTransport};
use crate::collective::{Call, CallState, Communicator};
use crate::error::Error;
use crate::op::Op;
use crate::plan::Plan;
use crate::transport::Transport;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, OnceCell, RefCell};

/// Slot for one call at a time: a communicator of one channel.
pub(crate) struct CallSlot<'a, X: Transport> {
    pub(super) shared: Rc<SharedTransport<'a, X>>,
    pub(crate) channel: usize,
    /// Epoch in which the communicator was made.
    pub(super) epoch: u64,
    /// The communicator; `None` once it was shrunk.
    pub(crate) comm: RefCell<Option<Communicator<Port<'a, X>>>>,
    /// True if a call is running.
    pub(crate) is_taken: Cell<bool>,
    pub(super) slots: Rc<CallSlotGroup<'a, X>>,
}

/// State that the call slots of one communicator share.
pub(super) struct CallSlotGroup<'a, X: Transport> {
    pub(super) call_slots: OnceCell<Weak<[Rc<CallSlot<'a, X>>]>>,
    /// The first failure of a call; `None` if no call has failed. The inner value is the error, or
    /// `None` if the call was dropped.
    failure: Cell<Option<Option<Error>>>,
    #[cfg(feature = "std")]
    pub(super) stopper: Stopper,
}

impl<X: Transport> CallSlotGroup<'_, X> {
    pub(super) fn new() -> Self {
        Self {
            call_slots: OnceCell::new(),
            failure: Cell::new(None),
            #[cfg(feature = "std")]
            stopper: Stopper::default(),
        }
    }
}

impl<'a, X: Transport> CallSlot<'a, X> {
    /// Calls `then` with the communicator.
    pub(crate) fn with<R>(
        &self,
        then: impl FnOnce(&mut Communicator<Port<'a, X>>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut comm = self.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        then(comm.as_mut().ok_or(Error::Poisoned)?)
    }

    /// Ends the call on this call slot, whose communicator is `own`. If this call or an earlier one
    /// was aborted, notifies the other ranks on all call slots without a running call. `error` is
    /// the reason why this call was aborted; `None` means that it was dropped.
    pub(crate) fn leave(&self, own: &mut Communicator<Port<'a, X>>, error: Option<&Error>) {
        self.is_taken.set(false);
        if own.is_poisoned() && self.slots.failure.get().is_none() {
            self.slots.failure.set(Some(error.copied()));
        }
        let Some(failure) = self.slots.failure.get() else { return };
        refuse(own, failure.as_ref());
        let call_slots = self.slots.call_slots.get().and_then(Weak::upgrade);
        for call_slot in call_slots.iter().flat_map(|call_slots| call_slots.iter()) {
            if !call_slot.is_taken.get()
                && let Ok(mut comm) = call_slot.comm.try_borrow_mut()
                && let Some(comm) = comm.as_mut()
            {
                refuse(comm, failure.as_ref());
            }
        }
    }

    /// Ends the communicator on this free call slot. `error` is the reason; `None` means that its
    /// flush or a group call was dropped.
    pub(crate) fn fail(&self, error: Option<&Error>) {
        if let Ok(mut comm) = self.comm.try_borrow_mut()
            && let Some(comm) = comm.as_mut()
        {
            refuse(comm, error);
            self.leave(comm, error);
        }
    }

    /// Returns the stopper of all calls of the communicator.
    #[cfg(feature = "std")]
    pub(crate) fn stopper(&self) -> Stopper {
        self.slots.stopper.clone()
    }

    /// Returns the error by which the communicator failed, if there is one.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.slots.failure.get().flatten()
    }

    /// Clears the failure, because survivors go on.
    pub(crate) fn forget_failure(&self) {
        self.slots.failure.set(None);
    }
}

/// Aborts the next call on a channel, so that the other ranks receive a notice there. Does nothing
/// if the communicator has already failed. Without an error, the notice says that a call was
/// dropped.
fn refuse<X: Transport>(comm: &mut Communicator<X>, error: Option<&Error>) {
    let mut call = Call::all_reduce([0_f32; 0], Op::Max);
    let (request, mut work) = call.parts(comm.rank());
    if let Ok(mut call) = CallState::start(comm, request, &mut work, &Plan::raw()) {
        call.give_up(comm, None, error);
    }
}

impl<X: Transport> Drop for CallSlot<'_, X> {
    fn drop(&mut self) {
        self.shared.release(self.channel, self.epoch, self.comm.get_mut().as_ref());
    }
}
