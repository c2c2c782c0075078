//! Requests and groups.

use std::ptr;
use std::sync::Arc;

use super::memory::{place, places};
use super::types::*;
use crate::border::{Fault, run};
use crate::family::{Family, Inside};
use crate::{group, handles};

/// Advances the calls of a request's communicator. done becomes 1 if the request's call is over,
/// whose result is returned then, and request NULL; else 0. A NULL request is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwTest(request: *mut fwRequest_t, done: *mut i32) -> fwResult {
    run(|| {
        // SAFETY: the caller's promise.
        let (request, done) = unsafe { (place(request, "request")?, place(done, "answer")?) };
        *done = 0;
        group::refuse_collected(request)?;
        if request.is_null() {
            *done = 1;
            return Ok(());
        }
        let handle = request.addr();
        let family = handles::request(handle)?;
        let mut inside = family.enter()?;
        inside.progress();
        if inside.requests.get(&handle).is_some_and(|request| !request.call.is_finished()) {
            return Ok(());
        }
        (*request, *done) = (ptr::null_mut(), 1);
        inside.finish(handle)
    })
}

/// Waits until a request's call is over, returns its result, and makes the request NULL. Waiting
/// for a NULL request is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwWait(request: *mut fwRequest_t) -> fwResult {
    run(|| {
        // SAFETY: the caller's promise.
        let request = unsafe { place(request, "request") }?;
        group::refuse_collected(request)?;
        if request.is_null() {
            return Ok(());
        }
        let family = handles::request(request.addr())?;
        let mut inside = family.enter()?;
        let handle = std::mem::replace(request, ptr::null_mut()).addr();
        inside.finish(handle)
    })
}

/// Waits until the calls of all n requests are over, also if they are of several ranks that this
/// thread plays, and makes them NULL. Returns the first result that is not FW_SUCCESS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwWaitAll(n: usize, requests: *mut fwRequest_t) -> fwResult {
    run(|| {
        // SAFETY: the caller's promise.
        wait_all(unsafe { places(requests, n) }?)
    })
}

fn wait_all(requests: &mut [fwRequest_t]) -> Result<(), Fault> {
    requests.iter().try_for_each(group::refuse_collected)?;
    let mut families: Vec<Arc<Family>> = Vec::new();
    // Of each request: its family, and itself.
    let mut known: Vec<(usize, usize)> = Vec::new();
    for handle in requests.iter().map(|request| request.addr()).filter(|&handle| handle != 0) {
        if known.iter().any(|known| known.1 == handle) {
            return Err(Fault::argument("a request is there twice"));
        }
        let family = handles::request(handle)?;
        let at = families.iter().position(|known| Arc::ptr_eq(known, &family));
        let at = at.unwrap_or_else(|| {
            families.push(family);
            families.len() - 1
        });
        known.push((at, handle));
    }
    let insides = families.iter().map(|family| family.enter());
    let mut insides = insides.collect::<Result<Vec<Inside<'_>>, Fault>>()?;
    requests.fill(ptr::null_mut());
    let mut result = Ok(());
    if insides.len() == 1 {
        // Who waits for one drives all of them.
        for (family, handle) in known {
            result = result.and(insides[family].finish(handle));
        }
        return result;
    }
    let mut comms = Vec::new();
    let mut calls = Vec::new();
    for (family, handle) in known {
        handles::remove(handle);
        if let Some(request) = insides[family].requests.remove(&handle) {
            comms.push((family, request.comm));
            calls.push(Box::pin(request.call));
        }
    }
    for ((family, comm), report) in comms.into_iter().zip(group::block_on(calls, || false)) {
        result = result.and(insides[family].note(comm, report.map_err(Fault::from)));
    }
    result
}

/// Begins a group: this thread's calls until fwGroupEnd only take note of their arguments, and
/// return at once. Groups may be within groups. Not in a group, and refused alone: fwCommInitEnv,
/// splitting, shrinking, destroying and aborting communicators, and waiting for a request of the
/// group's.
#[unsafe(no_mangle)]
pub extern "C" fn fwGroupStart() -> fwResult {
    run(group::start)
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
    run(group::end)
}
