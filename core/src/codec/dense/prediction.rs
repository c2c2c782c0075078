//! Which predictor a writer takes, if not the one that leaves the least over.

use super::window::{Predictor, Strides};

/// What [`Dense`](super::Dense) and [`FzNd`](super::FzNd) predict values from
/// ([`Plan::with_prediction`](crate::Plan::with_prediction)).
///
/// It changes how many bytes values take, and no value. A chunk says how it was predicted, so ranks
/// may differ in it. Where rows or planes are not known, those that need them do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prediction {
    /// For each chunk of 4096 values what a sample of it says.
    #[default]
    Auto,
    /// Nothing: values are packed as they are. For data without order, as weights.
    None,
    /// The value before: what is left over are first differences.
    First,
    /// The line through the two before: second differences.
    Second,
    /// The plane through neighbours in this row and the one before: the Lorenzo predictor.
    Lorenzo2,
    /// The same of a box, with neighbours in the plane before.
    Lorenzo3,
}

impl Prediction {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::None, Self::First, Self::Second, Self::Lorenzo2, Self::Lorenzo3];

    /// Its name on command lines.
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

    /// The predictor itself, as far as these strides allow.
    pub(super) fn predictor(self, strides: Strides) -> Option<Predictor> {
        let wanted = match self {
            Self::Auto => return None,
            Self::None => 0,
            Self::First => Predictor::NEXT,
            Self::Second => Predictor::NEXT | Predictor::TWICE,
            Self::Lorenzo2 => Predictor::NEXT | Predictor::ROW,
            Self::Lorenzo3 => Predictor::NEXT | Predictor::ROW | Predictor::PLANE,
        };
        let or = [wanted, wanted & !Predictor::PLANE, wanted & Predictor::NEXT];
        or.into_iter().find_map(|bits| Predictor::of_bits(bits, strides))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_rows_and_planes_less_is_predicted() {
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
