//! Communicators made from a communicator: split, duplicated, of survivors.
//!
//! All ranks tell all others, in one exact all-gather, which group they want to be in, which
//! channels they have free, and the latest epoch that they know of. So the members of a group find
//! the same ranks in the same order, the same free channels, and an epoch later than any that was
//! used on them. Ranks of different groups may take the same channels: they have no link in common.
//!
//! Cost: an all-gather of 22 `f64` for each rank.
//!
//! Source: `MPI_Comm_split`, `MPI_Comm_dup` (MPI 4.1, §7.4.2).

use super::{Pending, SharedCommunicator};
use crate::error::{Error, Field, Value};
use crate::node::Offer;
use crate::plan::Plan;
use crate::shrink::MAX_EPOCH;
use crate::transport::{MAX_CHANNELS, Rank, Transport};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// Channels in a number: as many bits as an `f64` surely holds exactly.
const BITS: usize = 32;
/// Numbers that say which channels are free.
const N_MASKS: usize = MAX_CHANNELS / BITS;

/// What a rank tells the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    color: Option<u32>,
    key: i32,
    n_calls: u32,
    epoch: u16,
    /// How many ranks share the rank's node, and then the key is the lowest of them; 0 if ranks are
    /// not to be numbered by nodes.
    n_near: u32,
    /// Whether messages under way have a channel.
    has_messages: bool,
    /// A bit for each free channel.
    free: Mask,
    /// Of these, those on which nothing can be left.
    clean: Mask,
}

/// A bit for each channel.
type Mask = [u32; N_MASKS];

fn is_in(mask: &Mask, channel: usize) -> bool {
    mask[channel / BITS] >> (channel % BITS) & 1 == 1
}

impl Entry {
    /// Numbers that an entry travels as.
    const N_VALUES: usize = Self::N_NUMBERS + 2 * N_MASKS;
    const N_NUMBERS: usize = 6;

    fn write(&self, place: &mut [f64]) {
        let color = self.color.map_or(-1.0, f64::from);
        let Self { key, n_calls, epoch, n_near, .. } = *self;
        let has_messages = u32::from(self.has_messages).into();
        let numbers: [f64; Self::N_NUMBERS] =
            [color, key.into(), n_calls.into(), epoch.into(), n_near.into(), has_messages];
        let masks = self.free.into_iter().chain(self.clean).map(f64::from);
        for (place, value) in place.iter_mut().zip(numbers.into_iter().chain(masks)) {
            *place = value;
        }
    }

    fn read(values: &[f64]) -> Self {
        let at = |at: usize| values.get(at).copied().unwrap_or(0.0);
        Self {
            color: (at(0) >= 0.0).then_some(at(0) as u32),
            key: at(1) as i32,
            n_calls: at(2) as u32,
            epoch: at(3) as u16,
            n_near: at(4) as u32,
            has_messages: at(5) != 0.0,
            free: core::array::from_fn(|mask| at(Self::N_NUMBERS + mask) as u32),
            clean: core::array::from_fn(|mask| at(Self::N_NUMBERS + N_MASKS + mask) as u32),
        }
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Communicators of the ranks that give the same color, for `n_calls` calls at once, at least
    /// one; `None` for a rank that gives none. Ranks are numbered by `key`, and by their old rank
    /// where that is the same. All ranks of this communicator call it together, between the same
    /// two calls; those of one color with the same `n_calls`.
    ///
    /// A communicator that is dropped gives its channels back.
    ///
    /// # Errors
    /// As a call of [`all_gather`](Self::all_gather);
    /// [`Error::TooFewChannels`] on all ranks of a color for which there are too few;
    /// [`Error::Mismatch`] of [`Field::Context`] if they differ in `n_calls`, or in whether they
    /// have a channel for messages;
    /// [`Error::TooManyGroups`] after 2¹⁵ − 1 communicators.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> Result<Option<Self>, Error> {
        self.start_split(color, key, n_calls)?.wait()
    }

