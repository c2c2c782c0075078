//! The ranks' inputs, and their exact reduction.

use foldwire::Float;
use foldwire_arguments::OpArg;
use foldwire_workbench::data::Data;
use foldwire_workbench::input::exact_sum;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An input array for each rank.
#[derive(Debug)]
pub(super) struct RankArrays<T> {
    arrays: Vec<Vec<T>>,
}

impl<T: Float + Into<f64>> RankArrays<T> {
    /// Makes the inputs. Each rank's data begin at a random index that follows from the rank and
    /// the seed. With equally spaced starts, operands would repeat if the data are too short for
    /// all arrays.
    pub(super) fn new(data: &Data<T>, n_ranks: usize, count: usize, seed: u64) -> Self {
        let whole = data.between(1);
        let place = |rank: usize| {
            let hash = xxh3_64_with_seed(&(rank as u64).to_le_bytes(), seed);
            (hash % data.base().len() as u64) as usize
        };
        let array = |rank| {
            let mut array = vec![T::from_f64(0.0); count];
            whole.fill(0, place(rank), &mut array);
            array
        };
        Self { arrays: (0..n_ranks).map(array).collect() }
    }

    pub(super) fn arrays(&self) -> &[Vec<T>] {
        &self.arrays
    }

    /// Returns the exact reduction, rounded to `f64` once (a compensated sum).
    pub(super) fn exact(&self, op: OpArg) -> Vec<f64> {
        let n_ranks = self.arrays.len() as f64;
        match op {
            OpArg::Sum => exact_sum(&self.arrays),
            OpArg::Avg => exact_sum(&self.arrays).into_iter().map(|sum| sum / n_ranks).collect(),
            OpArg::Min => self.extreme(f64::min),
            OpArg::Max => self.extreme(f64::max),
            OpArg::Prod => unreachable!("the command line has no products"),
        }
    }

    /// Returns the minimum or maximum. As in Foldwire, the result is NaN if any operand is.
    fn extreme(&self, pick: fn(f64, f64) -> f64) -> Vec<f64> {
        let mut arrays = self.arrays.iter();
        let first = arrays.next().into_iter().flatten();
        let mut best: Vec<f64> = first.map(|value| value.to_f64()).collect();
        for array in arrays {
            for (best, value) in best.iter_mut().zip(array) {
                let value = value.to_f64();
                *best = if best.is_nan() || value.is_nan() { f64::NAN } else { pick(*best, value) };
            }
        }
        best
    }

    /// Returns the largest magnitude of a finite value.
    pub(super) fn magnitude(&self) -> f64 {
        let magnitudes = self.arrays.iter().flatten().map(|value| value.to_f64().abs());
        magnitudes.filter(|value| value.is_finite()).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operands(seed: u64) -> RankArrays<f32> {
        let data = Data::new((0..100).map(|i| i as f32).collect(), 1, "test".into());
        RankArrays::new(&data, 3, 7, seed)
    }

    #[test]
    fn ranks_have_other_data_the_same_by_the_same_seed() {
        let operands_1 = operands(1);
        let arrays = operands_1.arrays();
        assert!(arrays[0] != arrays[1] && arrays[1] != arrays[2]);
        assert_eq!(arrays, operands(1).arrays());
        assert_ne!(arrays, operands(2).arrays());
        // Values continue at the start of the data after the end.
        assert!(arrays.iter().flat_map(|x| x.windows(2)).all(|w| w[1] == (w[0] + 1.0) % 100.0));
    }

    #[test]
    fn reductions_by_hand() {
        let arrays = vec![vec![1.0_f32, f32::NAN, -3.0], vec![2.0, 5.0, 1.5]];
        let operands = RankArrays { arrays };
        assert_eq!(operands.exact(OpArg::Sum)[0], 3.0);
        assert_eq!(operands.exact(OpArg::Avg)[2], -0.75);
        assert_eq!(operands.exact(OpArg::Min)[2], -3.0);
        assert_eq!(operands.exact(OpArg::Max)[0], 2.0);
        assert!(operands.exact(OpArg::Max)[1].is_nan() && operands.exact(OpArg::Sum)[1].is_nan());
        assert_eq!(operands.magnitude(), 5.0);
    }
}
