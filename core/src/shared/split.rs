//! Communicators made from a communicator: splits, duplicates, and communicators of survivors.
//!
//! Each rank contributes an entry to one exact all-gather. The entry holds the group that the rank
//! wants to join, its free channels, the kinds of frames that they may still hold, and the latest
//! epoch that it knows. The members of a group thus find the same ranks in the same order, and the
//! same free channels. They also agree on an epoch later than any used on those channels. Ranks of
//! different groups may take the same channels, since the new communicators send nothing between
//! groups.
//!
//! Cost: an all-gather of 12 words for each rank. If channels must be flushed, also 9 messages each
//! way on each of their links, one for each tag.
//!
//! Source: `MPI_Comm_split`, `MPI_Comm_dup` (MPI 4.1, §7.4.2).

use super::{Pending, SharedCommunicator};
use crate::collective::{Call, Communicator};
use crate::error::{Error, Field, Value};
use crate::handle::{Advance, Handle, Progress};
use crate::plan::Plan;
use crate::shared_transport::{ChannelChoice, ChannelOffer, Flush, LeftoverFrames, Port};
use crate::transport::{MAX_CHANNELS, Rank, Transport};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem;
use core::task::Waker;
use core::time::Duration;

/// Number of channels in one word of a mask.
const BITS: usize = u64::BITS as usize;
/// Number of words in a mask of all channels.
const N_MASKS: usize = MAX_CHANNELS / BITS;
/// Color of a rank that gets no communicator.
const NO_COLOR: i64 = -1;

/// Entry of one rank in the all-gather.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct SplitEntry {
    color: i64,
    epoch: u64,
    /// A bit for each free channel, except those on which a call has failed. With
    /// `clean_or_failed`, it encodes the result of [`leftover`](Self::leftover).
    sound: ChannelMask,
    /// A bit for each free channel, except those that had messages but no failed call.
    clean_or_failed: ChannelMask,
    key: i32,
    n_calls: u32,
    /// Number of ranks on this rank's node; 0 if ranks are not numbered by nodes. If it is not 0,
    /// `key` is the lowest rank of the node.
    n_on_node: u32,
    /// 1 if messages have a channel, otherwise 0.
    has_messages: u32,
}

/// A bit for each channel.
type ChannelMask = [u64; N_MASKS];

fn is_in(mask: &ChannelMask, channel: usize) -> bool {
    mask[channel / BITS] >> (channel % BITS) & 1 == 1
}

impl SplitEntry {
    /// Length of an entry in the all-gather, in words.
    const N_WORDS: usize = size_of::<Self>() / size_of::<u64>();

    /// Returns the kind of frames that a channel's links may hold; `None` if the channel is not
    /// free.
    fn leftover(&self, channel: usize) -> Option<LeftoverFrames> {
        match (is_in(&self.sound, channel), is_in(&self.clean_or_failed, channel)) {
            (true, true) => Some(LeftoverFrames::Nothing),
            (true, false) => Some(LeftoverFrames::Messages),
            (false, true) => Some(LeftoverFrames::Segments),
            (false, false) => None,
        }
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Creates a communicator of the ranks that pass the same color. It runs up to `n_calls` calls
    /// at once, at least one. Returns `None` on a rank that passes no color.
    ///
    /// Ranks are numbered in the order of `key`, and ranks with equal keys in their old order. All
    /// ranks of this communicator must call this between the same two calls. Ranks of one color
    /// must pass the same `n_calls`.
    ///
    /// Dropping a communicator frees its channels. The number of splits is therefore unlimited, but
    /// not the number of communicators that exist at once.
    ///
    /// The ranks of a color first flush channels on which a call has failed, and channels that had
    /// messages and now get calls. They flush each of the remaining channels only once in 2¹⁵
    /// communicators, which is necessary because frames carry only 16 bits of the epoch.
    ///
    /// # Errors
    /// The errors of an [`all_gather`](Self::all_gather). [`Error::TooFewChannels`] on all ranks of
    /// a color that has too few channels. [`Error::Mismatch`] of [`Field::Context`] if ranks of a
    /// color differ in `n_calls`, or in whether they have a channel for messages.
    ///
    /// [`Error::Transport`], [`Error::Stalled`], [`Error::Deadline`] or [`Error::Aborted`] if a
    /// flush fails. Ranks in such an error are ranks of the new communicator, and this communicator
    /// stays usable.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> Result<Option<Self>, Error> {
        self.start_split(color, key, n_calls)?.wait()
    }

