//! Prediction of codes in the order of memory, by a filter that fits the array: a weighted sum of
//! codes in the rows and planes before, of codes before in the row, and of a constant.
//!
//! The filter minimizes the residuals of a sample. Weights are multiples of 2⁻²⁰, so that every
//! machine predicts the same. A row's own codes count last: what the other rows contribute is known
//! before the row is read.

use super::grid::{DIMS, Grid, LONG_LINE, Line};
use super::predict::Integer;
use crate::codec::DecodeError;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{Level, prefetch};
use alloc::vec::Vec;

/// Rows that predict a value: planes before, rows before (negative: behind), and how far left and
/// right of the value.
const ROWS: [(usize, isize, usize); 6] =
    [(0, 1, 2), (0, 2, 1), (1, 0, 1), (1, 1, 1), (1, -1, 1), (2, 0, 0)];
/// Codes before in the same row that predict a value. The weights of all codes add up to 1, so the
/// code just before has no weight of its own.
const BEFORE: usize = 2;
/// First weight of the rows; those of the constant and of codes before precede.
const FIRST_ROW: usize = 1 + BEFORE;
/// Number of weights.
const WEIGHTS: usize = FIRST_ROW + 18;
/// Logarithm of a weight's unit.
const UNIT_BITS: u32 = 20;
const UNIT: i64 = 1 << UNIT_BITS;
/// Bytes of a filter.
pub(super) const FILTER_BYTES: usize = 8 + WEIGHT_BYTES * WEIGHTS;
const WEIGHT_BYTES: usize = 3;
/// Most values that weights are fitted to, about, and the number for short arrays.
const SAMPLES: usize = 1 << 12;
const MIN_SAMPLES: usize = 1 << 10;

/// Samples between one that is prefetched and the current one.
const AHEAD: usize = 8;

/// Number of weights and the value that they predict, and zeros up to whole vectors.
const PADDED: usize = 24;
/// Neighbours of a value, or their weights.
type Row = [f64; PADDED];

/// Weights of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// The constant.
    mean: i64,
    weights: [i32; WEIGHTS],
}

/// Returns where a row begins that predicts the line at `at`; `None` if there is none. Behind the
/// last row of a plane comes that row again, and before the first the first.
fn row(
    grid: &Grid,
    at: [usize; DIMS - 1],
    (planes, rows, _): (usize, isize, usize),
) -> Option<usize> {
    let z = at[0].checked_sub(planes)?;
    let y = at[1].checked_add_signed(-rows);
    let y = if planes > 0 { y.unwrap_or(0).min(grid.sizes[1] - 1) } else { y? };
    Some(z * grid.strides[0] + y * grid.strides[1])
}

/// Code before a line: in its row, or at its start in the row or the plane before.
fn before<C: Integer>(codes: &[C], grid: &Grid, line: &Line) -> [C; 1 + BEFORE] {
    let ([z, y], x) = (line.at, line.n_before);
    let first = match (x, y, z) {
        (1.., ..) => line.start - 1,
        (_, 1.., _) => line.start - grid.strides[1],
        (_, _, 1..) => line.start - grid.strides[0],
        _ => return [C::default(); 1 + BEFORE],
    };
    core::array::from_fn(|i| codes[first - i.min(x.saturating_sub(1))])
}

