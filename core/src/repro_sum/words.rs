//! The words of sums: how they are combined, and the long form (see [above](super)).

use crate::exact_sum::{ExactSum, N_BITS, Seen, rounded};
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};

/// Most words of a sum in long form: numbers have at least 31 bits, as transports have at most 2³¹
/// ranks.
pub(super) const MAX_LONG_WORDS: usize = 1 + N_BITS.div_ceil(31) as usize;

/// Number of bits of a word beside the lowest one.
pub(super) const WORD_BITS: u32 = 63;
/// Marks words of facts.
pub(super) const FACTS: u64 = 1;
/// Places of the fields in a word of facts: the flags of [`Seen`], the end of the bits, the largest
/// beginning minus the beginning, and digits.
pub(super) const SEEN_AT: u32 = 1;
pub(super) const END_AT: u32 = 5;
pub(super) const BEGIN_AT: u32 = 17;
pub(super) const DIGITS_AT: u32 = 29;
pub(super) const FIELD: u64 = 0xfff;
const SEEN_MASK: u64 = 0xf;

/// Combines the words of two ranks.
#[inline(always)]
pub(super) fn combine(a: u64, b: u64) -> u64 {
    let [seen, end, begin] = [SEEN_MASK << SEEN_AT, FIELD << END_AT, FIELD << BEGIN_AT];
    let largest = |mask: u64| (a & mask).max(b & mask);
    let facts = FACTS | ((a | b) & seen) | largest(end) | largest(begin);
    let fields = if (a | b) & FACTS == 0 { 0 } else { (1 << DIGITS_AT) - 1 };
    (a & !fields).wrapping_add(b & !fields) | (facts & fields)
}

/// Combines words of another rank with those in `acc`.
pub(super) fn combine_all(acc: &mut [u64], other: &[u64]) {
    at_level::run(Level::best(), Combine { acc, other });
}

struct Combine<'a> {
    acc: &'a mut [u64],
    other: &'a [u64],
}

impl Task for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (a, &b) in self.acc.iter_mut().zip(self.other) {
            *a = combine(*a, b);
        }
    }
}

/// Returns the flags in a word of facts.
pub(super) const fn seen(facts: u64) -> Seen {
    Seen((facts >> SEEN_AT & SEEN_MASK) as u8)
}

/// The form of words for a number of ranks.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Number of bits of a number in long form.
    pub(super) n_bits: u32,
}

impl Form {
    /// Returns the form for this many ranks, at most 2³¹.
    pub(super) const fn of(size: usize) -> Self {
        let n_doublings = match size {
            0 | 1 => 0,
            more => usize::BITS - (more - 1).leading_zeros(),
        };
        Self { n_bits: WORD_BITS - 1 - n_doublings }
    }

    /// Returns ⌈log₂ P⌉ for P ranks.
    #[cfg(feature = "alloc")]
    pub(super) const fn n_doublings(self) -> u32 {
        WORD_BITS - 1 - self.n_bits
    }

    /// Number of words of a sum in long form.
    pub(super) const fn n_long_words(self) -> usize {
        1 + N_BITS.div_ceil(self.n_bits) as usize
    }

    /// Writes facts and numbers of a sum, and makes it positive.
    pub(super) fn write_long(self, sum: &mut ExactSum, words: &mut [u64]) {
        if let Some((facts, numbers)) = words.split_first_mut() {
            *facts = FACTS | u64::from(sum.seen().0) << SEEN_AT;
            self.write_numbers(sum, 0, numbers);
        }
    }

    pub(super) fn read_long(self, words: &[u64]) -> f64 {
        match words {
            [facts, numbers @ ..] => self.read_numbers(seen(*facts), 0, numbers),
            [] => f64::NAN,
        }
    }

    /// Writes the numbers of a sum from `first` on, and makes it positive.
    pub(super) fn write_numbers(self, sum: &mut ExactSum, first: usize, words: &mut [u64]) {
        sum.take_numbers(self.n_bits, first, bytemuck::cast_slice_mut(words));
        words.iter_mut().for_each(|word| *word <<= 1);
    }

    /// Returns the sum of the numbers from `first` on.
    pub(super) fn read_numbers(self, seen: Seen, first: usize, words: &[u64]) -> f64 {
        let place = |index: usize| (first + index) as u32 * self.n_bits;
        let number = |word: u64| word.cast_signed() >> 1;
        let is_used = |&word: &u64| word != 0;
        let (Some(lowest), Some(highest)) =
            (words.iter().position(is_used), words.iter().rposition(is_used))
        else {
            return seen.sum(true, 0.0);
        };
        if highest - lowest <= 1 {
            let upper = if highest > lowest { number(words[highest]) } else { 0 };
            let whole = (i128::from(upper) << self.n_bits) + i128::from(number(words[lowest]));
            let sum = rounded(whole < 0, whole.unsigned_abs(), place(lowest), false);
            return seen.sum(whole == 0, sum);
        }
        let mut sum = ExactSum::new();
        for (i, &word) in words.iter().enumerate().skip(lowest) {
            sum.add_number(number(word), place(i));
        }
        sum.set_seen(seen);
        sum.to_f64()
    }
}
