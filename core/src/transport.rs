//! What the engine asks of a network: reliable frames, in order per (peer, tag), in buffers the
//! *transport* owns.
//!
//! User memory is never lent to a transport. The engine takes an empty frame, encodes straight into
//! it and hands it over; on the other side it decodes straight out of the frame it was given. That
//! is safe Rust, fits registered memory and needs no allocator (design after smoltcp's
//! `phy::Device`).
//!
//! For users: pass any `Transport` to [`Communicator::new`](crate::Communicator::new).
//! For implementors: the contract is on each method; `foldwire-conformance` is the suite of tests
//! that a transport must pass.

use core::fmt;
use core::task::{Poll, Waker};
use core::time::Duration;

/// A process (or thread) of the group, `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank with this index.
    ///
    /// # Panics
    /// If `index` does not fit 32 bits.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(index <= u32::MAX as usize);
        Self(index as u32)
    }

    /// This rank as an array index.
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

/// Tells apart independent streams of frames between the same two ranks.
///
/// Tags come in *channels* of [`Tag::COUNT`]: one tag for each lane, `0..MAX_LANES`, and
/// [`Tag::CONTROL`]. A call under way has a channel of its own. A transport has at least the first
/// ([`Transport::n_channels`]); tag t of channel c is number c · `COUNT` + t.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

impl Tag {
    /// Carries abort notices, questions what call a rank makes and answers to them, and what
    /// survivors tell each other, of at most [`MIN_FRAME_BYTES`]; has credit of its own so that
    /// full data links cannot block it. Its links should hold [`CONTROL_DEPTH`] frames: on one that
    /// holds fewer an unread question can be in the way of a notice. A transport may drop the
    /// oldest of more than four frames of a rank's that nobody has asked for.
    ///
    /// [`CONTROL_DEPTH`]: Self::CONTROL_DEPTH
    pub const CONTROL: Self = Self(MAX_LANES as u16);
    /// What a link of [`CONTROL`](Self::CONTROL) may have to hold: a question, an answer, a notice.
    pub const CONTROL_DEPTH: usize = 3;
    /// Number of different tags of a channel.
    pub const COUNT: usize = MAX_LANES + 1;

    /// This tag of the first channel as one of channel `channel`.
    ///
    /// # Panics
    /// If the channel is none of [`MAX_CHANNELS`].
    #[must_use]
    pub const fn of_channel(self, channel: usize) -> Self {
        assert!(channel < MAX_CHANNELS && self.index() < Self::COUNT);
        Self(self.0 + (channel * Self::COUNT) as u16)
    }

    /// The channel that this tag is of.
    #[must_use]
    pub const fn channel(self) -> usize {
        self.index() / Self::COUNT
    }

    /// Whether it is a channel's [`CONTROL`](Self::CONTROL).
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.index() % Self::COUNT == Self::CONTROL.index()
    }

    /// Frames that a link with this tag holds, where links are made to hold `depth`.
    #[must_use]
    pub const fn depth(self, depth: usize) -> usize {
        if self.is_control() && depth < Self::CONTROL_DEPTH { Self::CONTROL_DEPTH } else { depth }
    }

    /// This tag as an array index, below [`Tag::COUNT`] for each channel.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Most lanes a communicator can have.
pub const MAX_LANES: usize = 8;
/// Most channels a transport can have.
pub const MAX_CHANNELS: usize = 256;

/// Reliable frames, delivered in order per (peer, tag).
///
/// One value belongs to one rank and is driven by one thread at a time. No method blocks, except
/// [`idle`](Self::idle), which may wait as long as its budget. A peer is always another rank: there
/// need be no link from a rank to itself.
pub trait Transport {
    /// An owned message buffer of [`frame_capacity`](Self::frame_capacity) bytes. Its first byte
    /// must be aligned to [`FRAME_ALIGN`] bytes; `HeapFrame` (feature `alloc`) is. Dropping one
    /// instead of recycling it may leak it from the pool, but nothing worse.
    type Frame: AsRef<[u8]> + AsMut<[u8]>;
    /// Why the transport failed.
    type Error: TransportError;

    /// This process's rank, `0..size()`.
    fn rank(&self) -> Rank;

    /// Number of ranks in the group, 1…[`MAX_SIZE`].
    fn size(&self) -> usize;

