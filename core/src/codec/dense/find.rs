//! Search for strides: the distances between rows and between planes of an array. A shape that the
//! caller gives is one more candidate.
//!
//! If rows are `lag` values apart, the difference between neighbouring values resembles the
//! difference `lag` places before. The search therefore picks some values (*anchors*), spread over
//! the array. It compares the difference at each anchor with the differences before it, at all lags
//! up to [`MAX_STRIDE`]. Then it tries the few best lags as strides, alone and in pairs, as the
//! codec would use them.

use super::window::{MAX_STRIDE, Strides};
use crate::element::Float;
use crate::element::sealed::Wide;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{BLOCK, Level};
use core::cmp::Ordering;

/// Minimum number of values in an array whose strides are searched for. The anchors are spread over
/// the array, and each needs a whole window of values before it.
const LEAST: usize = 1 << 16;

/// Number of anchors.
const ANCHORS: usize = 48;
/// Number of lags with the smallest difference that are tried as rows and planes. For the best lag,
/// its two neighbours are tried as rows too, because a few values cannot tell them apart.
const TRIED: usize = 6;
/// A lag is tried only if it predicts the anchors' differences to their previous values well: what
/// remains must be less than this fraction of those differences.
const WORTH: f64 = 0.9;
/// Number of blocks on which strides are tried.
const BLOCKS: usize = 48;
/// Minimum fraction of the bits that strides must save.
const SAVES: f64 = 0.01;
/// Minimum fraction of the bits that farther strides must save over nearer ones.
const SAVES_MORE: f64 = 0.002;
/// Values with residuals beyond this limit have no codes.
const LARGEST: f64 = 1e9;

/// Returns the strides that save the most bits for these values on a lattice of this step, among
/// those `told` and those found. Returns the default (no strides) if none save enough.
pub(crate) fn find<T: Float>(values: &[T], told: Strides, step: f64, level: Level) -> Strides {
    if values.len() < LEAST {
        return told;
    }
    let mut differences = [T::Wide::nearest(0.0); MAX_STRIDE + 1];
    let worth = run(level, LagComparison { values, differences: &mut differences });
    let mut lags = Lags::default();
    for lag in 2..MAX_STRIDE {
        let [before, this, next] = [lag - 1, lag, lag + 1].map(|lag| differences[MAX_STRIDE - lag]);
        if this < worth && this <= before && this <= next {
            lags.offer(lag as u32, this.to_f64());
        }
    }
    run(level, StrideSearch { values, inverse: T::Wide::nearest(1.0 / step), told, lags })
}

/// Compares, for all lags, the difference between an anchor and its previous value with the same
/// difference one lag earlier. `differences[i]` receives the sum over all anchors for lag
/// `MAX_STRIDE - i`. Returns a limit: only lags with smaller sums are worth a try.
struct LagComparison<'a, T: Float> {
    values: &'a [T],
    differences: &'a mut [T::Wide; MAX_STRIDE + 1],
}

impl<T: Float> Task for LagComparison<'_, T> {
    type Output = T::Wide;

    #[inline(always)]
    fn run(self) -> T::Wide {
        let Self { values, differences } = self;
        let zero = T::Wide::nearest(0.0);
        // Not equally spaced, because the spacing might be a multiple of a stride.
        let anchors = || {
            let room = (values.len() - MAX_STRIDE - 2) / ANCHORS;
            (0..ANCHORS).map(move |i| {
                let shift = (i as u32).wrapping_mul(0x9e37_79b9) >> 16;
                MAX_STRIDE + 2 + i * room + room * shift as usize / (1 << 16)
            })
        };
        let difference = |at: usize| values[at].widen() - values[at - 1].widen();
        // Limit differences to four times the usual one: larger ones only show an outlier.
        let mut sizes = [T::Wide::MAX; ANCHORS];
        for (to, size) in sizes.iter_mut().zip(anchors().map(|at| difference(at).abs())) {
            if size < *to {
                *to = size;
            }
        }
        sizes.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let usual = sizes[ANCHORS * 3 / 4];
        let most = if usual < T::Wide::MAX { usual * T::Wide::nearest(4.0) } else { zero };
        let limited = |x: T::Wide| if x < most { x } else { most };
        let mut total = zero;
        for at in anchors() {
            let at_anchor = difference(at);
            total = total + limited(at_anchor.abs());
            let before = &values[at - 1 - MAX_STRIDE..at];
            let of = &before[1..];
            for (sum, (x, y)) in differences.iter_mut().zip(of.iter().zip(before)) {
                *sum = *sum + limited((at_anchor - (x.widen() - y.widen())).abs());
            }
        }
        total * T::Wide::nearest(WORTH)
    }
}

