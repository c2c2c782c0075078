//! Estimates, from a sample of an array's blocks, how many bits per value codecs would need.
//!
//! Samples are blocks of 32 values, spread over the array. A hash selects the place of a sample
//! within its part of the array, so that samples do not follow a period of the data. The values of
//! a sample, and the values that predict them, become codes on the lattice. Their residuals give
//! the estimates:
//!
//! - *fZ-light*: the width of each block's largest residual, as it would be stored.
//! - *fz-nd*: the same with the best predictor, and with fewer bits to store the width.
//! - *dense*: with the best predictor, the entropy of residuals whose magnitudes have the block's
//!   mean m and fall off geometrically: H(m) = (1 + m)·log₂(1 + m) − m·log₂ m + m/(1 + m).
//!
//! A value off the lattice costs its full length. Cost: about 10 ns for each of at most 1024
//! values, or 20 ns with a known shape.

use crate::element::{DType, Element, Float, with_float};
use crate::kernel::BLOCK;

/// One block in this many is a sample, within the limits of `MIN_SAMPLES` and `MAX_SAMPLES`.
const BLOCKS_PER_SAMPLE: usize = 64;
const MIN_SAMPLES: usize = 8;
const MAX_SAMPLES: usize = 32;
/// Number of predictors. By index: (0) none; (1) the previous value; (2) Lorenzo with the previous
/// row; (3) Lorenzo with the previous row and the previous plane; (4) second differences; (5)
/// second differences in the row and across rows.
const N_PREDICTORS: usize = 6;
/// Two codes, and the codes of the block after them.
type CodeLine = [i64; BLOCK + 2];

/// Estimated bits per value, by codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub fz_light: f64,
    pub fz_nd: f64,
    pub dense: f64,
}

/// Estimates the bits per value of `values` on a lattice of spacing `step` above 0. `strides` are
/// the distances between rows and between planes; 0 if unknown. `None` for integers and for arrays
/// shorter than a block.
pub(crate) fn estimate<T: Element>(values: &[T], strides: [u32; 2], step: f64) -> Option<Estimate> {
    of_bytes(T::DTYPE, bytemuck::cast_slice(values), strides, step)
}

/// Same as [`estimate`] for values whose type is a run-time argument, so that the function is
/// compiled in this crate.
fn of_bytes(dtype: DType, bytes: &[u8], strides: [u32; 2], step: f64) -> Option<Estimate> {
    with_float!(dtype, T => of_floats::<T>(bytemuck::cast_slice(bytes), strides, step), else None)
}

fn of_floats<T: Float>(values: &[T], strides: [u32; 2], step: f64) -> Option<Estimate> {
    let n_blocks = values.len() / BLOCK;
    let n_samples = (n_blocks / BLOCKS_PER_SAMPLE).clamp(MIN_SAMPLES.min(n_blocks), MAX_SAMPLES);
    let last = values.len().checked_sub(BLOCK)?;
    let [row, plane] = strides.map(|stride| stride as usize);
    // Ignore a stride so long that few blocks have such a neighbour.
    let row = if row > 1 && 2 * row < values.len() { row } else { 0 };
    let plane = if row > 0 && plane > row && 2 * plane < values.len() { plane } else { 0 };
    let codes = SampleCodes { values, inverse: step.recip(), limit: limit::<T>() };
    let first = (2 + row + plane.max(row)).min(last);
    let (mut widths, mut narrowest) = (0.0, [0.0; N_PREDICTORS]);
    let mut entropies = narrowest;
    let mut n_off = 0;
    for nth in 0..n_samples {
        let start = block_start(nth, n_samples, n_blocks).clamp(first, last);
        let (sample, n_missing) = codes.line(start, 0);
        n_off += n_missing;
        let widest = width(&differences(&sample, 1));
        widths += if widest > 0.0 { widest + 8.0 / BLOCK as f64 } else { 0.0 };
        let mut add = |predictor: usize, line: &CodeLine, n: u32| {
            let residuals = differences(line, n);
            narrowest[predictor] += width(&residuals);
            entropies[predictor] += geometric_entropy(mean(&residuals));
        };
        add(0, &sample, 0);
        add(1, &sample, 1);
        add(4, &sample, 2);
        if row > 0 {
            let above = codes.line(start, row).0;
            let across = minus(&sample, &above);
            add(2, &across, 1);
            add(5, &minus(&across, &minus(&above, &codes.line(start, 2 * row).0)), 2);
            if plane > 0 {
                let behind = codes.line(start, plane).0;
                let behind = minus(&behind, &codes.line(start, plane + row).0);
                add(3, &minus(&across, &behind), 1);
            }
        }
    }
    let n = n_samples.max(1) as f64;
    let bits = (T::BYTES * 8) as f64;
    let off = f64::from(n_off) / (n * BLOCK as f64) * bits;
    let is_usable = [true, true, row > 0, plane > 0, true, row > 0];
    let least = |of: &[f64; N_PREDICTORS], noise: f64| {
        let bits = |at: usize| if is_usable[at] { of[at] / n } else { f64::INFINITY };
        let once = (0..4).map(bits).fold(f64::INFINITY, f64::min);
        // Like the codecs, take second differences only if first ones leave more than noise.
        if once > noise { (4..N_PREDICTORS).map(bits).fold(once, f64::min) } else { once }
    };
    // More bits per block: fz-light takes one to mark occupied blocks, fz-nd two for the width, and
    // dense one because it rounds its low bits up.
    let fz_light = widths / n + 1.0 / BLOCK as f64 + off;
    let fz_nd = least(&narrowest, 3.0) + 2.0 / BLOCK as f64 + off;
    let dense = least(&entropies, geometric_entropy(2.0)) + 1.0 / BLOCK as f64 + off;
    let most = bits + 1.0;
    Some(Estimate { fz_light: fz_light.min(most), fz_nd: fz_nd.min(most), dense: dense.min(most) })
}