    /// Bytes in every frame; the same on every rank, at least [`MIN_FRAME_BYTES`]. A communicator
    /// asks once, as for rank and size.
    fn frame_capacity(&self) -> usize;

    /// How many channels of tags there are, 1…[`MAX_CHANNELS`]: as many calls can be under way at
    /// the same time. The same on every rank; asked once. A frame that nobody asks for is in the
    /// way of no other channel's: each (peer, tag) has credit of its own, and frames under way are
    /// none of those that a rank may hold.
    fn n_channels(&self) -> usize {
        1
    }

    /// Takes an empty frame from the pool. Its content is unspecified.
    ///
    /// `Pending`: none is free now; nothing happened. The pool must hold at least
    /// [`FRAMES_PER_LANE`] frames per lane, or calls are refused with
    /// [`Error::TooFewFrames`](crate::Error::TooFewFrames). It should hold one for each other rank
    /// as well: a rank that gives up tells all others at once, each in a frame, and one for whom
    /// there is no frame, even after [`progress`](Self::progress), learns it by its time limit
    /// only.
    ///
    /// # Errors
    /// When the pool can never provide another frame.
    fn poll_frame(&mut self) -> Poll<Result<Self::Frame, Self::Error>>;

    /// How many frames this rank can hold at the same time, those under way not counted, if that is
    /// known; more than there can be where memory is the only limit.
    ///
    /// `None`: not known. Before anything has been sent, the first call then takes as many frames
    /// as its lanes can need out of the pool, and gives them back.
    fn n_frames(&self) -> Option<usize> {
        None
    }

    /// Asks whether the link can take one more frame. After `Ready(Ok)` the next
    /// [`send`](Self::send) with the same `to` and `tag` is accepted.
    ///
    /// `Pending`: the link is full; nothing happened. A link must hold at least one undelivered
    /// frame.
    ///
    /// # Errors
    /// When the peer is gone.
    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Self::Error>>;

    /// Sends the first `n_bytes` of `frame`: one taken from the pool, or one received (forwarding).
    /// Call only after [`poll_ready`](Self::poll_ready) said so.
    ///
    /// # Errors
    /// When the peer is gone, `n_bytes` exceeds the capacity, or the link was not ready.
    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: Self::Frame,
        n_bytes: usize,
    ) -> Result<(), Self::Error>;

    /// The next frame from `from` with `tag`, and how many of its bytes are filled.
    ///
    /// Frames a peer sent before it went away are still delivered; only then comes the error.
    ///
    /// # Errors
    /// When the peer is gone and nothing is left to deliver.
    #[allow(clippy::type_complexity, reason = "Poll<Result<…>> reads as what it is")]
    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(Self::Frame, usize), Self::Error>>;

    /// Says that the next frame from `from` with `tag` will be asked for soon, so that a transport
    /// can post its receive before the frame comes. A hint: it may be repeated, and may be left
    /// out.
    fn expect(&mut self, from: Rank, tag: Tag) {
        let _ = (from, tag);
    }

    /// Says that nothing is needed of `peer`, and that nothing need reach it: what is on its way to
    /// it no longer counts as [`undelivered`](Self::undelivered). Calls that concern it may still
    /// be made, and may then fail as if it were gone. Nothing to do where nothing ever counts.
    fn forget(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// Gives back a frame that is no longer needed.
    fn recycle(&mut self, frame: Self::Frame);

    /// A rank to which something is still on its way that needs this rank's attention to arrive;
    /// `None` once nothing does. A call ends only then, so that nobody waits for a rank that has
    /// gone back to its own work. Never a rank that has ended: what is on its way to it needs
    /// nobody, and a call that waited for it would end by its time limit only.
    fn undelivered(&self) -> Option<Rank> {
        None
    }

    /// As [`undelivered`](Self::undelivered), of frames with a tag of this channel. A transport of
    /// several channels for which anything counts as undelivered must tell them apart: a call that
    /// waited for another one's frames could wait for ever.
    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        let _ = channel;
        self.undelivered()
    }

    /// Moves the network along; a bounded amount of work. Called before each pass over the lanes.
    ///
    /// # Errors
    /// When the transport as a whole has failed.
    fn progress(&mut self) -> Result<(), Self::Error>;

    /// As [`progress`](Self::progress), while the rank computes: called after every 8192 values or
    /// fewer that its codec has passed, so that a network that moves only when it is polled does
    /// not wait for the end of a frame. It must not fail: the next `progress` tells. Nothing to do
    /// where a network moves by itself.
    fn nudge(&mut self) {}

    /// Monotonic time since an arbitrary start; virtual in a simulator.
    fn now(&self) -> Duration;

    /// Called when a pass since the last [`progress`](Self::progress) found nothing to do. May
    /// return at once, spin, or park until something arrives, but not longer than `budget`.
    fn idle(&mut self, budget: Duration);

    /// Has `waker` woken, once, when anything changes for this rank from this call on: a frame
    /// comes, a link that was full or a pool that was empty has room again, a peer ends. It takes
    /// the place of one that was registered before. A future registers, looks at everything once
    /// more, and then sleeps: what changed before the call it finds, what changes after it wakes
    /// it.
    ///
    /// Limits of time ([`Config::timeout`](crate::Config::timeout), deadlines, a shrink's patience)
    /// are noticed in polls. So the waker should be woken every now and then besides, some 50 times
    /// a second; where a transport has no timer for that, whoever drives the futures must poll
    /// them.
    ///
    /// `false`: nobody will be woken, and the future asks to be polled again at once.
    fn register(&mut self, waker: &Waker) -> bool {
        let _ = waker;
        false
    }

    /// Rate of each rank's link to the network, each way, in bytes per second, if it is known and
    /// the same on every rank; helps to choose a schedule.
    fn link_rate(&self) -> Option<f64> {
        None
    }

    /// How near a peer is; the same seen from there. Helps to compress between nodes only
    /// (`SharedCommunicator::two_levels`), and not at all where frames are handed over within a
    /// process ([`Plan::auto`](crate::Plan::auto)).
    fn distance(&self, peer: Rank) -> Distance {
        let _ = peer;
        Distance::Network
    }

    /// Whether bytes can be damaged on the way, so that frames carry a checksum unless the caller
    /// says otherwise. `false` suits frames that never leave the process.
    fn needs_checksum(&self) -> bool {
        true
    }
}

