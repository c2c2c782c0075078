//! How ranks learn the extent of their data: each looks at its own, and a small exact all-reduce
//! finds the extremes.
//!
//! A look at everything costs a pass over memory, which for large arrays is a quarter of an
//! all-reduce between cores. A sample of one block in 64 costs a tenth of that. Its range is at
//! most the whole range, so a bound relative to it is *at most* what the caller asked for: results
//! are never worse, messages larger only where the sample misses much. Its two halves show when
//! that is to be feared; then everything is looked at.

use crate::bound::Extent;
use crate::element::Float;
use crate::kernel::{Kernel, Level, sample};

/// Values exchanged, under maximum: [−min, max] of one half of a sample and of the other.
pub const N_VALUES: usize = 4;
/// The range of either half must be this part of the whole sample's.
const AGREEMENT: f64 = 0.75;

/// One rank's look at its values.
pub(crate) fn look<T: Float>(values: &[T], level: Level, sampled: bool) -> [f64; N_VALUES] {
    let halves =
        if sampled { sample::extents(values) } else { [Kernel::at(level).extent(values); 2] };
    let [(a, b), (c, d)] = halves.map(|(min, max)| (-min.to_f64(), max.to_f64()));
    [a, b, c, d]
}

/// What all looks together say; `None` if everything must be looked at.
pub(crate) fn conclude(all: [f64; N_VALUES], sampled: bool) -> Option<Option<Extent>> {
    let [a, b, c, d] = all;
    let whole = Extent { min: -a.max(c), max: b.max(d) };
    let least = (a + b).min(c + d);
    // Not so for ranges of 0, and where no value is finite.
    let agreed = least >= AGREEMENT * whole.range() && least > 0.0;
    (agreed || !sampled).then(|| (whole.min <= whole.max).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_that_differ_or_show_nothing_ask_for_a_full_look() {
        let extent = |min, max| Some(Some(Extent { min, max }));
        assert_eq!(conclude([-1.0, 9.0, -2.0, 9.5], true), extent(1.0, 9.5));
        assert_eq!(conclude([-1.0, 9.0, -2.0, 90.0], true), None);
        assert_eq!(conclude([-1.0, 9.0, -2.0, 90.0], false), extent(1.0, 90.0));
        assert_eq!(conclude([-3.0, 3.0, -3.0, 3.0], true), None);
        assert_eq!(conclude([-3.0, 3.0, -3.0, 3.0], false), extent(3.0, 3.0));
        let nothing = look::<f32>(&[f32::NAN; 600], Level::Scalar, true);
        assert_eq!(conclude(nothing, true), None);
        assert_eq!(conclude(look::<f32>(&[], Level::Scalar, false), false), Some(None));
    }
}
