//! Error bounds, and the lattices that keep them.
//!
//! A call resolves its [`Bound`] to an absolute bound eb on each operand, and eb to a [`Quantum`]:
//! a lattice of spacing Δ = 2·eb·(1 − 2⁻⁶). The factor 1 − 2⁻⁶ leaves a margin for rounding in
//! encoder and decoder, so that values near the middle between two codes still pass the encoder's
//! check. Spacings that are powers of two need no margin ([`Spacing`]).

mod fill;
mod quantum;
mod text;

use crate::element::{DType, Float, with_float};
use crate::kernel::{Kernel, Level, sample};

pub(crate) use fill::FillSearch;
pub use fill::SuspectedFill;
pub use quantum::{Quantum, Spacing};
pub use text::ParseBoundError;

/// Largest error that a caller allows.
///
/// As text, bounds are `abs:0.5`, `rel:1e-4` or `psnr:60`: see the implementations of
/// [`FromStr`](core::str::FromStr) and [`Display`](core::fmt::Display).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// Absolute bound eb in the unit of the data: |x − x̂| ≤ eb.
    Absolute(f64),
    /// Fraction of the value range: eb = fraction · (max − min), over the finite values of all
    /// ranks.
    ///
    /// The whole array has one range. If the array joins several tensors, such as a flat buffer of
    /// gradients, the tensor with the widest range sets eb for all. Values of other tensors that
    /// are smaller than eb come back as 0. Give each tensor a call of its own, or use an absolute
    /// bound.
    Relative(f64),
    /// Lower limit of the peak signal-to-noise ratio of each operand, in dB:
    /// eb = range · 10^(−dB/20).
    ///
    /// The ratio is guaranteed because no mean square error exceeds eb². Errors of real fields are
    /// about uniform, with a mean square of Δ²/12 for a spacing Δ of the lattice. So their actual
    /// ratio is 4.9 dB better.
    Psnr(f64),
}

/// Value to which a bound applies: each operand, or the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The error of each operand is within the bound, as in the papers on compressed collectives.
    /// The error of a sum of n operands may be n times as large.
    #[default]
    PerOperand,
    /// The result of the collective is within the bound of the exact result.
    Result,
}

/// Value range over all ranks, and the grids on which the values lie.
///
/// A value lies on a grid if it is a multiple of the grid's spacing, which is a power of two. Grids
/// are found in a sample, and ignore values that are not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    /// Smallest finite value.
    pub min: f64,
    /// Largest finite value.
    pub max: f64,
    /// Spacing of the coarsest grid on which all values lie. It is the largest value of the type if
    /// all are 0, and 0 if no sample was taken.
    pub grid: f64,
    /// Spacing of the coarsest grid on which most differences of neighbours lie, with the same
    /// special cases.
    pub increment: f64,
}

impl ValueRange {
    /// Returns the value range of a slice; `None` if the slice has no finite value.
    #[must_use]
    pub fn of<T: Float>(values: &[T]) -> Option<Self> {
        let (min, max) = Kernel::at(Level::best()).value_range(values);
        let [grid, increment] = sample::grids(values);
        (min <= max).then(|| Self { min: min.to_f64(), max: max.to_f64(), grid, increment })
    }

    /// Same as [`of`](Self::of) for the memory of values of any type. `None` for integers, which
    /// have no bound.
    ///
    /// # Panics
    /// If the bytes are not aligned for the type, or not a whole number of values.
    #[must_use]
    pub fn of_bytes(dtype: DType, values: &[u8]) -> Option<Self> {
        with_float!(dtype, T => Self::of::<T>(bytemuck::cast_slice(values)), else None)
    }

    /// The range of two arrays together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            grid: self.grid.min(other.grid),
            increment: self.increment.min(other.increment),
        }
    }

    /// Width of the range: max − min.
    #[must_use]
    pub fn range(self) -> f64 {
        self.max - self.min
    }

    /// Largest magnitude of a finite value.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        self.max.abs().max(self.min.abs())
    }
}

