//! Communicators that have non-blocking calls in progress.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crate::comm_state::{CommState, ReadyComm, SharedCommState, locked};

/// Communicators that have non-blocking calls in progress, and a lock for the thread that advances
/// these calls.
///
/// Advancing a call enters MPI, which may call back to advance calls. Because of the lock, such a
/// nested [`advance`](Self::advance) does nothing. The same holds if another thread advances calls
/// at the same time.
#[derive(Default)]
pub(crate) struct Background {
    active: Mutex<Vec<SharedCommState>>,
    n_active: AtomicUsize,
    /// Held by the thread that advances calls.
    moving: Mutex<()>,
}

impl Background {
    /// Adds a communicator that has a call in progress.
    pub(crate) fn add(&self, shared: &SharedCommState) {
        let mut active = locked(&self.active);
        if !active.iter().any(|known| Arc::ptr_eq(known, shared)) {
            active.push(Arc::clone(shared));
        }
        self.n_active.store(active.len(), Ordering::Release);
    }

    /// Removes a communicator whose calls are complete.
    pub(crate) fn remove(&self, shared: &SharedCommState) {
        let mut active = locked(&self.active);
        active.retain(|known| !Arc::ptr_eq(known, shared));
        self.n_active.store(active.len(), Ordering::Release);
    }

    /// Calls `step` for each communicator; `step` returns whether it made progress. Skips
    /// communicators whose lock is held: the holder advances the calls itself, or releases the lock
    /// soon. Returns whether any made progress.
    pub(crate) fn advance(&self, step: impl Fn(&mut ReadyComm) -> bool) -> bool {
        if self.n_active.load(Ordering::Acquire) == 0 {
            return false;
        }
        let _moving = match self.moving.try_lock() {
            Err(TryLockError::WouldBlock) => return false,
            // The thread has the lock, whether it is poisoned or not.
            locked => locked,
        };
        let (mut moved, mut next) = (false, 0);
        loop {
            let shared = locked(&self.active).get(next).cloned();
            let Some(shared) = shared else { return moved };
            next += 1;
            let Ok(mut state) = shared.try_lock() else { continue };
            let CommState::Ready(ready) = &mut *state else { continue };
            moved |= step(ready);
            if ready.queue.is_empty() {
                self.remove(&shared);
                next -= 1;
            }
        }
    }
}
