//! Reproducible sums.

use std::ffi::c_void;

use foldwire::{DType, Plan, Report, Summands};

use super::call::{CoreCommunicator, dtype, with_float};
use super::memory::{LentArray, bytes, check_disjoint, out_values};
use super::rust::RawArray;
use super::types::{fwComm_t, fwDataType, fwResult};
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table};

/// Where the values of several sums lie in an array.
pub type fwLayout = i32;
/// The values of a sum lie next to each other: rows of a matrix in C, columns of one in Fortran.
pub const FW_ADJACENT: fwLayout = 0;
/// The values of a sum lie n_sums apart: columns of a matrix in C, rows of one in Fortran.
pub const FW_STRIDED: fwLayout = 1;

/// Sums all ranks' values[count], of a float type, into sum: the double nearest to the exact sum,
/// with ties to even. Nothing is rounded before. So its bits do not depend on the number of ranks,
/// on the order and the distribution of the values, or on the machine. The ranks may have different
/// counts. This is one all-reduce of about 300 bytes.
///
/// The sum is NaN if a value is NaN or if there are infinities of both signs, and infinite if it is
/// beyond the largest double. It is -0 if there are values and all are -0; else a sum of zero is 0.
/// Arrays are in the memory of the host and do not overlap (FW_INVALID_ARGUMENT). Not allowed in a
/// group.
///
/// Errors: FW_UNSUPPORTED for integers, whose sums are exact in fwAllReduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwReproSum(
    values: *const c_void,
    count: usize,
    data_type: fwDataType,
    sum: *mut f64,
    comm: fwComm_t,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe { fwReproSums(values, 1, count, data_type, FW_ADJACENT, sum, comm) }
}

/// Makes n_sums sums like fwReproSum at once, of count values each on this rank, into sums[n_sums].
/// layout is FW_ADJACENT or FW_STRIDED: where the values of a sum lie in values[n_sums * count].
/// All ranks pass the same n_sums; counts and layouts may differ.
///
/// This is one all-reduce of 16 bytes for each sum, or 24 on more than 16 ranks. A sum whose
/// largest and smallest bit are more than about 85 binary digits (25 decimal ones) apart needs a
/// second all-reduce, as long as these digits. One sum alone never needs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwReproSums(
    values: *const c_void,
    n_sums: usize,
    count: usize,
    data_type: fwDataType,
    layout: fwLayout,
    sums: *mut f64,
    comm: fwComm_t,
) -> fwResult {
    catch_errors(|| {
        group::refuse("a reproducible sum")?;
        let is_columns = match layout {
            FW_ADJACENT => false,
            FW_STRIDED => true,
            other => {
                let message = format!("{other} is not a layout; pass FW_ADJACENT or FW_STRIDED");
                return Err(ApiError::argument(message));
            }
        };
        let overflow =
            || ApiError::argument(format!("{n_sums} · {count} values are more than memory holds"));
        let n_values = n_sums.checked_mul(count).ok_or_else(overflow)?;
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let dtype = dtype(data_type)?;
        check_arrays((values, n_values), dtype, (sums.cast_const(), n_sums))?;
        // SAFETY: guaranteed by the caller.
        let sums = unsafe { out_values(sums, n_sums) }?;
        let mut guard = endpoint.enter()?;
        let entry = guard.entry(comm.addr())?;
        entry.memory.refuse("reproducible sums")?;
        // SAFETY: guaranteed by the caller.
        let report = unsafe { run(&entry.comm, (values, n_values), dtype, is_columns, sums) };
        guard.record(comm.addr(), report)
    })
}

/// Checks that the values and the sums do not overlap.
fn check_arrays(
    (values, n_values): (*const c_void, usize),
    dtype: DType,
    (sums, n_sums): (*const f64, usize),
) -> Result<(), ApiError> {
    let values = bytes(values, n_values, dtype.n_bytes())?;
    check_disjoint((&values, &bytes(sums.cast(), n_sums, size_of::<f64>())?), "values and of sums")
}

/// Computes sums of an array of any float type.
///
/// # Safety
/// The array must exist, and nobody may write it during the call.
unsafe fn run(
    comm: &CoreCommunicator,
    (values, n_values): (*const c_void, usize),
    dtype: DType,
    is_columns: bool,
    sums: &mut [f64],
) -> Result<Report, ApiError> {
    let refused = |other| {
        format!(
            "reproducible sums are of floats, not {other}; sums of integers are exact in an \
             all-reduce"
        )
    };
    with_float!(dtype, refused, T => {
        // SAFETY: guaranteed by the caller.
        let values = unsafe { LentArray::<T>::lend(values, n_values) }?;
        let values = values.as_ref();
        let summands = if is_columns { Summands::Columns(values) } else { Summands::Rows(values) };
        Ok(comm.repro_sums(summands, sums, &Plan::raw())?)
    })
}

/// Makes reproducible `f64` sums of an array: of its rows, or of its columns.
///
/// # Errors
/// If an argument is invalid, or the call fails.
pub fn repro_sums(
    comm: &CoreCommunicator,
    values: RawArray,
    dtype: DType,
    is_columns: bool,
    sums: RawArray,
) -> Result<Report, ApiError> {
    let (values, n_sums) = ((values.start(), values.n_values()), sums.n_values());
    check_arrays(values, dtype, (sums.start().cast(), n_sums))?;
    let mut sums = sums.lend::<f64>()?;
    // SAFETY: guaranteed by the caller of `RawArray::new`.
    unsafe { run(comm, values, dtype, is_columns, sums.as_mut()) }
}
