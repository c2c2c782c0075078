//! Extremes and where they are.

use std::ffi::c_void;

use foldwire::{DType, Element, Report};

use super::call::{CoreCommunicator, dtype, with_type};
use super::memory::LentArray;
use super::types::{fwComm_t, fwDataType, fwResult};
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table};

/// Finds the largest of all ranks' values at each place, and where it is, as MPI_MAXLOC:
/// values[count] receive the largest ones, and indices[count] the index that a rank passed with it.
/// If several ranks have it, that is the smallest index. All ranks get the same.
///
/// NaN is larger than all other values, and 0 than -0. The call is exact: two all-reduces. Arrays
/// are in the memory of the host and do not overlap. Not allowed in a group. Complex numbers have
/// no order (FW_INVALID_ARGUMENT).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwMaxLoc(
    values: *mut c_void,
    indices: *mut i64,
    count: usize,
    data_type: fwDataType,
    comm: fwComm_t,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe { locate((values, indices, count), data_type, true, comm) }
}

/// Finds the smallest of all ranks' values at each place, and where it is. Otherwise as fwMaxLoc,
/// but NaN is smaller than all other values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwMinLoc(
    values: *mut c_void,
    indices: *mut i64,
    count: usize,
    data_type: fwDataType,
    comm: fwComm_t,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe { locate((values, indices, count), data_type, false, comm) }
}

/// Finds the largest values, or the smallest ones.
///
/// # Safety
/// The arrays must exist, and nobody else may use them during the call.
unsafe fn locate(
    (values, indices, count): (*mut c_void, *mut i64, usize),
    data_type: fwDataType,
    is_max: bool,
    comm: fwComm_t,
) -> fwResult {
    catch_errors(|| {
        group::refuse("a search for extremes")?;
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let dtype = dtype(data_type)?;
        let mut guard = endpoint.enter()?;
        let entry = guard.entry(comm.addr())?;
        entry.memory.refuse("extremes with their places")?;
        // SAFETY: guaranteed by the caller.
        let report = unsafe { run(&entry.comm, (values, indices, count), dtype, is_max) };
        guard.record(comm.addr(), report)
    })
}

/// [`locate`] for one communicator and type.
///
/// # Safety
/// As for [`locate`].
unsafe fn run(
    comm: &CoreCommunicator,
    (values, indices, count): (*mut c_void, *mut i64, usize),
    dtype: DType,
    is_max: bool,
) -> Result<Report, ApiError> {
    // SAFETY: guaranteed by the caller.
    let mut indices = unsafe { LentArray::<i64>::lend(indices.cast(), count) }?;
    with_type!(dtype, T => {
        // SAFETY: guaranteed by the caller.
        let values = unsafe { LentArray::<T>::lend(values, count) }?;
        typed(comm, values, indices.as_mut(), is_max)
    })
}

fn typed<T: Element>(
    comm: &CoreCommunicator,
    mut values: LentArray<T>,
    indices: &mut [i64],
    is_max: bool,
) -> Result<Report, ApiError> {
    let values = values.as_mut();
    let found = if is_max { comm.max_loc(values, indices) } else { comm.min_loc(values, indices) };
    Ok(found?)
}