/// Lags, best first.
#[derive(Clone, Copy, Default)]
struct Lags {
    lags: [(u32, f64); TRIED],
    n: usize,
}

impl Lags {
    /// Inserts the lag if it is among the best.
    fn offer(&mut self, lag: u32, difference: f64) {
        let at = self.lags[..self.n].partition_point(|(_, other)| *other <= difference);
        if at < TRIED {
            self.n = (self.n + 1).min(TRIED);
            self.lags[at..self.n].rotate_right(1);
            self.lags[at] = (lag, difference);
        }
    }
}

/// Chooses strides among these lags by the residuals of a sample.
struct StrideSearch<'a, T: Float> {
    values: &'a [T],
    /// 1 / step.
    inverse: T::Wide,
    told: Strides,
    lags: Lags,
}

impl<T: Float> StrideSearch<'_, T> {
    /// Returns the cost of the sample's residuals with these strides and the best predictor. The
    /// scale is arbitrary but grows with the bits.
    #[inline(always)]
    fn cost(&self, strides: Strides) -> f64 {
        let (row, plane) = (usize::from(strides.row), usize::from(strides.plane));
        let codes = |at: usize| -> [T::Wide; BLOCK] {
            let values = self.values[at..].first_chunk::<BLOCK>();
            values.map_or([T::Wide::nearest(0.0); BLOCK], |x| x.map(|x| x.widen() * self.inverse))
        };
        let minus = |mut a: [T::Wide; BLOCK], b: [T::Wide; BLOCK]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = *a - b);
            a
        };
        let (zero, largest) = (T::Wide::nearest(0.0), T::Wide::nearest(LARGEST));
        let mut costs = [0.0; 8];
        let room = self.values.len() - MAX_STRIDE - 2 - BLOCK;
        for block in 0..BLOCKS {
            let start = MAX_STRIDE + 2 + block * room / BLOCKS;
            // `bits` is the set of differences to take: 1 to the previous value, 2 to the previous
            // row, 4 to the previous plane (see `Predictor`). Each pass computes `bits` and
            // `bits | 1`.
            for bits in (0..8).step_by(2) {
                if bits & 2 > 0 && row == 0 || bits & 4 > 0 && plane == 0 {
                    continue;
                }
                let across = |at: usize| match bits {
                    0 => codes(at),
                    2 => minus(codes(at), codes(at - row)),
                    4 => minus(codes(at), codes(at - plane)),
                    _ => minus(
                        minus(codes(at), codes(at - row)),
                        minus(codes(at - plane), codes(at - row - plane)),
                    ),
                };
                let left = across(start);
                let next = minus(left, across(start - 1));
                for (cost, left) in costs[bits..].iter_mut().zip([left, next]) {
                    // NaN and values far from all others have no code.
                    let size = |x: T::Wide| if x.abs() < largest { x.abs() } else { zero };
                    let sum = left.into_iter().fold(zero, |sum, x| sum + size(x)).to_f64();
                    // Bits grow with the logarithm, and the bit pattern of a float approximates it.
                    *cost += f64::from((8.0 + sum as f32).to_bits()) - f64::from(8_f32.to_bits());
                }
            }
        }
        let is_usable = |bits: &usize| (bits & 2 == 0 || row > 0) && (bits & 4 == 0 || plane > 0);
        // The codec has no predictor of set 6: rows and planes without the previous value.
        let all = [0, 1, 2, 3, 4, 5, 7].into_iter().filter(is_usable);
        all.map(|bits| costs[bits]).fold(f64::MAX, f64::min)
    }
}

