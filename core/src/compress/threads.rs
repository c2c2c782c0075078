//! Segments on several threads. The bytes do not depend on their number.

use crate::threads::Threads;
use alloc::vec::Vec;

/// Returns whether several threads can work on this many segments.
pub(super) fn are_for(threads: Threads, n_segments: usize) -> bool {
    n_segments > 1 && !threads.is_one() && threads.n_threads() > 1
}

/// Returns what `task` makes of each item. Each thread gets a state from `begin`.
#[cfg(feature = "std")]
pub(super) fn map<I: Send, O: Send, S>(
    threads: Threads,
    items: Vec<I>,
    begin: &(dyn Fn() -> S + Sync),
    task: &(dyn Fn(&mut S, I) -> O + Sync),
) -> Vec<O> {
    use std::sync::{Mutex, PoisonError};

    let n_items = items.len();
    let left = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(n_items));
    let work = || {
        let mut state = begin();
        loop {
            // The lock is free again before the task begins.
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((i, item)) = next else { break };
            let result = task(&mut state, item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
        }
    };
    threads.run(threads.n_threads().min(n_items), &work);
    // The caller's `Workers` may have skipped calls.
    work();
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // A pool may catch panics.
    assert_eq!(done.len(), n_items, "a thread has panicked");
    done.sort_unstable_by_key(|&(i, _)| i);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The same without an operating system, which has one thread.
#[cfg(not(feature = "std"))]
pub(super) fn map<I, O, S>(
    _: Threads,
    items: Vec<I>,
    begin: &dyn Fn() -> S,
    task: &dyn Fn(&mut S, I) -> O,
) -> Vec<O> {
    let mut state = begin();
    items.into_iter().map(|item| task(&mut state, item)).collect()
}
