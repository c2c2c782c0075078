//! What error the caller allows, and the lattice that keeps it.
//!
//! A [`Bound`] is resolved to an absolute bound eb on each operand, and that to a [`Quantum`]: the
//! lattice spacing Δ = 2·eb·(1 − 2⁻⁶). The 2⁻⁶ is room for the roundings of encoder and decoder, so
//! that values near the middle between two codes still pass the encoder's check. Powers of two need
//! no such room ([`Spacing`]).

mod quantum;
mod text;

use crate::element::Float;
use crate::kernel::{Kernel, Level, sample};

pub use quantum::{Quantum, Spacing};
pub use text::ParseBoundError;

/// An error bound.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// |x − x̂| ≤ eb, in the unit of the data.
    Absolute(f64),
    /// eb = this · (max − min) over the finite values of all ranks' data.
    ///
    /// That is one range for the whole array. Where the array joins several tensors (a flat buffer
    /// of gradients) the widest sets eb for all, and values of the others below it come back as 0:
    /// give each tensor a call of its own, or an absolute bound.
    Relative(f64),
    /// Peak signal-to-noise ratio of each operand in dB, at least: eb = range · 10^(−dB/20), as no
    /// mean square error exceeds eb². Errors of real fields are about uniform, eb²/3, which is 4.8
    /// dB better.
    Psnr(f64),
}

/// What a bound bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Each operand is represented within the bound (as in the papers); a sum of n operands may be
    /// off by n times that.
    #[default]
    PerOperand,
    /// The result of the collective is within the bound of the exact result.
    Result,
}

/// Smallest and largest finite value of all ranks' data, and what they are multiples of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// A power of two of which all values are multiples, as far as a sample tells; 0 where nobody
    /// looked.
    pub grid: f64,
    /// The same of most differences of neighbours.
    pub increment: f64,
}

impl ValueRange {
    /// The extent of a slice, if it has a finite value.
    #[must_use]
    pub fn of<T: Float>(values: &[T]) -> Option<Self> {
        let (min, max) = Kernel::at(Level::best()).value_range(values);
        let [grid, increment] = sample::grids(values);
        (min <= max).then(|| Self { min: min.to_f64(), max: max.to_f64(), grid, increment })
    }

    /// max − min.
    #[must_use]
    pub fn range(self) -> f64 {
        self.max - self.min
    }

    /// The largest magnitude.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        self.max.abs().max(self.min.abs())
    }
}

/// Why a bound is unusable.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundError {
    /// Zero, negative, NaN or infinite.
    #[error(
        "the bound {value} is not a finite number above 0; for exact results use the raw codec"
    )]
    NotPositive {
        /// What was given.
        value: f64,
    },
    /// Errors larger than the range of all values, which leave nothing of them.
    #[error(
        "a bound of {value} times the range leaves nothing of the values; \
         give a fraction of the range, such as rel:1e-3"
    )]
    BeyondRange {
        /// What was given, in units of the range.
        value: f64,
    },
    /// A bound on the result of an operation whose errors depend on the values.
    #[error("products and user operations have no bound on their result; bound the operands")]
    Unbounded,
    /// A bound on the result below the rounding of the element type itself.
    #[error(
        "a result within {bound:e} is asked for, but rounding alone can cost {rounding:e}; \
         allow more, or use a wider type"
    )]
    BelowPrecision {
        /// The bound on the result.
        bound: f64,
        /// What rounding can cost.
        rounding: f64,
    },
    /// A bound on a sum that may be beyond the largest value of the element type.
    #[error(
        "sums up to {largest:e} may overflow the element type, whose largest value is {max:e}; \
         scale the data, average, or use a wider type"
    )]
    Overflow {
        /// What a sum can come to, its error included.
        largest: f64,
        /// The largest finite value of the element type.
        max: f64,
    },
}

impl Bound {
    /// Whether resolving needs the extent of the data.
    #[must_use]
    pub const fn needs_extent(self) -> bool {
        !matches!(self, Self::Absolute(_))
    }

    /// The absolute bound; `value_range` is `None` when no rank has a finite value.
    ///
    /// A constant field has range 0 and so the absolute bound 0 ([`Quantum::LOSSLESS`]).
    ///
    /// # Errors
    /// [`BoundError::NotPositive`], also of an extent that is NaN.
    pub fn absolute(self, value_range: Option<ValueRange>) -> Result<f64, BoundError> {
        self.check()?;
        let range = value_range.map_or(0.0, ValueRange::range);
        if range.is_nan() {
            return Err(BoundError::NotPositive { value: range });
        }
        // The range of values near ±MAX can overflow; the largest finite bound is as good.
        let range = range.min(f64::MAX);
        let unit = if self.needs_extent() { range } else { 1.0 };
        Ok((self.factor() * unit).min(f64::MAX))
    }

    /// The lattice of values of this extent that keeps the bound: the widest, or one that suits
    /// [these data](Quantum::suited), if the bound refers to them.
    ///
    /// # Errors
    /// As [`absolute`](Self::absolute).
    pub fn quantum<T: Float>(self, value_range: Option<ValueRange>) -> Result<Quantum, BoundError> {
        let quantum = Quantum::new::<T>(self.absolute(value_range)?)?;
        let value_range = value_range.filter(|_| self.needs_extent());
        Ok(value_range.map_or(quantum, |value_range| quantum.suited::<T>(value_range)))
    }

