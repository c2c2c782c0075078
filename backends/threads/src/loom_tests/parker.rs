//! Models of sleeping and waking.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::{LoomTask, explore};
use crate::parker::{Epoch, Parker};
use crate::ring::ring;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Sleeps until `n_done` is `n`, as a rank does: reads the epoch, checks the condition, parks.
fn wait_for(parker: &Parker, n_done: &AtomicUsize, n: usize) {
    loop {
        let seen = parker.epoch();
        if n_done.load(Ordering::Relaxed) == n {
            return;
        }
        parker.park(seen, Duration::MAX);
    }
}

/// A waiter finds its condition false and parks. The notifier that makes the condition true wakes
/// it. There are two notifiers at once.
#[test]
fn loses_no_wake_up() {
    explore("parker with two wakers", Some(3), || {
        let shared = Arc::new((Parker::default(), AtomicUsize::new(0)));
        let notifiers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.fetch_add(1, Ordering::Relaxed);
                shared.0.notify();
            })
        });
        wait_for(&shared.0, &shared.1, 2);
        for notifier in notifiers {
            notifier.join().unwrap();
        }
    });
}

/// The waiter sleeps several times in a row. A notifier that is late to end one sleep neither ends
/// a later sleep too early nor keeps another notifier from ending it.
#[test]
fn sleeps_again_and_again() {
    explore("parker through three sleeps", Some(4), || {
        let shared = Arc::new((Parker::default(), AtomicUsize::new(0)));
        let notifier = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..3 {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.notify();
                }
            })
        };
        let (parker, n_done) = &*shared;
        let mut n_seen = 0;
        while n_seen < 3 {
            let seen = parker.epoch();
            let n = n_done.load(Ordering::Relaxed);
            assert!(n >= n_seen, "a count went back");
            if n == n_seen {
                parker.park(seen, Duration::MAX);
            }
            n_seen = n;
        }
        notifier.join().unwrap();
    });
}

/// A sleep that times out while it is being woken leaves no state behind that breaks the next
/// sleep.
#[test]
fn a_sleep_that_timed_out_costs_no_later_wake_up() {
    explore("parker after a sleep that timed out", Some(4), || {
        let shared = Arc::new((Parker::default(), AtomicUsize::new(0)));
        let notifier = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.notify();
                }
            })
        };
        // With a budget of zero, the flag is set and cleared without a wait.
        shared.0.park(shared.0.epoch(), Duration::ZERO);
        wait_for(&shared.0, &shared.1, 2);
        notifier.join().unwrap();
    });
}

/// A task registers its waker, finds its condition still false and sleeps. The notifier that makes
/// the condition true wakes it. There are two notifiers at once.
#[test]
fn loses_no_wake_up_of_a_task() {
    explore("parker with a task and two notifiers", Some(3), || {
        let shared = Arc::new((Parker::default(), AtomicUsize::new(0)));
        let notifiers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.fetch_add(1, Ordering::Relaxed);
                shared.0.notify();
            })
        });
        let (parker, n_done) = &*shared;
        let is_done = || n_done.load(Ordering::Relaxed) == 2;
        let task = LoomTask::new();
        while !is_done() {
            parker.register(&task.waker());
            if is_done() {
                break;
            }
            task.sleep();
        }
        for notifier in notifiers {
            notifier.join().unwrap();
        }
    });
}

/// A notification wakes a thread that sleeps on a parker, even if a task's waker is still
/// registered there.
#[test]
fn a_waker_left_behind_keeps_no_thread_asleep() {
    explore("parker with a waker left behind", Some(3), || {
        let shared = Arc::new((Parker::default(), AtomicUsize::new(0)));
        let task = LoomTask::new();
        shared.0.register(&task.waker());
        let notifier = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.notify();
                }
            })
        };
        wait_for(&shared.0, &shared.1, 2);
        task.sleep();
        notifier.join().unwrap();
    });
}

/// A relaxed write before a notification is visible to the rank that was notified.
#[test]
fn notification_publishes() {
    explore("parker publishes", None, || {
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

/// A producer that sleeps on a full ring and a consumer that sleeps on an empty one always wake
/// each other.
#[test]
fn credit_wakes_the_producer() {
    explore("ring and parkers give credit", Some(3), || {
        let (mut producer, mut consumer) = ring(1);
        let parkers = Arc::new([Parker::default(), Parker::default()]);
        let sender = {
            let parkers = Arc::clone(&parkers);
            thread::spawn(move || {
                for item in 0..3 {
                    loop {
                        let seen = parkers[0].epoch();
                        if producer.poll_space() {
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
