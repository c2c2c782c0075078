//! The short form of a sum: three words, wherever its bits lie (see [above](super)).

use super::{BEGIN_AT, END_AT, FACTS, FIELD, Form, SEEN_AT, WORD_BITS, seen};
use crate::exact_sum::{ExactSum, Short, rounded};

/// Number of words of a sum in short form.
pub(super) const SHORT_WORDS: usize = 3;

impl Form {
    /// Returns ⌈log₂ P⌉ for P ranks.
    pub(super) const fn n_doublings(self) -> u32 {
        WORD_BITS - self.n_bits
    }

    /// M, the modulus of short sums.
    const fn modulus(self) -> u128 {
        (1 << (2 * self.n_bits)) - 1
    }

    pub(super) fn write_short(self, sum: &mut ExactSum, words: &mut [u64; SHORT_WORDS]) {
        let seen = FACTS | u64::from(sum.seen().0) << SEEN_AT;
        let (is_negative, magnitude, bits) = match sum.take_short() {
            Short::Zero => return *words = [seen, 0, 0],
            // Nobody reads these digits, because the bits do not fit.
            Short::Long(bits) => (false, 0, bits),
            Short::Fits { is_negative, magnitude, bits } => (is_negative, magnitude, bits),
        };
        let facts =
            seen | u64::from(bits.end) << END_AT | (FIELD - u64::from(bits.start)) << BEGIN_AT;
        let rotated = self.rotated(magnitude & self.modulus(), bits.start % (2 * self.n_bits));
        let remainder = if is_negative { self.modulus() - rotated } else { rotated };
        let digits = [remainder as u64 & self.mask(), (remainder >> self.n_bits) as u64];
        *words = [facts, digits[0] << 1, digits[1] << 1];
    }

    /// Returns the sum, or `None` if its bits lie too far apart for this form.
    pub(super) fn read_short(self, words: &[u64; SHORT_WORDS]) -> Option<f64> {
        let [facts, digits @ ..] = *words;
        let end = (facts >> END_AT & FIELD) as u32;
        let begin = (FIELD - (facts >> BEGIN_AT & FIELD)) as u32;
        if let Some(special) = seen(facts).special(end == 0) {
            return Some(special);
        }
        if end.saturating_sub(begin) + self.n_doublings() >= 2 * self.n_bits {
            return None;
        }
        let [low, high] = digits.map(|digit| u128::from(digit >> 1));
        let whole = low + (high << self.n_bits);
        let modulus = self.modulus();
        // Twice, as the first sum may have one bit more.
        let folded = |whole| (whole & modulus) + (whole >> (2 * self.n_bits));
        let remainder = match folded(folded(whole)) {
            all if all == modulus => 0,
            other => other,
        };
        let back = (2 * self.n_bits - begin % (2 * self.n_bits)) % (2 * self.n_bits);
        let remainder = self.rotated(remainder, back);
        let is_negative = remainder > modulus / 2;
        let magnitude = if is_negative { modulus - remainder } else { remainder };
        // A sum that cancelled is +0.
        Some(rounded(is_negative, magnitude, begin, false))
    }

    /// Rotates the lowest 2w bits up, by less than 2w: multiplies by 2ⁿ modulo M.
    const fn rotated(self, remainder: u128, n: u32) -> u128 {
        if n == 0 {
            return remainder;
        }
        (remainder << n | remainder >> (2 * self.n_bits - n)) & self.modulus()
    }
}
