//! The transport: frames, credit and receives over a [`Net`].
//!
//! *Credit.* A link (sender, receiver and tag) has at most `link_depth` frames that the network has
//! not released. Networks release small frames before the receiver takes them, so every
//! `link_depth`-th frame is sent `matched`. The network releases it only after the receiver has
//! posted the receive. The next `matched` frame is sent only after that release. So no sender is
//! more than 2·`link_depth` frames ahead, and a receiver's memory is bounded.
//!
//! *Receives.* On each link, one receive is posted while the engine waits for a frame or has
//! announced one by [`Transport::expect`], so that messages arrive directly in frames. The endpoint
//! posts no other receives, so every posted receive has a message to come.
//!
//! *Control messages* are short, and all other ranks may get one at once. So they leave in small
//! buffers of their own, and the caller's frame is free at once.
//!
//! *Abort notices* may come from any rank at any time. One wildcard receive with a small buffer
//! waits for the notices of all channels. Their headers hold the channel.
//!
//! *Forks.* Only the process that made an endpoint may use it. Calls from a forked child fail
//! before they touch the network, and dropping the endpoint there sends nothing.

mod ending;

use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use foldwire::frame::{MessageKind, context_of};
use foldwire::transport::{
    Distance, MAX_CHANNELS, MIN_FRAME_BYTES, Rank, Tag, Transport, TransportError,
};

use crate::Error;
use crate::link::PeerStates;
use crate::net::{Event, Net, Refused, Source};
use crate::process::ProcessIdentity;

/// Limit on the events handled in one [`Transport::progress`].
const EVENTS_PER_PASS: usize = 256;
/// Notices kept for each sender and channel until the engine reads them. Only the newest are kept:
/// each repeats what the earlier ones report.
const NOTICES_PER_RANK: usize = 4;

/// Settings of an endpoint. They must be the same on all ranks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Size of every frame in bytes. Default: 256 KiB + 4096.
    pub frame_bytes: usize,
    /// Frames that each (sender, receiver, tag) may have in the network. Default: 4. At least 1.
    pub link_depth: usize,
    /// Time in which frames of a rank that has ended may still arrive. Default: 0.5 s.
    pub grace: Duration,
    /// Longest wait of a dropped endpoint for delivery of its frames, while no rank is lost and no
    /// call was aborted. Default: 60 s. Otherwise it waits for `grace`, or ten times `grace` for
    /// abort notices.
    pub linger: Duration,
    /// Rate of each rank's link in each direction, in bytes per second, if known. It helps to
    /// choose a schedule. Default: the message layer's estimate.
    pub link_rate: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            frame_bytes: 256 * 1024 + 4096,
            link_depth: 4,
            grace: Duration::from_millis(500),
            linger: Duration::from_secs(60),
            link_rate: None,
        }
    }
}

/// Transport of one rank over a message layer.
pub struct Endpoint<N: Net> {
    net: N,
    creator: ProcessIdentity,
    options: Options,
    start: Instant,
    peers: PeerStates<N::Buffer>,
    /// Free frames.
    pool: Vec<N::Buffer>,
    /// Free buffers of control messages.
    control_pool: Vec<N::Buffer>,
    /// Frames that wait for space in the network, in the order sent.
    outbox: VecDeque<QueuedSend<N::Buffer>>,
    /// Received notices that the engine has not read.
    notices: VecDeque<PendingNotice>,
    /// Buffer of the wildcard receive, while that is not posted.
    notice_buffer: Option<N::Buffer>,
    /// This rank has sent or received a control message that reports a failed call.
    has_aborted: bool,
    failed: Option<Error<N::Error>>,
}

struct QueuedSend<B> {
    to: Rank,
    tag: Tag,
    buffer: B,
    n_bytes: usize,
    matched: bool,
}

struct PendingNotice {
    from: Rank,
    /// Channel, from the notice's header.
    channel: usize,
    n_bytes: usize,
    bytes: [u8; MIN_FRAME_BYTES],
}

