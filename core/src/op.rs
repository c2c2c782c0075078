//! Reduction operations, and the definition of each on two values.
//!
//! Swapping the operands must not change a bit of the result, so that ranks that combine in
//! different orders agree. Therefore a sum or product that is NaN becomes the canonical NaN.
//! Minimum and maximum order −0 below +0 and return NaN if an operand is NaN (IEEE 754-2019
//! `minimum` and `maximum`).

mod bits;

use crate::coded_enum::coded_enum;
use crate::element::{Element, Float, sealed::Wide};
use crate::kernel::{Kernel, Level};
use core::fmt;

pub use bits::BitOp;
pub(crate) use bits::of_integers;

/// Function on two arrays of equal length: see [`Op::UserSlices`].
type CombineSlices<'a, T> = dyn Fn(&mut [T], &[T]) + Sync + 'a;

/// Operation that combines values of different ranks.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Op<'a, T> {
    /// Sum Σ xᵢ; modulo 2^bits for integers.
    Sum,
    /// Average Σ xᵢ / n; not for integers.
    Avg,
    /// Smallest value; NaN if any value is NaN.
    Min,
    /// Largest value; NaN if any value is NaN.
    Max,
    /// Product Π xᵢ; modulo 2^bits for integers. Products are not linear, so codecs decompress,
    /// multiply and compress.
    Prod,
    /// User-defined operation on two values. It must be commutative bit for bit, and associative up
    /// to rounding. Codecs decompress, apply it and compress.
    ///
    /// If the function panics and the program catches that, it must drop the operation of the call,
    /// which ends the call on all ranks. Another poll might combine values a second time.
    User(&'a (dyn Fn(T, T) -> T + Sync)),
    /// Operation on the bits of integers: [`Op::BIT_AND`] to [`Op::LOGICAL_XOR`].
    Bits(BitOp<T>),
    /// As [`User`](Self::User), on arrays of equal length: the function combines each value of the
    /// first array with its partner in the second one, and writes the result over it. A loop in the
    /// function may be vectorized.
    UserSlices(&'a (dyn Fn(&mut [T], &[T]) + Sync)),
}

coded_enum! {
    /// Kind of an [`Op`], as encoded in a frame.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum OpCode {
        /// No reduction: values only move.
        None = 0, "none";
        /// See [`Op::Sum`].
        Sum = 1, "sum";
        /// See [`Op::Avg`].
        Avg = 2, "avg";
        /// See [`Op::Min`].
        Min = 3, "min";
        /// See [`Op::Max`].
        Max = 4, "max";
        /// See [`Op::Prod`].
        Prod = 5, "prod";
        /// See [`Op::User`] and [`Op::UserSlices`].
        User = 6, "an operation of the user's";
        /// See [`Op::BIT_AND`].
        BitAnd = 7, "bitwise and";
        /// See [`Op::BIT_OR`].
        BitOr = 8, "bitwise or";
        /// See [`Op::BIT_XOR`].
        BitXor = 9, "bitwise xor";
        /// See [`Op::LOGICAL_AND`].
        LogicalAnd = 10, "logical and";
        /// See [`Op::LOGICAL_OR`].
        LogicalOr = 11, "logical or";
        /// See [`Op::LOGICAL_XOR`].
        LogicalXor = 12, "logical xor";
    }
}

impl OpCode {
    /// Returns whether the operation is on the bits of integers.
    #[must_use]
    pub const fn is_on_bits(self) -> bool {
        self as u8 >= Self::BitAnd as u8
    }

    /// Returns whether the operation needs the values themselves, because it is not linear and
    /// keeps no order. Codecs then decompress.
    #[must_use]
    pub const fn needs_values(self) -> bool {
        matches!(self, Self::Prod | Self::User) || self.is_on_bits()
    }
}

/// Weight of each operand of an average: 2^−(⌈log₂ n⌉ + 1), or 1 for a single operand.
///
/// Operands are multiplied by it before they are added. No sum of weighted operands overflows,
/// rounding included, so an average of finite values is finite. As a power of two, the weight
/// changes no bit of a result unless something underflows.
pub(crate) fn weight<T: Float>(n_operands: u32) -> T {
    let doublings = match n_operands {
        0 | 1 => 0,
        n => u32::BITS - (n - 1).leading_zeros() + 1,
    };
    T::from_f64(libm::ldexp(1.0, -(doublings as i32)))
}

/// Returns an operand times its weight.
#[inline(always)]
pub(crate) fn weighted<T: Float>(x: T, weight: T) -> T {
    T::narrow(x.widen() * weight.widen())
}

