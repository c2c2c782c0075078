//! One rank's endpoint: the [`Transport`] that the engine drives.
//!
//! The endpoint itself holds only what its own thread uses. The shared state lies in the rings, the
//! parkers, the pool and the fabric. Sending is a push into a ring and one atomic addition to the
//! receiver's parker; receiving is a pop. Neither allocates. Neither makes a system call unless a
//! sleeping rank must be woken.

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

/// Number of times that a waiting rank checks for notifications before it gives up its core, if
/// every rank can have a core. The checks take some 50 µs, about the cost of a wake-up, so waiting
/// costs at most twice the minimum. On a virtual machine of 2 cores, ranks that slept sooner kept
/// waking each other for many calls, which then took 72 µs instead of 18.
const N_SPINS: usize = 1000;
/// Number of times that a rank yields its core before it sleeps. With more ranks than cores, the
/// peer for which the rank waits often needs just that core.
const N_YIELDS: usize = 8;
/// Time by which a timed sleep on Linux overruns its request (timer slack and wake-up).
const TIMER_SLACK: Duration = Duration::from_micros(60);

/// A rank of a [`World`](crate::World).
///
/// Dropping it closes the rank, also while a panic unwinds. Peers still receive the frames that it
/// has sent, then get [`Error::PeerLost`]. Sleeping peers are woken.
pub struct Endpoint {
    rank: Rank,
    fabric: Arc<ThreadFabric>,
    outbound: LinkIndex<Producer<SentFrame>>,
    inbox: FrameInbox,
    departures: Option<Departures>,
    /// Free frames that only this rank can take.
    cache: Vec<Frame>,
    /// The parker's epoch at the last [`progress`](Transport::progress). Each notification changes
    /// the epoch.
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

    /// Returns the link to `to`, which is made at first use.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if `to` has closed.
    fn link(&mut self, to: Rank, tag: Tag) -> Result<&mut Producer<SentFrame>, Error> {
        let position = match self.outbound.position(to, tag) {
            Some(position) => position,
            None => self.open_link(to, tag)?,
        };
        if self.fabric.is_closed(to) {
            return Err(Error::PeerLost { peer: to });
        }
        self.outbound.all().get_mut(position).ok_or(Error::NoSuchTag { tag })
    }

    #[cold]
    fn open_link(&mut self, to: Rank, tag: Tag) -> Result<usize, Error> {
        self.check(to, tag)?;
        if self.fabric.is_closed(to) {
            return Err(Error::PeerLost { peer: to });
        }
        Ok(self.outbound.insert(to, tag, self.fabric.open_link(self.rank, to, tag)))
    }

    /// Sends the frame, or returns it with the error.
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

    /// Returns whether this rank was notified since the last [`progress`](Transport::progress).
    fn has_news(&self) -> bool {
        self.fabric.parker(self.rank).epoch() != self.seen
    }

    /// Waits briefly without sleeping. Returns whether a notification came, or the fabric's clock
    /// reached `until`. Under loom it checks only once, because loom has no time and each check
    /// multiplies the interleavings.
    fn has_news_soon(&self, until: Option<Duration>) -> bool {
        if self.has_news() {
            return true;
        }
        if cfg!(loom) {
            return false;
        }
        let check_after = |wait: fn()| {
            wait();
            self.has_news() || until.is_some_and(|until| self.fabric.now() >= until)
        };
        let n_spins = if self.fabric.has_spare_cores() { N_SPINS } else { 0 };
        (0..n_spins).any(|_| check_after(hint::spin_loop))
            || (0..N_YIELDS).any(|_| check_after(yield_now))
    }

    /// Sleeps until a notification comes or the fabric's clock reaches `until`. Wakes up a little
    /// early and yields for the rest, because a timed sleep overruns by [`TIMER_SLACK`].
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
        if self.link(to, tag)?.poll_space() { Poll::Ready(Ok(())) } else { Poll::Pending }
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
            // The peer may have sent its last frames after the first check, before it closed.
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

    /// Spins for some 50 µs if every rank can have a core, then yields the core, then sleeps.
    ///
    /// It ends early when a frame in flight is due, or when a peer does one of these:
    ///
    /// - sends to this rank,
    /// - takes a frame from a link that this rank found full,
    /// - recycles a frame after this rank found no free one,
    /// - closes.
    ///
    /// With a zero budget it returns at once, so that one thread can drive all endpoints of a world
    /// in turn.
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

    /// Returns `false` with a rate limit: then frames arrive by the clock, and no notification
    /// announces them. Also returns `false` if the ticker's thread cannot start.
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
        // The waker may own something that keeps this world alive.
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
