//! The short form of sums: two or three words each, wherever their bits lie (see [above](super)).
//!
//! A message has the facts of all sums, then the first digits of all, then the second ones. Loops
//! without branches pack and read them, over words of 64 bits, so the compiler vectorizes them.
//!
//! Cost: 1.4 ns to pack a value or another sum, and 3 ns to read it, with AVX-512.

use super::words::{BEGIN_AT, DIGITS_AT, END_AT, FACTS, FIELD, Form, SEEN_AT, WORD_BITS, seen};
use crate::element::Float;
use crate::exact_sum::{Batch, LANES, NONE, Pair, Short, down, rounded_pair, up};
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};
use alloc::vec::Vec;
use core::hint::black_box;
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
    digit_bits: u64,
    /// n: sums are sent modulo M = 2ⁿ − 1. It is more than 64.
    pub(super) n: u64,
    /// The upper word of M. The lower one is all ones.
    upper_modulus: u64,
    /// 2²² / n, rounded up. Divides the place of a bit by n.
    reciprocal: u64,
}

impl ShortForm {
    pub(super) const fn of(form: Form) -> Self {
        let n_words = if form.n_doublings() <= MAX_TWO { 2 } else { 3 };
        let digit_bits = WORD_BITS - form.n_doublings();
        let in_facts = u64::BITS - DIGITS_AT - form.n_doublings();
        let n = in_facts + (n_words as u32 - 1) * digit_bits;
        let n = if n < MAX_REMAINDER { n as u64 } else { MAX_REMAINDER as u64 };
        let upper_modulus = (1 << (n - 64)) - 1;
        let (digit_bits, reciprocal) = (digit_bits as u64, (1 << 22) / n + 1);
        Self { form, n_words, digit_bits, n, upper_modulus, reciprocal }
    }

    /// Packs a sum into facts and one or two digits.
    #[inline(always)]
    fn pack(self, sum: Short, n_digits: usize) -> (u64, [u64; 2]) {
        let magnitude = [sum.magnitude[0], sum.magnitude[1] & self.upper_modulus];
        let rotated = self.rotated_down(magnitude, self.n - self.rest(sum.begin));
        let mut rest = self.with_sign(sum.sign, rotated);
        let mut digits = [0; 2];
        for digit in &mut digits[..n_digits] {
            *digit = (rest[0] & ((1 << self.digit_bits) - 1)) << 1;
            rest = down(rest, self.digit_bits);
        }
        let fields = sum.seen << SEEN_AT | sum.end << END_AT | (NONE - sum.begin) << BEGIN_AT;
        (FACTS | fields | rest[0] << DIGITS_AT, digits)
    }

    /// Returns a sum, and whether its bits lie too far apart for this form.
    #[inline(always)]
    fn read_one(self, facts: u64, digits: [u64; 2], n_digits: usize) -> (f64, bool) {
        let [begin, end] = bits(facts);
        let (mut whole, mut at) = ([0; 2], 0);
        for digit in &digits[..n_digits] {
            whole = add(whole, up([digit >> 1, 0], at));
            at += self.digit_bits;
        }
        // The remainder has n − at bits in the facts. Bits above them are worth 2ⁿ, which is 1.
        let (upper, n_upper) = (facts >> DIGITS_AT, self.n - at);
        whole = add(whole, up([upper & ((1 << n_upper) - 1), 0], at));
        whole = add(whole, [upper >> n_upper, 0]);
        whole = self.folded(self.folded(whole));
        // The remainder M is 0, too: then the sum is 0, of either sign.
        let remainder = self.rotated_down(whole, self.rest(begin));
        let sign = (remainder[1] >> (self.n - 65)).wrapping_neg();
        let magnitude = self.with_sign(sign, remainder);
        // A sum that cancelled is +0.
        let is_negative = sign != 0 && magnitude[0] | magnitude[1] != 0;
        let sum = rounded_pair(is_negative, magnitude, begin, false);
        let (seen, is_zero) = (seen(facts), end == 0);
        let n_bits = end.saturating_sub(begin) + u64::from(self.form.n_doublings());
        let is_wide = n_bits >= self.n && !seen.is_special(is_zero);
        (seen.sum(is_zero, sum), is_wide)
    }

