//! The message layer: it sends messages over several connections to each peer, and reports events.
//!
//! *Choice of a connection.* A message takes the connection to its peer with the fewest queued
//! bytes. Messages of a link are numbered, and the receiver restores their order. All notices take
//! the first connection, ahead of messages that it has not begun to send.
//!
//! *Backpressure.* All input is always read, so that one link does not block another. The senders'
//! credit bounds the amount of input. The receiver answers a `matched` message once it has arrived
//! and its receive is posted. Memory for a message is allocated only after its header was checked
//! against the credit.
//!
//! *Shared memory.* Between ranks of a node, a long message stays in its frame. Its header names
//! the frame's slot. The frame then belongs to the receiver. The sender goes on with another frame,
//! and later gets the slot of a frame that the receiver does not need any more: with the receiver's
//! next message or answer, or when several wait. Order, credit and wake-ups are those of other
//! messages. If no frame is left, the bytes follow their header.
//!
//! *Lost ranks.* A peer is lost if a connection ends without a goodbye, or if the peer violates the
//! protocol. After a violation, nothing more is read from the peer. Otherwise its other connections
//! are still read.
//!
//! If a machine vanishes, no connection ends by itself. On idle connections, the system detects it
//! by keep-alive probes (`byte_stream`). With data on its way, the system gives up only after many
//! minutes. So ranks on different nodes have one more connection, which is always idle.
//! `TCP_USER_TIMEOUT` would make it unnecessary. But that option also ends connections to live
//! ranks that read nothing for that time because they compute.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::process;
use std::task::Waker;
use std::time::{Duration, Instant};

use foldwire::transport::{Distance, MIN_FRAME_BYTES, Rank, Tag};
use foldwire_messaging::{Event, MessageFrame, Net, NodeMemory, Options, Refused, Source, on_wire};
use mio::{Events, Interest, Poll, Token};

use crate::byte_stream::ByteStream;
use crate::error::{Error, PeerLoss};
use crate::header::MessageHeader;
use crate::incoming::{IncomingMessages, PeerReceiver};
use crate::link::PeerLinks;
use crate::message_stream::{MessageStream, QueuedMessage};
use crate::rest::{LEAST_SLEEP, Rest};
#[cfg(unix)]
use crate::waker_thread::WakerThread;

/// Shortest message that is passed in shared memory. A shorter one is copied sooner than its slot
/// comes back.
const LEAST_LENT: usize = 16 << 10;
/// Longest wait on drop until the peers have closed their side, once their systems have all bytes.
const CLOSE_LIMIT: Duration = Duration::from_millis(200);

/// Results of [`join`](crate::join).
pub(crate) struct TcpSetup {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) options: Options,
    pub(crate) n_streams: usize,
    pub(crate) encrypts: bool,
    /// By rank, whether it shares this rank's node.
    pub(crate) is_near: Vec<bool>,
    /// Memory of the ranks of the node, if they share it.
    pub(crate) memory: Option<NodeMemory>,
}

/// Number of slots for the connections of `n_ranks` ranks: their streams, and an idle one each.
pub(crate) const fn n_slots(n_ranks: usize, n_streams: usize) -> usize {
    n_ranks * (n_streams + 1)
}

/// Messages between ranks over TCP.
pub struct Tcp {
    /// Process that made the connections.
    owner_pid: u32,
    #[cfg(unix)]
    waker_thread: Option<WakerThread>,
    poll: Poll,
    ready: Events,
    setup: TcpSetup,
    /// Connections to each rank, by slot: first its data connections, then the idle one. `None` for
    /// this rank itself, for the idle connection within a node, and for ended connections.
    streams: Vec<Option<MessageStream>>,
    /// Indices of streams to serve.
    to_serve: VecDeque<usize>,
    peers: Vec<PeerStatus>,
    incoming: IncomingMessages,
    rest: Rest,
    /// Start of the end, if the endpoint announced it.
    ends_since: Option<Instant>,
    /// False if a call was aborted before the end.
    is_well: bool,
}

struct PeerStatus {
    loss: Option<PeerLoss>,
    /// Stream to try first for the next message.
    next_stream: usize,
}

