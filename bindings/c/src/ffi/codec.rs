//! Parsing of plans, and the codec without communication.

use std::ffi::{CStr, c_char, c_void};

use foldwire::bound::ValueRange;
use foldwire::codec::CodecId;
use foldwire::compress::{self, Info};
use foldwire::{Float, Quantum};

use super::call::dtype;
use super::memory::{LentArray, lent_bytes, out_value, out_values, read};
use super::types::*;
use crate::errors::{ApiError, catch_errors};
use crate::plan::{self, EXACT};

/// Largest length in bytes of a plan's text.
const MAX_TEXT: usize = 1000;

/// Expands `$body` with `$T` as the float type of a code.
macro_rules! with_float {
    ($code:expr, $T:ident => $body:expr) => {
        match dtype($code)? {
            foldwire::DType::F32 => {
                type $T = f32;
                $body
            }
            foldwire::DType::F64 => {
                type $T = f64;
                $body
            }
            foldwire::DType::F16 => {
                type $T = foldwire::f16;
                $body
            }
            foldwire::DType::Bf16 => {
                type $T = foldwire::bf16;
                $body
            }
            other => Err(ApiError::new(
                FW_UNSUPPORTED,
                format!("{other} values cannot be compressed; floats can"),
            )),
        }
    };
}

/// Parses a plan from text and writes all of plan; FW_PLAN_INIT is not needed before. The text is a
/// comma-separated list of words, at most 1000 bytes:
/// - a mode: exact, lossless, compress or auto. The default is compress if the text has a bound or
///   a codec, otherwise exact.
/// - an error bound: abs:0.1 (in the unit of the data), rel:1e-4 (of the value range) or psnr:60
///   (dB).
/// - codec:NAME or codec:NAME:SETTING; schedule:NAME; scope:operand or scope:result.
/// - below:BYTES to send shorter arrays uncompressed; shape:110x64x128; unbiased:SEED.
///
/// Errors: FW_INVALID_ARGUMENT if a word is unknown, appears twice, or contradicts another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwPlanParse(text: *const c_char, plan: *mut fwPlan) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let plan = unsafe { out_value(plan, "plan") }?;
        *plan = EXACT;
        if text.is_null() {
            return Err(ApiError::argument("the text of the plan is NULL"));
        }
        // SAFETY: not null; the caller guarantees that it ends with a 0.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_str().ok().filter(|text| text.len() <= MAX_TEXT);
        let wrong = || {
            ApiError::argument(format!(
                "the text of a plan must be UTF-8 of at most {MAX_TEXT} bytes"
            ))
        };
        *plan = plan::parse(text.ok_or_else(wrong)?)?;
        Ok(())
    })
}

/// Returns the quantization step for these values.
fn quantum<T: Float>(plan: &fwPlan, values: &[T]) -> Result<Quantum, ApiError> {
    // The conversion also checks the rest of the plan.
    let core = plan::to_core(plan)?;
    let is_ours = plan.codec[0] == 0 || core.codec == CodecId::FzLight;
    if !is_ours || plan.scope != FW_EACH_OPERAND || plan.is_unbiased != 0 {
        let message = "this function supports only the codec fz-light, with a bound on each value";
        return Err(ApiError::new(FW_UNSUPPORTED, message));
    }
    let Some(bound) = core.bound else { return Ok(Quantum::LOSSLESS) };
    let value_range = if bound.needs_value_range() { ValueRange::of(values) } else { None };
    bound.quantum::<T>(value_range).map_err(|error| ApiError::argument(error.to_string()))
}

/// Sets max_bytes to the largest number of bytes that fwCompress may need for count floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompressMaxSize(
    count: usize,
    data_type: fwDataType,
    max_bytes: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let max_bytes = unsafe { out_value(max_bytes, "size") }?;
        let most = with_float!(data_type, T => Ok(compress::max_compressed_len::<T>(count)));
        let overflow =
            || ApiError::argument(format!("{count} values are more than memory can hold"));
        *max_bytes = most?.ok_or_else(overflow)?;
        Ok(())
    })
}

