//! Sums of eight short arrays at once, as integers.
//!
//! As in [`slices`](super::slices), q = (x + c) − c is x rounded to a multiple of a unit u, and the
//! rest x − q is split in the same way by smaller units. The bits of x + c, less those of c, are
//! the integer q / u. So integers are added, and the sums need no conversion. Three units, each
//! 2⁻⁴² times the one before, hold all values of a sum whose bits lie within 118 bits.
//!
//! Columns, and arrays of equal length with up to [`N_FEW`] values, are added in lanes: each sum
//! has a lane, and units of its own, which fit its largest value. Others are added one by one, each
//! in all lanes. Their units are those of the array before, with 6 bits more for larger values, and
//! are only computed again if they do not fit.
//!
//! The eight sums become [`Short`] numbers together, without branches. Sums that slices do not
//! hold, and sums of zeros, are added digit by digit.
//!
//! Cost: 0.35 ns a value in columns and arrays of 100, 1 to 2 in those of 10, with AVX-512.

use super::short::Short;
use super::slices::{
    BIAS, FRACTION_BITS, Largest, SLICE_BITS, SMALLEST, exponent, folded, power_of_two,
};
use super::{ExactSum, NONE, Seen, calculates_exactly, down, log2};
use crate::element::Float;
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};
use core::array::from_fn;
use core::hint::black_box;

/// Number of arrays that are summed together.
pub(crate) const LANES: usize = 8;
/// Most values of each array.
pub(crate) const MAX_VALUES: usize = 128;
/// Arrays of equal length with up to this many values are added in lanes.
const N_FEW: usize = 32;
/// Number of lanes in which one array is added.
const WIDE: usize = 16;
/// Number of slices.
const N_SLICES: usize = 3;
/// Number of bits by which the sum of [`MAX_VALUES`] values may be longer than each, and the sign.
const SUM_BITS: i32 = 8;
/// Number of bits by which values may be larger than those of the array before.
const HEADROOM: i32 = 6;
/// Number of arrays beyond those that fit which may fail to, until no more are tried.
const MAX_FAILURES: u32 = 4;
/// Range of exponents of the first constant: all constants are normal numbers.
const EXPONENTS: [i32; 2] = [1 - BIAS + (N_SLICES as i32 - 1) * SLICE_BITS, BIAS];

/// A value of each lane.
type Row = [f64; LANES];

/// Eight sums. Each is as in [`Short`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    magnitudes: [[u64; LANES]; 2],
    signs: [u64; LANES],
    begins: [u64; LANES],
    ends: [u64; LANES],
    seen: [u64; LANES],
}

impl Batch {
    /// Returns the sum of a lane.
    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> Short {
        Short {
            magnitude: [self.magnitudes[0][lane], self.magnitudes[1][lane]],
            sign: self.signs[lane],
            begin: self.begins[lane],
            end: self.ends[lane],
            seen: self.seen[lane],
        }
    }

    /// Sets the sum of a lane.
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, sum: Short) {
        [self.magnitudes[0][lane], self.magnitudes[1][lane]] = sum.magnitude;
        self.signs[lane] = sum.sign;
        self.begins[lane] = sum.begin;
        self.ends[lane] = sum.end;
        self.seen[lane] = sum.seen;
    }
}

/// Sums arrays, eight at a time, one batch after the other.
pub(crate) struct BatchSums {
    level: Level,
    /// Exponent of the first constant for the next long array.
    exponent: Option<i32>,
    /// False if this thread does not calculate as IEEE 754 says.
    is_exact: bool,
    n_failures: u32,
    batch: Batch,
    /// Zero between two sums.
    sum: ExactSum,
}

impl BatchSums {
    pub(crate) fn new() -> Self {
        Self::at(Level::best())
    }

    /// Creates one that sums with the instructions of a level.
    pub(super) fn at(level: Level) -> Self {
        let is_exact = calculates_exactly();
        let (batch, sum) = (Batch::default(), ExactSum::new());
        Self { level, exponent: None, is_exact, n_failures: 0, batch, sum }
    }

