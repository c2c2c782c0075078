//! Element types of collectives: floats, which codecs compress, and integers, which travel
//! uncompressed.
//!
//! [`Element`] is sealed, because the codecs' integer lattices, the kernels' dispatch tables and
//! the type codes in frames depend on the list here. Floats of 16 bits only store values:
//! computations use `f32` and round once for each result (`sixteen`).

mod integer;
pub(crate) mod sealed;
mod sixteen;

use crate::coded_enum::coded_enum;
use crate::kernel::Kernels;
use core::fmt;
use core::ops::{BitAnd, BitOr, BitXor};

pub use half::{bf16, f16};

coded_enum! {
    /// Element type, as encoded in a frame. Names are those of Rust and of the crate `half`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum DType {
        /// IEEE 754 binary32.
        F32 = 1, "f32";
        /// IEEE 754 binary64.
        F64 = 2, "f64";
        /// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
        F16 = 3, "f16";
        /// bfloat16, the upper half of a binary32: 8 bits of exponent, 7 of fraction.
        Bf16 = 4, "bf16";
        /// 8 bits, two's complement.
        I8 = 5, "i8";
        /// 8 bits, unsigned.
        U8 = 6, "u8";
        /// 16 bits, two's complement.
        I16 = 7, "i16";
        /// 16 bits, unsigned.
        U16 = 8, "u16";
        /// 32 bits, two's complement.
        I32 = 9, "i32";
        /// 32 bits, unsigned.
        U32 = 10, "u32";
        /// 64 bits, two's complement.
        I64 = 11, "i64";
        /// 64 bits, unsigned.
        U64 = 12, "u64";
    }
}

impl DType {
    /// Floating-point types.
    pub const FLOATS: [Self; 4] = [Self::F32, Self::F64, Self::F16, Self::Bf16];

    /// Number of bytes of a value.
    #[must_use]
    pub const fn n_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Returns whether the type is one of [`FLOATS`](Self::FLOATS).
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Evaluates `$body` with `$T` as the type that `$dtype` names. Other crates also give a value for
/// types that are added later.
#[doc(hidden)]
#[macro_export]
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr $(, else $none:expr)?) => {
        $crate::element::with_type!(
            $dtype, $T, $body;
            F32 f32, F64 f64, F16 $crate::element::f16, Bf16 $crate::element::bf16,
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64;
            $(_ => $none,)?
        )
    };
    ($dtype:expr, $T:ident, $body:expr; $($variant:ident $type:path),*; $($else:tt)*) => {
        match $dtype {
            $($crate::element::DType::$variant => {
                type $T = $type;
                $body
            })*
            $($else)*
        }
    };
}
#[doc(hidden)]
pub use with_type;

/// Calls the macro `$make` with the list of all types.
macro_rules! each_type {
    ($make:ident) => {
        $make! {
            f32 f64 $crate::element::f16 $crate::element::bf16 i8 u8 i16 u16 i32 u32 i64 u64
        }
    };
}
pub(crate) use each_type;

/// Evaluates `$body` with `$T` as the float that `$dtype` names; evaluates `$none` for integers.
#[doc(hidden)]
#[macro_export]
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr, else $none:expr) => {
        $crate::element::with_type!(
            $dtype, $T, $body;
            F32 f32, F64 f64, F16 $crate::element::f16, Bf16 $crate::element::bf16;
            _ => $none,
        )
    };
}
pub(crate) use with_float;

