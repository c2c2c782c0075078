//! The link: a bounded lock-free queue in a ring of slots, with one producer and one consumer.
//!
//! `tail` counts pushed items, and only the producer writes it. `head` counts taken items, and only
//! the consumer advances it. Each side keeps a copy of the other side's counter. It reads the real
//! counter only when the copy says full (or empty). In steady flow the two cores therefore exchange
//! one cache line per item, not two.
//!
//! Counters advance by 2. Bit 0 of `head` says that the producer found the ring full and waits for
//! space. The producer sets the bit with a compare-exchange against the counter that it saw, which
//! fails exactly if the consumer has advanced. The consumer clears the bit with the same swap that
//! advances the counter. Both operations work on one word, so one of them comes first, and no
//! request for space is lost.
//!
//! Cost: push is one release store; pop is one swap. Nothing is allocated after [`ring`].
//!
//! Source: L. Lamport, "Specifying concurrent program modules" (1983). The cached counters are from
//! J. Giacomoni et al., "FastForward for efficient pipeline parallelism" (PPoPP 2008) and related
//! work.

use std::fmt;
use std::mem::MaybeUninit;

use crate::sync::{Arc, AtomicUsize, Ordering, Padded, UnsafeCell};

/// Amount by which one item advances a counter.
const ONE: usize = 2;
/// The flag in bit 0 of `head`: the producer waits for space.
const PRODUCER_WAITS: usize = 1;

struct RingBuffer<T> {
    head: Padded<AtomicUsize>,
    tail: Padded<AtomicUsize>,
    /// The length is a power of two, so that counters may wrap around.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: the producer accesses a slot only while it lies outside `head..tail`, and the consumer
// only while it lies inside. A slot changes hands through a release store and an acquire load of a
// counter. So no two threads access a slot at once. Items only move between threads, which `T:
// Send` allows.
unsafe impl<T: Send> Sync for RingBuffer<T> {}
// SAFETY: the ring owns its items, and nothing in it is tied to a thread.
unsafe impl<T: Send> Send for RingBuffer<T> {}

impl<T> RingBuffer<T> {
    fn slot(&self, counter: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[(counter / ONE) & (self.slots.len() - 1)]
    }
}

impl<T> Drop for RingBuffer<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed) & !PRODUCER_WAITS;
        while head != tail {
            // SAFETY: both ends are gone (`&mut self`). The items in `head..tail` were pushed and
            // never taken, so they are initialised. The loop visits each counter value once.
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(ONE);
        }
    }
}

/// Makes a ring for at most `depth` items.
///
/// # Panics
/// If `depth` is 0 or above a quarter of the address space.
pub(crate) fn ring<T>(depth: usize) -> (Producer<T>, Consumer<T>) {
    assert!(depth > 0 && depth <= usize::MAX / 4, "a link must hold at least one frame");
    let ring = Arc::new(RingBuffer {
        head: Padded(AtomicUsize::new(0)),
        tail: Padded(AtomicUsize::new(0)),
        slots: (0..depth.next_power_of_two())
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
    });
    let producer = Producer { ring: Arc::clone(&ring), tail: 0, head_seen: 0, span: depth * ONE };
    (producer, Consumer { ring, head: 0, tail_seen: 0 })
}

/// The sending end of a ring.
pub(crate) struct Producer<T> {
    ring: Arc<RingBuffer<T>>,
    tail: usize,
    /// `head` without the flag, as last loaded.
    head_seen: usize,
    /// Value of `tail - head` when the ring is full.
    span: usize,
}

impl<T> Producer<T> {
    /// Returns whether the ring was full when `head` was last loaded.
    fn looks_full(&self) -> bool {
        self.tail.wrapping_sub(self.head_seen) == self.span
    }

    /// Returns whether the next [`push`](Self::push) will succeed. If not, the next
    /// [`pop`](Consumer::pop) reports that the producer waits.
    pub(crate) fn poll_space(&mut self) -> bool {
        if !self.looks_full() {
            return true;
        }
        let head = self.ring.head.0.load(Ordering::Acquire);
        self.head_seen = head & !PRODUCER_WAITS;
        if !self.looks_full() {
            return true;
        }
        if head & PRODUCER_WAITS != 0 {
            return false;
        }
        // On success, the consumer has taken nothing since the load, and its next pop will see the
        // flag. On failure, the counter has advanced.
        match self.ring.head.0.compare_exchange(
            head,
            head | PRODUCER_WAITS,
            Ordering::Relaxed,
            Ordering::Acquire,
        ) {
            Ok(_) => false,
            Err(moved) => {
                self.head_seen = moved & !PRODUCER_WAITS;
                true
            }
        }
    }

    /// Appends `item`, or returns it if the ring is full.
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        if self.looks_full() {
            self.head_seen = self.ring.head.0.load(Ordering::Acquire) & !PRODUCER_WAITS;
            if self.looks_full() {
                return Err(item);
            }
        }
        // SAFETY: `tail - head_seen < span`. `head_seen` was loaded with acquire after the consumer
        // had taken every item before it. So this slot is empty, the consumer is done with it, and
        // does not read it before the store below. This end is the only producer.
        self.ring.slot(self.tail).with_mut(|slot| unsafe {
            (*slot).write(item);
        });
        self.tail = self.tail.wrapping_add(ONE);
        self.ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }
}