/// Returns the number by which to divide a sum of `divisor` weighted operands to get their average.
/// Returns 1 if `divisor` is 1, for a sum that is not averaged.
pub(crate) fn divisor_of_sums<T: Float>(divisor: u32, weight: T) -> T::Wide {
    if divisor == 1 { T::Wide::ONE } else { T::Wide::nearest(divisor.into()) * weight.widen() }
}

/// Divides sums to get averages. A divisor of 1 leaves the values unchanged.
pub(crate) fn divide<T: Float>(values: &mut [T], divisor: T::Wide) {
    if divisor != T::Wide::ONE {
        values.iter_mut().for_each(|x| *x = quotient(*x, divisor));
    }
}

/// Returns sum / divisor. Rounding alone could take an average past ±MAX, so the result is clamped
/// to that range if the sum is finite.
#[inline(always)]
pub(crate) fn quotient<T: Float>(sum: T, divisor: T::Wide) -> T {
    let (sum, max) = (sum.widen(), T::MAX.widen());
    let quotient = T::narrow(sum / divisor);
    if quotient.widen().abs() > max && sum.abs() <= max {
        if sum < T::ZERO.widen() { T::MIN } else { T::MAX }
    } else {
        quotient
    }
}

/// Multiplies operands by their weight.
pub(crate) fn weigh<T: Element>(values: &mut [T], weight: T) {
    if weight != T::ONE {
        values.iter_mut().for_each(|x| *x = x.weighted(weight));
    }
}

/// Operation on lattice codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatticeOp {
    Sum,
    Min,
    Max,
}

impl<T> Op<'_, T> {
    /// Code of the operation in a frame.
    #[must_use]
    pub const fn code(&self) -> OpCode {
        match self {
            Self::Sum => OpCode::Sum,
            Self::Avg => OpCode::Avg,
            Self::Min => OpCode::Min,
            Self::Max => OpCode::Max,
            Self::Prod => OpCode::Prod,
            Self::User(_) | Self::UserSlices(_) => OpCode::User,
            Self::Bits(op) => op.code,
        }
    }

    /// Returns the function on slices, if the operation is one.
    pub(crate) fn on_slices(&self) -> Option<&CombineSlices<'_, T>> {
        match self {
            Self::UserSlices(user) => Some(*user),
            Self::Bits(op) => Some(&op.combine),
            _ => None,
        }
    }

    /// Returns the operation on lattice codes. Only `Sum`, `Avg`, `Min` and `Max` have one.
    #[must_use]
    pub(crate) const fn on_lattice(&self) -> Option<LatticeOp> {
        match self {
            Self::Sum | Self::Avg => Some(LatticeOp::Sum),
            Self::Min => Some(LatticeOp::Min),
            Self::Max => Some(LatticeOp::Max),
            Self::Prod | Self::User(_) | Self::UserSlices(_) | Self::Bits(_) => None,
        }
    }
}

impl<T: Element> Op<'static, T> {
    /// Returns the operation with this code. `None` for operations of the user's, for no reduction,
    /// and for operations on bits if the type is one of floats.
    ///
    /// # Examples
    /// ```
    /// use foldwire::Op;
    /// use foldwire::op::OpCode;
    ///
    /// assert!(matches!(Op::<f32>::of(OpCode::Max), Some(Op::Max)));
    /// assert!(Op::<u8>::of(OpCode::BitXor).is_some());
    /// assert!(Op::<f32>::of(OpCode::BitXor).is_none());
    /// ```
    #[must_use]
    pub fn of(code: OpCode) -> Option<Self> {
        match code {
            OpCode::Sum => Some(Self::Sum),
            OpCode::Avg => Some(Self::Avg),
            OpCode::Min => Some(Self::Min),
            OpCode::Max => Some(Self::Max),
            OpCode::Prod => Some(Self::Prod),
            OpCode::None | OpCode::User => None,
            on_bits => T::on_bits(on_bits),
        }
    }
}

impl<T> fmt::Debug for Op<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.code(), f)
    }
}

/// Returns a + b, with the canonical NaN.
#[inline(always)]
pub(crate) fn sum<T: Float>(a: T, b: T) -> T {
    canonical(a.widen() + b.widen())
}

/// Adds `other` to `acc`, value by value.
pub(crate) fn add_all<T: Float>(acc: &mut [T], other: &[T]) {
    // Compilers vectorize the loop below, but do not use the processors' 16-bit conversions.
    if T::IS_NARROW {
        return Kernel::at(Level::best()).sum(acc, other);
    }
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = sum(*a, b));
}

