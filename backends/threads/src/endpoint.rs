//! One rank's end of the world: the [`Transport`] the engine drives.
//!
//! Everything here is bookkeeping of one thread; what is shared lies in the rings, the parkers, the
//! pool and the fabric. Sending is a push into a ring and one atomic addition to the receiver's
//! parker; receiving is a pop. Neither allocates, and neither makes a system call unless a sleeper
//! must be woken.

use std::fmt;
use std::hint;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use foldwire::transport::{Distance, MAX_CHANNELS, Rank, Tag, Transport};

use crate::Error;
use crate::fabric::{SentFrame, ThreadFabric};
use crate::frame::Frame;
use crate::inbox::{FrameInbox, NextFrame};
use crate::links::LinkIndex;
use crate::pace::{Departures, LinkPace};
use crate::parker::Epoch;
use crate::ring::Producer;
use crate::sync::yield_now;

/// Looks at the epoch before giving up the core, if every rank can have one: some 50 µs, about what
/// a wake-up costs, so that waiting costs twice what it must at most. (On a virtual machine of 2
/// cores, ranks that slept sooner woke each other in turn for many calls: 72 µs for what took 18.)
const N_SPINS: usize = 1000;
/// Times the core is offered to others before a rank sleeps. With more ranks than cores the peer
/// that is waited for often needs just that.
const N_YIELDS: usize = 8;
/// A timed sleep on Linux lasts about this much longer than asked for (timer slack, wake-up).
const TIMER_SLACK: Duration = Duration::from_micros(60);

/// A rank of a [`World`](crate::World).
///
/// Dropping it, also while unwinding from a panic, closes the rank: peers still receive what it has
/// sent, then get [`Error::PeerLost`], and those that sleep are woken.
pub struct Endpoint {
    rank: Rank,
    fabric: Arc<ThreadFabric>,
    outbound: LinkIndex<Producer<SentFrame>>,
    inbox: FrameInbox,
    departures: Option<Departures>,
    /// Free frames of this rank's own.
    cache: Vec<Frame>,
    /// The epoch when the current pass began.
    seen: Epoch,
}

impl Endpoint {
    pub(crate) fn new(rank: Rank, fabric: Arc<ThreadFabric>) -> Self {
        Self {
            rank,
            outbound: LinkIndex::new(fabric.size()),
            inbox: FrameInbox::new(rank, &fabric),
            departures: fabric.pace().map(Departures::new),
            cache: Vec::new(),
            seen: Epoch::default(),
            fabric,
        }
    }

    fn check(&self, peer: Rank, tag: Tag) -> Result<(), Error> {
        if peer.index() >= self.fabric.size() {
            let size = self.fabric.size() as u32;
            Err(Error::NoSuchRank { rank: peer, size })
        } else if tag.channel() >= MAX_CHANNELS {
            Err(Error::NoSuchTag { tag })
        } else {
            Ok(())
        }
    }

    /// The link to a peer that is still there.
    fn link(&mut self, to: Rank, tag: Tag) -> Result<&mut Producer<SentFrame>, Error> {
        self.check(to, tag)?;
        if self.fabric.is_closed(to) {
            return Err(Error::PeerLost { peer: to });
        }
        let open = || self.fabric.open_link(self.rank, to, tag);
        self.outbound.find_or_insert(to, tag, open).ok_or(Error::NoSuchTag { tag })
    }

    /// Sends, or gives the frame back with the reason.
    fn try_send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: Frame,
        n_bytes: usize,
    ) -> Result<(), (Error, Frame)> {
        let have = self.frame_capacity();
        if n_bytes > have {
            return Err((Error::TooLong { need: n_bytes, have }, frame));
        }
        if !frame.belongs_to(Arc::as_ptr(self.fabric.pool())) {
            return Err((Error::ForeignFrame, frame));
        }
        let start = match &self.departures {
            Some(departures) if self.fabric.crosses_links(self.rank, to) => {
                departures.next_start(self.fabric.now())
            }
            _ => Duration::ZERO,
        };
        let link = match self.link(to, tag) {
            Ok(link) => link,
            Err(error) => return Err((error, frame)),
        };
        if let Err(sent) = link.push(SentFrame { frame, n_bytes, start }) {
            return Err((Error::NotReady { to, tag }, sent.frame));
        }
        self.fabric.parker(to).notify();
        if let Some(departures) = &mut self.departures
            && self.fabric.crosses_links(self.rank, to)
        {
            departures.depart(start, n_bytes);
        }
        Ok(())
    }

    fn has_news(&self) -> bool {
        self.fabric.parker(self.rank).epoch() != self.seen
    }

    /// Waits awake for a moment; whether there was news, or model time `until` came. Not under
    /// loom, to which a moment is as good as none and every look multiplies the interleavings.
    fn has_news_soon(&self, until: Option<Duration>) -> bool {
        if self.has_news() {
            return true;
        }
        if cfg!(loom) {
            return false;
        }
        let look_after = |wait: fn()| {
            wait();
            self.has_news() || until.is_some_and(|until| self.fabric.now() >= until)
        };
        let n_spins = if self.fabric.has_spare_cores() { N_SPINS } else { 0 };
        (0..n_spins).any(|_| look_after(hint::spin_loop))
            || (0..N_YIELDS).any(|_| look_after(yield_now))
    }

    /// Sleeps until there is news, or model time `until`, which a plain sleep would miss by the
    /// timer's slack.
    fn sleep_until(&self, until: Duration) {
        while !self.has_news() {
            match until.saturating_sub(self.fabric.now()) {
                Duration::ZERO => return,
                left if left > TIMER_SLACK => {
                    self.fabric.parker(self.rank).park(self.seen, left - TIMER_SLACK);
                }
                _ => yield_now(),
            }
        }
    }
}