    /// Starts a [`split`](Self::split). Until it has finished, other communicators over the same
    /// transport find no free channels.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_split(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> Result<Split<'_, 'a, X>, Error> {
        self.start_split_on_nodes(color, key, n_calls, 0)
    }

    /// Starts a [`split`](Self::split) that may number ranks by nodes. `n_on_node` is the number of
    /// ranks on this rank's node, or 0.
    pub(super) fn start_split_on_nodes(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
        n_on_node: u32,
    ) -> Result<Split<'_, 'a, X>, Error> {
        let offer = self.shared.offer();
        let all_except = |what: LeftoverFrames| {
            let mut mask: ChannelMask = [0; N_MASKS];
            for (channel, _) in offer.channels().filter(|&(_, left)| left != what) {
                mask[channel / BITS] |= 1 << (channel % BITS);
            }
            mask
        };
        let (sound, clean_or_failed) =
            (all_except(LeftoverFrames::Segments), all_except(LeftoverFrames::Messages));
        let n_calls = n_calls.clamp(1, MAX_CHANNELS + 1) as u32;
        let own = SplitEntry {
            color: color.map_or(NO_COLOR, i64::from),
            epoch: self.shared.epoch(),
            sound,
            clean_or_failed,
            key,
            n_calls,
            n_on_node,
            has_messages: self.shared.config.messages.into(),
        };
        let mut all = vec![0; self.size() * SplitEntry::N_WORDS];
        let place = self.rank.index() * SplitEntry::N_WORDS;
        all[place..][..SplitEntry::N_WORDS].copy_from_slice(bytemuck::cast_slice(&[own]));
        let entries = self.start(Call::all_gather_in_place(all), &Plan::raw())?;
        Ok(Handle(RunningSplit { parent: self, stage: SplitStage::Gathering(entries, offer) }))
    }

    /// Creates a communicator of the same ranks. It runs up to `n_calls` calls at once, at least
    /// one.
    ///
    /// Its calls are independent of the calls of this communicator. All ranks must call this
    /// between the same two calls.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn duplicate(&self, n_calls: usize) -> Result<Self, Error> {
        self.split(Some(0), 0, n_calls)?.ok_or(Error::Internal)
    }

    /// Creates a communicator of the ranks that call this, as
    /// [`Communicator::shrink`](crate::Communicator::shrink) does. It runs up to `n_calls` calls at
    /// once. This communicator may be usable or poisoned.
    ///
    /// Calls in progress on this communicator are aborted. The transport counts a rank that is left
    /// out as lost, and so do other communicators over it.
    ///
    /// The survivors agree over one channel of this communicator. The new one may take its other
    /// channels, after a flush.
    ///
    /// # Errors
    /// As [`Communicator::shrink`](crate::Communicator::shrink), and [`split`](Self::split). The
    /// transport needs a channel more than the new communicator takes, or the split fails with
    /// [`Error::TooFewChannels`]. An error consumes this communicator.
    pub fn shrink(self, patience: Duration, n_calls: usize) -> Result<Self, Error> {
        self.shrink_by(|comm| comm.shrink(patience), n_calls)
    }

    /// Same as [`shrink`](Self::shrink), with a function that shrinks the communicator of a
    /// channel.
    pub(super) fn shrink_by(
        self,
        shrink: impl FnOnce(Communicator<Port<'a, X>>) -> Result<Communicator<Port<'a, X>>, Error>,
        n_calls: usize,
    ) -> Result<Self, Error> {
        self.abort_calls();
        // The survivors agree over the first channel.
        let mut call_slots =
            self.call_slots.iter().map(|call_slot| call_slot.comm.try_borrow_mut());
        let mut first = call_slots.next().and_then(Result::ok).ok_or(Error::Internal)?;
        let shrunk = shrink(first.take().ok_or(Error::Poisoned)?)?;
        for call_slot in call_slots {
            call_slot.map_err(|_| Error::Internal)?.take();
        }
        // `shrunk` runs over a port of this communicator: the ranks of its transport are the ranks
        // of this communicator. So translate twice.
        let members = (0..shrunk.size()).map(Rank::new);
        let outer = members.filter_map(|rank| self.transport_rank(shrunk.transport_rank(rank)?));
        let (rank, outer) = (shrunk.rank(), outer.collect());
        *first = Some(shrunk);
        drop(first);
        self.call_slots[0].forget_failure();
        let survivors = Self {
            shared: Rc::clone(&self.shared),
            call_slots: self.call_slots.iter().take(1).cloned().collect(),
            n_calls: 1,
            mailbox: None,
            next: Cell::new(0),
            is_in_group: Cell::new(false),
            checking: Cell::default(),
            members: Some(outer),
            rank,
        };
        // Frees the other channels, so that the survivors may take them.
        drop(self);
        survivors.duplicate(n_calls)
    }
}

/// A split in progress; see [`SharedCommunicator::split`]. Dropping it unfinished poisons the
/// communicator that is being split.
pub type Split<'s, 'a, X> = Handle<RunningSplit<'s, 'a, X>>;

/// State of a split, and the communicator that is being split.
pub struct RunningSplit<'s, 'a, X: Transport + 'a> {
    parent: &'s SharedCommunicator<'a, X>,
    stage: SplitStage<'a, X>,
}

