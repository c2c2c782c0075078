//! Search for a fill value that sets the range of a relative bound.
//!
//! Files mark missing data with a fill value, such as 1e20 or −9999. As the largest value of an
//! array, it sets the range, and the bound may allow all other values to come back as 0. The bound
//! holds, so only a search can find this.
//!
//! Cost: a sample of the values. All values are read only if the sample looks suspicious.
//!
//! All pieces of an array are searched together, because a value may be rare in each of them.

use super::ValueRange;
use crate::element::sealed::Wide;
use crate::element::{DType, Float, with_float};
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
        let mut search = FillSearch::new(self, bound);
        search.add(values);
        search.found()
    }
}

/// Search for a fill value in an array that comes in pieces. The pieces do not matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillSearch {
    range: ValueRange,
    bound: f64,
    /// Values beside the smallest one and beside the largest one. `None` if a value is far from
    /// the other end of the range.
    rests: [Option<Rest>; 2],
}

/// Values beside an extreme one.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// Number of values that equal the extreme one.
    n_equal: usize,
    /// Smallest and largest other value.
    least: f64,
    most: f64,
}

impl FillSearch {
    /// A search in an array with this range. `bound` is absolute.
    pub(crate) const fn new(range: ValueRange, bound: f64) -> Self {
        let rest = Rest { n_equal: 0, least: f64::INFINITY, most: f64::NEG_INFINITY };
        Self { range, bound, rests: [Some(rest); 2] }
    }

    /// Searches the next piece.
    pub(crate) fn add<T: Float>(&mut self, values: &[T]) {
        let step = (values.len() / SAMPLE).max(1);
        // The difference of the ends may overflow; a sixteenth of it does not.
        let limit = NARROW * self.range.max - NARROW * self.range.min;
        for (rest, [extreme, other_end]) in self.rests.iter_mut().zip(ends(self.range)) {
            let add_to = |rest: Rest, step: usize| {
                let numbers = values.iter().step_by(step).map(|x| x.widen().to_f64());
                rest.with(numbers, extreme, other_end, limit)
            };
            *rest = rest.filter(|&rest| step == 1 || add_to(rest, step).is_some());
            *rest = rest.and_then(|rest| add_to(rest, 1));
        }
    }

    /// Same as [`add`](Self::add) for the memory of values of any type.
    pub(crate) fn add_bytes(&mut self, dtype: DType, values: &[u8]) {
        with_float!(dtype, T => self.add::<T>(bytemuck::cast_slice(values)), else ());
    }

    /// Returns whether more values could make a value look like a fill value.
    #[cfg(feature = "alloc")]
    pub(crate) fn may_find(&self) -> bool {
        self.rests.iter().any(Option::is_some)
    }

    /// Returns the value that seems to be a fill value, if no other values follow.
    pub(crate) fn found(&self) -> Option<f64> {
        ends(self.range).into_iter().zip(self.rests).find_map(|([extreme, _], rest)| {
            let Rest { n_equal, least, most } = rest?;
            let is_rare = n_equal < 2 && most - least > FEW_BOUNDS * self.bound;
            // Something is lost if the other values differ, or if they round to 0.
            let is_lost = least < most || (most != 0.0 && most.abs() <= self.bound);
            (n_equal > 0 && !is_rare && is_lost).then_some(extreme)
        })
    }
}

/// Returns each end of a range, with the other one.
const fn ends(range: ValueRange) -> [[f64; 2]; 2] {
    [[range.min, range.max], [range.max, range.min]]
}

impl Rest {
    /// Adds values; `None` if one is farther than `limit` from the other end of the range.
    fn with(
        mut self,
        values: impl Iterator<Item = f64>,
        extreme: f64,
        other_end: f64,
        limit: f64,
    ) -> Option<Self> {
        for x in values.filter(|x| x.is_finite()) {
            if x == extreme {
                self.n_equal += 1;
                continue;
            }
            if (x - other_end).abs() > limit {
                return None;
            }
            (self.least, self.most) = (self.least.min(x), self.most.max(x));
        }
        Some(self)
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
    fn a_range_beyond_the_largest_number_hides_and_invents_nothing() {
        let mut spread: Vec<f64> = (0..4096).map(|i| f64::from(i - 2048) / 2048.0).collect();
        spread.iter_mut().for_each(|x| *x *= 1.5e308);
        spread[9] = spread[0];
        let suspected = |values: &[f64]| ValueRange::of(values)?.suspected_fill(values, 1e305);
        assert_eq!(suspected(&spread), None);
        spread[1..].iter_mut().for_each(|x| *x = 1.5e308 - 1e306 * (*x / 1.5e308).abs());
        spread[9] = spread[0];
        assert_eq!(suspected(&spread), Some(-1.5e308));
    }

    #[test]
    fn pieces_of_an_array_are_searched_like_the_whole() {
        let mut scattered = waves(4000);
        (0..4000).step_by(1000).for_each(|i| scattered[i] = 1e6);
        let mut single = waves(4000);
        single[2000] = 1e6;
        let mut steep = waves(4000);
        (steep[100], steep[3900]) = (1e6, 5e5);
        for (values, expected) in [(scattered, Some(1e6)), (single, None), (steep, None)] {
            let range = ValueRange::of(&values).unwrap();
            assert_eq!(range.suspected_fill(&values, 1.0), expected);
            for n in [1, 7, 1000, 1500] {
                let mut search = FillSearch::new(range, 1.0);
                values.chunks(n).for_each(|piece| search.add(piece));
                assert_eq!(search.found(), expected, "pieces of {n}");
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
