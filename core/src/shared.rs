//! A communicator that runs several calls at once and can be split.

mod check;
mod delivery;
mod driven;
mod group;
mod grow;
pub(crate) mod located;
mod mailbox;
mod message_endpoint;
mod messages;
mod pending;
mod split;
mod two_levels;

#[cfg(feature = "std")]
pub use crate::shared_transport::Stopper;
pub use group::GroupCall;
pub use pending::{Finished, Pending};
pub use split::Split;

use crate::collective::named::named_methods;
use crate::collective::{
    Call, Communicator, Config, DeviceOperands, HeldDevice, Incoming, Operands, Outgoing,
    RunningCall,
};
use crate::device::{Device, OnDevice};
use crate::element::Element;
use crate::error::Error;
use crate::layout::share;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::shared_transport::{CallSlot, LeftoverFrames, Port, SharedTransport};
use crate::transport::{MAX_CHANNELS, Rank, Transport};
use alloc::boxed::Box;
use alloc::rc::Rc;
use check::CheckState;
use core::cell::Cell;
use core::time::Duration;
use core::{fmt, mem};
use mailbox::Mailbox;

/// A communicator that runs several calls at once and can be split.
///
/// The `start_…` methods return a [`Pending`] call. They take ownership of buffers, such as a
/// `Vec`, or a slice that outlives the communicator. The finished call returns them. All other
/// methods return when their call has finished. Waiting for one call drives all calls in progress
/// over the same transport, also those of other communicators.
///
/// All ranks must start the same calls on a communicator in the same order. They may wait for them
/// in any order. Calls on different communicators may start in any order.
///
/// A communicator belongs to one thread. It runs at most [`n_calls`] calls at once. Another call
/// fails with [`Error::TooManyCalls`] until the oldest has finished. Each call needs a
/// [channel](Transport::n_channels) of the transport, and frames for its lanes.
///
/// [`n_calls`]: Self::n_calls
///
/// # Examples
/// Run two sums at once, and then one sum of the even ranks and one of the odd ranks:
/// ```
/// use foldwire::{Call, Error, Op, Plan, SharedCommunicator, Transport};
///
/// fn sums<X: Transport>(transport: X, a: Vec<f32>, b: Vec<f32>) -> Result<(), Error> {
///     let world = SharedCommunicator::new(transport, 2)?;
///     let a = world.start(Call::all_reduce(a, Op::Sum), &Plan::raw())?;
///     let b = world.start(Call::all_reduce(b, Op::Sum), &Plan::raw())?;
///     // This drives both calls.
///     let (b, _) = b.wait().into_result()?;
///     let (mut a, _) = a.wait().into_result()?;
///
///     let color = world.rank().0 % 2;
///     if let Some(half) = world.split(Some(color), 0, 1)? {
///         half.all_reduce(&mut a, Op::Sum, &Plan::raw())?;
///     }
/// #   drop(b);
///     Ok(())
/// }
/// ```
pub struct SharedCommunicator<'a, X: Transport + 'a> {
    shared: Rc<SharedTransport<'a, X>>,
    /// Slots for calls. The last one is for messages, if messages have a channel.
    call_slots: Rc<[Rc<CallSlot<'a, X>>]>,
    n_calls: usize,
    /// State of messages, if messages have a channel.
    mailbox: Option<Rc<Mailbox<'a, X>>>,
    /// Index of the slot for the next call.
    next: Cell<usize>,
    /// True while a group call runs. It takes slots as it progresses.
    is_in_group: Cell<bool>,
    /// State of a [`check`](Self::check), during which calls are only checked.
    checking: Cell<CheckState>,
    /// Members in rank order, as ranks of the transport. `None` if all the transport's ranks are
    /// members.
    members: Option<Rc<[Rank]>>,
    rank: Rank,
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Creates a communicator of all the transport's ranks with the default configuration. It runs
    /// up to `n_calls` calls at once, at least one.
    ///
    /// # Errors
    /// As [`with_config`](Self::with_config).
    pub fn new(transport: X, n_calls: usize) -> Result<Self, Error> {
        Self::with_config(transport, Config::default(), n_calls)
    }

    /// Creates a communicator of all the transport's ranks. It runs up to `n_calls` calls at once,
    /// at least one. Communicators made from this one inherit the configuration.
    ///
    /// # Errors
    /// [`Error::TooFewChannels`] if the transport has too few channels for the calls and for
    /// [messages](Config::messages), or its pool has too few frames for their lanes. Also the
    /// errors of [`Communicator::with_config`].
    pub fn with_config(transport: X, config: Config, n_calls: usize) -> Result<Self, Error> {
        let shared = SharedTransport::new(transport, config)?;
        let offer = shared.offer();
        let n_calls = n_calls.clamp(1, MAX_CHANNELS + 1);
        let choice = offer.choose(n_calls, |_| Some(LeftoverFrames::Nothing))?;
        Self::among(shared, &choice.channels, None, 0)
    }

    /// Creates a communicator of `members` on these free channels. The last channel is for
    /// messages, if the configuration gives messages a channel.
    fn among(
        shared: Rc<SharedTransport<'a, X>>,
        channels: &[usize],
        members: Option<Rc<[Rank]>>,
        epoch: u64,
    ) -> Result<Self, Error> {
        let call_slots = shared.call_slots(channels, members.as_ref(), epoch)?;
        let own = shared.rank();
        let position = |members: &Rc<[Rank]>| members.iter().position(|&member| member == own);
        let rank = members.as_ref().and_then(position).map_or(own, Rank::new);
        let (next, is_in_group) = (Cell::new(0), Cell::new(false));
        let checking = Cell::default();
        let last = call_slots.last().filter(|_| shared.config.messages);
        let mailbox = last.map(|call_slot| Rc::new(Mailbox::new(Rc::clone(call_slot))));
        let n_calls = call_slots.len() - usize::from(mailbox.is_some());
        Ok(Self {
            shared,
            call_slots,
            n_calls,
            mailbox,
            next,
            is_in_group,
            checking,
            members,
            rank,
        })
    }

    /// Rank of this process or thread in the communicator.
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.members.as_ref().map_or_else(|| self.shared.size(), |members| members.len())
    }

