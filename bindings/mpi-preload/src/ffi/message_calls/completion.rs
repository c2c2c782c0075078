//! The program's calls that complete, cancel or free requests of messages.
//!
//! MPI completes the requests that it knows. The rows of these requests are taken out first, and
//! put back if they are not complete.

use std::ffi::c_int;

use super::super::abi::{Abi, MpiHandle};
use super::super::library::{SUCCESS, StatusPtr};
use super::{MessageLayer, Requests, State, StatusPlace, code_is_truncated, fail, ok};
use crate::messages::PendingMessage;

type Row = (MpiHandle, PendingMessage);
type Rows = Vec<Option<Row>>;

/// Handles of an array of requests.
fn handles<A: Abi>((n, requests): Requests<A>) -> Vec<MpiHandle> {
    if requests.is_null() {
        return Vec::new();
    }
    let n = usize::try_from(n).unwrap_or(0);
    // SAFETY: the program passes an array of `n` requests.
    (0..n).map(|at| A::erase(unsafe { requests.add(at).read() })).collect()
}

/// Takes out the rows of these requests; `None` if there are none.
fn taken<A: Abi>(state: State, requests: Requests<A>) -> Option<(&'static MessageLayer, Rows)> {
    let state = state.filter(|state| state.0.has_pending())?;
    Some((state, state.0.take(handles::<A>(requests))?))
}

/// Calls `next`, which may complete these requests. Requests of compressed messages stand in for
/// the program's persistent sends while it runs.
fn completed<A: Abi>(
    state: &MessageLayer,
    (_, requests): Requests<A>,
    rows: &mut Rows,
    next: impl FnOnce() -> c_int,
) -> c_int {
    let mut sends: Vec<_> = rows
        .iter_mut()
        .enumerate()
        .filter_map(|(at, row)| match row {
            Some((request, PendingMessage::Persistent(send))) => {
                Some((at, *request, send.active()?, send))
            }
            _ => None,
        })
        .collect();
    for &(at, _, active, _) in &sends {
        // SAFETY: the program passes an array with these requests, which MPI would write, too.
        unsafe { requests.add(at).write(A::restore(active)) };
    }
    let code = next();
    for (at, request, _, send) in &mut sends {
        // SAFETY: as above.
        let place = unsafe { &mut *requests.add(*at) };
        if A::erase(*place) == state.0.mpi().handles().request_null {
            send.take_active();
        }
        *place = A::restore(*request);
    }
    code
}

/// Puts the rows back that are left.
fn put_back(state: &MessageLayer, rows: Rows) {
    for (request, pending) in rows.into_iter().flatten() {
        state.0.add(request, pending);
    }
}

/// Takes out the row of a request that may be complete, by its handle after MPI's function, and
/// tells whether the request is freed. With fault tolerance (ULFM), MPI also lists receives that
/// stay active.
fn taken_if_over(
    state: &MessageLayer,
    row: &mut Option<Row>,
    after: MpiHandle,
) -> Option<(Row, bool)> {
    let is_freed = after == state.0.mpi().handles().request_null;
    Some((row.take_if(|row| is_freed || row.1.is_persistent())?, is_freed))
}

/// Puts the rows back of requests that are not complete after a call that failed. `failed` is the
/// place of a request that is, even if it still has its handle.
fn put_back_after_error<A: Abi>(
    state: &MessageLayer,
    requests: Requests<A>,
    rows: Rows,
    failed: Option<usize>,
) {
    let null = state.0.mpi().handles().request_null;
    for (at, (handle, row)) in handles::<A>(requests).into_iter().zip(rows).enumerate() {
        match row {
            Some(row) if handle == null || failed == Some(at) => {
                state.0.complete_failed(row, handle == null);
            }
            Some((request, pending)) => state.0.add(request, pending),
            None => {}
        }
    }
}

/// Completes one request. Returns the error code, for which the handler has been called.
fn complete_one(state: &MessageLayer, row: Option<Row>, status: StatusPtr) -> c_int {
    let Some(row) = row else { return SUCCESS };
    let comm = comm_of(state, &row.1);
    state.0.complete(row, status).map_or_else(|code| fail(state, comm, code), ok)
}