impl Tcp {
    /// Creates the layer over connections, given by slot.
    pub(crate) fn new(
        mut setup: TcpSetup,
        connections: Vec<Option<ByteStream>>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut streams = Vec::with_capacity(connections.len());
        for (at, connection) in connections.into_iter().enumerate() {
            let interests = Interest::READABLE | Interest::WRITABLE;
            streams.push(match connection {
                None => None,
                Some(mut connection) => {
                    poll.registry().register(&mut connection.socket, Token(at), interests)?;
                    Some(MessageStream::new(connection, setup.options.frame_bytes))
                }
            });
        }
        let Options { frame_bytes, link_depth, .. } = setup.options;
        let mut incoming = IncomingMessages::new(setup.size, frame_bytes, link_depth);
        incoming.memory = setup.memory.take();
        Ok(Self {
            owner_pid: process::id(),
            #[cfg(unix)]
            waker_thread: None,
            poll,
            ready: Events::with_capacity(128),
            to_serve: (0..streams.len()).collect(),
            streams,
            peers: (0..setup.size).map(|_| PeerStatus { loss: None, next_stream: 0 }).collect(),
            setup,
            incoming,
            rest: Rest::default(),
            ends_since: None,
            is_well: true,
        })
    }

    /// Returns the reason for which a rank was lost, if it was.
    #[must_use]
    pub fn loss(&self, peer: Rank) -> Option<PeerLoss> {
        self.peers.get(peer.index())?.loss
    }

    /// Number of data connections of each pair of ranks.
    #[must_use]
    pub const fn n_streams(&self) -> usize {
        self.setup.n_streams
    }

    /// Returns whether connections are encrypted.
    #[must_use]
    pub const fn encrypts(&self) -> bool {
        self.setup.encrypts
    }

    /// Returns whether long messages to and from a rank pass through shared memory.
    #[must_use]
    pub fn shares_memory_with(&self, peer: Rank) -> bool {
        self.incoming.memory.as_ref().is_some_and(|memory| memory.contains(peer))
    }

    /// Begins to share memory, if all ranks of this node are ready to. All of them have opened this
    /// rank's memory by now.
    pub(crate) fn share_memory(&mut self, is_ready: impl Fn(Rank) -> bool) {
        let ranks = (0..self.setup.size).map(Rank::new).zip(&self.setup.is_near);
        let all_ready = ranks.filter(|&(_, &is_near)| is_near).all(|(rank, _)| is_ready(rank));
        self.incoming.memory = self.incoming.memory.take().filter(|_| all_ready);
        if let Some(memory) = &mut self.incoming.memory {
            memory.close();
        }
    }

    /// Slots of a peer's connections.
    const fn streams_of(&self, peer: Rank) -> std::ops::Range<usize> {
        let n_streams = self.setup.n_streams;
        n_slots(peer.index(), n_streams)..n_slots(peer.index() + 1, n_streams)
    }

    const fn rank_at(&self, at: usize) -> Rank {
        Rank((at / n_slots(1, self.setup.n_streams)) as u32)
    }

    /// Chooses the connection for the next message to a peer: the one with the fewest queued bytes,
    /// and among equals the next one after the last choice.
    fn choose_stream(&mut self, peer: Rank) -> Option<usize> {
        let (range, n) = (self.streams_of(peer), self.setup.n_streams);
        let first = self.peers[peer.index()].next_stream;
        let in_turn = (0..n).map(|i| range.start + (first + i) % n);
        let open = in_turn.filter_map(|at| Some((at, self.streams[at].as_ref()?.n_queued())));
        let (at, _) = open.min_by_key(|&(_, n_queued)| n_queued)?;
        self.peers[peer.index()].next_stream = (at - range.start + 1) % n;
        Some(at)
    }

    /// Waits at most `timeout` until connections are ready, and queues them to be served.
    fn poll_system(&mut self, timeout: Duration) -> Result<(), Error> {
        match self.poll.poll(&mut self.ready, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(Error::System(error.kind())),
        }
        for event in &self.ready {
            let at = event.token().0;
            if let Some(Some(stream)) = self.streams.get_mut(at) {
                let is_ending = event.is_read_closed() || event.is_error();
                let is_writable = event.is_writable() || event.is_error();
                stream.note_readiness(event.is_readable() || is_ending, is_writable, is_ending);
                self.to_serve.push_back(at);
            }
        }
        Ok(())
    }

