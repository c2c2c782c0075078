//! The lock-free parts under loom: every interleaving, and every value that the memory model lets a
//! load see. A lost wake-up is a deadlock here, which loom reports; so is a sleep that only a timeout
//! would end.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p foldwire-threads --lib loom
//! ```
//!
//! The larger models bound the preemptions of a run, as loom's documentation advises; the bound is
//! part of each test.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag, Transport};
use loom::thread::{self, yield_now};

use crate::parker::{Epoch, Parker};
use crate::pool::{CACHED, Pool};
use crate::ring::ring;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};
use crate::{Endpoint, Error, World};

const TAG: Tag = Tag(0);

/// Explores `model` with at most `n_preemptions` per run, or all of it.
fn explore(n_preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = n_preemptions;
    builder.check(model);
}

/// Items come out once each and in order, through a full and an empty ring and around its end.
#[test]
fn ring_keeps_order() {
    for depth in [1, 2] {
        explore(Some(3), move || {
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

/// Whatever the two ends do last, every item is dropped exactly once.
#[test]
fn ring_drops_undelivered_items() {
    explore(None, || {
        let item = Arc::new(());
        let (mut producer, mut consumer) = ring(2);
        let copies = [Arc::clone(&item), Arc::clone(&item), Arc::clone(&item)];
        let sender = thread::spawn(move || {
            for copy in copies {
                // A refused item comes back and is dropped here.
                drop(producer.push(copy));
            }
        });
        drop(consumer.pop());
        drop(consumer);
        sender.join().unwrap();
        assert_eq!(Arc::strong_count(&item), 1);
    });
}

/// A waiter that finds its condition false and parks is woken by whoever makes it true, with two
/// notifiers at once.
#[test]
fn parker_loses_no_wake_up() {
    explore(Some(3), || {
        let shared = Arc::new((Parker::default(), AtomicUsize::new(0)));
        let notifiers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.fetch_add(1, Ordering::Relaxed);
                shared.0.notify();
            })
        });
        let (parker, n_done) = &*shared;
        loop {
            let seen = parker.epoch();
            if n_done.load(Ordering::Relaxed) == 2 {
                break;
            }
            parker.park(seen, Duration::MAX);
        }
        for notifier in notifiers {
            notifier.join().unwrap();
        }
    });
}

/// What was written before a notification is visible after it, without an ordering of its own.
#[test]
fn notification_publishes() {
    explore(None, || {
        let shared = Arc::new((Parker::default(), AtomicBool::new(false)));
        let notifier = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.store(true, Ordering::Relaxed);
                shared.0.notify();
            })
        };
        let (parker, flag) = &*shared;
        parker.park(Epoch::default(), Duration::MAX);
        assert_ne!(parker.epoch(), Epoch::default());
        assert!(flag.load(Ordering::Relaxed));
        notifier.join().unwrap();
    });
}

/// A producer that sleeps on a full ring and a consumer that sleeps on an empty one always get each
/// other going.
#[test]
fn credit_wakes_the_producer() {
    explore(Some(3), || {
        let (mut producer, mut consumer) = ring(1);
        let parkers = Arc::new([Parker::default(), Parker::default()]);
        let sender = {
            let parkers = Arc::clone(&parkers);
            thread::spawn(move || {
                for item in 0..3 {
                    loop {
                        let seen = parkers[0].epoch();
                        if producer.poll_room() {
                            break;
                        }
                        parkers[0].park(seen, Duration::MAX);
                    }
                    assert!(producer.push(item).is_ok());
                    parkers[1].notify();
                }
            })
        };
        for expected in 0..3 {
            loop {
                let seen = parkers[1].epoch();
                if let Some((item, producer_waits)) = consumer.pop() {
                    assert_eq!(item, expected);
                    if producer_waits {
                        parkers[0].notify();
                    }
                    break;
                }
                parkers[1].park(seen, Duration::MAX);
            }
        }
        sender.join().unwrap();
    });
}

/// A rank refused a frame is woken when another one recycles or drops one.
#[test]
fn a_freed_frame_wakes_whoever_waits() {
    for recycles in [true, false] {
        explore(Some(3), move || {
            let parkers: Arc<[Parker]> = Arc::new([Parker::default()]);
            let pool = Pool::new(MIN_FRAME_BYTES, 0, Arc::clone(&parkers));
            let take = {
                let pool = Arc::clone(&pool);
                move || pool.poll_take(&mut Vec::new(), Rank(0))
            };
            let mut held = Vec::new();
            while held.len() < CACHED {
                let Poll::Ready(Ok(frame)) = take() else { panic!("the limit was not reached") };
                held.push(frame);
            }
            let spare = held.pop();
            let other = thread::spawn(move || match spare {
                Some(frame) if recycles => pool.give_all(std::iter::once(frame)),
                frame => drop((frame, pool)),
            });
            loop {
                let seen = parkers[0].epoch();
                if take().is_ready() {
                    break;
                }
                parkers[0].park(seen, Duration::MAX);
            }
            other.join().unwrap();
        });
    }
}

fn pair() -> [Endpoint; 2] {
    let world = World::new(2).frame_bytes(MIN_FRAME_BYTES).link_depth(1);
    world.endpoints().try_into().unwrap()
}

/// Runs `poll` on `endpoint` as an engine would: a pass, and sleep without a time limit.
fn wait<R>(endpoint: &mut Endpoint, poll: impl Fn(&mut Endpoint) -> Poll<R>) -> R {
    loop {
        endpoint.progress().unwrap();
        match poll(endpoint) {
            Poll::Ready(result) => return result,
            Poll::Pending => endpoint.idle(Duration::MAX),
        }
    }
}

/// The frame a rank sent before it ended is received, then comes `PeerLost`; the receiver may sleep
/// at any moment and is woken.
#[test]
fn frames_before_the_end_are_delivered() {
    explore(Some(3), || {
        let [mut first, mut second] = pair();
        let sender = thread::spawn(move || {
            let Poll::Ready(Ok(mut frame)) = first.poll_frame() else { panic!("no frame") };
            frame.as_mut()[0] = 42;
            first.send(Rank(1), TAG, frame, 1).unwrap();
        });
        let (frame, n_bytes) = wait(&mut second, |rank| rank.poll_recv(Rank(0), TAG)).unwrap();
        assert_eq!(frame.as_ref()[..n_bytes], [42]);
        second.recycle(frame);
        let end = wait(&mut second, |rank| rank.poll_recv(Rank(0), TAG));
        assert_eq!(end.unwrap_err(), Error::PeerLost { peer: Rank(0) });
        sender.join().unwrap();
    });
}

/// A rank that waits for room on a full link learns that the receiver has ended instead.
#[test]
fn the_end_wakes_a_blocked_sender() {
    explore(Some(3), || {
        let [mut first, second] = pair();
        let Poll::Ready(Ok(frame)) = first.poll_frame() else { panic!("no frame") };
        first.send(Rank(1), TAG, frame, 1).unwrap();
        let receiver = thread::spawn(move || drop(second));
        // The receiver may throw the frame away, and so make room, just before it is seen to be gone.
        let end = wait(&mut first, |rank| match rank.poll_ready(Rank(1), TAG) {
            Poll::Ready(Err(end)) => Poll::Ready(end),
            _ => Poll::Pending,
        });
        assert_eq!(end, Error::PeerLost { peer: Rank(1) });
        receiver.join().unwrap();
    });
}
