//! `f16` and `bf16`: storage types, with `f32` for computations.
//!
//! Conversions have no branches, so that compilers vectorize loops over them. They round as IEEE
//! 754 specifies, to nearest with ties to even, like the crate `half`; the tests below compare the
//! two. NaN stays NaN but may change its bits. After F. Giesen, *float ↔ half variants* (2012).
//!
//! Kernels do not add in 16 bits even on processors that can. Sums of codes need more bits, and all
//! levels must give the same bytes. So the kernels are those of `f32`, except for loads and stores.

use super::sealed::OnLattice;
use super::{DType, Element, Float, bf16, f16, float_value};
use crate::kernel::{Kernels, Level};

const F32_FRACTION: u32 = 23;
const F16_FRACTION: u32 = 10;
/// Number of fraction bits that `f32` has more than `f16`.
const SHIFT: u32 = F32_FRACTION - F16_FRACTION;
/// Bits of the `f32` 2^`exponent`.
const fn power(exponent: i32) -> u32 {
    ((127 + exponent) as u32) << F32_FRACTION
}
const F32_INFINITY: u32 = power(128);
const SIGN: u32 = 1 << 31;

#[inline(always)]
fn widen_f16(value: f16) -> f32 {
    /// Difference of the exponents' biases, 127 and 15.
    const BIAS: u32 = 112 << F32_FRACTION;
    let bits = u32::from(value.to_bits());
    let magnitude = (bits & 0x7fff) << SHIFT;
    let exponent = magnitude & (0x1f << F32_FRACTION);
    let normal = magnitude + BIAS;
    // Infinities and NaN have the largest exponent in both types: 31 + 2 · 112 = 255.
    let special = normal + BIAS;
    // (2⁻¹⁴ + fraction) − 2⁻¹⁴ is exact, and normalizes the fraction.
    let subnormal = (f32::from_bits(magnitude + power(-14)) - f32::from_bits(power(-14))).to_bits();
    let finite = if exponent == 0 { subnormal } else { normal };
    let wide = if exponent == 0x1f << F32_FRACTION { special } else { finite };
    f32::from_bits(wide | (bits << 16 & SIGN))
}

#[inline(always)]
fn narrow_f16(value: f32) -> f16 {
    let bits = value.to_bits();
    let sign = bits & SIGN;
    let magnitude = bits ^ sign;
    // Round to nearest: add half a unit minus one, and one more if the last digit is odd. A value
    // that rounds up to 2¹⁶ becomes the bits of infinity.
    let rounded = magnitude.wrapping_add((1 << (SHIFT - 1)) - 1 + (magnitude >> SHIFT & 1));
    let normal = rounded.wrapping_sub(112 << F32_FRACTION) >> SHIFT;
    // The last place of ½ is 2⁻²⁴, the unit of subnormal `f16`, so the addition rounds correctly.
    let half = f32::from_bits(power(-1));
    let subnormal = (f32::from_bits(magnitude) + half).to_bits().wrapping_sub(half.to_bits());
    let special = if magnitude > F32_INFINITY { 0x7e00 } else { 0x7c00 };
    let finite = if magnitude < power(-14) { subnormal } else { normal };
    let narrow = if magnitude >= power(16) { special } else { finite };
    f16::from_bits((narrow | sign >> 16) as u16)
}

#[inline(always)]
fn widen_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

#[inline(always)]
fn narrow_bf16(value: f32) -> bf16 {
    const QUIET: u32 = 1 << (F32_FRACTION - 1);
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let is_nan = bits & !SIGN > F32_INFINITY;
    bf16::from_bits(((if is_nan { bits | QUIET } else { rounded }) >> 16) as u16)
}

/// Converts `value` to `f32`, rounded to odd.
///
/// Rounding the result to fewer digits then equals rounding `value` directly (S. Boldo,
/// G. Melquiond, IEEE TC 57(4), 2008).
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() {
        return nearest;
    }
    // Inexact: take the neighbour towards 0 and set its last digit.
    let beyond = u32::from(back.abs() > value.abs());
    f32::from_bits((nearest.to_bits() - beyond) | 1)
}

