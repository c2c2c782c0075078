//! x86-64: feature detection, and the entry points of both levels.
//!
//! Each entry point is a closure of a `#[target_feature]` function, into which the generic loop and
//! the level's `Isa` are inlined completely.

/// Expands to `[e(0), e(1), …]`.
///
/// It is a macro, because a closure would be compiled without the caller's target features, and
/// intrinsics would then remain calls.
macro_rules! unroll {
    (2, |$i:ident| $e:expr) => {
        unroll!(@ $i, $e, 0 1)
    };
    (4, |$i:ident| $e:expr) => {
        unroll!(@ $i, $e, 0 1 2 3)
    };
    (8, |$i:ident| $e:expr) => {
        unroll!(@ $i, $e, 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident, $e:expr, $($n:literal)*) => {
        [$({
            let $i: usize = $n;
            $e
        }),*]
    };
}

/// Methods of [`Isa`](super::generic::Isa) that compute each register of a block by itself. `$n` is
/// the number of registers; `$result` computes one of them from the arguments' registers.
macro_rules! lanewise {
    ($n:tt; $($name:ident($($arg:ident),+) => $result:expr,)+) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: Self::Block),+) -> Self::Block {
            // SAFETY: the caller guarantees the instruction set.
            unsafe {
                unroll!($n, |i| {
                    $(let $arg = $arg[i];)+
                    $result
                })
            }
        }
    )+};
}

#[allow(clippy::needless_range_loop, reason = "one index serves several arrays of registers")]
pub(super) mod avx2;
#[allow(clippy::needless_range_loop, reason = "one index serves several arrays of registers")]
pub(super) mod avx512;
#[allow(clippy::needless_range_loop, reason = "one index serves several arrays of registers")]
mod bits;

use core::sync::atomic::{AtomicU8, Ordering};

use super::at_level::Task;

cpufeatures::new!(avx2_detected, "avx2", "bmi1", "bmi2", "popcnt");
cpufeatures::new!(
    avx512_detected,
    "avx2",
    "bmi1",
    "bmi2",
    "popcnt",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512vbmi"
);

/// Runs a task compiled for AVX2.
///
/// # Safety
/// [`has_avx2`] must return true.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,f16c")]
pub(super) unsafe fn run_avx2<K: Task>(task: K) -> K::Output {
    task.run()
}

/// Runs a task compiled for AVX-512.
///
/// # Safety
/// [`has_avx512`] must return true.
#[target_feature(
    enable = "avx2,bmi1,bmi2,popcnt,lzcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
)]
pub(super) unsafe fn run_avx512<K: Task>(task: K) -> K::Output {
    task.run()
}

/// Returns whether the machine has AVX2, BMI1, BMI2, LZCNT and F16C.
pub(super) fn has_avx2() -> bool {
    avx2_detected::get() && has_lzcnt_and_f16c()
}

/// Returns whether the machine has the features of [`has_avx2`] and AVX-512 F, BW, DQ, VL and VBMI,
/// and the operating system supports their registers.
pub(super) fn has_avx512() -> bool {
    avx512_detected::get() && has_lzcnt_and_f16c()
}

/// Returns whether the machine has LZCNT and F16C.
///
/// A machine without LZCNT executes that instruction as BSR, with another result, so the feature
/// must be detected: CPUID leaf 0x8000_0001, ECX bit 5. F16C is leaf 1, ECX bit 29. The result is
/// cached, because CPUID traps in a virtual machine and takes tens of microseconds.
fn has_lzcnt_and_f16c() -> bool {
    use core::arch::x86_64::__cpuid;
    const UNKNOWN: u8 = 0;
    const MISSING: u8 = 1;
    const PRESENT: u8 = 2;
    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut found = FOUND.load(Ordering::Relaxed);
    if found == UNKNOWN {
        let has_lzcnt = __cpuid(0x8000_0001).ecx >> 5 & 1 == 1;
        let has_f16c = __cpuid(1).ecx >> 29 & 1 == 1;
        found = if has_lzcnt && has_f16c { PRESENT } else { MISSING };
        // Threads that race here store the same value.
        FOUND.store(found, Ordering::Relaxed);
    }
    found == PRESENT
}