/// Returns a · b, with the canonical NaN.
#[inline(always)]
pub(crate) fn product<T: Float>(a: T, b: T) -> T {
    canonical(a.widen() * b.widen())
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn canonical<T: Float>(x: T::Wide) -> T {
    if x == x { T::narrow(x) } else { T::QUIET_NAN }
}

/// Returns the smaller value; −0 < +0; NaN if either is NaN.
#[inline(always)]
pub(crate) fn minimum<T: Float>(a: T, b: T) -> T {
    let (x, y) = (a.widen(), b.widen());
    if x < y || (x == y && a.is_negative_zero()) {
        a
    } else if y <= x {
        b
    } else {
        T::QUIET_NAN
    }
}

/// Returns the larger value; −0 < +0; NaN if either is NaN.
#[inline(always)]
pub(crate) fn maximum<T: Float>(a: T, b: T) -> T {
    let (x, y) = (a.widen(), b.widen());
    if x > y || (x == y && b.is_negative_zero()) {
        a
    } else if y >= x {
        b
    } else {
        T::QUIET_NAN
    }
}

/// Expands `$body` once for each operation, with `$f` bound to its function on two values, so that
/// the compiler vectorizes the loop in `$body` for each. A function on slices gets one value at a
/// time, so loops over arrays call it themselves.
macro_rules! with_op {
    ($op:expr, |$f:ident| $body:expr) => {
        match $op {
            $crate::op::Op::Sum | $crate::op::Op::Avg => {
                let $f = T::sum;
                $body
            }
            $crate::op::Op::Min => {
                let $f = T::minimum;
                $body
            }
            $crate::op::Op::Max => {
                let $f = T::maximum;
                $body
            }
            $crate::op::Op::Prod => {
                let $f = T::product;
                $body
            }
            $crate::op::Op::User(user) => {
                let $f = user;
                $body
            }
            on_slices @ ($crate::op::Op::UserSlices(_) | $crate::op::Op::Bits(_)) => {
                let $f = |mut acc, other| {
                    if let Some(combine) = on_slices.on_slices() {
                        combine(core::slice::from_mut(&mut acc), core::slice::from_ref(&other));
                    }
                    acc
                };
                $body
            }
        }
    };
}
pub(crate) use with_op;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::sealed::OnLattice;
    use crate::element::{bf16, f16};

    #[test]
    fn results_do_not_depend_on_operand_order() {
        let values = [0.0, -0.0, 1.5, -3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        for a in values {
            for b in values {
                for f in [sum::<f32>, product, minimum, maximum] {
                    assert_eq!(f(a, b).to_bits(), f(b, a).to_bits(), "{a} {b}");
                }
            }
        }
    }

    /// Checks results for NaN operands of any sign and payload, and NaN from invalid operations.
    fn are_canonical<T: Float>(nans: [T; 3]) {
        let [zero, one, infinity] = [0.0, 1.0, f64::INFINITY].map(T::from_f64);
        let negative = T::from_f64(f64::NEG_INFINITY);
        let is_canonical = |x: T| x.bits() == T::QUIET_NAN.bits();
        for nan in nans {
            for other in [zero, one, infinity, negative, nan, T::QUIET_NAN] {
                for f in [sum::<T>, product, minimum, maximum] {
                    assert!(is_canonical(f(nan, other)) && is_canonical(f(other, nan)));
                }
            }
        }
        // x86 processors return a NaN with the sign bit set for these.
        for [a, b] in [[zero, infinity], [infinity, zero], [zero, negative], [negative, zero]] {
            assert!(is_canonical(product(a, b)));
        }
        assert!(is_canonical(sum(infinity, negative)) && is_canonical(sum(negative, infinity)));
    }

    #[test]
    fn a_result_that_is_nan_is_the_canonical_one() {
        are_canonical([0x7fc0_0001, 0xffc0_0000, 0x7f80_0001].map(f32::from_bits));
        let doubles = [0x7ff8_0000_0000_0001, 0xfff8_0000_0000_0000, 0x7ff0_0000_0000_0001];
        are_canonical(doubles.map(f64::from_bits));
        are_canonical([0x7e01, 0xfe00, 0x7c01].map(f16::from_bits));
        are_canonical([0x7fc1, 0xffc0, 0x7f81].map(bf16::from_bits));
    }

    #[test]
    fn minimum_and_maximum_order_zeros_and_let_nan_win() {
        assert!(minimum(0.0f64, -0.0).is_negative_zero());
        assert!(!maximum(-0.0f64, 0.0).is_negative_zero());
        assert!(minimum(f64::NAN, 1.0).is_nan() && maximum(1.0, f64::NAN).is_nan());
        assert_eq!((minimum(2.0f64, 1.0), maximum(2.0f64, 1.0)), (1.0, 2.0));
    }
}
