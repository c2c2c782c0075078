//! How far a rank's result is from the exact one.

use foldwire::Element;

use super::data::Data;
use super::problem::Problem;
use crate::quality::Quality;

/// Values that are compared at a time, so that exact results need not be stored.
const PIECE: usize = 1 << 16;

/// Errors of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Verdict {
    /// Largest |result − exact| of the values that are finite in exact arithmetic.
    pub(super) max_error: f64,
    /// Values that are NaN or infinite in exact arithmetic, and not the same in the result.
    pub(super) mismatched_nonfinite: usize,
    /// Those of them that are NaN in exact arithmetic.
    pub(super) lost_nans: usize,
}

impl Verdict {
    /// Compares `result` with the part of the exact array that `problem` says is this rank's.
    pub(super) fn of<T: Element + Into<f64>>(
        problem: &Problem,
        data: &Data<T>,
        result: &[T],
    ) -> Self {
        let mut verdict = Self::default();
        let mut exact = vec![0.0; result.len().min(PIECE)];
        let mut first = problem.result().start;
        for piece in result.chunks(PIECE) {
            let exact = &mut exact[..piece.len()];
            problem.exact(data, first, exact);
            let quality = Quality::of(piece, exact);
            verdict.max_error = verdict.max_error.max(quality.max_error);
            verdict.mismatched_nonfinite += quality.mismatched_nonfinite;
            let is_lost = |(value, exact): &(&T, &f64)| exact.is_nan() && !value.to_f64().is_nan();
            verdict.lost_nans += piece.iter().zip(&*exact).filter(is_lost).count();
            first += piece.len();
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use foldwire::{Collective, Rank};

    use super::*;
    use crate::cli::OpArg;

    #[test]
    fn a_wrong_value_anywhere_is_found() {
        let count = 3 * PIECE + 5;
        let problem = Problem {
            collective: Collective::AllReduce,
            op: OpArg::Sum,
            root: Rank(0),
            in_place: false,
            count,
            size: 2,
            rank: 0,
        };
        let data = Data::new(vec![1.0_f32, f32::NAN, 3.0, 5.0], 2, String::new());
        // Rank 1 begins at the third value.
        let mut result: Vec<f32> =
            [4.0, f32::NAN, 4.0, f32::NAN].into_iter().cycle().take(count).collect();
        let right = Verdict::default();
        assert_eq!(Verdict::of(&problem, &data, &result), right);
        result[count - 1] += 0.5;
        result[PIECE + 1] = 6.0;
        let wrong = Verdict { max_error: 0.5, mismatched_nonfinite: 1, lost_nans: 1 };
        assert_eq!(Verdict::of(&problem, &data, &result), wrong);
    }
}
