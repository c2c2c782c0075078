//! The transport: channels of the standard library, one for each sender, receiver and tag.

use foldwire::HeapFrame;
use foldwire::transport::{TransportError, TransportErrorKind};
use foldwire::{Rank, Tag, Transport};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Number of frames in a channel. One is enough; with two, one can be read while one is written.
const DEPTH: usize = 2;
/// Number of free frames that a rank keeps. It allocates more as needed.
const MAX_FREE: usize = 64;

/// A buffer, and the number of bytes in use.
type Message = (HeapFrame, usize);

/// One rank's side of the network.
pub(crate) struct Wire {
    rank: Rank,
    frame_bytes: usize,
    /// Links by receiver, then by tag.
    to: Vec<Vec<Link>>,
    /// Channels by sender, then by tag.
    from: Vec<Vec<Receiver<Message>>>,
    free: Vec<HeapFrame>,
    start: Instant,
}

/// A link to another rank, for one tag.
struct Link {
    /// `None` once the receiver is gone.
    channel: Option<SyncSender<Message>>,
    /// An accepted message for which the channel had no space yet.
    waiting: Option<Message>,
}

impl Link {
    /// Moves the waiting message into the channel if there is space.
    fn push(&mut self) {
        if let (Some(channel), Some(message)) = (&self.channel, self.waiting.take()) {
            match channel.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => self.waiting = Some(message),
                Err(TrySendError::Disconnected(_)) => self.channel = None,
            }
        }
    }
}

/// Reason why the transport failed, and the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(TransportErrorKind, Rank);

impl TransportError for Failed {
    fn kind(&self) -> TransportErrorKind {
        self.0
    }

    fn peer(&self) -> Option<Rank> {
        Some(self.1)
    }
}

impl Wire {
    fn link(&mut self, to: Rank, tag: Tag) -> Result<&mut Link, Failed> {
        let link = self.to.get_mut(to.index()).and_then(|links| links.get_mut(tag.index()));
        let link = link.ok_or(Failed(TransportErrorKind::Misuse, to))?;
        if link.channel.is_some() {
            Ok(link)
        } else {
            Err(Failed(TransportErrorKind::PeerLost, to))
        }
    }
}

impl Transport for Wire {
    type Frame = HeapFrame;
    type Error = Failed;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn frame_capacity(&self) -> usize {
        self.frame_bytes
    }

    /// Returns an empty buffer. A transport with a pool of fixed size returns `Pending` while it
    /// has none.
    fn poll_frame(&mut self) -> Poll<Result<HeapFrame, Failed>> {
        let frame = self.free.pop().unwrap_or_else(|| HeapFrame::new(self.frame_bytes));
        Poll::Ready(Ok(frame))
    }

    fn recycle(&mut self, frame: HeapFrame) {
        if self.free.len() < MAX_FREE {
            self.free.push(frame);
        }
    }

    /// Returns whether one more message can be sent. After `Ready` the next `send` is accepted.
    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Failed>> {
        if self.link(to, tag)?.waiting.is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn send(&mut self, to: Rank, tag: Tag, frame: HeapFrame, n_bytes: usize) -> Result<(), Failed> {
        let fits = n_bytes <= self.frame_bytes;
        let link = self.link(to, tag)?;
        if !fits || link.waiting.is_some() {
            return Err(Failed(TransportErrorKind::Misuse, to));
        }
        link.waiting = Some((frame, n_bytes));
        link.push();
        Ok(())
    }

    /// Returns the next message. The loss of a sender is reported only after all its messages.
    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<Message, Failed>> {
        let channel = self.from.get(from.index()).and_then(|channels| channels.get(tag.index()));
        match channel.ok_or(Failed(TransportErrorKind::Misuse, from))?.try_recv() {
            Ok(message) => Poll::Ready(Ok(message)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => {
                Poll::Ready(Err(Failed(TransportErrorKind::PeerLost, from)))
            }
        }
    }

    /// Returns a rank for which a message waits. The message moves only while this rank polls, so a
    /// call must not end before. Otherwise the receiver would wait for this rank's next call.
    fn undelivered(&self) -> Option<Rank> {
        let waits = |links: &Vec<Link>| links.iter().any(|link| link.waiting.is_some());
        self.to.iter().position(waits).map(Rank::new)
    }

    /// The group continues without this rank. A message waiting for it must not hold up the other
    /// ranks.
    fn forget(&mut self, peer: Rank) {
        self.to[peer.index()].iter_mut().for_each(|link| link.waiting = None);
    }

    fn progress(&mut self) -> Result<(), Failed> {
        self.to.iter_mut().flatten().for_each(Link::push);
        Ok(())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Nothing to do here. A network that can block until a message arrives does so, for at most
    /// `budget`.
    fn idle(&mut self, _budget: Duration) {
        thread::yield_now();
    }
}

/// Returns the transports of `size` ranks, all connected with each other.
pub(crate) fn connect(size: usize, frame_bytes: usize) -> Vec<Wire> {
    let start = Instant::now();
    let wire = |rank| Wire {
        rank: Rank::new(rank),
        frame_bytes,
        to: Vec::new(),
        from: Vec::new(),
        free: Vec::new(),
        start,
    };
    let mut wires: Vec<_> = (0..size).map(wire).collect();
    for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
        let channels = (0..Tag::COUNT).map(|_| sync_channel(DEPTH));
        let link = |(sender, receiver)| (Link { channel: Some(sender), waiting: None }, receiver);
        let (links, receivers) = channels.map(link).unzip();
        wires[from].to.push(links);
        wires[to].from.push(receivers);
    }
    wires
}
