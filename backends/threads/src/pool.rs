//! The frames nobody uses, shared by all ranks of a world.
//!
//! The most recently used frame is handed out first: it is the likeliest to be in a cache. Ranks
//! keep up to [`CACHED`] frames to themselves and exchange half as many at a time, so in a balanced
//! schedule (each rank receives as often as it sends) the lock here is never taken.
//!
//! **Limit.** At most `limit` frames are allocated: what the ranks may hold, plus [`CACHED`] for
//! each rank (they may lie idle where nobody else can reach them), plus the depth of every link in
//! use. So a rank is refused a frame only while the ranks together really hold as many as they may,
//! and frames under way can never starve them.
//!
//! **Waiting.** A refused rank is noted under the lock that guards the free frames; whoever then
//! brings one (or frees one, or raises the limit) takes the note under the same lock and wakes it.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use foldwire::transport::Rank;

use crate::Error;
use crate::frame::Frame;
use crate::parker::Parker;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Most frames that a rank keeps to itself.
pub(crate) const CACHED: usize = 4;
/// Frames that go between a rank and the pool at a time.
const BATCH: usize = CACHED / 2;

#[derive(Debug)]
pub(crate) struct FramePool {
    frame_bytes: usize,
    state: Mutex<PoolState>,
    /// Whether somebody waits. A hint, read without the lock, that frames should come here at once.
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
    /// A pool whose ranks, one for each of `parkers`, may hold `n_held` frames together.
    pub(crate) fn new(frame_bytes: usize, n_held: usize, parkers: Arc<[Parker]>) -> Arc<Self> {
        let limit = n_held.saturating_add(parkers.len() * CACHED);
        let state = PoolState { free: Vec::new(), n_allocated: 0, limit, waiting: Vec::new() };
        let wanted = AtomicBool::new(false);
        Arc::new(Self { frame_bytes, state: Mutex::new(state), wanted, parkers })
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Takes a frame out of `cache`, or the pool, or allocates one; notes that `rank` waits if none
    /// may be had.
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

    /// Puts `frame` into `cache`, or into the pool if that is full or somebody waits. A frame of
    /// another world is dropped.
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

    /// Puts `frames` into the pool and wakes whoever waits for one.
    pub(crate) fn give_all(&self, frames: impl Iterator<Item = Frame>) {
        self.change(|state| state.free.extend(frames));
    }

    /// Allows `n_frames` more; called when a link is made that can hold them.
    pub(crate) fn raise_limit(&self, n_frames: usize) {
        self.change(|state| state.limit = state.limit.saturating_add(n_frames));
    }

    /// Counts a frame that is being dropped instead of recycled.
    pub(crate) fn forget_one(&self) {
        self.change(|state| state.n_allocated -= 1);
    }

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

    /// Frames start at an aligned byte and have the size asked for.
    #[test]
    fn frames_are_aligned() {
        let (pool, _) = pool(5);
        let frames: Vec<_> = (0..5).map(|_| take(&pool).unwrap()).collect();
        for frame in &frames {
            assert_eq!(frame.as_ref().len(), 1024);
            assert_eq!(frame.as_ref().as_ptr().addr() % FRAME_ALIGN, 0);
        }
    }

    /// The limit holds, and giving, dropping and raising each end the wait and notify.
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

    /// More memory than there is, is an error, and is not counted as a frame.
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

    /// The frame given back last is handed out first.
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