    /// Sums at most [`LANES`] arrays.
    pub(crate) fn arrays<T: Float>(&mut self, arrays: &[&[T]]) -> &Batch {
        let add = |lane: usize, sum: &mut ExactSum| sum.add_all(arrays[lane]);
        let first = arrays.first().copied().unwrap_or_default();
        let has_one_length = arrays.iter().all(|array| array.len() == first.len());
        if !self.is_exact || arrays.iter().any(|array| array.len() > MAX_VALUES) {
            self.digits(arrays.len(), add);
        } else if has_one_length && first.len() <= N_FEW {
            // Lanes without an array sum the first one, too.
            let mut lanes = [first; LANES];
            lanes.iter_mut().zip(arrays).for_each(|(lane, &array)| *lane = array);
            self.lanes(first.len(), &Arrays(lanes), arrays.len(), add);
        } else {
            self.one_by_one(arrays);
        }
        &self.batch
    }

    /// Sums columns of a matrix of at most [`MAX_VALUES`] rows of `n_columns` values: those from
    /// `first` on, at most [`LANES`].
    pub(crate) fn columns<T: Float>(
        &mut self,
        values: &[T],
        n_columns: usize,
        first: usize,
    ) -> &Batch {
        let n_sums = LANES.min(n_columns - first);
        let column = |lane: usize, sum: &mut ExactSum| {
            values.iter().skip(first + lane).step_by(n_columns).for_each(|&value| sum.add(value));
        };
        let n_rows = values.len() / n_columns;
        let columns = Columns { values, n_columns, first };
        if !self.is_exact {
            self.digits(n_sums, column);
        } else if n_sums == LANES {
            self.lanes(n_rows, &columns, n_sums, column);
        } else {
            let of_lanes = from_fn(|lane| lane.min(n_sums - 1));
            self.lanes(n_rows, &FewColumns { columns, of_lanes }, n_sums, column);
        }
        &self.batch
    }

    /// Sums the values in each lane of rows. `add` adds those of a lane to a sum.
    fn lanes(
        &mut self,
        n_rows: usize,
        rows: &impl Rows,
        n_sums: usize,
        add: impl Fn(usize, &mut ExactSum),
    ) {
        let batch = &mut self.batch;
        let is_held = at_level::run(self.level, InLanes { n_rows, rows, batch });
        for lane in (0..n_sums).filter(|&lane| !is_held[lane]) {
            self.add_digits(lane, &add);
        }
    }

    /// Sums all lanes digit by digit.
    #[cold]
    fn digits(&mut self, n_sums: usize, add: impl Fn(usize, &mut ExactSum)) {
        (0..n_sums).for_each(|lane| self.add_digits(lane, &add));
    }

    /// Sums a lane digit by digit.
    fn add_digits(&mut self, lane: usize, add: impl Fn(usize, &mut ExactSum)) {
        add(lane, &mut self.sum);
        self.batch.set(lane, self.sum.take_short());
        self.sum.clear();
    }

    /// Sums arrays of at most [`MAX_VALUES`] values one by one.
    fn one_by_one<T: Float>(&mut self, arrays: &[&[T]]) {
        if self.n_failures >= MAX_FAILURES {
            return self.digits(arrays.len(), |lane, sum| sum.add_all(arrays[lane]));
        }
        let first = arrays.first().copied().unwrap_or_default();
        let exponent = match self.exponent {
            Some(exponent) => exponent,
            None => own_exponent(at_level::run(self.level, Largest(first))) + HEADROOM,
        };
        self.exponent = Some(exponent);
        let batch = &mut self.batch;
        let is_held = at_level::run(self.level, OneByOne { arrays, exponent, batch });
        for (lane, array) in arrays.iter().enumerate().take(LANES) {
            if is_held[lane] || self.try_again(lane, array) {
                self.n_failures = self.n_failures.saturating_sub(1);
            } else {
                self.n_failures += 1;
                self.add_digits(lane, |_, sum| sum.add_all(array));
            }
        }
    }