fn comm_of(state: &MessageLayer, pending: &PendingMessage) -> MpiHandle {
    match pending {
        PendingMessage::Receive(receive) => receive.comm(),
        PendingMessage::Send { .. } | PendingMessage::Persistent(_) => {
            state.0.mpi().handles().comm_world
        }
    }
}

/// `MPI_Cancel`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn cancel<A: Abi>(
    state: State,
    request: *mut A::Handle,
    next: impl FnOnce() -> c_int,
) -> c_int {
    let Some((state, mut rows)) = taken::<A>(state, (1, request)) else { return next() };
    let code = completed::<A>(state, (1, request), &mut rows, next);
    put_back(state, rows);
    code
}

/// `MPI_Wait`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn wait<A: Abi>(
    state: State,
    request: *mut A::Handle,
    status: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
) -> c_int {
    let mut flag = 1;
    // SAFETY: the caller guarantees it, and the flag is a local.
    unsafe { test::<A>(state, request, &raw mut flag, status, next) }
}

/// `MPI_Test`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn test<A: Abi>(
    state: State,
    request: *mut A::Handle,
    flag: *mut c_int,
    status: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
) -> c_int {
    let mut index = 0;
    // SAFETY: the caller guarantees it, and the index is a local.
    unsafe { any::<A>(state, (1, request), (&raw mut index, Some(flag)), status, next) }
}

/// `MPI_Waitany` and `MPI_Testany`, which has a flag.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn any<A: Abi>(
    state: State,
    requests: Requests<A>,
    (index, flag): (*mut c_int, Option<*mut c_int>),
    status: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
) -> c_int {
    let Some((state, mut rows)) = taken::<A>(state, requests) else { return next(status) };
    let status = StatusPlace::of(state, status, 1);
    let code = completed::<A>(state, requests, &mut rows, || next(status.place));
    // SAFETY: MPI has written the flag and the index, which is negative if no request is active.
    let read_index = || usize::try_from(unsafe { index.read() }).ok();
    if code != SUCCESS {
        // Other errors need not belong to a request.
        let failed = read_index().filter(|_| code_is_truncated(state, code));
        put_back_after_error::<A>(state, requests, rows, failed);
        return code;
    }
    // SAFETY: as above.
    let is_done = flag.is_none_or(|flag| unsafe { flag.read() } != 0);
    let done = read_index().filter(|_| is_done);
    let row = done.and_then(|index| rows.get_mut(index)?.take());
    put_back(state, rows);
    complete_one(state, row, status.place)
}

/// `MPI_Waitall` and `MPI_Testall`, which has a flag.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn all<A: Abi>(
    state: State,
    requests: Requests<A>,
    flag: Option<*mut c_int>,
    statuses: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
) -> c_int {
    let Some((state, mut rows)) = taken::<A>(state, requests) else { return next(statuses) };
    let n = rows.len();
    let statuses = StatusPlace::of(state, statuses, n);
    let code = completed::<A>(state, requests, &mut rows, || next(statuses.place));
    let in_status = code == state.0.mpi().codes()[2];
    // SAFETY: MPI has written the flag.
    let is_done = flag.is_none_or(|flag| unsafe { flag.read() } != 0);
    if code == SUCCESS && !is_done {
        put_back(state, rows);
        return code;
    }
    if code != SUCCESS && !in_status {
        put_back_after_error::<A>(state, requests, rows, None);
        return code;
    }
    let after = handles::<A>(requests);
    let row = |at| Some((at, taken_if_over(state, rows.get_mut(at)?, after[at])?));
    let done = (0..n).filter_map(row).collect();
    put_back(state, rows);
    complete_many(state, done, (statuses.place, n), code)
}

/// `MPI_Waitsome` and `MPI_Testsome`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn some<A: Abi>(
    state: State,
    requests: Requests<A>,
    (n_done, indices): (*mut c_int, *mut c_int),
    statuses: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
) -> c_int {
    let Some((state, mut rows)) = taken::<A>(state, requests) else { return next(statuses) };
    let statuses = StatusPlace::of(state, statuses, rows.len());
    let code = completed::<A>(state, requests, &mut rows, || next(statuses.place));
    if code != SUCCESS && code != state.0.mpi().codes()[2] {
        put_back_after_error::<A>(state, requests, rows, None);
        return code;
    }
    // SAFETY: MPI has written the number of complete requests, which is negative if none is active,
    // and as many indices.
    let n = usize::try_from(unsafe { n_done.read() }).unwrap_or(0);
    let after = handles::<A>(requests);
    let row = |at: usize| {
        // SAFETY: as above.
        let index = usize::try_from(unsafe { indices.add(at).read() }).ok()?;
        Some((at, taken_if_over(state, rows.get_mut(index)?, after[index])?))
    };
    let done = (0..n).filter_map(row).collect();
    put_back(state, rows);
    complete_many(state, done, (statuses.place, n), code)
}

