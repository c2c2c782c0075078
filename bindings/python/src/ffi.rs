//! Access to numpy's memory, and sending state between threads: all `unsafe` code of the package.
//!
//! The attribute `__array_interface__` of an array has its address, shape and type, and whether it
//! may be written. The Python package makes arrays contiguous and aligned; [`array`] checks it.
//!
//! Asking numpy takes longer than a short call, so the Python package passes the address and the
//! length of a tensor of torch as the tensor says them, if it is contiguous and on the CPU.
//!
//! The Python package describes an array on a device by a `DeviceArray`, which refers to its owner.
//! The CPU never reads such an array.
//!
//! *Safety argument of every block.* The interface is only read from `numpy.ndarray`, and only
//! `_torch_tensors.reduce_in_place` passes addresses. Numpy and torch keep an array's memory in
//! place while a reference to the array exists. Python callers hold a reference until the function
//! returns. Calls that run longer hold references in
//! [`CallWithArrays`](crate::request::CallWithArrays). The user must ensure that
//! no other thread writes an array during a call, nor reads one that the call writes. This holds
//! for every library that releases the GIL while it works on arrays, and the package documents it.
#![allow(unsafe_code, reason = "access to the memory of numpy and torch")]

pub(crate) mod hdf5;

use foldwire::DType;
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::RawArray;
use foldwire_c::ffi::types::FW_INVALID_ARGUMENT;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::endpoint::LockedState;
use crate::failure::raise;

static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static DEVICE_ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Creates the exception for an invalid argument.
fn refuse(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, &ApiError::new(FW_INVALID_ARGUMENT, message))
}

/// Returns address and length of an array of `dtype`. `None` is an empty array.
///
/// # Errors
/// If `values` is not a contiguous, aligned numpy array of this type, or is read-only but
/// `is_written`.
pub(crate) fn array(
    values: Option<&Bound<'_, PyAny>>,
    dtype: DType,
    is_written: bool,
) -> PyResult<RawArray> {
    let Some(values) = values else { return Ok(RawArray::default()) };
    let py = values.py();
    let ndarray = NDARRAY.import(py, "numpy", "ndarray")?;
    if !values.is_instance(ndarray)? {
        return Err(refuse(py, "the argument is not a numpy array"));
    }
    let interface = values.getattr("__array_interface__")?;
    let interface = interface.cast::<PyDict>()?;
    let item = |name: &str| {
        interface
            .get_item(name)?
            .ok_or_else(|| refuse(py, format!("the array interface has no {name}")))
    };
    if !item("strides")?.is_none() {
        return Err(refuse(py, "the array is not contiguous in C order"));
    }
    let (address, is_read_only): (usize, bool) = item("data")?.extract()?;
    if is_written && is_read_only {
        return Err(refuse(py, "the array is read-only"));
    }
    let kind: String = item("typestr")?.extract()?;
    if kind.get(2..) != Some(&*dtype.n_bytes().to_string()) || kind.starts_with('>') {
        return Err(refuse(py, format!("the array has type `{kind}`, not {dtype}")));
    }
    let shape: Vec<usize> = item("shape")?.extract()?;
    // The array exists, so the product does not overflow.
    let n_values = shape.iter().product();
    if n_values > 0 && address % dtype.n_bytes() != 0 {
        return Err(refuse(py, "the array is not aligned"));
    }
    // SAFETY: see the top of this file.
    Ok(unsafe { RawArray::new(address, n_values) })
}

/// Returns address and length of an array of `dtype` on a device. `None` is an empty array.
///
/// # Errors
/// If `values` is not a `DeviceArray` of the Python package, of values of this size.
pub(crate) fn device_array(values: Option<&Bound<'_, PyAny>>, dtype: DType) -> PyResult<RawArray> {
    let Some(values) = values else { return Ok(RawArray::default()) };
    let py = values.py();
    let class = DEVICE_ARRAY.import(py, "foldwire._device_arrays", "DeviceArray")?;
    let n_bytes: usize = values.getattr("dtype")?.getattr("itemsize")?.extract()?;
    if !values.is_instance(class)? || n_bytes != dtype.n_bytes() {
        return Err(refuse(py, format!("the argument is not an array of {dtype} on a device")));
    }
    let address = values.getattr("address")?.extract()?;
    let n_values = values.getattr("size")?.extract()?;
    // SAFETY: see the top of this file.
    Ok(unsafe { RawArray::new(address, n_values) })
}

/// Returns a tensor's memory, given by its address and its number of values.
///
/// # Errors
/// If it is not aligned.
pub(crate) fn tensor(
    py: Python<'_>,
    (address, n_values): (usize, usize),
    dtype: DType,
) -> PyResult<RawArray> {
    if n_values > 0 && address % dtype.n_bytes() != 0 {
        return Err(refuse(py, "the tensor is not aligned"));
    }
    // SAFETY: see the top of this file.
    Ok(unsafe { RawArray::new(address, n_values) })
}

/// Looks up the type with this code.
pub(crate) fn dtype(py: Python<'_>, code: u8) -> PyResult<DType> {
    DType::from_code(code).ok_or_else(|| refuse(py, format!("unknown type code {code}")))
}

/// Makes an endpoint's state `Send`. The state is not `Send` by itself, because its parts count
/// references without atomics.
pub(crate) struct SendWrapper<V>(pub(crate) V);

// SAFETY: the parts of a state share one transport, and count references to it without atomics. All
// these references are inside the state: communicators are stored there when they are created, and
// code that takes one out for a moment (split, shrink, waiting for a call) holds the state's lock.
// Closing takes all of them out at once, and they stay together.
// So only one thread at a time changes the counts, and each thread sees the changes of the previous
// one. Nothing in the state is bound to a thread: endpoints and references to Python objects are
// `Send`, and any thread may use numpy's arrays.
unsafe impl Send for SendWrapper<LockedState> {}