/// Classes of links, from the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Distance {
    /// In memory that both ranks have, as threads of a process do, so that a frame is handed over
    /// and none of its bytes moves. Transports that copy frames say [`Node`](Self::Node).
    Memory,
    /// Within a node, through its memory: each byte is copied, by ranks' own cores.
    Node,
    /// Within a node, but through its network, such as sockets, which take far longer than memory.
    Loopback,
    /// Between nodes, or not known.
    Network,
}

/// Alignment of a frame's first byte.
pub const FRAME_ALIGN: usize = 64;
/// Most ranks that a transport can have, as in MPI.
pub const MAX_SIZE: usize = i32::MAX as usize;
/// Smallest legal [`Transport::frame_capacity`].
pub const MIN_FRAME_BYTES: usize = 1024;
/// Frames that one lane may hold at the same time: one received, one accumulated, one outgoing, one
/// scratch.
pub const FRAMES_PER_LANE: usize = 4;

/// A transport's own error, reduced to what the engine can act on.
pub trait TransportError: fmt::Debug {
    /// What kind of failure this is.
    fn kind(&self) -> TransportErrorKind;

    /// The peer concerned, if one is.
    fn peer(&self) -> Option<Rank>;
}

/// The failures that every transport shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The peer ended, crashed or closed the connection.
    PeerLost,
    /// The network gave up after a time limit of its own.
    Timeout,
    /// A message was longer than a frame.
    Truncated,
    /// The pool is empty for good.
    OutOfFrames,
    /// A contract was broken: by the engine or the caller (not ready, rank out of range, too many
    /// bytes), or by the transport (a frame too short or misaligned, a message longer than its
    /// frame, a rank that is none of its ranks).
    Misuse,
    /// This process was forked off the one that made the transport, which alone may use it.
    OtherProcess,
    /// Another thread has ended the communicator's calls (`Stopper`).
    Stopped,
    /// Anything else.
    Other,
}

impl fmt::Display for TransportErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerLost => "the peer is gone",
            Self::Timeout => "the network timed out",
            Self::Truncated => "a message did not fit a frame",
            Self::OutOfFrames => "the frame pool is exhausted",
            Self::Misuse => "the contract between engine and transport was broken",
            Self::OtherProcess => {
                "this process was forked off the one that made the transport, which alone may use it"
            }
            Self::Stopped => "another thread has ended the call",
            Self::Other => "the transport failed",
        })
    }
}
