//! Fill values, which stand for missing data.
//!
//! In a segment with fill values, the encoder replaces each by a NaN of its own, the *mark*. Codecs
//! within a bound store a NaN as an exception, at the price of a mask of bits, and ranges leave it
//! out. The decoder replaces marks by the fill value. A segment that holds the mark itself among
//! its values is stored unchanged.

use super::SEGMENT;
use crate::bound::ValueRange;
use crate::element::{DType, Float, with_float};
use crate::fill::{patterns, replace};
use alloc::vec::Vec;

/// Values of a segment, prepared for codecs.
pub(super) enum Prepared {
    /// No value is the fill value.
    Unchanged,
    /// A copy in which marks replace fill values.
    Marked(Vec<u8>),
    /// A value is the mark.
    Ambiguous,
}

/// Prepares values of this float type.
pub(super) fn prepare(dtype: DType, fill: f64, values: &[u8]) -> Prepared {
    with_float!(dtype, T => prepare_as::<T>(fill, values), else Prepared::Unchanged)
}

fn prepare_as<T: Float>(fill: f64, values: &[u8]) -> Prepared {
    let [_, mark] = patterns::<T>(fill);
    match marked::<T>(fill, values) {
        None => Prepared::Unchanged,
        Some(_) if bytemuck::cast_slice::<u8, T::Bits>(values).contains(&mark) => {
            Prepared::Ambiguous
        }
        Some(marked) => Prepared::Marked(marked),
    }
}

/// Returns a copy in which marks replace fill values; `None` if there are none.
fn marked<T: Float>(fill: f64, values: &[u8]) -> Option<Vec<u8>> {
    let [fill, mark] = patterns::<T>(fill);
    bytemuck::cast_slice::<u8, T::Bits>(values).contains(&fill).then(|| {
        let mut marked = Vec::from(values);
        replace(bytemuck::cast_slice_mut(&mut marked), fill, mark);
        marked
    })
}

/// Returns the range of the values that are not the fill value.
pub(super) fn value_range(dtype: DType, fill: f64, values: &[u8]) -> Option<ValueRange> {
    let ranges = values.chunks(SEGMENT * dtype.n_bytes()).filter_map(|values| {
        let marked = with_float!(dtype, T => marked::<T>(fill, values), else None);
        ValueRange::of_bytes(dtype, marked.as_deref().unwrap_or(values))
    });
    ranges.reduce(ValueRange::union)
}
