//! Compiles plain loops once for each level (an instruction set). Codecs without kernels of their
//! own use it, and so do the passes over the input before a call, such as rounding.
//!
//! A [`Task`] is inlined into a function with the level's instructions, so that the compiler
//! vectorizes its loops. Rust neither contracts nor reorders floating-point operations, so every
//! level gives the same bytes.

use super::Level;
#[cfg(target_arch = "x86_64")]
use super::x86_64;

/// Computation with plain loops.
///
/// `run` and every function that it calls in loops must be `#[inline(always)]`. Otherwise they are
/// compiled without the level's instructions.
pub trait Task {
    /// Result of the computation.
    type Output;
    /// Runs the computation.
    fn run(self) -> Self::Output;
}

/// Runs a task with the level's instructions, or with the fastest level below that the machine has.
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

/// Runs a task without special instructions.
///
/// Inlining it would make [`run`] reserve stack for the task's buffers, even if the task runs in
/// `run_avx2` or `run_avx512`, which reserve stack for them too.
#[inline(never)]
fn run_plain<K: Task>(task: K) -> K::Output {
    task.run()
}
