//! One transport for several communicators and calls at once.
//!
//! A [`SharedTransport`] owns the transport. Each of its communicators has *channels* of the
//! transport's tags, one for each call that it may run at the same time. Each call reaches the
//! network through a [`Port`]: a transport of one channel, between the communicator's members. Each
//! (peer, tag) has its own credit, and frames are reserved for every channel in use. So calls
//! cannot block each other, in whatever order ranks start them.
//!
//! Transports have order and credit for each (peer, tag) anyway. So there is no second queue above
//! the transport, in which the frames of one call could starve another call. The engine is the same
//! for one call and for many. Headers name the channel, so a stray frame is refused.
//!
//! A waiting rank drives all calls: a port's `progress` also advances the other calls. For that,
//! started calls keep their buffers ([`Pending`](crate::Pending)).
//!
//! A communicator that is dropped releases its channels. Another communicator may take them, in a
//! later epoch than any that its members know. The links of a channel may still hold frames of the
//! dropped communicator: messages that no rank received, or segments of a call that failed.
//! Receivers recognize old messages by their epoch, so a channel that carried messages can carry
//! messages again without a flush. Other channels that may hold frames are flushed first
//! (`flush.rs`). A link is also flushed if its last flush is so many epochs ago that the epoch
//! numbers in frames wrap.

mod call_slot;
mod flush;
mod port;
#[cfg(feature = "std")]
mod stopper;

pub(crate) use call_slot::CallSlot;
pub(crate) use flush::Flush;
pub(crate) use port::Port;
#[cfg(feature = "std")]
pub use stopper::Stopper;

use crate::collective::{Communicator, Config};
use crate::error::Error;
use crate::group::{Group, TransportFailure};
use crate::report::Report;
use crate::transport::{Distance, FRAMES_PER_LANE, MAX_LANES, Rank, Transport};
use crate::wait::Limits;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use core::time::Duration;

/// A running call or message that other code may advance.
pub(crate) trait Drive {
    /// Advances it by a bounded amount of work. Returns whether it moved.
    fn drive(&mut self) -> bool;

    /// Result, once it has finished.
    fn outcome(&self) -> Option<Result<Report, Error>>;

    /// Returns the channel that it uses.
    fn channel(&self) -> usize;

    /// Aborts it unless it has finished. `error` is the reason; `None` means that it was dropped.
    fn abandon(&mut self, error: Option<Error>);

    /// Time limits; `None` once the caller has its array back.
    fn limits(&mut self) -> Option<&mut Limits>;

    /// Records that the caller waits. The timeouts of messages count only from then on.
    fn note_wait(&mut self);

    /// Returns how long to rest before the next poll.
    fn rest(&self, now: Duration) -> Duration;

    /// Returns whether there is nothing more to do.
    fn is_finished(&self) -> bool {
        self.outcome().is_some()
    }
}

/// State that all communicators over one transport share.
pub(crate) struct SharedTransport<'a, X: Transport> {
    transport: RefCell<Group<X>>,
    pub(crate) config: Config,
    channels: RefCell<Vec<Channel>>,
    /// The latest epoch that any channel has been in. Messages contain only its low 16 bits.
    epoch: Cell<u64>,
    /// Epoch of the last flush of each channel's link to each rank of the transport.
    flushed: RefCell<BTreeMap<(usize, Rank), u64>>,
    calls: RefCell<Vec<Weak<RefCell<dyn Drive + 'a>>>>,
    /// True if a pass over all calls is running.
    in_pass: Cell<bool>,
    /// True if a pass has just polled the transport for the call that it drives, so that the call's
    /// port need not poll again.
    is_fresh: Cell<bool>,
    /// True if something has moved since the last rest. The next rest is then skipped, because its
    /// caller may not have seen what moved.
    has_moved: Cell<bool>,
    #[cfg(feature = "std")]
    wakers: alloc::sync::Arc<wakers::Wakers>,
}

/// A channel of the transport.
#[derive(Clone, Copy, Debug)]
struct Channel {
    usage: ChannelUse,
    leftover: LeftoverFrames,
}

/// The use of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelUse {
    Free,
    /// Ranks are agreeing on the channels of a new communicator, which may get this one.
    Offered,
    Used,
}

/// Frames of ended communicators that a channel's links may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftoverFrames {
    /// No data frames.
    Nothing,
    /// Point-to-point messages.
    Messages,
    /// Segments of calls that failed.
    Segments,
}

