//! A communicator with several calls under way, that can be split.

mod check;
mod delivery;
mod group;
mod mailbox;
mod message_endpoint;
mod messages;
mod pending;
mod split;
mod two_levels;

#[cfg(feature = "std")]
pub use crate::node::Stopper;
pub use group::GroupCall;
pub use pending::{Finished, Pending};
pub use split::Split;

use crate::collective::named::named_methods;
use crate::collective::{Call, Communicator, Config, RunningCall};
use crate::element::Element;
use crate::error::Error;
use crate::layout::share;
use crate::node::{CallSlot, LeftoverFrames, Node, Port};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use alloc::rc::Rc;
use check::CheckState;
use core::cell::Cell;
use core::fmt;
use mailbox::Mailbox;

/// A communicator that makes several calls at once, and from which others can be made.
///
/// `start_…` takes buffers by value, a `Vec` or a slice that outlives the communicator. It returns
/// a [`Pending`] call, which gives them back. The other methods return when their call is done.
/// Whoever waits for one call, of this communicator or of another over the same transport, drives
/// all that are under way.
///
/// All ranks must start the same calls on a communicator in the same order. They may wait for them
/// in any order, and start calls on different communicators in any order.
///
/// It belongs to one thread. It can hold so many calls as it was made for ([`n_calls`]); one more
/// is [`Error::TooManyCalls`] until the oldest is done. Each takes a
/// [channel](Transport::n_channels) of the transport's, and frames for its lanes.
///
/// [`n_calls`]: Self::n_calls
///
/// # Examples
/// Two sums at once, and one among every other rank:
/// ```
/// use foldwire::{Call, Error, Op, Plan, SharedCommunicator, Transport};
///
/// fn sums<X: Transport>(transport: X, a: Vec<f32>, b: Vec<f32>) -> Result<(), Error> {
///     let world = SharedCommunicator::new(transport, 2)?;
///     let a = world.start(Call::all_reduce(a, Op::Sum), &Plan::raw())?;
///     let b = world.start(Call::all_reduce(b, Op::Sum), &Plan::raw())?;
///     // This drives both.
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
    node: Rc<Node<'a, X>>,
    /// Those of calls, and that of messages.
    call_slots: Rc<[Rc<CallSlot<'a, X>>]>,
    n_calls: usize,
    /// Messages under way, if they have a channel.
    mailbox: Option<Rc<Mailbox<'a, X>>>,
    /// The seat of the next call.
    next: Cell<usize>,
    /// A group call is under way, which takes seats as it goes on.
    is_in_group: Cell<bool>,
    /// Calls are only checked.
    checking: Cell<CheckState>,
    /// The members in the order of their ranks, as the transport's ranks; `None`: all of those.
    members: Option<Rc<[Rank]>>,
    rank: Rank,
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// A communicator of all of the transport's ranks for `n_calls` calls at once, at least one,
    /// with the default configuration.
    ///
    /// # Errors
    /// As [`with_config`](Self::with_config).
    pub fn new(transport: X, n_calls: usize) -> Result<Self, Error> {
        Self::with_config(transport, Config::default(), n_calls)
    }

    /// A communicator of all of the transport's ranks for `n_calls` calls at once, at least one.
    /// The configuration is that of all communicators that are made from it.
    ///
    /// # Errors
    /// [`Error::TooFewChannels`] if the transport has fewer channels than that, and than
    /// [messages](Config::messages) need, or its pool fewer frames than their lanes need; as
    /// [`Communicator::with_config`].
    pub fn with_config(transport: X, config: Config, n_calls: usize) -> Result<Self, Error> {
        let node = Node::new(transport, config)?;
        let offer = node.offer();
        let choice = offer.choose(n_calls.max(1), |_| Some(LeftoverFrames::Nothing))?;
        Self::among(node, &choice.channels, None, 0)
    }

    /// A communicator of `members` on these channels, which are free; the last one is for messages
    /// if they have a channel.
    fn among(
        node: Rc<Node<'a, X>>,
        channels: &[usize],
        members: Option<Rc<[Rank]>>,
        epoch: u64,
    ) -> Result<Self, Error> {
        let call_slots = node.call_slots(channels, members.as_ref(), epoch)?;
        let own = node.rank();
        let position = |members: &Rc<[Rank]>| members.iter().position(|&member| member == own);
        let rank = members.as_ref().and_then(position).map_or(own, Rank::new);
        let (next, is_in_group) = (Cell::new(0), Cell::new(false));
        let checking = Cell::default();
        let last = call_slots.last().filter(|_| node.config.messages);
        let mailbox = last.map(|call_slot| Rc::new(Mailbox::new(Rc::clone(call_slot))));
        let n_calls = call_slots.len() - usize::from(mailbox.is_some());
        Ok(Self { node, call_slots, n_calls, mailbox, next, is_in_group, checking, members, rank })
    }

    /// This rank.
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.members.as_ref().map_or_else(|| self.node.size(), |members| members.len())
    }

    /// This rank's share of `count` values.
    pub fn share(&self, count: usize) -> core::ops::Range<usize> {
        share(count, self.size(), self.rank.index())
    }

    /// A rank's number in the transport; `None` if it is no rank of the communicator.
    pub fn transport_rank(&self, rank: Rank) -> Option<Rank> {
        match &self.members {
            None => (rank.index() < self.size()).then_some(rank),
            Some(members) => members.get(rank.index()).copied(),
        }
    }

    /// How many calls can be under way at once.
    pub const fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Whether a call has failed, so that all further ones return [`Error::Poisoned`].
    pub fn is_poisoned(&self) -> bool {
        self.call_slots.iter().any(|call_slot| {
            call_slot
                .comm
                .try_borrow()
                .is_ok_and(|comm| comm.as_ref().is_none_or(Communicator::is_poisoned))
        })
    }

    /// Why this communicator can make no more calls; `None` while it can.
    pub fn failure(&self) -> Option<Error> {
        let recorded = || self.call_slots.iter().find_map(|call_slot| call_slot.failure());
        self.is_poisoned().then(|| recorded().unwrap_or(Error::Poisoned))
    }

    /// A handle for another thread, to end this communicator's calls while this one waits in them:
    /// they fail with [`Error::Transport`] of
    /// [`TransportErrorKind::Stopped`](crate::transport::TransportErrorKind::Stopped), and the
    /// other ranks get [`Error::Aborted`]. Communicators that were split from it go on.
    #[cfg(feature = "std")]
    pub fn stopper(&self) -> Stopper {
        self.call_slots.first().map_or_else(Stopper::default, |call_slot| call_slot.stopper())
    }

    /// Advances all calls under way over this transport by a bounded amount of work. Whether one
    /// moved; a loop that has nothing else to do should rest if none did.
    pub fn progress(&self) -> bool {
        // An error of the transport's shows in each call.
        self.node.pass().unwrap_or(false)
    }

    /// The seat of the next call, if it may be made now.
    fn call_slot(&self) -> Result<&Rc<CallSlot<'a, X>>, Error> {
        if self.is_checking() && !self.is_in_group.get() {
            return self.call_slots.first().ok_or(Error::Internal);
        }
        if self.is_in_group.get() && !self.is_poisoned() {
            return Err(Error::TooManyCalls { max: self.n_calls });
        }
        self.next_slot()
    }

    /// The seat of the next call.
    fn next_slot(&self) -> Result<&Rc<CallSlot<'a, X>>, Error> {
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        let max = self.n_calls;
        let call_slot = self.call_slots.get(self.next.get()).ok_or(Error::Internal)?;
        if call_slot.is_taken.get() { Err(Error::TooManyCalls { max }) } else { Ok(call_slot) }
    }

    /// The next call takes the next seat.
    fn advance(&self) {
        self.next.set((self.next.get() + 1) % self.n_calls);
    }

    /// Makes a call on the next seat. The call says when it has begun: one whose arguments are
    /// refused leaves the seat to the next.
    fn call(
        &self,
        call: impl FnOnce(&mut Communicator<Port<'a, X>>, &dyn Fn()) -> Result<Report, Error>,
    ) -> Result<Report, Error> {
        let call_slot = self.call_slot()?;
        let mut comm = call_slot.comm.try_borrow_mut().map_err(|_| Error::Internal)?;
        let comm = comm.as_mut().ok_or(Error::Poisoned)?;
        call_slot.is_taken.set(true);
        let result = call(comm, &|| self.advance());
        call_slot.leave(comm, result.as_ref().err());
        result
    }

    /// Makes a call, and returns when it is done; drives the other calls meanwhile.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn run<T, S, R>(&self, mut call: Call<'_, T, S, R>, plan: &Plan) -> Result<Report, Error>
    where
        T: Element,
        S: AsRef<[T]>,
        R: AsMut<[T]>,
    {
        self.call(|comm, has_begun| {
            let (request, work) = call.parts(comm.rank());
            let operation = RunningCall::start(comm, request, work, plan)?;
            has_begun();
            operation.wait()
        })
    }

    /// Starts a call, which keeps its buffers until it is done.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    pub fn start<T, S, R>(
        &self,
        mut call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<Pending<'a, X, T, R>, Error>
    where
        T: Element,
        S: AsRef<[T]> + 'a,
        R: AsMut<[T]> + 'a,
    {
        if self.is_checking() {
            let (request, _) = call.parts(self.rank());
            return Err(self.checked(|comm| comm.check(&request, plan)));
        }
        let pending =
            Pending::start(Rc::clone(&self.node), Rc::clone(self.call_slot()?), call, plan)?;
        self.advance();
        Ok(pending)
    }

    named_methods!();
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Returns when all ranks have called this.
    ///
    /// # Errors
    /// [`Error`], after which the communicator is of no use.
    pub fn barrier(&self) -> Result<Report, Error> {
        self.all_reduce::<f32>(&mut [], Op::Max, &Plan::raw())
    }

    /// Starts what [`barrier`](Self::barrier) does.
    ///
    /// # Errors
    /// Errors of use ([`Error::is_usage`]), and [`Error::Poisoned`].
    pub fn start_barrier(&self) -> Result<Pending<'a, X, f32, [f32; 0]>, Error> {
        self.start(Call::all_reduce([], Op::Max), &Plan::raw())
    }

    /// The reduction of all ranks' `value`, exactly and the same bits on every rank.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn all_reduce_scalar<T: Element>(&self, value: T, op: Op<'_, T>) -> Result<T, Error> {
        let mut values = [value];
        self.all_reduce(&mut values, op, &Plan::raw())?;
        Ok(values[0])
    }
}

impl<'a, X: Transport + 'a> fmt::Debug for SharedCommunicator<'a, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_taken = self.call_slots.iter().filter(|call_slot| call_slot.is_taken.get()).count();
        write!(f, "rank {} of {}, {n_taken} calls under way", self.rank, self.size())
    }
}