    /// Returns this rank's share of `count` values.
    pub fn share(&self, count: usize) -> core::ops::Range<usize> {
        share(count, self.size(), self.rank.index())
    }

    /// Returns the transport's number for `rank`, or `None` if the communicator has no such rank.
    pub fn transport_rank(&self, rank: Rank) -> Option<Rank> {
        match &self.members {
            None => (rank.index() < self.size()).then_some(rank),
            Some(members) => members.get(rank.index()).copied(),
        }
    }

    /// Number of calls that can run at once.
    pub const fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Number of lanes: the most segments of a call that are computed or sent at a time.
    pub fn n_lanes(&self) -> usize {
        self.shared.config.lanes
    }

    /// Sets the time without progress after which operations that start later fail. It overrides
    /// [`Config::timeout`], except in the flush at the end of a [`split`](Self::split).
    pub fn set_timeout(&self, timeout: Duration) {
        for call_slot in self.call_slots.iter() {
            // After a failure there are no operations to come.
            let _ = call_slot.with(|comm| {
                comm.config.timeout = timeout;
                Ok(())
            });
        }
    }

    /// Bytes of a frame of the transport.
    pub fn frame_bytes(&self) -> usize {
        self.shared.frame_capacity()
    }

    /// Returns whether a call has failed. All further calls then return [`Error::Poisoned`].
    pub fn is_poisoned(&self) -> bool {
        self.call_slots.iter().any(|call_slot| {
            call_slot
                .comm
                .try_borrow()
                .is_ok_and(|comm| comm.as_ref().is_none_or(Communicator::is_poisoned))
        })
    }

    /// Error that poisoned this communicator. `None` while the communicator is usable.
    pub fn failure(&self) -> Option<Error> {
        let recorded = || self.call_slots.iter().find_map(|call_slot| call_slot.failure());
        self.is_poisoned().then(|| recorded().unwrap_or(Error::Poisoned))
    }

    /// Aborts all calls before the survivors agree. Earlier stops do not end their agreement.
    fn abort_calls(&self) {
        #[cfg(feature = "std")]
        self.stopper().clear();
        self.call_slots.iter().for_each(|call_slot| self.shared.give_up(call_slot));
    }

    /// Returns a handle with which another thread can stop this communicator's calls, while this
    /// thread waits in them.
    ///
    /// The calls fail with [`Error::Transport`] of
    /// [`TransportErrorKind::Stopped`](crate::transport::TransportErrorKind::Stopped), and the
    /// other ranks get [`Error::Aborted`]. Communicators that were split from this one are not
    /// affected. The communicator can still [shrink](Self::shrink) or [grow](Self::admit).
    #[cfg(feature = "std")]
    pub fn stopper(&self) -> Stopper {
        self.call_slots.first().map_or_else(Stopper::default, |call_slot| call_slot.stopper())
    }

    /// Advances all calls in progress over this transport by a bounded amount of work. Returns
    /// whether any call moved. A loop that has nothing else to do should rest if none moved.
    pub fn progress(&self) -> bool {
        // Ignore an error of the transport here: each call also gets and reports it.
        self.shared.pass().unwrap_or(false)
    }