impl<'a, X: Transport> SharedTransport<'a, X> {
    pub(crate) fn new(transport: X, config: Config) -> Result<Rc<Self>, Error> {
        let transport = Group::all(transport)?;
        let lanes = config.lanes.clamp(1, MAX_LANES);
        let config = Config { lanes, ..config };
        // Number of channels for which the pool has frames. If the pool does not report its size,
        // the first call checks that it has enough for one channel.
        let n_channels = transport
            .n_frames()
            .map_or(1, |n_frames| n_frames / (lanes * FRAMES_PER_LANE))
            .clamp(1, transport.n_channels());
        Ok(Rc::new(Self {
            transport: RefCell::new(transport),
            config,
            channels: RefCell::new(vec![
                Channel {
                    usage: ChannelUse::Free,
                    leftover: LeftoverFrames::Nothing
                };
                n_channels
            ]),
            epoch: Cell::new(0),
            flushed: RefCell::default(),
            calls: RefCell::new(Vec::new()),
            in_pass: Cell::new(false),
            is_fresh: Cell::new(false),
            has_moved: Cell::new(false),
            #[cfg(feature = "std")]
            wakers: alloc::sync::Arc::default(),
        }))
    }

    pub(crate) fn rank(&self) -> Rank {
        self.transport.borrow().rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.transport.borrow().size()
    }

    pub(crate) fn frame_capacity(&self) -> usize {
        self.transport.borrow().frame_capacity()
    }

    /// Returns whether calls are being driven. If so, this was called from within a pass, by a
    /// user's operation or by the transport.
    pub(crate) const fn is_in_pass(&self) -> bool {
        self.in_pass.get()
    }

    pub(crate) fn now(&self) -> Duration {
        self.transport.borrow().now()
    }

    /// Returns whether a rank of the transport is on this rank's node.
    pub(crate) fn is_near(&self, rank: Rank) -> bool {
        self.transport.borrow().distance(rank) < Distance::Network
    }

    /// Returns the latest epoch of any channel that this rank knows.
    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Returns whether the link to `peer`, a rank of the transport, needs a flush on a call slot's
    /// channel: it may hold frames of an epoch that cannot be told from the call slot's.
    fn is_due(&self, call_slot: &CallSlot<'a, X>, peer: Rank) -> bool {
        let flushed =
            || self.flushed.borrow().get(&(call_slot.channel, peer)).copied().unwrap_or(0);
        call_slot.epoch >= flush::WINDOW && call_slot.epoch - flushed() >= flush::WINDOW
    }

    /// Records that the link to `peer` on a call slot's channel holds no frames of earlier epochs.
    fn note_flush(&self, call_slot: &CallSlot<'a, X>, peer: Rank) {
        self.flushed.borrow_mut().insert((call_slot.channel, peer), call_slot.epoch);
    }

