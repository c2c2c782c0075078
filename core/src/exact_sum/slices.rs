//! Sums of arrays in slices of 42 bits, as plain loops of floats.
//!
//! Let all |x| of a chunk be below 2^e, and c = 1.5 · 2⁵² · u with u = 2^(e − 42). Then q = (x + c)
//! − c is x rounded to a multiple of u, without an error, and so is the rest x − q. The q of a
//! chunk of 1024 values, each at most 2⁴² · u, add up to less than 2⁵³ · u, so their sum is exact,
//! too. The rest is split in the same way by the next u, until it is 0.
//!
//! Three slices, of one pass, hold all values of a chunk whose bits lie within 126 bits. The pass
//! takes e from the chunk before, plus 8 bits, and finds out whether it was too small. If slices do
//! not hold a chunk, two more ways follow: with e of this chunk, and, if the bits lie too far
//! apart, with up to four slices of passes that store the rest, which is then added digit by digit.
//!
//! The way does not change the sum, so it may depend on the data, and neither the level nor the
//! rounding mode of the processor matters.

use super::ExactSum;
use crate::element::Float;
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};
use crate::kernel::prefetch;

/// Number of values that are split together.
pub(super) const CHUNK: usize = 1024;
/// Arrays of fewer values are added digit by digit.
pub(super) const MIN_VALUES: usize = 16;
/// Arrays of up to this many values need less memory.
const SHORT: usize = 128;
/// Number of values between those that are added and those that are prefetched.
const AHEAD: usize = 512;
/// Number of independent sums.
const LANES: usize = 16;
/// Number of bits of a slice.
pub(super) const SLICE_BITS: i32 = 42;
/// Slices of a pass that stores the rest.
const N_SLICES: usize = 2;
const MAX_PASSES: usize = 2;
/// Slices of a pass that stores nothing.
const N_QUICK: usize = 3;
/// Number of bits by which values may grow until the pass needs another e.
const HEADROOM: i32 = 8;
/// Number of chunks beyond those that fit which may fail to, until a [`Slicer`] gives up.
const MAX_FAILURES: u32 = 4;
/// Smallest exponent of a slice. Its unit has a reciprocal.
const LOWEST: i32 = -900;

pub(super) const FRACTION_BITS: i32 = f64::MANTISSA_DIGITS as i32 - 1;
/// Biased exponent of 2⁰.
pub(super) const BIAS: i32 = f64::MAX_EXP - 1;
/// Minus the exponent of the smallest `f64`.
#[cfg(any(test, feature = "alloc"))]
pub(super) const SMALLEST: i32 = BIAS + FRACTION_BITS - 1;

/// Sums chunks whose values are of similar size, one after the other. The processor must calculate
/// as IEEE 754 says.
pub(super) struct Slicer {
    level: Level,
    /// Exponent of the constant c of the first slice.
    splitter: i32,
    n_failures: u32,
}

impl Slicer {
    pub(super) fn new() -> Self {
        Self { level: Level::best(), splitter: i32::MIN, n_failures: 0 }
    }

    /// Adds a chunk of at most [`CHUNK`] values.
    pub(super) fn add<T: Float>(&mut self, sum: &mut ExactSum, values: &[T]) {
        match self.split(values) {
            Some(sums) => sums.iter().for_each(|&of_slice| sum.add(of_slice)),
            None => add(sum, values),
        }
    }

    /// Returns the sums of the slices of a chunk, if slices hold it and it is not zero.
    fn split<T: Float>(&mut self, values: &[T]) -> Option<[f64; N_QUICK]> {
        if self.n_failures == MAX_FAILURES {
            return None;
        }
        let mut sums = self.try_split(values);
        if sums.is_none() {
            let largest = at_level::run(self.level, Largest(values));
            if largest == 0.0 {
                return None;
            }
            self.splitter = exponent(largest) + 1 + HEADROOM - SLICE_BITS + FRACTION_BITS;
            sums = self.try_split(values);
        }
        self.n_failures = match sums {
            Some(_) => self.n_failures.saturating_sub(1),
            None => self.n_failures + 1,
        };
        sums
    }