/// A type that Foldwire can move and reduce: the [floats](Float) `f32`, `f64`,
/// [`f16`](struct@f16) and [`bf16`], and integers from `i8` to `u64`.
///
/// Integers travel and are reduced exactly: the codec, the pipeline and the bound of a
/// [`Plan`](crate::Plan) do not apply to them. Sums and products wrap around, so the order of
/// operands does not matter. Calls refuse [`Op::Avg`](crate::Op::Avg) on integers.
///
/// ```
/// use foldwire::{Communicator, Error, Op, Plan, Transport};
///
/// fn total<X: Transport>(comm: &mut Communicator<X>, counts: &mut [u64]) -> Result<(), Error> {
///     comm.all_reduce(counts, Op::Sum, &Plan::raw()).map(drop)
/// }
/// ```
///
/// The compiler refuses types whose width depends on the machine, and suggests a replacement:
/// ```compile_fail,E0277
/// use foldwire::{Communicator, Op, Plan, Transport};
///
/// fn sum<X: Transport>(comm: &mut Communicator<X>, counts: &mut [usize]) {
///     let _ = comm.all_reduce(counts, Op::Sum, &Plan::raw());
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "collectives move floats and integers of a fixed width, not `{Self}`",
    label = "not an element of a collective",
    note = "they move `f16`, `bf16`, `f32`, `f64`, `i8`, `u8` … `i64`, `u64`: `usize` as `u64`, \
            `bool` as `u8`"
)]
pub trait Element:
    bytemuck::Pod + PartialOrd + fmt::Debug + Send + Sync + sealed::Value + 'static
{
    /// Type code in a frame.
    const DTYPE: DType;
    /// Number of bytes of one value.
    const BYTES: usize = size_of::<Self>();
    /// Type in which error feedback stores rounding errors: `f32` for floats of up to 32 bits,
    /// `f64` for `f64`. Integers, which have no rounding errors, use their own type.
    type Residue: bytemuck::Pod + Default + PartialEq + fmt::Debug + Send + Sync;
}

/// A floating-point type: `f32`, `f64`, [`f16`](struct@f16) or [`bf16`].
///
/// The types of 16 bits come from the crate `half`. Sums have 11 binary digits in `f16` and 8 in
/// `bf16`, and the largest `f16` is 65504: docs/guarantees.md explains the consequences.
pub trait Float: Element + sealed::OnLattice {
    /// Unit roundoff u: the relative error of one rounding, 2⁻²⁴ for `f32`, 2⁻⁵³ for `f64`, 2⁻¹¹
    /// for `f16`, 2⁻⁸ for `bf16`.
    const UNIT_ROUNDOFF: f64;
    /// Smallest positive value η, which is subnormal: 2⁻¹⁴⁹ for `f32`, 2⁻¹⁰⁷⁴ for `f64`, 2⁻²⁴ for
    /// `f16`, 2⁻¹³³ for `bf16`.
    const SMALLEST: f64;

    /// Rounds `value` to the nearest value of this type.
    #[must_use]
    fn from_f64(value: f64) -> Self;

    /// Returns the value as `f64`, exactly.
    #[must_use]
    fn to_f64(self) -> f64;
}

/// An integer type, of 8 to 64 bits, with or without a sign.
pub trait Integer:
    Element + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Ord
{
}

/// Implements `Value` for a float through the functions of `op`.
macro_rules! float_value {
    ($float:ident, zero: $zero:expr, one: $one:expr) => {
        impl $crate::element::sealed::Value for $float {
            const ZERO: Self = $zero;
            const ONE: Self = $one;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                $crate::op::sum(self, other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                $crate::op::product(self, other)
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                $crate::op::minimum(self, other)
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                $crate::op::maximum(self, other)
            }

            fn add_all(acc: &mut [Self], other: &[Self]) {
                $crate::op::add_all(acc, other);
            }

            fn on_bits(_: $crate::op::OpCode) -> Option<$crate::op::Op<'static, Self>> {
                None
            }

            fn weight(n_operands: u32) -> Self {
                $crate::op::weight(n_operands)
            }

            #[inline(always)]
            fn weighted(self, weight: Self) -> Self {
                $crate::op::weighted(self, weight)
            }

            fn divide(sums: &mut [Self], n_operands: u32, weight: Self) {
                $crate::op::divide(sums, $crate::op::divisor_of_sums(n_operands, weight));
            }
        }
    };
}
use float_value;