/// Returns the entropy, in bits, of numbers whose magnitudes have mean `m` and fall off
/// geometrically.
fn geometric_entropy(m: f64) -> f64 {
    if m <= 0.0 {
        return 0.0;
    }
    (1.0 + m) * libm::log2(1.0 + m) - m * libm::log2(m) + m / (1.0 + m)
}

/// Returns the exclusive limit of |code|, which leaves some headroom for sums.
fn limit<T: Float>() -> f64 {
    T::MAX_CODE.min(libm::ldexp(1.0, 8 * T::BYTES as i32 - 5))
}

/// Returns the start of a sample within its part of the array, by Fibonacci hashing (D. Knuth,
/// TAOCP vol. 3, section 6.4).
fn block_start(nth: usize, n_samples: usize, n_blocks: usize) -> usize {
    let hash = (nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let share = n_blocks / n_samples.max(1);
    (nth * n_blocks / n_samples.max(1) + hash as usize % share.max(1)) * BLOCK
}

/// Returns the block's codes if `n` is 0, their differences to the previous codes if it is 1, and
/// the differences of those differences if it is 2.
fn differences(line: &CodeLine, n: u32) -> [i64; BLOCK] {
    core::array::from_fn(|at| {
        let [two_before, before, code] = [line[at], line[at + 1], line[at + 2]];
        let previous = before.wrapping_sub(two_before);
        let difference = code.wrapping_sub(before);
        match n {
            0 => code,
            1 => difference,
            _ => difference.wrapping_sub(previous),
        }
    })
}

/// Returns the mean magnitude of the residuals.
fn mean(residuals: &[i64; BLOCK]) -> f64 {
    residuals.iter().map(|residual| residual.unsigned_abs() as f64).sum::<f64>() / BLOCK as f64
}

/// Returns the bits of the largest residual in zig-zag form.
fn width(residuals: &[i64; BLOCK]) -> f64 {
    let zig_zags =
        residuals.iter().map(|&residual| (residual << 1 ^ residual >> (i64::BITS - 1)) as u64);
    f64::from(u64::BITS - zig_zags.fold(0, |all, number| all | number).leading_zeros())
}

fn minus(line: &CodeLine, other: &CodeLine) -> CodeLine {
    core::array::from_fn(|at| line[at].wrapping_sub(other[at]))
}

struct SampleCodes<'a, T> {
    values: &'a [T],
    inverse: f64,
    limit: f64,
}