impl<N: Net> Endpoint<N> {
    /// Makes a transport over `net`.
    ///
    /// # Errors
    /// The frames are too small, or the layer has no memory for the notice buffer.
    pub fn new(mut net: N, options: Options) -> Result<Self, Error<N::Error>> {
        if options.frame_bytes < MIN_FRAME_BYTES {
            return Err(Error::FrameTooSmall { have: options.frame_bytes });
        }
        let notice_buffer = net.allocate(MIN_FRAME_BYTES)?;
        let mut endpoint = Self {
            peers: PeerStates::new(net.size()),
            net,
            creator: ProcessIdentity::current(),
            options: Options { link_depth: options.link_depth.max(1), ..options },
            start: Instant::now(),
            pool: Vec::new(),
            control_pool: Vec::new(),
            outbox: VecDeque::new(),
            notices: VecDeque::new(),
            notice_buffer: Some(notice_buffer),
            has_aborted: false,
            failed: None,
        };
        endpoint.post_notice_receive();
        Ok(endpoint)
    }

    /// Returns the message layer.
    pub const fn net(&self) -> &N {
        &self.net
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn check(&self, rank: Rank, tag: Tag) -> Result<(), Error<N::Error>> {
        let size = self.net.size();
        if rank.index() >= size {
            return Err(Error::NoSuchRank { rank, size });
        }
        if tag.channel() >= MAX_CHANNELS {
            return Err(Error::NoSuchTag { tag });
        }
        Ok(())
    }

    /// Records an error: the loss of a peer if the error reports one, or else a failure of the
    /// whole layer.
    fn record_failure(&mut self, error: N::Error) {
        match error.peer() {
            Some(peer) if error.kind() == foldwire::transport::TransportErrorKind::PeerLost => {
                self.peers.lose(peer, self.start.elapsed());
            }
            _ => self.failed = self.failed.or(Some(Error::Net(error))),
        }
    }

    fn post_notice_receive(&mut self) {
        let Some(buffer) = self.notice_buffer.take() else { return };
        if self.net.size() == 1 {
            return;
        }
        match self.net.recv(Source::Any, Tag::CONTROL, buffer) {
            Ok(()) => {}
            Err(Refused::Busy(buffer)) => self.notice_buffer = Some(buffer),
            Err(Refused::Failed(buffer, error)) => {
                self.notice_buffer = Some(buffer);
                self.record_failure(error);
            }
        }
    }

    /// Posts a receive for the next frame on a link, unless one is posted or a frame has arrived.
    fn post(&mut self, from: Rank, tag: Tag) {
        let link = self.peers.link(from, tag);
        if link.n_posted > 0 || !link.arrived.is_empty() || from == self.net.rank() {
            return;
        }
        if !self.creator.is_current() {
            return;
        }
        let buffer = match self.pool.pop() {
            Some(buffer) => buffer,
            None => match self.net.allocate(self.options.frame_bytes) {
                Ok(buffer) => buffer,
                Err(error) => return self.record_failure(error),
            },
        };
        match self.net.recv(Source::Rank(from), tag, buffer) {
            Ok(()) => self.peers.link(from, tag).n_posted += 1,
            Err(Refused::Busy(buffer)) => self.pool.push(buffer),
            Err(Refused::Failed(buffer, error)) => {
                self.pool.push(buffer);
                self.record_failure(error);
            }
        }
    }

    fn handle(&mut self, event: Event<N::Buffer>) {
        match event {
            Event::Released { to, tag, buffer, matched } => {
                self.peers.released(to, tag, matched);
                self.pool_of(tag).push(buffer);
            }
            Event::Matched { to, tag } => self.peers.matched(to, tag),
            Event::Received { from, tag: Tag::CONTROL, buffer, n_bytes } => {
                self.keep_notice(from, &buffer.as_ref()[..n_bytes]);
                self.notice_buffer = Some(buffer);
                self.post_notice_receive();
            }
            Event::Received { from, tag, buffer, n_bytes } => {
                let link = self.peers.link(from, tag);
                link.n_posted -= 1;
                link.arrived.push_back((buffer, n_bytes));
            }
            Event::Returned { buffer } => drop(buffer),
            Event::Lost { peer } => self.peers.lose(peer, self.start.elapsed()),
            Event::Left { peer } => self.peers.leave(peer, self.start.elapsed()),
        }
    }

    fn keep_notice(&mut self, from: Rank, message: &[u8]) {
        self.has_aborted |= reports_failure(message);
        let channel = usize::from(context_of(message).unwrap_or(0));
        let is_senders = |notice: &PendingNotice| notice.from == from && notice.channel == channel;
        if self.notices.iter().filter(|notice| is_senders(notice)).count() == NOTICES_PER_RANK
            && let Some(oldest) = self.notices.iter().position(is_senders)
        {
            self.notices.remove(oldest);
        }
        let mut notice =
            PendingNotice { from, channel, n_bytes: message.len(), bytes: [0; MIN_FRAME_BYTES] };
        notice.bytes[..message.len()].copy_from_slice(message);
        self.notices.push_back(notice);
    }

    /// Handles at most [`EVENTS_PER_PASS`] events. Returns whether there was an event or an error.
    fn take_events(&mut self) -> bool {
        for n_taken in 0..EVENTS_PER_PASS {
            match self.net.poll() {
                Ok(Some(event)) => self.handle(event),
                Ok(None) => return n_taken > 0,
                Err(error) => {
                    self.record_failure(error);
                    return true;
                }
            }
        }
        true
    }

    /// Sends the frames that the network accepts now, and keeps the others in the outbox. Frames to
    /// the same peer stay in order.
    fn flush_outbox(&mut self) {
        let mut busy: Vec<Rank> = Vec::new();
        for _ in 0..self.outbox.len() {
            let Some(outgoing) = self.outbox.pop_front() else { return };
            if busy.contains(&outgoing.to) {
                self.outbox.push_back(outgoing);
                continue;
            }
            if let Some(outgoing) = self.try_queued(outgoing) {
                busy.push(outgoing.to);
                self.outbox.push_back(outgoing);
            }
        }
    }

    /// Passes a frame to the network. Returns the frame if the network is busy.
    fn try_queued(&mut self, send: QueuedSend<N::Buffer>) -> Option<QueuedSend<N::Buffer>> {
        let QueuedSend { to, tag, buffer, n_bytes, matched } = send;
        match self.net.send(to, tag, buffer, n_bytes, matched) {
            Ok(()) => None,
            Err(Refused::Busy(buffer)) => Some(QueuedSend { to, tag, buffer, n_bytes, matched }),
            Err(Refused::Failed(buffer, error)) => {
                self.peers.released(to, tag, matched);
                self.pool_of(tag).push(buffer);
                self.record_failure(error);
                None
            }
        }
    }

    /// Returns the pool of the buffers that messages with this tag leave in.
    const fn pool_of(&mut self, tag: Tag) -> &mut Vec<N::Buffer> {
        if tag.is_control() { &mut self.control_pool } else { &mut self.pool }
    }

    /// Copies a control message to a buffer of its own.
    fn control_buffer(&mut self, message: &[u8]) -> Result<N::Buffer, Error<N::Error>> {
        let mut buffer = match self.control_pool.pop() {
            Some(buffer) => buffer,
            None => self.net.allocate(MIN_FRAME_BYTES)?,
        };
        buffer.as_mut()[..message.len()].copy_from_slice(message);
        Ok(buffer)
    }

    fn frame(&mut self) -> Result<N::Buffer, Error<N::Error>> {
        match self.pool.pop() {
            Some(buffer) => Ok(buffer),
            None => Ok(self.net.allocate(self.options.frame_bytes)?),
        }
    }

    /// Takes the oldest notice of a rank for a channel, in a frame.
    #[allow(clippy::type_complexity, reason = "Option<Result<…>> reads as what it is")]
    fn take_notice(
        &mut self,
        from: Rank,
        channel: usize,
    ) -> Option<Result<(N::Buffer, usize), Error<N::Error>>> {
        let is_wanted = |notice: &PendingNotice| notice.from == from && notice.channel == channel;
        let at = self.notices.iter().position(is_wanted)?;
        let notice = self.notices.remove(at)?;
        Some(self.frame().map(|mut frame| {
            frame.as_mut()[..notice.n_bytes].copy_from_slice(&notice.bytes[..notice.n_bytes]);
            (frame, notice.n_bytes)
        }))
    }

    /// Returns whether no call was aborted, and no rank was lost without a goodbye.
    fn is_well(&self) -> bool {
        !self.has_aborted && !self.peers.any_disorder()
    }

    /// Returns whether a control message to a rank that is not lost is still in flight.
    fn has_undelivered_notices(&self) -> bool {
        let peers = (0..self.net.size()).map(Rank::new).filter(|&peer| peer != self.net.rank());
        peers.filter(|&peer| self.peers.lost(peer).is_none()).any(|peer| {
            self.peers.n_in_flight(peer, None, true) > self.peers.n_in_flight(peer, None, false)
        })
    }

    /// Returns a rank that has not received all messages of this rank: on one channel, or on any
    /// channel if `channel` is `None`.
    fn undelivered_on(&self, channel: Option<usize>) -> Option<Rank> {
        if !self.peers.any_in_flight() {
            return None;
        }
        let own = self.net.rank();
        let mut others = (0..self.net.size()).map(Rank::new).filter(|&peer| peer != own);
        // Control messages count only after an abort, since abort notices must arrive. Without an
        // abort they are questions about calls. No rank depends on those, and the receiver may have
        // ended.
        let in_flight = |peer| self.peers.n_in_flight(peer, channel, self.has_aborted);
        others.find(|&peer| self.peers.lost(peer).is_none() && in_flight(peer) > 0)
    }

    fn try_send(&mut self, to: Rank, tag: Tag, n_bytes: usize) -> Result<(), Error<N::Error>> {
        if !self.creator.is_current() {
            return Err(Error::OtherProcess);
        }
        if self.poll_ready(to, tag)?.is_pending() {
            return Err(Error::NotReady { to, tag });
        }
        let have = if tag.is_control() { MIN_FRAME_BYTES } else { self.options.frame_bytes };
        if n_bytes > have {
            return Err(Error::TooLong { need: n_bytes, have });
        }
        Ok(())
    }
}

impl<N: Net> Transport for Endpoint<N> {
    type Frame = N::Buffer;
    type Error = Error<N::Error>;

