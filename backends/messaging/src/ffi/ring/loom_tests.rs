//! Loom models of the ring between ranks of a node: they explore every interleaving, and every
//! value that the memory model lets a load see.
//!
//! ```text
//! cargo xtask loom
//! ```
//!
//! The models leave out the mapping of files, and ranks that write nonsense.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread::{self, yield_now};

use super::{MessageRing, RingMessage, RingReceiver, RingSender, SHORT_BYTES};
use crate::frame::SlotId;

type Ends = (RingSender<Arc<MessageRing>>, RingReceiver<Arc<MessageRing>>);

fn ring() -> Ends {
    let ring = Arc::new(MessageRing::new());
    (RingSender::new(Arc::clone(&ring)), RingReceiver::new(ring))
}

fn message(nth: u32) -> RingMessage {
    RingMessage { slot: SlotId { owner: nth, index: nth }, n_bytes: u64::from(nth), word: nth }
}

/// Explores `model` with at most `n_preemptions` per run, and those that `cargo xtask loom
/// --deeper` adds.
fn explore(n_preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var("FOLDWIRE_LOOM_MORE").map_or(0, |n| n.parse().expect("a number"));
    let mut builder = Builder::new();
    builder.preemption_bound = Some(n_preemptions + more);
    builder.check(model);
}

fn push(sender: &mut RingSender<Arc<MessageRing>>, nth: u32) {
    while !sender.push(message(nth), &[nth as u8; SHORT_BYTES]) {
        yield_now();
    }
}

fn pop(receiver: &mut RingReceiver<Arc<MessageRing>>) -> (RingMessage, [u8; SHORT_BYTES]) {
    loop {
        match receiver.pop(|message, short| (message, *short)) {
            Some(found) => return found,
            None => yield_now(),
        }
    }
}

/// Each message leaves once, whole and in order, also when the ring is full or empty, and when its
/// entries are used again.
#[test]
fn short_messages_stay_whole_and_in_order() {
    explore(4, || {
        let (mut sender, mut receiver) = ring();
        let sending = thread::spawn(move || (0..5).for_each(|nth| push(&mut sender, nth)));
        for nth in 0..5 {
            assert_eq!(pop(&mut receiver), (message(nth), [nth as u8; SHORT_BYTES]));
        }
        sending.join().unwrap();
        assert!(!receiver.has_next());
    });
}

/// A message that finds no room is not in the ring, and all others are.
#[test]
fn a_full_ring_refuses_a_message() {
    explore(5, || {
        let (mut sender, mut receiver) = ring();
        let sending = thread::spawn(move || {
            (0..4).filter(|&nth| sender.push(message(nth), &[nth as u8])).collect::<Vec<u32>>()
        });
        let mut taken = Vec::new();
        let mut take = || receiver.pop(|message, _| message.word);
        taken.extend(take());
        taken.extend(take());
        let sent = sending.join().unwrap();
        taken.extend(std::iter::from_fn(take));
        assert_eq!(taken, sent);
    });
}

/// Both ranks write a slot's memory in turn: the message that gives a slot away carries along what
/// was written to it, and nobody writes to a slot of another.
#[test]
fn a_slot_changes_hands() {
    explore(4, || {
        let slot = Arc::new(UnsafeCell::new(0));
        let (there, back) = (ring(), ring());
        let (mut sender, mut returned) = (there.0, back.1);
        let (mut receiver, mut returner) = (there.1, back.0);
        let same = Arc::clone(&slot);
        let other = thread::spawn(move || {
            for nth in 0..2 {
                pop(&mut receiver);
                // SAFETY: the message gave the slot to this thread. loom reports other accesses.
                same.with_mut(|value| unsafe { *value += 1 });
                push(&mut returner, nth);
            }
        });
        for nth in 0..2 {
            // SAFETY: as above; at first the slot is this thread's.
            slot.with_mut(|value| unsafe { *value += 1 });
            push(&mut sender, nth);
            pop(&mut returned);
        }
        other.join().unwrap();
        // SAFETY: as above.
        assert_eq!(slot.with(|value| unsafe { *value }), 4);
    });
}