    /// Returns the slot for the next call, if a call is allowed now.
    fn call_slot(&self) -> Result<&Rc<CallSlot<'a, X>>, Error> {
        if self.is_in_group.get() && !self.is_poisoned() {
            return Err(Error::TooManyCalls { max: self.n_calls });
        }
        self.next_slot()
    }

    /// Returns the slot for the next call.
    fn next_slot(&self) -> Result<&Rc<CallSlot<'a, X>>, Error> {
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        let max = self.n_calls;
        let call_slot = self.call_slots.get(self.next.get()).ok_or(Error::Internal)?;
        if call_slot.is_taken.get() { Err(Error::TooManyCalls { max }) } else { Ok(call_slot) }
    }

    /// Moves on to the next slot.
    fn advance(&self) {
        self.next.set((self.next.get() + 1) % self.n_calls);
    }

    /// Computes on the next slot, and leaves it.
    fn on_slot<R>(
        &self,
        compute: impl FnOnce(&mut Communicator<Port<'a, X>>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let call_slot = self.call_slot()?;
        call_slot.with(|comm| {
            call_slot.is_taken.set(true);
            let mut leaving = Leaving { call_slot, comm, error: None };
            let result = compute(leaving.comm);
            leaving.error = result.as_ref().err().copied();
            result
        })
    }

    /// Runs calls one after the other, all on the next slot: all ranks run them in this order,
    /// whatever else is in progress. The following call gets the slot after it, or the same slot if
    /// the first of these calls is refused.
    pub(crate) fn in_turn<R>(
        &self,
        calls: impl FnOnce(&mut SlotCalls<'_, 'a, X>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if self.is_checking() {
            return calls(&mut SlotCalls { of: self, comm: None, has_begun: false });
        }
        self.on_slot(|comm| calls(&mut SlotCalls { of: self, comm: Some(comm), has_begun: false }))
    }

    /// Runs a call and returns when it has finished. Meanwhile drives the other calls.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    pub fn run<T, S, R>(&self, call: Call<'_, T, S, R>, plan: &Plan) -> Result<Report, Error>
    where
        T: Element,
        S: AsRef<[T]>,
        R: AsMut<[T]>,
    {
        self.in_turn(|calls| calls.run(call, plan))
    }

    /// Starts a call, which keeps its buffers until it has finished.
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`].
    pub fn start<T, S, R>(
        &self,
        mut call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Pending<'a, X, R>, Error>
    where
        T: Element,
        S: AsRef<[T]> + 'a,
        R: AsMut<[T]> + 'a,
    {
        if self.is_checking() {
            let (request, _) = call.parts(self.rank());
            return Err(self.checked(|comm| comm.check(&request, plan)));
        }
        let pending = Pending::start(Rc::clone(&self.shared), self.call_slot()?, call, plan)?;
        self.advance();
        Ok(pending)
    }

    /// Starts a call on a device's memory, as [`Communicator::run_on`] runs it. Each call in
    /// progress needs a device, or workspace, of its own. The call owns its buffers, or borrows
    /// them for longer than the communicator lives; [`Finished`] returns the one with the result.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`Error::NotOnDevice`].
    pub fn start_on<T, S, R>(
        &self,
        device: Box<dyn Device + 'a>,
        call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Pending<'a, X, R>, Error>
    where
        T: Element,
        S: OnDevice<T> + 'a,
        R: OnDevice<T> + 'a,
    {
        if self.is_checking() {
            let (request, mut work, plan, _buffers) =
                DeviceOperands::of(call, HeldDevice::Owned(device), self.rank(), plan)?;
            return Err(self.checked(|comm| {
                comm.check(&request, &plan)?;
                work.check(&comm.spec(&request, &plan)?)
            }));
        }
        let shared = Rc::clone(&self.shared);
        let pending = Pending::start_on(shared, self.call_slot()?, device, call, plan)?;
        self.advance();
        Ok(pending)
    }

    named_methods!();
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Starts a [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`].
    pub fn start_barrier(&self) -> Result<Pending<'a, X, [f32; 0]>, Error> {
        self.start(Call::all_reduce([], Op::Max), &Plan::raw())
    }
}

/// Calls that run one after the other on a slot, or are checked.
pub(crate) struct SlotCalls<'c, 'a, X: Transport> {
    of: &'c SharedCommunicator<'a, X>,
    /// `None` during a check.
    comm: Option<&'c mut Communicator<Port<'a, X>>>,
    has_begun: bool,
}

impl<'a, X: Transport + 'a> SlotCalls<'_, 'a, X> {
    /// Runs a call and returns when it has finished.
    pub(crate) fn run<T, S, R>(
        &mut self,
        mut call: Call<'_, T, S, R>,
        plan: &Plan,
    ) -> Result<Report, Error>
    where
        T: Element,
        S: AsRef<[T]>,
        R: AsMut<[T]>,
    {
        let (request, work) = call.parts(self.of.rank());
        let Some(comm) = &mut self.comm else {
            return Err(self.of.checked(|comm| comm.check(&request, plan)));
        };
        let running = RunningCall::start(comm, request, work, plan)?;
        if !mem::replace(&mut self.has_begun, true) {
            self.of.advance();
        }
        running.wait()
    }
}

/// A call on a slot. Leaves the slot when dropped, even if a user's operation unwinds.
struct Leaving<'c, 'a, X: Transport> {
    call_slot: &'c CallSlot<'a, X>,
    comm: &'c mut Communicator<Port<'a, X>>,
    error: Option<Error>,
}

impl<X: Transport> Drop for Leaving<'_, '_, X> {
    fn drop(&mut self) {
        self.call_slot.leave(self.comm, self.error.as_ref());
    }
}

impl<'a, X: Transport + 'a> fmt::Debug for SharedCommunicator<'a, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_taken = self.call_slots.iter().filter(|call_slot| call_slot.is_taken.get()).count();
        write!(f, "rank {} of {}, {n_taken} calls under way", self.rank, self.size())
    }
}
