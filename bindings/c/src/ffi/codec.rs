//! Parsing of plans, and the codec without communication.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

use foldwire::codec::CodecId;
use foldwire::compress::{self, CompressError, Info, Layout};
use foldwire::plan::PlanSpec;
use foldwire::{DType, Element, Plan};

use super::call::{dtype, with_type};
use super::memory::{LentArray, lent_bytes, out_value, out_values, read};
use super::types::*;
use crate::errors::{ApiError, catch_errors};
use crate::plan::{self, EXACT};

/// Largest length in bytes of a plan's text.
const MAX_TEXT: usize = 1000;

/// Parses a plan from text and writes all of plan; FW_PLAN_INIT is not needed before. The text is a
/// comma-separated list of words, at most 1000 bytes:
/// - a mode: exact, lossless, compress or auto. The default is compress if the text has a bound or
///   a codec, otherwise exact.
/// - an error bound: abs:0.1 (in the unit of the data), rel:1e-4 (of the value range) or psnr:60
///   (dB).
/// - codec:NAME or codec:NAME:SETTING; schedule:NAME; lanes:N; scope:operand or scope:result.
/// - below:BYTES to send shorter arrays uncompressed; shape:110x64x128; unbiased:SEED.
/// - fill:VALUE or fill:VALUE:number, for a value that stands for missing data; fill:refuse, to
///   refuse data in which a value seems to be one.
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
        *plan = plan::to_c(&text.ok_or_else(wrong)?.parse()?);
        Ok(())
    })
}

/// Returns the plan for an array. A plan that leaves out the codec lets it be chosen.
fn array_plan(spec: &PlanSpec) -> Result<Plan, ApiError> {
    let mut plan = spec.plan()?;
    if spec.codec.is_none() {
        plan.is_auto = plan.bound.is_some();
        plan.codec = if plan.is_auto { plan.codec } else { CodecId::Lossless };
    }
    Ok(plan)
}

/// Copies the caller's plan; NULL means exact. An older caller's struct lacks members; they have
/// their defaults.
///
/// # Safety
/// As for [`read`], except that null is allowed.
pub(super) unsafe fn copied_plan(plan: *const fwPlan) -> Result<fwPlan, ApiError> {
    // SAFETY: guaranteed by the caller.
    if plan.is_null() { Ok(EXACT) } else { unsafe { read(plan, EXACT, "fwPlan") } }
}

/// Compresses an array of the caller. Also returns a value that seems to be a fill value
/// ([`compress::compress_bytes`]).
///
/// # Safety
/// The array must exist, and nobody may write it during the call.
pub(super) unsafe fn compress_array(
    values: *const c_void,
    count: usize,
    dtype: DType,
    layout: &Layout,
    plan: &PlanSpec,
) -> Result<(Vec<u8>, Option<f64>), ApiError> {
    let plan = array_plan(plan)?;
    with_type!(dtype, T => {
        // SAFETY: guaranteed by the caller.
        let values = unsafe { LentArray::<T>::lend(values, count) }?;
        let values = bytemuck::cast_slice(values.as_ref());
        compress::compress_bytes(T::DTYPE, values, layout, &plan).map_err(refused)
    })
}

/// Decompresses an array of any type, and returns the bytes of its values.
///
/// # Errors
/// If the bytes are damaged or were not made by fwCompress.
pub fn decompress_any(bytes: &[u8]) -> Result<Box<dyn ValueBytes>, ApiError> {
    let info = Info::read(bytes).map_err(unreadable)?;
    with_type!(info.dtype, T => {
        let values = compress::decompress::<T>(bytes).map_err(unreadable)?;
        Ok(Box::new(values) as Box<dyn ValueBytes>)
    })
}

/// Values of any type.
pub trait ValueBytes: Send {
    /// Returns the memory of the values.
    fn bytes(&self) -> &[u8];
}

impl<T: Element> ValueBytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

/// Converts an error of compression.
fn refused(error: CompressError) -> ApiError {
    let result = match error {
        CompressError::Type { .. } | CompressError::Unsupported => FW_UNSUPPORTED,
        _ => FW_INVALID_ARGUMENT,
    };
    ApiError::new(result, error.to_string())
}