    /// Starts what [`split`](Self::split) does. Until it is done, other communicators over the same
    /// transport find no free channels.
    ///
    /// # Errors
    /// As [`start_all_gather`](Self::start_all_gather).
    pub fn start_split(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> Result<Split<'_, 'a, X>, Error> {
        self.start_split_of(color, key, n_calls, 0)
    }

    /// As [`start_split`](Self::start_split), where `n_near` ranks share this one's node, or 0.
    pub(super) fn start_split_of(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
        n_near: u32,
    ) -> Result<Split<'_, 'a, X>, Error> {
        let offer = self.node.offer();
        let mask = |is_in: &dyn Fn(usize) -> bool| {
            let mut mask: Mask = [0; N_MASKS];
            for channel in offer.channels().filter(|&channel| is_in(channel)) {
                mask[channel / BITS] |= 1 << (channel % BITS);
            }
            mask
        };
        let (free, clean) = (mask(&|_| true), mask(&|channel| offer.is_clean(channel)));
        let n_calls = n_calls.clamp(1, MAX_CHANNELS + 1) as u32;
        let (epoch, has_messages) = (self.node.epoch(), self.node.config.messages);
        let own = Entry { color, key, n_calls, epoch, n_near, has_messages, free, clean };
        let mut all = vec![0.0; self.size() * Entry::N_VALUES];
        let place = self.rank.index() * Entry::N_VALUES;
        own.write(&mut all[place..place + Entry::N_VALUES]);
        let exchange = self.start_all_gather_in_place(all, &Plan::raw())?;
        Ok(Split { parent: self, exchange, offer })
    }

    /// A communicator of the same ranks for `n_calls` calls at once, at least one. Its calls and
    /// those of this one are apart from each other. All ranks call it together, between the same
    /// two calls.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn duplicate(&self, n_calls: usize) -> Result<Self, Error> {
        self.split(Some(0), 0, n_calls)?.ok_or(Error::Internal)
    }

    /// A communicator of the ranks that call this, after a failure or without one, for `n_calls`
    /// calls at once: what [`Communicator::shrink`](crate::Communicator::shrink) does. Calls under
    /// way on this one are given up, and its channels are not used again.
    ///
    /// A rank that is left out counts as lost for the transport, and so for other communicators
    /// over it as well.
    ///
    /// # Errors
    /// As [`Communicator::shrink`](crate::Communicator::shrink), and [`split`](Self::split).
    pub fn shrink(self, patience: Duration, n_calls: usize) -> Result<Self, Error> {
        self.seats.iter().for_each(|seat| self.node.give_up(seat));
        // What the survivors agree on travels on the first channel.
        let mut seats = self.seats.iter().map(|seat| seat.comm.try_borrow_mut());
        let mut first = seats.next().and_then(Result::ok).ok_or(Error::Internal)?;
        let shrunk = first.take().ok_or(Error::Poisoned)?.shrink(patience)?;
        for seat in seats {
            seat.map_err(|_| Error::Internal)?.take();
        }
        let members = (0..shrunk.size()).map(Rank::new);
        let outer = members.filter_map(|rank| self.transport_rank(shrunk.transport_rank(rank)?));
        let (rank, outer) = (shrunk.rank(), outer.collect());
        *first = Some(shrunk);
        drop(first);
        self.seats[0].forget_failure();
        let survivors = Self {
            node: Rc::clone(&self.node),
            seats: self.seats.iter().take(1).cloned().collect(),
            n_calls: 1,
            mailbox: None,
            next: Cell::new(0),
            is_in_group: Cell::new(false),
            checking: Cell::default(),
            members: Some(outer),
            rank,
        };
        survivors.duplicate(n_calls)
    }
}

/// A communicator being made; see [`SharedCommunicator::split`].
///
/// [`wait`](Self::wait) for it, or `.await` it. Dropping it unfinished gives up the communicator
/// that is being split.
#[must_use = "nothing comes of it unless it is waited for"]
pub struct Split<'s, 'a, X: Transport + 'a> {
    parent: &'s SharedCommunicator<'a, X>,
    exchange: Pending<'a, X, f64, Vec<f64>>,
    offer: Offer<'a, X>,
}

