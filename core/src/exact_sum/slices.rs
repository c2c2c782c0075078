//! Sums of long arrays in slices of 44 bits, as plain loops of floats.
//!
//! Let all |x| of a chunk be below 2^e, and c = 1.5 · 2⁵² · u with u = 2^(e − 44). Then q = (x + c)
//! − c is x rounded to a multiple of u, without an error, and so is the rest x − q. A lane adds at
//! most 128 such q, each at most 2⁴⁴ · u, so its sum stays below 2⁵³ · u and is exact, too. The
//! rest is split in the same way by the next u, until it is 0.
//!
//! Two slices hold all values of a chunk whose bits lie within 88 bits. Where they need more than
//! [`MAX_SLICES`], or reach the ends of the range, the rest is added digit by digit. The way does
//! not change the sum, so it may depend on the data, and neither the level nor the rounding mode of
//! the processor matters.

use super::ExactSum;
use crate::element::Float;
use crate::kernel::Level;
use crate::kernel::at_level::{self, Task};

/// Number of values that are split together.
pub(super) const CHUNK: usize = LANES * 128;
/// Arrays of fewer values are added digit by digit.
pub(super) const MIN_VALUES: usize = 32;
/// Number of independent sums.
const LANES: usize = 8;
/// Number of bits of a slice.
const SLICE_BITS: i32 = 44;
const MAX_SLICES: usize = 4;

/// Biased exponent of 2⁰.
const BIAS: i32 = f64::MAX_EXP - 1;

/// Adds a chunk of at most [`CHUNK`] values. The processor must calculate as IEEE 754 says.
pub(super) fn add<T: Float>(sum: &mut ExactSum, values: &[T]) {
    let mut rest = [0.0; CHUNK];
    let split = at_level::run(Level::best(), Split { values, rest: &mut rest });
    let Some(Slices { sums, has_rest }) = split else {
        return values.iter().for_each(|&value| sum.add(value));
    };
    let add = |&value: &f64| sum.add(value);
    let of_lanes = sums.as_flattened().iter();
    if has_rest {
        of_lanes.chain(&rest).for_each(add);
    } else {
        of_lanes.for_each(add);
    }
}

/// The slices of a chunk.
struct Slices {
    /// Sum of each slice in each lane.
    sums: [[f64; LANES]; MAX_SLICES],
    /// True if a value has bits below the last slice.
    has_rest: bool,
}

/// Splits values into slices and a rest. `None` if values are not finite, or if all are zeros or
/// some are too large for slices.
struct Split<'a, T> {
    values: &'a [T],
    rest: &'a mut [f64; CHUNK],
}

impl<T: Float> Task for Split<'_, T> {
    type Output = Option<Slices>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { values, rest } = self;
        let mut largest = [0.0f64; LANES];
        let (whole, last) = values.split_at(values.len() / LANES * LANES);
        let (rest, _) = rest.as_chunks_mut::<LANES>();
        let (whole, _) = whole.as_chunks::<LANES>();
        for (rest, values) in rest.iter_mut().zip(whole) {
            for ((rest, &x), largest) in rest.iter_mut().zip(values).zip(&mut largest) {
                *rest = x.to_f64();
                // A NaN is not larger; the first slice finds it.
                *largest = if rest.abs() > *largest { rest.abs() } else { *largest };
            }
        }
        let rows = &mut rest[..values.len().div_ceil(LANES)];
        if let Some(row) = rows.get_mut(whole.len()) {
            for ((rest, &x), largest) in row.iter_mut().zip(last).zip(&mut largest) {
                *rest = x.to_f64();
                *largest = if rest.abs() > *largest { rest.abs() } else { *largest };
            }
        }
        let largest = largest.iter().fold(0.0, |a: f64, &b| if b > a { b } else { a });
        // All values are below 2^(exponent + 1).
        let exponent = (largest.to_bits() >> (f64::MANTISSA_DIGITS - 1)) as i32 - BIAS;
        let mut splitter = exponent + 1 - SLICE_BITS + f64::MANTISSA_DIGITS as i32 - 1;
        if largest == 0.0 || splitter > BIAS {
            return None;
        }
        let mut slices = Slices { sums: [[0.0; LANES]; MAX_SLICES], has_rest: true };
        for of_slice in &mut slices.sums {
            if splitter <= -BIAS {
                break;
            }
            let c = 1.5 * f64::from_bits(((splitter + BIAS) as u64) << (f64::MANTISSA_DIGITS - 1));
            let mut is_left = [0; LANES];
            for row in &mut *rows {
                for ((x, sum), is_left) in row.iter_mut().zip(&mut *of_slice).zip(&mut is_left) {
                    let multiple = (*x + c) - c;
                    *sum += multiple;
                    *x -= multiple;
                    *is_left |= x.to_bits();
                }
            }
            if of_slice.iter().any(|sum| !sum.is_finite()) {
                return None;
            }
            // A rest of −0 is nothing.
            if is_left.iter().fold(0, |all, left| all | left) << 1 == 0 {
                slices.has_rest = false;
                break;
            }
            splitter -= SLICE_BITS;
        }
        Some(slices)
    }
}