/// Implements the traits of a float of 16 bits. `$digits` is its number of significant binary
/// digits.
macro_rules! sixteen {
    ($float:ident, $dtype:ident, $digits:literal, $widen:ident, $narrow:ident) => {
        float_value!($float, zero: $float::ZERO, one: $float::ONE);

        impl Element for $float {
            const DTYPE: DType = DType::$dtype;
            type Residue = f32;
        }

        impl Float for $float {
            const UNIT_ROUNDOFF: f64 = 1.0 / (1u32 << $digits) as f64;
            const SMALLEST: f64 = $float::MIN_POSITIVE_SUBNORMAL.to_f64_const();

            fn from_f64(value: f64) -> Self {
                $narrow(to_odd(value))
            }

            fn to_f64(self) -> f64 {
                $widen(self).into()
            }
        }

        impl OnLattice for $float {
            type Code = i32;
            type Wide = f32;
            type Bits = u16;
            const MAX: Self = $float::MAX;
            const MIN: Self = $float::MIN;
            const QUIET_NAN: Self = $float::NAN;
            const MAX_CODE: f64 = 65_536.0;
            const FRACTION_BITS: u32 = $float::MANTISSA_DIGITS - 1;
            const IS_NARROW: bool = true;

            #[inline(always)]
            fn abs(self) -> Self {
                $float::from_bits(self.to_bits() & 0x7fff)
            }

            #[inline(always)]
            fn bits(self) -> u16 {
                self.to_bits()
            }

            #[inline(always)]
            fn from_bits(bits: u16) -> Self {
                $float::from_bits(bits)
            }

            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }

            #[inline(always)]
            fn is_negative_zero(self) -> bool {
                self.to_bits() == 0x8000
            }

            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(value: f32) -> Self {
                $narrow(value)
            }

            #[inline]
            fn kernels(level: Level) -> &'static Kernels<Self> {
                crate::kernel::$float(level)
            }
        }
    };
}

sixteen!(f16, F16, 11, widen_f16, narrow_f16);
sixteen!(bf16, Bf16, 8, widen_bf16, narrow_bf16);

#[cfg(test)]
mod tests {
    use super::*;

    // `from_f64` of the crate `half` drops digits that decide some ties, so it is no reference.
    macro_rules! conversions {
        ($test:ident, $float:ident, $widen:ident, $narrow:ident) => {
            #[test]
            fn $test() {
                for bits in 0..=u16::MAX {
                    let x = $float::from_bits(bits);
                    let wide = $widen(x);
                    if x.is_nan() {
                        assert!(wide.is_nan() && $narrow(wide).is_nan(), "{bits:04x}");
                        continue;
                    }
                    assert_eq!(wide.to_bits(), x.to_f32().to_bits(), "{bits:04x}");
                    assert_eq!($narrow(wide).to_bits(), bits);
                    assert_eq!(<$float as Float>::from_f64(x.to_f64()).to_bits(), bits);
                    let next = $float::from_bits(bits.wrapping_add(1));
                    if !x.is_finite() || !next.is_finite() {
                        continue;
                    }
                    // The midpoint to the next value, and its neighbours.
                    let middle = f64::midpoint(x.to_f64(), next.to_f64());
                    let even = if bits & 1 == 0 { x } else { next };
                    let (above, below) = (middle.next_up(), middle.next_down());
                    let (upper, lower) = if x < next { (next, x) } else { (x, next) };
                    for (wide, narrow) in [(middle, even), (above, upper), (below, lower)] {
                        let found = <$float as Float>::from_f64(wide);
                        assert_eq!(found.to_bits(), narrow.to_bits(), "{wide:e}");
                    }
                    let middle = middle as f32;
                    for wide in [wide, middle].map(|x| [x.next_down(), x, x.next_up()]).concat() {
                        let expected = $float::from_f32(wide).to_bits();
                        assert_eq!($narrow(wide).to_bits(), expected, "{wide:e}");
                    }
                }
                for wide in [f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, -1e-45] {
                    assert_eq!($narrow(wide).to_bits(), $float::from_f32(wide).to_bits(), "{wide}");
                }
                assert!(<$float as Float>::from_f64(f64::MAX).is_infinite());
                assert_eq!(<$float as Float>::from_f64(-1e-300).to_bits(), 0x8000);
            }
        };
    }
    conversions!(f16_is_widened_and_rounded_as_ieee_754_says, f16, widen_f16, narrow_f16);
    conversions!(bf16_is_widened_and_rounded_as_ieee_754_says, bf16, widen_bf16, narrow_bf16);
}
