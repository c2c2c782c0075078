//! Dimensions of an array, written as `128x160x160`.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use crate::usage::{UsageError, usage};

/// Largest number of values in an array: values of 8 bytes that fill the address space.
const MAX_VALUES: usize = isize::MAX as usize / 8;

/// Dimensions of an array, slowest first.
///
/// No dimension is zero, and the address space can hold all values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dims(Vec<usize>);

/// Reason why numbers are not valid dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DimsError {
    /// There are no dimensions, or one is zero.
    #[error("has no dimensions or no values")]
    NoValues,
    /// The product is too large for the address space.
    #[error("has a shape that overflows: no machine has room for so many values")]
    Overflow,
}

impl Dims {
    /// Dimensions with these sizes, slowest first.
    ///
    /// # Errors
    ///
    /// [`DimsError`].
    pub fn new(dims: Vec<usize>) -> Result<Self, DimsError> {
        if dims.is_empty() || dims.contains(&0) {
            return Err(DimsError::NoValues);
        }
        let n_values = dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim));
        match n_values {
            Some(n_values) if n_values <= MAX_VALUES => Ok(Self(dims)),
            _ => Err(DimsError::Overflow),
        }
    }

    /// These dimensions, for a file of `n_values` values.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] without the file's name, if they are of another number of values.
    pub fn checked(&self, n_values: usize) -> Result<Self, UsageError> {
        if self.n_values() == n_values {
            return Ok(self.clone());
        }
        Err(usage!(
            "holds {n_values} values, but --dims {self} are {}; the dimensions are those of each \
             file, slowest first",
            self.n_values()
        ))
    }

    /// The dimensions of this many such arrays one after the other.
    pub(crate) fn repeated(&self, n_times: usize) -> Self {
        let mut dims = self.0.clone();
        dims[0] *= n_times;
        Self(dims)
    }

    /// One dimension of `n_values`, which must not be zero.
    ///
    /// # Panics
    ///
    /// If `n_values` is zero.
    pub fn flat(n_values: usize) -> Self {
        assert!(n_values > 0, "an array has values");
        Self(vec![n_values])
    }

    /// The sizes, slowest first.
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    /// Product of the sizes.
    pub fn n_values(&self) -> usize {
        self.0.iter().product()
    }

    /// These dimensions with the slowest one replaced by `slowest`, which must not be zero.
    ///
    /// # Panics
    ///
    /// If `slowest` is zero.
    #[must_use]
    pub fn with_slowest(&self, slowest: usize) -> Self {
        assert!(slowest > 0, "a dimension is not empty");
        let mut dims = self.0.clone();
        dims[0] = slowest;
        Self(dims)
    }
}

/// Parses one dimension. Returns `None` if `text` is not a whole number.
///
/// A number that overflows becomes `usize::MAX`, which no array can have.
pub(crate) fn dimension(text: &str) -> Option<usize> {
    match text.parse() {
        Ok(dim) => Some(dim),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(usize::MAX),
        Err(_) => None,
    }
}

impl FromStr for Dims {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let dims: Option<Vec<_>> = text.split(['x', 'X', '×']).map(dimension).collect();
        match dims.map(Self::new) {
            Some(Ok(dims)) => Ok(dims),
            Some(Err(DimsError::Overflow)) => Err(usage!(
                "`{text}` overflows: no machine has room for so many values; look for a digit too \
                many"
            )),
            Some(Err(DimsError::NoValues)) | None => Err(usage!(
                "`{text}` are no dimensions: write whole numbers above 0, slowest first, as in \
                128x160x160"
            )),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_are_whole_and_have_values() {
        assert_eq!("4x14×48".parse::<Dims>().unwrap().sizes(), [4, 14, 48]);
        assert_eq!("7".parse::<Dims>().unwrap().n_values(), 7);
        assert_eq!("4x14x48".parse::<Dims>().unwrap().with_slowest(2).to_string(), "2x14x48");
        for wrong in ["", "4x", "0x3", "4x-1", "4*3", "18446744073709551616x0"] {
            let message = wrong.parse::<Dims>().unwrap_err().to_string();
            assert!(message.contains("no dimensions"), "{wrong}: {message}");
        }
    }

    #[test]
    fn a_shape_that_overflows_is_told_from_one_without_values() {
        for huge in ["4294967296x4294967296x2", "4611686018427387904", "99999999999999999999x1"] {
            let message = huge.parse::<Dims>().unwrap_err().to_string();
            assert!(message.contains("overflows"), "{huge}: {message}");
        }
        assert_eq!(Dims::new(vec![usize::MAX, 2, 0]), Err(DimsError::NoValues));
        assert_eq!(Dims::new(vec![usize::MAX, 2]), Err(DimsError::Overflow));
    }
}
