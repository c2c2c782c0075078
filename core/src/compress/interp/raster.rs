//! Prediction of codes in the order of memory, by a filter that fits the array: a weighted sum of
//! codes in the rows and planes before, of codes before in the row, and of a constant.
//!
//! The filter minimizes the residuals of a sample. Weights are multiples of 2⁻²⁰, so that every
//! machine predicts the same. A row's own codes count last: what the other rows contribute is known
//! before the row is read.

use super::grid::{DIMS, Grid, LINE, Line};
use super::predict::Integer;
use crate::codec::DecodeError;
use alloc::vec::Vec;

/// Rows that predict a value: planes before, rows before (negative: behind), and how far left and
/// right of the value.
const ROWS: [(usize, isize, usize); 6] =
    [(0, 1, 2), (0, 2, 1), (1, 0, 1), (1, 1, 1), (1, -1, 1), (2, 0, 0)];
/// Largest reach.
const REACH: usize = 2;
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
/// Values that weights are fitted to, about.
const SAMPLES: usize = 1 << 12;

/// Weights of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// The constant.
    mean: i64,
    weights: [i32; WEIGHTS],
}

/// Returns where a row begins that predicts the line at `at`; `None` if there is none. Behind the
/// last row of a plane comes that row again, and before the first the first.
fn row(grid: &Grid, at: [usize; DIMS], (planes, rows, _): (usize, isize, usize)) -> Option<usize> {
    let z = at[0].checked_sub(planes)?;
    let y = at[1].checked_add_signed(-rows);
    let y = if planes > 0 { y.unwrap_or(0).min(grid.sizes[1] - 1) } else { y? };
    Some(z * grid.strides[0] + y * grid.strides[1])
}

