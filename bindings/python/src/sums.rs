//! Reproducible sums of numpy arrays.

use std::time::Duration;

use foldwire::Report;
use foldwire_c::ffi::rust;
use pyo3::prelude::*;

use crate::communicator::within;
use crate::endpoint::{LockedEndpoint, ObjectId};
use crate::ffi;

/// Makes reproducible sums of the rows or columns of `values` into `sums`, an array of `f64`.
pub(crate) fn repro_sums(
    py: Python<'_>,
    (endpoint, id): (&LockedEndpoint, ObjectId),
    values: &Bound<'_, PyAny>,
    dtype: u8,
    is_columns: bool,
    sums: &Bound<'_, PyAny>,
    timeout: Option<Duration>,
) -> PyResult<Report> {
    let dtype = ffi::dtype(py, dtype)?;
    let values = ffi::array(Some(values), dtype, false)?;
    let sums = ffi::array(Some(sums), foldwire::DType::F64, true)?;
    endpoint.call(py, |state| {
        let comm = state.comm(id)?;
        within(comm, timeout, || rust::repro_sums(comm, values, dtype, is_columns, sums))
    })
}
