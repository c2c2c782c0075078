//! Compression of arrays to bytes that store their type, layout and error bound.

use foldwire::DType;
use foldwire::compress::{Info, Layout, Order};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{self, lent};
use foldwire_c::ffi::types::FW_DAMAGED;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::failure::raise;
use crate::ffi;

/// Shape; order is Fortran; most significant byte first; truth values; fill value.
type LayoutTuple = (Vec<u64>, bool, bool, bool, Option<f64>);

/// Compresses an array by a plan. Its values are contiguous in memory and in native byte order; the
/// layout describes the original array. Also returns a value that seems to be a fill value.
#[pyfunction]
pub(crate) fn compress<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    dtype: u8,
    layout: LayoutTuple,
    plan: &str,
) -> PyResult<(Bound<'py, PyBytes>, Option<f64>)> {
    let dtype = ffi::dtype(py, dtype)?;
    let values = ffi::array(Some(values), dtype, false)?;
    let (shape, is_fortran, is_big_endian, is_bool, fill_value) = layout;
    let order = if is_fortran { Order::Fortran } else { Order::C };
    let layout = Layout { shape, order, is_big_endian, is_bool, fill_value };
    let done = py.detach(|| rust::compress(values, dtype, &layout, &plan.parse()?));
    let (bytes, suspected_fill) = done.map_err(|fault| raise(py, &fault))?;
    Ok((PyBytes::new(py, &bytes), suspected_fill))
}

/// Reads the head of compressed bytes: code of the type, layout, bound (0: exact; infinite: by the
/// setting of a codec).
#[pyfunction]
pub(crate) fn info(
    py: Python<'_>,
    compressed: &Bound<'_, PyAny>,
) -> PyResult<(u8, LayoutTuple, f64)> {
    let bytes = ffi::array(Some(compressed), DType::U8, false)?;
    let info = lent::<u8, _>(bytes, |bytes| {
        Info::read(bytes).map_err(|error| ApiError::new(FW_DAMAGED, error.to_string()))
    });
    let Info { dtype, layout, bound, .. } = info.map_err(|fault| raise(py, &fault))?;
    let is_fortran = layout.order == Order::Fortran;
    let Layout { shape, is_big_endian, is_bool, fill_value, .. } = layout;
    Ok((dtype as u8, (shape, is_fortran, is_big_endian, is_bool, fill_value), bound))
}

/// Decompresses to the bytes of the values, in native byte order.
#[pyfunction]
pub(crate) fn decompress<'py>(
    py: Python<'py>,
    compressed: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let bytes = ffi::array(Some(compressed), DType::U8, false)?;
    let values = py.detach(|| lent::<u8, _>(bytes, rust::decompress));
    let values = values.map_err(|fault| raise(py, &fault))?;
    Ok(PyByteArray::new(py, values.bytes()))
}