    fn try_split<T: Float>(&self, values: &[T]) -> Option<[f64; N_QUICK]> {
        let lowest = self.splitter.checked_sub(N_QUICK as i32 * SLICE_BITS)?;
        if self.splitter > BIAS || lowest < LOWEST {
            return None;
        }
        at_level::run(self.level, Quick { values, splitter: self.splitter })
    }
}

/// Returns the exponent of a positive number: it is at least 2^`exponent` and less than twice that.
pub(super) const fn exponent(x: f64) -> i32 {
    (x.to_bits() >> FRACTION_BITS) as i32 - BIAS
}

/// Returns 2ⁿ. It must be normal.
pub(super) const fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + BIAS) as u64) << FRACTION_BITS)
}

/// Finds the largest |x|. NaN counts as 0.
pub(super) struct Largest<'a, T>(pub(super) &'a [T]);

impl<T: Float> Task for Largest<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut largest = [0.0; LANES];
        let (rows, last) = self.0.as_chunks::<LANES>();
        for row in rows {
            load(&mut [0.0; LANES], row, &mut largest);
        }
        load(&mut [0.0; LANES], last, &mut largest);
        folded(largest, |a, b| if b > a { b } else { a })
    }
}

/// Splits values into slices by a given first splitter. `None` if that is too small, if there is a
/// rest, if values are not finite, or if all are zeros.
struct Quick<'a, T> {
    values: &'a [T],
    splitter: i32,
}

/// State of a pass over values in each lane.
struct Lanes {
    sums: [[f64; LANES]; N_QUICK],
    largest: [f64; LANES],
    left: [u64; LANES],
}

impl<T: Float> Task for Quick<'_, T> {
    type Output = Option<[f64; N_QUICK]>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let splitters = [0, 1, 2].map(|i| 1.5 * power_of_two(self.splitter - i * SLICE_BITS));
        let sums = [[0.0; LANES]; N_QUICK];
        let mut lanes = Lanes { sums, largest: [0.0; LANES], left: [0; LANES] };
        let (rows, last) = self.values.as_chunks::<LANES>();
        for row in rows {
            prefetch::line(row.as_ptr().wrapping_add(AHEAD));
            prefetch::line(row.as_ptr().wrapping_add(AHEAD + LANES / 2));
            lanes.add(row, splitters);
        }
        if !last.is_empty() {
            lanes.add(last, splitters);
        }
        let largest = folded(lanes.largest, |a, b| if b > a { b } else { a });
        let sums = lanes.sums.map(|of_lanes| folded(of_lanes, |a, b| a + b));
        // A rest of −0 is nothing.
        let has_rest = folded(lanes.left, |a, b| a | b) << 1 != 0;
        let limit = power_of_two(self.splitter + SLICE_BITS - FRACTION_BITS);
        let fits = largest > 0.0 && largest < limit && !has_rest;
        // Only a NaN, which was not larger than any other value, makes a sum that is not finite.
        (fits && sums.iter().all(|sum| sum.is_finite())).then_some(sums)
    }
}

impl Lanes {
    /// Adds a value to each lane. Lanes without a value get 0.
    #[inline(always)]
    fn add<T: Float>(&mut self, values: &[T], [c, d, e]: [f64; N_QUICK]) {
        let mut row = [0.0; LANES];
        for (x, &value) in row.iter_mut().zip(values) {
            *x = value.to_f64();
        }
        for (i, &x) in row.iter().enumerate() {
            let first = (x + c) - c;
            let rest = x - first;
            let second = (rest + d) - d;
            let rest = rest - second;
            let third = (rest + e) - e;
            self.sums[0][i] += first;
            self.sums[1][i] += second;
            self.sums[2][i] += third;
            self.left[i] |= (rest - third).to_bits();
            self.largest[i] = if x.abs() > self.largest[i] { x.abs() } else { self.largest[i] };
        }
    }
}

/// Combines lanes pairwise. Their number is a power of two.
#[inline(always)]
pub(super) fn folded<N: Copy, const L: usize>(mut lanes: [N; L], combine: impl Fn(N, N) -> N) -> N {
    let mut n = L;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            lanes[i] = combine(lanes[i], lanes[i + n]);
        }
    }
    lanes[0]
}

