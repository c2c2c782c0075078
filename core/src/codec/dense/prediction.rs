//! The caller's choice of a predictor. By default, the writer of a payload chooses one for each
//! chunk.

use super::window::{Predictor, Strides};

/// Predictor of [`Dense`](super::Dense) and [`FzNd`](super::FzNd)
/// ([`Plan::with_prediction`](crate::Plan::with_prediction)).
///
/// It changes the size of an encoding but never a value. Each chunk records its predictor, so ranks
/// may choose differently. If rows or planes are unknown, predictors that need them fall back to
/// simpler ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prediction {
    /// The best predictor for each chunk of 4096 values, judged by a sample of the chunk.
    #[default]
    Auto,
    /// No prediction: codes are packed unchanged. This suits unordered data such as weights.
    None,
    /// The previous value. Residuals are first differences.
    First,
    /// The line through the two previous values. Residuals are second differences.
    Second,
    /// The plane through neighbours in this row and the previous row: the 2-D Lorenzo predictor.
    Lorenzo2,
    /// The 3-D Lorenzo predictor, which also uses neighbours in the previous plane.
    Lorenzo3,
}

impl Prediction {
    /// All predictions.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::None, Self::First, Self::Second, Self::Lorenzo2, Self::Lorenzo3];

    /// Returns the name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::First => "d1",
            Self::Second => "d2",
            Self::Lorenzo2 => "2d",
            Self::Lorenzo3 => "3d",
        }
    }

    /// Returns the predictor, or the simpler one that these strides allow. `None` for
    /// [`Auto`](Self::Auto).
    pub(super) fn predictor(self, strides: Strides) -> Option<Predictor> {
        let wanted = match self {
            Self::Auto => return None,
            Self::None => 0,
            Self::First => Predictor::NEXT,
            Self::Second => Predictor::NEXT | Predictor::TWICE,
            Self::Lorenzo2 => Predictor::NEXT | Predictor::ROW,
            Self::Lorenzo3 => Predictor::NEXT | Predictor::ROW | Predictor::PLANE,
        };
        let fallbacks = [wanted, wanted & !Predictor::PLANE, wanted & Predictor::NEXT];
        fallbacks.into_iter().find_map(|bits| Predictor::of_bits(bits, strides))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predictor_without_its_rows_or_planes_falls_back_to_a_simpler_one() {
        let bits = |prediction: Prediction, row, plane| {
            prediction.predictor(Strides { row, plane }).map(Predictor::bits)
        };
        assert_eq!(bits(Prediction::Auto, 8, 64), None);
        assert_eq!(bits(Prediction::Lorenzo3, 8, 64), Some(7));
        assert_eq!(bits(Prediction::Lorenzo3, 8, 0), Some(3));
        assert_eq!(bits(Prediction::Lorenzo3, 0, 0), Some(1));
        assert_eq!(bits(Prediction::Lorenzo2, 8, 64), Some(3));
        assert_eq!(bits(Prediction::Second, 0, 0), Some(129));
        assert_eq!(bits(Prediction::None, 8, 64), Some(0));
    }
}
