//! The places for calls of one communicator, and how all of them end when one fails.
//!
//! Each place has a channel, on which ranks hear of each other's failures. A rank that has all it
//! needs of a call that another gave up goes on to the next one, on the next channel. So who gives
//! up tells the others on every channel of the communicator: where a call is under way, when that
//! is over.

#[cfg(feature = "std")]
use super::Stopper;
use super::{Node, Port};
use crate::collective::{Call, CallState, Communicator};
use crate::error::Error;
use crate::op::Op;
use crate::plan::Plan;
use crate::transport::Transport;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, OnceCell, RefCell};

/// A place for one call at a time: a communicator of one channel.
pub(crate) struct CallSlot<'a, X: Transport> {
    pub(super) node: Rc<Node<'a, X>>,
    pub(crate) channel: usize,
    /// When the communicator was made.
    pub(super) epoch: u64,
    /// None once it was shrunk.
    pub(crate) comm: RefCell<Option<Communicator<Port<'a, X>>>>,
    /// A call is under way.
    pub(crate) is_taken: Cell<bool>,
    pub(super) shared: Rc<CallSlots<'a, X>>,
}

/// What the seats of one communicator have in common.
pub(super) struct CallSlots<'a, X: Transport> {
    pub(super) call_slots: OnceCell<Weak<[Rc<CallSlot<'a, X>>]>>,
    /// A call has failed: by this error, or because it was dropped.
    failure: Cell<Option<Option<Error>>>,
    #[cfg(feature = "std")]
    pub(super) stopper: Stopper,
}

impl<X: Transport> CallSlots<'_, X> {
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
    /// The call on this seat is over, on its communicator `own`. If it was given up, for this error
    /// or because it was dropped, the others are told on all seats without a call.
    pub(crate) fn leave(&self, own: &mut Communicator<Port<'a, X>>, error: Option<&Error>) {
        self.is_taken.set(false);
        if own.is_poisoned() && self.shared.failure.get().is_none() {
            self.shared.failure.set(Some(error.copied()));
        }
        let Some(failure) = self.shared.failure.get() else { return };
        refuse(own, failure.as_ref());
        let call_slots = self.shared.call_slots.get().and_then(Weak::upgrade);
        for call_slot in call_slots.iter().flat_map(|call_slots| call_slots.iter()) {
            if !call_slot.is_taken.get()
                && let Ok(mut comm) = call_slot.comm.try_borrow_mut()
                && let Some(comm) = comm.as_mut()
            {
                refuse(comm, failure.as_ref());
            }
        }
    }

    /// Ends the communicator before its first call, for this error or because it was dropped.
    pub(super) fn fail(&self, error: Option<&Error>) {
        if let Ok(mut comm) = self.comm.try_borrow_mut()
            && let Some(comm) = comm.as_mut()
        {
            refuse(comm, error);
            self.leave(comm, error);
        }
    }

    /// What ends all calls of the communicator.
    #[cfg(feature = "std")]
    pub(crate) fn stopper(&self) -> Stopper {
        self.shared.stopper.clone()
    }

    /// Why the communicator has failed, if an error is why.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.shared.failure.get().flatten()
    }

    /// Whatever has failed, survivors go on.
    pub(crate) fn forget_failure(&self) {
        self.shared.failure.set(None);
    }
}

/// Gives up the next call on a channel, for this error or for none, unless that is done.
fn refuse<X: Transport>(comm: &mut Communicator<X>, error: Option<&Error>) {
    let mut call = Call::all_reduce([0_f32; 0], Op::Max);
    let (request, mut work) = call.parts(comm.rank());
    if let Ok(mut call) = CallState::start(comm, request, &mut work, &Plan::raw()) {
        call.give_up(comm, error);
    }
}

impl<X: Transport> Drop for CallSlot<'_, X> {
    fn drop(&mut self) {
        self.node.release(self.channel, self.epoch, self.comm.get_mut().as_ref());
    }
}