/// Reason why a bound is unusable.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundError {
    /// The bound is zero, negative, NaN or infinite.
    #[error(
        "the bound {value} is not a finite number above 0; for exact results use the raw codec"
    )]
    NotPositive {
        /// The bound given.
        value: f64,
    },
    /// The bound allows errors larger than the range of all values.
    #[error(
        "a bound of {value} times the value range allows errors larger than the range itself; \
         give a fraction of the range, such as rel:1e-3"
    )]
    BeyondRange {
        /// The bound given, in units of the range.
        value: f64,
    },
    /// The scope is the result, but the operation's errors depend on the values.
    #[error(
        "results of products and user operations cannot be bounded; bound the operands instead"
    )]
    Unbounded,
    /// The bound on the result is below the rounding error of the element type itself.
    #[error(
        "the bound on the result is {bound:e}, but rounding alone can cost {rounding:e}; \
         allow more, or use a wider type"
    )]
    BelowPrecision {
        /// The bound on the result.
        bound: f64,
        /// The largest rounding error.
        rounding: f64,
    },
    /// The result is bounded, but a sum may exceed the largest value of the element type.
    #[error(
        "sums up to {largest:e} may overflow the element type, whose largest value is {max:e}; \
         scale the data, average, or use a wider type"
    )]
    Overflow {
        /// Largest possible sum, its error included.
        largest: f64,
        /// The largest finite value of the element type.
        max: f64,
    },
}

impl Bound {
    /// Returns whether the absolute bound depends on the value range.
    #[must_use]
    pub const fn needs_value_range(self) -> bool {
        !matches!(self, Self::Absolute(_))
    }

    /// Returns the absolute bound. `value_range` is `None` if no rank has a finite value.
    ///
    /// A constant field has range 0, so a relative bound on it resolves to 0
    /// ([`Quantum::LOSSLESS`]).
    ///
    /// # Errors
    /// [`BoundError::NotPositive`] if the bound is unusable or the range is NaN.
    pub fn absolute(self, value_range: Option<ValueRange>) -> Result<f64, BoundError> {
        self.check()?;
        let range = value_range.map_or(0.0, ValueRange::range);
        if range.is_nan() {
            return Err(BoundError::NotPositive { value: range });
        }
        // The range of values near ±MAX can overflow; the largest finite bound serves as well.
        let range = range.min(f64::MAX);
        let unit = if self.needs_value_range() { range } else { 1.0 };
        Ok((self.factor() * unit).min(f64::MAX))
    }

    /// Returns a lattice that keeps the bound for values in this range.
    ///
    /// It is the widest such lattice. If the bound depends on the value range, it may instead be a
    /// lattice that [suits the data](Quantum::suited).
    ///
    /// # Errors
    /// As [`absolute`](Self::absolute).
    pub fn quantum<T: Float>(self, value_range: Option<ValueRange>) -> Result<Quantum, BoundError> {
        let quantum = Quantum::new::<T>(self.absolute(value_range)?)?;
        let value_range = value_range.filter(|_| self.needs_value_range());
        Ok(value_range.map_or(quantum, |value_range| quantum.suited::<T>(value_range)))
    }

    /// Checks that the bound is positive and finite.
    pub(crate) fn check(self) -> Result<(), BoundError> {
        let (Self::Absolute(value) | Self::Relative(value) | Self::Psnr(value)) = self;
        if value > 0.0 && value.is_finite() {
            Ok(())
        } else {
            Err(BoundError::NotPositive { value })
        }
    }

    /// Checks a bound on each operand, without looking at data.
    ///
    /// A relative bound on operands must not exceed 1. A relative bound on a result may, because a
    /// sum can have a wider range than its operands.
    ///
    /// # Errors
    /// - [`BoundError::NotPositive`] if the bound is zero, negative, NaN or infinite.
    /// - [`BoundError::BeyondRange`] if a relative bound is above 1.
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

    /// Returns eb in units of the range, or of the data for [`Absolute`](Self::Absolute).
    pub(crate) fn factor(self) -> f64 {
        match self {
            Self::Absolute(value) | Self::Relative(value) => value,
            Self::Psnr(db) => libm::pow(10.0, -db / 20.0),
        }
    }
}

/// Returns the largest rounding error of a reduction in `T`, in addition to the codec's errors.
///
/// The reduction has `n_operands`, and its partial results stay within ±`magnitude`. The error is
/// at most (n + 4)·u·magnitude, where u is the unit roundoff: one rounding for each addition, and
/// the others for quantizing, decoding and dividing. `f16` and `bf16` lose up to η/2 more, where η
/// is the smallest positive value, because decoded values may be subnormal. An average may
/// additionally lose [`underflow`].
#[must_use]
pub fn rounding<T: Float>(n_operands: usize, magnitude: f64) -> f64 {
    let decoding = if T::IS_NARROW { T::SMALLEST / 2.0 } else { 0.0 };
    (n_operands as f64 + 4.0) * T::UNIT_ROUNDOFF * magnitude + decoding
}

/// Returns the largest error of an average of `n_operands` through underflow, in addition to
/// [`rounding`].
///
/// It occurs if operands or the result are subnormal, and is (2·n + 1)·η, where η is the smallest
/// positive value of `T`.
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
        // η/2, where η is 2⁻²⁴ and 2⁻¹³³, in addition to 8 roundings of 2⁻¹¹ and 2⁻⁸.
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
