//! Plain loops, compiled once for each level: for codecs without kernels of their own, and for
//! whoever else computes beside calls.
//!
//! A [`Task`] is inlined into a function with the level's instructions, so the compiler makes
//! vectors of its loops. Rust contracts and reorders no floating-point operation, so every level
//! gives the same bytes.

use super::Level;
#[cfg(target_arch = "x86_64")]
use super::x86_64;

/// A piece of work. `run` and all that it calls in loops must be `#[inline(always)]`, or are
/// compiled for no level.
pub trait Task {
    /// What comes out.
    type Output;
    /// Does it.
    fn run(self) -> Self::Output;
}

/// Runs it with the level's instructions, or the best that the machine has below.
#[inline]
pub fn run<K: Task>(level: Level, task: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 && x86_64::has_avx512() {
        // SAFETY: the machine has the instructions.
        return unsafe { x86_64::run_avx512(task) };
    } else if level >= Level::Avx2 && x86_64::has_avx2() {
        // SAFETY: the machine has the instructions.
        return unsafe { x86_64::run_avx2(task) };
    }
    let _ = level;
    run_plain(task)
}

/// Apart from [`run`], whose callers would have room on their stacks for the buffers of a task
/// that runs elsewhere.
#[inline(never)]
fn run_plain<K: Task>(task: K) -> K::Output {
    task.run()
}