impl<T: Float> Task for StrideSearch<'_, T> {
    type Output = Strides;

    #[inline(always)]
    fn run(self) -> Strides {
        let mut lags = self.lags.lags.map(|(lag, _)| lag);
        let lags = &mut lags[..self.lags.n];
        let told = (u32::from(self.told.row), u32::from(self.told.plane));
        let mut pairs = [(0, 0); 1 + 3 + TRIED * (TRIED + 1) / 2];
        pairs[0] = told;
        let mut n = 1;
        if let Some(&likeliest) = lags.first() {
            pairs[1..4]
                .copy_from_slice(&[likeliest, likeliest - 1, likeliest + 1].map(|lag| (lag, 0)));
            n = 4;
        }
        lags.sort_unstable();
        for (i, &row) in lags.iter().enumerate() {
            for plane in [0].iter().chain(&lags[i + 1..]) {
                pairs[n] = (row, *plane);
                n += 1;
            }
        }
        // One loop and no closure, so that `cost` has the level's instructions and is there once.
        let mut best = (Strides::default(), f64::MAX);
        for (nth, (row, plane)) in [(0, 0)].iter().chain(&pairs[..n]).copied().enumerate() {
            let strides = Strides::within(row, plane);
            let is_whole = (u32::from(strides.row), u32::from(strides.plane)) == (row, plane);
            if !is_whole || (nth > 0 && strides == Strides::default()) {
                continue;
            }
            let cost = self.cost(strides);
            if cost < best.1 {
                // Found strides must be better than the told ones, or than none, by more than the
                // sample's error.
                let saves = if nth < 2 { SAVES } else { SAVES_MORE };
                best = (strides, cost * (1.0 - saves));
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Quantum;
    use crate::codec::{CodecExt, CodecId, CodecParams};
    use std::vec;
    use std::vec::Vec;

    const LEVEL: Level = Level::Scalar;

    /// Makes a field of this shape in which adjacent rows and planes are similar and distant ones
    /// are not.
    fn field([planes, rows, columns]: [usize; 3]) -> Vec<f32> {
        let value = |i: usize| {
            let (z, y, x) = (i / columns / rows, i / columns % rows, i % columns);
            let wave = |x: usize, rate: f64| libm::sin(x as f64 * rate);
            let texture = (x.wrapping_mul(2_654_435_761) >> 7) % 1000;
            let of_plane = (x * 31 + y * 57).wrapping_mul(0x9e37_79b9) >> 9 & 255;
            (5.0 * wave(z + y, 0.05) + texture as f64 / 1e3 + of_plane as f64 / 600.0) as f32
        };
        (0..planes * rows * columns).map(value).collect()
    }

    fn found(values: &[f32]) -> [u32; 2] {
        let strides = find(values, Strides::default(), STEP, LEVEL);
        [strides.row.into(), strides.plane.into()]
    }

    const STEP: f64 = 1e-3;

    /// Returns the bytes with `ours` as strides divided by the bytes with `theirs`.
    fn ratio(values: &[f32], [ours, theirs]: [[u32; 2]; 2]) -> f64 {
        let params = CodecParams::new(Quantum::new::<f32>(STEP / 2.0).unwrap());
        let n_bytes = [ours, theirs].map(|strides| {
            let codec = CodecId::FzNd.instance::<f32>(&params.with_strides(strides));
            let mut dst = vec![0; codec.as_dyn().max_encoded_len(values.len()).unwrap()];
            codec.as_dyn().encode(values, &mut dst).unwrap().n_bytes as f64
        });
        n_bytes[0] / n_bytes[1]
    }

    #[test]
    fn strides_are_found_that_are_as_good_as_true_ones() {
        // The last two have planes too far apart for the window, or no planes.
        let shapes = [[20, 50, 97], [9, 96, 128], [40, 12, 192], [3, 200, 311], [1, 60, 1440]];
        for shape in shapes {
            let values = field(shape);
            let given = crate::codec::strides(&shape);
            let found = found(&values);
            let ratio = [given, [0; 2]].map(|other| ratio(&values, [found, other]));
            assert!(ratio[0] < 1.03, "{shape:?}: {found:?}, {} of the bytes", ratio[0]);
            assert!(ratio[1] < 0.97, "{shape:?}: {found:?}, {} without strides", ratio[1]);
        }
    }

    #[test]
    fn a_shape_that_is_told_is_taken_only_if_it_saves_bytes() {
        let shape = [9, 96, 128];
        let values = field(shape);
        let right = crate::codec::strides(&shape);
        for told in [right, [0, 0], [97, 0], [96, 96 * 127], [1000, 3000]] {
            let params = CodecParams::new(Quantum::new::<f32>(STEP / 2.0).unwrap());
            let taken = params.with_strides(told).with_shape_of(&values).strides;
            for other in [told, right, [0, 0]] {
                let ratio = ratio(&values, [taken, other]);
                assert!(ratio < 1.03, "{told:?}: {taken:?}, {ratio} of the bytes of {other:?}");
            }
        }
        // Too few values for a search.
        let params = CodecParams::new(Quantum::LOSSLESS).with_strides([7, 0]);
        assert_eq!(params.with_shape_of(&values[..1000]).strides, [7, 0]);
    }

    #[test]
    fn a_plane_is_taken_if_the_window_cannot_hold_the_row_besides() {
        let strides = Strides::within(3341, 3 * 3341);
        assert_eq!([strides.row, strides.plane], [3 * 3341, 0]);
        let strides = Strides::within(128, 128 * 96);
        assert_eq!([strides.row, strides.plane], [128, 0]);
    }

    #[test]
    fn every_level_finds_the_same() {
        let values = field([9, 96, 128]);
        for level in Level::available() {
            let strides = find(&values, Strides::default(), STEP, level);
            assert_eq!([strides.row, strides.plane].map(u32::from), found(&values), "{level}");
        }
    }

    #[test]
    fn masks_and_outliers_hide_nothing() {
        let mut values = field([9, 96, 128]);
        for (i, x) in values.iter_mut().enumerate() {
            match i % 53 {
                3 => *x = f32::NAN,
                9 => *x = 1e30,
                _ => {}
            }
        }
        let found = found(&values);
        let ratio = ratio(&values, [found, [128, 96 * 128]]);
        assert!(ratio < 1.03, "{found:?}, {ratio} of the bytes");
    }

    #[test]
    fn the_search_makes_data_without_rows_no_longer() {
        let mut state = 1_u32;
        let noise = (0..100_000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 * 1e-6
        });
        let noise: Vec<f32> = noise.collect();
        let mut walk = noise.clone();
        (1..walk.len()).for_each(|i| walk[i] = walk[i - 1] + (walk[i] - 8.0) * 1e-2);
        let line = (0..100_000).map(|i| libm::sqrt(f64::from(i)) as f32).collect();
        for (i, values) in [noise, walk, line].iter().enumerate() {
            let ratio = ratio(values, [found(values), [0; 2]]);
            assert!(ratio < 1.01, "{i}: {ratio} of the bytes");
        }
        for value in [0.0, 7.5, f32::NAN, f32::INFINITY, f32::MAX] {
            assert_eq!(found(&[value; LEAST]), [0; 2], "{value}");
        }
        // Too short.
        assert_eq!(found(&field([9, 50, 128])), [0; 2]);
        assert_eq!(found(&[]), [0; 2]);
    }
}