    fn rank(&self) -> Rank {
        self.net.rank()
    }

    fn size(&self) -> usize {
        self.net.size()
    }

    fn frame_capacity(&self) -> usize {
        self.options.frame_bytes
    }

    fn n_channels(&self) -> usize {
        MAX_CHANNELS
    }

    fn poll_frame(&mut self) -> Poll<Result<N::Buffer, Self::Error>> {
        Poll::Ready(self.frame())
    }

    /// Limited only by memory.
    fn n_frames(&self) -> Option<usize> {
        Some(usize::MAX)
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Self::Error>> {
        self.check(to, tag)?;
        if self.peers.lost(to).is_some() {
            return Poll::Ready(Err(Error::PeerLost { peer: to }));
        }
        let depth = tag.depth(self.options.link_depth);
        if self.peers.link(to, tag).has_room(depth) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: N::Buffer,
        n_bytes: usize,
    ) -> Result<(), Self::Error> {
        let checked = self.try_send(to, tag, n_bytes).and_then(|()| {
            if self.net.accepts(&frame) { Ok(()) } else { Err(Error::ForeignFrame) }
        });
        if let Err(error) = checked {
            self.recycle(frame);
            return Err(error);
        }
        self.has_aborted |= tag.is_control() && reports_failure(&frame.as_ref()[..n_bytes]);
        let (depth, is_own) = (self.options.link_depth, to == self.net.rank());
        if is_own {
            // A frame to this rank itself arrives at once, and never needs `matched`.
            let link = self.peers.sent(to, tag, false);
            link.n_unmatched = 0;
            link.arrived.push_back((frame, n_bytes));
            return Ok(());
        }
        let buffer = if tag.is_control() {
            let copied = self.control_buffer(&frame.as_ref()[..n_bytes]);
            self.recycle(frame);
            copied?
        } else {
            frame
        };
        let matched = !tag.is_control() && self.peers.link(to, tag).is_match_due(depth);
        self.peers.sent(to, tag, matched);
        let send = QueuedSend { to, tag, buffer, n_bytes, matched };
        if !self.outbox.is_empty() {
            self.outbox.push_back(send);
            self.flush_outbox();
        } else if let Some(send) = self.try_queued(send) {
            self.outbox.push_back(send);
        }
        Ok(())
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(N::Buffer, usize), Self::Error>> {
        self.check(from, tag)?;
        let is_own = from == self.net.rank();
        let link = self.peers.link(from, tag);
        if let Some(arrived) = link.arrived.pop_front() {
            if is_own {
                self.peers.released(from, tag, false);
            }
            return Poll::Ready(Ok(arrived));
        }
        if tag.is_control() {
            if let Some(notice) = self.take_notice(from, tag.channel()) {
                return Poll::Ready(notice);
            }
        } else {
            self.post(from, tag);
        }
        match self.peers.lost(from) {
            Some(since) if self.elapsed().saturating_sub(since) >= self.options.grace => {
                Poll::Ready(Err(Error::PeerLost { peer: from }))
            }
            _ => Poll::Pending,
        }
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        if self.check(from, tag).is_ok() && !tag.is_control() {
            self.post(from, tag);
        }
    }

    fn forget(&mut self, peer: Rank) {
        // Treat it as ended: send nothing to it, wait for nothing from it.
        if peer != self.net.rank() && self.creator.is_current() {
            self.peers.lose(peer, self.start.elapsed());
            self.net.forget(peer);
        }
    }

    fn recycle(&mut self, frame: N::Buffer) {
        // A frame of another endpoint must not enter this pool.
        if frame.as_ref().len() == self.options.frame_bytes && self.net.accepts(&frame) {
            self.pool.push(frame);
        }
    }

    fn progress(&mut self) -> Result<(), Self::Error> {
        if !self.creator.is_current() {
            return Err(Error::OtherProcess);
        }
        self.take_events();
        self.flush_outbox();
        self.post_notice_receive();
        self.failed.map_or(Ok(()), Err)
    }

    /// Ignores an error of `progress`. The next `progress` reports it.
    fn nudge(&mut self) {
        if !self.net.moves_by_itself() {
            let _ = self.progress();
        }
    }

    fn undelivered(&self) -> Option<Rank> {
        self.undelivered_on(None)
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        self.undelivered_on(Some(channel))
    }

    fn now(&self) -> Duration {
        self.elapsed()
    }

    fn idle(&mut self, budget: Duration) {
        if self.creator.is_current() {
            self.net.idle(budget);
        }
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.creator.is_current() && self.net.register(waker)
    }

    fn link_rate(&self) -> Option<f64> {
        self.options.link_rate.or(self.net.link_rate())
    }

    fn distance(&self, peer: Rank) -> Distance {
        if self.check(peer, Tag(0)).is_ok() { self.net.distance(peer) } else { Distance::Network }
    }

    fn needs_checksum(&self) -> bool {
        self.net.needs_checksum()
    }
}

/// Returns whether a control message reports a failed call. All kinds do except call headers
/// (questions and answers).
fn reports_failure(message: &[u8]) -> bool {
    MessageKind::of(message) != Some(MessageKind::Call)
}

impl<N: Net> core::fmt::Debug for Endpoint<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("rank", &self.net.rank())
            .field("size", &self.net.size())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
