//! Interface to a network: reliable frames, delivered in order per (peer, tag), in buffers that the
//! *transport* owns.
//!
//! User memory is never lent to a transport. The engine takes an empty frame from the transport,
//! encodes into it and sends it. The receiver decodes from the frame that arrives. This is safe
//! Rust, suits registered memory and needs no allocator (design after smoltcp's `phy::Device`).
//!
//! Credit and frames are separate ([`Transport::poll_ready`], [`Transport::poll_frame`]). A rank
//! that forwards a frame needs credit and no other frame. A rank that needs scratch space needs a
//! frame and no credit.
//!
//! To use a transport, pass it to [`Communicator::new`](crate::Communicator::new). To implement
//! one, follow the contract on each method of [`Transport`]. The test suite `foldwire-conformance`
//! checks that contract.

use core::fmt;
use core::task::{Poll, Waker};
use core::time::Duration;

/// A process or thread of the group, numbered `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// Creates the rank with this index.
    ///
    /// # Panics
    /// If `index` does not fit 32 bits.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(index <= u32::MAX as usize);
        Self(index as u32)
    }

    /// Returns this rank as an array index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one of several independent streams of frames between the same two ranks.
///
/// Tags are grouped in *channels* of [`Tag::COUNT`]: one tag for each lane, `0..MAX_LANES`, and
/// [`Tag::CONTROL`]. Each running call has its own channel. A transport has at least the first
/// channel ([`Transport::n_channels`]). Tag t of channel c has number c · `COUNT` + t.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

impl Tag {
    /// Tag of control messages: abort notices, questions and answers about calls, and the messages
    /// by which survivors form a group. A control message has at most [`MIN_FRAME_BYTES`].
    ///
    /// The tag has its own credit, so that full data links cannot block it. Its links should hold
    /// [`CONTROL_DEPTH`] frames: on a link that holds fewer, an unread question can block a notice.
    /// Once more than four control frames from a rank wait to be received, the transport may drop
    /// the oldest.
    ///
    /// [`CONTROL_DEPTH`]: Self::CONTROL_DEPTH
    pub const CONTROL: Self = Self(MAX_LANES as u16);
    /// Most frames that a link of [`CONTROL`](Self::CONTROL) may have to hold: a question, an
    /// answer and a notice.
    pub const CONTROL_DEPTH: usize = 3;
    /// Number of tags in a channel.
    pub const COUNT: usize = MAX_LANES + 1;

    /// Returns the tag of channel `channel` that corresponds to this tag of the first channel.
    ///
    /// # Panics
    /// If `channel` is not below [`MAX_CHANNELS`], or if this tag is not of the first channel.
    #[must_use]
    pub const fn of_channel(self, channel: usize) -> Self {
        assert!(channel < MAX_CHANNELS && self.index() < Self::COUNT);
        Self(self.0 + (channel * Self::COUNT) as u16)
    }

    /// Returns the channel of this tag.
    #[must_use]
    pub const fn channel(self) -> usize {
        self.index() / Self::COUNT
    }

    /// Returns whether this tag is the [`CONTROL`](Self::CONTROL) tag of a channel.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.index() % Self::COUNT == Self::CONTROL.index()
    }

    /// Returns how many frames a link with this tag should hold, if links of data hold `depth`.
    #[must_use]
    pub const fn depth(self, depth: usize) -> usize {
        if self.is_control() && depth < Self::CONTROL_DEPTH { Self::CONTROL_DEPTH } else { depth }
    }

    /// Returns this tag as an array index. Each channel has [`Tag::COUNT`] indices.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Largest number of lanes of a communicator.
pub const MAX_LANES: usize = 8;
/// Largest number of channels of a transport.
pub const MAX_CHANNELS: usize = 256;

/// A rank's endpoint of a network: sends and receives reliable frames, in order per (peer, tag).
///
/// One value belongs to one rank, and one thread at a time drives it. No method blocks, except
/// [`idle`](Self::idle), which may wait for at most its budget. A peer is always another rank: a
/// transport needs no link from a rank to itself.
pub trait Transport {
    /// An owned message buffer of [`frame_capacity`](Self::frame_capacity) bytes.
    ///
    /// Its first byte must be aligned to [`FRAME_ALIGN`] bytes, as in `HeapFrame` (feature
    /// `alloc`). Dropping a frame instead of recycling it may lose it from the pool, but must do no
    /// other harm.
    type Frame: AsRef<[u8]> + AsMut<[u8]>;
    /// The transport's error type.
    type Error: TransportError;

    /// Returns this process's rank, `0..size()`.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks in the group, 1…[`MAX_SIZE`].
    fn size(&self) -> usize;