impl<T: Float> SampleCodes<'_, T> {
    /// Returns the codes of the 34 values that end `before` places before the end of the block at
    /// `start`, and the number of values without a code among the last 32. A value that is not on
    /// the lattice has no code and gets that of the previous value.
    fn line(&self, start: usize, before: usize) -> (CodeLine, u32) {
        let (mut line, mut n_missing, mut last) = ([0; BLOCK + 2], 0, 0);
        let Some(first) = start.checked_sub(before) else { return (line, 0) };
        for (nth, code) in line.iter_mut().enumerate() {
            // Before the array's first value, codes are 0.
            let value = self.values.get((first + nth).wrapping_sub(2));
            let scaled = value.map_or(0.0, |x| x.to_f64() * self.inverse);
            // The comparison is false for NaN.
            if scaled.abs() < self.limit {
                last = (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i64;
            } else {
                n_missing += u32::from(nth >= 2);
            }
            *code = last;
        }
        (line, n_missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Quantum;
    use crate::codec::{CodecExt, CodecId, CodecParams};
    use std::format;
    use std::vec;
    use std::vec::Vec;

    const SIDE: usize = 256;

    /// Returns the bits per value that the codec itself takes.
    fn real(codec: CodecId, values: &[f32], strides: [u32; 2], step: f64) -> f64 {
        let quantum = Quantum::new::<f32>(step / 2.0).expect("positive");
        let codec = codec.instance::<f32>(&CodecParams::new(quantum).with_strides(strides));
        let mut bytes =
            vec![0; codec.as_dyn().max_encoded_len(values.len()).expect("fits a frame")];
        let n_bytes = codec.as_dyn().encode(values, &mut bytes).expect("fits the buffer").n_bytes;
        n_bytes as f64 * 8.0 / values.len() as f64
    }

    fn noise(i: usize) -> f32 {
        let hash = (i as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 24) as f32
    }

    fn field(of: impl Fn(f32, f32, usize) -> f32) -> Vec<f32> {
        let value = |i: usize| of((i / SIDE) as f32, (i % SIDE) as f32, i);
        (0..SIDE * SIDE).map(value).collect()
    }

    #[test]
    fn estimates_are_near_what_codecs_make() {
        let fields = [
            ("smooth", field(|y, x, _| (x * 0.05).sin() * (y * 0.03).cos())),
            ("waves", field(|y, x, _| (x * 0.4).sin() + (y * 0.6).sin())),
            ("noisy", field(|y, x, i| (x * 0.05).sin() + (y * 0.03).cos() + 0.05 * noise(i))),
            ("noise", field(|_, _, i| noise(i))),
            ("half empty", field(|y, x, i| if y < 128.0 { 0.0 } else { x.sin() + noise(i) })),
        ];
        for (name, values) in fields {
            for strides in [[0, 0], [SIDE as u32, 0]] {
                for step in [2e-2, 2e-3, 2e-4] {
                    let estimated = estimate(&values, strides, step).expect("there are values");
                    let fz_light = real(CodecId::FzLight, &values, strides, step);
                    let dense = real(CodecId::Dense, &values, strides, step);
                    let near = |what, least: f64, most: f64| {
                        let context = format!("{name}, strides {strides:?}, step {step}");
                        assert!((least..most).contains(&what), "{context}: {what:.2}");
                    };
                    let fz_nd = real(CodecId::FzNd, &values, strides, step);
                    near(estimated.fz_light / fz_light, 0.92, 1.1);
                    near(estimated.fz_nd / fz_nd, 0.85, 1.25);
                    near(estimated.dense / dense, 0.7, 1.4);
                }
            }
        }
    }

    #[test]
    fn what_is_not_on_the_lattice_costs_what_it_is_long() {
        let far: Vec<f32> = (0..10_000).map(|i| noise(i) * 1e30).collect();
        let estimated = estimate(&far, [0, 0], 1e-6).expect("there are values");
        assert!(estimated.fz_light >= 32.0 && estimated.dense >= 32.0, "{estimated:?}");
        let nan = estimate(&[f32::NAN; 4096], [0, 0], 1.0).expect("there are values");
        assert!(nan.fz_light >= 32.0, "{nan:?}");
        let zero = estimate(&[0.0_f32; 4096], [64, 0], 1.0).expect("there are values");
        assert!(zero.fz_light < 0.1 && zero.dense < 0.1, "{zero:?}");
    }

    #[test]
    fn short_arrays_and_odd_shapes_have_estimates_or_none() {
        assert_eq!(estimate::<f64>(&[], [0, 0], 1.0), None);
        assert_eq!(estimate(&[1.0_f32; 31], [0, 0], 1.0), None);
        for n in [32, 33, 63, 64, 1000, 5001] {
            for strides in [[0, 0], [1, 0], [7, 49], [640, 6400], [u32::MAX; 2]] {
                assert!(estimate(&vec![1.0_f32; n], strides, 1e-3).is_some(), "{n} {strides:?}");
            }
        }
    }
}
