//! Requests and groups.

use std::ptr;
use std::sync::Arc;

use super::memory::{out_value, out_values};
use super::types::*;
use crate::endpoint::{EndpointGuard, SharedEndpoint};
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table};

/// Advances the calls of a request's communicator. done becomes 1 if the request's call is over,
/// whose result is returned then, and request NULL; else 0. A NULL request is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwTest(request: *mut fwRequest_t, done: *mut i32) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
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

/// Waits until a request's call is over, returns its result, and makes the request NULL. Waiting
/// for a NULL request is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwWait(request: *mut fwRequest_t) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
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

/// Waits until the calls of all n requests are over, also if they are of several ranks that this
/// thread plays, and makes them NULL. Returns the first result that is not FW_SUCCESS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwWaitAll(n: usize, requests: *mut fwRequest_t) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        wait_all(unsafe { out_values(requests, n) }?)
    })
}

fn wait_all(requests: &mut [fwRequest_t]) -> Result<(), ApiError> {
    requests.iter().try_for_each(group::refuse_collected)?;
    let mut endpoints: Vec<Arc<SharedEndpoint>> = Vec::new();
    // Of each request: its family, and itself.
    let mut known: Vec<(usize, usize)> = Vec::new();
    for handle in requests.iter().map(|request| request.addr()).filter(|&handle| handle != 0) {
        if known.iter().any(|known| known.1 == handle) {
            return Err(ApiError::argument("a request is there twice"));
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
        // Who waits for one drives all of them.
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
        result = result.and(guards[endpoint].record(comm, report.map_err(ApiError::from)));
    }
    result
}

/// Begins a group: this thread's calls until fwGroupEnd only take note of their arguments, and
/// return at once. Groups may be within groups. Not in a group, and refused alone: fwCommInitEnv,
/// splitting, shrinking, destroying and aborting communicators, and waiting for a request of the
/// group's.
#[unsafe(no_mangle)]
pub extern "C" fn fwGroupStart() -> fwResult {
    catch_errors(group::start)
}

/// Ends a group. The end of the outermost one makes the calls, of one communicator or of several
/// that this thread plays, and waits for those without a request; returns the first failure.
///
/// A group is made whole or not at all. A collective, message or fwCommInitRank that is refused
/// between fwGroupStart and fwGroupEnd, or here, refuses the group: this function says why, and
/// nothing of the group was sent. Correct the call, and repeat the whole group. Arrays of a group
/// do not overlap where one of them is written.
///
/// All-reduces of a communicator that differ in nothing but arrays and bounds, and have no
/// requests, are made as one call, in which short arrays share messages: all ranks make the same
/// group. fwSend and fwRecv go on side by side; a group that has one has nothing else, for one
/// communicator, and those without requests have one type and one plan. A group of more calls than
/// fwConfig.calls waits for the first ones.
#[unsafe(no_mangle)]
pub extern "C" fn fwGroupEnd() -> fwResult {
    catch_errors(group::end)
}