    /// Offers the free channels to a communicator that is about to be made. Channels are offered to
    /// one split at a time, so two splits cannot choose the same channel.
    pub(crate) fn offer(self: &Rc<Self>) -> ChannelOffer<'a, X> {
        let mut channels = self.channels.borrow_mut();
        let free =
            (0..channels.len()).filter(|&channel| channels[channel].usage == ChannelUse::Free);
        let free: Vec<usize> = free.collect();
        free.iter().for_each(|&channel| channels[channel].usage = ChannelUse::Offered);
        ChannelOffer { shared: Rc::clone(self), channels: free }
    }

    /// Creates the call slots of a communicator between `members`, or between all ranks of the
    /// transport. Each call slot gets one of `channels`, which were offered to the communicator,
    /// from `epoch` on. If the configuration provides for messages, the last channel is theirs.
    pub(crate) fn call_slots(
        self: &Rc<Self>,
        channels: &[usize],
        members: Option<&Rc<[Rank]>>,
        epoch: u64,
    ) -> Result<Rc<[Rc<CallSlot<'a, X>>]>, Error> {
        self.epoch.set(self.epoch.get().max(epoch));
        let slots = Rc::new(call_slot::CallSlotGroup::new());
        let call_slot = |&channel: &usize| {
            let port = Port::new(
                Rc::clone(self),
                channel,
                members.cloned(),
                #[cfg(feature = "std")]
                slots.stopper.clone(),
            );
            let mut comm = Communicator::with_config(port, self.config)?;
            (comm.context, comm.epoch) = (channel as u8, epoch as u16);
            let Channel { usage, leftover } = &mut self.channels.borrow_mut()[channel];
            *usage = ChannelUse::Used;
            if self.config.messages && Some(&channel) == channels.last() {
                *leftover = LeftoverFrames::Messages.max(*leftover);
            }
            let (comm, is_taken) = (RefCell::new(Some(comm)), Cell::new(false));
            let (shared, slots) = (Rc::clone(self), Rc::clone(&slots));
            Ok(Rc::new(CallSlot { shared, channel, epoch, comm, is_taken, slots }))
        };
        let call_slots: Rc<[_]> = channels.iter().map(call_slot).collect::<Result<_, Error>>()?;
        slots.call_slots.get_or_init(|| Rc::downgrade(&call_slots));
        Ok(call_slots)
    }

    /// Adds a call that is driven with the others from now on.
    pub(crate) fn add(&self, call: Weak<RefCell<dyn Drive + 'a>>) {
        self.calls.borrow_mut().push(call);
    }

    /// Aborts the call on this call slot, if there is one.
    pub(crate) fn give_up(&self, call_slot: &CallSlot<'a, X>) {
        let calls = self.calls.borrow().clone();
        for call in calls.iter().filter_map(Weak::upgrade) {
            if let Ok(mut call) = call.try_borrow_mut()
                && call.channel() == call_slot.channel
            {
                call.abandon(None);
            }
        }
    }

    /// Makes the network progress, and advances all calls by a bounded amount of work each. Returns
    /// whether something moved. Fails if the transport as a whole has failed, which each call finds
    /// as well.
    pub(crate) fn pass(&self) -> Result<bool, TransportFailure> {
        let progress = self.transport.borrow_mut().progress();
        if self.in_pass.replace(true) {
            // A nested pass: a call polls once more, or a user's operation polls another call.
            return progress.map(|()| false);
        }
        let _end = PassGuard(self);
        let (mut moved, mut finished) = (false, false);
        // Calls may be added and dropped in the loop.
        let mut next = 0;
        loop {
            let call = self.calls.borrow().get(next).cloned();
            let Some(call) = call else { break };
            next += 1;
            let Some(call) = call.upgrade() else { continue };
            // Skip a call that is already being driven.
            if let Ok(mut call) = call.try_borrow_mut()
                && !call.is_finished()
            {
                self.is_fresh.set(progress.is_ok());
                moved |= call.drive();
                finished |= call.is_finished();
            }
        }
        self.calls.borrow_mut().retain(|call| {
            let call = call.upgrade();
            call.is_some_and(|call| call.try_borrow().map_or(true, |call| !call.is_finished()))
        });
        if finished {
            self.wake();
        }
        if moved {
            self.has_moved.set(true);
        }
        progress.map(|()| moved)
    }

    /// Makes a pass, and advances the calls in `borrowing`. They borrow their data, so a pass alone
    /// does not reach them. Returns how long to rest if nothing moved.
    ///
    /// # Errors
    /// The error of a call in `borrowing`. It aborts the others, too.
    pub(crate) fn pass_with(
        &self,
        borrowing: &mut [Box<dyn Drive + '_>],
    ) -> Result<Option<Duration>, Error> {
        let passed = self.pass();
        let is_nested = self.in_pass.replace(true);
        let end = (!is_nested).then(|| PassGuard(self));
        let mut moved = matches!(passed, Ok(true));
        for call in &mut *borrowing {
            // Each call finds an error of the transport itself.
            self.is_fresh.set(passed.is_ok());
            moved |= call.drive();
        }
        drop(end);
        if let Some(Err(error)) =
            borrowing.iter().filter_map(|call| call.outcome()).find(Result::is_err)
        {
            borrowing.iter_mut().for_each(|call| call.abandon(Some(error)));
            return Err(error);
        }
        let now = self.now();
        let open = borrowing.iter().filter(|call| !call.is_finished());
        let rest = open.map(|call| call.rest(now)).min().unwrap_or_default();
        Ok((!moved).then_some(rest))
    }

    /// Rests until something arrives, for at most `budget`. Does not rest if something moved since
    /// the last rest.
    pub(crate) fn idle(&self, budget: Duration) {
        if !self.has_moved.replace(false) {
            self.transport.borrow_mut().idle(budget);
        }
    }

    /// Same as [`Transport::register`], for any number of wakers.
    #[cfg(feature = "std")]
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.wakers.add(waker);
        let all = Waker::from(alloc::sync::Arc::clone(&self.wakers));
        self.transport.borrow_mut().register(&all)
    }

    /// Returns false: without `std` there is no lock for a list of wakers that other threads wake.
    #[cfg(not(feature = "std"))]
    pub(crate) fn register(&self, _: &Waker) -> bool {
        false
    }

    /// Wakes all waiting tasks, because another task may have finished their operations.
    fn wake(&self) {
        #[cfg(feature = "std")]
        self.wakers.wake_all();
    }

    /// Takes a channel back from a communicator made in this epoch. `comm` is `None` if it was
    /// shrunk.
    fn release(&self, channel: usize, epoch: u64, comm: Option<&Communicator<Port<'a, X>>>) {
        let Channel { usage, leftover } = &mut self.channels.borrow_mut()[channel];
        *usage = ChannelUse::Free;
        if comm.is_none_or(Communicator::is_poisoned) {
            *leftover = LeftoverFrames::Segments;
        }
        // Groups of survivors that followed have taken later epochs.
        let n_later = comm.map_or(0, |comm| comm.epoch().wrapping_sub(epoch as u16));
        self.epoch.set(self.epoch.get().max(epoch + u64::from(n_later)));
    }
}