/// Code before a line: in its row, or at its start in the row or the plane before.
fn before<C: Integer>(codes: &[C], grid: &Grid, line: &Line) -> [C; 1 + BEFORE] {
    let [z, y, x] = line.at;
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
    pub(super) fn fit<C: Integer>(codes: &[C], grid: &Grid) -> Self {
        let mut samples = Vec::with_capacity(SAMPLES + LINE);
        let mean = mean(codes);
        let n_values = codes.len();
        let each = n_values.div_ceil(SAMPLES).max(1);
        let mut place = 0;
        let mut hash = 1_u64;
        while place < n_values {
            samples.push(sample(codes, grid, mean, place));
            // Steps of different lengths meet all columns.
            hash = hash.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            place += 1 + (hash >> 33) as usize % (2 * each - 1);
        }
        let (mut best, mut least) = ([0.0; WEIGHTS], f64::INFINITY);
        for has_mean in [false, true] {
            let mut weights = [0.0; WEIGHTS];
            for round in 0..3 {
                // Large residuals cost as their logarithm, so they have small shares.
                let share = |error: f64| if round == 0 { 1.0 } else { 1.0 / (error.abs() + 0.5) };
                let mut sums = [[0.0; WEIGHTS + 1]; WEIGHTS];
                for sample in &samples {
                    let share = share(error(sample, &weights));
                    for (i, sums) in sums.iter_mut().enumerate().skip(usize::from(!has_mean)) {
                        let x = share * sample[i];
                        if x != 0.0 {
                            sums.iter_mut().zip(sample).for_each(|(sum, y)| *sum += x * y);
                        }
                    }
                }
                weights = solve(&mut sums);
                let bits = samples.iter().map(|sample| logarithm(error(sample, &weights)));
                let bits: f64 = bits.sum();
                if bits < least {
                    (best, least) = (weights, bits);
                }
            }
        }
        let weights = best.map(|weight| {
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

/// Returns what weighted neighbours miss.
fn error(sample: &[f64; WEIGHTS + 1], weights: &[f64; WEIGHTS]) -> f64 {
    sample[WEIGHTS] - sample.iter().zip(weights).map(|(x, weight)| x * weight).sum::<f64>()
}

/// Returns about log₂(|error| + ½), up to a constant.
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

/// Differences of a value's neighbours and, at the end, of the value itself to the code before it.
/// Neighbours that do not exist are equal to it.
fn sample<C: Integer>(codes: &[C], grid: &Grid, mean: i64, place: usize) -> [f64; WEIGHTS + 1] {
    let [z, rest] = [place / grid.strides[0], place % grid.strides[0]];
    let at = [z, rest / grid.strides[1], rest % grid.strides[1]];
    let x = at[2];
    let line = Line { at, start: place, n_values: 1 };
    let before = before(codes, grid, &line).map(Integer::to_f64);
    let mut differences = [0.0; WEIGHTS + 1];
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

/// Solves a symmetric system of linear equations; unknowns that hardly matter become 0.
fn solve(sums: &mut [[f64; WEIGHTS + 1]; WEIGHTS]) -> [f64; WEIGHTS] {
    for (i, row) in sums.iter_mut().enumerate() {
        row[i] += 1e-6 * row[i] + 1e-3;
    }
    // The matrix is positive definite, so no row needs to change its place.
    for i in 0..WEIGHTS {
        let pivot = sums[i];
        for row in &mut sums[i + 1..] {
            let factor = row[i] / pivot[i];
            row.iter_mut().zip(&pivot).skip(i).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut solution = [0.0; WEIGHTS];
    for i in (0..WEIGHTS).rev() {
        let known: f64 = (i + 1..WEIGHTS).map(|j| sums[i][j] * solution[j]).sum();
        let value = (sums[i][WEIGHTS] - known) / sums[i][i];
        solution[i] = if value.is_finite() { value } else { 0.0 };
    }
    solution
}

/// Predictions of a line's codes.
pub(super) struct RowPredictor {
    /// The constant; all other codes count as differences to it, so its weight has no effect here.
    mean: i64,
    /// What other rows contribute, in units.
    others: [i64; LINE],
    padded: [i64; LINE + 2 * REACH],
    /// Weights of codes before in the row.
    before: [i64; 1 + BEFORE],
}

impl RowPredictor {
    pub(super) const fn new() -> Self {
        Self { mean: 0, others: [0; LINE], padded: [0; LINE + 2 * REACH], before: [0; 1 + BEFORE] }
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
        let (n_values, x, size) = (line.n_values, line.at[2], grid.sizes[2]);
        let weights = filter.weights.map(i64::from);
        self.mean = filter.mean;
        self.others[..n_values].fill(UNIT / 2);
        let mut left = UNIT - weights[..FIRST_ROW].iter().sum::<i64>();
        let mut nth = FIRST_ROW;
        for of in ROWS {
            let weights = &weights[nth..nth + 2 * of.2 + 1];
            nth += weights.len();
            let Some(row) = row(grid, line.at, of) else { continue };
            if weights.iter().all(|&weight| weight == 0) {
                continue;
            }
            left -= weights.iter().sum::<i64>();
            let row = &codes[row..row + size];
            let reach = of.2;
            for i in 0..reach {
                self.padded[i] =
                    row[(x + i).saturating_sub(reach)].to_i64().wrapping_sub(self.mean);
                let end = x + n_values + i;
                self.padded[reach + n_values + i] =
                    row[end.min(size - 1)].to_i64().wrapping_sub(self.mean);
            }
            let middle = &mut self.padded[reach..reach + n_values];
            for (place, code) in middle.iter_mut().zip(&row[x..x + n_values]) {
                *place = code.to_i64().wrapping_sub(self.mean);
            }
            for (right, &weight) in weights.iter().enumerate() {
                let codes = &self.padded[right..right + n_values];
                for (sum, &code) in self.others[..n_values].iter_mut().zip(codes) {
                    *sum = sum.wrapping_add(code.wrapping_mul(weight));
                }
            }
        }
        self.before = core::array::from_fn(|i| if i == 0 { left } else { weights[i] });
    }

    /// Calls `each` with the place in the line and the prediction of each value; `each` returns the
    /// code of the value.
    #[inline(always)]
    pub(super) fn line<C: Integer>(
        &self,
        codes: &[C],
        grid: &Grid,
        line: &Line,
        mut each: impl FnMut(usize, C) -> C,
    ) {
        let deviation = |code: C| code.to_i64().wrapping_sub(self.mean);
        let mut before = before(codes, grid, line).map(deviation);
        for (i, &others) in self.others[..line.n_values].iter().enumerate() {
            let mut sum = others;
            for (code, &weight) in before.iter().zip(&self.before) {
                sum = sum.wrapping_add(code.wrapping_mul(weight));
            }
            let prediction = (sum >> UNIT_BITS).wrapping_add(self.mean);
            let code = each(i, C::of_i64(prediction));
            before.copy_within(0..BEFORE, 1);
            before[0] = deviation(code);
        }
    }
}
