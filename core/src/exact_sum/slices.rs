//! Sums of long arrays in slices of 42 bits, as plain loops of floats.
//!
//! Let all |x| of a chunk be below 2^e, and c = 1.5 · 2⁵² · u with u = 2^(e − 42). Then q = (x + c)
//! − c is x rounded to a multiple of u, without an error, and so is the rest x − q. The q of a
//! chunk of 1024 values, each at most 2⁴² · u, add up to less than 2⁵³ · u, so their sum is exact,
//! too. The rest is split in the same way by the next u, until it is 0.
//!
//! Two slices, of one pass, hold all values of a chunk whose bits lie within 84 bits. Where they
//! need more than two passes, or reach the ends of the range, the rest is added digit by digit. The
//! way does not change the sum, so it may depend on the data, and neither the level nor the
//! rounding mode of the processor matters.

use super::ExactSum;
use crate::element::Float;
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};

/// Number of values that are split together.
pub(super) const CHUNK: usize = 1024;
/// Arrays of fewer values are added digit by digit.
pub(super) const MIN_VALUES: usize = 16;
/// Arrays of up to this many values need less memory.
const SHORT: usize = 128;
/// Number of independent sums.
const LANES: usize = 16;
/// Number of bits of a slice.
const SLICE_BITS: i32 = 42;
/// Slices of a pass.
const N_SLICES: usize = 2;
const MAX_PASSES: usize = 2;

const FRACTION_BITS: i32 = f64::MANTISSA_DIGITS as i32 - 1;
/// Biased exponent of 2⁰.
const BIAS: i32 = f64::MAX_EXP - 1;

/// Adds a chunk of at most [`CHUNK`] values. The processor must calculate as IEEE 754 says.
pub(super) fn add<T: Float>(sum: &mut ExactSum, values: &[T]) {
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
        let exponent = (largest.to_bits() >> FRACTION_BITS) as i32 - BIAS;
        let mut splitter = exponent + 1 - SLICE_BITS + FRACTION_BITS;
        if largest == 0.0 || splitter > BIAS {
            return None;
        }
        let mut slices = Slices { sums: [0.0; _], n_sums: 0, has_rest: true };
        while slices.n_sums < slices.sums.len() && splitter - SLICE_BITS > -BIAS {
            let [c, d] = [splitter, splitter - SLICE_BITS]
                .map(|n| 1.5 * f64::from_bits(((n + BIAS) as u64) << FRACTION_BITS));
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
