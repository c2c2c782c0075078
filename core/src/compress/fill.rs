//! Fill values, which stand for missing data.
//!
//! In a segment with fill values, the encoder replaces each by a NaN of its own, the *mark*. Codecs
//! within a bound keep the bits of a NaN ([`crate::fill`]), and ranges leave it out. The decoder
//! replaces marks by the fill value. A segment that holds the mark itself among its values is
//! stored unchanged. If another value is so close to the fill value that it might be decoded as
//! that, its segment is coded exactly.

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
    Marked(Copied),
    /// A value is the mark.
    Ambiguous,
}

/// Bytes of values, aligned for every type.
pub(super) struct Copied {
    words: Vec<u64>,
    n_bytes: usize,
}

impl Copied {
    fn of(values: &[u8]) -> Self {
        let n_bytes = values.len();
        let mut copied = Self { words: alloc::vec![0; n_bytes.div_ceil(8)], n_bytes };
        copied.bytes_mut().copy_from_slice(values);
        copied
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.n_bytes]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.n_bytes]
    }
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
fn marked<T: Float>(fill: f64, values: &[u8]) -> Option<Copied> {
    let [fill, mark] = patterns::<T>(fill);
    bytemuck::cast_slice::<u8, T::Bits>(values).contains(&fill).then(|| {
        let mut marked = Copied::of(values);
        replace(bytemuck::cast_slice_mut(marked.bytes_mut()), fill, mark);
        marked
    })
}

/// Returns whether a value may get the bits of the fill value if it is changed within the bound.
pub(super) fn may_arise(dtype: DType, fill: f64, bound: f64, values: &[u8]) -> bool {
    with_float!(dtype, T => may_arise_as::<T>(fill, bound, values), else false)
}

fn may_arise_as<T: Float>(fill: f64, bound: f64, values: &[u8]) -> bool {
    let [pattern, _] = patterns::<T>(fill);
    let fill = T::from_f64(fill).to_f64();
    let bits: &[T::Bits] = bytemuck::cast_slice(values);
    let values: &[T] = bytemuck::cast_slice(values);
    // Without a branch for each value, so that vectors are compared.
    values.chunks(256).zip(bits.chunks(256)).any(|(values, bits)| {
        let is_near = |x: &T| (x.to_f64() - fill).abs() <= bound;
        let near = values.iter().zip(bits).map(|(x, bits)| is_near(x) & (*bits != pattern));
        near.fold(false, |any, near| any | near)
    })
}

/// Returns the range of the values that are not the fill value.
pub(super) fn value_range(dtype: DType, fill: f64, values: &[u8]) -> Option<ValueRange> {
    let ranges = values.chunks(SEGMENT * dtype.n_bytes()).filter_map(|values| {
        let marked = with_float!(dtype, T => marked::<T>(fill, values), else None);
        ValueRange::of_bytes(dtype, marked.as_ref().map_or(values, Copied::bytes))
    });
    ranges.reduce(ValueRange::union)
}
