//! Reproducible sums: sums of all ranks' values that are rounded once, at the end.
//!
//! Each rank adds its values to an [`ExactSum`]. One all-reduce of integers adds the sums of the
//! ranks, and every rank rounds the result. As nothing is rounded before, the bits do not depend on
//! the number of ranks, on the order and the distribution of the values, on schedule, transport or
//! machine.
//!
//! The all-reduce combines words of 64 bits with [`combine`]. The lowest bit of a word says how. In
//! words of *digits*, which are even, the other bits are added. For P ranks, digits have w = 63 −
//! ⌈log₂ P⌉ bits, so P of them fit. Words of *facts*, which are odd, take the union of flags and
//! the maximum of each field. There are two forms:
//!
//! - *Long:* all 2176 bits of an [`ExactSum`], in ⌈2176 / w⌉ words, and facts with the flags. Up to
//!   [`MAX_LONG`] sums travel like this.
//! - *Short:* three words a sum. A sum of a rank with bits from 2ᵇ to 2ᵉ is an integer m · 2ᵇ. The
//!   facts contain b and e. The two other words hold the digits of m · 2ᵇ mod M, with M = 2²ʷ − 1.
//!   Since 2²ʷ mod M = 1, that is m rotated by b mod 2w bits, wherever the sum lies. After the
//!   all-reduce, b and e of all ranks are known. If P sums of e − b bits are below M / 2, the sum
//!   of all ranks is the only number in that range with this remainder. For 64 ranks that holds
//!   for e − b ≤ 107 bits; sums of a million doubles of similar size have about 95. The other sums
//!   travel again, in long form, in a second all-reduce. All ranks know which ones.
//!
//! Cost: the local sums, and one all-reduce of 24 bytes for each sum. A second all-reduce of about
//! 300 bytes for each sum whose bits lie too far apart.
//!
//! The idea of sending exponents beside the sums is that of E3SM's and CESM's `shr_reprosum`, which
//! agrees on the exponents by an all-reduce of its own.

#[cfg(feature = "alloc")]
mod short;
#[cfg(all(test, feature = "alloc"))]
mod tests;

use crate::collective::Communicator;
use crate::element::Float;
#[cfg(feature = "alloc")]
use crate::error::Buffer;
use crate::error::Error;
use crate::exact_sum::{ExactSum, N_BITS, N_DIGITS, Seen};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
#[cfg(feature = "alloc")]
use crate::shared::SharedCommunicator;
use crate::transport::Transport;
#[cfg(feature = "alloc")]
use alloc::{vec, vec::Vec};
#[cfg(feature = "alloc")]
use short::SHORT_WORDS;

/// Most sums of a call that travel in long form. They need no second all-reduce.
#[cfg(feature = "alloc")]
const MAX_LONG: usize = 8;
/// Most words of a sum in long form: digits have at least 32 bits, as transports have at most
/// 2³¹ ranks.
const MAX_LONG_WORDS: usize = 1 + N_DIGITS;

/// Number of bits of a word beside the lowest one.
const WORD_BITS: u32 = 63;
/// Marks words of facts.
const FACTS: u64 = 1;
/// Places of the fields in a word of facts: the flags of [`Seen`], the end of the bits, and the
/// largest beginning minus the beginning.
const SEEN_AT: u32 = 1;
const END_AT: u32 = 8;
const BEGIN_AT: u32 = 32;
const FIELD: u64 = 0xfff;
const SEEN_MASK: u64 = 0xf;

/// Combines the words of two ranks.
fn combine(a: u64, b: u64) -> u64 {
    if (a | b) & FACTS == 0 {
        return a.wrapping_add(b);
    }
    let [flags, end, begin] = [SEEN_MASK << SEEN_AT, FIELD << END_AT, FIELD << BEGIN_AT];
    let largest = |mask: u64| (a & mask).max(b & mask);
    FACTS | ((a | b) & flags) | largest(end) | largest(begin)
}

/// The form of words for a number of ranks.
#[derive(Clone, Copy)]
struct Form {
    /// Number of bits of a digit, w.
    n_bits: u32,
}

impl Form {
    /// Returns the form for this many ranks, at most 2³¹.
    const fn of(size: usize) -> Self {
        let n_doublings = match size {
            0 | 1 => 0,
            more => usize::BITS - (more - 1).leading_zeros(),
        };
        Self { n_bits: WORD_BITS - n_doublings }
    }

    const fn mask(self) -> u64 {
        (1 << self.n_bits) - 1
    }

    /// Number of words of a sum in long form.
    const fn n_long_words(self) -> usize {
        1 + N_BITS.div_ceil(self.n_bits) as usize
    }

