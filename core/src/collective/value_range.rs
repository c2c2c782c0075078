//! Agreement between ranks on the value range of their data, and on the bits that codecs need for a
//! value. Each rank scans its own input, and a small exact all-reduce finds the extremes.
//!
//! *Samples.* A scan of all data costs a pass over memory. For large arrays it takes a quarter of
//! the time of an all-reduce between cores. A scan of a sample, one block in 64, takes a tenth of
//! that. The sample's range is at most the whole range, so a bound relative to it is *at most* the
//! bound that the caller requested. Results are never worse. Messages are longer only if the sample
//! misses much of the range. That is likely if the ranges of the sample's two halves differ: then
//! ranks scan all data.
//!
//! *Bits.* For an automatic plan ranks also estimate on a sample how many bits b each codec needs
//! for a value. The lattice of a relative bound depends on the value range of all ranks' data, but
//! a rank knows only the range of its own data. If values need b bits at spacing Δ, they need about
//! b + log₂ Δ − log₂ Δ' bits at spacing Δ'. So ranks exchange b + log₂ Δ. The largest estimate
//! counts, since a ring moves at the pace of its heaviest part.

use super::call_spec::CallSpec;
use crate::bound::{FillSearch, Quantum, ValueRange};
use crate::budget::resolve;
use crate::codec::{CodecParams, estimate::estimate};
use crate::element::{DType, Element, Float, with_float};
use crate::fill::{Fill, Marks};
use crate::kernel::{CHUNK, Kernel, Level, sample};
use crate::select::automatic::{Bits, N_LOSSY};

/// Number of values that ranks reduce by maximum: [−min, max] of each half of a sample, then −grid
/// and −increment. Without a sample, both halves are all data.
pub const N_VALUES: usize = 6;
/// Number of values that ranks reduce for an automatic plan: [`N_VALUES`], and an estimate for each
/// lossy codec.
pub(super) const N_WITH_BITS: usize = N_VALUES + N_LOSSY;
/// Stands in for a value that a rank does not know. It does not affect the maximum.
pub(crate) const UNKNOWN: f64 = f64::NEG_INFINITY;
/// Smallest number of bits that a value is assumed to need.
const MIN_BITS: f64 = 0.05;
/// Smallest fraction of a sample's range that each half must cover. If one covers less, the sample
/// does not suffice.
const AGREEMENT: f64 = 0.75;

/// Scans one rank's values, except for fill values. With a fill value, it scans all values instead
/// of a sample. Integers give [`UNKNOWN`], since they have no bound.
pub(crate) fn scan_values<T: Element>(
    values: &[T],
    level: Level,
    sampled: bool,
    fill: Option<Fill>,
) -> [f64; N_VALUES] {
    let scan =
        |values: &[T], sampled| scan_bytes(T::DTYPE, bytemuck::cast_slice(values), level, sampled);
    let Some(Fill { value, .. }) = fill else { return scan(values, sampled) };
    let mut marked = [T::ZERO; CHUNK];
    values.chunks(CHUNK).fold([UNKNOWN; N_VALUES], |mut all, values| {
        let marked = &mut marked[..values.len()];
        marked.copy_from_slice(values);
        Marks::of(value).mark(T::DTYPE, bytemuck::cast_slice_mut(marked));
        all.iter_mut().zip(scan(marked, false)).for_each(|(all, new)| *all = all.max(new));
        all
    })
}

/// Does the same for values as bytes of a type known at run time, so that it is compiled in this
/// crate.
fn scan_bytes(dtype: DType, bytes: &[u8], level: Level, sampled: bool) -> [f64; N_VALUES] {
    with_float!(
        dtype, T => scan_floats::<T>(bytemuck::cast_slice(bytes), level, sampled),
        else [UNKNOWN; N_VALUES]
    )
}

fn scan_floats<T: Float>(values: &[T], level: Level, sampled: bool) -> [f64; N_VALUES] {
    let halves = if sampled {
        sample::value_ranges(values)
    } else {
        [Kernel::at(level).value_range(values); 2]
    };
    let [(a, b), (c, d)] = halves.map(|(min, max)| (-min.to_f64(), max.to_f64()));
    let [grid, increment] = sample::grids(values);
    [a, b, c, d, -grid, -increment]
}

