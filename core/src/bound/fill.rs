//! Search for a fill value that sets the range of a relative bound.
//!
//! Files mark missing data with a fill value, such as 1e20 or −9999. As the largest value of an
//! array, it sets the range, and the bound may allow all other values to come back as 0. The bound
//! holds, so only a search can find this.
//!
//! Cost: a sample of the values. All values are read only if the sample looks suspicious.

use super::ValueRange;
use crate::element::Float;
use crate::element::sealed::Wide;
use core::fmt;

/// Number of values in the sample.
const SAMPLE: usize = 1024;
/// A repeated value is suspected if all others are in this share of the range, at its other end.
const NARROW: f64 = 1.0 / 16.0;
/// A value that occurs once is suspected if the other values also span at most this many bounds.
const FEW_BOUNDS: f64 = 4.0;

impl ValueRange {
    /// Returns the value that seems to be a fill value. `values` are a part of the data that have
    /// this range, and `bound` is absolute.
    ///
    /// It is the smallest or the largest value and occurs in `values`. The other values are at the
    /// other end of the range, within 1/16 of it. If it occurs only once, they also span at most
    /// four bounds, so that nearly nothing is left of them.
    ///
    /// # Examples
    /// ```
    /// use foldwire::bound::ValueRange;
    ///
    /// let mut depths: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.01).sin() * 40.0).collect();
    /// let range = ValueRange::of(&depths).expect("finite values");
    /// assert_eq!(range.suspected_fill(&depths, 1e-3 * range.range()), None);
    ///
    /// depths[300..400].fill(-9999.0);
    /// let range = ValueRange::of(&depths).expect("finite values");
    /// assert_eq!(range.suspected_fill(&depths, 1e-3 * range.range()), Some(-9999.0));
    /// ```
    #[must_use]
    pub fn suspected_fill<T: Float>(self, values: &[T], bound: f64) -> Option<f64> {
        let step = (values.len() / SAMPLE).max(1);
        [[self.min, self.max], [self.max, self.min]].into_iter().find_map(|[extreme, other_end]| {
            self.rest_at(other_end, extreme, values.iter().step_by(step))?;
            let (n_equal, [least, most]) = self.rest_at(other_end, extreme, values.iter())?;
            let is_rare = n_equal < 2 && most - least > FEW_BOUNDS * bound;
            // Something is lost if the other values differ, or if they round to 0.
            let is_lost = least < most || (most != 0.0 && most.abs() <= bound);
            (n_equal > 0 && !is_rare && is_lost).then_some(extreme)
        })
    }

    /// Counts the values that equal `extreme`, and returns the smallest and largest other value.
    /// `None` if a value is far from the other end of the range.
    fn rest_at<'v, T: Float>(
        self,
        other_end: f64,
        extreme: f64,
        values: impl Iterator<Item = &'v T>,
    ) -> Option<(usize, [f64; 2])> {
        let (mut least, mut most, mut n_equal) = (f64::INFINITY, f64::NEG_INFINITY, 0);
        for x in values.map(|x| x.widen().to_f64()).filter(|x| x.is_finite()) {
            if x == extreme {
                n_equal += 1;
                continue;
            }
            if (x - other_end).abs() > NARROW * self.range() {
                return None;
            }
            (least, most) = (least.min(x), most.max(x));
        }
        Some((n_equal, [least, most]))
    }
}

/// A suspected fill value, as a warning in words.
#[derive(Clone, Copy, Debug)]
pub struct SuspectedFill(pub f64);

impl fmt::Display for SuspectedFill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the value {:?} sets the value range, and a bound relative to it leaves little of the \
             other values: if it marks missing data, pass it as the fill value, or use an absolute \
             bound",
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn suspected<T: Float>(values: &[T], relative: f64) -> Option<f64> {
        let range = ValueRange::of(values)?;
        range.suspected_fill(values, relative * range.range())
    }

    fn waves(n: usize) -> Vec<f32> {
        (0..n).map(|i| 15.0 + (i as f32 * 0.003).sin() * 12.0).collect()
    }

    #[test]
    fn a_fill_value_is_suspected_wherever_it_stands() {
        for fill in [1e20_f32, -9999.0, -999.0, f32::MAX, 1e36] {
            for n in [10, 1000, 30_000] {
                for filled in [0..n / 2, n - 2..n, n / 3..n / 3 + 2] {
                    let mut values = waves(n);
                    values[filled].fill(fill);
                    assert_eq!(suspected(&values, 1e-3), Some(f64::from(fill)), "{fill} {n}");
                }
            }
        }
    }

    #[test]
    fn the_other_end_of_the_range_is_no_fill_value() {
        let range = ValueRange { min: -1.0, max: 1e20, grid: 0.0, increment: 0.0 };
        let part: Vec<f64> = (0..4000).map(|i| f64::from(i % 50) / 25.0 - 1.0).collect();
        assert_eq!(range.suspected_fill(&part, 1e17), None);
    }

    #[test]
    fn a_single_value_is_suspected_only_if_it_costs_all_others() {
        let mut values = waves(5000);
        values[17] = 1e6;
        assert_eq!(suspected(&values, 1e-4), Some(1e6));
        assert_eq!(suspected(&values, 1e-6), None);
        // If it occurs again, wherever that is, it is.
        values[4998] = 1e6;
        assert_eq!(suspected(&values, 1e-6), Some(1e6));
    }

    #[test]
    fn data_without_fill_values_are_not_suspected() {
        let mut rare = [0.0_f32; 4000];
        assert_eq!(suspected(&rare, 1e-2), None);
        // An impulse: the other values are exactly 0.
        rare[1000] = 1.0;
        assert_eq!(suspected(&rare, 1e-2), None);
        let mask: Vec<f32> = (0..4000).map(|i| (i / 700 % 2) as f32).collect();
        let steep: Vec<f64> = (0..4000).map(|i| f64::from(i).powi(3)).collect();
        let hill: Vec<f32> = (-500..500).map(|i| (-(i * i) as f32 / 900.0).exp()).collect();
        assert_eq!([suspected(&mask, 0.1), suspected(&hill, 0.4)], [None; 2]);
        assert_eq!(suspected(&steep, 0.1), None);
        assert_eq!(suspected(&waves(4000), 1.0), None);
        assert_eq!(suspected::<f32>(&[], 0.1), None);
        assert_eq!(suspected(&[f32::NAN, 1.0, 1.0], 0.1), None);
    }

    #[test]
    fn what_rounds_to_nothing_is_lost_even_if_it_is_constant() {
        let mut values = [5.0_f32; 100];
        values[3..9].fill(1e20);
        assert_eq!(suspected(&values, 1e-3), Some(f64::from(1e20_f32)));
        // Here nothing is lost: the others decode to 5 within a thousandth of the range.
        values[3..9].fill(99.0);
        assert_eq!(suspected(&values, 1e-3), None);
    }
}