    /// Returns the size of every frame in bytes.
    ///
    /// It must be the same on every rank, and at least [`MIN_FRAME_BYTES`]. A communicator queries
    /// this, the rank and the size once.
    fn frame_capacity(&self) -> usize;

    /// Returns the number of channels of tags, 1…[`MAX_CHANNELS`]. It limits the number of
    /// concurrent calls.
    ///
    /// It must be the same on every rank, and is queried once. A frame that is not received must
    /// not block other channels: each (peer, tag) has its own credit. Frames in transit do not
    /// count toward the frames that a rank may hold ([`n_frames`](Self::n_frames)).
    fn n_channels(&self) -> usize {
        1
    }

    /// Takes an empty frame from the pool. Its content is unspecified.
    ///
    /// `Pending` means that no frame is free now; nothing happened. The pool must hold at least
    /// [`FRAMES_PER_LANE`] frames per lane, or calls fail with
    /// [`Error::TooFewFrames`](crate::Error::TooFewFrames).
    ///
    /// The pool should hold one more frame for each other rank, because a rank that aborts a call
    /// notifies all other ranks at once. If there is no frame for a rank, even after
    /// [`progress`](Self::progress), that rank learns of the failure only by its time limit.
    ///
    /// # Errors
    /// If the pool can never provide another frame.
    fn poll_frame(&mut self) -> Poll<Result<Self::Frame, Self::Error>>;

    /// Returns how many frames this rank can hold at the same time, not counting frames in transit.
    /// The number may exceed what is possible if memory is the only limit.
    ///
    /// `None` means that the number is unknown. Then the first call, before anything has been sent,
    /// takes as many frames as its lanes can need out of the pool, and recycles them.
    fn n_frames(&self) -> Option<usize> {
        None
    }

    /// Checks whether the link can take one more frame. After `Ready(Ok)`, the next
    /// [`send`](Self::send) with the same `to` and `tag` is accepted.
    ///
    /// `Pending` means that the link is full; nothing happened. A link must hold at least one
    /// undelivered frame.
    ///
    /// # Errors
    /// If the peer is gone.
    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Self::Error>>;

    /// Sends the first `n_bytes` of `frame`, which was taken from the pool, or received and is
    /// forwarded.
    ///
    /// Call this only after [`poll_ready`](Self::poll_ready) returned `Ready(Ok)`.
    ///
    /// # Errors
    /// If the peer is gone, `n_bytes` exceeds the capacity, or the link was not ready.
    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: Self::Frame,
        n_bytes: usize,
    ) -> Result<(), Self::Error>;

    /// Receives the next frame from `from` with `tag`. Returns the frame and the number of its
    /// bytes that are filled.
    ///
    /// Frames that a peer sent before it ended are still delivered. The error comes only after
    /// them.
    ///
    /// # Errors
    /// If the peer is gone and nothing is left to deliver.
    #[allow(clippy::type_complexity, reason = "Poll<Result<…>> reads as what it is")]
    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(Self::Frame, usize), Self::Error>>;

    /// Announces that the next frame from `from` with `tag` will be requested soon, so that a
    /// transport can post its receive early, without guessing. This is a hint: it may be repeated
    /// or left out.
    fn expect(&mut self, from: Rank, tag: Tag) {
        let _ = (from, tag);
    }

    /// Declares that nothing is needed from `peer`, and that nothing need reach it. Frames in
    /// transit to it no longer count as [`undelivered`](Self::undelivered).
    ///
    /// Calls that concern the peer may still be made, and may then fail as if it were gone. A
    /// transport for which nothing counts as undelivered need not implement this.
    fn forget(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// Returns a frame to the pool.
    fn recycle(&mut self, frame: Self::Frame);

    /// Returns a rank to which a frame is in transit that arrives only if this rank keeps polling;
    /// `None` if there is none.
    ///
    /// A call ends only once this is `None`. Otherwise a peer could wait for a rank that has gone
    /// back to its own work. Never return a rank that has ended: nothing arrives there, and a call
    /// would wait for it until the time limit.
    fn undelivered(&self) -> Option<Rank> {
        None
    }

    /// Same as [`undelivered`](Self::undelivered), for frames with a tag of this channel.
    ///
    /// A transport with several channels that ever reports undelivered frames must tell the
    /// channels apart. Otherwise a call could wait forever for another call's frames.
    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        let _ = channel;
        self.undelivered()
    }

    /// Makes the network progress by a bounded amount of work. The engine calls this before each
    /// pass over the lanes.
    ///
    /// # Errors
    /// If the transport as a whole has failed.
    fn progress(&mut self) -> Result<(), Self::Error>;

    /// Same as [`progress`](Self::progress), while the rank computes. Without it, a network that
    /// moves only when it is polled would stand still until a frame is computed.
    ///
    /// The engine calls this at least once for every 8192 values that a codec processes on one
    /// thread, or more often or never, if the plan says so ([`Overlap`](crate::Overlap)). It must
    /// not fail: the next `progress` reports the error. A transport that progresses
    /// by itself need not implement this.
    fn nudge(&mut self) {}

    /// Returns monotonic time since an arbitrary start; virtual in a simulator.
    fn now(&self) -> Duration;

    /// Waits for at most `budget`. The engine calls this if a pass since the last
    /// [`progress`](Self::progress) found nothing to do. An implementation may return at once,
    /// spin, or park until something arrives.
    fn idle(&mut self, budget: Duration);

    /// Registers `waker`, to be woken once when anything changes for this rank from now on: a frame
    /// arrives, a full link or an empty pool has space again, or a peer ends. It replaces the waker
    /// registered before.
    ///
    /// Returns `false` if nothing will be woken. The future then requests an immediate poll.
    ///
    /// A future registers, polls everything once more, and then sleeps. That poll finds what
    /// changed before the registration; the waker reports what changes after it.
    ///
    /// Time limits ([`Config::timeout`](crate::Config::timeout), deadlines, a shrink's patience)
    /// are checked only in polls. So the waker should also be woken regularly, about 50 times a
    /// second. If a transport has no timer for that, the code that drives the futures must poll
    /// them.
    fn register(&mut self, waker: &Waker) -> bool {
        let _ = waker;
        false
    }

    /// Returns the rate of each rank's link to the network, in each direction, in bytes per second.
    /// `None` unless the rate is known and the same on every rank. It helps to choose a schedule.
    fn link_rate(&self) -> Option<f64> {
        None
    }

    /// Returns how near a peer is. Both ranks must return the same distance.
    ///
    /// It helps to compress between nodes only (`SharedCommunicator::two_levels`), and not at all
    /// where frames are handed over within a process ([`Plan::auto`](crate::Plan::auto)).
    fn distance(&self, peer: Rank) -> Distance {
        let _ = peer;
        Distance::Network
    }

    /// Returns whether bytes can be damaged in transit. If so, frames carry a checksum unless the
    /// caller decides otherwise. `false` suits frames that never leave the process.
    fn needs_checksum(&self) -> bool {
        true
    }
}