    /// Reads from and writes to each ready connection once.
    fn serve_all(&mut self) {
        for _ in 0..self.to_serve.len() {
            if let Some(at) = self.to_serve.pop_front() {
                self.serve(at);
            }
        }
        for (to, header) in std::mem::take(&mut self.incoming.to_answer) {
            self.push(to, header, None);
        }
    }

    fn serve(&mut self, at: usize) {
        let Some(mut stream) = self.streams[at].take() else { return };
        let peer = self.rank_at(at);
        let read = stream.read(&mut PeerReceiver { peer, incoming: &mut self.incoming });
        let written = self.write(peer, &mut stream);
        match read {
            Ok(()) => {
                if stream.is_readable() {
                    self.to_serve.push_back(at);
                }
                let has_left = stream.reader.has_ended;
                self.streams[at] = Some(stream);
                if let Err(loss) = written {
                    self.mark_lost(peer, loss);
                } else if has_left {
                    self.mark_left_when_done(peer);
                }
            }
            Err(loss) => {
                self.release(peer, stream.discard_unsent());
                let has_left = stream.reader.has_ended;
                drop(stream);
                // A peer closes the connection after its goodbye.
                if has_left {
                    self.mark_left_when_done(peer);
                } else {
                    self.mark_lost(peer, loss);
                }
            }
        }
    }

    /// Writes queued messages. The buffer of a `matched` message is released after the peer's
    /// answer, and any other buffer when the system has taken the message.
    fn write(&mut self, to: Rank, stream: &mut MessageStream) -> Result<(), PeerLoss> {
        let IncomingMessages { links, events, .. } = &mut self.incoming;
        stream.write(|message| match message.matched {
            true => links[to.index()].of(message.tag).awaits = Some(message.frame),
            false => events.push_back(message.released(to)),
        })
    }

    /// Queues a message, or an answer, which is a header without a message, or nothing. Then sends
    /// what the connection takes. Answers and notices pass queued messages. Notices keep their
    /// order on the first connection. Slots for the peer travel along. A lost peer gets nothing.
    fn push(&mut self, to: Rank, header: Option<MessageHeader>, message: Option<QueuedMessage>) {
        if self.peers[to.index()].loss.is_some() {
            return self.release(to, message.into_iter());
        }
        let is_urgent = message.as_ref().is_none_or(|message| message.tag.is_control());
        let is_notice = is_urgent && message.is_some();
        let at = if is_notice { Some(self.streams_of(to).start) } else { self.choose_stream(to) };
        let Some((at, mut stream)) = at.and_then(|at| Some((at, self.streams[at].take()?))) else {
            return self.release(to, message.into_iter());
        };
        for slot in self.incoming.exchanged[to.index()].to_return.drain(..) {
            stream.return_slot(slot);
        }
        if let Some(header) = header {
            stream.push(header, message, is_urgent);
        }
        let written = self.write(to, &mut stream);
        self.streams[at] = Some(stream);
        if let Err(loss) = written {
            self.mark_lost(to, loss);
        }
    }

    /// Returns the buffers of messages that will not be sent.
    fn release(&mut self, to: Rank, messages: impl Iterator<Item = QueuedMessage>) {
        self.incoming.events.extend(messages.map(|message| message.released(to)));
    }

    /// Returns the buffers of `matched` messages that the peer will not answer.
    fn release_unanswered(&mut self, to: Rank) {
        let IncomingMessages { links, events, .. } = &mut self.incoming;
        for (tag, link) in links[to.index()].all() {
            let released = |buffer| Event::Released { to, tag, buffer, matched: true };
            events.extend(link.awaits.take().map(released));
        }
    }

    /// Records that a peer is lost; the first reason is kept. Its earlier messages are still read,
    /// unless it violated the protocol, memory ran out, or it said goodbye on all connections.
    fn mark_lost(&mut self, peer: Rank, loss: PeerLoss) {
        let range = self.streams_of(peer);
        if self.peers[peer.index()].loss.is_none() {
            self.peers[peer.index()].loss = Some(loss);
            self.incoming.events.push_back(match loss {
                PeerLoss::Left => Event::Left { peer },
                _ => Event::Lost { peer },
            });
        }
        for at in range.clone() {
            if let Some(mut stream) = self.streams[at].take() {
                self.release(peer, stream.discard_unsent());
                self.streams[at] = Some(stream);
            }
        }
        self.release_unanswered(peer);
        if matches!(loss, PeerLoss::ProtocolViolation(_) | PeerLoss::NoMemory | PeerLoss::Left) {
            self.streams[range].fill_with(|| None);
        }
    }

