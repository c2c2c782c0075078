//! What types of elements are to this crate: its own traits, behind the public ones.

use crate::kernel::{Code, Kernels, Level};
use core::fmt;
use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Not, Shl, Shr, Sub};

/// An element as reductions see it.
pub trait Value: Copy {
    const ZERO: Self;
    const ONE: Self;

    /// As [`Op`](crate::Op) says of each; the same bits in either order.
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;

    /// acc ← acc + other, value by value.
    fn add_all(acc: &mut [Self], other: &[Self])
    where
        Self: Sized;

    /// What operands of an average of so many are multiplied by before they are added.
    fn weight(n_operands: u32) -> Self;
    /// The operand by its weight.
    fn weighted(self, weight: Self) -> Self;
    /// Makes averages of sums of so many operands of this weight; one is left as it is.
    fn divide(sums: &mut [Self], n_operands: u32, weight: Self)
    where
        Self: Sized;
}

/// A float as codecs see it: what becomes a code on a lattice, and the way to the kernels.
pub trait OnLattice:
    Sized
    + Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// Lattice codes.
    type Code: Code;
    /// What is computed in, and rounded once for each result.
    type Wide: Wide<Code = Self::Code>;
    /// The float's bits.
    type Bits: Word;
    /// Largest finite value.
    const MAX: Self;
    /// −MAX.
    const MIN: Self;
    const QUIET_NAN: Self;
    /// Largest |code| of one operand (docs/guarantees.md, "Limit on codes").
    const MAX_CODE: f64;
    /// Bits of the fraction that are stored: 23 of `f32`, 52 of `f64`.
    const FRACTION_BITS: u32;
    /// Whether [`narrow`](Self::narrow) rounds. The lattices of such types are of powers of
    /// two, whose points next to a value are values (docs/guarantees.md, "Types of 16 bits").
    const IS_NARROW: bool;
    fn abs(self) -> Self;
    fn bits(self) -> Self::Bits;
    fn from_bits(bits: Self::Bits) -> Self;
    fn finite(self) -> bool;
    fn is_negative_zero(self) -> bool;
    /// The value, exactly.
    fn widen(self) -> Self::Wide;
    /// Rounded to nearest.
    fn narrow(value: Self::Wide) -> Self;
    fn kernels(level: Level) -> &'static Kernels<Self>
    where
        Self: super::Float;
}

/// An unsigned integer as wide as a float.
pub trait Word:
    bytemuck::Pod
    + Ord
    + fmt::Debug
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    const BITS: u32;
    const ZERO: Self;
    /// All bits.
    const ONES: Self;
    /// self + other, wrapping.
    fn plus(self, other: Self) -> Self;
    /// self − other, wrapping.
    fn minus(self, other: Self) -> Self;
    /// Half of the signed number that these bits are, rounded down.
    fn halved(self) -> Self;
    fn leading_zeros(self) -> u32;
    fn to_u64(self) -> u64;
    /// The low bits.
    fn from_u64(bits: u64) -> Self;
}

/// A type to compute in, with codes as wide as itself.
pub trait Wide:
    Copy
    + PartialOrd
    + fmt::Debug
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + 'static
{
    type Code: Code;
    const ONE: Self;
    const MAX: Self;
    /// 1.5 · 2^(mantissa bits): adding and subtracting it rounds |x| ≤ 2^(mantissa bits − 1) to
    /// the nearest integer, ties to even.
    const ROUNDER: Self;
    /// `value` rounded to nearest.
    fn nearest(value: f64) -> Self;
    fn to_f64(self) -> f64;
    fn abs(self) -> Self;
    fn from_code(code: Self::Code) -> Self;
    /// `self` must be an integer within the code's range.
    fn to_code(self) -> Self::Code;
    fn next_down(self) -> Self;
    fn next_up(self) -> Self;
    fn is_normal(self) -> bool;
}
