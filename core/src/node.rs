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
//! A channel that a communicator gives back is used again, in a later epoch than any of its members
//! knows of, unless a call on it has failed: then something may be left on its links. So may some
//! of the messages that its last one was for, if nobody received them: it is for messages again,
//! which tell those apart by their epoch.

mod port;
mod seat;

pub(crate) use port::Port;
pub(crate) use seat::Seat;

use crate::collective::{Communicator, Config};
use crate::error::Error;
use crate::group::{Checked, Failure};
use crate::transport::{Distance, FRAMES_PER_LANE, MAX_LANES, Rank, Transport};
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
    /// Of each channel: messages have had it, of which some may be left.
    had_messages: RefCell<Vec<bool>>,
    /// The latest epoch that any channel has been in.
    epoch: Cell<u16>,
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

/// What a channel of the transport is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Free,
    /// Ranks are agreeing on who may use it.
    Offered,
    Used,
    /// A call on it has failed; its links may not be empty.
    Retired,
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
            channels: RefCell::new(vec![Channel::Free; n_channels]),
            had_messages: RefCell::new(vec![false; n_channels]),
            epoch: Cell::new(0),
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
    pub(crate) const fn epoch(&self) -> u16 {
        self.epoch.get()
    }

    /// Offers the channels that are free to a communicator that is to be made.
    pub(crate) fn offer(self: &Rc<Self>) -> Offer<'a, X> {
        let mut channels = self.channels.borrow_mut();
        let free = (0..channels.len()).filter(|&channel| channels[channel] == Channel::Free);
        let free: Vec<usize> = free.collect();
        free.iter().for_each(|&channel| channels[channel] = Channel::Offered);
        Offer { node: Rc::clone(self), channels: free }
    }

    /// Communicators between `members`, all of the transport's ranks unless given, one on each of
    /// these channels, which were offered, from this epoch on. The last one is for messages, if
    /// they have a channel.
    pub(crate) fn seats(
        self: &Rc<Self>,
        channels: &[usize],
        members: Option<&Rc<[Rank]>>,
        epoch: u16,
    ) -> Result<Rc<[Rc<Seat<'a, X>>]>, Error> {
        self.epoch.set(self.epoch.get().max(epoch));
        let row = Rc::new(seat::Row::new());
        let seat = |&channel: &usize| {
            let port = Port::new(
                Rc::clone(self),
                channel,
                members.cloned(),
                #[cfg(feature = "std")]
                row.stopper.clone(),
            );
            let mut comm = Communicator::with_config(port, self.config)?;
            (comm.context, comm.epoch) = (channel as u8, epoch);
            self.channels.borrow_mut()[channel] = Channel::Used;
            if self.config.messages && Some(&channel) == channels.last() {
                self.had_messages.borrow_mut()[channel] = true;
            }
            let (comm, is_taken) = (RefCell::new(Some(comm)), Cell::new(false));
            let (node, row) = (Rc::clone(self), Rc::clone(&row));
            Ok(Rc::new(Seat { node, channel, comm, is_taken, row }))
        };
        let seats: Rc<[_]> = channels.iter().map(seat).collect::<Result<_, Error>>()?;
        row.seats.get_or_init(|| Rc::downgrade(&seats));
        Ok(seats)
    }

    /// Has this call driven with the others from now on.
    pub(crate) fn add(&self, call: Weak<RefCell<dyn Drive + 'a>>) {
        self.calls.borrow_mut().push(call);
    }

    /// Gives up the call on this seat, if there is one.
    pub(crate) fn give_up(&self, seat: &Seat<'a, X>) {
        let calls = self.calls.borrow().clone();
        for call in calls.iter().filter_map(Weak::upgrade) {
            if let Ok(mut call) = call.try_borrow_mut()
                && !call.is_finished()
                && call.channel() == seat.channel
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
        let _end = EndOfPass(self);
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
        let end = (!is_nested).then(|| EndOfPass(self));
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

    fn release(&self, channel: usize, comm: Option<&Communicator<Port<'a, X>>>) {
        let clean = comm.filter(|comm| !comm.is_poisoned());
        self.channels.borrow_mut()[channel] =
            if clean.is_some() { Channel::Free } else { Channel::Retired };
        self.epoch.set(self.epoch.get().max(comm.map_or(0, Communicator::epoch)));
    }
}

/// Free channels that no other communicator is offered while this lives. Those that were not taken
/// are free again after.
pub(crate) struct Offer<'a, X: Transport> {
    node: Rc<Node<'a, X>>,
    channels: Vec<usize>,
}

impl<X: Transport> Offer<'_, X> {
    /// In ascending order.
    pub(crate) fn channels(&self) -> impl Iterator<Item = usize> {
        self.channels.iter().copied()
    }

    /// Whether nothing can be left on a channel.
    pub(crate) fn is_clean(&self, channel: usize) -> bool {
        !self.node.had_messages.borrow()[channel]
    }

    /// The channels of a communicator for so many calls: the first of those that all of its members
    /// offer as `clean`, and one for messages, if they have one, of those offered as `free`.
    pub(crate) fn choose(
        &self,
        n_calls: usize,
        free: impl Fn(usize) -> bool,
        clean: impl Fn(usize) -> bool,
    ) -> Result<Vec<usize>, Error> {
        let (mut chosen, others): (Vec<usize>, Vec<usize>) =
            self.channels().filter(|&channel| free(channel)).partition(|&channel| clean(channel));
        let needs_one = self.node.config.messages;
        // One that had messages before, if there is one: calls can use the others only.
        let for_messages = others.first().filter(|_| needs_one);
        let n_clean = n_calls + usize::from(needs_one && for_messages.is_none());
        let need = n_calls + usize::from(needs_one);
        let have = chosen.len() + usize::from(for_messages.is_some());
        if chosen.len() < n_clean {
            return Err(Error::TooFewChannels { need, have });
        }
        chosen.truncate(n_clean);
        chosen.extend(for_messages);
        Ok(chosen)
    }
}

impl<X: Transport> Drop for Offer<'_, X> {
    fn drop(&mut self) {
        let mut channels = self.node.channels.borrow_mut();
        for &channel in &self.channels {
            if channels[channel] == Channel::Offered {
                channels[channel] = Channel::Free;
            }
        }
    }
}

/// Ends a pass, also one that a user's operation unwinds from.
struct EndOfPass<'n, 'a, X: Transport>(&'n Node<'a, X>);

impl<X: Transport> Drop for EndOfPass<'_, '_, X> {
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
