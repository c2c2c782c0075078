//! Sums of floats without rounding: a fixed-point number as wide as the range of `f64`.
//!
//! Every finite `f64` is an integer times 2⁻¹⁰⁷⁴, and so is every sum of them. [`ExactSum`] holds
//! that integer in 68 digits of 32 bits, each in an `i64`. A value adds to two or three digits; 2³⁰
//! values fit before carries must move (*lazy carry*). Since nothing is rounded, the order of the
//! values does not matter. [`ExactSum::to_f64`] rounds once, to nearest even.
//!
//! Arrays take a shorter way ([`slices`]): floats split into multiples of a power of two, whose
//! sums are exact in floats, so that the compiler vectorizes them. Bits that the slices do not hold
//! are added digit by digit. Many short sums at once ([`batch`]) do without digits, too.
//!
//! Cost: about 3 ns a value digit by digit, and 0.3 to 0.5 ns in slices of long arrays.
//!
//! Sources: U. Kulisch, "Computer Arithmetic and Validity" (2013), for the accumulator; R. Neal,
//! "Fast exact summation using small and large superaccumulators" (2015), for lazy carry; J. Demmel
//! and H. D. Nguyen, "Parallel reproducible summation" (2015), for the slices.

#[cfg(any(test, feature = "alloc"))]
mod batch;
#[cfg(any(test, feature = "alloc"))]
mod short;
mod slices;
#[cfg(test)]
pub(crate) mod tests;

use crate::element::Float;
use crate::element::sealed::Word;
use core::fmt;
use core::hint::black_box;
use core::ops::Range;
use slices::Slicer;

#[cfg(any(test, feature = "alloc"))]
pub(crate) use batch::{BatchSums, LANES};
#[cfg(any(test, feature = "alloc"))]
pub(crate) use short::{NONE, Short};

#[cfg(feature = "alloc")]
pub(crate) use batch::{Batch, MAX_VALUES};

/// Number of digits. 2098 bits hold every finite value; the others hold carries of 2⁷⁷ values.
pub(crate) const N_DIGITS: usize = 68;
/// The used digits of a sum of no values. Its start exceeds its end, so that both can be extended.
const NONE_USED: Range<usize> = Range { start: N_DIGITS, end: 0 };
/// Number of bits of a digit.
const DIGIT_BITS: u32 = 32;
const DIGIT_MASK: i64 = (1 << DIGIT_BITS) - 1;
/// Number of bits of a sum, with its sign.
pub(crate) const N_BITS: u32 = N_DIGITS as u32 * DIGIT_BITS;
/// Number of values that digits can take before carries must move: each adds less than 2³².
const MAX_PENDING: u32 = 1 << 30;
/// Number of bits of the fraction of an `f64`.
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// Values of a sum that digits do not show, as bits of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(pub(crate) u8);

impl Seen {
    pub(crate) const INFINITY: Self = Self(1);
    pub(crate) const NEG_INFINITY: Self = Self(2);
    pub(crate) const NEG_ZERO: Self = Self(4);
    /// Any finite value but −0.
    pub(crate) const FINITE: Self = Self(8);
    /// A NaN counts as both infinities, whose sum is NaN too.
    pub(crate) const NAN: Self = Self(1 | 2);

    pub(crate) const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns whether digits do not matter, or are zero.
    #[cfg(feature = "alloc")]
    #[inline(always)]
    pub(crate) const fn is_special(self, is_zero: bool) -> bool {
        self.0 & Self::NAN.0 != 0 || is_zero
    }