    /// Returns a number below 2¹²⁸ modulo M, plus 1 at most.
    #[inline(always)]
    const fn folded(self, [lower, upper]: Pair) -> Pair {
        add([lower, upper & self.upper_modulus], [upper >> (self.n - 64), 0])
    }

    /// Returns a remainder or, if `sign` is all ones and not 0, its complement M − `remainder`.
    #[inline(always)]
    const fn with_sign(self, sign: u64, [lower, upper]: Pair) -> Pair {
        [lower ^ sign, upper ^ (sign & self.upper_modulus)]
    }

    /// Returns the rest of a division by n of the place of a bit, less than 2¹².
    #[inline(always)]
    pub(super) const fn rest(self, at: u64) -> u64 {
        at - self.n * ((at * self.reciprocal) >> 22)
    }

    /// Rotates the n bits of a remainder down, by 0 to n: divides by a power of 2 modulo M.
    #[inline(always)]
    const fn rotated_down(self, remainder: Pair, by: u64) -> Pair {
        let (below, above) = (down(remainder, by), up(remainder, self.n - by));
        [below[0] | above[0], below[1] | (above[1] & self.upper_modulus)]
    }

    /// Reads sums. Returns which were not read, because their bits lie too far apart.
    pub(super) fn read(self, words: &[u64], sums: &mut [f64]) -> Vec<usize> {
        let read = Read { form: self, words, sums: &mut *sums };
        if !at_level::run(Level::best(), read) {
            return Vec::new();
        }
        let n_sums = sums.len();
        let is_wide = |&i: &usize| {
            let digit = |place: usize| words.get(place * n_sums + i).copied().unwrap_or(0);
            self.read_one(words[i], [digit(1), digit(2)], self.n_words - 1).1
        };
        (0..n_sums).filter(is_wide).collect()
    }
}

/// Packs sums into words, in order.
pub(super) struct Writer<'w> {
    form: ShortForm,
    words: &'w mut [u64],
    n_sums: usize,
    n_written: usize,
}

impl<'w> Writer<'w> {
    /// Starts to write this many sums into [`n_words`](ShortForm::n_words) words each.
    pub(super) fn new(form: ShortForm, n_sums: usize, words: &'w mut [u64]) -> Self {
        Self { form, words, n_sums, n_written: 0 }
    }

    /// Writes a batch of sums, or those that are left.
    pub(super) fn write(&mut self, sums: &Batch) {
        let packed = at_level::run(Level::best(), Pack { form: self.form, sums });
        let end = self.n_sums.min(self.n_written + LANES);
        for (plane, packed) in planes(self.words, self.n_sums).into_iter().zip(packed) {
            if let Some(words) = plane.get_mut(self.n_written..end) {
                words.copy_from_slice(&packed[..words.len()]);
            }
        }
        self.n_written = end;
    }
}

/// Packs a batch of sums into facts, first digits and second digits.
struct Pack<'a> {
    form: ShortForm,
    sums: &'a Batch,
}

impl Task for Pack<'_> {
    type Output = [[u64; LANES]; 3];

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { form, sums } = self;
        let [mut facts, mut first, mut second] = [[0; LANES]; 3];
        // The compiler vectorizes loops only if it does not unroll them first.
        let n = black_box(LANES).min(LANES);
        if form.n_words == 2 {
            for lane in 0..n {
                (facts[lane], [first[lane], _]) = form.pack(sums.get(lane), 1);
            }
        } else {
            for lane in 0..n {
                (facts[lane], [first[lane], second[lane]]) = form.pack(sums.get(lane), 2);
            }
        }
        [facts, first, second]
    }
}

/// Splits words of sums into facts, first digits and second digits.
fn planes(words: &mut [u64], n_sums: usize) -> [&mut [u64]; 3] {
    let (facts, digits) = words.split_at_mut(n_sums);
    let (first, second) = digits.split_at_mut(n_sums);
    [facts, first, second]
}

/// Writes sums of one value each.
pub(super) fn write_values<T: Float>(form: ShortForm, values: &[T], words: &mut [u64]) {
    let sums = values.iter().map(
        #[inline(always)]
        |&value| Short::of(value),
    );
    let planes = planes(words, values.len());
    at_level::run(Level::best(), Write { form, planes, sums });
}

/// Packs sums.
struct Write<'a, S> {
    form: ShortForm,
    planes: [&'a mut [u64]; 3],
    sums: S,
}

