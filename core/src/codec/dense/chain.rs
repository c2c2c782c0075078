//! Chunks of a payload that several threads process.
//!
//! A chunk depends on earlier chunks in two ways: their codes predict its codes, and `dense` learns
//! its pair code from their pairs. Most of the work needs neither: quantising, and packing and
//! unpacking residuals once the pair code is known. So threads process runs of chunks side by side.
//! When a thread has done what it can, it waits for its run's turn. It takes over the codes before
//! the run, finds the run's codes, and hands over the codes before the next run.
//!
//! Cost: a reader adds up the residuals of one run after the other. The codes that are handed over
//! cross from core to core, so a run has several chunks.

use super::huffman::PairCounts;
use core::ops::Range;

/// State that the chunks of a payload hand on to later chunks.
pub(super) trait Chain<B>: Sync {
    /// Waits until all chunks before `run` had their turn. Calls `turn` with the codes before the
    /// run, which it replaces by the codes before the next run. `None` if an earlier chunk has
    /// failed.
    fn pass(&self, run: Range<usize>, turn: &mut dyn FnMut(&mut [B])) -> Option<()>;

    /// Waits for lesson `nth` and returns it: the counts from which the pair code is derived anew,
    /// if it is. `index` is the chunk that needs it. `None` if an earlier chunk has failed.
    fn lesson(&self, index: usize, nth: usize) -> Option<Option<PairCounts>>;

    /// Publishes lesson `nth`.
    fn teach(&self, nth: usize, counts: Option<PairCounts>);

    /// Lets later chunks fail that wait for this one.
    fn fail(&self, index: usize);
}

/// A run in work. Unless it is done when it is dropped, all later chunks fail.
pub(super) struct Attempt<'a, B> {
    chains: &'a [&'a dyn Chain<B>],
    index: usize,
    is_done: bool,
}

impl<'a, B> Attempt<'a, B> {
    pub(super) const fn at(chains: &'a [&'a dyn Chain<B>], index: usize) -> Self {
        Self { chains, index, is_done: false }
    }

    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl<B> Drop for Attempt<'_, B> {
    fn drop(&mut self) {
        if !self.is_done {
            self.chains.iter().for_each(|chain| chain.fail(self.index));
        }
    }
}

#[cfg(feature = "std")]
mod shared {
    use super::{Chain, PairCounts};
    use core::array;
    use core::ops::Range;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, OnceLock, PoisonError};
    use std::vec;
    use std::vec::Vec;

    /// Lessons of a payload with the most chunks: after chunk 1, 4, 16, … 4¹⁰.
    const LESSONS: usize = 11;
    /// Number of looks before a waiting thread lets another one run.
    const LOOKS: usize = 100;

    /// A chain for several threads.
    pub(in super::super) struct SharedChain<B> {
        /// Chunk whose turn it is.
        turn: AtomicUsize,
        /// First chunk that has failed.
        failed: AtomicUsize,
        codes: Mutex<Vec<B>>,
        lessons: [OnceLock<Option<PairCounts>>; LESSONS],
    }

    impl<B: Copy> SharedChain<B> {
        /// Starts before the first chunk, with `n_codes` codes before it.
        pub(in super::super) fn new(n_codes: usize, code: B) -> Self {
            Self {
                turn: AtomicUsize::new(0),
                failed: AtomicUsize::new(usize::MAX),
                codes: Mutex::new(vec![code; n_codes]),
                lessons: array::from_fn(|_| OnceLock::new()),
            }
        }

        fn wait<R>(&self, index: usize, look: impl Fn() -> Option<R>) -> Option<R> {
            for n_looks in 0.. {
                if let Some(found) = look() {
                    return Some(found);
                }
                if self.failed.load(Ordering::Acquire) < index {
                    break;
                }
                if n_looks < LOOKS {
                    core::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
            None
        }
    }

    impl<B: Copy + Send> Chain<B> for SharedChain<B> {
        fn pass(&self, run: Range<usize>, turn: &mut dyn FnMut(&mut [B])) -> Option<()> {
            self.wait(run.start, || {
                (self.turn.load(Ordering::Acquire) == run.start).then_some(())
            })?;
            turn(&mut self.codes.lock().unwrap_or_else(PoisonError::into_inner));
            self.turn.store(run.end, Ordering::Release);
            Some(())
        }

        fn lesson(&self, index: usize, nth: usize) -> Option<Option<PairCounts>> {
            self.wait(index, || self.lessons.get(nth)?.get().copied())
        }

        fn teach(&self, nth: usize, counts: Option<PairCounts>) {
            if let Some(lesson) = self.lessons.get(nth) {
                lesson.get_or_init(|| counts);
            }
        }

        fn fail(&self, index: usize) {
            self.failed.fetch_min(index, Ordering::AcqRel);
        }
    }
}
#[cfg(feature = "std")]
pub(super) use shared::SharedChain;
