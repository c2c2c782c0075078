//! x86-64: feature detection, and the entry points of both levels.
//!
//! Each entry point is a `#[target_feature]` function into which the generic loop and the level's
//! `Isa` are inlined completely.

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
mod avx2;
#[allow(clippy::needless_range_loop, reason = "one index serves several arrays of registers")]
mod avx512;
#[allow(clippy::needless_range_loop, reason = "one index serves several arrays of registers")]
mod bits;

use core::sync::atomic::{AtomicU8, Ordering};

use super::at_level::Task;
use super::chunk::ChunkView;
use super::{BLOCK, CodeOf, Encoded, Kernels, Lattice, Paths, Scale, Stores, generic};
use crate::element::{bf16, f16};
use crate::op::LatticeOp;

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

macro_rules! level {
    ($table:ident, $module:ident, $float:ident, $isa:ty, $features:literal) => {
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) unsafe fn encode(
                src: &[$float],
                lattice: &Lattice<$float>,
                dst: &mut [u8],
            ) -> Encoded {
                // SAFETY: this function enables the features; the caller guarantees everything
                // else.
                unsafe { generic::encode::<$float, $isa>(src, lattice, dst) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn decode(
                view: &ChunkView<'_, $float>,
                scale: &Scale<$float>,
                dst: &mut [$float],
                stores: Stores,
            ) {
                // SAFETY: as for `encode`.
                unsafe { generic::decode::<$float, $isa>(view, scale, dst, stores) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn fold(
                op: LatticeOp,
                view: &ChunkView<'_, $float>,
                local: &[$float],
                lattice: &Lattice<$float>,
                dst: &mut [u8],
            ) -> Encoded {
                // SAFETY: as for `encode`.
                unsafe { generic::fold::<$float, $isa>(op, view, local, lattice, dst) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn fold_store(
                op: LatticeOp,
                view: &ChunkView<'_, $float>,
                local: *const $float,
                lattice: &Lattice<$float>,
                dst: &mut [u8],
                scale: &Scale<$float>,
                output: *mut $float,
            ) -> Encoded {
                // SAFETY: as for `encode`.
                unsafe {
                    generic::fold_store::<$float, $isa>(
                        op, view, local, lattice, dst, scale, output,
                    )
                }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn combine(
                paths: Paths,
                op: LatticeOp,
                a: &ChunkView<'_, $float>,
                b: &ChunkView<'_, $float>,
                lattice: &Lattice<$float>,
                dst: &mut [u8],
            ) -> Encoded {
                // SAFETY: as for `encode`.
                unsafe { generic::combine::<$float, $isa>(paths, op, a, b, lattice, dst) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn value_range(src: &[$float]) -> ($float, $float) {
                generic::value_range(src)
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn sum(acc: &mut [$float], other: &[$float]) {
                // SAFETY: as for `encode`.
                unsafe { generic::sum::<$float, $isa>(acc, other) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn pack(
                codes: &[[CodeOf<$float>; BLOCK]],
                before: Option<CodeOf<$float>>,
                widths: &mut [u8],
                dst: &mut [u8],
            ) -> usize {
                // SAFETY: as for `encode`.
                unsafe { generic::packed::pack::<_, $isa>(codes, before, widths, dst) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn unpack(
                src: &[u8],
                widths: &[u8],
                before: Option<CodeOf<$float>>,
                codes: &mut [[CodeOf<$float>; BLOCK]],
            ) {
                // SAFETY: as for `encode`.
                unsafe { generic::packed::unpack::<_, $isa>(src, widths, before, codes) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn scan(
                codes: &mut [[CodeOf<$float>; BLOCK]],
                before: CodeOf<$float>,
            ) {
                // SAFETY: as for `encode`.
                unsafe { generic::packed::scan::<_, $isa>(codes, before) }
            }
        }

        /// Kernels of this level and element type. The level must be available.
        pub(super) static $table: Kernels<$float> = Kernels {
            encode: $module::encode,
            decode: $module::decode,
            fold: $module::fold,
            fold_store: $module::fold_store,
            combine: $module::combine,
            value_range: $module::value_range,
            sum: $module::sum,
            pack: $module::pack,
            unpack: $module::unpack,
            scan: $module::scan,
        };
    };
}

level!(AVX2_F32, avx2_f32, f32, avx2::I32, "avx2,bmi1,bmi2,f16c,lzcnt,popcnt");
level!(AVX2_F64, avx2_f64, f64, avx2::I64, "avx2,bmi1,bmi2,f16c,lzcnt,popcnt");
level!(AVX2_F16, avx2_f16, f16, avx2::I32, "avx2,bmi1,bmi2,f16c,lzcnt,popcnt");
level!(AVX2_BF16, avx2_bf16, bf16, avx2::I32, "avx2,bmi1,bmi2,f16c,lzcnt,popcnt");
level!(
    AVX512_F32,
    avx512_f32,
    f32,
    avx512::I32,
    "avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
);
level!(
    AVX512_F64,
    avx512_f64,
    f64,
    avx512::I64,
    "avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
);
level!(
    AVX512_F16,
    avx512_f16,
    f16,
    avx512::I32,
    "avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
);
level!(
    AVX512_BF16,
    avx512_bf16,
    bf16,
    avx512::I32,
    "avx2,bmi1,bmi2,f16c,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi"
);