    /// Tries to sum an array with units that fit it. Returns false if they do not hold it either.
    #[cold]
    fn try_again<T: Float>(&mut self, lane: usize, array: &[T]) -> bool {
        if self.n_failures >= MAX_FAILURES {
            return false;
        }
        let largest = at_level::run(self.level, Largest(array));
        if largest == 0.0 {
            let is_plus = |x: &T| x.to_f64().to_bits() == 0;
            let is_zeros = array.iter().all(|x| is_plus(x) || x.is_negative_zero());
            let seen = if array.iter().any(is_plus) { Seen::FINITE } else { Seen::NEG_ZERO };
            self.batch.set(lane, Short::zero(seen));
            return is_zeros && !array.is_empty();
        }
        let exponent = own_exponent(largest) + HEADROOM;
        self.exponent = Some(exponent);
        let mut batch = Batch::default();
        let one = OneByOne { arrays: &[array], exponent, batch: &mut batch };
        let is_held = at_level::run(self.level, one);
        self.batch.set(lane, batch.get(0));
        is_held[0]
    }
}

/// Returns the exponent of the first constant for values up to this size.
#[inline(always)]
fn own_exponent(largest: f64) -> i32 {
    // All values are below 2^(exponent + 1).
    exponent(largest) + 1 + SUM_BITS - SLICE_BITS + FRACTION_BITS
}

/// Splits values in each lane, and adds their slices.
struct Slices {
    constants: [Row; N_SLICES],
    /// The bits of all x + c.
    sums: [[u64; LANES]; N_SLICES],
    /// All bits of the rests of values.
    left: [u64; LANES],
}

impl Slices {
    /// `exponents` are those of the first constants.
    #[inline(always)]
    fn new(exponents: [i32; LANES]) -> Self {
        let mut constants = [[0.0; LANES]; N_SLICES];
        for (i, row) in (0..).zip(&mut constants) {
            for (c, exponent) in row.iter_mut().zip(exponents) {
                *c = 1.5 * power_of_two(exponent - i * SLICE_BITS);
            }
        }
        Self { constants, sums: [[0; LANES]; N_SLICES], left: [0; LANES] }
    }

    #[inline(always)]
    fn add(&mut self, row: Row) {
        let [c, d, e] = self.constants;
        for (i, &x) in row.iter().enumerate() {
            let first = x + c[i];
            let rest = x - (first - c[i]);
            let second = rest + d[i];
            let rest = rest - (second - d[i]);
            let third = rest + e[i];
            let rest = rest - (third - e[i]);
            self.sums[0][i] = self.sums[0][i].wrapping_add(first.to_bits());
            self.sums[1][i] = self.sums[1][i].wrapping_add(second.to_bits());
            self.sums[2][i] = self.sums[2][i].wrapping_add(third.to_bits());
            self.left[i] |= rest.to_bits();
        }
    }
}

/// Eight sums in slices.
struct Sliced {
    exponents: [i32; LANES],
    /// The numbers of units in each slice.
    slices: [[u64; LANES]; N_SLICES],
    largest: Row,
    left: [u64; LANES],
}

impl Sliced {
    /// Writes the sums, and returns which the slices hold. Sums of zeros count as not held.
    #[inline(always)]
    fn write(&self, batch: &mut Batch) -> [bool; LANES] {
        let mut is_held = [0; LANES];
        // The compiler vectorizes this loop only if it does not unroll it first.
        #[expect(clippy::needless_range_loop, reason = "iterators hide the number of lanes")]
        for lane in 0..black_box(LANES).min(LANES) {
            let exponent = self.exponents[lane];
            let below = exponent - (N_SLICES as i32 - 1) * SLICE_BITS - FRACTION_BITS;
            let slices = [self.slices[0][lane], self.slices[1][lane], self.slices[2][lane]];
            batch.set(lane, short(slices, (below + SMALLEST) as u64));
            let limit = power_of_two(exponent - SUM_BITS + SLICE_BITS - FRACTION_BITS);
            let fits = self.largest[lane] > 0.0 && self.largest[lane] < limit;
            // A rest of −0 is nothing. The rest of a NaN is a NaN.
            is_held[lane] = u64::from(fits && self.left[lane] << 1 == 0);
        }
        is_held.map(|is_held| is_held != 0)
    }
}

