//! Parameters of codecs, and distances between the rows and planes of an array.

use super::dense::{Strides, find};
use super::{CodecId, Prediction};
use crate::bound::Quantum;
use crate::element::{DType, Element, with_float};
use crate::kernel::Level;
use crate::threads::Threads;

/// Parameters from which a codec is made.
///
/// # Examples
/// ```
/// use foldwire::{Quantum, codec::{Codec, CodecId, CodecParams}};
///
/// let quantum = Quantum::new::<f32>(1e-3).expect("positive");
/// let codec = CodecId::FzLight.instance::<f32>(&CodecParams::new(quantum).for_sums_of(8));
/// assert_eq!(codec.as_dyn().id(), CodecId::FzLight);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CodecParams {
    /// The codec to make.
    pub(crate) codec: CodecId,
    pub(crate) quantum: Quantum,
    pub(crate) max_operands: u32,
    pub(crate) averages: bool,
    pub(crate) setting: u16,
    /// Distances between rows and between planes, in values; 0 if unknown.
    pub(crate) strides: [u32; 2],
    pub(crate) prediction: Prediction,
    pub(crate) level: Level,
    pub(crate) threads: Threads,
}

impl CodecParams {
    /// Makes the parameters for single operands on this lattice, with the machine's best kernels.
    #[must_use]
    pub fn new(quantum: Quantum) -> Self {
        let (level, threads) = (Level::best(), Threads::default());
        Self {
            codec: CodecId::Raw,
            quantum,
            max_operands: 1,
            averages: false,
            setting: 0,
            strides: [0; 2],
            prediction: Prediction::Auto,
            level,
            threads,
        }
    }

    /// Sets the parameters for sums of at most `n_operands` operands: the communicator's size.
    #[must_use]
    pub const fn for_sums_of(self, n_operands: u32) -> Self {
        Self { max_operands: n_operands, averages: false, ..self }
    }

    /// Sets the parameters for averages of `n_operands` operands. Local values are then multiplied
    /// by a weight so small that no sum of them overflows.
    #[must_use]
    pub const fn for_averages_of(self, n_operands: u32) -> Self {
        Self { max_operands: n_operands, averages: true, ..self }
    }

    /// Sets the codec's setting; 0 for its default ([`CodecId::setting`]).
    #[must_use]
    pub const fn with_setting(self, setting: u16) -> Self {
        Self { setting, ..self }
    }

    /// Sets the shape of the arrays, slowest dimension first, as
    /// [`Plan::with_shape`](crate::Plan::with_shape) does. A codec may also encode parts of such
    /// arrays.
    #[must_use]
    pub fn with_shape(self, shape: &[usize]) -> Self {
        self.with_strides(strides(shape))
    }

    /// Searches these values for rows and planes, and sets the shape accordingly. A shape that was
    /// set before stays unless another, or none, is better for a sample of the values. Integers and
    /// few values leave the parameters unchanged.
    #[must_use]
    pub fn with_shape_of<T: Element>(self, values: &[T]) -> Self {
        self.with_shape_of_bytes(T::DTYPE, bytemuck::cast_slice(values))
    }

    /// Same as [`with_shape_of`](Self::with_shape_of) for values whose type is a run-time argument,
    /// so that the search is compiled in this crate.
    pub(crate) fn with_shape_of_bytes(self, dtype: DType, bytes: &[u8]) -> Self {
        with_float!(dtype, T => {
            let step = self.quantum.of_type::<T>().step();
            let [row, plane] = self.strides;
            let told = Strides::within(row, plane);
            let strides = find::<T>(bytemuck::cast_slice(bytes), told, step, self.level);
            self.with_strides([strides.row.into(), strides.plane.into()])
        }, else self)
    }

    /// Sets the prediction, as [`Plan::with_prediction`](crate::Plan::with_prediction) does.
    #[must_use]
    pub const fn with_prediction(self, prediction: Prediction) -> Self {
        Self { prediction, ..self }
    }

    /// The codec.
    #[must_use]
    pub const fn codec(&self) -> CodecId {
        self.codec
    }

    /// The lattice.
    #[must_use]
    pub const fn quantum(&self) -> Quantum {
        self.quantum
    }

    /// The largest number of operands of a sum.
    #[must_use]
    pub const fn max_operands(&self) -> u32 {
        self.max_operands
    }

    /// Returns whether sums are averaged at the end.
    #[must_use]
    pub const fn averages(&self) -> bool {
        self.averages
    }

    /// The codec's setting; 0 for its default.
    #[must_use]
    pub const fn setting(&self) -> u16 {
        self.setting
    }

    pub(crate) const fn with_strides(self, strides: [u32; 2]) -> Self {
        Self { strides, ..self }
    }

    /// Sets the threads that do the work.
    #[must_use]
    pub const fn on(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// Sets the kernels' level; the next lower one if the machine lacks it.
    #[must_use]
    pub const fn at(self, level: Level) -> Self {
        Self { level, ..self }
    }
}

/// Returns the distances between rows and between planes of an array of this shape. A distance is 0
/// if the array has no such dimension or the distance does not fit 32 bits.
pub(crate) fn strides(shape: &[usize]) -> [u32; 2] {
    let mut sizes = shape.iter().rev().filter(|size| **size > 1).peekable();
    let mut stride = Some(1_u32);
    [(); 2].map(|()| {
        let size = sizes.next().and_then(|&size| u32::try_from(size).ok());
        stride = stride.zip(size).and_then(|(stride, size)| stride.checked_mul(size));
        // The slowest dimension is only a count of rows or planes and has no stride.
        sizes.peek().and(stride).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_those_of_the_last_two_dimensions_that_have_a_next_one() {
        for (shape, expected) in [
            (&[][..], [0, 0]),
            (&[7], [0, 0]),
            (&[1, 7, 1], [0, 0]),
            (&[5, 7], [7, 0]),
            (&[5, 1, 7, 1], [7, 0]),
            (&[3, 5, 7], [7, 35]),
            (&[2, 3, 5, 7], [7, 35]),
            (&[u32::MAX as usize, 128], [128, 0]),
            (&[2, u32::MAX as usize, 128], [128, 0]),
            (&[3, 0, 7], [7, 0]),
            #[cfg(target_pointer_width = "64")]
            (&[3, 5, 1 << 40], [0, 0]),
        ] {
            assert_eq!(strides(shape), expected, "{shape:?}");
        }
    }
}