/// Completes requests. The number of each row is that of its status. `code` is what MPI has
/// returned: success, or that errors are in the statuses.
fn complete_many(
    state: &MessageLayer,
    done: Vec<(usize, (Row, bool))>,
    (statuses, n): (StatusPtr, usize),
    code: c_int,
) -> c_int {
    let mpi = state.0.mpi();
    let [_, _, in_status] = mpi.codes();
    let mut failed = Vec::new();
    for (at, (row, is_freed)) in done {
        let status = mpi.status_at(statuses, at);
        // MPI writes errors to statuses only if it returns that they are there.
        let error = if code == in_status { mpi.status_error(status) } else { SUCCESS };
        if error != SUCCESS {
            // A persistent receive that is still running has its handle, as one that has failed.
            match mpi.is_pending(error) {
                true => state.0.add(row.0, row.1),
                false => state.0.complete_failed(row, is_freed),
            }
            continue;
        }
        let comm = comm_of(state, &row.1);
        if let Err(error) = state.0.complete(row, status) {
            failed.push((comm, status, error));
        }
    }
    let Some(&(comm, ..)) = failed.first() else { return code };
    if code == SUCCESS {
        (0..n).for_each(|at| mpi.set_status_error(mpi.status_at(statuses, at), SUCCESS));
    }
    for (_, status, error) in failed {
        mpi.set_status_error(status, error);
    }
    fail(state, comm, in_status)
}

/// `MPI_Request_free`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn free<A: Abi>(
    state: State,
    request: *mut A::Handle,
    next: impl FnOnce() -> c_int,
) -> c_int {
    let Some((state, mut rows)) = taken::<A>(state, (1, request)) else { return next() };
    let Some((handle, mut pending)) = rows.pop().flatten() else { return next() };
    if let PendingMessage::Persistent(send) = &mut pending {
        if let Some((request, message)) = send.take_active() {
            state.0.keep_freed(request, PendingMessage::Send { _message: message });
        }
        return next();
    }
    let mpi = state.0.mpi();
    let mut status = mpi.status_buffer(1);
    match mpi.peek(handle, status.start()) {
        Ok(true) => {
            if let PendingMessage::Receive(receive) = &mut pending {
                // There is no request that could report an error.
                let _ = state.0.open(receive, status.start());
            }
            next()
        }
        Ok(false) => {
            state.0.keep_freed(handle, pending);
            // SAFETY: the program wants a null request here.
            unsafe { request.write(A::restore(mpi.handles().request_null)) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// `MPI_Request_get_status`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn get_status<A: Abi>(
    state: State,
    request: A::Handle,
    flag: *mut c_int,
    status: StatusPtr,
    next: impl FnOnce(A::Handle, StatusPtr) -> c_int,
) -> c_int {
    let mut asked = request;
    let place = &raw mut asked;
    let taken = taken::<A>(state, (1, place));
    let Some((state, mut rows)) = taken else { return next(request, status) };
    let status = StatusPlace::of(state, status, 1);
    // SAFETY: the place is a local.
    let call = || next(unsafe { place.read() }, status.place);
    let mut code = completed::<A>(state, (1, place), &mut rows, call);
    // SAFETY: MPI has written the flag if it returns success.
    let is_done = code == SUCCESS && unsafe { flag.read() } != 0;
    if is_done && let Some(Some((_, PendingMessage::Receive(receive)))) = rows.first_mut() {
        // The program may use the buffer from now on, before the request is freed.
        let opened = state.0.open(receive, status.place);
        code = opened.map_or_else(|code| fail(state, receive.comm(), code), ok);
    }
    put_back(state, rows);
    code
}
