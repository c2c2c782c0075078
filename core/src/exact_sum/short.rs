//! Sums as integers of at most 128 bits: from an [`ExactSum`], or straight from short arrays.
//!
//! Cost: about 1 ns a value in arrays of 100.

use super::slices::{SHORT, Slicer};
use super::{DIGIT_BITS, ExactSum, Parts, Seen, calculates_exactly, parts};
use crate::element::Float;
use core::ops::Range;

/// A sum as one number, if it is short enough. `bits` are the places of its lowest bit and behind
/// its highest one, in units of 2⁻¹⁰⁷⁴.
pub(crate) enum Short {
    Zero,
    Fits { is_negative: bool, magnitude: u128, bits: Range<u32> },
    Long(Range<u32>),
}

/// Sums arrays, one after the other.
pub(crate) struct ShortSums {
    /// `None` if this thread does not calculate as IEEE 754 says.
    slicer: Option<Slicer>,
    /// Zero between two sums.
    sum: ExactSum,
}

impl ShortSums {
    pub(crate) fn new() -> Self {
        Self { slicer: calculates_exactly().then(Slicer::new), sum: ExactSum::new() }
    }

    /// Returns the sum of an array, and what the number does not show.
    #[inline]
    pub(crate) fn sum<T: Float>(&mut self, values: &[T]) -> (Short, Seen) {
        match *values {
            [value] => return of_value(value),
            _ if values.len() <= SHORT => {
                if let Some(integer) = self.slicer.as_mut().and_then(|one| one.integer(values)) {
                    return (integer.short(), Seen::FINITE);
                }
            }
            _ => {}
        }
        self.sum.add_all(values);
        let short = (self.sum.take_short(), self.sum.seen());
        self.sum.clear();
        short
    }
}

/// Returns a sum of one value.
#[inline(always)]
pub(crate) fn of_value<T: Float>(value: T) -> (Short, Seen) {
    match parts(value) {
        Parts::Special(seen) => (Short::Zero, seen),
        Parts::Finite { significand, at, is_negative } => {
            let n_zeros = significand.trailing_zeros();
            let begin = at + n_zeros;
            let bits = begin..at + u64::BITS - significand.leading_zeros();
            let magnitude = u128::from(significand >> n_zeros);
            (Short::Fits { is_negative, magnitude, bits }, Seen::FINITE)
        }
    }
}

/// `value` · 2^(`at` − 1074).
pub(super) struct Integer {
    pub(super) value: i128,
    pub(super) at: u32,
}

impl Integer {
    fn short(&self) -> Short {
        let magnitude = self.value.unsigned_abs();
        if magnitude == 0 {
            return Short::Zero;
        }
        let n_zeros = magnitude.trailing_zeros();
        let bits = self.at + n_zeros..self.at + u128::BITS - magnitude.leading_zeros();
        Short::Fits { is_negative: self.value < 0, magnitude: magnitude >> n_zeros, bits }
    }
}

impl ExactSum {
    /// Makes the sum positive, and returns it as a number of at most 128 bits, and where it lies.
    pub(crate) fn take_short(&mut self) -> Short {
        let Some((is_negative, highest)) = self.make_absolute() else { return Short::Zero };
        let is_used = |&at: &usize| self.digits[at] != 0;
        let lowest = (self.used.start..=highest).find(is_used).unwrap_or(highest);
        let bit = |at: usize, bit: u32| at as u32 * DIGIT_BITS + bit;
        let begin = bit(lowest, self.digits[lowest].trailing_zeros());
        let end = bit(highest, i64::BITS - self.digits[highest].leading_zeros());
        if end - begin > u128::BITS {
            return Short::Long(begin..end);
        }
        let skipped = begin % DIGIT_BITS;
        let mut magnitude = self.digits_from(lowest) >> skipped;
        if let Some(&fifth) = self.digits.get(lowest + 4).filter(|_| skipped > 0) {
            magnitude |= (fifth as u128) << (u128::BITS - skipped);
        }
        Short::Fits { is_negative, magnitude, bits: begin..end }
    }
}