/// Classes of links, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Distance {
    /// Memory that both ranks share, as threads of a process do. A frame is handed over, and none
    /// of its bytes moves. Transports that copy frames report [`Node`](Self::Node).
    Memory,
    /// Within a node, through its memory. The ranks' own cores copy each byte.
    Node,
    /// Within a node, but through its network stack, such as sockets, which is far slower than
    /// memory.
    Loopback,
    /// Between nodes, or unknown.
    Network,
}

/// Alignment of a frame's first byte, in bytes.
pub const FRAME_ALIGN: usize = 64;
/// Largest number of ranks of a transport, as in MPI.
pub const MAX_SIZE: usize = i32::MAX as usize;
/// Smallest allowed [`Transport::frame_capacity`], in bytes.
pub const MIN_FRAME_BYTES: usize = 1024;
/// Most frames that one lane holds at the same time: one received, one accumulated, one outgoing
/// and one scratch frame.
pub const FRAMES_PER_LANE: usize = 4;

/// Error of a transport, reduced to what the engine can act on.
pub trait TransportError: fmt::Debug {
    /// Returns the kind of failure.
    fn kind(&self) -> TransportErrorKind;

    /// Returns the peer concerned, if there is one.
    fn peer(&self) -> Option<Rank>;
}

/// Kinds of failures that all transports share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The peer ended, crashed or closed the connection.
    #[error("the peer is gone")]
    PeerLost,
    /// The network's own time limit passed.
    #[error("the network timed out")]
    Timeout,
    /// A message was longer than a frame.
    #[error("a message did not fit a frame")]
    Truncated,
    /// The pool is empty and stays empty.
    #[error("the frame pool is exhausted")]
    OutOfFrames,
    /// A contract was broken. The engine or the caller may have broken it: the link was not ready,
    /// the rank is out of range, or there are too many bytes. Or the transport did: a frame is too
    /// short or misaligned, a message is longer than its frame, or a rank does not exist.
    #[error("the contract between engine and transport was broken")]
    Misuse,
    /// This process was forked from the process that made the transport, and only that one may use
    /// it.
    #[error("this process was forked off the one that made the transport, which alone may use it")]
    OtherProcess,
    /// Another thread ended the communicator's calls (`Stopper`).
    #[error("another thread has ended the call")]
    Stopped,
    /// Any other failure.
    #[error("unspecified error")]
    Other,
}