    /// Finds what is wrong with the bound whatever the data.
    pub(crate) fn check(self) -> Result<(), BoundError> {
        let (Self::Absolute(value) | Self::Relative(value) | Self::Psnr(value)) = self;
        if value > 0.0 && value.is_finite() {
            Ok(())
        } else {
            Err(BoundError::NotPositive { value })
        }
    }

    /// Finds what is wrong with the bound on each operand whatever the data. (A relative bound on a
    /// result may be above 1: the range of a sum can be wider than that of the operands.)
    ///
    /// # Errors
    /// [`BoundError::NotPositive`], [`BoundError::BeyondRange`].
    ///
    /// # Examples
    /// ```
    /// use foldwire::Bound;
    ///
    /// assert!(Bound::Relative(1e-3).check_on_operands().is_ok());
    /// assert!(Bound::Relative(2.0).check_on_operands().is_err());
    /// ```
    pub fn check_on_operands(self) -> Result<(), BoundError> {
        self.check()?;
        match self {
            Self::Relative(value) if value > 1.0 => Err(BoundError::BeyondRange { value }),
            _ => Ok(()),
        }
    }

    /// The bound in units of the range, or of the data for [`Absolute`](Self::Absolute).
    pub(crate) fn factor(self) -> f64 {
        match self {
            Self::Absolute(value) | Self::Relative(value) => value,
            Self::Psnr(db) => libm::pow(10.0, -db / 20.0),
        }
    }
}

/// What rounding in `T` can cost a reduction of `n_operands` whose partial results stay within
/// `magnitude`, on top of the codec's errors: (n + 4)·u·magnitude, one rounding for each addition,
/// the rest for quantising, decoding and dividing. Of `f16` and `bf16`, η/2 more: what is decoded
/// may be subnormal. An average may lose [`underflow`] on top of that.
#[must_use]
pub fn rounding<T: Float>(n_operands: usize, magnitude: f64) -> f64 {
    let decoding = if T::IS_NARROW { T::SMALLEST / 2.0 } else { 0.0 };
    (n_operands as f64 + 4.0) * T::UNIT_ROUNDOFF * magnitude + decoding
}

/// What an average of `n_operands` can lose on top of its [`rounding`] where operands or result are
/// subnormal: (2·n + 1)·η, η being the smallest positive value of `T`.
#[must_use]
pub fn underflow<T: Float>(n_operands: usize) -> f64 {
    (2.0 * n_operands as f64 + 1.0) * T::SMALLEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{bf16, f16};

    #[test]
    fn constant_data_have_an_extent_and_none_have_none() {
        let value_range = ValueRange::of(&[1.5f32; 3]).expect("finite values");
        assert_eq!((value_range.min, value_range.max, value_range.range()), (1.5, 1.5, 0.0));
        assert_eq!(ValueRange::of::<f32>(&[]), None);
        assert_eq!(ValueRange::of(&[f32::NAN, f32::INFINITY]), None);
    }

    #[test]
    fn rounding_grows_with_operands_and_magnitude() {
        let unit = f64::from(f32::EPSILON) / 2.0;
        assert_eq!(rounding::<f32>(1, 1.0), 5.0 * unit);
        assert_eq!(rounding::<f32>(12, 0.5), 8.0 * unit);
        assert_eq!(rounding::<f64>(4, 3.0), 12.0 * f64::EPSILON);
    }

    #[test]
    fn values_of_sixteen_bits_may_be_decoded_to_subnormal_ones() {
        // Half of the smallest value, 2⁻²⁴ and 2⁻¹³³: on top of 8 roundings by 2⁻¹¹ and 2⁻⁸.
        assert_eq!(rounding::<f16>(4, 0.0), 2f64.powi(-25));
        assert_eq!(rounding::<f16>(4, 1.0), 2f64.powi(-8) + 2f64.powi(-25));
        assert_eq!(rounding::<bf16>(4, 0.0), 2f64.powi(-134));
        assert_eq!(rounding::<bf16>(4, 2f64.powi(-100)), 2f64.powi(-105) + 2f64.powi(-134));
        assert_eq!([rounding::<f32>(4, 0.0), rounding::<f64>(4, 0.0)], [0.0; 2]);
    }

    #[test]
    fn an_average_may_lose_the_smallest_value_twice_for_each_operand_and_once_more() {
        assert_eq!(underflow::<f32>(1), 3.0 * 2f64.powi(-149));
        assert_eq!(underflow::<f16>(8), 17.0 * 2f64.powi(-24));
        assert_eq!(underflow::<f64>(4).to_bits(), 9, "nine times the smallest");
    }

    #[test]
    fn what_is_not_a_number_bounds_nothing() {
        let value_range = Some(ValueRange { min: f64::NAN, max: 1.0, grid: 0.0, increment: 0.0 });
        let bound = Bound::Relative(0.1).absolute(value_range);
        assert!(matches!(bound, Err(BoundError::NotPositive { value }) if value.is_nan()));
        assert_eq!(Bound::Absolute(0.1).absolute(None), Ok(0.1));
    }
}
