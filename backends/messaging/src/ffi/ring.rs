//! The queue of messages from one rank to another, in memory that both of them map.
//!
//! `turn` of an entry says which message is in it: the sender writes it last, and the receiver
//! waits for it. `head` counts the messages that the receiver has taken. The sender reads `head`
//! only when its copy says that the ring is full. So a short message crosses to the other core in
//! the lines of its own entry: the receiver waits for the first, and the others follow at once.
//!
//! The receiver never trusts what it reads: it checks the message, and the entry's bytes have a
//! fixed length.
//!
//! Source: D. Vyukov's bounded queue, whose cells carry a sequence number, for one producer and one
//! consumer.

#![allow(unsafe_code, reason = "reads and writes memory that processes share")]

#[cfg(all(test, loom))]
mod loom_tests;

use std::ops::Deref;
use std::ptr;

use crate::frame::SlotId;
use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// Capacity of a ring in messages.
pub(crate) const RING_DEPTH: u32 = if cfg!(loom) { 2 } else { 16 };
/// Longest message that an entry holds, in bytes: a header and 1 KiB. Longer ones arrive sooner in
/// frames of their own, since two copies then cost more than another line.
pub(crate) const SHORT_BYTES: usize = if cfg!(loom) { 8 } else { ENTRY_BYTES - FIELDS_BYTES };
const ENTRY_BYTES: usize = 18 * 64;
/// Bytes of an entry before the short message.
const FIELDS_BYTES: usize = 24;

/// Message that passes a slot to another rank, or announces a short message in its own entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingMessage {
    pub(crate) slot: SlotId,
    pub(crate) n_bytes: u64,
    /// Flags and tag.
    pub(crate) word: u32,
}

/// Memory of one message in a ring. Messages are numbered from 0, modulo 2³².
#[repr(C, align(64))]
struct RingEntry {
    /// One more than the number of the message in this entry. The receiver waits until it is one
    /// more than the number of the next message.
    turn: AtomicU32,
    word: AtomicU32,
    slot: AtomicU64,
    n_bytes: AtomicU64,
    short: UnsafeCell<[u8; SHORT_BYTES]>,
}

impl RingEntry {
    /// Fetches the lines of this entry that a message of `n_bytes` would take, for exclusive use,
    /// except the first, which the receiver polls.
    ///
    /// The receiver has read these lines. So a write has to ask its core for each of them, which
    /// delays the message. Here the sender asks while it waits for the receiver's next message.
    /// (PREFETCHW; processors with AVX2 have the instruction, or ignore it.)
    #[inline]
    fn claim(&self, n_bytes: usize) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        if std::arch::is_x86_feature_detected!("avx2") {
            let start = ptr::from_ref(self).cast::<u8>();
            for at in (64..FIELDS_BYTES + n_bytes).step_by(64) {
                // SAFETY: the instruction accepts any address. It changes no memory and no flags.
                unsafe {
                    std::arch::asm!("prefetchw [{}]", in(reg) start.wrapping_add(at),
                        options(nostack, preserves_flags, readonly));
                }
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = n_bytes;
    }
}

/// Messages from one rank to another, in order. Initially all zeros.
#[repr(C, align(64))]
pub(crate) struct MessageRing {
    /// Number of messages that the receiver has taken.
    head: AtomicU32,
    entries: [RingEntry; RING_DEPTH as usize],
}

// SAFETY: all fields but `short` are atomic. The sender writes `short` only while the entry has no
// message, and the receiver reads it only while it has one. `turn` and `head` hand it over, each
// by a release store and an acquire load. A ring has one sender and one receiver.
unsafe impl Sync for MessageRing {}

const _: () = assert!(RING_DEPTH.is_power_of_two());

impl MessageRing {
    /// loom's numbers are no plain memory, so its ring cannot be mapped.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        let entry = |_| RingEntry {
            turn: AtomicU32::new(0),
            word: AtomicU32::new(0),
            slot: AtomicU64::new(0),
            n_bytes: AtomicU64::new(0),
            short: UnsafeCell::new([0; SHORT_BYTES]),
        };
        Self { head: AtomicU32::new(0), entries: std::array::from_fn(entry) }
    }

    fn entry(&self, nth: u32) -> &RingEntry {
        &self.entries[(nth % RING_DEPTH) as usize]
    }
}

