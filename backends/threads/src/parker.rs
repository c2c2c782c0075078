//! Sleeping and waking, with one event count per rank.
//!
//! A rank reads its *epoch* and polls everything that it waits for. If it finds nothing, it parks
//! on the condition that the epoch is still the same. Another rank may change something for which
//! the sleeper waits: it pushes a frame, frees credit, recycles a frame, or closes. That rank makes
//! the change first, and then calls [`notify`](Parker::notify), which advances the epoch.
//!
//! The epoch and the flag "the owner sleeps" share one atomic word: the flag is bit 0, and the
//! epoch lies above the flags. A notification adds to the epoch, and sees from the old value
//! whether the owner sleeps. Falling asleep is a compare-exchange from the epoch read earlier to
//! the same epoch with the flag set. Operations on one word have one order. Either the notification
//! comes first and the compare-exchange fails, or it comes second and sees the flag. So no wake-up
//! is lost.
//!
//! The sleep itself uses a condition variable. The sleeper holds the variable's lock from before it
//! sets the flag until it waits, so no notifier can come in between. `sleeps` is a flag under that
//! lock: the first of several notifiers clears it and makes the system call, and the others make
//! none.
//!
//! A rank that is a task instead of a thread [registers](Parker::register) a waker, polls
//! everything once more, and returns to its executor. Bit 1 of the word says that a waker is
//! registered. If a notification comes before the bit is set, the second poll finds the change. If
//! the notification comes after that, it sees the bit and takes the waker. A lock protects the
//! waker and every change of its bit.
//!
//! Cost: a notification is one atomic addition if the owner does not sleep, and otherwise also a
//! lock and a futex call.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, Padded, lock, wait};

/// Amount that one notification adds to the word; the bits below hold the flags.
const ONE: usize = 4;
/// Bit 0: the owner sleeps, or is about to.
const ASLEEP: usize = 1;
/// Bit 1: the owner's waker is registered.
const HAS_WAKER: usize = 2;
const FLAGS: usize = ASLEEP | HAS_WAKER;

/// Number of notifications that a rank had received at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(usize);

/// The place where one rank sleeps. One thread at a time may [`park`](Parker::park); any thread may
/// notify.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Padded<AtomicUsize>,
    sleeps: Mutex<bool>,
    woken: Condvar,
    waker: Mutex<Option<Waker>>,
}

impl Parker {
    /// Returns the current epoch. The changes before every notification counted in it are visible
    /// to the caller.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.state.0.load(Ordering::Acquire) & !FLAGS)
    }

    /// Notifies the owner of a change, and wakes it if it sleeps.
    pub(crate) fn notify(&self) {
        let before = self.state.0.fetch_add(ONE, Ordering::AcqRel);
        if before & ASLEEP != 0 {
            self.wake();
        }
        if before & HAS_WAKER != 0 {
            self.wake_task();
        }
    }

    /// Registers `waker` for the next notification, in place of an earlier one. Afterwards the
    /// changes before all notifications so far are visible to the caller.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        match &mut *slot {
            Some(known) => known.clone_from(waker),
            None => *slot = Some(waker.clone()),
        }
        // Under the lock; otherwise a notification could take the waker before the bit is set.
        self.state.0.fetch_or(HAS_WAKER, Ordering::AcqRel);
    }

    /// Takes the registered waker.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        if self.state.0.load(Ordering::Relaxed) & HAS_WAKER == 0 {
            return None;
        }
        let mut slot = lock(&self.waker);
        self.state.0.fetch_and(!HAS_WAKER, Ordering::Relaxed);
        slot.take()
    }

    /// Wakes the registered task, if any.
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

    /// Sleeps until the epoch differs from `seen`, or until about `budget` has passed. Returns at
    /// once if the epoch has already changed.
    pub(crate) fn park(&self, seen: Epoch, budget: Duration) {
        let mut sleeps = lock(&self.sleeps);
        // Fails only if a notification has come.
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
            // Set in each round, because a late notifier of an earlier sleep may have cleared it.
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

    /// A rank does not sleep through a notification that comes between reading the epoch and
    /// parking.
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

    /// Two threads pass a token back and forth; each sleeps without a timeout between turns.
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
