//! The transport: channels of the standard library, one for each sender, receiver and tag.

use foldwire::HeapFrame;
use foldwire::transport::{TransportError, TransportErrorKind};
use foldwire::{Rank, Tag, Transport};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Frames that a channel holds. One suffices; with two, one can be read while one is written.
const DEPTH: usize = 2;
/// Frames that a rank keeps for later. It allocates what it needs beyond.
const MAX_FREE: usize = 64;

/// Bytes in a buffer, and how many of them count.
type Message = (HeapFrame, usize);

/// One rank's end of the network.
pub(crate) struct Wire {
    rank: Rank,
    frame_bytes: usize,
    /// By receiver, then by tag.
    to: Vec<Vec<Link>>,
    /// By sender, then by tag.
    from: Vec<Vec<Receiver<Message>>>,
    free: Vec<HeapFrame>,
    start: Instant,
}

/// A way to another rank.
struct Link {
    /// `None` once the receiver is gone.
    channel: Option<SyncSender<Message>>,
    /// Accepted, but the channel had no room yet.
    waiting: Option<Message>,
}

impl Link {
    /// Moves what waits into the channel, if that has room.
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

/// Why the transport failed, and with whom.
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

    /// An empty buffer. A transport with a pool of fixed size says `Pending` while it has none.
    fn poll_frame(&mut self) -> Poll<Result<HeapFrame, Failed>> {
        let frame = self.free.pop().unwrap_or_else(|| HeapFrame::new(self.frame_bytes));
        Poll::Ready(Ok(frame))
    }

    fn recycle(&mut self, frame: HeapFrame) {
        if self.free.len() < MAX_FREE {
            self.free.push(frame);
        }
    }

    /// May I send one more? After `Ready` the next `send` is accepted.
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

    /// The next message. That a sender is gone counts only after all that it sent.
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

    /// What waits moves only while this rank is polled. So a call ends only when nothing waits, or
    /// the receiver would wait for this rank's next call.
    fn undelivered(&self) -> Option<Rank> {
        let waits = |links: &Vec<Link>| links.iter().any(|link| link.waiting.is_some());
        self.to.iter().position(waits).map(Rank::new)
    }

    /// The group goes on without this rank: what waits for it must not hold up the others.
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

    /// Nothing to do: a network that can wait until something comes waits here, up to `budget`.
    fn idle(&mut self, _budget: Duration) {
        thread::yield_now();
    }
}

/// The ends of `size` ranks, connected with each other.
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
