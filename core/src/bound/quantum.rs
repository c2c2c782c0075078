//! The lattice that keeps an absolute bound.

use super::{BoundError, ValueRange};
use crate::element::{Float, sealed::Wide};
use core::fmt;

/// Rule for the distance between points of the lattice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spacing {
    /// Largest spacing that the bound allows: Δ = 2·eb·(1 − 2⁻⁶).
    ///
    /// If the data lie on a grid, [a spacing that suits them](Quantum::suited) may replace it. For
    /// `f16` and `bf16` the spacing is always a power of two, because other lattices have points
    /// that these types cannot represent.
    #[default]
    Widest,
    /// Largest power of two that the bound allows: Δ = 2^⌊log₂(2·eb)⌋.
    ///
    /// It costs at most 1 bit more for each value, ½ on average. Multiples of Δ and their sums
    /// then come back exactly: for example counts, masks and indices with a bound of ½ (Δ = 1).
    /// docs/guarantees.md has the conditions. All ranks must choose the same spacing.
    PowerOfTwo,
}

/// Factor that leaves a margin for rounding: 1 − 2⁻⁶.
const MARGIN: f64 = 1.0 - 1.0 / 64.0;

/// Spacing of a lattice, and the absolute error bound that it keeps.
///
/// All ranks of a call must use the same quantum.
#[derive(Clone, Copy, PartialEq)]
pub struct Quantum {
    step: f64,
    bound: f64,
    spacing: Spacing,
}

impl Quantum {
    /// Quantum without a lattice: every value travels exactly.
    pub const LOSSLESS: Self = Self { step: 0.0, bound: 0.0, spacing: Spacing::Widest };

    /// Returns the widest lattice that keeps the absolute bound `bound` for elements of type `T`.
    ///
    /// For `f16` and `bf16`, the spacing is a power of two. The result is
    /// [`LOSSLESS`](Self::LOSSLESS) if `bound` is 0, or too small for a normal step in `T`.
    ///
    /// # Errors
    /// [`BoundError::NotPositive`] if `bound` is negative or NaN.
    pub fn new<T: Float>(bound: f64) -> Result<Self, BoundError> {
        Self::with_spacing::<T>(bound, Spacing::Widest)
    }

    /// Returns the lattice with this spacing that keeps `bound`, as [`new`](Self::new) does for the
    /// widest spacing.
    ///
    /// # Errors
    /// [`BoundError::NotPositive`] if `bound` is negative or NaN.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Quantum, Spacing};
    ///
    /// let quantum = Quantum::with_spacing::<f32>(0.7, Spacing::PowerOfTwo)?;
    /// assert_eq!((quantum.step(), quantum.bound()), (1.0, 0.5));
    /// # Ok::<(), foldwire::bound::BoundError>(())
    /// ```
    pub fn with_spacing<T: Float>(bound: f64, spacing: Spacing) -> Result<Self, BoundError> {
        if bound.is_nan() || bound < 0.0 {
            return Err(BoundError::NotPositive { value: bound });
        }
        let bound = bound.min(largest_bound::<T>());
        // With other spacings, rounding decoded values to `bf16` broke the bound of smooth data: in
        // one block of nine at rel:1e-2, and in two of five at rel:1e-3.
        let spacing = if T::IS_NARROW { Spacing::PowerOfTwo } else { spacing };
        let step = T::Wide::nearest(match spacing {
            Spacing::Widest => 2.0 * bound * MARGIN,
            Spacing::PowerOfTwo => power_of_two_below(2.0 * bound),
        });
        // The step and its reciprocal must both be normal, so that products with codes do not
        // depend on how a rank treats subnormals.
        if !(step.is_normal() && (T::Wide::ONE / step).is_normal()) {
            return Ok(Self::LOSSLESS);
        }
        let step = step.to_f64();
        let bound = match spacing {
            Spacing::Widest => bound,
            Spacing::PowerOfTwo => step / 2.0,
        };
        Ok(Self { step, bound, spacing })
    }

