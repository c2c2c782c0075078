//! How ranks learn the extent of their data, and how short codecs make them: each looks at its own,
//! and a small exact all-reduce finds the extremes.
//!
//! A look at everything costs a pass over memory, which for large arrays is a quarter of an
//! all-reduce between cores. A sample of one block in 64 costs a tenth of that. Its range is at
//! most the whole range, so a bound relative to it is *at most* what the caller asked for: results
//! are never worse, messages larger only where the sample misses much. Its two halves show when
//! that is to be feared; then everything is looked at.

//!
//! *Bits.* For an automatic plan ranks also exchange what codecs would make of a sample of theirs,
//! b bits a value each. Lattices of relative bounds hang on the extent of all ranks' data, of which
//! each knows only its own. But with spacing Δ values have about b + log₂ Δ − log₂ Δ' bits at
//! spacing Δ'. So ranks exchange b + log₂ Δ, and the largest counts: a ring moves at the pace of
//! its heaviest part.

use super::terms::Terms;
use crate::bound::{Extent, Quantum};
use crate::budget::resolve;
use crate::codec::CodecParams;
use crate::element::{Element, Float};
use crate::kernel::{Kernel, Level, sample};
use crate::select::automatic::{Bits, N_LOSSY};

/// Values exchanged, under maximum: [−min, max] of one half of a sample and of the other; −grid and
/// −increment.
pub const N_VALUES: usize = 6;
/// The same where the plan is automatic: also what each of its lossy codecs makes of a sample.
pub(super) const N_WITH_BITS: usize = N_VALUES + N_LOSSY;
/// What a rank says of data that it has not looked at, or of which there is nothing to say.
pub(super) const NOTHING: f64 = f64::NEG_INFINITY;
/// Bits a value of what is all but nothing.
const LEAST_BITS: f64 = 0.05;
/// The range of either half must be this part of the whole sample's.
const AGREEMENT: f64 = 0.75;

/// One rank's look at its values.
pub(crate) fn look<T: Float>(values: &[T], level: Level, sampled: bool) -> [f64; N_VALUES] {
    let halves =
        if sampled { sample::extents(values) } else { [Kernel::at(level).extent(values); 2] };
    let [(a, b), (c, d)] = halves.map(|(min, max)| (-min.to_f64(), max.to_f64()));
    let [grid, increment] = sample::grids(values);
    [a, b, c, d, -grid, -increment]
}

/// What all looks together say; `None` if everything must be looked at.
pub(crate) fn conclude(all: [f64; N_VALUES], sampled: bool) -> Option<Option<Extent>> {
    let [a, b, c, d, grid, increment] = all;
    let (min, max) = (-a.max(c), b.max(d));
    let whole = Extent { min, max, grid: -grid, increment: -increment };
    let least = (a + b).min(c + d);
    // Not so for ranges of 0, and where no value is finite.
    let agreed = least >= AGREEMENT * whole.range() && least > 0.0;
    (agreed || !sampled).then(|| (whole.min <= whole.max).then_some(whole))
}

/// What one rank says of the bits of its values, of which it knows this extent; and how far apart
/// their rows and planes are, which are looked for if nobody told and it `finds` them.
pub(super) fn weigh<T: Element>(
    terms: &Terms<'_>,
    values: &[T],
    extent: Option<Extent>,
    finds: Option<Level>,
) -> ([f64; N_LOSSY], [u32; 2]) {
    let mut strides = terms.plan.strides;
    let quantum = resolve(terms, extent).map_or(Quantum::LOSSLESS, |budget| budget.quantum);
    if quantum.is_lossless() {
        return ([NOTHING; N_LOSSY], strides);
    }
    if let Some(level) = finds.filter(|_| strides == [0; 2]) {
        strides = T::with_shape_of(values, CodecParams::new(quantum).at(level)).strides;
    }
    let bits = T::estimate(values, strides, quantum.step()).map(|estimate| Bits::of(&estimate).0);
    let bits = bits.map(|all| all.map(|bits| bits + libm::log2(quantum.step())));
    (bits.unwrap_or([NOTHING; N_LOSSY]), strides)
}

/// What all ranks say together of data of this extent; `None` if that is nothing.
pub(super) fn bits(terms: &Terms<'_>, extent: Option<Extent>, all: [f64; N_LOSSY]) -> Option<Bits> {
    let quantum = resolve(terms, extent).ok()?.quantum;
    let verbatim = (terms.dtype.n_bytes() * 8) as f64;
    if quantum.is_lossless() {
        return Some(Bits([verbatim + 1.0; N_LOSSY]));
    }
    let is_known = all.iter().all(|bits| bits.is_finite());
    let bits =
        all.map(|bits| (bits - libm::log2(quantum.step())).clamp(LEAST_BITS, verbatim + 1.0));
    is_known.then_some(Bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_that_differ_or_show_nothing_ask_for_a_full_look() {
        let extent = |min, max| Some(Some(Extent { min, max, grid: 0.5, increment: 1.0 }));
        assert_eq!(conclude([-1.0, 9.0, -2.0, 9.5, -0.5, -1.0], true), extent(1.0, 9.5));
        assert_eq!(conclude([-1.0, 9.0, -2.0, 90.0, -0.5, -1.0], true), None);
        assert_eq!(conclude([-1.0, 9.0, -2.0, 90.0, -0.5, -1.0], false), extent(1.0, 90.0));
        assert_eq!(conclude([-3.0, 3.0, -3.0, 3.0, -0.5, -1.0], true), None);
        assert_eq!(conclude([-3.0, 3.0, -3.0, 3.0, -0.5, -1.0], false), extent(3.0, 3.0));
        let nothing = look::<f32>(&[f32::NAN; 600], Level::Scalar, true);
        assert_eq!(conclude(nothing, true), None);
        assert_eq!(conclude(look::<f32>(&[], Level::Scalar, false), false), Some(None));
    }
}