/// Returns the sum of slices whose last unit is 2^(`at` − 1074). There are no branches.
#[inline(always)]
fn short([first, second, third]: [u64; N_SLICES], at: u64) -> Short {
    let lower = (second << SLICE_BITS).wrapping_add(third);
    let carry = u64::from(lower < third);
    let sign = |x: u64| (x.cast_signed() >> 63).cast_unsigned();
    let upper = (second.cast_signed() >> (64 - SLICE_BITS)).cast_unsigned();
    let upper = upper.wrapping_add(first << (2 * SLICE_BITS - 64));
    let upper = upper.wrapping_add(sign(third)).wrapping_add(carry);
    let sign = sign(upper);
    let lower = (lower ^ sign).wrapping_sub(sign);
    let carry = sign & u64::from(lower == 0);
    let upper = (upper ^ sign).wrapping_add(carry);
    let lowest = |x: u64| log2(x & x.wrapping_neg());
    let n_zeros = if lower == 0 { lowest(upper).wrapping_add(64) } else { lowest(lower) };
    let highest = if upper == 0 { log2(lower) } else { log2(upper).wrapping_add(64) };
    let is_zero = lower | upper == 0;
    let magnitude = down([lower, upper], n_zeros);
    Short {
        magnitude: if is_zero { [0; 2] } else { magnitude },
        sign,
        begin: if is_zero { NONE } else { at.wrapping_add(n_zeros) },
        end: if is_zero { 0 } else { at.wrapping_add(highest).wrapping_add(1) },
        seen: Seen::FINITE.0.into(),
    }
}

/// Raises each to the other if that is larger. NaN is not.
#[inline(always)]
fn raise(largest: &mut Row, row: Row) {
    for (largest, x) in largest.iter_mut().zip(row) {
        *largest = if x.abs() > *largest { x.abs() } else { *largest };
    }
}

/// Rows of values.
trait Rows {
    fn row(&self, at: usize) -> Row;
}

/// Arrays of equal length, a lane each.
struct Arrays<'a, T>([&'a [T]; LANES]);

impl<T: Float> Rows for Arrays<'_, T> {
    #[inline(always)]
    fn row(&self, at: usize) -> Row {
        let mut row = [0.0; LANES];
        for (x, array) in row.iter_mut().zip(&self.0) {
            *x = array[at].to_f64();
        }
        row
    }
}

/// Columns of a matrix from `first` on: [`LANES`] of them.
struct Columns<'a, T> {
    values: &'a [T],
    n_columns: usize,
    first: usize,
}

impl<T: Float> Columns<'_, T> {
    /// Returns the values of a row from the first column on.
    #[inline(always)]
    fn values(&self, at: usize) -> &[T] {
        &self.values[at * self.n_columns + self.first..]
    }
}

impl<T: Float> Rows for Columns<'_, T> {
    #[inline(always)]
    fn row(&self, at: usize) -> Row {
        match self.values(at).first_chunk() {
            Some(row) => converted(row),
            None => [0.0; LANES],
        }
    }
}

/// The last columns of a matrix, which are fewer. The last one has several lanes.
struct FewColumns<'a, T> {
    columns: Columns<'a, T>,
    of_lanes: [usize; LANES],
}

impl<T: Float> Rows for FewColumns<'_, T> {
    #[inline(always)]
    fn row(&self, at: usize) -> Row {
        let values = self.columns.values(at);
        let mut row = [0.0; LANES];
        for (x, &column) in row.iter_mut().zip(&self.of_lanes) {
            *x = values[column].to_f64();
        }
        row
    }
}

/// Sums the values in each lane of rows.
struct InLanes<'a, R> {
    n_rows: usize,
    rows: &'a R,
    batch: &'a mut Batch,
}

impl<R: Rows> Task for InLanes<'_, R> {
    type Output = [bool; LANES];

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { n_rows, rows, batch } = self;
        let mut largest = [0.0; LANES];
        for at in 0..n_rows {
            raise(&mut largest, rows.row(at));
        }
        let [least, most] = EXPONENTS;
        let exponents = largest.map(
            #[inline(always)]
            |x| own_exponent(x).clamp(least, most),
        );
        let mut lanes = Slices::new(exponents);
        for at in 0..n_rows {
            lanes.add(rows.row(at));
        }
        let mut slices = lanes.sums;
        for (sums, constants) in slices.iter_mut().zip(lanes.constants) {
            for (sum, c) in sums.iter_mut().zip(constants) {
                *sum = sum.wrapping_sub(c.to_bits().wrapping_mul(n_rows as u64));
            }
        }
        Sliced { exponents, slices, largest, left: lanes.left }.write(batch)
    }
}

