//! Which communicators have calls under way that nobody waits for in them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crate::shadow::{Shadow, Standing, Up, locked};

/// Them, and whether somebody is moving them along.
///
/// Moving them along calls MPI, which calls back to have them moved along: that, and other threads
/// that come meanwhile, find it is being done.
#[derive(Default)]
pub(crate) struct Background {
    active: Mutex<Vec<Shadow>>,
    n_active: AtomicUsize,
    moving: Mutex<()>,
}

impl Background {
    /// One has a call under way.
    pub(crate) fn add(&self, shadow: &Shadow) {
        let mut active = locked(&self.active);
        if !active.iter().any(|known| Arc::ptr_eq(known, shadow)) {
            active.push(Arc::clone(shadow));
        }
        self.n_active.store(active.len(), Ordering::Release);
    }

    /// One has none any more.
    pub(crate) fn remove(&self, shadow: &Shadow) {
        let mut active = locked(&self.active);
        active.retain(|known| !Arc::ptr_eq(known, shadow));
        self.n_active.store(active.len(), Ordering::Release);
    }

    /// Has `step` move each along, which says whether it moved, unless its lock is held: whoever
    /// has it drives its calls, or holds it for a moment. Whether one moved.
    pub(crate) fn advance(&self, step: impl Fn(&mut Up) -> bool) -> bool {
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
            let shadow = locked(&self.active).get(next).cloned();
            let Some(shadow) = shadow else { return moved };
            next += 1;
            let Ok(mut standing) = shadow.try_lock() else { continue };
            let Standing::Up(up) = &mut *standing else { continue };
            moved |= step(up);
            if up.line.is_empty() {
                self.remove(&shadow);
                next -= 1;
            }
        }
    }
}
