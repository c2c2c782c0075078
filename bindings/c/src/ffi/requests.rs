//! Functions for requests and groups.

use std::ptr;
use std::sync::Arc;

use super::memory::{out_value, out_values};
use super::types::*;
use crate::endpoint::{EndpointGuard, SharedEndpoint};
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table};

/// Advances the calls of a request's communicator and sets done to whether the request's call has
/// finished. If done is 1, request becomes NULL and the call's result is returned. If done is 0,
/// the call is still in progress. A NULL request counts as finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwTest(request: *mut fwRequest_t, done: *mut i32) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let (request, done) =
            unsafe { (out_value(request, "request")?, out_value(done, "answer")?) };
        *done = 0;
        group::refuse_collected(request)?;
        if request.is_null() {
            *done = 1;
            return Ok(());
        }
        let handle = request.addr();
        let endpoint = handle_table::request(handle)?;
        let mut guard = endpoint.enter()?;
        guard.progress();
        if guard.requests.get(&handle).is_some_and(|request| !request.call.is_finished()) {
            return Ok(());
        }
        (*request, *done) = (ptr::null_mut(), 1);
        guard.finish(handle)
    })
}

/// Waits until a request's call has finished, sets the request to NULL, and returns the call's
/// result. Returns FW_SUCCESS at once for a NULL request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwWait(request: *mut fwRequest_t) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let request = unsafe { out_value(request, "request") }?;
        group::refuse_collected(request)?;
        if request.is_null() {
            return Ok(());
        }
        let endpoint = handle_table::request(request.addr())?;
        let mut guard = endpoint.enter()?;
        let handle = std::mem::replace(request, ptr::null_mut()).addr();
        guard.finish(handle)
    })
}

/// Waits until the calls of all n requests have finished, and sets the requests to NULL. The
/// requests may belong to several ranks that this thread runs. NULL requests are ignored. Returns
/// the first result that is not FW_SUCCESS, in the order of requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwWaitAll(n: usize, requests: *mut fwRequest_t) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        wait_all(unsafe { out_values(requests, n) }?)
    })
}

/// Waits for several requests, which may belong to several endpoints.
fn wait_all(requests: &mut [fwRequest_t]) -> Result<(), ApiError> {
    requests.iter().try_for_each(group::refuse_collected)?;
    let mut endpoints: Vec<Arc<SharedEndpoint>> = Vec::new();
    // For each request: the index of its endpoint, and its handle.
    let mut known: Vec<(usize, usize)> = Vec::new();
    for handle in requests.iter().map(|request| request.addr()).filter(|&handle| handle != 0) {
        if known.iter().any(|known| known.1 == handle) {
            return Err(ApiError::argument("a request appears twice"));
        }
        let endpoint = handle_table::request(handle)?;
        let at = endpoints.iter().position(|known| Arc::ptr_eq(known, &endpoint));
        let at = at.unwrap_or_else(|| {
            endpoints.push(endpoint);
            endpoints.len() - 1
        });
        known.push((at, handle));
    }
    let guards = endpoints.iter().map(|endpoint| endpoint.enter());
    let mut guards = guards.collect::<Result<Vec<EndpointGuard<'_>>, ApiError>>()?;
    requests.fill(ptr::null_mut());
    let mut result = Ok(());
    if guards.len() == 1 {
        // Waiting for one request advances all calls of the endpoint.
        for (endpoint, handle) in known {
            result = result.and(guards[endpoint].finish(handle));
        }
        return result;
    }
    let mut comms = Vec::new();
    let mut calls = Vec::new();
    for (endpoint, handle) in known {
        handle_table::remove(handle);
        if let Some(request) = guards[endpoint].requests.remove(&handle) {
            comms.push((endpoint, request.comm));
            calls.push(Box::pin(request.call));
        }
    }
    for ((endpoint, comm), report) in comms.into_iter().zip(group::block_on(calls, || false)) {
        result = result.and(guards[endpoint].record(comm, report));
    }
    result
}

/// Begins a group. Until fwGroupEnd, this thread's calls only record their arguments and return at
/// once. Groups may be nested. fwCommInitEnv, fwCommSplit, fwCommShrink, fwCommDestroy,
/// fwCommAbort, and waiting for a request of the group return FW_INVALID_USAGE in a group; the
/// group stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn fwGroupStart() -> fwResult {
    catch_errors(group::start)
}

/// Ends a group. The end of the outermost group starts all its calls, on one communicator or on
/// several that this thread runs. It waits for the calls without a request, and returns the first
/// error.
///
/// A group is started as a whole or not at all. If any collective, message or fwCommInitRank of the
/// group has an invalid argument, this function returns that error and nothing was sent. Correct
/// the call and repeat the whole group. An array that a call of the group writes must not overlap
/// another array of the group.
///
/// All-reduces without requests on one communicator run as one call if they differ only in arrays
/// and error bounds; short arrays then share messages. For this, all ranks call the same group.
///
/// Sends and receives of a group run concurrently. A group that contains one contains only
/// messages, on one communicator. Its messages without requests have one type and one plan.
///
/// If a group has more calls than fwConfig.calls, later calls start when earlier ones have
/// finished.
#[unsafe(no_mangle)]
pub extern "C" fn fwGroupEnd() -> fwResult {
    catch_errors(group::end)
}