    /// Returns the sum, which is `finite` unless digits do not matter or are zero: then it is NaN,
    /// an infinity, or a zero.
    #[inline(always)]
    pub(crate) fn sum(self, is_zero: bool, finite: f64) -> f64 {
        // Bits instead of cases, so that loops over sums are vectorized.
        let [up, down] = [self.0 & 1, self.0 >> 1 & 1].map(u64::from);
        let special = f64::INFINITY.to_bits() | (up & down) << (FRACTION_BITS - 1);
        let special = special | (down & !up) << 63;
        let zero = u64::from(self.0 == Self::NEG_ZERO.0) << 63;
        let bits = if is_zero { zero } else { finite.to_bits() };
        f64::from_bits(if up | down == 0 { bits } else { special })
    }
}

/// A sum of floats without any rounding.
///
/// The sum of no values is 0. It is −0 if there are values and all of them are −0; else a sum of
/// zero is +0. It is NaN if a value is NaN, or if there are infinities of both signs. Values of
/// `f32` and of the types of 16 bits are added exactly, too.
///
/// ```
/// use foldwire::ExactSum;
///
/// let mut sum = ExactSum::new();
/// sum.add_all(&[1e308, 1e308, 1.0, -1e308, -1e308, 1e-300]);
/// assert_eq!(sum.to_f64(), 1.0);
/// sum.add_all(&[-1.0]);
/// assert_eq!(sum.to_f64(), 1e-300);
/// ```
#[derive(Clone)]
pub struct ExactSum {
    /// The sum is Σ digits\[i\] · 2^(32·i − 1074). After `carry`, only the highest used digit is
    /// negative or has more than 32 bits.
    digits: [i64; N_DIGITS],
    /// Digits outside are 0.
    used: Range<usize>,
    /// Number of values since carries have moved.
    n_pending: u32,
    seen: Seen,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ExactSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExactSum").field(&self.to_f64()).finish()
    }
}

impl ExactSum {
    /// Creates a sum of no values.
    #[must_use]
    pub const fn new() -> Self {
        Self { digits: [0; N_DIGITS], used: NONE_USED, n_pending: 0, seen: Seen(0) }
    }

    /// Adds one value.
    #[inline]
    pub fn add<T: Float>(&mut self, value: T) {
        match parts(value) {
            Parts::Finite { significand, at, is_negative } => {
                self.add_at(significand, at, is_negative);
            }
            Parts::Special(seen) => self.seen.add(seen),
        }
    }

    /// Adds ±`significand` · 2^(`at` − 1074). The significand is at most 53 bits long.
    #[inline]
    fn add_at(&mut self, significand: u64, at: u32, is_negative: bool) {
        let first = (at / DIGIT_BITS) as usize;
        let shifted = u128::from(significand) << (at % DIGIT_BITS);
        let sign = -i64::from(is_negative);
        let signed = |digit: u128| ((digit as i64 & DIGIT_MASK) ^ sign) - sign;
        if let Some(digits) = self.digits.get_mut(first..first + 3) {
            digits[0] += signed(shifted);
            digits[1] += signed(shifted >> DIGIT_BITS);
            digits[2] += signed(shifted >> (2 * DIGIT_BITS));
        }
        self.used = self.used.start.min(first)..self.used.end.max(first + 3);
        self.seen.add(Seen::FINITE);
        self.n_pending += 1;
        if self.n_pending == MAX_PENDING {
            self.carry();
        }
    }

    /// Adds all values.
    pub fn add_all<T: Float>(&mut self, values: &[T]) {
        if values.len() < slices::MIN_VALUES || !calculates_exactly() {
            values.iter().for_each(|&value| self.add(value));
            return;
        }
        let mut slicer = Slicer::new();
        values.chunks(slices::CHUNK).for_each(|chunk| slicer.add(self, chunk));
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        self.carry();
        other.carry();
        for (digit, &more) in self.digits.iter_mut().zip(&other.digits) {
            *digit += more;
        }
        let start = self.used.start.min(other.used.start);
        self.used = start..self.used.end.max(other.used.end);
        self.seen.add(other.seen);
        self.carry();
    }

