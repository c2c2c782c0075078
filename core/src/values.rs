//! A rank's values in a step that folds them into a frame and stores what comes out.

/// Own values, and room for as many results.
#[derive(Debug)]
pub enum Values<'a, T> {
    /// Results overwrite own values.
    InPlace(&'a mut [T]),
    /// Results go elsewhere.
    Apart {
        /// Own values.
        local: &'a [T],
        /// Room for results.
        output: &'a mut [T],
    },
}

impl<'a, T> Values<'a, T> {
    /// Own values without room for results.
    #[must_use]
    pub const fn unstored(local: &'a [T]) -> Self {
        Self::Apart { local, output: &mut [] }
    }

    /// Own values (in place: until results are stored).
    #[must_use]
    pub fn local(&self) -> &[T] {
        match self {
            Self::InPlace(values) => values,
            Self::Apart { local, .. } => local,
        }
    }

    /// Where results go.
    pub fn output(&mut self) -> &mut [T] {
        match self {
            Self::InPlace(values) => values,
            Self::Apart { output, .. } => output,
        }
    }

    /// The first `n_values`, or all if there are fewer, and the rest.
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