    /// Returns a lattice that compresses rounded data better than this one and keeps the same
    /// bound; or this lattice, if there is none.
    ///
    /// Counts, and archives that store few bits of each value, are examples of rounded data. There
    /// are two cases:
    ///
    /// - All values lie on a [grid](ValueRange::grid) that is coarser than this lattice. The grid
    ///   becomes the lattice: its points travel exactly and take fewer bits. Other values travel
    ///   as exceptions, exactly.
    /// - Most differences of neighbours lie on a [grid](ValueRange::increment) of spacing Δ or
    ///   more. Δ becomes a power of two ([`Spacing::PowerOfTwo`]), so that the low bits of
    ///   differences of codes are 0.
    ///
    /// # Examples
    /// ```
    /// use foldwire::bound::ValueRange;
    /// use foldwire::Quantum;
    ///
    /// let quantum = Quantum::new::<f32>(1e-3)?;
    /// let halves: Vec<f32> = (0..100).map(|i| i as f32 * 0.5).collect();
    /// let of_halves = quantum.suited::<f32>(ValueRange::of(&halves).expect("finite values"));
    /// assert_eq!((of_halves.step(), of_halves.bound()), (0.5, quantum.bound()));
    /// # Ok::<(), foldwire::bound::BoundError>(())
    /// ```
    #[must_use]
    pub fn suited<T: Float>(self, value_range: ValueRange) -> Self {
        let on_grid = self.on_grid::<T>(value_range.grid);
        if on_grid != self || self.is_lossless() || value_range.increment < self.step {
            return on_grid;
        }
        Self::with_spacing::<T>(self.bound, Spacing::PowerOfTwo).unwrap_or(self)
    }

    /// Returns the lattice whose points are a grid of spacing `grid`, which is a power of two.
    /// Returns this lattice if the grid is not coarser, or if its spacing is too small or too large
    /// for a lattice of `T`.
    fn on_grid<T: Float>(self, grid: f64) -> Self {
        let step = T::Wide::nearest(power_of_two_below(grid));
        let is_lattice = grid > 0.0 && step.is_normal() && (T::Wide::ONE / step).is_normal();
        let is_coarser = (self.step..=largest_bound::<T>()).contains(&step.to_f64());
        if self.is_lossless() || !is_lattice || !is_coarser {
            return self;
        }
        Self { step: step.to_f64(), bound: self.bound, spacing: Spacing::PowerOfTwo }
    }

    /// Returns the bound that the [widest](Spacing::Widest) lattice with this step keeps, up to
    /// rounding.
    pub(crate) fn bound_of_step(step: f64) -> f64 {
        step / (2.0 * MARGIN)
    }

    /// Spacing Δ, exactly representable in the element type; 0 if lossless.
    #[must_use]
    pub const fn step(self) -> f64 {
        self.step
    }

    /// Absolute bound eb on each operand that the lattice keeps.
    #[must_use]
    pub const fn bound(self) -> f64 {
        self.bound
    }

    /// Returns whether every value travels exactly.
    #[must_use]
    pub fn is_lossless(self) -> bool {
        self.step == 0.0
    }

    /// Returns a quantum for elements of type `T` that keeps this quantum's bound. It is this
    /// quantum, if `T` can represent its spacing and allows such spacings.
    pub(crate) fn of_type<T: Float>(self) -> Self {
        let is_of_type = T::Wide::nearest(self.step).to_f64() == self.step;
        if is_of_type && (!T::IS_NARROW || self.spacing == Spacing::PowerOfTwo) {
            return self;
        }
        // The bound of a quantum is never negative or NaN, so this does not fail.
        Self::with_spacing::<T>(self.bound, self.spacing).unwrap_or(Self::LOSSLESS)
    }

    /// Returns the limit that the rounded difference of a value and its lattice point must stay
    /// *below* (docs/guarantees.md, "The check").
    pub(crate) fn limit_of_errors<T: Float>(self) -> T::Wide {
        let bound = T::Wide::nearest(self.bound);
        match self.spacing {
            // These differences are exact, so a difference of exactly Δ/2 may pass.
            Spacing::PowerOfTwo if self.bound == self.step / 2.0 => bound.next_up(),
            _ if bound.to_f64() > self.bound => bound.next_down(),
            _ => bound,
        }
    }
}

impl fmt::Debug for Quantum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantum(step {:e}, bound {:e})", self.step, self.bound)
    }
}

/// Largest bound of a quantum, MAX^(3/4): it keeps sums of codes times the step finite.
fn largest_bound<T: Float>() -> f64 {
    let root = libm::sqrt(T::MAX.to_f64());
    root * libm::sqrt(root)
}