    /// Returns the sum, rounded once, to the nearest `f64`; a tie goes to the even one. A sum
    /// beyond the largest finite value becomes infinite as in IEEE 754, here at the end only.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        let mut sum = self.clone();
        let Some((is_negative, highest)) = sum.make_absolute() else {
            return self.seen.sum(true, 0.0);
        };
        // The highest four digits hold at least 97 bits of the sum.
        let lowest = highest.saturating_sub(3);
        let significand = sum.digits_from(lowest);
        let is_inexact = sum.digits[..lowest].iter().any(|&digit| digit != 0);
        let at = lowest as u32 * DIGIT_BITS;
        self.seen.sum(false, rounded(is_negative, significand, at, is_inexact))
    }

    pub(crate) const fn seen(&self) -> Seen {
        self.seen
    }

    /// Moves carries.
    fn carry(&mut self) {
        self.n_pending = 0;
        if self.used.is_empty() {
            return;
        }
        let mut carry = 0;
        for digit in &mut self.digits[self.used.clone()] {
            let sum = *digit + carry;
            (*digit, carry) = (sum & DIGIT_MASK, sum >> DIGIT_BITS);
        }
        // Put the last carry, which has the sign, back where it came from or one digit higher.
        let end = self.used.end;
        match carry {
            -1 | 0 => self.digits[end - 1] |= carry << DIGIT_BITS,
            _ if end < N_DIGITS => {
                self.digits[end] = carry;
                self.used.end += 1;
            }
            // Less than 2⁷⁷ values cannot get here.
            _ => self.digits[end - 1] |= carry << DIGIT_BITS,
        }
    }

    /// Moves carries, and makes the sum positive. Returns whether it was negative, and the index of
    /// its highest digit; `None` if it is 0.
    fn make_absolute(&mut self) -> Option<(bool, usize)> {
        self.carry();
        let is_negative = !self.used.is_empty() && self.digits[self.used.end - 1] < 0;
        if is_negative {
            self.negate();
        }
        let digits = self.digits.get(self.used.clone())?;
        let highest = digits.iter().rposition(|&digit| digit != 0)?;
        Some((is_negative, self.used.start + highest))
    }

    /// Returns the four digits from `lowest` as one number. They must be positive.
    fn digits_from(&self, lowest: usize) -> u128 {
        let four = self.digits.iter().skip(lowest).take(4).rev();
        four.fold(0, |number, &digit| number << DIGIT_BITS | digit as u128 & DIGIT_MASK as u128)
    }

    /// Makes this a sum of no values again.
    pub(crate) fn clear(&mut self) {
        if let Some(digits) = self.digits.get_mut(self.used.clone()) {
            digits.fill(0);
        }
        (self.used, self.n_pending, self.seen) = (NONE_USED, 0, Seen(0));
    }

    /// Makes the sum positive, and writes its bits from `first` · `n_bits` on, with its former
    /// sign, as numbers of `n_bits` bits, at most 62.
    pub(crate) fn take_numbers(&mut self, n_bits: u32, first: usize, numbers: &mut [i64]) {
        numbers.fill(0);
        let Some((is_negative, highest)) = self.make_absolute() else { return };
        let begin = self.used.start as u32 * DIGIT_BITS / n_bits;
        let end = ((highest as u32 + 1) * DIGIT_BITS).div_ceil(n_bits);
        for place in begin..end {
            let index = (place as usize).checked_sub(first);
            if let Some(number) = index.and_then(|index| numbers.get_mut(index)) {
                let at = place * n_bits;
                let four = self.digits_from((at / DIGIT_BITS) as usize) >> (at % DIGIT_BITS);
                let magnitude = four as i64 & ((1 << n_bits) - 1);
                *number = if is_negative { -magnitude } else { magnitude };
            }
        }
    }

    /// Adds `number` · 2^(`at` − 1074), without bits beyond the highest digit.
    pub(crate) fn add_number(&mut self, number: i64, at: u32) {
        if number == 0 {
            return;
        }
        let first = ((at / DIGIT_BITS) as usize).min(N_DIGITS);
        let end = (first + 3).min(N_DIGITS);
        let mut rest = i128::from(number) << (at % DIGIT_BITS);
        for digit in &mut self.digits[first..end] {
            *digit += rest as i64 & DIGIT_MASK;
            rest >>= DIGIT_BITS;
        }
        if let Some(last) = self.digits[first..end].last_mut() {
            *last += (rest as i64) << DIGIT_BITS;
        }
        self.used = self.used.start.min(first)..self.used.end.max(end);
        self.n_pending += 1;
    }

    pub(crate) const fn set_seen(&mut self, seen: Seen) {
        self.seen = seen;
    }

    /// Changes the sign, and moves carries.
    fn negate(&mut self) {
        self.digits[self.used.clone()].iter_mut().for_each(|digit| *digit = -*digit);
        self.carry();
    }
}