/// Free channels that are offered to one communicator while this lives. When it is dropped, the
/// channels that were not taken are free again.
pub(crate) struct ChannelOffer<'a, X: Transport> {
    shared: Rc<SharedTransport<'a, X>>,
    channels: Vec<usize>,
}

impl<X: Transport> ChannelOffer<'_, X> {
    /// Iterates over the channels in ascending order, with what may be left on them.
    pub(crate) fn channels(&self) -> impl Iterator<Item = (usize, LeftoverFrames)> {
        self.channels
            .iter()
            .map(|&channel| (channel, self.shared.channels.borrow()[channel].leftover))
    }

    /// Chooses channels for this many calls, and one for messages if the configuration provides for
    /// them. `left` returns what a channel's links may hold, or `None` if not all members offer the
    /// channel. Channels that need no flush come first.
    pub(crate) fn choose(
        &self,
        n_calls: usize,
        left: impl Fn(usize) -> Option<LeftoverFrames>,
    ) -> Result<ChannelChoice, Error> {
        let offered = |what: LeftoverFrames| -> Vec<usize> {
            let channels = self.channels.iter().copied();
            channels.filter(|&channel| left(channel) == Some(what)).collect()
        };
        let had_messages = offered(LeftoverFrames::Messages);
        let has_messages = self.shared.config.messages;
        // Calls would have to flush a channel that had messages, so messages take it.
        let for_messages = had_messages.first().filter(|_| has_messages);
        let rest = &had_messages[usize::from(for_messages.is_some())..];
        let mut chosen = offered(LeftoverFrames::Nothing);
        let n_clean = chosen.len();
        chosen.extend(offered(LeftoverFrames::Segments));
        chosen.extend(rest);
        let need = n_calls + usize::from(has_messages);
        let n_others = need - usize::from(for_messages.is_some());
        if chosen.len() < n_others {
            let have = chosen.len() + usize::from(for_messages.is_some());
            return Err(Error::TooFewChannels { need, have });
        }
        chosen.truncate(n_others);
        let due = chosen[n_clean.min(n_others)..].to_vec();
        chosen.extend(for_messages);
        Ok(ChannelChoice { channels: chosen, due })
    }
}

impl<X: Transport> Drop for ChannelOffer<'_, X> {
    fn drop(&mut self) {
        let mut channels = self.shared.channels.borrow_mut();
        for &channel in &self.channels {
            if channels[channel].usage == ChannelUse::Offered {
                channels[channel].usage = ChannelUse::Free;
            }
        }
    }
}

/// Channels chosen for a communicator.
pub(crate) struct ChannelChoice {
    /// Channels of calls, then the channel of messages.
    pub(crate) channels: Vec<usize>,
    /// Channels that the members must flush before the first call.
    pub(crate) due: Vec<usize>,
}

/// Ends a pass when dropped, even if a user's operation unwinds.
struct PassGuard<'n, 'a, X: Transport>(&'n SharedTransport<'a, X>);

impl<X: Transport> Drop for PassGuard<'_, '_, X> {
    fn drop(&mut self) {
        self.0.is_fresh.set(false);
        self.0.in_pass.set(false);
    }
}

#[cfg(feature = "std")]
mod wakers {
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use alloc::vec::Vec;
    use core::mem;
    use core::task::Waker;
    use std::sync::{Mutex, PoisonError};

    /// Tasks that wait for the same transport.
    #[derive(Default)]
    pub(super) struct Wakers(Mutex<Vec<Waker>>);

    impl Wakers {
        pub(super) fn add(&self, waker: &Waker) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !all.iter().any(|known| known.will_wake(waker)) {
                all.push(waker.clone());
            }
        }

        pub(super) fn wake_all(&self) {
            let all = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            all.into_iter().for_each(Waker::wake);
        }
    }

    impl Wake for Wakers {
        fn wake(self: Arc<Self>) {
            self.wake_all();
        }
    }
}