enum SplitStage<'a, X: Transport + 'a> {
    /// All ranks exchange their entries.
    Gathering(Pending<'a, X, Vec<u64>>, ChannelOffer<'a, X>),
    /// The members of the new communicator flush its links.
    Flushing(NewCommunicator<'a, X>),
    /// This rank has no color.
    NoColor,
    /// The split has failed, or returned its result.
    Over,
}

/// A communicator, and the links that its members are still flushing.
type NewCommunicator<'a, X> = (SharedCommunicator<'a, X>, Flush<'a, X>);

impl<'a, X: Transport + 'a> Advance for RunningSplit<'_, 'a, X> {
    type Output = Result<Option<SharedCommunicator<'a, X>>, Error>;

    fn advance(&mut self) -> Result<Progress, Error> {
        if let SplitStage::Gathering(entries, offer) = &mut self.stage {
            let step = entries.0.advance()?;
            if step != Progress::Finished {
                return Ok(step);
            }
            let (all, _) = entries.0.output(Ok(())).into_result()?;
            let created = make_communicator(self.parent, &all, offer)?;
            self.stage = created.map_or(SplitStage::NoColor, SplitStage::Flushing);
        }
        match &mut self.stage {
            SplitStage::Flushing((_, flush)) => flush.advance(),
            SplitStage::NoColor => Ok(Progress::Finished),
            SplitStage::Gathering(..) | SplitStage::Over => Err(Error::Finished),
        }
    }

    fn output(&mut self, ended: Result<(), Error>) -> Self::Output {
        let stage = mem::replace(&mut self.stage, SplitStage::Over);
        ended?;
        match stage {
            SplitStage::Flushing((created, _)) => Ok(Some(created)),
            SplitStage::NoColor => Ok(None),
            SplitStage::Gathering(..) | SplitStage::Over => Err(Error::Finished),
        }
    }

    fn idle(&mut self) {
        let shared = &self.parent.shared;
        match &mut self.stage {
            SplitStage::Gathering(entries, _) => entries.0.idle(),
            SplitStage::Flushing((_, flush)) => shared.idle(flush.rest(shared.now())),
            SplitStage::NoColor | SplitStage::Over => {}
        }
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.parent.shared.register(waker)
    }
}

/// Creates the communicator of this rank's color from the entries of all ranks, and the flush of
/// its channels.
fn make_communicator<'a, X: Transport + 'a>(
    parent: &SharedCommunicator<'a, X>,
    all: &[u64],
    offer: &ChannelOffer<'a, X>,
) -> Result<Option<NewCommunicator<'a, X>>, Error> {
    let entries: &[SplitEntry] = bytemuck::cast_slice(all);
    let own = entries[parent.rank.index()];
    if own.color == NO_COLOR {
        return Ok(None);
    }
    let mut members: Vec<(i32, Rank)> = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.color == own.color)
        .map(|(rank, entry)| (entry.key, Rank::new(rank)))
        .collect();
    members.sort_unstable();
    let mut epoch = own.epoch;
    for &(_, rank) in &members {
        let theirs = entries[rank.index()];
        let both = [own, theirs];
        for compared in [
            both.map(|entry| entry.n_calls),
            both.map(|entry| entry.n_on_node.min(1)),
            both.map(|entry| entry.has_messages),
        ] {
            if compared[0] != compared[1] {
                let [ours, theirs] = compared.map(|number| Value::number(number.into()));
                return Err(Error::Mismatch { rank, field: Field::Context, ours, theirs });
            }
        }
        epoch = epoch.max(theirs.epoch);
    }
    let leftover = |channel| {
        let mut states = members.iter().map(|&(_, rank)| entries[rank.index()].leftover(channel));
        states.try_fold(LeftoverFrames::Nothing, |most, state| Some(most.max(state?)))
    };
    let ChannelChoice { channels, due } = offer.choose(own.n_calls as usize, leftover)?;
    let outer = members.iter().filter_map(|&(_, rank)| parent.transport_rank(rank));
    let outer: Rc<[Rank]> = outer.collect();
    let shared = Rc::clone(&parent.shared);
    let created = SharedCommunicator::among(shared, &channels, Some(Rc::clone(&outer)), epoch + 1)?;
    let is_due = |channel| due.contains(&channel);
    let flush = Flush::new(&parent.shared, &created.call_slots, &outer, is_due);
    if own.n_on_node > 0 {
        // Use two levels only if all nodes have the same number of ranks, and each node's ranks
        // agree on the node and are consecutive here.
        let n_on_node = own.n_on_node as usize;
        let is_whole = |node: &[(i32, Rank)]| {
            let is_of = |(key, rank): &(i32, Rank)| {
                *key == node[0].0 && entries[rank.index()].n_on_node == own.n_on_node
            };
            node.len() == n_on_node && node.iter().all(is_of)
        };
        if members.chunks(n_on_node).all(is_whole) {
            created.set_ranks_per_node(n_on_node)?;
        }
    }
    Ok(Some((created, flush)))
}