/// A value as an integer, or what is no integer or 0.
enum Parts {
    /// ±`significand` · 2^(`at` − 1074). The significand has at most 53 bits and is not 0.
    Finite {
        significand: u64,
        at: u32,
        is_negative: bool,
    },
    Special(Seen),
}

/// Reads the bits of a value instead of calculating, as programs may have switched subnormals off.
#[inline(always)]
fn parts<T: Float>(value: T) -> Parts {
    let bits = value.bits().to_u64();
    let fraction_bits = T::FRACTION_BITS;
    let sign_at = <T::Bits as Word>::BITS - 1;
    let largest = (1 << (sign_at - fraction_bits)) - 1;
    let exponent = (bits >> fraction_bits) & largest;
    let fraction = bits & ((1 << fraction_bits) - 1);
    let is_negative = bits >> sign_at == 1;
    if exponent == largest {
        return Parts::Special(match (fraction, is_negative) {
            (0, false) => Seen::INFINITY,
            (0, true) => Seen::NEG_INFINITY,
            _ => Seen::NAN,
        });
    }
    if exponent == 0 && fraction == 0 {
        return Parts::Special(if is_negative { Seen::NEG_ZERO } else { Seen::FINITE });
    }
    let significand = fraction | u64::from(exponent > 0) << fraction_bits;
    let at = lowest_bit::<T>() + exponent.max(1) as u32 - 1;
    Parts::Finite { significand, at, is_negative }
}

/// Place of the lowest bit of `T`'s smallest value, in units of 2⁻¹⁰⁷⁴.
const fn lowest_bit<T: Float>() -> u32 {
    let bits = T::SMALLEST.to_bits();
    let exponent = (bits >> FRACTION_BITS) as u32;
    // The smallest value is a power of two: that of `f64` is subnormal, all others are normal.
    if exponent == 0 { bits.trailing_zeros() } else { exponent - 1 + FRACTION_BITS }
}

/// Returns whether this thread calculates as IEEE 754 says, and rounds to nearest. Compilers of
/// Fortran and C switch subnormal numbers off on request, for the whole program.
fn calculates_exactly() -> bool {
    if cfg!(all(target_arch = "x86", not(target_feature = "sse2"))) {
        return false;
    }
    // An addition of subnormal numbers takes no longer than others, unlike a multiplication.
    let [one, two] = [1, 2].map(|bits| black_box(f64::from_bits(bits)));
    let keeps_subnormals = (one + two).to_bits() == 3;
    // No other rounding mode does both.
    let quarter = black_box(f64::EPSILON / 4.0);
    let rounds_down = 1.0 + quarter == 1.0;
    let rounds_up = 1.0 + 3.0 * quarter == 1.0 + f64::EPSILON;
    keeps_subnormals & rounds_down & rounds_up
}

/// A number below 2¹²⁸: its lower and its upper 64 bits. Loops over them are vectorized.
pub(crate) type Pair = [u64; 2];

