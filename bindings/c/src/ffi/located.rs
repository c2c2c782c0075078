//! Extremes and where they are.

use std::ffi::c_void;

use foldwire::{DType, Element};

use super::call::{CoreCommunicator, dtype, with_type};
use super::memory::{LentArray, RequestOut, bytes, check_disjoint};
use super::started::{DynCall, running};
use super::types::{fwComm_t, fwDataType, fwRequest_t, fwResult};
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table};

/// Finds the largest of all ranks' values at each place, and where it is, as MPI_MAXLOC:
/// values[count] receive the largest ones, and indices[count] the index that a rank passed with it.
/// If several ranks have it, that is the smallest index. All ranks get the same.
///
/// With request != NULL the call returns at once, and the arrays must stay until it has finished.
///
/// NaN is larger than all other values, and 0 than -0. The call is exact: two all-reduces. Arrays
/// are in the memory of the host and do not overlap (FW_INVALID_ARGUMENT). Not allowed in a group.
/// Complex numbers have no order (FW_INVALID_ARGUMENT).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwMaxLoc(
    values: *mut c_void,
    indices: *mut i64,
    count: usize,
    data_type: fwDataType,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe { locate((values, indices, count), data_type, true, comm, request) }
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
    request: *mut fwRequest_t,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe { locate((values, indices, count), data_type, false, comm, request) }
}

/// Finds the largest values, or the smallest ones.
///
/// # Safety
/// The arrays must exist, and nobody else may use them until the call has finished.
unsafe fn locate(
    arrays: (*mut c_void, *mut i64, usize),
    data_type: fwDataType,
    is_max: bool,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    catch_errors(|| {
        group::refuse("a search for extremes")?;
        // SAFETY: guaranteed by the caller.
        let request = unsafe { RequestOut::optional(request) }?;
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let dtype = dtype(data_type)?;
        let mut guard = endpoint.enter()?;
        let entry = guard.entry(comm.addr())?;
        entry.memory.refuse("extremes with their places")?;
        // SAFETY: guaranteed by the caller.
        let started = unsafe { start(&entry.comm, arrays, dtype, is_max) };
        match request {
            None => guard.record(comm.addr(), started.and_then(DynCall::wait)),
            Some(mut place) => {
                place.put(guard.add_request(&endpoint, comm.addr(), started?)?);
                Ok(())
            }
        }
    })
}

/// Starts a search.
///
/// # Safety
/// As for [`locate`].
unsafe fn start(
    comm: &CoreCommunicator,
    (values, indices, count): (*mut c_void, *mut i64, usize),
    dtype: DType,
    is_max: bool,
) -> Result<Box<dyn DynCall>, ApiError> {
    let ranges = (bytes(values, count, dtype.n_bytes())?, bytes(indices.cast(), count, 8)?);
    check_disjoint((&ranges.0, &ranges.1), "values and of indices")?;
    // SAFETY: guaranteed by the caller.
    let indices = unsafe { LentArray::<i64>::lend(indices.cast(), count) }?;
    with_type!(dtype, T => {
        // SAFETY: guaranteed by the caller.
        let values = unsafe { LentArray::<T>::lend(values, count) }?;
        typed(comm, values, indices, is_max)
    })
}

fn typed<T: Element>(
    comm: &CoreCommunicator,
    values: LentArray<T>,
    indices: LentArray<i64>,
    is_max: bool,
) -> Result<Box<dyn DynCall>, ApiError> {
    let started = match is_max {
        true => comm.start_max_loc::<T, _, _>(values, indices),
        false => comm.start_min_loc::<T, _, _>(values, indices),
    };
    Ok(running::<T, _>(started?))
}
