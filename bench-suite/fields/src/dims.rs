//! Dimensions of an array, and how they are written: `128x160x160`.

use std::fmt;
use std::str::FromStr;

use crate::usage::UsageError;

/// Dimensions of an array, slowest first; none is zero and their product fits `usize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dims(Vec<usize>);

impl Dims {
    /// The dimensions, or `None` if there are none, one is zero or their product overflows.
    pub fn new(dims: Vec<usize>) -> Option<Self> {
        let n_values = dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim))?;
        (!dims.is_empty() && n_values > 0).then_some(Self(dims))
    }

    /// One dimension of `n_values`, which is not zero.
    ///
    /// # Panics
    ///
    /// When `n_values` is zero.
    pub fn flat(n_values: usize) -> Self {
        assert!(n_values > 0, "an array has values");
        Self(vec![n_values])
    }

    /// The sizes, slowest first.
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    /// Their product.
    pub fn n_values(&self) -> usize {
        self.0.iter().product()
    }

    /// The same with the slowest dimension replaced by `slowest`, which is not zero.
    ///
    /// # Panics
    ///
    /// When `slowest` is zero.
    #[must_use]
    pub fn with_slowest(&self, slowest: usize) -> Self {
        assert!(slowest > 0, "a dimension is not empty");
        let mut dims = self.0.clone();
        dims[0] = slowest;
        Self(dims)
    }
}

impl FromStr for Dims {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let dims = text.split(['x', 'X', '×']).map(str::parse).collect::<Result<Vec<usize>, _>>();
        dims.ok().and_then(Self::new).ok_or_else(|| {
            UsageError::new(format!(
                "`{text}` are no dimensions: write whole numbers above 0, slowest first, as in 128x160x160"
            ))
        })
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if at == 0 { "" } else { "x" })?;
        }
        Ok(())
    }
}
