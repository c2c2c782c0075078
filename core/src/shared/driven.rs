//! Calls and messages in progress, as the shared transport drives them.

use crate::collective::{Call, CallState, Communicator, DeviceOperands, Operands};
use crate::element::Element;
use crate::error::{Buffer, Error};
use crate::handle::Progress;
use crate::report::Report;
use crate::shared_transport::{CallSlot, Drive, Port};
use crate::transport::Transport;
use crate::wait::Limits;
use alloc::rc::Rc;
use core::time::Duration;

/// A call or a message, without the communicator that it runs on.
pub(super) trait SlotWork<X: Transport> {
    /// The array that its caller gets back.
    type Given;

    /// Does a bounded amount of work.
    fn advance(&mut self, comm: &mut Communicator<X>) -> Result<Progress, Error>;

    /// Returns the report, right after the work has finished.
    fn finish(&mut self, comm: &mut Communicator<X>) -> Report;

    /// Ends the work after an error, or because it was dropped, and notifies the other ranks.
    /// Returns the error that the other calls of the communicator report.
    fn give_up(&mut self, comm: &mut Communicator<X>, error: Option<Error>) -> Option<Error>;

    /// Time limits.
    fn limits(&mut self) -> &mut Limits;

    /// Records that the caller waits.
    fn note_wait(&mut self) {}

    /// Returns how long to rest before the next poll.
    fn rest(&self, now: Duration) -> Duration;

    /// Returns the caller's array, once the work has ended.
    fn into_given(self) -> Self::Given;
}

/// A call or a message on its call slot. Dropping it unfinished aborts it.
pub(super) struct Driven<'a, X: Transport, W: SlotWork<Port<'a, X>>> {
    call_slot: Rc<CallSlot<'a, X>>,
    /// `None` once the caller has its array back.
    work: Option<W>,
    outcome: Option<Result<Report, Error>>,
}

impl<'a, X: Transport, W: SlotWork<Port<'a, X>>> Driven<'a, X, W> {
    /// Takes a slot for a started call.
    pub(super) fn call(call_slot: &Rc<CallSlot<'a, X>>, work: W) -> Self {
        call_slot.is_taken.set(true);
        Self::new(call_slot, work, None)
    }

    /// `outcome` is the report of work that has finished already.
    pub(super) fn new(
        call_slot: &Rc<CallSlot<'a, X>>,
        work: W,
        outcome: Option<Result<Report, Error>>,
    ) -> Self {
        Self { call_slot: Rc::clone(call_slot), work: Some(work), outcome }
    }
}

impl<'a, X: Transport, W: SlotWork<Port<'a, X>>> Drive for Driven<'a, X, W> {
    fn drive(&mut self) -> bool {
        let Some(work) = self.work.as_mut().filter(|_| self.outcome.is_none()) else {
            return false;
        };
        let Ok(mut comm) = self.call_slot.comm.try_borrow_mut() else { return false };
        let Some(comm) = comm.as_mut() else {
            self.outcome = Some(Err(Error::Poisoned));
            return true;
        };
        let (outcome, reported) = match work.advance(comm) {
            Ok(Progress::Moved) => return true,
            Ok(Progress::Waiting) => return false,
            Ok(Progress::Finished) => (Ok(work.finish(comm)), None),
            Err(error) => (Err(error), work.give_up(comm, Some(error))),
        };
        self.outcome = Some(outcome);
        self.call_slot.leave(comm, reported.as_ref());
        true
    }

    fn outcome(&self) -> Option<Result<Report, Error>> {
        self.outcome
    }

    fn channel(&self) -> usize {
        self.call_slot.channel
    }

    fn abandon(&mut self, error: Option<Error>) {
        if self.outcome.is_some() {
            return;
        }
        if let Ok(mut comm) = self.call_slot.comm.try_borrow_mut()
            && let (Some(comm), Some(work)) = (comm.as_mut(), &mut self.work)
        {
            let reported = work.give_up(comm, error);
            self.call_slot.leave(comm, reported.as_ref());
        }
        self.outcome = Some(Err(error.unwrap_or(Error::Poisoned)));
    }

    fn limits(&mut self) -> Option<&mut Limits> {
        self.work.as_mut().map(W::limits)
    }

    fn note_wait(&mut self) {
        self.work.iter_mut().for_each(W::note_wait);
    }

    fn rest(&self, now: Duration) -> Duration {
        self.work.as_ref().map_or(Duration::ZERO, |work| work.rest(now))
    }
}

impl<'a, X: Transport, W: SlotWork<Port<'a, X>>> Drop for Driven<'a, X, W> {
    fn drop(&mut self) {
        self.abandon(None);
    }
}

