//! One rank's endpoint: the [`Transport`] that the engine drives, and a clock for programs.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use foldwire::transport::{Distance, Rank, Tag, Transport};

use crate::fabric::SimFabric;
use crate::link::Nanos;
use crate::{Error, EventKind, Frame};

/// A rank of a [`World`](crate::World).
///
/// Dropping it ends the rank. Peers still receive the frames that it has sent, then get
/// [`Error::PeerLost`].
pub struct Endpoint {
    rank: Rank,
    fabric: Rc<RefCell<SimFabric>>,
}

impl Endpoint {
    pub(crate) const fn new(rank: Rank, fabric: Rc<RefCell<SimFabric>>) -> Self {
        Self { rank, fabric }
    }

    /// Returns the rank's clock, which outlives the endpoint.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock { rank: self.rank, fabric: Rc::clone(&self.fabric) }
    }

    /// Checks the arguments of a call, and that this rank is alive.
    fn check(&self, fabric: &mut SimFabric, peer: Rank, tag: Tag) -> Result<(), Error> {
        let size = fabric.size;
        if peer.index() >= size {
            return Err(Error::NoSuchRank { rank: peer, size });
        }
        if tag.index() >= fabric.n_tags() {
            return Err(Error::NoSuchTag { tag, n_tags: fabric.n_tags() });
        }
        self.check_alive(fabric)
    }

    /// Applies due faults.
    ///
    /// # Errors
    /// [`Error::Dead`] if this rank is dead.
    fn check_alive(&self, fabric: &mut SimFabric) -> Result<(), Error> {
        fabric.strike_due(self.rank);
        if fabric.ranks[self.rank.index()].is_dead { Err(Error::Dead) } else { Ok(()) }
    }

    fn check_send(
        &self,
        fabric: &mut SimFabric,
        to: Rank,
        tag: Tag,
        n_bytes: usize,
    ) -> Result<(), Error> {
        self.check(fabric, to, tag)?;
        let have = fabric.pool.n_bytes();
        if n_bytes > have {
            return Err(Error::TooLong { need: n_bytes, have });
        }
        if !fabric.has_space(self.rank, to, tag) {
            return Err(Error::NotReady { to, tag });
        }
        Ok(())
    }
}

/// Polls for a frame, for credit and for a received frame are sometimes pending without a reason
/// ([`NetSettings::refusal`](crate::NetSettings::refusal)).
impl Transport for Endpoint {
    type Frame = Frame;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.fabric.borrow().size
    }

    fn frame_capacity(&self) -> usize {
        self.fabric.borrow().pool.n_bytes()
    }

    fn n_channels(&self) -> usize {
        self.fabric.borrow().net.channels.max(1)
    }

    fn poll_frame(&mut self) -> Poll<Result<Frame, Error>> {
        let fabric = &mut *self.fabric.borrow_mut();
        self.check_alive(fabric)?;
        let max_held = fabric.net.frames_per_rank;
        if fabric.ranks[self.rank.index()].n_held >= max_held || fabric.refuses() {
            return Poll::Pending;
        }
        fabric.ranks[self.rank.index()].n_held += 1;
        Poll::Ready(Ok(fabric.pool.take()))
    }

    fn n_frames(&self) -> Option<usize> {
        Some(self.fabric.borrow().net.frames_per_rank)
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Error>> {
        let fabric = &mut *self.fabric.borrow_mut();
        self.check(fabric, to, tag)?;
        if fabric.is_lost(self.rank, to) {
            return Poll::Ready(Err(Error::PeerLost { peer: to }));
        }
        if !fabric.has_space(self.rank, to, tag) || fabric.refuses() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, to: Rank, tag: Tag, frame: Frame, n_bytes: usize) -> Result<(), Error> {
        let checked = self.check_send(&mut self.fabric.borrow_mut(), to, tag, n_bytes);
        if let Err(error) = checked {
            self.recycle(frame);
            return Err(error);
        }
        self.fabric.borrow_mut().send(self.rank, to, tag, frame, n_bytes);
        Ok(())
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(Frame, usize), Error>> {
        let fabric = &mut *self.fabric.borrow_mut();
        self.check(fabric, from, tag)?;
        if fabric.refuses() {
            return Poll::Pending;
        }
        match fabric.receive(self.rank, from, tag) {
            Some(received) => Poll::Ready(Ok(received)),
            None if fabric.is_lost(self.rank, from) && fabric.is_drained(self.rank, from, tag) => {
                Poll::Ready(Err(Error::PeerLost { peer: from }))
            }
            None => Poll::Pending,
        }
    }

    fn recycle(&mut self, frame: Frame) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.ranks[self.rank.index()].n_held -= 1;
        fabric.pool.give(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        self.fabric.borrow().undelivered(self.rank, |_| true)
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        self.fabric.borrow().undelivered(self.rank, |tag| tag.channel() == channel)
    }

    fn progress(&mut self) -> Result<(), Error> {
        let fabric = &mut *self.fabric.borrow_mut();
        self.check_alive(fabric)?;
        fabric.send_waiting(self.rank);
        Ok(())
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.fabric.borrow().now)
    }

    /// Does nothing: the executor advances time.
    fn idle(&mut self, _: Duration) {}

    fn distance(&self, peer: Rank) -> Distance {
        let is_near = self.fabric.borrow().is_near(self.rank, peer);
        if is_near { Distance::Node } else { Distance::Network }
    }

    fn link_rate(&self) -> Option<f64> {
        Some(self.fabric.borrow().net.bandwidth)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.fabric.borrow_mut().close(self.rank);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("rank", &self.rank).finish_non_exhaustive()
    }
}

/// A rank's view of the simulation: virtual time, the rank's own state, and the trace.
#[derive(Clone)]
pub struct Clock {
    rank: Rank,
    fabric: Rc<RefCell<SimFabric>>,
}

impl Clock {
    /// Returns the time since the start of the run.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.fabric.borrow().now)
    }

    /// Returns whether a fault has killed the rank. Nothing that a dead rank does has an effect.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.fabric.borrow().ranks[self.rank.index()].is_dead
    }

    /// Returns the time of the last frame that the rank sent or received, except on the [control
    /// tag](Tag::CONTROL).
    #[must_use]
    pub fn last_move(&self) -> Duration {
        Duration::from_nanos(self.fabric.borrow().ranks[self.rank.index()].last_move)
    }

    /// Returns a future that completes after `time` has passed on the virtual clock.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let fabric = &mut *self.fabric.borrow_mut();
        let until = fabric.now.saturating_add(time.as_nanos() as Nanos);
        fabric.wake_at(until);
        Sleep { until, fabric: Rc::clone(&self.fabric) }
    }

    /// Returns a future that is pending once: the rank continues when the executor polls it again.
    pub fn pause(&self) -> impl Future<Output = ()> + use<> {
        let mut was_polled = false;
        std::future::poll_fn(move |_| {
            if std::mem::replace(&mut was_polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Adds a note to the trace if the trace keeps events.
    pub fn note(&self, note: impl FnOnce() -> String) {
        let fabric = &mut *self.fabric.borrow_mut();
        if fabric.trace.keeps() {
            fabric.note(self.rank, EventKind::Note(note()));
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("rank", &self.rank).finish_non_exhaustive()
    }
}

struct Sleep {
    until: Nanos,
    fabric: Rc<RefCell<SimFabric>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.fabric.borrow().now >= self.until { Poll::Ready(()) } else { Poll::Pending }
    }
}
