//! The free frames, shared by all ranks of a world.
//!
//! The pool hands out the most recently used frame first, because it is the most likely to be in a
//! cache. Each rank keeps up to [`CACHED`] free frames to itself, and moves half as many at a time
//! to or from the pool. In a balanced schedule, in which each rank receives as often as it sends,
//! the lock is therefore never taken.
//!
//! **Limit.** At most `limit` frames are allocated. This is the sum of the frames that the ranks
//! may hold, [`CACHED`] frames for each rank, and the depth of every link in use. The second term
//! is needed because other ranks cannot take the free frames that a rank keeps. The third covers
//! frames in flight. So a rank is refused a frame only while the ranks together hold as many as
//! they may.
//!
//! **Waiting.** A refused rank is added to a list, under the lock that guards the free frames. The
//! next rank that returns a frame to the pool, drops a frame or raises the limit takes the list
//! under the same lock, and wakes the ranks on it.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use foldwire::transport::Rank;

use crate::Error;
use crate::frame::Frame;
use crate::parker::Parker;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Maximum number of free frames that a rank keeps to itself.
pub(crate) const CACHED: usize = 4;
/// Number of frames that move between a rank's cache and the pool at a time.
const BATCH: usize = CACHED / 2;

#[derive(Debug)]
pub(crate) struct FramePool {
    frame_bytes: usize,
    state: Mutex<PoolState>,
    /// True if a rank waits for a frame. Ranks then return frames to the pool at once. This is a
    /// hint, read without the lock.
    wanted: AtomicBool,
    parkers: Arc<[Parker]>,
}

#[derive(Debug)]
struct PoolState {
    free: Vec<Frame>,
    n_allocated: usize,
    limit: usize,
    waiting: Vec<Rank>,
}