/// Work that holds the caller's array.
pub(super) trait BufferOwner<R>: Drive {
    /// Returns the array, the first time only.
    fn give_back(&mut self) -> Option<R>;
}

impl<'a, X: Transport, W: SlotWork<Port<'a, X>>> BufferOwner<W::Given> for Driven<'a, X, W> {
    fn give_back(&mut self) -> Option<W::Given> {
        self.work.take().map(W::into_given)
    }
}

/// A collective call, and its buffers.
pub(super) struct CallWork<'a, B> {
    pub(super) call_state: CallState<'a>,
    pub(super) buffers: B,
}

/// Buffers of a call in progress.
pub(super) trait CallBuffers {
    /// The array that the finished call returns to its caller.
    type Given;

    /// Calls `then` with the buffers.
    fn with(
        &mut self,
        then: impl FnOnce(&mut dyn Operands) -> Result<Progress, Error>,
    ) -> Result<Progress, Error>;

    fn into_given(self) -> Self::Given;
}

/// Buffers that belong to someone else.
impl<W: Operands> CallBuffers for W {
    type Given = ();

    fn with(
        &mut self,
        then: impl FnOnce(&mut dyn Operands) -> Result<Progress, Error>,
    ) -> Result<Progress, Error> {
        then(self)
    }

    fn into_given(self) {}
}

/// Buffers in a device's memory, which the call owns: where it sends from, and where its result
/// goes.
pub(super) struct DeviceBuffers<'a, S, R> {
    /// Ends the use of the buffers when it is dropped, so it is dropped first.
    pub(super) operands: DeviceOperands<'a>,
    pub(super) given: (S, R),
}

impl<S, R> CallBuffers for DeviceBuffers<'_, S, R> {
    type Given = R;

    fn with(
        &mut self,
        then: impl FnOnce(&mut dyn Operands) -> Result<Progress, Error>,
    ) -> Result<Progress, Error> {
        then(&mut self.operands)
    }

    fn into_given(self) -> R {
        let Self { operands, given: (_, result) } = self;
        drop(operands);
        result
    }
}

/// Buffers in the host's memory, which the call owns.
pub(super) struct HostBuffers<'a, T: Element, S, R> {
    pub(super) call: Call<'a, T, S, R>,
    /// Lengths at the start.
    lengths: [usize; 2],
}

impl<'a, T: Element, S: AsRef<[T]>, R: AsMut<[T]>> HostBuffers<'a, T, S, R> {
    pub(super) fn new(mut call: Call<'a, T, S, R>) -> Self {
        let lengths = call.lengths();
        Self { call, lengths }
    }
}

impl<T: Element, S: AsRef<[T]>, R: AsMut<[T]>> CallBuffers for HostBuffers<'_, T, S, R> {
    type Given = R;

    fn with(
        &mut self,
        then: impl FnOnce(&mut dyn Operands) -> Result<Progress, Error>,
    ) -> Result<Progress, Error> {
        let lengths = [Buffer::Send, Buffer::Recv].into_iter().zip(self.call.lengths());
        for ((buffer, have), need) in lengths.zip(self.lengths) {
            if have != need {
                return Err(Error::Length { buffer, need, have });
            }
        }
        then(&mut self.call.work())
    }

    fn into_given(self) -> R {
        self.call.into_result()
    }
}

impl<X: Transport, B: CallBuffers> SlotWork<X> for CallWork<'_, B> {
    type Given = B::Given;

    fn advance(&mut self, comm: &mut Communicator<X>) -> Result<Progress, Error> {
        let Self { call_state, buffers } = self;
        buffers.with(|operands| call_state.advance(comm, operands))
    }

    fn finish(&mut self, comm: &mut Communicator<X>) -> Report {
        self.call_state.finish(comm)
    }

    fn give_up(&mut self, comm: &mut Communicator<X>, error: Option<Error>) -> Option<Error> {
        let Self { call_state, buffers } = self;
        let _ = buffers.with(|operands| {
            call_state.give_up(comm, Some(operands), error.as_ref());
            Ok(Progress::Moved)
        });
        // An array whose length has changed is not on a device.
        call_state.give_up(comm, None, error.as_ref());
        error
    }

    fn limits(&mut self) -> &mut Limits {
        &mut self.call_state.limits
    }

    fn rest(&self, now: Duration) -> Duration {
        self.call_state.limits.rest_from(now, self.call_state.rest())
    }

    fn into_given(self) -> B::Given {
        self.buffers.into_given()
    }
}
