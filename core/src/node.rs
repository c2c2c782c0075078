//! One transport for several communicators and calls at once.
//!
//! A [`Node`] owns the transport. A communicator of it has *channels* of the transport's tags to
//! itself, one for each call that it may have under way, and reaches the network through a
//! [`Port`]: a transport of one channel, between the communicator's members. Each (peer, tag) has
//! credit of its own, and frames are set aside for every channel in use. So calls cannot be in each
//! other's way, in whatever order ranks start them.
//!
//! Whoever waits drives all: a port's `progress` also advances the calls that the node knows.
//!
//! A communicator that is dropped gives its channels back, and another takes them, in a later epoch
//! than any of its members knows of. The links of a channel may hold what the first one left:
//! messages that nobody received, or segments of a call that failed. Messages are told by their
//! epoch, so their channel is for messages again. All others are flushed first (`flush.rs`), as is
//! a channel that was in use for so many epochs that their numbers wrap.

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
use crate::group::{Checked, Failure};
use crate::transport::{Distance, FRAMES_PER_LANE, MAX_LANES, Rank, Transport};
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use core::time::Duration;

/// A call under way that somebody else may advance.
pub(crate) trait Drive {
    /// Advances it by a bounded amount of work. Whether it moved.
    fn drive(&mut self) -> bool;

    /// Whether there is nothing more to do.
    fn is_finished(&self) -> bool;

    /// The channel that it takes.
    fn channel(&self) -> usize;

    /// Gives it up.
    fn abandon(&mut self);
}

/// What all communicators over one transport share.
pub(crate) struct Node<'a, X: Transport> {
    transport: RefCell<Checked<X>>,
    pub(crate) config: Config,
    channels: RefCell<Vec<Channel>>,
    /// The latest epoch that any channel has been in. Messages say so much of it as they have room
    /// for.
    epoch: Cell<u64>,
    /// The epoch in which this rank and another of the transport's last flushed a channel.
    flushed: RefCell<BTreeMap<(usize, Rank), u64>>,
    calls: RefCell<Vec<Weak<RefCell<dyn Drive + 'a>>>>,
    /// A pass over all calls is under way.
    in_pass: Cell<bool>,
    /// The transport has made progress just now, for the call that is being driven.
    is_fresh: Cell<bool>,
    /// Something moved that whoever is about to rest may not have seen.
    has_moved: Cell<bool>,
    #[cfg(feature = "std")]
    wakers: alloc::sync::Arc<wakers::Wakers>,
}

/// A channel of the transport.
#[derive(Clone, Copy, Debug)]
struct Channel {
    use_: ChannelUse,
    leftover: LeftoverFrames,
}

/// The use of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelUse {
    Free,
    /// Ranks are agreeing on who may use it.
    Offered,
    Used,
}

/// Frames that a channel's links may hold, of communicators that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftoverFrames {
    /// No data.
    Nothing,
    /// Messages.
    Messages,
    /// Segments of calls that failed.
    Segments,
}

