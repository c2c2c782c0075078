//! The short form of a sum: two or three words, wherever its bits lie (see [above](super)).

use super::words::{BEGIN_AT, DIGITS_AT, END_AT, FACTS, FIELD, Form, SEEN_AT, WORD_BITS, seen};
use crate::element::Float;
use crate::exact_sum::{Seen, Short, of_value, rounded};
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};
use alloc::vec::Vec;
use core::ops::Range;

/// Most ranks, as ⌈log₂ P⌉, whose sums travel in two words.
const MAX_TWO: u32 = 4;
/// Most bits of a remainder. Some may be added in 128 bits.
const MAX_REMAINDER: u32 = 124;

/// The short form for a number of ranks.
#[derive(Clone, Copy)]
pub(super) struct ShortForm {
    form: Form,
    /// Number of words of a sum.
    pub(super) n_words: usize,
    /// Number of bits of a digit: a whole word without its lowest bit, for sums of P.
    digit_bits: u32,
    /// n: sums are sent modulo 2ⁿ − 1.
    pub(super) n: u32,
    /// M = 2ⁿ − 1.
    modulus: u128,
    /// 2²² / n, rounded up. Divides the place of a bit by n.
    reciprocal: u32,
}

impl ShortForm {
    pub(super) const fn of(form: Form) -> Self {
        let n_words = if form.n_doublings() <= MAX_TWO { 2 } else { 3 };
        let digit_bits = WORD_BITS - form.n_doublings();
        let in_facts = u64::BITS - DIGITS_AT - form.n_doublings();
        let n = in_facts + (n_words as u32 - 1) * digit_bits;
        let n = if n < MAX_REMAINDER { n } else { MAX_REMAINDER };
        let reciprocal = (1 << 22) / n + 1;
        Self { form, n_words, digit_bits, n, modulus: (1 << n) - 1, reciprocal }
    }

    /// See [`write`](Self::write).
    #[inline(always)]
    fn write_one(self, (sum, seen): (Short, Seen), words: &mut [u64]) {
        let Some((facts, digits)) = words.split_first_mut() else { return };
        *facts = FACTS | u64::from(seen.0) << SEEN_AT;
        let (is_negative, magnitude, bits) = match sum {
            Short::Zero => return digits.fill(0),
            // Nobody reads these digits, because the bits do not fit.
            Short::Long(bits) => (false, 0, bits),
            Short::Fits { is_negative, magnitude, bits } => (is_negative, magnitude, bits),
        };
        *facts |= u64::from(bits.end) << END_AT | (FIELD - u64::from(bits.start)) << BEGIN_AT;
        let rotated = self.rotated(magnitude & self.modulus, self.rest(bits.start));
        let mut rest = self.with_sign(is_negative, rotated);
        for digit in digits {
            *digit = (rest as u64 & ((1 << self.digit_bits) - 1)) << 1;
            rest >>= self.digit_bits;
        }
        *facts |= (rest as u64) << DIGITS_AT;
    }

    /// Returns a sum, or `None` if its bits lie too far apart for this form.
    #[inline(always)]
    fn read_one(self, words: &[u64]) -> Option<f64> {
        let (&facts, digits) = words.split_first()?;
        let bits = bits(facts);
        if let Some(special) = seen(facts).special(bits.end == 0) {
            return Some(special);
        }
        let (n, modulus) = (self.n, self.modulus);
        if bits.end.saturating_sub(bits.start) + self.form.n_doublings() >= n {
            return None;
        }
        let folded = |whole: u128| (whole & modulus) + (whole >> n);
        let (mut whole, mut at) = (0, 0);
        for &digit in digits {
            whole += u128::from(digit >> 1) << at;
            at += self.digit_bits;
        }
        let upper = self.rotated((facts >> DIGITS_AT).into(), self.rest(at));
        // Three times: the sum may have a bit more, and so may that of its parts.
        let whole = folded(folded(folded(whole) + upper));
        // The remainder M is 0, too: then the sum is 0, of either sign.
        let down = self.rest(bits.start);
        let remainder = self.rotated(whole, if down == 0 { 0 } else { n - down });
        let is_negative = remainder >> (n - 1) == 1;
        let magnitude = self.with_sign(is_negative, remainder);
        // A sum that cancelled is +0.
        Some(rounded(is_negative && magnitude > 0, magnitude, bits.start, false))
    }

    /// Returns a remainder or, if `is_negative`, its complement M − `remainder`.
    #[inline(always)]
    const fn with_sign(self, is_negative: bool, remainder: u128) -> u128 {
        // No branch, as signs are hard to predict.
        remainder ^ (self.modulus & (is_negative as u128).wrapping_neg())
    }

    /// Returns the rest of a division by n of the place of a bit, less than 2¹².
    #[inline(always)]
    pub(super) const fn rest(self, at: u32) -> u32 {
        at - self.n * ((at * self.reciprocal) >> 22)
    }

    /// Rotates the n bits of a remainder up, by less than n: multiplies by a power of 2 modulo M.
    #[inline(always)]
    const fn rotated(self, remainder: u128, by: u32) -> u128 {
        // In two steps, as `by` may be 0.
        let wrapped = remainder >> 1 >> (self.n - 1 - by);
        (remainder << by | wrapped) & self.modulus
    }

    /// Writes a sum into [`n_words`](Self::n_words) words.
    #[inline]
    pub(super) fn write(self, sum: (Short, Seen), words: &mut [u64]) {
        at_level::run(Level::best(), Write { form: self, sum, words });
    }

    /// Writes sums of one value each.
    pub(super) fn write_values<T: Float>(self, values: &[T], words: &mut [u64]) {
        at_level::run(Level::best(), WriteValues { form: self, values, words });
    }

    /// Reads sums. Returns which were not read, because their bits lie too far apart.
    pub(super) fn read(self, words: &[u64], sums: &mut [f64]) -> Vec<usize> {
        at_level::run(Level::best(), Read { form: self, words, sums })
    }
}

struct Write<'a> {
    form: ShortForm,
    sum: (Short, Seen),
    words: &'a mut [u64],
}

impl Task for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.form.write_one(self.sum, self.words);
    }
}

struct WriteValues<'a, T> {
    form: ShortForm,
    values: &'a [T],
    words: &'a mut [u64],
}

impl<T: Float> Task for WriteValues<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let places = self.words.chunks_exact_mut(self.form.n_words);
        for (&value, words) in self.values.iter().zip(places) {
            self.form.write_one(of_value(value), words);
        }
    }
}

struct Read<'a> {
    form: ShortForm,
    words: &'a [u64],
    sums: &'a mut [f64],
}

impl Task for Read<'_> {
    type Output = Vec<usize>;

    #[inline(always)]
    fn run(self) -> Vec<usize> {
        let mut wide = Vec::new();
        let sums = self.words.chunks_exact(self.form.n_words).zip(self.sums).enumerate();
        for (i, (words, sum)) in sums {
            match self.form.read_one(words) {
                Some(short) => *sum = short,
                None => wide.push(i),
            }
        }
        wide
    }
}

impl Form {
    /// Returns which numbers of the long form contain bits of a sum that has these facts.
    pub(super) fn numbers(self, facts: u64) -> Range<usize> {
        let bits = bits(facts);
        (bits.start / self.n_bits) as usize..bits.end.div_ceil(self.n_bits) as usize
    }
}

/// Returns the bits in use, from a word of facts.
#[inline(always)]
const fn bits(facts: u64) -> Range<u32> {
    let begin = FIELD - (facts >> BEGIN_AT & FIELD);
    begin as u32..(facts >> END_AT & FIELD) as u32
}
