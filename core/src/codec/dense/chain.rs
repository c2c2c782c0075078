//! Chunks of a payload that several threads process.
//!
//! The codes of a chunk are predicted from the codes before them. Most of the work does not need
//! these: quantising, and packing and unpacking residuals. So threads process runs of chunks side
//! by side. When a thread has done what it can, it waits for its run's turn. It takes over the
//! codes before the run, finds the run's codes, and hands over the codes before the next run.
//!
//! Cost: a reader adds up the residuals of one run after the other. The codes that are handed over
//! cross from core to core, so a run has several chunks.

use core::ops::Range;

/// State that the chunks of a payload hand on to later chunks.
pub(super) trait Chain<B>: Sync {
    /// Waits until all chunks before `run` had their turn. Calls `turn` with the codes before the
    /// run, which it replaces by the codes before the next run. `None` if an earlier chunk has
    /// failed.
    fn pass(&self, run: Range<usize>, turn: &mut dyn FnMut(&mut [B])) -> Option<()>;

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
    use super::Chain;
    use core::ops::Range;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::vec;
    use std::vec::Vec;

    /// Number of looks before a waiting thread lets another one run.
    const LOOKS: usize = 100;

    /// A chain for several threads.
    pub(in super::super) struct SharedChain<B> {
        /// Chunk whose turn it is.
        turn: AtomicUsize,
        /// First chunk that has failed.
        failed: AtomicUsize,
        codes: Mutex<Vec<B>>,
    }

    impl<B: Copy> SharedChain<B> {
        /// Starts before the first chunk, with `n_codes` codes before it.
        pub(in super::super) fn new(n_codes: usize, code: B) -> Self {
            Self {
                turn: AtomicUsize::new(0),
                failed: AtomicUsize::new(usize::MAX),
                codes: Mutex::new(vec![code; n_codes]),
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

        fn fail(&self, index: usize) {
            self.failed.fetch_min(index, Ordering::AcqRel);
        }
    }
}
#[cfg(feature = "std")]
pub(super) use shared::SharedChain;
