//! Sleeping and waking: one event count per rank.
//!
//! A rank reads its *epoch*, polls everything it waits for, and, having found nothing, parks on the
//! condition that the epoch is still the same. Whoever changes something the rank may wait for
//! (pushes a frame, frees credit, recycles, closes) changes it first and then calls
//! [`notify`](Parker::notify), which advances the epoch.
//!
//! The epoch and the flag "the owner sleeps" are one atomic word: epoch in the upper bits, flag in
//! bit 0. Notifying adds 2 and sees from the old value whether there is somebody to wake; falling
//! asleep is a compare-exchange from the epoch read earlier to the same epoch with the flag set. As
//! operations on one word these have one order: either the notification comes first and the
//! compare-exchange fails, or it comes second and sees the flag. No wake-up is lost.
//!
//! The sleep itself is a condition variable. Its lock is held from before the flag is set until the
//! sleeper waits, so that a waker cannot come in between; `sleeps`, under that lock, lets the first
//! of several wakers make the system call and spares the others.
//!
//! A rank that is a task instead of a thread [registers](Parker::register) a waker, looks at
//! everything once more, and returns to its executor. Bit 1 of the word says that there is one; a
//! notification either comes before the bit, and what it tells of is found in that look, or sees
//! the bit and takes the waker. The waker lies under a lock, as does every change of its bit.
//!
//! Cost: a notification is one atomic addition when nobody sleeps; a lock and a futex call
//! otherwise.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, Padded, lock, wait};

/// What a notification adds; the bits below are left for the flags.
const ONE: usize = 4;
/// Bit 0: the owner sleeps, or is about to.
const ASLEEP: usize = 1;
/// Bit 1: the owner's waker is here.
const HAS_WAKER: usize = 2;
const FLAGS: usize = ASLEEP | HAS_WAKER;

/// How often a rank had been notified at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(usize);

/// Where one rank sleeps. One thread at a time may [`park`](Parker::park); any may notify.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Padded<AtomicUsize>,
    sleeps: Mutex<bool>,
    woken: Condvar,
    waker: Mutex<Option<Waker>>,
}

impl Parker {
    /// The present epoch. What was changed before a notification counted in it is visible to the
    /// caller.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.state.0.load(Ordering::Acquire) & !FLAGS)
    }

    /// Tells the owner that something has changed; wakes it if it sleeps.
    pub(crate) fn notify(&self) {
        let before = self.state.0.fetch_add(ONE, Ordering::AcqRel);
        if before & ASLEEP != 0 {
            self.wake();
        }
        if before & HAS_WAKER != 0 {
            self.wake_task();
        }
    }

    /// Has `waker` woken at the next notification, if none was registered since. What was changed
    /// before the notifications so far is visible to the caller afterwards.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        match &mut *slot {
            Some(known) => known.clone_from(waker),
            None => *slot = Some(waker.clone()),
        }
        // While the lock is held, or a notification could take the waker before the bit is set.
        self.state.0.fetch_or(HAS_WAKER, Ordering::AcqRel);
    }

    /// The registered waker, which is no longer there then.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        if self.state.0.load(Ordering::Relaxed) & HAS_WAKER == 0 {
            return None;
        }
        let mut slot = lock(&self.waker);
        self.state.0.fetch_and(!HAS_WAKER, Ordering::Relaxed);
        slot.take()
    }

    /// Wakes the task that is registered, if there is one.
    pub(crate) fn wake_task(&self) {
        if let Some(waker) = self.take_waker() {
            waker.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let must_wake = std::mem::take(&mut *lock(&self.sleeps));
        if must_wake {
            self.woken.notify_one();
        }
    }

    /// Sleeps until the epoch is no longer `seen`, or about `budget` has passed. Returns at once if
    /// the epoch has changed already.
    pub(crate) fn park(&self, seen: Epoch, budget: Duration) {
        let mut sleeps = lock(&self.sleeps);
        // Fails only if there was a notification.
        let fall_asleep = |state| (state & !FLAGS == seen.0).then_some(state | ASLEEP);
        if self.state.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, fall_asleep).is_err() {
            return;
        }
        let deadline = Instant::now().checked_add(budget);
        while self.epoch() == seen {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            // Set anew each time: a waker of an earlier sleep may have come late and cleared it.
            *sleeps = true;
            sleeps = wait(&self.woken, sleeps, left);
        }
        *sleeps = false;
        self.state.0.fetch_and(!ASLEEP, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::Parker;

    /// A notification between reading the epoch and parking is not slept through.
    #[test]
    fn does_not_sleep_through_an_earlier_notification() {
        let parker = Parker::default();
        let seen = parker.epoch();
        parker.notify();
        parker.park(seen, Duration::MAX);
        assert_ne!(parker.epoch(), seen);
    }

    /// Without a notification the budget ends the sleep, and the parker can be used again.
    #[test]
    fn budget_ends_the_sleep() {
        let parker = Parker::default();
        for _ in 0..2 {
            let start = Instant::now();
            parker.park(parker.epoch(), Duration::from_millis(5));
            assert!(start.elapsed() >= Duration::from_millis(5));
        }
        assert_eq!(parker.epoch(), Parker::default().epoch());
    }

    /// Two threads hand a token to and fro, each sleeping without a time limit between turns.
    #[test]
    fn two_threads_wake_each_other() {
        const TURNS: usize = 2000;
        let parkers = [Parker::default(), Parker::default()];
        let turn = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (parkers, turn) = (&parkers, &turn);
                scope.spawn(move || {
                    for mine in (me..TURNS).step_by(2) {
                        loop {
                            let seen = parkers[me].epoch();
                            if turn.load(Ordering::Acquire) == mine {
                                break;
                            }
                            parkers[me].park(seen, Duration::MAX);
                        }
                        turn.store(mine + 1, Ordering::Release);
                        parkers[1 - me].notify();
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), TURNS);
    }
}