    fn write_long(self, sum: &ExactSum, words: &mut [u64]) {
        let Some((facts, digits)) = words.split_first_mut() else { return };
        *facts = FACTS | u64::from(sum.seen().0) << SEEN_AT;
        let bits = sum.words();
        let sign = if bits[N_DIGITS - 1] >> 31 == 1 { u32::MAX } else { 0 };
        for (i, digit) in digits.iter_mut().enumerate() {
            let at = i as u32 * self.n_bits;
            let three = (0..3).rev().fold(0u128, |all, i| {
                let word = bits.get(at as usize / 32 + i).copied().unwrap_or(sign);
                all << 32 | u128::from(word)
            });
            *digit = ((three >> (at % 32)) as u64 & self.mask()) << 1;
        }
    }

    fn read_long(self, words: &[u64]) -> f64 {
        let Some((facts, digits)) = words.split_first() else { return f64::NAN };
        let mut bits = [0; N_DIGITS];
        let (mut carry, mut at) = (0u128, 0);
        let mut add = |word: u64, at: u32| {
            for (i, shift) in (at / 32..).zip((0..3).map(|i| 32 * i)) {
                let part = ((u128::from(word) << (at % 32)) >> shift) as u32;
                // Digits start where the previous one ends, so no bit is written twice.
                if let Some(word) = bits.get_mut(i as usize) {
                    *word |= part;
                }
            }
        };
        for &digit in digits {
            carry += u128::from(digit >> 1);
            add(carry as u64 & self.mask(), at);
            carry >>= self.n_bits;
            at += self.n_bits;
        }
        ExactSum::from_words(&bits, seen(*facts)).to_f64()
    }
}

/// Returns the flags in a word of facts.
const fn seen(facts: u64) -> Seen {
    Seen((facts >> SEEN_AT & SEEN_MASK) as u8)
}

/// This rank's values of several sums. The ranks may have different numbers of values.
#[derive(Clone, Copy, Debug)]
pub enum Summands<'a, T> {
    /// An array for each sum.
    Arrays(&'a [&'a [T]]),
    /// Arrays of equal length, one after the other: the rows of a matrix in C's order, or the
    /// columns of one in Fortran's order.
    Rows(&'a [T]),
    /// The values of a sum lie as far apart as there are sums: the columns of a matrix in C's
    /// order.
    Columns(&'a [T]),
}

/// Number of columns that are added together, and of rows that are copied for it.
const N_COLUMNS: usize = 8;
const N_ROWS: usize = 128;

impl<T: Float> Summands<'_, T> {
    /// Checks that there are values for `n_sums` sums.
    #[cfg(feature = "alloc")]
    fn check(self, n_sums: usize) -> Result<(), Error> {
        let (need, have) = match self {
            Self::Arrays(arrays) => (n_sums, arrays.len()),
            Self::Rows(values) | Self::Columns(values) => {
                let n_values = values.len().checked_div(n_sums).unwrap_or(0);
                (n_values * n_sums, values.len())
            }
        };
        let buffer = Buffer::Send;
        if need == have { Ok(()) } else { Err(Error::Length { buffer, need, have }) }
    }

    /// Computes the sums with these indices, and passes each to `then`.
    fn for_each(self, n_sums: usize, which: &[usize], mut then: impl FnMut(usize, &mut ExactSum)) {
        let Self::Columns(values) = self else {
            let mut sum = ExactSum::new();
            return which.iter().enumerate().for_each(|(place, &i)| {
                sum.add_all(self.array(n_sums, i));
                then(place, &mut sum);
                sum.clear();
            });
        };
        let mut buffer = [[T::ZERO; N_ROWS]; N_COLUMNS];
        for (group, columns) in which.chunks(N_COLUMNS).enumerate() {
            let mut sums = [const { ExactSum::new() }; N_COLUMNS];
            for rows in values.chunks(N_ROWS * n_sums) {
                let n_rows = rows.len() / n_sums;
                for (at, row) in rows.chunks_exact(n_sums).enumerate() {
                    for (of_column, &i) in buffer.iter_mut().zip(columns) {
                        of_column[at] = row[i];
                    }
                }
                for (sum, of_column) in sums.iter_mut().zip(&buffer[..columns.len()]) {
                    sum.add_all(&of_column[..n_rows]);
                }
            }
            for (i, sum) in sums.iter_mut().take(columns.len()).enumerate() {
                then(group * N_COLUMNS + i, sum);
            }
        }
    }

    /// Returns the values of a sum that lie together.
    fn array(&self, n_sums: usize, i: usize) -> &[T] {
        match *self {
            Self::Arrays(arrays) => arrays[i],
            Self::Rows(values) | Self::Columns(values) => {
                let n_values = values.len() / n_sums;
                &values[i * n_values..][..n_values]
            }
        }
    }
}

