//! Contract of a message layer below an [`Endpoint`](crate::Endpoint): it owns buffers while it
//! uses them, and reports when it is done.
//!
//! [`Net::send`] and [`Net::recv`] *move* a buffer into the layer, and an [`Event`] returns it. So
//! safe code cannot touch memory that the network reads or writes, and only the crate that talks to
//! the network must reason about lifetimes.

use core::task::Waker;
use core::time::Duration;

use foldwire::transport::{Distance, Rank, Tag, TransportError};

/// A two-sided message layer between `size` ranks.
///
/// Messages are reliable. They match by sender and [tag on the wire](on_wire), in the order sent.
/// One thread at a time drives the layer. Only [`idle`](Self::idle) may block.
pub trait Net {
    /// Owned message buffer, fixed in memory while the layer holds it. Its first byte is aligned to
    /// [`FRAME_ALIGN`](foldwire::transport::FRAME_ALIGN) bytes.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;
    /// Error of the layer.
    type Error: TransportError + Copy;

    /// Returns this process's rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Allocates a buffer of `n_bytes` that the network can read and write, registered if
    /// necessary. Buffers are few and reused. All of them are dropped before the layer is, or
    /// leaked.
    ///
    /// # Errors
    /// No memory, or no memory that can be registered.
    fn allocate(&mut self, n_bytes: usize) -> Result<Self::Buffer, Self::Error>;

    /// Returns whether [`send`](Self::send) and [`recv`](Self::recv) may use `buffer`. A buffer of
    /// another layer may lie in memory that this layer's peers do not share. The default accepts
    /// all buffers, which suits layers whose buffers are plain memory.
    fn accepts(&self, buffer: &Self::Buffer) -> bool {
        let _ = buffer;
        true
    }

    /// Starts to send the first `n_bytes` of `buffer` to another rank. An accepted buffer comes
    /// back by [`Event::Released`]. If `matched` is set, that happens only after the receiver has
    /// posted its receive; or at once, without `matched`, and [`Event::Matched`] follows. The
    /// endpoint uses such sends to keep fast senders from filling slow receivers' memory. A layer
    /// without this mode ignores `matched`.
    ///
    /// # Errors
    /// [`Refused`] returns the buffer; the layer did nothing.
    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: Self::Buffer,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<Self::Buffer, Self::Error>>;

    /// Posts a receive of at most `buffer.len()` bytes. An accepted buffer comes back by
    /// [`Event::Received`] or [`Event::Returned`]. At most one receive is posted at a time for each
    /// source and tag.
    ///
    /// # Errors
    /// [`Refused`] returns the buffer; the layer did nothing.
    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: Self::Buffer,
    ) -> Result<(), Refused<Self::Buffer, Self::Error>>;

    /// Advances the network by a bounded amount of work, and returns one event if there is any. The
    /// caller polls again until there is none.
    ///
    /// # Errors
    /// The layer as a whole failed, or a message did not fit its buffer.
    fn poll(&mut self) -> Result<Option<Event<Self::Buffer>>, Self::Error>;

    /// Returns whether started operations advance without polls, as when the system buffers
    /// messages in sockets. Otherwise the endpoint polls while the rank computes
    /// ([`Transport::nudge`](foldwire::Transport::nudge)).
    fn moves_by_itself(&self) -> bool {
        false
    }

    /// Announces that the endpoint is ending. From now on each poll must check everything that may
    /// arrive, because the endpoint makes few more polls. `is_well` is false if a rank is lost, or
    /// if a call was aborted.
    fn end(&mut self, is_well: bool) {
        let _ = is_well;
    }

    /// Cancels every posted receive that has not matched. Their buffers come back by
    /// [`Event::Returned`], now or in later polls. Called once, before the layer is dropped.
    fn cancel_receives(&mut self);

    /// Announces that this rank exchanges no more messages with `peer`. The layer must stop waiting
    /// for anything from `peer`, such as acknowledgements. The default does nothing.
    fn forget(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// Returns whether a control message of this rank has no receive yet, so that it may arrive at
    /// any time. (Their receivers may end without them.) A layer that has no use for
    /// [`abandon`](Self::abandon) need not know. The default returns false.
    fn has_unmatched_control(&self) -> bool {
        false
    }

    /// Announces that the ranks end in disorder: a call was aborted, a rank is lost, or a control
    /// message has no receiver. Messages without a receiver may still arrive, so the identifiers of
    /// this layer's messages, such as an MPI communicator, must not be reused. Called before the
    /// layer is dropped, but not after an orderly end.
    fn abandon(&mut self) {}

    /// Waits until something happens, but no longer than `budget`. Called after a poll that found
    /// nothing. May return at once.
    fn idle(&mut self, budget: Duration);

    /// As [`Transport::register`](foldwire::Transport::register).
    fn register(&mut self, waker: &Waker) -> bool {
        let _ = waker;
        false
    }

    /// As [`Transport::link_rate`](foldwire::Transport::link_rate).
    fn link_rate(&self) -> Option<f64> {
        None
    }

    /// As [`Transport::distance`](foldwire::Transport::distance). The caller has checked that
    /// `peer` is in the group.
    fn distance(&self, peer: Rank) -> Distance {
        let _ = peer;
        Distance::Network
    }

    /// As [`Transport::needs_checksum`](foldwire::Transport::needs_checksum).
    fn needs_checksum(&self) -> bool {
        true
    }
}

/// Returns the tag that a sent message carries. Control messages of all channels carry the first
/// channel's control tag, so that one receive takes them all. Receives need no conversion: none has
/// the control tag of another channel.
#[must_use]
pub const fn on_wire(tag: Tag) -> Tag {
    if tag.is_control() { Tag::CONTROL } else { tag }
}

/// Sender that a receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The named rank.
    Rank(Rank),
    /// Any rank. Used only with [`Tag::CONTROL`], and with one receive at a time.
    Any,
}

/// Result of an operation, or news of a peer.
#[derive(Debug)]
pub enum Event<B> {
    /// The network no longer needs a sent buffer, or the receiver of the message is lost.
    Released {
        /// The receiver.
        to: Rank,
        /// The message's tag.
        tag: Tag,
        /// The sent buffer.
        buffer: B,
        /// The `matched` argument of the send.
        matched: bool,
    },
    /// The receiver has posted the receive of a `matched` message, whose buffer came back before.
    Matched {
        /// The receiver.
        to: Rank,
        /// The message's tag.
        tag: Tag,
    },
    /// A message arrived.
    Received {
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: Tag,
        /// The buffer, which begins with the message.
        buffer: B,
        /// Length of the message in bytes.
        n_bytes: usize,
    },
    /// A receive ended without a message.
    Returned {
        /// The receive's buffer.
        buffer: B,
    },
    /// A rank has ended, and is not known to have ended in good order. Messages that the rank sent
    /// before may still arrive.
    Lost {
        /// The rank.
        peer: Rank,
    },
    /// A rank has ended in good order. This does not shorten the endpoint's final wait for
    /// delivery. Messages that the rank sent before may still arrive.
    Left {
        /// The rank.
        peer: Rank,
    },
}

/// Rejected send or receive, with its buffer.
#[derive(Debug)]
pub enum Refused<B, E> {
    /// The network is full. Try again after a poll.
    Busy(B),
    /// The operation failed. Do not try again.
    Failed(B, E),
}
