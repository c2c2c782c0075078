//! Fill values, which stand for missing data.
//!
//! A codec gets a NaN of its own, the *mark*, in place of each fill value. Codecs within a bound
//! keep the bits of a NaN: fz-light, fz-static, dense and fz-nd at the price of a mask, others by
//! storing its block unchanged. Value ranges leave it out, and a reduction with it is NaN. The fill
//! value is stored in place of a mark that comes back, or of a reduction's NaN.

use crate::element::sealed::{OnLattice, Word};
use crate::element::{DType, Element, Float, with_float};
#[cfg(feature = "alloc")]
use alloc::vec::Vec;

/// Bits that make the quiet NaN of a type the mark. They fit the fraction of all types.
const MARK: u64 = 0x3a;

/// Value that stands for missing data, and its meaning in reductions
/// ([`Plan::with_fill`](crate::Plan::with_fill)).
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// The value. It is rounded to the element type of a call.
    pub value: f64,
    /// True if reductions take it as a number. It then only does not count in the value range.
    pub is_number: bool,
}

/// Fill values are equal if their bits are.
impl PartialEq for Fill {
    fn eq(&self, other: &Self) -> bool {
        (self.value.to_bits(), self.is_number) == (other.value.to_bits(), other.is_number)
    }
}

impl Fill {
    /// Returns a copy of values that are not reduced, with marks in place of the fill value; `None`
    /// if there is nothing to mark. A value that is the mark becomes the canonical NaN in the copy.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn marked<T: Element>(self, values: &[T]) -> Option<Vec<T>> {
        let marks = Marks::of(self.value);
        marks.occur_in(T::DTYPE, bytemuck::cast_slice(values)).then(|| {
            let mut copy = Vec::from(values);
            marks.mark(T::DTYPE, bytemuck::cast_slice_mut(&mut copy));
            copy
        })
    }

    /// Puts the fill value in place of marks in values that were not reduced.
    pub fn restore<T: Element>(self, values: &mut [T]) {
        Marks::of(self.value).restore(T::DTYPE, bytemuck::cast_slice_mut(values));
    }

    /// Returns how a call treats the value; `None` if it reduces and takes it as a number.
    pub(crate) const fn marks(self, is_reduced: bool) -> Option<Marks> {
        let Self { value, is_number } = self;
        if is_reduced && is_number { None } else { Some(Marks { value, is_reduced }) }
    }
}

/// Treatment of fill values in a call that replaces them by marks. Types other than floats have
/// none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    value: f64,
    /// True if the call reduces: any NaN of its result is missing.
    is_reduced: bool,
}

impl Marks {
    /// Treatment of values that are not reduced.
    pub(crate) const fn of(value: f64) -> Self {
        Self { value, is_reduced: false }
    }

    /// Returns whether [`mark`](Self::mark) would change any of these values.
    pub(crate) fn occur_in(self, dtype: DType, values: &[u8]) -> bool {
        with_float!(dtype, T => {
            let [fill, mark] = patterns::<T>(self.value);
            let bits: &[<T as OnLattice>::Bits] = bytemuck::cast_slice(values);
            bits.iter().any(|&bits| bits == fill || bits == mark)
        }, else false)
    }

    /// Puts marks in place of fill values. A value that is the mark becomes the canonical NaN.
    pub(crate) fn mark(self, dtype: DType, values: &mut [u8]) {
        with_float!(dtype, T => {
            let [fill, mark] = patterns::<T>(self.value);
            let bits: &mut [<T as OnLattice>::Bits] = bytemuck::cast_slice_mut(values);
            replace(bits, mark, T::QUIET_NAN.bits());
            replace(bits, fill, mark);
        }, else ());
    }

    /// Puts fill values in place of what came back for marks.
    pub(crate) fn restore(self, dtype: DType, values: &mut [u8]) {
        with_float!(dtype, T => {
            let [fill, mark] = patterns::<T>(self.value);
            if self.is_reduced {
                let fill = T::from_bits(fill);
                for x in bytemuck::cast_slice_mut::<u8, T>(values) {
                    *x = if x.widen() == x.widen() { *x } else { fill };
                }
            } else {
                replace(bytemuck::cast_slice_mut(values), mark, fill);
            }
        }, else ());
    }
}

/// Returns the bits of the fill value and of the mark.
pub(crate) fn patterns<T: Float>(fill: f64) -> [T::Bits; 2] {
    [T::from_f64(fill).bits(), T::QUIET_NAN.bits() | T::Bits::from_u64(MARK)]
}

/// Replaces each word of one kind by another.
pub(crate) fn replace<W: Word>(words: &mut [W], from: W, to: W) {
    for word in words {
        *word = if *word == from { to } else { *word };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{bf16, f16};

    fn check<T: Float>() {
        let [fill, mark] = patterns::<T>(-9999.0).map(T::from_bits);
        let given = [T::ONE, fill, T::QUIET_NAN, mark, T::ZERO].map(OnLattice::bits);
        for is_reduced in [false, true] {
            let marks = Fill { value: -9999.0, is_number: false }.marks(is_reduced).unwrap();
            let mut values = given;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
            assert!(marks.occur_in(T::DTYPE, bytes) && !marks.occur_in(DType::I32, bytes));
            marks.mark(T::DTYPE, bytes);
            let [one, fill, nan, _, zero] = given;
            assert_eq!(values, [one, mark.bits(), nan, nan, zero]);
            marks.restore(T::DTYPE, bytemuck::cast_slice_mut(&mut values));
            let nan = if is_reduced { fill } else { nan };
            assert_eq!(values, [one, fill, nan, nan, zero], "{is_reduced}");
        }
    }

    #[test]
    fn marks_stand_for_fill_values_and_nothing_else() {
        check::<f32>();
        check::<f64>();
        check::<f16>();
        check::<bf16>();
        let number = Fill { value: 1e20, is_number: true };
        assert!(number.marks(true).is_none() && number.marks(false).is_some());
    }
}