impl Filter {
    /// Fits a filter to codes.
    pub(super) fn fit<C: Integer>(level: Level, codes: &[C], grid: &Grid) -> Self {
        let n_values = codes.len();
        // With one row, few weights are left to be fitted.
        let most = if grid.is_row() { 4 * SAMPLES } else { SAMPLES };
        let n_samples = (n_values / 16).clamp(MIN_SAMPLES, most);
        let mut places = Vec::with_capacity(n_samples + n_samples / 8);
        let mean = mean(codes);
        let each = n_values.div_ceil(n_samples).max(1);
        let mut place = 0;
        let mut hash = 1_u64;
        while place < n_values {
            places.push(place);
            // Steps of different lengths meet all columns.
            hash = hash.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            place += 1 + (hash >> 33) as usize % (2 * each - 1);
        }
        let mut samples = Vec::with_capacity(places.len());
        for (nth, &place) in places.iter().enumerate() {
            if let Some(&ahead) = places.get(nth + AHEAD) {
                prefetch_around(codes, grid, ahead);
            }
            samples.push(sample(codes, grid, mean, place));
        }
        let best = run(level, FitTask { samples: &samples, is_row: grid.is_row() });
        let weights = core::array::from_fn(|i| {
            let weight = best[i];
            let unit = UNIT as f64;
            let rounder = (3_u64 << 51) as f64;
            ((weight * unit).clamp(-7.0 * unit, 7.0 * unit) + rounder - rounder) as i32
        });
        Self { mean, weights }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.mean.to_le_bytes());
        for weight in &self.weights {
            out.extend_from_slice(&weight.to_le_bytes()[..WEIGHT_BYTES]);
        }
    }

    /// Reads a filter from the front of `bytes`, and removes it there.
    pub(super) fn read(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let need = FILTER_BYTES;
        let Some((filter, rest)) = bytes.split_at_checked(need) else {
            return Err(DecodeError::Truncated { need, have: bytes.len() });
        };
        *bytes = rest;
        let (mut mean, mut weights) = ([0; 8], [0; WEIGHTS]);
        mean.copy_from_slice(&filter[..8]);
        for (weight, bytes) in weights.iter_mut().zip(filter[8..].as_chunks().0) {
            let [low, middle, high]: [u8; WEIGHT_BYTES] = *bytes;
            *weight = i32::from_le_bytes([0, low, middle, high]) >> 8;
        }
        Ok(Self { mean: i64::from_le_bytes(mean), weights })
    }
}

/// Finds the weights that minimize the residuals of samples.
struct FitTask<'a> {
    samples: &'a [Row],
    is_row: bool,
}

impl Task for FitTask<'_> {
    type Output = Row;

    #[inline(always)]
    fn run(self) -> Row {
        let Self { samples, is_row } = self;
        let mut errors = alloc::vec![0.0; samples.len()];
        let mut shares = alloc::vec![1.0; samples.len()];
        let unweighted = products(samples, &shares, is_row);
        let (mut best, mut least) = ([0.0; PADDED], f64::INFINITY);
        // Least squares without and with the constant, and then from the best weights on.
        for (has_mean, is_new) in [(false, true), (true, true), (true, false)] {
            if !is_new {
                set_errors(samples, &best, &mut errors);
            }
            for round in 0..3 {
                let mut sums = if round == 0 && is_new {
                    unweighted
                } else {
                    // Large residuals cost as their logarithm, so they have small shares.
                    for (share, error) in shares.iter_mut().zip(&errors) {
                        *share = 1.0 / (error.abs() + 0.5);
                    }
                    products(samples, &shares, is_row)
                };
                if !has_mean {
                    sums[0] = [0.0; PADDED];
                }
                let weights = solve(&mut sums);
                set_errors(samples, &weights, &mut errors);
                let bits = errors.iter().map(|&error| logarithm(error)).sum();
                if bits < least {
                    (best, least) = (weights, bits);
                }
            }
        }
        best
    }
}

/// Numbers that are added at a time.
const LANES: usize = 8;
/// Rows of sums that are added to at a time.
const BLOCK_ROWS: usize = 4;

/// Returns the sums of products of the samples' numbers, at these shares: those above the diagonal,
/// since the sums are symmetric, up to whole blocks. If the array has one row, other rows' numbers
/// are 0, and so are their sums.
///
/// A block's sums stay in registers, provided that its loops are iterators: with indices the
/// compiler makes no vectors of them. With 8 rows it makes vectors of columns, which are apart.
#[inline(always)]
fn products(samples: &[Row], shares: &[f64], is_row: bool) -> [Row; WEIGHTS] {
    let mut sums = [[0.0; PADDED]; WEIGHTS];
    let n_rows = if is_row { FIRST_ROW } else { WEIGHTS };
    for row in (0..n_rows).step_by(BLOCK_ROWS) {
        for column in row / LANES..PADDED / LANES {
            let mut block = [[0.0; LANES]; BLOCK_ROWS];
            for (sample, share) in samples.iter().zip(shares) {
                let xs = sample.as_chunks::<BLOCK_ROWS>().0[row / BLOCK_ROWS];
                let ys = sample.as_chunks::<LANES>().0[column];
                for (sums, x) in block.iter_mut().zip(xs) {
                    let x = share * x;
                    sums.iter_mut().zip(ys).for_each(|(sum, y)| *sum += x * y);
                }
            }
            for (sums, block) in sums[row..].iter_mut().zip(block) {
                sums[LANES * column..][..LANES].copy_from_slice(&block);
            }
        }
    }
    sums
}

