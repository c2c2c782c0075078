//! Input and output buffers of a step that folds a rank's input into a frame and stores the result.

/// Input of this rank, and a buffer for the results.
#[derive(Debug)]
pub enum Values<'a, T> {
    /// One buffer: results overwrite the input.
    InPlace(&'a mut [T]),
    /// Two buffers.
    Apart {
        /// Input of this rank.
        local: &'a [T],
        /// Buffer for the results.
        output: &'a mut [T],
    },
}

impl<'a, T> Values<'a, T> {
    /// Input without a buffer for results.
    #[must_use]
    pub const fn unstored(local: &'a [T]) -> Self {
        Self::Apart { local, output: &mut [] }
    }

    /// Input of this rank. In place, it is valid only until a result is stored.
    #[must_use]
    pub fn local(&self) -> &[T] {
        match self {
            Self::InPlace(values) => values,
            Self::Apart { local, .. } => local,
        }
    }

    /// Buffer for the results.
    pub fn output(&mut self) -> &mut [T] {
        match self {
            Self::InPlace(values) => values,
            Self::Apart { output, .. } => output,
        }
    }

    /// Splits both buffers after `n_values`, or at their end if they are shorter.
    #[must_use]
    pub fn split(self, n_values: usize) -> (Self, Self) {
        match self {
            Self::InPlace(values) => {
                let (head, tail) = values.split_at_mut(n_values.min(values.len()));
                (Self::InPlace(head), Self::InPlace(tail))
            }
            Self::Apart { local, output } => {
                let (head, tail) = local.split_at(n_values.min(local.len()));
                let (output, rest) = output.split_at_mut(n_values.min(output.len()));
                (Self::Apart { local: head, output }, Self::Apart { local: tail, output: rest })
            }
        }
    }
}
