//! Models of the ring.

use std::sync::Arc;

use loom::thread::{self, yield_now};

use super::explore;
use crate::ring::ring;

/// Each item leaves once and in order, also when the ring is full or empty, and when its positions
/// wrap around.
#[test]
fn keeps_order() {
    for depth in [1, 2] {
        explore(&format!("ring of {depth} keeps order"), Some(5), move || {
            let (mut producer, mut consumer) = ring(depth);
            let sender = thread::spawn(move || {
                for item in 0..3 {
                    while producer.push(Box::new(item)).is_err() {
                        yield_now();
                    }
                }
            });
            for expected in 0..3 {
                let item = loop {
                    match consumer.pop() {
                        Some((item, _)) => break item,
                        None => yield_now(),
                    }
                };
                assert_eq!(*item, expected);
            }
            sender.join().unwrap();
            assert!(consumer.pop().is_none());
        });
    }
}

/// Every item is dropped exactly once, whatever the two ends do last.
#[test]
fn drops_undelivered_items() {
    explore("ring drops undelivered items", None, || {
        let item = Arc::new(());
        let (mut producer, mut consumer) = ring(2);
        let copies = [Arc::clone(&item), Arc::clone(&item), Arc::clone(&item)];
        let sender = thread::spawn(move || {
            for copy in copies {
                // A refused item is returned and dropped here.
                drop(producer.push(copy));
            }
        });
        drop(consumer.pop());
        drop(consumer);
        sender.join().unwrap();
        assert_eq!(Arc::strong_count(&item), 1);
    });
}

/// `inspect` sees the item that a later `pop` takes, while the producer continues.
#[test]
fn looks_ahead() {
    explore("ring looks ahead", None, || {
        let (mut producer, mut consumer) = ring(2);
        let sender = thread::spawn(move || {
            let mut n_sent = 0;
            for item in 0..3 {
                n_sent += usize::from(producer.push(Box::new(item)).is_ok());
            }
            n_sent
        });
        let ahead = consumer.inspect(1, |item| **item);
        assert!(ahead.is_none_or(|item| item == 1));
        let first = consumer.pop().map(|(item, _)| *item);
        assert!(if ahead.is_some() {
            first == Some(0)
        } else {
            first.is_none_or(|item| item == 0)
        });
        let n_sent = sender.join().unwrap();
        let mut n_taken = usize::from(first.is_some());
        while consumer.pop().is_some() {
            n_taken += 1;
        }
        assert_eq!(n_taken, n_sent);
    });
}

/// A producer that looks for space while the consumer pops either finds space, or the pop reports
/// that the producer waits.
#[test]
fn a_wish_for_room_is_reported() {
    explore("ring reports a wish for room", None, || {
        let (mut producer, mut consumer) = ring(1);
        assert!(producer.push(0).is_ok());
        let sender = thread::spawn(move || producer.poll_space());
        let before = consumer.pop();
        let has_space = sender.join().unwrap();
        let Some((0, reported)) = before else { panic!("the item was there") };
        assert!(
            has_space != reported,
            "the producer found space, or the pop reports it, but not both"
        );
    });
}