/// Implements the traits of a float that computes in its own type. `$max_code` is
/// [`MAX_CODE`](sealed::OnLattice::MAX_CODE) and `$rounder` is [`ROUNDER`](sealed::Wide::ROUNDER).
macro_rules! element {
    (
        $float:ident, $code:ident, $bits:ident, $dtype:ident, $max_code:expr, $rounder:expr
    ) => {
        float_value!($float, zero: 0.0, one: 1.0);

        impl Element for $float {
            const DTYPE: DType = DType::$dtype;
            type Residue = Self;
        }

        impl Float for $float {
            const UNIT_ROUNDOFF: f64 = $float::EPSILON as f64 / 2.0;
            const SMALLEST: f64 = $float::from_bits(1) as f64;

            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }

        impl sealed::OnLattice for $float {
            type Code = $code;
            type Wide = Self;
            type Bits = $bits;
            const MAX: Self = $float::MAX;
            const MIN: Self = $float::MIN;
            const QUIET_NAN: Self = $float::NAN;
            const MAX_CODE: f64 = $max_code;
            const FRACTION_BITS: u32 = $float::MANTISSA_DIGITS - 1;
            const IS_NARROW: bool = false;

            #[inline(always)]
            fn abs(self) -> Self {
                $float::abs(self)
            }

            #[inline(always)]
            fn bits(self) -> $bits {
                self.to_bits()
            }

            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                $float::from_bits(bits)
            }

            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }

            #[inline(always)]
            fn is_negative_zero(self) -> bool {
                self == 0.0 && self.is_sign_negative()
            }

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(value: Self) -> Self {
                value
            }

            #[inline]
            fn kernels(level: crate::kernel::Level) -> &'static Kernels<Self> {
                crate::kernel::$float(level)
            }
        }

        impl sealed::Wide for $float {
            type Code = $code;
            const ONE: Self = 1.0;
            const MAX: Self = $float::MAX;
            const ROUNDER: Self = $rounder;

            fn nearest(value: f64) -> Self {
                value as Self
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                $float::abs(self)
            }

            #[inline(always)]
            fn from_code(code: $code) -> Self {
                code as Self
            }

            #[inline(always)]
            fn to_code(self) -> $code {
                self as $code
            }

            fn next_down(self) -> Self {
                $float::next_down(self)
            }

            fn next_up(self) -> Self {
                $float::next_up(self)
            }

            fn is_normal(self) -> bool {
                $float::is_normal(self)
            }
        }
    };
}

macro_rules! word {
    ($($word:ident),*) => {$(
        impl sealed::Word for $word {
            const BITS: u32 = $word::BITS;
            const ZERO: Self = 0;
            const ONES: Self = $word::MAX;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn halved(self) -> Self {
                (self.cast_signed() >> 1).cast_unsigned()
            }

            #[inline(always)]
            fn shifted_up(self, n: Self) -> Self {
                if n < $word::BITS as Self { self << n } else { 0 }
            }

            #[inline(always)]
            fn shifted_down(self, n: Self) -> Self {
                if n < $word::BITS as Self { self >> n } else { 0 }
            }

            #[inline(always)]
            fn reversed(self) -> Self {
                self.reverse_bits()
            }

            #[inline(always)]
            fn leading_zeros(self) -> u32 {
                $word::leading_zeros(self)
            }

            #[inline(always)]
            fn trailing_zeros(self) -> Self {
                if $word::BITS != 32 {
                    return $word::trailing_zeros(self) as Self;
                }
                // Vectors lack an instruction for it, but convert the lowest 1 to a float.
                let lowest = (self & self.wrapping_neg()) as u32;
                let exponent = (lowest.cast_signed() as f32).to_bits() >> 23 & 0xff;
                exponent.wrapping_sub(127) as Self
            }

            #[inline(always)]
            fn to_u64(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn from_u64(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}

word!(u16, u32, u64);
element!(f32, i32, u32, F32, 2_097_152.0, 12_582_912.0);
element!(f64, i64, u64, F64, 1_125_899_906_842_624.0, 6_755_399_441_055_744.0);