/// Reads the value range out of the maxima over all ranks. `None` if a sample does not suffice, and
/// ranks must scan all data. The inner `None` means that no value is finite.
pub(crate) fn read_extremes(all: [f64; N_VALUES], sampled: bool) -> Option<Option<ValueRange>> {
    let [a, b, c, d, grid, increment] = all;
    let (min, max) = (-a.max(c), b.max(d));
    let whole = ValueRange { min, max, grid: -grid, increment: -increment };
    let least = (a + b).min(c + d);
    // Fails for a range of 0, and if no value is finite.
    let agreed = least >= AGREEMENT * whole.range() && least > 0.0;
    (agreed || !sampled).then(|| (whole.min <= whole.max).then_some(whole))
}

/// Searches one rank's values, which come in pieces, for a fill value that sets the value range.
pub(crate) fn suspect_fill<'v, T: Element>(
    pieces: impl IntoIterator<Item = &'v [T]>,
    value_range: Option<ValueRange>,
    bound: f64,
) -> Option<f64> {
    let mut search = FillSearch::new(value_range.filter(|_| bound > 0.0)?, bound);
    for piece in pieces {
        search.add_bytes(T::DTYPE, bytemuck::cast_slice(piece));
    }
    search.found()
}

/// Estimates the bits b that each lossy codec needs for a value of this rank's input, given the
/// input's value range. Returns b + log₂ Δ, or [`UNKNOWN`].
///
/// Also returns the strides of rows and planes. If `search_level` is set, it searches for
/// them; the caller's shape is one candidate.
pub(super) fn estimate_bits<T: Element>(
    spec: &CallSpec<'_>,
    values: &[T],
    value_range: Option<ValueRange>,
    search_level: Option<Level>,
) -> ([f64; N_LOSSY], [u32; 2]) {
    let mut strides = spec.plan.strides;
    let quantum = resolve(spec, value_range).map_or(Quantum::LOSSLESS, |budget| budget.quantum);
    if quantum.is_lossless() {
        return ([UNKNOWN; N_LOSSY], strides);
    }
    if let Some(level) = search_level {
        let told = CodecParams::new(quantum).at(level).with_strides(strides);
        strides = told.with_shape_of(values).strides;
    }
    let bits = estimate(values, strides, quantum.step()).map(|estimate| Bits::of(&estimate).0);
    let bits = bits.map(|all| all.map(|bits| bits + libm::log2(quantum.step())));
    (bits.unwrap_or([UNKNOWN; N_LOSSY]), strides)
}