impl Transport for Endpoint {
    type Frame = Frame;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.fabric.size()
    }

    fn frame_capacity(&self) -> usize {
        self.fabric.pool().frame_bytes()
    }

    fn n_channels(&self) -> usize {
        MAX_CHANNELS
    }

    fn poll_frame(&mut self) -> Poll<Result<Frame, Error>> {
        self.fabric.pool().poll_take(&mut self.cache, self.rank)
    }

    fn n_frames(&self) -> Option<usize> {
        Some(self.fabric.frames_per_rank())
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Error>> {
        if self.link(to, tag)?.poll_room() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn send(&mut self, to: Rank, tag: Tag, frame: Frame, n_bytes: usize) -> Result<(), Error> {
        self.try_send(to, tag, frame, n_bytes).map_err(|(error, frame)| {
            self.recycle(frame);
            error
        })
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(Frame, usize), Error>> {
        self.check(from, tag)?;
        let mut found = self.inbox.take(&self.fabric, from, tag);
        if matches!(found, NextFrame::Missing) {
            if !self.fabric.is_closed(from) {
                return Poll::Pending;
            }
            // Its last frames may have come between the look and the flag.
            found = self.inbox.take(&self.fabric, from, tag);
        }
        match found {
            NextFrame::Arrived(sent, sender_waits) => {
                if sender_waits {
                    self.fabric.parker(from).notify();
                }
                Poll::Ready(Ok((sent.frame, sent.n_bytes)))
            }
            NextFrame::InFlight => Poll::Pending,
            NextFrame::Missing => Poll::Ready(Err(Error::PeerLost { peer: from })),
        }
    }

    fn recycle(&mut self, frame: Frame) {
        self.fabric.pool().give(&mut self.cache, frame);
    }

    fn progress(&mut self) -> Result<(), Error> {
        self.seen = self.fabric.parker(self.rank).epoch();
        self.inbox.begin_pass(&self.fabric);
        Ok(())
    }

    fn now(&self) -> Duration {
        self.fabric.now()
    }

    /// Spins for some 50 µs if every rank can have a core, offers the core to others, then
    /// sleeps. Ends early when a peer sends to this rank, takes a frame from a link that this rank
    /// found full, recycles a frame that it was refused, or ends; and when a frame under way is
    /// due.
    ///
    /// A zero budget returns at once: so one thread can drive all endpoints of a world in turn.
    fn idle(&mut self, budget: Duration) {
        let arrival = self.inbox.next_arrival();
        if budget.is_zero() || self.has_news_soon(arrival) {
            return;
        }
        match arrival {
            Some(arrival) => self.sleep_until(self.now().saturating_add(budget).min(arrival)),
            None => self.fabric.parker(self.rank).park(self.seen, budget),
        }
    }

    /// Without a rate limit. With one, frames arrive by the clock, of which nobody tells.
    fn register(&mut self, waker: &Waker) -> bool {
        if self.fabric.pace().is_some() || !self.fabric.ticks() {
            return false;
        }
        self.fabric.parker(self.rank).register(waker);
        true
    }

    fn link_rate(&self) -> Option<f64> {
        self.fabric.pace().and_then(LinkPace::rate)
    }

    fn distance(&self, peer: Rank) -> Distance {
        self.fabric.distance(self.rank, peer)
    }

    fn needs_checksum(&self) -> bool {
        false
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // A waker may own what keeps this world alive.
        drop(self.fabric.parker(self.rank).take_waker());
        self.fabric.close(self.rank, thread::panicking());
        self.fabric.pool().give_all(self.cache.drain(..));
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("rank", &self.rank)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