    /// Records that a peer never connected, or not with all its connections.
    pub(crate) fn mark_absent(&mut self, peer: Rank) {
        self.mark_lost(peer, PeerLoss::Absent);
        let range = self.streams_of(peer);
        self.streams[range].fill_with(|| None);
    }

    /// Returns whether the systems of all peers that are not lost have all bytes for them.
    fn has_delivered(&self) -> bool {
        let mut streams = self.streams.iter().enumerate();
        streams.all(|(at, stream)| {
            let is_lost = self.peers[self.rank_at(at).index()].loss.is_some();
            is_lost || stream.as_ref().is_none_or(MessageStream::is_delivered)
        })
    }

    /// Returns whether a peer is lost that has not left in good order.
    fn has_lost(&self) -> bool {
        let mut losses = self.peers.iter().filter_map(|peer| peer.loss);
        losses.any(|loss| loss != PeerLoss::Left)
    }

    /// Closes the connections of a peer if it has said goodbye on all of them.
    fn mark_left_when_done(&mut self, peer: Rank) {
        let mut streams = self.streams[self.streams_of(peer)].iter().flatten();
        if streams.all(|stream| stream.reader.has_ended) {
            self.mark_lost(peer, PeerLoss::Left);
        }
    }
}

impl Net for Tcp {
    type Buffer = MessageFrame;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.setup.rank
    }

    fn size(&self) -> usize {
        self.setup.size
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<MessageFrame, Error> {
        self.incoming.allocate(n_bytes).ok_or(Error::NoMemory { need: n_bytes })
    }

    fn accepts(&self, buffer: &MessageFrame) -> bool {
        self.incoming.accepts(buffer)
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: MessageFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<MessageFrame, Error>> {
        let most = if tag.is_control() { MIN_FRAME_BYTES } else { self.incoming.frame_bytes };
        let is_other = to.index() < self.setup.size && to != self.setup.rank;
        if !is_other || n_bytes > buffer.as_ref().len().min(most) {
            return Err(Refused::Failed(buffer, Error::Misuse));
        }
        if self.peers[to.index()].loss.is_some() {
            return Err(Refused::Failed(buffer, Error::PeerLost { peer: to }));
        }
        // Notices need no numbers: all of them take one connection.
        let number = match tag.is_control() {
            true => 0,
            false => self.incoming.links[to.index()].of(tag).next_number(),
        };
        let is_long = n_bytes >= LEAST_LENT && !tag.is_control();
        let lent = if is_long { self.incoming.lend(to, &buffer) } else { None };
        let (slot, frame, n_after) = match lent {
            Some((slot, other)) => (Some(slot), other, 0),
            None => (None, buffer, n_bytes),
        };
        let header = MessageHeader::Message { tag: on_wire(tag), n_bytes, number, matched, slot };
        self.push(to, Some(header), Some(QueuedMessage { tag, frame, n_bytes: n_after, matched }));
        self.rest.end();
        Ok(())
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: MessageFrame,
    ) -> Result<(), Refused<MessageFrame, Error>> {
        match from {
            Source::Any if tag == Tag::CONTROL && self.incoming.notice_buffer.is_none() => {
                self.incoming.notice_buffer = Some(buffer);
                self.incoming.deliver_notice();
            }
            Source::Rank(from) if from.index() < self.setup.size => {
                let posted = &mut self.incoming.links[from.index()].of(tag).posted;
                if posted.is_some() {
                    return Err(Refused::Failed(buffer, Error::Misuse));
                }
                *posted = Some(buffer);
                self.incoming.deliver(from, tag);
            }
            _ => return Err(Refused::Failed(buffer, Error::Misuse)),
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event<MessageFrame>>, Error> {
        if self.incoming.events.is_empty() && self.incoming.failed.is_none() {
            self.poll_system(Duration::ZERO)?;
            self.serve_all();
        }
        match (self.incoming.events.pop_front(), self.incoming.failed.take()) {
            (Some(event), failed) => {
                self.incoming.failed = failed;
                self.rest.end();
                Ok(Some(event))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    fn moves_by_itself(&self) -> bool {
        true
    }

    fn end(&mut self, is_well: bool) {
        (self.ends_since, self.is_well) = (Some(Instant::now()), is_well);
    }

    fn cancel_receives(&mut self) {
        let IncomingMessages { links, events, notice_buffer, .. } = &mut self.incoming;
        let posted = links.iter_mut().flat_map(PeerLinks::all);
        let posted = posted.filter_map(|(_, link)| link.posted.take());
        let all = posted.chain(notice_buffer.take());
        events.extend(all.map(|buffer| Event::Returned { buffer }));
    }

    fn forget(&mut self, peer: Rank) {
        self.release_unanswered(peer);
    }

    fn idle(&mut self, budget: Duration) {
        let IncomingMessages { events, .. } = &self.incoming;
        if !events.is_empty() || !self.to_serve.is_empty() {
            return;
        }
        if !self.rest.yields(budget) {
            // An error is ignored here. The next `poll` returns it.
            let _ = self.poll_system(budget);
        }
    }

    #[cfg(unix)]
    fn register(&mut self, waker: &Waker) -> bool {
        if self.waker_thread.is_none() {
            self.waker_thread = WakerThread::start(&self.poll).ok();
        }
        let Some(waker_thread) = &self.waker_thread else { return false };
        if !waker_thread.register(waker) {
            return false;
        }
        // The thread reports only new readiness, so wake for what is already queued.
        if !self.incoming.events.is_empty() || !self.to_serve.is_empty() {
            waker.wake_by_ref();
        }
        true
    }

    fn distance(&self, peer: Rank) -> Distance {
        let is_near = self.setup.is_near.get(peer.index()).is_some_and(|&near| near);
        match is_near {
            true if self.shares_memory_with(peer) => Distance::Memory,
            true => Distance::Loopback,
            false => Distance::Network,
        }
    }

    /// Encryption also authenticates, so encrypted data needs no checksum. Nor does data that does
    /// not leave this machine's memory.
    fn needs_checksum(&self) -> bool {
        let mut others = (0..self.setup.size).map(Rank::new).filter(|&it| it != self.setup.rank);
        !self.setup.encrypts && !others.all(|peer| self.shares_memory_with(peer))
    }
}

impl Drop for Tcp {
    /// Says goodbye. Waits at most `CLOSE_LIMIT` until the peers have closed their side.
    ///
    /// It waits longer while this side still holds bytes for a peer that is not lost. If a peer
    /// sends to a socket that is closed, the system discards such bytes. Like the endpoint, this
    /// waits up to `linger` since the end began. If a peer is lost or a call was aborted, it waits
    /// up to `grace`.
    ///
    /// In a forked process, the connections belong to the parent, so only descriptors are closed.
    fn drop(&mut self) {
        if process::id() != self.owner_pid {
            // The thread exists only in the parent.
            #[cfg(unix)]
            std::mem::forget(self.waker_thread.take());
            return;
        }
        let start = Instant::now();
        let ends_since = self.ends_since.unwrap_or(start);
        let Options { linger, grace, .. } = self.setup.options;
        for at in 0..self.streams.len() {
            let is_lost = self.peers[self.rank_at(at).index()].loss.is_some();
            if let Some(stream) = self.streams[at].as_mut().filter(|_| !is_lost) {
                stream.push(MessageHeader::Goodbye, None, false);
            }
        }
        let mut has_finished = vec![false; self.streams.len()];
        let mut all: VecDeque<usize> = (0..self.streams.len()).collect();
        self.to_serve.append(&mut all);
        loop {
            self.serve_all();
            self.incoming.events.clear();
            for (stream, has_finished) in self.streams.iter_mut().zip(&mut has_finished) {
                if let Some(stream) = stream
                    && !*has_finished
                    && stream.is_flushed()
                {
                    stream.connection.finish();
                    *has_finished = true;
                }
            }
            let is_closed = self.streams.iter().all(Option::is_none);
            let is_late = match self.is_well && !self.has_lost() {
                true => ends_since.elapsed() >= linger,
                false => start.elapsed() >= grace,
            };
            let is_over = start.elapsed() >= CLOSE_LIMIT && (is_late || self.has_delivered());
            if is_closed || is_over || self.poll_system(LEAST_SLEEP).is_err() {
                return;
            }
        }
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp")
            .field("rank", &self.setup.rank)
            .field("size", &self.setup.size)
            .field("n_streams", &self.setup.n_streams)
            .field("encrypts", &self.setup.encrypts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