impl FramePool {
    /// Creates a pool whose ranks, one for each of `parkers`, may hold `n_held` frames together.
    pub(crate) fn new(frame_bytes: usize, n_held: usize, parkers: Arc<[Parker]>) -> Arc<Self> {
        let limit = n_held.saturating_add(parkers.len() * CACHED);
        let state = PoolState { free: Vec::new(), n_allocated: 0, limit, waiting: Vec::new() };
        let wanted = AtomicBool::new(false);
        Arc::new(Self { frame_bytes, state: Mutex::new(state), wanted, parkers })
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Takes a frame from `cache` or from the pool, or allocates one. If the limit is reached, adds
    /// `rank` to the waiting ranks.
    pub(crate) fn poll_take(
        self: &Arc<Self>,
        cache: &mut Vec<Frame>,
        rank: Rank,
    ) -> Poll<Result<Frame, Error>> {
        if let Some(frame) = cache.pop() {
            return Poll::Ready(Ok(frame));
        }
        let mut state = lock(&self.state);
        let n_left = state.free.len().saturating_sub(BATCH);
        cache.extend(state.free.drain(n_left..));
        if let Some(frame) = cache.pop() {
            return Poll::Ready(Ok(frame));
        }
        if state.n_allocated >= state.limit {
            if !state.waiting.contains(&rank) {
                state.waiting.push(rank);
            }
            self.wanted.store(true, Ordering::Relaxed);
            return Poll::Pending;
        }
        state.n_allocated += 1;
        drop(state);
        let frame = Frame::allocate(self.frame_bytes, Arc::downgrade(self));
        if frame.is_err() {
            self.forget_one();
        }
        Poll::Ready(frame)
    }

    /// Puts `frame` into `cache`. If a rank waits, moves all of `cache` to the pool; if `cache` is
    /// over-full, moves part of it. A frame of another world is dropped.
    pub(crate) fn give(&self, cache: &mut Vec<Frame>, frame: Frame) {
        if !frame.belongs_to(self) {
            return;
        }
        cache.push(frame);
        if self.wanted.load(Ordering::Relaxed) {
            self.give_all(cache.drain(..));
        } else if cache.len() > CACHED {
            self.give_all(cache.drain(..BATCH));
        }
    }

    /// Puts `frames` into the pool, and wakes the waiting ranks.
    pub(crate) fn give_all(&self, frames: impl Iterator<Item = Frame>) {
        self.change(|state| state.free.extend(frames));
    }

    /// Raises the limit by `n_frames`, the depth of a new link.
    pub(crate) fn raise_limit(&self, n_frames: usize) {
        self.change(|state| state.limit = state.limit.saturating_add(n_frames));
    }

    /// Subtracts one from the allocated frames, because a frame was dropped or could not be
    /// allocated.
    pub(crate) fn forget_one(&self) {
        self.change(|state| state.n_allocated -= 1);
    }

    /// Changes the state so that a waiting rank may get a frame, and wakes all waiting ranks.
    fn change(&self, change: impl FnOnce(&mut PoolState)) {
        let mut state = lock(&self.state);
        change(&mut state);
        let waiting = mem::take(&mut state.waiting);
        if !waiting.is_empty() {
            self.wanted.store(false, Ordering::Relaxed);
        }
        drop(state);
        for rank in waiting {
            self.parkers[rank.index()].notify();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::Poll;

    use foldwire::transport::{FRAME_ALIGN, Rank};

    use super::{CACHED, FramePool};
    use crate::Error;
    use crate::frame::Frame;
    use crate::parker::Parker;

    const RANK: Rank = Rank(0);

    fn pool(n_held: usize) -> (Arc<FramePool>, Arc<[Parker]>) {
        let parkers: Arc<[Parker]> = Arc::new([Parker::default()]);
        (FramePool::new(1024, n_held, Arc::clone(&parkers)), parkers)
    }

    fn take(pool: &Arc<FramePool>) -> Option<Frame> {
        match pool.poll_take(&mut Vec::new(), RANK) {
            Poll::Ready(frame) => Some(frame.unwrap()),
            Poll::Pending => None,
        }
    }

    /// Frames are aligned and have the requested size.
    #[test]
    fn frames_are_aligned() {
        let (pool, _) = pool(5);
        let frames: Vec<_> = (0..5).map(|_| take(&pool).unwrap()).collect();
        for frame in &frames {
            assert_eq!(frame.as_ref().len(), 1024);
            assert_eq!(frame.as_ref().as_ptr().addr() % FRAME_ALIGN, 0);
        }
    }

    /// The limit holds. Returning a frame, dropping one and raising the limit each notify the
    /// waiting rank.
    #[test]
    fn every_way_to_end_a_wait_notifies() {
        let (pool, parkers) = pool(1);
        let mut frames: Vec<_> = std::iter::from_fn(|| take(&pool)).collect();
        assert_eq!(frames.len(), 1 + CACHED);

        let before = parkers[0].epoch();
        pool.give(&mut Vec::new(), frames.pop().unwrap());
        assert_ne!(parkers[0].epoch(), before);
        frames.push(take(&pool).unwrap());

        assert!(take(&pool).is_none());
        let before = parkers[0].epoch();
        frames.pop();
        assert_ne!(parkers[0].epoch(), before);
        frames.push(take(&pool).unwrap());

        assert!(take(&pool).is_none());
        let before = parkers[0].epoch();
        pool.raise_limit(1);
        assert_ne!(parkers[0].epoch(), before);
        assert!(take(&pool).is_some());
    }

    /// A frame larger than memory is an error, and does not count as allocated.
    #[test]
    fn frames_beyond_memory_are_refused() {
        for need in [usize::MAX, usize::MAX - FRAME_ALIGN, isize::MAX as usize] {
            let pool = FramePool::new(need, 1, Arc::new([Parker::default()]));
            for _ in 0..3 * CACHED {
                let refused = pool.poll_take(&mut Vec::new(), RANK);
                assert!(
                    matches!(refused, Poll::Ready(Err(Error::OutOfMemory { need: n })) if n == need)
                );
            }
        }
    }

    /// A frame of another world never enters the pool.
    #[test]
    fn foreign_frames_are_dropped() {
        let (ours, _) = pool(1);
        let (theirs, _) = pool(1);
        let mut cache = Vec::new();
        ours.give(&mut cache, take(&theirs).unwrap());
        assert!(cache.is_empty());
    }

    /// The pool hands out the frame returned last first.
    #[test]
    fn hands_out_the_hottest_frame() {
        let (pool, _) = pool(8);
        let mut cache = Vec::new();
        for _ in 0..3 {
            let frames: Vec<_> = (0..8).map(|_| take(&pool).unwrap()).collect();
            let last = frames.last().unwrap().as_ref().as_ptr();
            for frame in frames {
                pool.give(&mut cache, frame);
            }
            assert!(cache.len() <= CACHED);
            assert_eq!(cache.last().unwrap().as_ref().as_ptr(), last);
            pool.give_all(cache.drain(..));
        }
    }
}