/// Sums arrays one by one, in units of one size.
struct OneByOne<'a, T> {
    arrays: &'a [&'a [T]],
    exponent: i32,
    batch: &'a mut Batch,
}

impl<T: Float> Task for OneByOne<'_, T> {
    type Output = [bool; LANES];

    #[inline(always)]
    fn run(self) -> Self::Output {
        let exponent = self.exponent.clamp(EXPONENTS[0], EXPONENTS[1]);
        let constants = [0, 1, 2].map(|i| 1.5 * power_of_two(exponent - i * SLICE_BITS));
        let mut all = Sliced {
            exponents: [exponent; LANES],
            slices: [[0; LANES]; N_SLICES],
            largest: [0.0; LANES],
            left: [0; LANES],
        };
        for (at, values) in self.arrays.iter().take(LANES).enumerate() {
            let mut one = OneSliced { sums: [[0; _]; _], largest: [0.0; _], left: [0; _] };
            let (rows, last) = values.as_chunks::<WIDE>();
            for row in rows {
                let mut wide = [0.0; WIDE];
                wide.iter_mut().zip(row).for_each(|(x, &value)| *x = value.to_f64());
                one.add(&wide, constants);
            }
            if !last.is_empty() {
                one.add(&last_row(values, last.len()), constants);
            }
            let n_added = (values.len().div_ceil(WIDE) * WIDE) as u64;
            for i in 0..N_SLICES {
                let constants = constants[i].to_bits().wrapping_mul(n_added);
                let sum = one.sums[i].iter().fold(0, |all: u64, &sum| all.wrapping_add(sum));
                all.slices[i][at] = sum.wrapping_sub(constants);
            }
            all.largest[at] = folded(one.largest, |a, b| if b > a { b } else { a });
            all.left[at] = one.left.iter().fold(0, |all, left| all | left);
        }
        all.write(self.batch)
    }
}

/// The slices of an array in several lanes.
struct OneSliced {
    sums: [[u64; WIDE]; N_SLICES],
    largest: [f64; WIDE],
    left: [u64; WIDE],
}

impl OneSliced {
    #[inline(always)]
    fn add(&mut self, row: &[f64; WIDE], [c, d, e]: [f64; N_SLICES]) {
        for (i, &x) in row.iter().enumerate() {
            let first = x + c;
            let rest = x - (first - c);
            let second = rest + d;
            let rest = rest - (second - d);
            let third = rest + e;
            let rest = rest - (third - e);
            self.sums[0][i] = self.sums[0][i].wrapping_add(first.to_bits());
            self.sums[1][i] = self.sums[1][i].wrapping_add(second.to_bits());
            self.sums[2][i] = self.sums[2][i].wrapping_add(third.to_bits());
            self.left[i] |= rest.to_bits();
            self.largest[i] = if x.abs() > self.largest[i] { x.abs() } else { self.largest[i] };
        }
    }
}

/// Returns the values behind whole rows, and zeros.
#[inline(always)]
fn last_row<T: Float>(values: &[T], n_last: usize) -> [f64; WIDE] {
    let mut row = [0.0; WIDE];
    let masks = MASKS.get(n_last..).and_then(<[u64]>::first_chunk::<WIDE>);
    if let (Some(end), Some(masks)) = (values.last_chunk::<WIDE>(), masks) {
        // Loading a whole row and clearing lanes is quicker than loading values.
        for ((x, &value), mask) in row.iter_mut().zip(end).zip(masks) {
            *x = f64::from_bits(value.to_f64().to_bits() & mask);
        }
    } else {
        row.iter_mut().zip(values).for_each(|(x, &value)| *x = value.to_f64());
    }
    row
}

/// Masks of lanes. The masks from n on clear all but the last n lanes.
const MASKS: [u64; 2 * WIDE] = {
    let mut masks = [0; 2 * WIDE];
    let mut i = WIDE;
    while i < 2 * WIDE {
        masks[i] = u64::MAX;
        i += 1;
    }
    masks
};

/// Converts a row of values.
#[inline(always)]
fn converted<T: Float>(values: &[T; LANES]) -> Row {
    let mut row = [0.0; LANES];
    row.iter_mut().zip(values).for_each(|(x, &value)| *x = value.to_f64());
    row
}