/// Sends words and receives their combination.
type Reduce<'r> = &'r mut dyn FnMut(&mut [u64]) -> Result<Report, Error>;

/// Computes the sums with the indices `which` by one all-reduce of words in long form.
fn long_sums<T: Float>(
    (summands, which): (Summands<'_, T>, &[usize]),
    sums: &mut [f64],
    form: Form,
    words: &mut [u64],
    reduce: Reduce<'_>,
) -> Result<Report, Error> {
    let n_words = form.n_long_words();
    let place = |i: usize| i * n_words..(i + 1) * n_words;
    summands.for_each(sums.len(), which, |i, sum| form.write_long(sum, &mut words[place(i)]));
    let report = reduce(words)?;
    for (words, &i) in words.chunks_exact(n_words).zip(which) {
        sums[i] = form.read_long(words);
    }
    Ok(report)
}

/// Computes one sum.
fn one_sum<T: Float>(values: &[T], size: usize, reduce: Reduce<'_>) -> Result<f64, Error> {
    let form = Form::of(size);
    let mut words = [0; MAX_LONG_WORDS];
    let words = &mut words[..form.n_long_words()];
    let mut sums = [0.0];
    long_sums((Summands::Rows(values), &[0]), &mut sums, form, words, reduce)?;
    Ok(sums[0])
}

/// Computes all sums.
#[cfg(feature = "alloc")]
fn all_sums<T: Float>(
    summands: Summands<'_, T>,
    sums: &mut [f64],
    size: usize,
    reduce: Reduce<'_>,
) -> Result<Report, Error> {
    summands.check(sums.len())?;
    let form = Form::of(size);
    let mut which: Vec<usize> = (0..sums.len()).collect();
    let mut report = Report::default();
    if sums.len() > MAX_LONG {
        let mut words = vec![[0; SHORT_WORDS]; sums.len()];
        summands.for_each(sums.len(), &which, |i, sum| form.write_short(sum, &mut words[i]));
        report = reduce(words.as_flattened_mut())?;
        // All ranks have the same words, so they read the same sums.
        which.retain(|&i| match form.read_short(&words[i]) {
            Some(sum) => {
                sums[i] = sum;
                false
            }
            None => true,
        });
        if which.is_empty() {
            return Ok(report);
        }
    }
    let mut words = vec![0; which.len() * form.n_long_words()];
    report += long_sums((summands, &which), sums, form, &mut words, reduce)?;
    Ok(report)
}

/// Writes the methods into an `impl`. They take `&self`, or `&mut self` if the argument is `mut`.
macro_rules! methods {
    ($($mutable:ident)?) => {
        /// Returns the sum of all ranks' values, rounded once: the `f64` nearest to the exact sum.
        ///
        /// The bits do not depend on the number of ranks, on the order and the distribution of the
        /// values, on schedule, transport or machine. [`ExactSum`] has the rules for NaN,
        /// infinities and zeros. The ranks may have different numbers of values. This is one
        /// all-reduce of about 300 bytes.
        ///
        /// # Errors
        /// As [`all_reduce_scalar`](Self::all_reduce_scalar).
        pub fn repro_sum<T: Float>(&$($mutable)? self, values: &[T]) -> Result<f64, Error> {
            let size = self.size();
            one_sum(values, size, &mut |words| {
                self.all_reduce(words, Op::User(&combine), &Plan::raw())
            })
        }

        /// Computes many sums at once. Each is what [`repro_sum`](Self::repro_sum) returns for it.
        ///
        /// This is one all-reduce of 24 bytes for each sum. If bits of one sum lie far apart (more
        /// than about 110 binary digits, or 33 decimal ones), a second all-reduce follows for such
        /// sums. Up to 8 sums never need it. Of the plan only the schedule matters.
        ///
        /// # Errors
        /// [`Error::Length`] if there are no values for some sum. Otherwise any [`Error`]. The
        /// communicator stays usable after a [usage error](Error::is_usage).
        #[cfg(feature = "alloc")]
        pub fn repro_sums<T: Float>(
            &$($mutable)? self,
            summands: Summands<'_, T>,
            sums: &mut [f64],
            plan: &Plan,
        ) -> Result<Report, Error> {
            let size = self.size();
            all_sums(summands, sums, size, &mut |words| {
                self.all_reduce(words, Op::User(&combine), plan)
            })
        }
    };
}

impl<X: Transport> Communicator<X> {
    methods!(mut);
}

#[cfg(feature = "alloc")]
impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    methods!();
}
