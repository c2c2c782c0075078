//! Plans from text, and the codec alone.

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

/// Longest text of a plan.
const MAX_TEXT: usize = 1000;

/// Expands `$body` for the float type `$T` that a code stands for.
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
            other => {
                Err(ApiError::new(FW_UNSUPPORTED, format!("{other} is not compressed; floats are")))
            }
        }
    };
}

/// Reads a plan from text, words with commas between them: exact, lossless, compress or auto; a
/// bound, abs:0.1, rel:1e-4 or psnr:60; codec:NAME or codec:NAME:SETTING, schedule:NAME,
/// scope:result, below:BYTES, shape:110x64x128, unbiased:SEED. "rel:1e-4" alone is compress. Needs
/// no FW_PLAN_INIT before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwPlanParse(text: *const c_char, plan: *mut fwPlan) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let plan = unsafe { out_value(plan, "plan") }?;
        *plan = EXACT;
        if text.is_null() {
            return Err(ApiError::argument("the text of the plan is NULL"));
        }
        // SAFETY: not null; the caller's promise is that it ends with a 0.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_str().ok().filter(|text| text.len() <= MAX_TEXT);
        let wrong = || ApiError::argument(format!("a plan is text of up to {MAX_TEXT} bytes"));
        *plan = plan::parse(text.ok_or_else(wrong)?)?;
        Ok(())
    })
}

/// The quantum for these values.
fn quantum<T: Float>(plan: &fwPlan, values: &[T]) -> Result<Quantum, ApiError> {
    // What else a plan says, and whether it goes together.
    let core = plan::to_core(plan)?;
    let is_ours = plan.codec[0] == 0 || core.codec == CodecId::FzLight;
    if !is_ours || plan.scope != FW_EACH_OPERAND || plan.is_unbiased != 0 {
        let message = "arrays are compressed by fz-light, within a bound on each value";
        return Err(ApiError::new(FW_UNSUPPORTED, message));
    }
    let Some(bound) = core.bound else { return Ok(Quantum::LOSSLESS) };
    let extent = if bound.needs_value_range() { ValueRange::of(values) } else { None };
    bound.quantum::<T>(extent).map_err(|error| ApiError::argument(error.to_string()))
}

/// The most bytes that fwCompress may need for count floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompressMaxSize(
    count: usize,
    data_type: fwDataType,
    max_bytes: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let max_bytes = unsafe { out_value(max_bytes, "size") }?;
        let most = with_float!(data_type, T => Ok(compress::max_compressed_len::<T>(count)));
        let overflow =
            || ApiError::argument(format!("{count} values are more than memory can hold"));
        *max_bytes = most?.ok_or_else(overflow)?;
        Ok(())
    })
}

/// Compresses count floats within the plan's bound, or with every bit if it has none, into up to
/// capacity bytes at compressed, which say all about themselves. n_bytes becomes how many they are;
/// with FW_NO_ROOM, how many are needed. A relative bound refers to the range of these values.
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
        // SAFETY: the caller's promise.
        let n_bytes = unsafe { out_value(n_bytes, "size") }?;
        *n_bytes = 0;
        let plan = if plan.is_null() {
            EXACT
        } else {
            // SAFETY: the caller's promise.
            unsafe { read(plan, EXACT, "fwPlan") }?
        };
        let bytes = with_float!(data_type, T => {
            // SAFETY: the caller's promise.
            let values = unsafe { LentArray::<T>::lend(values, count) }?;
            let values: &[T] = values.as_ref();
            Ok(compress::compress_with(values, quantum(&plan, values)?))
        })?;
        *n_bytes = bytes.len();
        // SAFETY: the caller's promise.
        let room = unsafe { out_values(compressed.cast::<u8>(), capacity) }?;
        let room = room.get_mut(..bytes.len()).ok_or_else(|| no_room(bytes.len(), capacity))?;
        room.copy_from_slice(&bytes);
        Ok(())
    })
}

fn no_room(need: usize, have: usize) -> ApiError {
    ApiError::new(FW_NO_ROOM, format!("{need} are needed, there is room for {have}"))
}

fn unreadable(error: compress::DecompressError) -> ApiError {
    ApiError::new(FW_DAMAGED, error.to_string())
}

/// What compressed bytes say of themselves: the type, how many values, and the bound that they are
/// within, 0 if every bit is kept. Each place may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompressedInfo(
    compressed: *const c_void,
    n_bytes: usize,
    data_type: *mut fwDataType,
    count: *mut u64,
    bound: *mut f64,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let info = Info::read(unsafe { lent_bytes(compressed, n_bytes) }?).map_err(unreadable)?;
        if !data_type.is_null() {
            // SAFETY: the caller's promise.
            *unsafe { out_value(data_type, "type") }? = info.dtype as fwDataType;
        }
        if !count.is_null() {
            // SAFETY: the caller's promise.
            *unsafe { out_value(count, "count") }? = info.n_values;
        }
        if !bound.is_null() {
            // SAFETY: the caller's promise.
            *unsafe { out_value(bound, "bound") }? = info.bound;
        }
        Ok(())
    })
}

/// Decompresses what fwCompress made of values of this type into up to capacity values. count
/// becomes how many they are. Bytes that are damaged, or not by fwCompress, give FW_DAMAGED.
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
        // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            let mut room = unsafe { LentArray::<T>::lend(values, decoded.len()) }?;
            room.as_mut().copy_from_slice(&decoded);
            *count = decoded.len();
            Ok(())
        })
    })
}