impl<'a, X: Transport> Node<'a, X> {
    pub(crate) fn new(transport: X, config: Config) -> Result<Rc<Self>, Error> {
        let transport = Checked::new(transport)?;
        let lanes = config.lanes.clamp(1, MAX_LANES);
        let config = Config { lanes, ..config };
        // Channels for which the pool has frames. Of a pool that does not say how many it has, the
        // first call finds out whether there are enough for one.
        let n_channels = transport
            .n_frames()
            .map_or(1, |n_frames| n_frames / (lanes * FRAMES_PER_LANE))
            .clamp(1, transport.n_channels());
        Ok(Rc::new(Self {
            transport: RefCell::new(transport),
            config,
            channels: RefCell::new(vec![
                Channel {
                    use_: ChannelUse::Free,
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

    /// Whether calls are being driven: then this is a user's operation, or the transport.
    pub(crate) const fn is_in_pass(&self) -> bool {
        self.in_pass.get()
    }

    pub(crate) fn now(&self) -> Duration {
        self.transport.borrow().now()
    }

    /// Whether a rank of the transport's shares this one's node.
    pub(crate) fn is_near(&self, rank: Rank) -> bool {
        self.transport.borrow().distance(rank) < Distance::Network
    }

    /// The latest epoch of any channel, as far as this rank knows.
    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Whether the link to `peer`, a rank of the transport's, on a seat's channel may hold frames
    /// of epochs that this seat's epoch cannot be told from.
    fn is_due(&self, call_slot: &CallSlot<'a, X>, peer: Rank) -> bool {
        let flushed =
            || self.flushed.borrow().get(&(call_slot.channel, peer)).copied().unwrap_or(0);
        call_slot.epoch >= flush::WINDOW && call_slot.epoch - flushed() >= flush::WINDOW
    }

    /// The link to `peer` on a seat's channel holds no frames of earlier epochs.
    fn note_flush(&self, call_slot: &CallSlot<'a, X>, peer: Rank) {
        self.flushed.borrow_mut().insert((call_slot.channel, peer), call_slot.epoch);
    }

    /// Offers the channels that are free to a communicator that is to be made.
    pub(crate) fn offer(self: &Rc<Self>) -> ChannelOffer<'a, X> {
        let mut channels = self.channels.borrow_mut();
        let free =
            (0..channels.len()).filter(|&channel| channels[channel].use_ == ChannelUse::Free);
        let free: Vec<usize> = free.collect();
        free.iter().for_each(|&channel| channels[channel].use_ = ChannelUse::Offered);
        ChannelOffer { node: Rc::clone(self), channels: free }
    }

    /// Communicators between `members`, all of the transport's ranks unless given, one on each of
    /// these channels, which were offered, from this epoch on. The last one is for messages, if
    /// they have a channel.
    pub(crate) fn call_slots(
        self: &Rc<Self>,
        channels: &[usize],
        members: Option<&Rc<[Rank]>>,
        epoch: u64,
    ) -> Result<Rc<[Rc<CallSlot<'a, X>>]>, Error> {
        self.epoch.set(self.epoch.get().max(epoch));
        let shared = Rc::new(call_slot::CallSlots::new());
        let call_slot = |&channel: &usize| {
            let port = Port::new(
                Rc::clone(self),
                channel,
                members.cloned(),
                #[cfg(feature = "std")]
                shared.stopper.clone(),
            );
            let mut comm = Communicator::with_config(port, self.config)?;
            (comm.context, comm.epoch) = (channel as u8, epoch as u16);
            let Channel { use_, leftover } = &mut self.channels.borrow_mut()[channel];
            *use_ = ChannelUse::Used;
            if self.config.messages && Some(&channel) == channels.last() {
                *leftover = LeftoverFrames::Messages.max(*leftover);
            }
            let (comm, is_taken) = (RefCell::new(Some(comm)), Cell::new(false));
            let (node, shared) = (Rc::clone(self), Rc::clone(&shared));
            Ok(Rc::new(CallSlot { node, channel, epoch, comm, is_taken, shared }))
        };
        let call_slots: Rc<[_]> = channels.iter().map(call_slot).collect::<Result<_, Error>>()?;
        shared.call_slots.get_or_init(|| Rc::downgrade(&call_slots));
        Ok(call_slots)
    }

    /// Has this call driven with the others from now on.
    pub(crate) fn add(&self, call: Weak<RefCell<dyn Drive + 'a>>) {
        self.calls.borrow_mut().push(call);
    }

    /// Gives up the call on this seat, if there is one.
    pub(crate) fn give_up(&self, call_slot: &CallSlot<'a, X>) {
        let calls = self.calls.borrow().clone();
        for call in calls.iter().filter_map(Weak::upgrade) {
            if let Ok(mut call) = call.try_borrow_mut()
                && !call.is_finished()
                && call.channel() == call_slot.channel
            {
                call.abandon();
            }
        }
    }

    /// Moves the network along, and advances all calls by a bounded amount of work each. Whether
    /// something moved; an error if the transport as a whole has failed, which each call finds as
    /// well.
    pub(crate) fn pass(&self) -> Result<bool, Failure> {
        let progress = self.transport.borrow_mut().progress();
        if self.in_pass.replace(true) {
            // A call that looks once more, or a user's operation that looks at another call.
            return progress.map(|()| false);
        }
        let _end = PassGuard(self);
        let (mut moved, mut finished) = (false, false);
        // Calls may be added and dropped meanwhile.
        let mut next = 0;
        loop {
            let call = self.calls.borrow().get(next).cloned();
            let Some(call) = call else { break };
            next += 1;
            let Some(call) = call.upgrade() else { continue };
            // One that is being driven already is left alone.
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

    /// Makes a pass, and advances calls of the caller's own, which borrow what they are of. Whether
    /// something moved.
    pub(crate) fn pass_with<'c>(&self, own: impl Iterator<Item = &'c mut dyn Drive>) -> bool {
        let passed = self.pass();
        let is_nested = self.in_pass.replace(true);
        let end = (!is_nested).then(|| PassGuard(self));
        let mut moved = matches!(passed, Ok(true));
        for call in own {
            // An error of the transport's shows in each call.
            self.is_fresh.set(passed.is_ok());
            moved |= call.drive();
        }
        drop(end);
        moved
    }

    /// Rests until something comes, `budget` at most, unless something moved since the last rest.
    pub(crate) fn idle(&self, budget: Duration) {
        if !self.has_moved.replace(false) {
            self.transport.borrow_mut().idle(budget);
        }
    }

    /// As [`Transport::register`], for as many wakers as there are.
    #[cfg(feature = "std")]
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.wakers.add(waker);
        let all = Waker::from(alloc::sync::Arc::clone(&self.wakers));
        self.transport.borrow_mut().register(&all)
    }

    /// Nobody can be woken: a list of wakers that others wake needs a lock.
    #[cfg(not(feature = "std"))]
    pub(crate) fn register(&self, _: &Waker) -> bool {
        false
    }

    /// Wakes all that wait: what they wait for may have been driven to its end by another.
    fn wake(&self) {
        #[cfg(feature = "std")]
        self.wakers.wake_all();
    }

    /// Takes a channel back from a communicator made in this epoch, if it was not shrunk away.
    fn release(&self, channel: usize, epoch: u64, comm: Option<&Communicator<Port<'a, X>>>) {
        let Channel { use_, leftover } = &mut self.channels.borrow_mut()[channel];
        *use_ = ChannelUse::Free;
        if comm.is_none_or(Communicator::is_poisoned) {
            *leftover = LeftoverFrames::Segments;
        }
        // Groups of survivors came of it.
        let n_later = comm.map_or(0, |comm| comm.epoch().wrapping_sub(epoch as u16));
        self.epoch.set(self.epoch.get().max(epoch + u64::from(n_later)));
    }
}

/// Free channels that no other communicator is offered while this lives. Those that were not taken
/// are free again after.
pub(crate) struct ChannelOffer<'a, X: Transport> {
    node: Rc<Node<'a, X>>,
    channels: Vec<usize>,
}

impl<X: Transport> ChannelOffer<'_, X> {
    /// In ascending order, with what may be left on them.
    pub(crate) fn channels(&self) -> impl Iterator<Item = (usize, LeftoverFrames)> {
        self.channels
            .iter()
            .map(|&channel| (channel, self.node.channels.borrow()[channel].leftover))
    }

    /// Chooses channels for so many calls, and one for messages if they have one. `left` says what
    /// a channel's links may hold, and `None` of a channel that not all members offer. Channels
    /// that need no flush come first.
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
        let needs_one = self.node.config.messages;
        // Calls would have to flush a channel that had messages.
        let for_messages = had_messages.first().filter(|_| needs_one);
        let rest = &had_messages[usize::from(for_messages.is_some())..];
        let mut chosen = offered(LeftoverFrames::Nothing);
        let n_clean = chosen.len();
        chosen.extend(offered(LeftoverFrames::Segments));
        chosen.extend(rest);
        let need = n_calls + usize::from(needs_one);
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
        let mut channels = self.node.channels.borrow_mut();
        for &channel in &self.channels {
            if channels[channel].use_ == ChannelUse::Offered {
                channels[channel].use_ = ChannelUse::Free;
            }
        }
    }
}

/// Channels for a communicator.
pub(crate) struct ChannelChoice {
    /// The channels of calls, then that of messages.
    pub(crate) channels: Vec<usize>,
    /// The members flush these channels first.
    pub(crate) due: Vec<usize>,
}

/// Ends a pass, also one that a user's operation unwinds from.
struct PassGuard<'n, 'a, X: Transport>(&'n Node<'a, X>);

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
