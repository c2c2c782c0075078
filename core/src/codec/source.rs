//! What is encoded: values that lie in memory, or that are made piece by piece.

use super::DecodeError;
use crate::element::Element;
use crate::op::weigh;

/// Gives values `start..start + out.len()` of a segment; `start` is a multiple of
/// [`CHUNK`](crate::kernel::CHUNK) and `out` at most that long.
pub type SequentialReader<'a, T> = dyn FnMut(usize, &mut [T]) -> Result<(), DecodeError> + 'a;

/// As [`SequentialReader`], by whoever asks, in any order.
pub type SharedReader<'a, T> = dyn Fn(usize, &mut [T]) -> Result<(), DecodeError> + Sync + 'a;

/// The values that [`Codec::encode_paced`](super::Codec::encode_paced) encodes.
pub enum Source<'s, T> {
    /// A rank's own, which enter by the codec's [weight](super::Codec::weight).
    Own(&'s [T]),
    /// Partial results.
    Partial(&'s [T]),
    /// So many partial results, which a function gives piece by piece, in order.
    Filled(usize, &'s mut SequentialReader<'s, T>),
    /// The same, which several threads may ask for.
    Given(usize, &'s SharedReader<'s, T>),
}

impl<T: Element> Source<'_, T> {
    /// How many there are.
    #[must_use]
    pub const fn n_values(&self) -> usize {
        match self {
            Self::Own(values) | Self::Partial(values) => values.len(),
            Self::Filled(n_values, _) | Self::Given(n_values, _) => *n_values,
        }
    }

    /// Partial results `start..start + out.len()`, as [`SequentialReader`] gives them, own values by this
    /// weight.
    ///
    /// # Errors
    /// What the function returns.
    pub fn fill(&mut self, start: usize, out: &mut [T], weight: T) -> Result<(), DecodeError> {
        match self {
            Self::Own(values) => {
                out.copy_from_slice(&values[start..start + out.len()]);
                weigh(out, weight);
                Ok(())
            }
            Self::Partial(values) => {
                out.copy_from_slice(&values[start..start + out.len()]);
                Ok(())
            }
            Self::Filled(_, fill) => fill(start, out),
            Self::Given(_, give) => give(start, out),
        }
    }
}
