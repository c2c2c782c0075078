//! Points q·step on a line, for coders that turn values into integer codes q (docs/guarantees.md,
//! section 1).
//!
//! Coders work on groups of eight blocks of 32 values, because the compiler vectorizes loops of
//! that length. It would unroll a loop over a single block before it vectorizes it.

use super::coder::{CoderParams, padded};
use super::fz_light::LatticeNumbers;
use crate::element::Float;
use crate::element::sealed::{OnLattice, Wide, Word};
use crate::kernel::{BLOCK, Code};

/// Blocks in a group.
pub(super) const BLOCKS: usize = 8;
/// Values in a group.
pub(super) const GROUP: usize = BLOCKS * BLOCK;

/// Codes of a group.
pub(super) type Codes<T> = [<T as OnLattice>::Code; GROUP];

/// Lattice points that keep a bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points<T: Float> {
    /// Distance between neighbouring points.
    step: T::Wide,
    inverse: T::Wide,
    /// Exclusive limit of errors; 0 for a reader.
    bound: T::Wide,
}

impl<T: Float> Points<T> {
    /// Makes the points with these parameters; `None` if these give no usable step.
    pub(super) fn new(params: &CoderParams) -> Option<Self> {
        let bound = params.limit_of_errors::<T>();
        // A step of exactly twice the bound is a power of two (`Spacing::PowerOfTwo`). Differences
        // are then exact, so errors of exactly step/2 may pass.
        let is_power_of_two = params.step == 2.0 * params.bound;
        let bound = if is_power_of_two { bound.next_up() } else { bound };
        Some(Self { bound, ..Self::of_step(params.step)? })
    }

    /// Makes points for a reader; `None` if no writer uses this step.
    pub(super) fn of_step(step: f64) -> Option<Self> {
        let wide = T::Wide::nearest(step);
        let inverse = T::Wide::ONE / wide;
        let is_step = wide.to_f64() == step && wide.is_normal() && inverse.is_normal();
        is_step.then(|| Self { step: wide, inverse, bound: T::Wide::nearest(0.0) })
    }

    /// Returns the numbers of the lattice, for kernels outside of this crate.
    pub(super) fn numbers(&self) -> LatticeNumbers {
        let [step, inverse, bound] = [self.step, self.inverse, self.bound].map(Wide::to_f64);
        LatticeNumbers { step, inverse, limit: T::MAX_CODE, bound, weight: 1.0 }
    }

    /// Returns the parameter of a coder with these points: their step, or 0 if there are none.
    pub(super) fn parameter(points: Option<Self>) -> f64 {
        points.map_or(0.0, |points| points.step.to_f64())
    }

    /// Inverse of [`parameter`](Self::parameter); `None` if no writer uses this parameter.
    pub(super) fn of_parameter(parameter: f64) -> Option<Option<Self>> {
        let points = Self::of_step(parameter);
        (parameter == 0.0 || points.is_some()).then_some(points)
    }

    /// Writes the codes of a group's values and returns which blocks are on the lattice. Pads a
    /// short group with its last value.
    ///
    /// A block is on the lattice if each value is within the bound of a point whose code is within
    /// the type's limit. Encoding these points again then gives the same codes. The codes of other
    /// blocks are unspecified.
    #[inline(always)]
    pub(super) fn codes(&self, values: &[T], codes: &mut Codes<T>) -> [bool; BLOCKS] {
        match values.try_into() {
            Ok(values) => self.codes_of(values, codes),
            Err(_) => self.codes_of(&padded(values), codes),
        }
    }

    #[inline(always)]
    fn codes_of(&self, values: &[T; GROUP], codes: &mut Codes<T>) -> [bool; BLOCKS] {
        let limit = T::Wide::nearest(T::MAX_CODE);
        let rounder = T::narrow(T::Wide::ROUNDER).bits();
        let mut are_points = [true; BLOCKS];
        let blocks = codes.chunks_exact_mut(BLOCK).zip(values.chunks_exact(BLOCK));
        for ((codes, values), are_points) in blocks.zip(&mut are_points) {
            let mut all = true;
            for (code, x) in codes.iter_mut().zip(values) {
                let x = x.widen();
                let rounded = x * self.inverse + T::Wide::ROUNDER;
                let nearest = rounded - T::Wide::ROUNDER;
                let error = (x - nearest * self.step).abs();
                all &= (nearest.abs() <= limit) & (error < self.bound);
                // Near the rounder, the bit patterns of floats count up by one per integer. A
                // conversion to integers would first check the range.
                let bits = T::narrow(rounded).bits().minus(rounder);
                *code = T::Code::from_bits(bits.to_u64());
            }
            *are_points = all;
        }
        are_points
    }

    /// Writes the values of codes, as many as `values` holds.
    #[inline(always)]
    pub(super) fn values(&self, codes: &Codes<T>, values: &mut [T]) {
        match (&mut *values).try_into() {
            Ok(values) => self.values_of(codes, values),
            Err(_) => {
                let mut group = [T::ZERO; GROUP];
                self.values_of(codes, &mut group);
                values.copy_from_slice(&group[..values.len()]);
            }
        }
    }

    #[inline(always)]
    fn values_of(&self, codes: &Codes<T>, values: &mut [T; GROUP]) {
        for (x, code) in values.iter_mut().zip(codes) {
            *x = T::narrow(T::Wide::from_code(*code) * self.step);
        }
    }
}

/// Returns the bits of the largest difference between two codes.
pub(super) const fn max_width<T: Float>() -> u32 {
    u64::BITS - ((2.0 * T::MAX_CODE) as u64).leading_zeros()
}

/// Writes the difference of each code to the one before. The first difference of a block is 0.
#[inline(always)]
pub(super) fn subtract<T: Float>(codes: &Codes<T>, differences: &mut Codes<T>) {
    for i in 1..GROUP {
        differences[i] = codes[i].minus(codes[i - 1]);
    }
    for first in differences.iter_mut().step_by(BLOCK) {
        *first = T::Code::ZERO;
    }
}

/// Turns a first code and the differences after it into the codes of a block, in place.
#[inline(always)]
pub(super) fn add_up<C: Code>(block: &mut [C]) {
    let mut code = C::ZERO;
    for difference in block {
        code = code.plus(*difference);
        *difference = code;
    }
}

/// Blocks of a group that are stored unchanged.
#[derive(Default)]
pub(super) struct Verbatim<'a>([&'a [u8]; BLOCKS]);

impl<'a> Verbatim<'a> {
    /// Takes block `i` of a group of values from the front of `src`; `None` if `src` is too short.
    #[inline(always)]
    pub(super) fn take<T>(&mut self, i: usize, values: &[T], src: &mut &'a [u8]) -> Option<()> {
        let values = &values[i * BLOCK..values.len().min((i + 1) * BLOCK)];
        (self.0[i], *src) = src.split_at_checked(size_of_val(values))?;
        Some(())
    }

    /// Writes the blocks to their places.
    #[inline(always)]
    pub(super) fn store<T: Float>(&self, values: &mut [T]) {
        for (bytes, values) in self.0.iter().zip(values.chunks_mut(BLOCK)) {
            if !bytes.is_empty() {
                bytemuck::cast_slice_mut(values).copy_from_slice(bytes);
            }
        }
    }
}

/// Writes a block unchanged to the front of `dst` and returns the number of bytes; `None` if there
/// is no space.
#[inline(always)]
pub(super) fn put_verbatim<T: Float>(values: &[T], dst: &mut [u8]) -> Option<usize> {
    dst.get_mut(..size_of_val(values))?.copy_from_slice(bytemuck::cast_slice(values));
    Some(size_of_val(values))
}
