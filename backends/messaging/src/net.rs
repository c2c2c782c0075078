//! What a message layer must do for an [`Endpoint`](crate::Endpoint): own buffers while it works on
//! them, and say when it has done so.
//!
//! A buffer is *moved* into the layer by [`Net::send`] and [`Net::recv`], and comes back by an
//! [`Event`]. So nobody can touch memory that a network reads or writes, and no lifetime is argued
//! outside the crate that talks to the network.

use core::task::Waker;
use core::time::Duration;

use foldwire::transport::{Distance, Rank, Tag, TransportError};

/// A two-sided message layer between `size` ranks.
///
/// Messages are reliable, and matched by (sender, [tag on the wire](on_wire)) in the order sent.
/// Driven by one thread at a time. No method blocks, except [`idle`](Self::idle).
pub trait Net {
    /// An owned message buffer, fixed in memory while the layer has it; the first byte is aligned
    /// to [`FRAME_ALIGN`](foldwire::transport::FRAME_ALIGN) bytes.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;
    /// Why the layer failed.
    type Error: TransportError + Copy;

    /// This process's rank.
    fn rank(&self) -> Rank;

    /// Number of ranks, at least 1.
    fn size(&self) -> usize;

    /// A new buffer of `n_bytes` that the network can read and write (registered where it must be).
    /// Buffers are reused and few; all of them are dropped before the layer is, or leaked.
    ///
    /// # Errors
    /// When there is no memory, or none that can be registered.
    fn allocate(&mut self, n_bytes: usize) -> Result<Self::Buffer, Self::Error>;

    /// Starts to send the first `n_bytes` of `buffer` to another rank. An accepted buffer comes
    /// back by [`Event::Released`]. `matched`: only after the receiver has posted its receive; this
    /// is how the endpoint keeps fast senders from filling slow receivers' memory. A layer without
    /// such a mode ignores it.
    ///
    /// # Errors
    /// [`Refused`] with the buffer; nothing has happened.
    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: Self::Buffer,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<Self::Buffer, Self::Error>>;

    /// Posts a receive of at most the length of `buffer`. An accepted buffer comes back by
    /// [`Event::Received`], or [`Event::Returned`]. Only one is posted at a time for each source
    /// and tag.
    ///
    /// # Errors
    /// [`Refused`] with the buffer; nothing has happened.
    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: Self::Buffer,
    ) -> Result<(), Refused<Self::Buffer, Self::Error>>;

    /// Moves the network along, a bounded amount of work, and tells one thing that has happened, if
    /// any has. Called until it says `None`.
    ///
    /// # Errors
    /// When the layer as a whole has failed, or a message did not fit its buffer.
    fn poll(&mut self) -> Result<Option<Event<Self::Buffer>>, Self::Error>;

    /// Whether what was started goes on while nobody polls, as where the system has what comes and
    /// what leaves in sockets. Else the network is polled while the rank computes
    /// ([`Transport::nudge`](foldwire::Transport::nudge)).
    fn moves_by_itself(&self) -> bool {
        false
    }

    /// The endpoint ends: from now on each poll looks at all that may come.
    fn end(&mut self) {}

    /// Takes back every posted receive that has not matched: they come back by [`Event::Returned`],
    /// now or in later polls. Called once, before the layer is dropped.
    fn cancel_receives(&mut self);

    /// Says that nothing more will be sent to `peer` or received from it: whatever waits for it in
    /// the layer is to wait no longer. Nothing to do for a layer that keeps no such thing.
    fn forget(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// The ranks part in disorder: somebody gave up, or is lost, or has asked others something.
    /// Messages that nobody will receive may still come, so whatever names this layer's messages
    /// must not be used again. Called before the layer is dropped; not called when all ended well.
    fn abandon(&mut self) {}

    /// Called when a poll found nothing: may wait until something happens, but not longer than
    /// `budget`.
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

    /// As [`Transport::distance`](foldwire::Transport::distance), of a rank of the group.
    fn distance(&self, peer: Rank) -> Distance {
        let _ = peer;
        Distance::Network
    }

    /// As [`Transport::needs_checksum`](foldwire::Transport::needs_checksum).
    fn needs_checksum(&self) -> bool {
        true
    }
}

/// A tag as messages carry it: all that channels have on their control tags travels with the first
/// one's, so that one receive takes it from all of them.
#[must_use]
pub const fn on_wire(tag: Tag) -> Tag {
    if tag.is_control() { Tag::CONTROL } else { tag }
}

/// Whose messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This rank's.
    Rank(Rank),
    /// Any rank's; asked for with [`Tag::CONTROL`] only, and one at a time.
    Any,
}

/// What has happened.
#[derive(Debug)]
pub enum Event<B> {
    /// The network is done with a buffer that was sent, or its receiver is lost.
    Released {
        /// The receiver.
        to: Rank,
        /// The message's tag.
        tag: Tag,
        /// What was sent.
        buffer: B,
        /// Whether it was sent to be matched.
        matched: bool,
    },
    /// A message has come.
    Received {
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: Tag,
        /// The message and what lies behind it.
        buffer: B,
        /// Bytes of the message.
        n_bytes: usize,
    },
    /// A receive that took nothing and will not.
    Returned {
        /// Its buffer.
        buffer: B,
    },
    /// A rank has ended. Messages that it sent before may still come.
    Lost {
        /// The rank.
        peer: Rank,
    },
    /// The same, and it has ended in good order: no reason for others to hurry.
    Left {
        /// The rank.
        peer: Rank,
    },
}

/// A call that was not accepted, with the buffer.
#[derive(Debug)]
pub enum Refused<B, E> {
    /// Not now: the network is full. Try again after polling.
    Busy(B),
    /// Never.
    Failed(B, E),
}