/// The receiving end of a ring. Dropping it drops the items that were not taken.
pub(crate) struct Consumer<T> {
    ring: Arc<RingBuffer<T>>,
    head: usize,
    /// `tail` as last loaded.
    tail_seen: usize,
}

impl<T> Consumer<T> {
    /// Returns whether the ring holds more than `n_skipped` items.
    fn holds_more_than(&mut self, n_skipped: usize) -> bool {
        if self.tail_seen.wrapping_sub(self.head) / ONE > n_skipped {
            return true;
        }
        self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head) / ONE > n_skipped
    }

    /// Takes the oldest item. The flag is true if the producer found the ring full and must be
    /// notified that it no longer is.
    pub(crate) fn pop(&mut self) -> Option<(T, bool)> {
        if !self.holds_more_than(0) {
            return None;
        }
        // SAFETY: `head < tail_seen`. `tail_seen` was loaded with acquire after the producer had
        // written this slot, which is not written again before the swap below. This end is the only
        // consumer, and `head` advances, so the item is moved out only once.
        let item = self.ring.slot(self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(ONE);
        let before = self.ring.head.0.swap(self.head, Ordering::Release);
        Some((item, before & PRODUCER_WAITS != 0))
    }

    /// Calls `look` with the item behind the `n_skipped` oldest ones, if it exists.
    pub(crate) fn inspect<R>(&mut self, n_skipped: usize, look: impl FnOnce(&T) -> R) -> Option<R> {
        if !self.holds_more_than(n_skipped) {
            return None;
        }
        let at = self.head.wrapping_add(n_skipped * ONE);
        // SAFETY: `at` lies in `head..tail_seen`, so the slot is initialised. The producer does not
        // write it before its item is popped, and `&mut self` rules out a pop while the reference
        // lives.
        Some(self.ring.slot(at).with(|slot| look(unsafe { (*slot).assume_init_ref() })))
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("n_pushed", &(self.tail / ONE)).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("n_taken", &(self.head / ONE)).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::ring;

    /// A ring is a first-in first-out queue of exactly `depth` items, also after many rounds and if
    /// `depth` is not a power of two.
    #[test]
    fn holds_depth_items_in_order() {
        for depth in 1..=9 {
            let (mut producer, mut consumer) = ring(depth);
            let (mut pushed, mut popped) = (0u64, 0u64);
            for _ in 0..20 {
                while producer.push(pushed).is_ok() {
                    pushed += 1;
                }
                assert_eq!(pushed - popped, depth as u64);
                for _ in 0..=popped % depth as u64 {
                    assert_eq!(consumer.pop().map(|(item, _)| item), Some(popped));
                    popped += 1;
                }
            }
        }
    }

    /// A waiting producer is reported to the consumer once, and only after it found the ring full.
    #[test]
    fn reports_a_waiting_producer_once() {
        let (mut producer, mut consumer) = ring(2);
        producer.push('a').unwrap();
        assert!(producer.poll_space());
        producer.push('b').unwrap();
        assert_eq!(producer.push('x'), Err('x'));
        assert!(!producer.poll_space());
        assert!(!producer.poll_space());
        assert_eq!(consumer.pop(), Some(('a', true)));
        assert_eq!(consumer.pop(), Some(('b', false)));
        assert_eq!(consumer.pop(), None);
        assert!(producer.poll_space());
    }

    /// `inspect` sees the items that `pop` will take, and takes none.
    #[test]
    fn inspect_looks_ahead() {
        let (mut producer, mut consumer) = ring(3);
        producer.push(1).unwrap();
        producer.push(2).unwrap();
        assert_eq!(consumer.inspect(1, |item| *item), Some(2));
        assert_eq!(consumer.inspect(2, |item| *item), None);
        assert_eq!(consumer.pop(), Some((1, false)));
        assert_eq!(consumer.inspect(0, |item| *item), Some(2));
        assert_eq!(consumer.pop(), Some((2, false)));
    }

    /// Items left in a ring are dropped once, whichever end goes first.
    #[test]
    fn drops_what_was_not_taken() {
        let item = Arc::new(());
        for consumer_first in [true, false] {
            let (mut producer, mut consumer) = ring(4);
            for _ in 0..3 {
                producer.push(Arc::clone(&item)).unwrap();
            }
            drop(consumer.pop());
            if consumer_first {
                drop(consumer);
                assert_eq!(Arc::strong_count(&item), 1);
                producer.push(Arc::clone(&item)).unwrap();
                drop(producer);
            } else {
                drop(producer);
                drop(consumer);
            }
            assert_eq!(Arc::strong_count(&item), 1);
        }
    }

    /// Between two threads, no item is lost, repeated or reordered.
    #[test]
    fn survives_two_threads() {
        const N: u64 = 200_000;
        let (mut producer, mut consumer) = ring(4);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for item in 0..N {
                    while producer.push(item).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            for expected in 0..N {
                let item = loop {
                    match consumer.pop() {
                        Some((item, _)) => break item,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(item, expected);
            }
        });
    }
}
