//! Sums as integers of at most 128 bits, from an [`ExactSum`] or from one value.

use super::{DIGIT_BITS, ExactSum, Pair, Seen, log2, lowest_bit};
use crate::element::Float;
use crate::element::sealed::Word;

/// A sum as one number, in fields of 64 bits, so that loops over them are vectorized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    /// The sum divided by 2^(`begin` − 1074). It counts only if it has at most 128 bits.
    pub(crate) magnitude: Pair,
    /// All ones if the sum is negative, else 0.
    pub(crate) sign: u64,
    /// Places of the lowest bit and behind the highest one, in units of 2⁻¹⁰⁷⁴. A sum of 0 begins
    /// at [`NONE`], and ends at 0.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// [`Seen`], which the number does not show.
    pub(crate) seen: u64,
}

/// The beginning of a sum that has no bits. It is behind all bits.
pub(crate) const NONE: u64 = 0xfff;

impl Short {
    pub(super) fn zero(seen: Seen) -> Self {
        Self { magnitude: [0; 2], sign: 0, begin: NONE, end: 0, seen: seen.0.into() }
    }

    fn new(is_negative: bool, magnitude: u128, begin: u32, seen: Seen) -> Self {
        let n_zeros = magnitude.trailing_zeros();
        let end = begin + u128::BITS - magnitude.leading_zeros();
        let odd = magnitude >> n_zeros;
        Self {
            magnitude: [odd as u64, (odd >> u64::BITS) as u64],
            sign: u64::from(is_negative).wrapping_neg(),
            begin: (begin + n_zeros).into(),
            end: end.into(),
            seen: seen.0.into(),
        }
    }

    /// Returns a sum of one value. There are no branches.
    #[inline(always)]
    pub(crate) fn of<T: Float>(value: T) -> Self {
        let bits = value.bits().to_u64();
        let sign_at = <T::Bits as Word>::BITS - 1;
        let largest = (1 << (sign_at - T::FRACTION_BITS)) - 1;
        let exponent = (bits >> T::FRACTION_BITS) & largest;
        let fraction = bits & ((1 << T::FRACTION_BITS) - 1);
        let sign = (bits >> sign_at).wrapping_neg();
        let is_normal = u64::from(exponent > 0);
        let significand = fraction | is_normal << T::FRACTION_BITS;
        let significand = if exponent == largest { 0 } else { significand };
        let at = u64::from(lowest_bit::<T>()) + exponent - is_normal;
        let n_zeros = log2(significand & significand.wrapping_neg());
        let end = at.wrapping_add(log2(significand)).wrapping_add(1);
        let is_zero = significand == 0;
        let seen = |seen: Seen| u64::from(seen.0);
        let infinity = if sign == 0 { seen(Seen::INFINITY) } else { seen(Seen::NEG_INFINITY) };
        let special = if fraction == 0 { infinity } else { seen(Seen::NAN) };
        let is_neg_zero = is_zero && sign != 0;
        let finite = if is_neg_zero { seen(Seen::NEG_ZERO) } else { seen(Seen::FINITE) };
        Self {
            magnitude: [significand >> (n_zeros % 64), 0],
            sign,
            begin: if is_zero { NONE } else { at.wrapping_add(n_zeros) },
            end: if is_zero { 0 } else { end },
            seen: if exponent == largest { special } else { finite },
        }
    }
}

impl ExactSum {
    /// Makes the sum positive, and returns it.
    pub(crate) fn take_short(&mut self) -> Short {
        let Some((is_negative, highest)) = self.make_absolute() else {
            return Short::zero(self.seen);
        };
        let is_used = |&at: &usize| self.digits[at] != 0;
        let lowest = (self.used.start..=highest).find(is_used).unwrap_or(highest);
        let bit = |at: usize, bit: u32| at as u32 * DIGIT_BITS + bit;
        let begin = bit(lowest, self.digits[lowest].trailing_zeros());
        let end = bit(highest, i64::BITS - self.digits[highest].leading_zeros());
        let skipped = begin % DIGIT_BITS;
        let mut magnitude = self.digits_from(lowest) >> skipped;
        if let Some(&fifth) = self.digits.get(lowest + 4).filter(|_| skipped > 0) {
            magnitude |= (fifth as u128) << (u128::BITS - skipped);
        }
        Short { end: end.into(), ..Short::new(is_negative, magnitude, begin, self.seen) }
    }
}