/// Returns the bits that each lossy codec needs for a value, from the maxima `all` of all ranks'
/// estimates and the value range of all data. `None` if an estimate is unknown.
pub(super) fn agreed_bits(
    spec: &CallSpec<'_>,
    value_range: Option<ValueRange>,
    all: [f64; N_LOSSY],
) -> Option<Bits> {
    let quantum = resolve(spec, value_range).ok()?.quantum;
    let verbatim = (spec.dtype.n_bytes() * 8) as f64;
    if quantum.is_lossless() {
        // No lossy codec can gain: it would store every value unchanged, with some overhead.
        return Some(Bits([verbatim + 1.0; N_LOSSY]));
    }
    let is_known = all.iter().all(|bits| bits.is_finite());
    let bits = all.map(|bits| (bits - libm::log2(quantum.step())).clamp(MIN_BITS, verbatim + 1.0));
    is_known.then_some(Bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::{Bound, Spacing};
    use crate::op::OpCode;
    use crate::plan::Plan;
    use std::vec::Vec;

    #[test]
    fn halves_that_differ_or_show_nothing_ask_for_a_full_look() {
        let value_range = |min, max| Some(Some(ValueRange { min, max, grid: 0.5, increment: 1.0 }));
        assert_eq!(read_extremes([-1.0, 9.0, -2.0, 9.5, -0.5, -1.0], true), value_range(1.0, 9.5));
        assert_eq!(read_extremes([-1.0, 9.0, -2.0, 90.0, -0.5, -1.0], true), None);
        assert_eq!(
            read_extremes([-1.0, 9.0, -2.0, 90.0, -0.5, -1.0], false),
            value_range(1.0, 90.0)
        );
        assert_eq!(read_extremes([-3.0, 3.0, -3.0, 3.0, -0.5, -1.0], true), None);
        assert_eq!(read_extremes([-3.0, 3.0, -3.0, 3.0, -0.5, -1.0], false), value_range(3.0, 3.0));
        // Three quarters of the whole range are enough.
        assert_eq!(read_extremes([0.0, 3.0, 0.0, 4.0, -0.5, -1.0], true), value_range(0.0, 4.0));
        assert_eq!(read_extremes([0.0, 2.999, 0.0, 4.0, -0.5, -1.0], true), None);
        let nothing = scan_values::<f32>(&[f32::NAN; 600], Level::Scalar, true, None);
        assert_eq!(read_extremes(nothing, true), None);
        let nothing = scan_values::<f32>(&[], Level::Scalar, false, None);
        assert_eq!(read_extremes(nothing, false), Some(None));
    }

    /// A call on a lattice of spacing ⅛, whose binary logarithm is −3.
    fn spec() -> CallSpec<'static> {
        let plan = Plan::foldwire(Bound::Absolute(0.0625)).with_spacing(Spacing::PowerOfTwo);
        CallSpec::of_test(plan, OpCode::Sum, 2)
    }

    #[test]
    fn ranks_tell_what_bits_there_are_on_a_lattice_of_step_one() {
        let values: Vec<f32> = (0..4000_u32).map(|i| (i * i % 611) as f32).collect();
        let found = estimate(&values, [0; 2], 0.125).map(|estimate| Bits::of(&estimate).0);
        let found = found.expect("there are values");
        let (exchanged, _) = estimate_bits(&spec(), &values, None, None);
        for (exchanged, found) in exchanged.into_iter().zip(found) {
            assert!(
                found > 6.0 && (found - exchanged - 3.0).abs() < 1e-9,
                "{exchanged} for {found}"
            );
        }
        // All ranks together: a finer step needs more bits, by the difference of the logarithms.
        let bits_of = |all| agreed_bits(&spec(), None, [all; N_LOSSY]).map(|bits| bits.0[0]);
        assert_eq!(bits_of(4.0), Some(7.0));
        assert_eq!(bits_of(-2.0), Some(1.0));
        assert_eq!([bits_of(-9.0), bits_of(1000.0)], [Some(MIN_BITS), Some(33.0)]);
        assert_eq!(bits_of(UNKNOWN), None);
    }

    #[test]
    fn values_on_no_lattice_are_longer_than_they_were() {
        let lossless = CallSpec { plan: Plan { bound: None, ..spec().plan }, ..spec() };
        let values = [1.0_f32; 100];
        assert_eq!(estimate_bits(&lossless, &values, None, None).0, [UNKNOWN; N_LOSSY]);
        let all = agreed_bits(&lossless, None, [UNKNOWN; N_LOSSY]);
        assert_eq!(all, Some(Bits([33.0; N_LOSSY])));
        let double = CallSpec { dtype: DType::F64, ..lossless };
        assert_eq!(agreed_bits(&double, None, [UNKNOWN; N_LOSSY]), Some(Bits([65.0; N_LOSSY])));
    }

    #[test]
    fn rows_are_found_whatever_shape_the_caller_gives() {
        // Rows of 128 similar values, each of them far from smooth.
        let value = |i: u32| (i % 128).wrapping_mul(0x9e37_79b9) >> 22;
        let values: Vec<f32> = (0..1 << 17).map(|i| value(i) as f32 + (i >> 7) as f32).collect();
        let given = CallSpec { plan: spec().plan.with_shape(&[1024, 64]), ..spec() };
        for (spec, search_level, strides) in [
            (spec(), None, [0, 0]),
            (spec(), Some(Level::Scalar), [128, 0]),
            (given, None, [64, 0]),
            (given, Some(Level::Scalar), [128, 0]),
        ] {
            assert_eq!(
                estimate_bits(&spec, &values, None, search_level).1,
                strides,
                "{search_level:?}"
            );
        }
    }
}
