//! Values to encode, in memory or produced piece by piece.

use super::DecodeError;
use crate::element::Element;
use crate::op::weigh;

/// Writes values `start..start + out.len()` of a segment to `out`. `start` is a multiple of
/// [`CHUNK`](crate::kernel::CHUNK), and `out` has at most that many values. Several threads may
/// call it, in any order.
pub type SharedReader<'a, T> = dyn Fn(usize, &mut [T]) -> Result<(), DecodeError> + Sync + 'a;

/// Values that [`Codec::encode_paced`](super::Codec::encode_paced) encodes.
pub enum Source<'s, T> {
    /// Local values, which the codec multiplies by its [weight](super::Codec::weight).
    Input(&'s [T]),
    /// Partial results.
    Partial(&'s [T]),
    /// This many partial results, which several threads may request from the function.
    Shared(usize, &'s SharedReader<'s, T>),
}

impl<T: Element> Source<'_, T> {
    /// Returns the number of values.
    #[must_use]
    pub const fn n_values(&self) -> usize {
        match self {
            Self::Input(values) | Self::Partial(values) => values.len(),
            Self::Shared(n_values, _) => *n_values,
        }
    }

    /// Writes partial results `start..start + out.len()` to `out`. [`SharedReader`] states the
    /// requirements on both. Local values are multiplied by `weight`.
    ///
    /// # Errors
    /// Any error of the function.
    pub fn fill(&self, start: usize, out: &mut [T], weight: T) -> Result<(), DecodeError> {
        match self {
            Self::Input(values) => {
                out.copy_from_slice(&values[start..start + out.len()]);
                weigh(out, weight);
                Ok(())
            }
            Self::Partial(values) => {
                out.copy_from_slice(&values[start..start + out.len()]);
                Ok(())
            }
            Self::Shared(_, give) => give(start, out),
        }
    }
}
