//! Compression of arrays to bytes that store their type, length and error bound.

use foldwire::bound::ValueRange;
use foldwire::compress::{self as array_bytes, DecompressError, Info};
use foldwire::{Bound as ErrorBound, DType, Float, Quantum, bf16, f16};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::types::{FW_DAMAGED, FW_INVALID_ARGUMENT, FW_UNSUPPORTED};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::failure::raise;
use crate::ffi::{self, lent};

/// Expands `$body` with `$T` as the float type of a code.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        with_float!($dtype, $T => $body; F32 f32, F64 f64, F16 f16, Bf16 bf16)
    };
    ($dtype:expr, $T:ident => $body:expr; $($name:ident $type:ty),*) => {
        match $dtype {
            $(DType::$name => {
                type $T = $type;
                $body
            })*
            other => {
                let message = format!("{other} values cannot be compressed; floats can");
                Err(ApiError::new(FW_UNSUPPORTED, message))
            }
        }
    };
}

/// Returns the quantization step for these values.
fn quantum<T: Float>(values: &[T], bound: Option<ErrorBound>) -> Result<Quantum, ApiError> {
    let Some(bound) = bound else { return Ok(Quantum::LOSSLESS) };
    let value_range = if bound.needs_value_range() { ValueRange::of(values) } else { None };
    let checked = bound.check_on_operands().and_then(|()| bound.absolute(value_range));
    checked
        .and_then(Quantum::new::<T>)
        .map_err(|error| ApiError::new(FW_INVALID_ARGUMENT, error.to_string()))
}

fn unreadable(error: DecompressError) -> ApiError {
    ApiError::new(FW_DAMAGED, error.to_string())
}

/// Compresses an array of floats within an error bound, or exactly without one.
#[pyfunction]
pub(crate) fn compress<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    dtype: u8,
    bound: Option<&str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let dtype = ffi::dtype(py, dtype)?;
    let values = ffi::array(Some(values), dtype, false)?;
    let bound: Option<ErrorBound> = match bound.map(str::parse) {
        None => None,
        Some(Ok(bound)) => Some(bound),
        Some(Err(error)) => {
            return Err(raise(py, &ApiError::new(FW_INVALID_ARGUMENT, error.to_string())));
        }
    };
    let bytes = py.detach(|| {
        with_float!(dtype, T => lent::<T, _>(values, |values: &[T]| {
            Ok(array_bytes::compress_with(values, quantum(values, bound)?))
        }))
    });
    Ok(PyBytes::new(py, &bytes.map_err(|fault| raise(py, &fault))?))
}

/// Reads the header of compressed bytes: code of the type, number of values, bound (0: exact).
#[pyfunction]
pub(crate) fn info(py: Python<'_>, compressed: &Bound<'_, PyAny>) -> PyResult<(u8, u64, f64)> {
    let bytes = ffi::array(Some(compressed), DType::U8, false)?;
    let info = lent::<u8, _>(bytes, |bytes| Info::read(bytes).map_err(unreadable));
    let info = info.map_err(|fault| raise(py, &fault))?;
    Ok((info.dtype as u8, info.n_values, info.bound))
}

/// Decompresses to the bytes of the values, in native byte order.
#[pyfunction]
pub(crate) fn decompress<'py>(
    py: Python<'py>,
    compressed: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let bytes = ffi::array(Some(compressed), DType::U8, false)?;
    /// Decompressed values of any float type.
    trait Bytes: Send {
        fn bytes(&self) -> &[u8];
    }
    impl<T: Float> Bytes for Vec<T> {
        fn bytes(&self) -> &[u8] {
            bytemuck::cast_slice(self)
        }
    }
    let values = py.detach(|| -> Result<Box<dyn Bytes>, ApiError> {
        lent::<u8, _>(bytes, |bytes| {
            let info = Info::read(bytes).map_err(unreadable)?;
            with_float!(info.dtype, T => {
                let values: Vec<T> = array_bytes::decompress(bytes).map_err(unreadable)?;
                Ok(Box::new(values) as Box<dyn Bytes>)
            })
        })
    });
    let values = values.map_err(|fault| raise(py, &fault))?;
    Ok(PyByteArray::new(py, values.bytes()))
}
