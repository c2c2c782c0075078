//! Values in rows at equal distances, such as a block of a matrix or a face of a grid.

use crate::error::{Buffer, Error};
use core::ops::Range;

/// Positions of a message's values in a slice: `n_rows` rows of `n_columns` values each.
/// Consecutive rows begin `stride` values apart (BLAS: the leading dimension; MPI:
/// `MPI_Type_vector`).
///
/// # Examples
/// The last column of a matrix of 4 rows and 3 columns, in a slice that begins with its first
/// value:
/// ```
/// let column = foldwire::Rows { n_rows: 4, n_columns: 1, stride: 3 };
/// assert_eq!(column.n_values(), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Number of rows.
    pub n_rows: usize,
    /// Number of values in a row.
    pub n_columns: usize,
    /// Distance between the beginnings of consecutive rows, in values; at least `n_columns`.
    pub stride: usize,
}

impl Rows {
    /// Describes consecutive values, as a single row.
    pub(crate) const fn one(n_values: usize) -> Self {
        Self { n_rows: 1, n_columns: n_values, stride: n_values }
    }

    /// Number of values in all rows.
    #[must_use]
    pub const fn n_values(&self) -> usize {
        self.n_rows.saturating_mul(self.n_columns)
    }

    /// Checks that all rows lie in a slice of `have` values and do not overlap.
    pub(super) fn check(&self, buffer: Buffer, have: usize) -> Result<(), Error> {
        if self.n_values() == 0 {
            return Ok(());
        }
        let last = (self.n_rows - 1).saturating_mul(self.stride);
        let need = match self.stride < self.n_columns && self.n_rows > 1 {
            true => usize::MAX,
            false => last.saturating_add(self.n_columns),
        };
        if need <= have { Ok(()) } else { Err(Error::Length { buffer, need, have }) }
    }

    /// Returns the positions of these values, if they are consecutive.
    pub(super) fn contiguous(&self, values: &Range<usize>) -> Option<Range<usize>> {
        let mut runs = self.runs(values.clone());
        let first = runs.next().unwrap_or(0..0);
        let is_dense = self.stride == self.n_columns;
        let one = first.start..first.start + values.len();
        (is_dense || runs.next().is_none()).then_some(one)
    }

    /// Returns the positions of these values, as one range for each row. `values` counts the values
    /// of all rows, row after row.
    pub(crate) fn runs(&self, values: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let Self { n_columns, stride, .. } = *self;
        let mut next = values.start;
        core::iter::from_fn(move || {
            let n_left = values.end.checked_sub(next).filter(|left| *left > 0)?;
            let (row, column) = (next / n_columns, next % n_columns);
            let len = n_left.min(n_columns - column);
            next += len;
            let start = row * stride + column;
            Some(start..start + len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn runs_are_the_rows() {
        let block = Rows { n_rows: 3, n_columns: 2, stride: 5 };
        let all: Vec<_> = block.runs(0..6).collect();
        assert_eq!(all, [0..2, 5..7, 10..12]);
        let inner: Vec<_> = block.runs(1..4).collect();
        assert_eq!(inner, [1..2, 5..7]);
        assert_eq!(block.runs(2..2).count(), 0);
    }

    #[test]
    fn what_lies_together_is_one_run() {
        let block = Rows { n_rows: 3, n_columns: 2, stride: 5 };
        assert_eq!(block.contiguous(&(2..4)), Some(5..7));
        assert_eq!(block.contiguous(&(1..3)), None);
        assert_eq!(Rows { stride: 2, ..block }.contiguous(&(1..5)), Some(1..5));
        assert_eq!(Rows::one(7).contiguous(&(0..7)), Some(0..7));
        assert_eq!(Rows::one(0).contiguous(&(0..0)), Some(0..0));
    }

    #[test]
    fn rows_beyond_the_slice_or_over_each_other_are_refused() {
        let block = Rows { n_rows: 3, n_columns: 2, stride: 5 };
        assert_eq!(block.check(Buffer::Send, 12), Ok(()));
        let short = Err(Error::Length { buffer: Buffer::Send, need: 12, have: 11 });
        assert_eq!(block.check(Buffer::Send, 11), short);
        assert!(Rows { stride: 1, ..block }.check(Buffer::Send, 100).is_err());
        assert!(Rows { n_rows: usize::MAX, ..block }.check(Buffer::Send, 100).is_err());
        assert_eq!(Rows { n_rows: 0, ..block }.check(Buffer::Send, 0), Ok(()));
    }
}