impl<S: Iterator<Item = Short>> Task for Write<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // The loops do not read `self`, which they might overwrite for all the compiler knows.
        let Self { form, planes: [facts, first, second], sums } = self;
        if second.is_empty() {
            for (sum, (facts, first)) in sums.zip(facts.iter_mut().zip(first)) {
                (*facts, [*first, _]) = form.pack(sum, 1);
            }
        } else {
            let words = facts.iter_mut().zip(first).zip(second);
            for (sum, ((facts, first), second)) in sums.zip(words) {
                (*facts, [*first, *second]) = form.pack(sum, 2);
            }
        }
    }
}

/// Reads sums. Returns whether any has bits too far apart.
struct Read<'a> {
    form: ShortForm,
    words: &'a [u64],
    sums: &'a mut [f64],
}

impl Task for Read<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { form, words, sums } = self;
        let n = sums.len();
        let (facts, digits) = words.split_at(n);
        let (first, second) = digits.split_at(n);
        let mut any_wide = 0;
        let sums = sums.iter_mut().zip(facts).zip(first);
        if second.is_empty() {
            for ((sum, &facts), &first) in sums {
                let (value, is_wide) = form.read_one(facts, [first, 0], 1);
                *sum = value;
                any_wide |= u64::from(is_wide);
            }
        } else {
            for (((sum, &facts), &first), &second) in sums.zip(second) {
                let (value, is_wide) = form.read_one(facts, [first, second], 2);
                *sum = value;
                any_wide |= u64::from(is_wide);
            }
        }
        any_wide != 0
    }
}

impl Form {
    /// Returns which numbers of the long form contain bits of a sum that has these facts.
    pub(super) fn numbers(self, facts: u64) -> Range<usize> {
        let [begin, end] = bits(facts);
        let n_bits = u64::from(self.n_bits);
        (begin / n_bits) as usize..end.div_ceil(n_bits) as usize
    }
}

/// Returns the places of the lowest bit in use and behind the highest one, from a word of facts.
#[inline(always)]
const fn bits(facts: u64) -> [u64; 2] {
    [NONE - (facts >> BEGIN_AT & FIELD), facts >> END_AT & FIELD]
}

/// Adds, modulo 2¹²⁸.
#[inline(always)]
const fn add(a: Pair, b: Pair) -> Pair {
    let lower = a[0].wrapping_add(b[0]);
    let carry = (lower < b[0]) as u64;
    [lower, a[1].wrapping_add(b[1]).wrapping_add(carry)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact_sum::tests::Random;

    /// Packs values for P ranks, and reads them as the sums of one.
    fn run(level: Level, size: usize, values: &[f64]) -> (Vec<u64>, Vec<u64>, bool) {
        let form = ShortForm::of(Form::of(size));
        let mut words = alloc::vec![0; form.n_words * values.len()];
        let (planes, sums) = (planes(&mut words, values.len()), values.iter().copied());
        at_level::run(level, Write { form, planes, sums: sums.map(Short::of) });
        for (batch, start) in values.chunks(LANES).zip((0..).step_by(LANES)) {
            let mut sums = Batch::default();
            batch.iter().enumerate().for_each(|(lane, &value)| sums.set(lane, Short::of(value)));
            let packed = at_level::run(level, Pack { form, sums: &sums });
            for (plane, packed) in words.chunks(values.len()).zip(packed) {
                assert_eq!(plane[start..][..batch.len()], packed[..batch.len()]);
            }
        }
        let mut sums = alloc::vec![0.0; values.len()];
        let is_wide = at_level::run(level, Read { form, words: &words, sums: &mut sums });
        (words, sums.into_iter().map(f64::to_bits).collect(), is_wide)
    }

    #[test]
    fn all_levels_write_and_read_the_same_bits() {
        let mut random = Random(5);
        let mut values = random.values(203, 0..2047);
        values.extend([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 5e-324, -f64::MAX]);
        let bits: Vec<u64> = values.iter().map(|x| x.to_bits()).collect();
        for size in [1, 2, 16, 17, 4096] {
            let all =
                [Level::Scalar, Level::Avx2, Level::Avx512].map(|level| run(level, size, &values));
            assert_eq!(all[0].1, bits, "{size} ranks");
            assert!(!all[0].2 && all.iter().all(|one| *one == all[0]), "{size} ranks");
        }
    }
}
