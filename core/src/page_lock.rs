//! Page-locked memory of frames: a device copies from it and to it by itself.
//!
//! Without it, the host first copies the bytes of a frame to page-locked memory, or from there.
//! Locks belong to the process, as NVIDIA's driver has them: who opens a device names a
//! [`PageLocker`] once, and it locks all large frames that transports allocate from then on. A
//! frame that is not locked works as well.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
#[cfg(feature = "std")]
use std::sync::{Arc, PoisonError, RwLock};

/// A lock of pages, which ends when it is dropped.
pub type PageLock = Box<dyn Any + Send + Sync>;

/// Locks pages of the host's memory for a device.
pub trait PageLocker: Send + Sync {
    /// Locks whole pages. The lock ends before their memory is freed. `None` if they cannot be
    /// locked.
    fn lock(&self, pages: &[u8]) -> Option<PageLock>;
}

#[cfg(feature = "std")]
static LOCKERS: RwLock<Vec<Arc<dyn PageLocker>>> = RwLock::new(Vec::new());

/// Locks the frames that this process allocates from now on, until the returned value is dropped.
/// Frames that have been locked stay so.
#[cfg(feature = "std")]
pub fn lock_frames(locker: Arc<dyn PageLocker>) -> FrameLocking {
    LOCKERS.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&locker));
    FrameLocking { locker }
}

/// Time during which new frames are locked ([`lock_frames`]).
#[cfg(feature = "std")]
#[must_use = "frames are locked until this is dropped"]
pub struct FrameLocking {
    locker: Arc<dyn PageLocker>,
}

#[cfg(feature = "std")]
impl Drop for FrameLocking {
    fn drop(&mut self) {
        let mut lockers = LOCKERS.write().unwrap_or_else(PoisonError::into_inner);
        lockers.retain(|locker| !Arc::ptr_eq(locker, &self.locker));
    }
}

#[cfg(feature = "std")]
impl fmt::Debug for FrameLocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameLocking").finish_non_exhaustive()
    }
}

/// All locks of a transport's memory. Transports with memory of their own keep this beside it, and
/// drop it first.
#[derive(Default)]
pub struct PageLocks {
    locks: Vec<PageLock>,
}

impl PageLocks {
    /// Returns whether new frames are to be locked.
    #[must_use]
    pub fn are_wanted() -> bool {
        #[cfg(feature = "std")]
        return !LOCKERS.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        #[cfg(not(feature = "std"))]
        false
    }

    /// Locks whole pages, which hold nothing but frames.
    #[must_use]
    pub fn of(pages: &[u8]) -> Self {
        #[cfg(feature = "std")]
        {
            // A locker may be the last to use its device, whose end waits for this list.
            let lockers = LOCKERS.read().unwrap_or_else(PoisonError::into_inner).clone();
            Self { locks: lockers.iter().filter_map(|locker| locker.lock(pages)).collect() }
        }
        #[cfg(not(feature = "std"))]
        {
            let _ = pages;
            Self::default()
        }
    }

    /// Returns whether there is a lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        !self.locks.is_empty()
    }
}

impl fmt::Debug for PageLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageLocks").field("n", &self.locks.len()).finish()
    }
}