impl<'a, X: Transport + 'a> Split<'_, 'a, X> {
    /// Drives all calls over the transport until it is done.
    ///
    /// # Errors
    /// As [`SharedCommunicator::split`].
    pub fn wait(self) -> Result<Option<SharedCommunicator<'a, X>>, Error> {
        let (all, _) = self.exchange.wait().into_result()?;
        conclude(self.parent, &all, &self.offer)
    }
}

/// Once it has returned its result, it is pending for ever.
impl<'a, X: Transport + 'a> Future for Split<'_, 'a, X> {
    type Output = Result<Option<SharedCommunicator<'a, X>>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let finished = core::task::ready!(Pin::new(&mut self.exchange).poll(context));
        let (all, _) = finished.into_result()?;
        Poll::Ready(conclude(self.parent, &all, &self.offer))
    }
}

/// The communicator of this rank's color, of what all ranks told.
fn conclude<'a, X: Transport + 'a>(
    parent: &SharedCommunicator<'a, X>,
    all: &[f64],
    offer: &Offer<'a, X>,
) -> Result<Option<SharedCommunicator<'a, X>>, Error> {
    let entries: Vec<Entry> = all.chunks_exact(Entry::N_VALUES).map(Entry::read).collect();
    let own = entries[parent.rank.index()];
    if own.color.is_none() {
        return Ok(None);
    }
    let mut members: Vec<(i32, Rank)> = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.color == own.color)
        .map(|(rank, entry)| (entry.key, Rank::new(rank)))
        .collect();
    members.sort_unstable();
    let mut together = own;
    for &(_, rank) in &members {
        let theirs = entries[rank.index()];
        let both = [own, theirs];
        for asked in [
            both.map(|entry| entry.n_calls),
            both.map(|entry| entry.n_near.min(1)),
            both.map(|entry| entry.has_messages.into()),
        ] {
            if asked[0] != asked[1] {
                let [ours, theirs] = asked.map(|number| Value::number(number.into()));
                return Err(Error::Mismatch { rank, field: Field::Context, ours, theirs });
            }
        }
        together.epoch = together.epoch.max(theirs.epoch);
        together.free = core::array::from_fn(|at| together.free[at] & theirs.free[at]);
        together.clean = core::array::from_fn(|at| together.clean[at] & theirs.clean[at]);
    }
    if together.epoch >= MAX_EPOCH {
        return Err(Error::TooManyGroups { max: MAX_EPOCH });
    }
    let (is_free, is_clean) =
        (|channel| is_in(&together.free, channel), |channel| is_in(&together.clean, channel));
    let channels = offer.choose(own.n_calls as usize, is_free, is_clean)?;
    let outer = members.iter().filter_map(|&(_, rank)| parent.transport_rank(rank)).collect();
    let (node, epoch) = (Rc::clone(&parent.node), together.epoch + 1);
    let made = SharedCommunicator::among(node, &channels, Some(outer), epoch)?;
    if own.n_near > 0 {
        // Nodes that are all as large, as each of their ranks sees it.
        let n_near = own.n_near as usize;
        let is_whole = |node: &[(i32, Rank)]| {
            let is_of = |(key, rank): &(i32, Rank)| {
                *key == node[0].0 && entries[rank.index()].n_near == own.n_near
            };
            node.len() == n_near && node.iter().all(is_of)
        };
        if members.chunks(n_near).all(is_whole) {
            made.know_nodes(n_near)?;
        }
    }
    Ok(Some(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_way() {
        for color in [None, Some(0), Some(u32::MAX)] {
            let free = core::array::from_fn(|at| u32::MAX - at as u32);
            let (n_calls, epoch, n_near) = (257, u16::MAX, 65536);
            let (key, has_messages, clean) = (i32::MIN, color.is_some(), free.map(|mask| !mask));
            let entry = Entry { color, key, n_calls, epoch, n_near, has_messages, free, clean };
            let mut values = [0.5; Entry::N_VALUES];
            entry.write(&mut values);
            assert_eq!(Entry::read(&values), entry);
        }
    }
}