/// Sets max_bytes to the largest number of bytes that fwCompress may need for count values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompressMaxSize(
    count: usize,
    data_type: fwDataType,
    max_bytes: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let max_bytes = unsafe { out_value(max_bytes, "size") }?;
        let overflow =
            || ApiError::argument(format!("{count} values are more than memory can hold"));
        let most = compress::max_compressed_len(count, dtype(data_type)?);
        *max_bytes = most.ok_or_else(overflow)?;
        Ok(())
    })
}

/// Compresses values[count] of data_type into compressed[capacity] (bytes). Every value is kept
/// within the plan's error bound, or exactly if the plan has none or is NULL; integers are always
/// exact. A relative bound refers to the value range of these values, fill values such as 1e20
/// included: beside one, nothing may be left of the others. fwSuspectedFill then names it, and a
/// plan with refuses_fill refuses the values; pass it to fwCompressFill. The plan's codec is used;
/// a plan without one takes the codec that makes the output shortest. The plan's shape says which
/// values are neighbours. The output stores its type, count and bound, and fwDecompress needs
/// nothing else.
///
/// n_bytes receives the size of the output in bytes. With FW_NO_ROOM it receives the size that is
/// needed. Errors: FW_UNSUPPORTED for codecs that are not for data_type, and for plans with
/// scope:result or with unbiased rounding; FW_INVALID_ARGUMENT for values that the plan refuses.
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
    // SAFETY: guaranteed by the caller.
    unsafe { compress_into((values, count), data_type, None, plan, compressed, capacity, n_bytes) }
}

thread_local! {
    /// The fill value that this thread's last compression suspected.
    static SUSPECTED_FILL: Cell<Option<f64>> = const { Cell::new(None) };
}

/// Returns a value that sets the range of a relative bound in the array of this thread's last
/// fwCompress, and costs the other values most of their digits: perhaps a fill value for missing
/// data, such as 1e20. NaN: none.
#[unsafe(no_mangle)]
pub extern "C" fn fwSuspectedFill() -> f64 {
    SUSPECTED_FILL.get().unwrap_or(f64::NAN)
}

/// Compresses like fwCompress an array of floats with missing values, which are fill_value: the
/// value of data_type nearest to it. They keep their bits, and do not count in the range of a
/// relative bound. fwDecompress restores them. Integers have no fill value.
///
/// Errors: as fwCompress; FW_INVALID_ARGUMENT for codecs whose setting decides what is lost, which
/// keep no fill values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCompressFill(
    values: *const c_void,
    count: usize,
    data_type: fwDataType,
    fill_value: f64,
    plan: *const fwPlan,
    compressed: *mut c_void,
    capacity: usize,
    n_bytes: *mut usize,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let fill = Some(fill_value);
        compress_into((values, count), data_type, fill, plan, compressed, capacity, n_bytes)
    }
}

/// Compresses an array of the caller into the caller's memory.
///
/// # Safety
/// As for [`compress_array`] and [`read`]; `capacity` bytes and the size must exist at the
/// destination.
unsafe fn compress_into(
    (values, count): (*const c_void, usize),
    data_type: fwDataType,
    fill: Option<f64>,
    plan: *const fwPlan,
    compressed: *mut c_void,
    capacity: usize,
    n_bytes: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let n_bytes = unsafe { out_value(n_bytes, "size") }?;
        *n_bytes = 0;
        SUSPECTED_FILL.set(None);
        // SAFETY: guaranteed by the caller.
        let plan = plan::spec_of(&unsafe { copied_plan(plan) }?)?;
        let layout = Layout { fill_value: fill, ..Layout::line(count) };
        // SAFETY: guaranteed by the caller.
        let (bytes, suspected_fill) =
            unsafe { compress_array(values, count, dtype(data_type)?, &layout, &plan) }?;
        SUSPECTED_FILL.set(suspected_fill);
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
/// error bound (0: every bit is kept; infinite: a codec's setting determines the error). Each of
/// data_type, count and bound may be NULL. Returns FW_DAMAGED if the bytes are damaged or were not
/// made by fwCompress.
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
            *unsafe { out_value(count, "count") }? = info.n_values();
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
        with_type!(dtype(data_type)?, T => {
            let info = Info::read(bytes).map_err(unreadable)?;
            let n_values = usize::try_from(info.n_values()).unwrap_or(usize::MAX);
            if n_values > capacity && info.dtype == <T as Element>::DTYPE {
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