/// Sets what weighted neighbours miss of each sample. `extend` would compute it without the level's
/// instructions.
#[inline(always)]
fn set_errors(samples: &[Row], weights: &Row, errors: &mut [f64]) {
    for (place, sample) in errors.iter_mut().zip(samples) {
        *place = error(sample, weights);
    }
}

/// Returns what weighted neighbours miss.
#[inline(always)]
fn error(sample: &Row, weights: &Row) -> f64 {
    let mut sums = [0.0; LANES];
    for (xs, weights) in sample.chunks_exact(LANES).zip(weights.chunks_exact(LANES)) {
        for (sum, (x, weight)) in sums.iter_mut().zip(xs.iter().zip(weights)) {
            *sum += x * weight;
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    sample[WEIGHTS] - (((a + b) + (c + d)) + ((e + f) + (g + h)))
}

/// Returns about log₂(|error| + ½), up to a constant.
#[inline(always)]
fn logarithm(error: f64) -> f64 {
    // The exponent of a float, and its fraction as if the logarithm were linear in between.
    (error.abs() + 0.5).to_bits() as f64 / (1_u64 << 52) as f64
}

/// Returns the mean of codes, about.
fn mean<C: Integer>(codes: &[C]) -> i64 {
    let each = (codes.len() / SAMPLES).max(1);
    let sampled = codes.iter().step_by(each);
    let n_sampled = sampled.len() as f64;
    (sampled.map(|code| code.to_f64()).sum::<f64>() / n_sampled.max(1.0)) as i64
}

/// Prefetches a value and the rows around it. Samples are too far apart for the processor's own
/// prefetching, and neighbours of most are no longer in a near cache.
#[inline(always)]
fn prefetch_around<C>(codes: &[C], grid: &Grid, place: usize) {
    let [plane, row, _] = grid.strides;
    for distance in [0, row, 2 * row, plane - row, plane, plane + row, 2 * plane] {
        if let Some(at) = place.checked_sub(distance) {
            prefetch::line(&raw const codes[at]);
        }
    }
}

/// Differences of a value's neighbours and, at the end, of the value itself to the code before it.
/// Neighbours that do not exist are equal to it.
fn sample<C: Integer>(codes: &[C], grid: &Grid, mean: i64, place: usize) -> Row {
    let [z, rest] = [place / grid.strides[0], place % grid.strides[0]];
    let (at, x) = ([z, rest / grid.strides[1]], rest % grid.strides[1]);
    let line = Line { at, n_before: x, row: place - x, start: place, n_values: 1 };
    let before = before(codes, grid, &line).map(Integer::to_f64);
    let mut differences = [0.0; PADDED];
    differences[0] = mean as f64 - before[0];
    for i in 1..=BEFORE {
        differences[i] = before[i] - before[0];
    }
    let mut nth = FIRST_ROW;
    for of in ROWS {
        let row = row(grid, at, of);
        for right in 0..=2 * of.2 {
            if let Some(row) = row {
                let x = (x + right).saturating_sub(of.2).min(grid.sizes[2] - 1);
                differences[nth] = codes[row + x].to_f64() - before[0];
            }
            nth += 1;
        }
    }
    differences[WEIGHTS] = codes[place].to_f64() - before[0];
    differences
}

/// Solves a symmetric system of linear equations, and reads only the numbers above the diagonal.
/// Unknowns that hardly matter become 0.
#[inline(always)]
fn solve(sums: &mut [Row; WEIGHTS]) -> Row {
    for (i, row) in sums.iter_mut().enumerate() {
        row[i] += 1e-6 * row[i] + 1e-3;
    }
    // The matrix is positive definite, so no row needs to change its place.
    for i in 0..WEIGHTS {
        let pivot = sums[i];
        for (j, row) in sums.iter_mut().enumerate().skip(i + 1) {
            let factor = pivot[j] / pivot[i];
            row.iter_mut().zip(&pivot).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut solution = [0.0; PADDED];
    for i in (0..WEIGHTS).rev() {
        let known: f64 = (i + 1..WEIGHTS).map(|j| sums[i][j] * solution[j]).sum();
        let value = (sums[i][WEIGHTS] - known) / sums[i][i];
        solution[i] = if value.is_finite() { value } else { 0.0 };
    }
    solution
}

/// Predictions of a line's codes.
///
/// Weights of all codes add up to [`UNIT`] less that of the constant. So the constant is added at
/// its weight, instead of being subtracted from each code.
pub(super) struct RowPredictor {
    /// Contribution of the constant and of other rows, in units.
    others: [i64; LONG_LINE],
    /// Weights of codes before in the row.
    before: [i32; 1 + BEFORE],
}

impl RowPredictor {
    pub(super) const fn new() -> Self {
        Self { others: [0; LONG_LINE], before: [0; 1 + BEFORE] }
    }

    /// Prepares a line.
    #[inline(always)]
    pub(super) fn begin<C: Integer>(
        &mut self,
        filter: &Filter,
        codes: &[C],
        grid: &Grid,
        line: &Line,
    ) {
        let weights = &filter.weights;
        let others = &mut self.others[..line.n_values];
        let constant = filter.mean.wrapping_mul(weights[0].into());
        others.fill(constant.wrapping_add(UNIT / 2));
        let mut left = UNIT as i32 - weights[..FIRST_ROW].iter().sum::<i32>();
        let mut nth = FIRST_ROW;
        for of in ROWS {
            let weights = &weights[nth..nth + 2 * of.2 + 1];
            nth += weights.len();
            let Some(row) = row(grid, line.at, of) else { continue };
            left -= weights.iter().sum::<i32>();
            let row = &codes[row..row + grid.sizes[2]];
            match *weights {
                [weight] => add_row(others, row, line.n_before, [weight]),
                [a, b, c] => add_row(others, row, line.n_before, [a, b, c]),
                [a, b, c, d, e] => add_row(others, row, line.n_before, [a, b, c, d, e]),
                _ => {}
            }
        }
        self.before = [left, weights[1], weights[2]];
    }

    /// Returns the residuals of a line with these codes.
    #[inline(always)]
    pub(super) fn residuals<C: Integer>(
        &mut self,
        codes: &[C],
        grid: &Grid,
        line: &Line,
        own: &[C],
        residuals: &mut [C],
    ) {
        let [a, b, c] = before(codes, grid, line);
        let [first, second, third] = self.before;
        let others = &mut self.others[..own.len()];
        // The first codes of the line, after those before.
        let mut start = [c, b, a, c, b, a];
        let n_first = own.len().min(start.len() / 2);
        start[1 + BEFORE..][..n_first].copy_from_slice(&own[..n_first]);
        add(&mut others[..n_first], &start, [third, second, first]);
        add(&mut others[n_first..], own, [third, second, first]);
        for ((residual, &sum), &own) in residuals.iter_mut().zip(&*others).zip(own) {
            *residual = own.minus(C::of_i64(sum >> UNIT_BITS));
        }
    }

    /// Returns the codes of a line with these residuals.
    #[inline(always)]
    pub(super) fn codes<C: Integer>(
        &mut self,
        codes: &[C],
        grid: &Grid,
        line: &Line,
        residuals: &[C],
        own: &mut [C],
    ) {
        let [mut a, mut b, mut c] = before(codes, grid, line).map(Integer::to_i64);
        let [first, second, third] = self.before.map(i64::from);
        let own = &mut own[..line.n_values];
        let others = &mut self.others[..line.n_values];
        if size_of::<C>() > size_of::<i32>() {
            for ((code, &others), &residual) in own.iter_mut().zip(&*others).zip(residuals) {
                // The product with the code just before is the last one, since all wait for it.
                let known =
                    others.wrapping_add(b.wrapping_mul(second)).wrapping_add(c.wrapping_mul(third));
                let sum = known.wrapping_add(a.wrapping_mul(first));
                *code = C::of_i64(sum >> UNIT_BITS).plus(residual);
                (c, b, a) = (b, a, code.to_i64());
            }
            return;
        }
        // With all terms in the upper bits, a shift makes an integer of 32 bits with sign.
        const UPPER: u32 = u32::BITS - UNIT_BITS;
        for (sum, residual) in others.iter_mut().zip(residuals) {
            *sum = (sum.wrapping_add(residual.to_i64() << UNIT_BITS)) << UPPER;
        }
        let [first, second, third] = [first, second, third].map(|weight| weight << UPPER);
        for (code, &others) in own.iter_mut().zip(&*others) {
            let known =
                others.wrapping_add(b.wrapping_mul(second)).wrapping_add(c.wrapping_mul(third));
            let sum = known.wrapping_add(a.wrapping_mul(first));
            (c, b, a) = (b, a, sum >> u32::BITS);
            *code = C::of_i64(a);
        }
    }

    /// The same for a line with values off the lattice, which have the code before them.
    #[inline(always)]
    pub(super) fn codes_around<C: Integer>(
        &self,
        codes: &[C],
        grid: &Grid,
        line: &Line,
        (residuals, is_off): (&[C], &[bool]),
        own: &mut [C],
    ) {
        let [mut a, mut b, mut c] = before(codes, grid, line).map(Integer::to_i64);
        let [first, second, third] = self.before.map(i64::from);
        let place_before = line.start.checked_sub(1);
        let mut before = place_before.map_or_else(C::default, |before| codes[before]);
        for (i, &is_off) in is_off.iter().enumerate() {
            let sum = self.others[i]
                .wrapping_add(a.wrapping_mul(first))
                .wrapping_add(b.wrapping_mul(second))
                .wrapping_add(c.wrapping_mul(third));
            if !is_off {
                before = C::of_i64(sum >> UNIT_BITS).plus(residuals[i]);
            }
            (c, b, a) = (b, a, before.to_i64());
            own[i] = before;
        }
    }
}

/// Adds the weighted codes of another row to the sums of a line that begins at `x`. At the ends of
/// the row, its first and last code stand for those outside of it.
#[inline(always)]
fn add_row<C: Integer, const N: usize>(sums: &mut [i64], row: &[C], x: usize, weights: [i32; N]) {
    if weights == [0; N] {
        return;
    }
    let reach = N / 2;
    let n_values = sums.len();
    let n_left = reach.saturating_sub(x).min(n_values);
    let n_right = (x + n_values + reach).saturating_sub(row.len()).min(n_values - n_left);
    let ends = (0..n_left).chain(n_values - n_right..n_values);
    for i in ends {
        for (right, &weight) in weights.iter().enumerate() {
            let place = (x + i + right).saturating_sub(reach).min(row.len() - 1);
            let product = row[place].to_i64().wrapping_mul(weight.into());
            sums[i] = sums[i].wrapping_add(product);
        }
    }
    let sums = &mut sums[n_left..n_values - n_right];
    if let Some(row) = row.get((x + n_left).saturating_sub(reach)..) {
        add(sums, row, weights);
    }
}

/// Adds to each sum the weighted codes from its place on.
#[inline(always)]
fn add<C: Integer, const N: usize>(sums: &mut [i64], codes: &[C], weights: [i32; N]) {
    for (sum, codes) in sums.iter_mut().zip(codes.array_windows()) {
        let codes: &[C; N] = codes;
        for (code, &weight) in codes.iter().zip(&weights) {
            *sum = sum.wrapping_add(code.to_i64().wrapping_mul(weight.into()));
        }
    }
}