/// Compresses values[count], floats of data_type, into compressed[capacity] (bytes). Every value is
/// kept within the plan's error bound, or exactly if the plan has none or is NULL. A relative bound
/// refers to the value range of these values. The output stores its type, count and bound, and
/// fwDecompress needs nothing else.
///
/// n_bytes receives the size of the output in bytes. With FW_NO_ROOM it receives the size that is
/// needed. Errors: FW_UNSUPPORTED for integers, and for plans with another codec than fz-light,
/// with scope:result or with unbiased rounding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompress(
    values: *const c_void,
    count: usize,
    data_type: fwDataType,
    plan: *const fwPlan,
    compressed: *mut c_void,
    capacity: usize,
    n_bytes: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let n_bytes = unsafe { out_value(n_bytes, "size") }?;
        *n_bytes = 0;
        let plan = if plan.is_null() {
            EXACT
        } else {
            // `EXACT` provides the members that the struct of an older caller lacks.
            // SAFETY: guaranteed by the caller.
            unsafe { read(plan, EXACT, "fwPlan") }?
        };
        let bytes = with_float!(data_type, T => {
            // SAFETY: guaranteed by the caller.
            let values = unsafe { LentArray::<T>::lend(values, count) }?;
            let values: &[T] = values.as_ref();
            Ok(compress::compress_with(values, quantum(&plan, values)?))
        })?;
        *n_bytes = bytes.len();
        // SAFETY: guaranteed by the caller.
        let room = unsafe { out_values(compressed.cast::<u8>(), capacity) }?;
        let room = room.get_mut(..bytes.len()).ok_or_else(|| no_room(bytes.len(), capacity))?;
        room.copy_from_slice(&bytes);
        Ok(())
    })
}

/// The error for a buffer that is too small.
fn no_room(need: usize, have: usize) -> ApiError {
    ApiError::new(FW_NO_ROOM, format!("the output needs a capacity of {need}, but has {have}"))
}

/// Converts an error of decompression.
fn unreadable(error: compress::DecompressError) -> ApiError {
    ApiError::new(FW_DAMAGED, error.to_string())
}

/// Reads the header of compressed[n_bytes]: the type of the values, their count, and the absolute
/// error bound (0: every bit is kept). Each of data_type, count and bound may be NULL. Returns
/// FW_DAMAGED if the bytes are damaged or were not made by fwCompress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompressedInfo(
    compressed: *const c_void,
    n_bytes: usize,
    data_type: *mut fwDataType,
    count: *mut u64,
    bound: *mut f64,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let info = Info::read(unsafe { lent_bytes(compressed, n_bytes) }?).map_err(unreadable)?;
        if !data_type.is_null() {
            // SAFETY: guaranteed by the caller.
            *unsafe { out_value(data_type, "type") }? = info.dtype as fwDataType;
        }
        if !count.is_null() {
            // SAFETY: guaranteed by the caller.
            *unsafe { out_value(count, "count") }? = info.n_values;
        }
        if !bound.is_null() {
            // SAFETY: guaranteed by the caller.
            *unsafe { out_value(bound, "bound") }? = info.bound;
        }
        Ok(())
    })
}

/// Decompresses compressed[n_bytes], which fwCompress made from values of data_type, into
/// values[capacity]. count receives the number of values.
///
/// Errors: FW_NO_ROOM if there are more than capacity values; FW_DAMAGED if the bytes are damaged,
/// have another type, or were not made by fwCompress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwDecompress(
    compressed: *const c_void,
    n_bytes: usize,
    data_type: fwDataType,
    values: *mut c_void,
    capacity: usize,
    count: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let (bytes, count) =
            unsafe { (lent_bytes(compressed, n_bytes)?, out_value(count, "count")?) };
        *count = 0;
        with_float!(data_type, T => {
            let info = Info::read(bytes).map_err(unreadable)?;
            let n_values = usize::try_from(info.n_values).unwrap_or(usize::MAX);
            if n_values > capacity && info.dtype == <T as foldwire::Element>::DTYPE {
                return Err(no_room(n_values, capacity));
            }
            let decoded: Vec<T> = compress::decompress(bytes).map_err(unreadable)?;
            // SAFETY: guaranteed by the caller.
            let mut room = unsafe { LentArray::<T>::lend(values, decoded.len()) }?;
            room.as_mut().copy_from_slice(&decoded);
            *count = decoded.len();
            Ok(())
        })
    })
}
