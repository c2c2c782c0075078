//! Reproducible sums: sums of all ranks' values that are rounded once, at the end.
//!
//! Each rank adds its values to an [`ExactSum`]. One all-reduce of integers adds the sums of the
//! ranks, and every rank rounds the result. As nothing is rounded before, the bits do not depend on
//! the number of ranks, on the order and the distribution of the values, on schedule, transport or
//! machine.
//!
//! The all-reduce combines words of 64 bits. The lowest bit of a word says how. In words of
//! *digits*, which are even, the other bits are added. Words of *facts*, which are odd, take the
//! union of flags and the maximum of two fields, and add their upper 35 bits. For P ranks, digits
//! leave ⌈log₂ P⌉ bits free, so P of them fit. There are two forms:
//!
//! - *Long:* an [`ExactSum`] as numbers of w = 62 − ⌈log₂ P⌉ bits, with its sign, behind facts with
//!   the flags. A sum alone travels like this, in 37 words and more.
//! - *Short:* two words a sum for up to 16 ranks, and three for more. A sum of a rank with bits
//!   from 2ᵇ to 2ᵉ is an integer m · 2ᵇ. The facts contain b and e. The digits hold m · 2ᵇ mod M,
//!   with M = 2ⁿ − 1. Since 2ⁿ mod M = 1, that is m rotated by b mod n bits, wherever the sum lies.
//!   After the all-reduce, b and e of all ranks are known. If P sums of e − b bits are below M / 2,
//!   the sum of all ranks is the only number in that range with this remainder. That holds for
//!   e − b < n − ⌈log₂ P⌉: 95 bits on 2 ranks, 86 on 16, 118 on 64. The other sums travel again, in
//!   a second all-reduce: those numbers of their long form that contain bits from b to e. All ranks
//!   know which ones.
//!
//! Cost: the local sums, and one all-reduce of 16 or 24 bytes for each sum. A second all-reduce of
//! e − b bits, and at most 14 bytes more, for each sum whose bits lie too far apart.
//!
//! The idea of sending exponents beside the sums is that of E3SM's and CESM's `shr_reprosum`, which
//! agrees on the exponents by an all-reduce of its own.

#[cfg(feature = "alloc")]
mod short;
#[cfg(all(test, feature = "alloc"))]
mod tests;
mod words;

#[cfg(feature = "alloc")]
use crate::collective::Call;
use crate::collective::Communicator;
use crate::element::Float;
#[cfg(feature = "alloc")]
use crate::error::Buffer;
use crate::error::Error;
use crate::exact_sum::ExactSum;
#[cfg(feature = "alloc")]
use crate::exact_sum::{Batch, BatchSums, LANES, MAX_VALUES, Seen};
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
#[cfg(feature = "alloc")]
use crate::shared::SharedCommunicator;
use crate::transport::Transport;
#[cfg(feature = "alloc")]
use alloc::{vec, vec::Vec};
#[cfg(feature = "alloc")]
use core::ops::Range;
#[cfg(feature = "alloc")]
use short::{ShortForm, Writer, write_values};
use words::{Form, MAX_LONG_WORDS, combine_all};