/// Multiplies by 2^`by` modulo 2¹²⁸.
#[cfg(feature = "alloc")]
#[inline(always)]
pub(crate) const fn up([lower, upper]: Pair, by: u64) -> Pair {
    let carried = shr(lower, 64_u64.wrapping_sub(by)) | shl(lower, by.wrapping_sub(64));
    [shl(lower, by), shl(upper, by) | carried]
}

/// Divides by 2^`by`.
#[cfg(any(test, feature = "alloc"))]
#[inline(always)]
pub(crate) const fn down([lower, upper]: Pair, by: u64) -> Pair {
    let carried = shl(upper, 64_u64.wrapping_sub(by)) | shr(upper, by.wrapping_sub(64));
    [shr(lower, by) | carried, shr(upper, by)]
}

/// `x` · 2^`by` modulo 2⁶⁴, for any `by`.
#[inline(always)]
const fn shl(x: u64, by: u64) -> u64 {
    if by < 64 { x << by } else { 0 }
}

/// `x` / 2^`by`, for any `by`.
#[inline(always)]
const fn shr(x: u64, by: u64) -> u64 {
    if by < 64 { x >> by } else { 0 }
}

/// Returns ⌊log₂ x⌋, by the exponent of a float; any number if `x` is 0.
#[inline(always)]
const fn log2(x: u64) -> u64 {
    // Without the bit below the highest one, x is not rounded up to a power of two.
    let exponent = ((x & !(x >> 1)) as f64).to_bits() >> FRACTION_BITS;
    exponent.wrapping_sub(f64::MAX_EXP as u64 - 1)
}

/// Returns ±`magnitude` · 2^(`at` − 1074), rounded to the nearest `f64`, ties to even. The true
/// magnitude is larger by less than 1 if it `is_inexact`; then `magnitude` has at least 55 bits.
#[inline]
pub(crate) const fn rounded(is_negative: bool, magnitude: u128, at: u32, is_inexact: bool) -> f64 {
    let pair = [magnitude as u64, (magnitude >> 64) as u64];
    rounded_pair(is_negative, pair, at as u64, is_inexact)
}

/// See [`rounded`]. There are no branches.
#[inline(always)]
pub(crate) const fn rounded_pair(
    is_negative: bool,
    [lower, upper]: Pair,
    at: u64,
    is_inexact: bool,
) -> f64 {
    let sign = (is_negative as u64) << 63;
    let (highest, below, word_at) = if upper > 0 { (upper, lower, 64) } else { (lower, 0, 0) };
    let highest_bit = log2(highest);
    let n_zeros = 63_u64.wrapping_sub(highest_bit);
    // The 64 highest bits. The lowest one is also set if there are more bits below.
    let is_inexact = is_inexact || shl(below, n_zeros) > 0;
    let first = shl(highest, n_zeros) | shr(below, 64_u64.wrapping_sub(n_zeros));
    let first = first | is_inexact as u64;
    // Half of the last place that is kept, or a bit less if that one is even, carries into it.
    let n_dropped = 63 - FRACTION_BITS;
    let kept = first >> n_dropped;
    let dropped = first & ((1 << n_dropped) - 1);
    let carry = (dropped + (1 << (n_dropped - 1)) - 1 + (kept & 1)) >> n_dropped;
    // The implied bit adds 1 to the exponent, and so does a carry out of the fraction.
    let end = at.wrapping_add(word_at).wrapping_add(highest_bit).wrapping_add(1);
    let n_kept = FRACTION_BITS as u64 + 1;
    let normal = (end.wrapping_sub(n_kept) << FRACTION_BITS).wrapping_add(kept + carry);
    let infinity = f64::INFINITY.to_bits();
    let normal = if normal < infinity { normal } else { infinity };
    // At most 53 bits from the lowest one: an integer is its own bit pattern.
    let is_small = upper == 0 && (lower == 0 || end <= n_kept);
    f64::from_bits(sign | if is_small { shl(lower, at) } else { normal })
}
