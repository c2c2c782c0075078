//! Private traits behind the public `Element` and `Float`.

use crate::kernel::{Code, Kernels, Level};
use crate::op::{Op, OpCode};
use core::fmt;
use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Not, Shl, Shr, Sub};

/// Element type as reductions use it.
pub trait Value: Copy {
    const ZERO: Self;
    const ONE: Self;

    // `Op` defines the next four operations. Each gives the same bits in either order of operands.

    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;

    /// Adds `other` to `acc`, value by value.
    fn add_all(acc: &mut [Self], other: &[Self])
    where
        Self: Sized;

    /// Returns the function of an operation on bits; `None` for floats.
    fn on_bits(code: OpCode) -> Option<Op<'static, Self>>
    where
        Self: Sized;

    /// Factor that operands of an average of `n_operands` are multiplied by before they are added.
    fn weight(n_operands: u32) -> Self;
    /// Returns the operand times its weight.
    fn weighted(self, weight: Self) -> Self;
    /// Converts sums of `n_operands` with this weight to averages. Does nothing if `n_operands`
    /// is 1.
    fn divide(sums: &mut [Self], n_operands: u32, weight: Self)
    where
        Self: Sized;
}

/// Float type as codecs use it: conversion to lattice codes, and access to the kernels.
pub trait OnLattice:
    Sized
    + Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// Type of lattice codes.
    type Code: Code;
    /// Type for computations. Each result is rounded once to `Self`.
    type Wide: Wide<Code = Self::Code>;
    /// Type of the float's bit pattern.
    type Bits: Word;
    /// Largest finite value.
    const MAX: Self;
    /// −MAX.
    const MIN: Self;
    const QUIET_NAN: Self;
    /// Largest |code| of one operand (docs/guarantees.md, "Limit on codes").
    const MAX_CODE: f64;
    /// Number of stored bits of the fraction: 23 in `f32`, 52 in `f64`.
    const FRACTION_BITS: u32;
    /// True if [`narrow`](Self::narrow) rounds. Lattices of such types have powers of two as
    /// spacing, so that the points next to a value are representable (docs/guarantees.md, "Types of
    /// 16 bits").
    const IS_NARROW: bool;
    fn abs(self) -> Self;
    fn bits(self) -> Self::Bits;
    fn from_bits(bits: Self::Bits) -> Self;
    fn finite(self) -> bool;
    fn is_negative_zero(self) -> bool;
    /// Converts the value exactly.
    fn widen(self) -> Self::Wide;
    /// Rounds `value` to nearest.
    fn narrow(value: Self::Wide) -> Self;
    fn kernels(level: Level) -> &'static Kernels<Self>
    where
        Self: super::Float;
}

/// Unsigned integer type as wide as a float.
pub trait Word:
    bytemuck::Pod
    + Ord
    + Send
    + Sync
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
    /// Word with all bits set.
    const ONES: Self;
    /// self + other, wrapping.
    fn plus(self, other: Self) -> Self;
    /// self − other, wrapping.
    fn minus(self, other: Self) -> Self;
    /// Half of these bits as a signed number, rounded down.
    fn halved(self) -> Self;
    /// self · 2ⁿ, wrapping; 0 if n ≥ BITS.
    fn shifted_up(self, n: Self) -> Self;
    /// self / 2ⁿ, rounded down; 0 if n ≥ BITS.
    fn shifted_down(self, n: Self) -> Self;
    /// The bits in reverse order.
    fn reversed(self) -> Self;
    fn leading_zeros(self) -> u32;
    /// Number of zeros below the lowest 1. If there is none, a number by which shifts give 0: at
    /// least BITS, and −127, modulo 2^BITS, for words of 32 bits.
    fn trailing_zeros(self) -> Self;
    fn to_u64(self) -> u64;
    /// Truncates `bits` to the low bits.
    fn from_u64(bits: u64) -> Self;
}

/// Float type for computations. Its lattice codes have as many bits as the type itself.
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
    /// Constant 1.5 · 2^(mantissa bits): adding and subtracting it rounds
    /// |x| ≤ 2^(mantissa bits − 1) to the nearest integer, ties to even.
    const ROUNDER: Self;
    /// Rounds `value` to nearest.
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
