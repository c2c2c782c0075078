//! Which communicators have calls under way that nobody waits for in them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crate::comm_state::{CommState, ReadyComm, SharedCommState, locked};

/// Them, and whether somebody is moving them along.
///
/// Moving them along calls MPI, which calls back to have them moved along: that, and other threads
/// that come meanwhile, find it is being done.
#[derive(Default)]
pub(crate) struct Background {
    active: Mutex<Vec<SharedCommState>>,
    n_active: AtomicUsize,
    moving: Mutex<()>,
}

impl Background {
    /// One has a call under way.
    pub(crate) fn add(&self, shared: &SharedCommState) {
        let mut active = locked(&self.active);
        if !active.iter().any(|known| Arc::ptr_eq(known, shared)) {
            active.push(Arc::clone(shared));
        }
        self.n_active.store(active.len(), Ordering::Release);
    }

    /// One has none any more.
    pub(crate) fn remove(&self, shared: &SharedCommState) {
        let mut active = locked(&self.active);
        active.retain(|known| !Arc::ptr_eq(known, shared));
        self.n_active.store(active.len(), Ordering::Release);
    }

    /// Has `step` move each along, which says whether it moved, unless its lock is held: whoever
    /// has it drives its calls, or holds it for a moment. Whether one moved.
    pub(crate) fn advance(&self, step: impl Fn(&mut ReadyComm) -> bool) -> bool {
        if self.n_active.load(Ordering::Acquire) == 0 {
            return false;
        }
        let _moving = match self.moving.try_lock() {
            Err(TryLockError::WouldBlock) => return false,
            // Poisoned or not.
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