/// Adds a chunk of at most [`CHUNK`] values. The processor must calculate as IEEE 754 says.
fn add<T: Float>(sum: &mut ExactSum, values: &[T]) {
    if values.len() > SHORT {
        add_with(sum, values, &mut [[0.0; LANES]; CHUNK / LANES]);
    } else {
        add_with(sum, values, &mut [[0.0; LANES]; SHORT / LANES]);
    }
}

/// Adds a chunk, with space for the rests of its values, which is zeros.
fn add_with<T: Float>(sum: &mut ExactSum, values: &[T], rest: &mut [[f64; LANES]]) {
    let split = at_level::run(Level::best(), Split { values, rest: &mut *rest });
    let Some(Slices { sums, n_sums, has_rest }) = split else {
        return values.iter().for_each(|&value| sum.add(value));
    };
    sums[..n_sums].iter().for_each(|&of_slice| sum.add(of_slice));
    if has_rest {
        rest.as_flattened().iter().for_each(|&value| sum.add(value));
    }
}

/// The slices of a chunk.
struct Slices {
    /// Sum of each slice.
    sums: [f64; N_SLICES * MAX_PASSES],
    n_sums: usize,
    /// True if a value has bits below the last slice.
    has_rest: bool,
}

/// Splits values into slices and a rest. `None` if values are not finite, or if all are zeros or
/// some are too large for slices.
struct Split<'a, T> {
    values: &'a [T],
    rest: &'a mut [[f64; LANES]],
}

impl<T: Float> Task for Split<'_, T> {
    type Output = Option<Slices>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { values, rest } = self;
        let rows = &mut rest[..values.len().div_ceil(LANES)];
        let (whole, last) = values.as_chunks::<LANES>();
        let mut largest = [0.0; LANES];
        for (row, values) in rows.iter_mut().zip(whole) {
            load(row, values, &mut largest);
        }
        if let Some(row) = rows.get_mut(whole.len()) {
            load(row, last, &mut largest);
        }
        let largest = largest.iter().fold(0.0, |a: f64, &b| if b > a { b } else { a });
        // All values are below 2^(exponent + 1).
        let mut splitter = exponent(largest) + 1 - SLICE_BITS + FRACTION_BITS;
        if largest == 0.0 || splitter > BIAS {
            return None;
        }
        let mut slices = Slices { sums: [0.0; _], n_sums: 0, has_rest: true };
        while slices.n_sums < slices.sums.len() && splitter - SLICE_BITS > -BIAS {
            let [c, d] = [splitter, splitter - SLICE_BITS].map(|n| 1.5 * power_of_two(n));
            let mut sums = [[0.0; LANES]; N_SLICES];
            let mut is_left = [0; LANES];
            for row in &mut *rows {
                for (i, x) in row.iter_mut().enumerate() {
                    let first = (*x + c) - c;
                    let rest = *x - first;
                    let second = (rest + d) - d;
                    *x = rest - second;
                    sums[0][i] += first;
                    sums[1][i] += second;
                    is_left[i] |= x.to_bits();
                }
            }
            for of_lanes in sums {
                let sum: f64 = of_lanes.iter().sum();
                // Only a NaN, which was not larger than any other value, does this.
                if !sum.is_finite() {
                    return None;
                }
                slices.sums[slices.n_sums] = sum;
                slices.n_sums += 1;
            }
            // A rest of −0 is nothing.
            if is_left.iter().fold(0, |all, left| all | left) << 1 == 0 {
                slices.has_rest = false;
                break;
            }
            splitter -= N_SLICES as i32 * SLICE_BITS;
        }
        Some(slices)
    }
}

/// Converts values, and finds the largest in each lane.
#[inline(always)]
fn load<T: Float>(row: &mut [f64; LANES], values: &[T], largest: &mut [f64; LANES]) {
    for ((x, &value), largest) in row.iter_mut().zip(values).zip(largest) {
        *x = value.to_f64();
        *largest = if x.abs() > *largest { x.abs() } else { *largest };
    }
}