/// Returns the largest power of two that is at most `x`; 0 if it would not be normal.
fn power_of_two_below(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    f64::from_bits(x.to_bits() & EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{bf16, f16};

    #[test]
    fn what_is_no_bound_is_refused() {
        for spacing in [Spacing::Widest, Spacing::PowerOfTwo] {
            for value in [-1.0, -5e-324, f64::NEG_INFINITY, f64::NAN] {
                let [single, double] = [
                    Quantum::with_spacing::<f32>(value, spacing),
                    Quantum::with_spacing::<f64>(value, spacing),
                ];
                for refused in [single, double] {
                    assert!(
                        matches!(refused, Err(BoundError::NotPositive { value: v })
                            if v.to_bits() == value.to_bits()),
                        "{value}: {refused:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn bounds_without_a_normal_step_are_lossless_and_infinite_ones_finite() {
        for spacing in [Spacing::Widest, Spacing::PowerOfTwo] {
            // The reciprocal of the last bound's step is normal, but the step is not.
            for small in [0.0, -0.0, 5e-324, 1e-39, 4e-39] {
                assert_eq!(Quantum::with_spacing::<f32>(small, spacing), Ok(Quantum::LOSSLESS));
            }
            let largest = Quantum::with_spacing::<f32>(f64::INFINITY, spacing);
            assert!(largest.is_ok_and(|q| q.bound() > 1e28 && q.bound() < 1e29));
        }
    }

    #[test]
    fn a_power_of_two_is_the_largest_that_the_bound_allows() {
        for (bound, step) in
            [(0.5, 1.0), (0.499, 0.5), (0.75, 1.0), (1.0, 2.0), (1e-3, 2f64.powi(-9))]
        {
            let quantum = Quantum::with_spacing::<f64>(bound, Spacing::PowerOfTwo).unwrap();
            assert_eq!((quantum.step(), quantum.bound()), (step, step / 2.0), "{bound}");
            assert_eq!(quantum.of_type::<f32>(), quantum);
        }
        let tiny = Quantum::with_spacing::<f64>(1e-60, Spacing::PowerOfTwo).unwrap();
        assert_eq!(tiny.of_type::<f32>(), Quantum::LOSSLESS);
    }

    #[test]
    fn a_grid_is_taken_where_it_is_coarser_and_keeps_the_bound() {
        let quantum = Quantum::new::<f32>(1e-3).unwrap();
        let on = |grid| quantum.on_grid::<f32>(grid);
        for finer in [0.0, -1.0, f64::NAN, 1.0 / 1024.0, f64::INFINITY, f64::from(f32::MAX)] {
            assert_eq!(on(finer), quantum, "{finer}");
        }
        let coarser = on(0.25);
        assert_eq!((coarser.step(), coarser.bound()), (0.25, 1e-3));
        // The check is strict and uses the bound rounded down.
        assert!(f64::from(coarser.limit_of_errors::<f32>()) <= 1e-3);
        assert_eq!(Quantum::LOSSLESS.on_grid::<f32>(0.25), Quantum::LOSSLESS);
        assert_eq!(coarser.of_type::<f16>(), coarser);
    }

    #[test]
    fn a_grid_suits_data_best_and_then_a_power_of_two_that_differences_have_in_common() {
        let quantum = Quantum::new::<f32>(1e-3).unwrap();
        let suited = |grid, increment| {
            let value_range = ValueRange { min: 0.0, max: 100.0, grid, increment };
            let suited = quantum.suited::<f32>(value_range);
            (suited.step(), suited.bound())
        };
        let as_it_was = (quantum.step(), 1e-3);
        // 2⁻⁹ is the largest power of two up to 2·10⁻³.
        let power = (1.0 / 512.0, 1.0 / 1024.0);
        for increment in [0.0, 0.25] {
            assert_eq!(suited(0.25, increment), (0.25, 1e-3));
        }
        assert_eq!(suited(0.0, 0.25), power);
        assert_eq!(suited(0.0, quantum.step()), power);
        assert_eq!(suited(0.0, quantum.step().next_down()), as_it_was);
        assert_eq!(suited(0.0, 0.0), as_it_was);
        let value_range = ValueRange { min: 0.0, max: 100.0, grid: 0.25, increment: 0.25 };
        assert_eq!(Quantum::LOSSLESS.suited::<f32>(value_range), Quantum::LOSSLESS);
    }

    #[test]
    fn the_check_is_of_the_largest_number_up_to_the_bound() {
        // `f32` represents the first two exactly. The nearest `f32` is above the third and below
        // the last.
        for bound in [0.5, 0.375, 0.1, 0.7] {
            let limit = Quantum::new::<f32>(bound).unwrap().limit_of_errors::<f32>();
            let next = f64::from(limit.next_up());
            assert!(f64::from(limit) <= bound && bound < next, "{limit} of {bound}");
            assert_eq!(Quantum::new::<f64>(bound).unwrap().limit_of_errors::<f64>(), bound);
        }
    }

    #[test]
    fn types_of_sixteen_bits_have_powers_of_two() {
        let single = Quantum::new::<f32>(0.7).unwrap();
        for quantum in [Quantum::new::<f16>(0.7).unwrap(), single.of_type::<bf16>()] {
            assert_eq!((quantum.step(), quantum.bound()), (1.0, 0.5));
            assert_eq!(quantum.of_type::<f16>(), quantum);
        }
    }
}