/// Number of words of a message that lie on the stack.
#[cfg(feature = "alloc")]
const N_FEW_WORDS: usize = 64;

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

    /// Computes the sums with these indices, and passes each to `then`, which may change it.
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
                let n_rows = copy_columns(rows.chunks_exact(n_sums), columns, &mut buffer);
                for (sum, of_column) in sums.iter_mut().zip(&buffer[..columns.len()]) {
                    sum.add_all(&of_column[..n_rows]);
                }
            }
            for (i, sum) in sums.iter_mut().take(columns.len()).enumerate() {
                then(group * N_COLUMNS + i, sum);
            }
        }
    }

    /// Computes all sums, in order, as short numbers. The last batch may have fewer.
    #[cfg(feature = "alloc")]
    fn for_each_batch(self, n_sums: usize, mut then: impl FnMut(&Batch)) {
        let mut sums = BatchSums::new();
        match self {
            Self::Arrays(all) => all.chunks(LANES).for_each(|some| then(sums.arrays(some))),
            Self::Rows(values) if !values.is_empty() => {
                let n_values = values.len() / n_sums;
                for some in values.chunks(LANES * n_values) {
                    let mut arrays = [&values[..0]; LANES];
                    let rows = arrays.iter_mut().zip(some.chunks_exact(n_values));
                    rows.for_each(|(array, row)| *array = row);
                    then(sums.arrays(&arrays[..some.len() / n_values]));
                }
            }
            Self::Columns(values) if (1..=MAX_VALUES).contains(&(values.len() / n_sums)) => {
                for first in (0..n_sums).step_by(LANES) {
                    then(sums.columns(values, n_sums, first));
                }
            }
            _ => {
                let all: Vec<usize> = (0..n_sums).collect();
                let mut batch = Batch::default();
                self.for_each(n_sums, &all, |place, sum| {
                    batch.set(place % LANES, sum.take_short());
                    if (place + 1) % LANES == 0 || place + 1 == n_sums {
                        then(&batch);
                    }
                });
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

/// Copies columns of at most [`N_ROWS`] rows, each into an array. Returns the number of rows.
fn copy_columns<'r, T: Float>(
    rows: impl ExactSizeIterator<Item = &'r [T]>,
    columns: &[usize],
    buffer: &mut [[T; N_ROWS]; N_COLUMNS],
) -> usize {
    let n_rows = rows.len();
    for (at, row) in rows.enumerate() {
        for (of_column, &i) in buffer.iter_mut().zip(columns) {
            of_column[at] = row[i];
        }
    }
    n_rows
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
    if sums.len() == 1 {
        let mut words = [0; MAX_LONG_WORDS];
        let words = &mut words[..form.n_long_words()];
        return long_sums((summands, &[0]), sums, form, words, reduce);
    }
    let short = ShortForm::of(form);
    let n_words = short.n_words * sums.len();
    let (mut few, mut many) = ([0; N_FEW_WORDS], Vec::new());
    let words = if n_words <= N_FEW_WORDS {
        &mut few[..n_words]
    } else {
        many.resize(n_words, 0);
        &mut many
    };
    match summands {
        Summands::Rows(values) | Summands::Columns(values) if values.len() == sums.len() => {
            write_values(short, values, words);
        }
        _ => {
            let mut writer = Writer::new(short, sums.len(), words);
            summands.for_each_batch(sums.len(), |sums| writer.write(sums));
        }
    }
    let mut report = reduce(words)?;
    // All ranks have the same words, so they find the same wide sums.
    let which = short.read(words, sums);
    if which.is_empty() {
        return Ok(report);
    }
    let wide = WideSums::of(which, |i| form.numbers(words[i]));
    report += wide.run(summands, sums, form, reduce)?;
    Ok(report)
}

/// Sums whose bits lie too far apart for the short form.
#[cfg(feature = "alloc")]
struct WideSums {
    which: Vec<usize>,
    /// First number of each, and where its words lie in the message.
    places: Vec<(usize, Range<usize>)>,
}

#[cfg(feature = "alloc")]
impl WideSums {
    /// Lays out the sums with these indices, whose bits lie in these numbers.
    fn of(which: Vec<usize>, numbers: impl Fn(usize) -> Range<usize>) -> Self {
        let mut end = 0;
        let places = which.iter().map(|&i| {
            let (numbers, start) = (numbers(i), end);
            end += numbers.len();
            (numbers.start, start..end)
        });
        Self { places: places.collect(), which }
    }

    /// Computes the sums by one all-reduce of those numbers that have bits.
    fn run<T: Float>(
        &self,
        summands: Summands<'_, T>,
        sums: &mut [f64],
        form: Form,
        reduce: Reduce<'_>,
    ) -> Result<Report, Error> {
        let n_words = self.places.last().map_or(0, |(_, words)| words.end);
        let mut words = vec![0; n_words];
        summands.for_each(sums.len(), &self.which, |place, sum| {
            let (first, at) = &self.places[place];
            form.write_numbers(sum, *first, &mut words[at.clone()]);
        });
        let report = reduce(&mut words)?;
        for (&i, (first, at)) in self.which.iter().zip(&self.places) {
            sums[i] = form.read_numbers(Seen::FINITE, *first, &words[at.clone()]);
        }
        Ok(report)
    }
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
                self.all_reduce(words, Op::UserSlices(&combine_all), &Plan::raw())
            })
        }

        /// Computes many sums at once. Each is what [`repro_sum`](Self::repro_sum) returns for it.
        ///
        /// This is one all-reduce of 16 bytes for each sum, or 24 on more than 16 ranks. If bits of
        /// one sum lie far apart (more than about 85 binary digits, or 25 decimal ones), a second
        /// all-reduce follows for such sums, of as many bits. One sum alone never needs it. Only
        /// the plan's schedule matters.
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
            let plan = &Plan { schedule: plan.schedule, ..Plan::raw() };
            self.in_turn(|calls| {
                all_sums(summands, sums, size, &mut |words| {
                    calls.run(Call::all_reduce(words, Op::UserSlices(&combine_all)), plan)
                })
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
