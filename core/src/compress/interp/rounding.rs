//! From values to codes and back.

use super::predict::Integer;
use super::symbols::Residual;
use crate::element::Float;

/// Float type that codes are made of.
pub(super) trait Sample: Float {
    /// Type of codes.
    type Integer: Residual;
    fn wide(self) -> f64;
    /// Rounds to nearest.
    fn of(value: f64) -> Self;
}

macro_rules! sample {
    ($($float:ident $integer:ident)*) => {
        $(impl Sample for $float {
            type Integer = $integer;
            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }
        })*
    };
}

sample! { f32 i32 f64 i64 }

/// Adding and subtracting it rounds to an integer.
const ROUNDER: f64 = (3_u64 << 51) as f64;

/// Lattice of decoded values: multiples of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lattice {
    pub(super) step: f64,
    inverse: f64,
    bound: f64,
}

impl Lattice {
    /// Returns the lattice with this step; `None` if no writer uses it.
    pub(super) fn of_step(step: f64) -> Option<Self> {
        let inverse = 1.0 / step;
        let is_step = step > 0.0 && step.is_normal() && inverse.is_normal();
        is_step.then_some(Self { step, inverse, bound: 0.0 })
    }

    /// The lattice for a writer that keeps this bound.
    pub(super) const fn within(self, bound: f64) -> Self {
        Self { bound, ..self }
    }

    /// Returns the value of a code.
    #[inline(always)]
    pub(super) fn value<T: Sample>(&self, code: T::Integer) -> T {
        T::of(code.to_f64() * self.step)
    }

    /// Rounds values to the bins around their predictions, `width` points each. Returns whether all
    /// of them are within the bound. The residual and the code of a value that is not are those of
    /// the prediction itself; its place in `is_off` is true.
    #[inline(always)]
    pub(super) fn round<T: Sample>(
        &self,
        (values, predictions): (&[T], &[T::Integer]),
        width: u8,
        codes: &mut [T::Integer],
        residuals: &mut [T::Integer],
        is_off: &mut [bool],
    ) -> bool {
        // In a bin of one point, the step may be 2·bound. The point nearest to the value is then
        // within the bound. But the point nearest to the difference, which has been rounded, may be
        // another one, whose error only rounds to the bound. So round before the difference.
        let has_one_point = width == 1;
        let (width, inverse_width) = (f64::from(width), 1.0 / f64::from(width));
        let mut all = true;
        let inputs = values.iter().zip(predictions);
        let outputs = codes.iter_mut().zip(residuals).zip(is_off);
        for ((x, &prediction), ((code, residual), is_off)) in inputs.zip(outputs) {
            let x = x.wide();
            let predicted = prediction.to_f64();
            let scaled = x * self.inverse;
            let scaled = if has_one_point { scaled + ROUNDER - ROUNDER } else { scaled };
            let bins = (scaled - predicted) * inverse_width + ROUNDER;
            let n_bins = bins - ROUNDER;
            let point = predicted + n_bins * width;
            let error = (x - T::of(point * self.step).wide()).abs();
            let is_point = (error <= self.bound)
                & (point.abs() <= T::Integer::MOST)
                & (n_bins.abs() <= T::Integer::MOST);
            let bins = (bins.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
            let found = ((point + ROUNDER).to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
            *residual = T::Integer::of_i64(if is_point { bins } else { 0 });
            *code = if is_point { T::Integer::of_i64(found) } else { prediction };
            *is_off = !is_point;
            all &= is_point;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The step is twice the bound, as in plans whose spacing is a power of two.
    #[test]
    fn a_value_just_below_half_a_step_is_not_rounded_up() {
        let lattice = Lattice::of_step(1.0).expect("a step").within(0.5);
        let below_half = 0.5 - f64::EPSILON / 4.0;
        for prediction in [0, 1, 1000, 1001, -1001] {
            let (mut codes, mut residuals, mut is_off) = ([7], [7], [true]);
            let input: (&[f64], &[i64]) = (&[below_half], &[prediction]);
            assert!(lattice.round(input, 1, &mut codes, &mut residuals, &mut is_off));
            assert_eq!((codes, residuals, is_off), ([0], [-prediction], [false]));
        }
    }
}