/// Sending end of a ring.
pub(crate) struct RingSender<R> {
    ring: R,
    /// Number of messages sent.
    tail: u32,
    /// Number of messages that the receiver has taken, as last read from the ring.
    head: u32,
}

impl<R: Deref<Target = MessageRing>> RingSender<R> {
    /// Makes the only sending end of a new ring.
    pub(crate) const fn new(ring: R) -> Self {
        Self { ring, tail: 0, head: 0 }
    }

    /// Adds a message, and the bytes of a short message. Returns false if the ring is full.
    ///
    /// # Panics
    /// If there are more than [`SHORT_BYTES`].
    #[must_use]
    pub(crate) fn push(&mut self, message: RingMessage, short: &[u8]) -> bool {
        assert!(short.len() <= SHORT_BYTES, "a short message fits an entry");
        if !self.has_room() {
            return false;
        }
        let RingMessage { slot, n_bytes, word } = message;
        let entry = self.ring.entry(self.tail);
        let slot = u64::from(slot.owner) << 32 | u64::from(slot.index);
        entry.slot.store(slot, Ordering::Relaxed);
        entry.n_bytes.store(n_bytes, Ordering::Relaxed);
        entry.word.store(word, Ordering::Relaxed);
        // SAFETY: there is room, so the receiver has taken the entry's last message, and does not
        // read the entry before the store below. The length was checked.
        entry.short.with_mut(|into| unsafe {
            ptr::copy_nonoverlapping(short.as_ptr(), into.cast(), short.len());
        });
        self.tail = self.tail.wrapping_add(1);
        // Release: a receiver that reads this turn also sees the message and the frame's bytes.
        entry.turn.store(self.tail, Ordering::Release);
        self.ring.entry(self.tail).claim(short.len());
        true
    }

    pub(crate) fn has_room(&mut self) -> bool {
        if self.tail.wrapping_sub(self.head) < RING_DEPTH {
            return true;
        }
        // Acquire: the receiver has read the entries that it has taken.
        self.head = self.ring.head.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head) < RING_DEPTH
    }
}

/// Receiving end of a ring.
pub(crate) struct RingReceiver<R> {
    ring: R,
    /// Number of messages taken.
    head: u32,
}

impl<R: Deref<Target = MessageRing>> RingReceiver<R> {
    /// Makes the only receiving end of a new ring.
    pub(crate) const fn new(ring: R) -> Self {
        Self { ring, head: 0 }
    }

    /// Returns whether the next message has arrived.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        let entry = self.ring.entry(self.head);
        entry.turn.load(Ordering::Relaxed) == self.head.wrapping_add(1)
    }

    /// Takes the next message, if it has arrived. `read` gets the message and the bytes of its
    /// entry; a short message takes the first ones.
    #[inline]
    pub(crate) fn pop<T>(
        &mut self,
        read: impl FnOnce(RingMessage, &[u8; SHORT_BYTES]) -> T,
    ) -> Option<T> {
        let entry = self.ring.entry(self.head);
        let next = self.head.wrapping_add(1);
        if entry.turn.load(Ordering::Acquire) != next {
            return None;
        }
        let slot = entry.slot.load(Ordering::Relaxed);
        let message = RingMessage {
            slot: SlotId { owner: (slot >> 32) as u32, index: slot as u32 },
            n_bytes: entry.n_bytes.load(Ordering::Relaxed),
            word: entry.word.load(Ordering::Relaxed),
        };
        // SAFETY: the message has arrived, and its sender does not write to the entry before the
        // store below. The bytes are initialised: memory that is mapped begins as zeros.
        let result = entry.short.with(|short| read(message, unsafe { &*short }));
        self.head = next;
        self.ring.head.store(next, Ordering::Release);
        Some(result)
    }
}
