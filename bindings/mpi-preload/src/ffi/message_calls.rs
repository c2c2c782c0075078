//! The program's calls for messages, with their C arguments. An exported function
//! ([`message_entries`](super)) gives one of these functions its arguments and `next`, which calls
//! the function that the program would call without Foldwire.
//!
//! All of them rely on the program: arguments are as MPI requires, and arrays as long as the counts
//! that are passed with them.

use std::ffi::{CStr, c_int, c_void};

use foldwire::transport::TransportErrorKind;

use super::abi::{Abi, MpiHandle};
use super::library::{SUCCESS, StatusBuffer, StatusPtr};
use crate::call::BufferArgs;
use crate::compressed_message::CompressedMessage;
use crate::messages::{Messages, PendingMessage, SendArgs};

/// State of messages if they are compressed, else `None`.
pub type State = Option<&'static MessageLayer>;

/// State of messages.
pub struct MessageLayer(pub(crate) Messages);

/// Names of all exported functions for messages.
pub(crate) const NAMES: [&CStr; 25] = [
    c"MPI_Send",
    c"MPI_Isend",
    c"MPI_Send_init",
    c"MPI_Start",
    c"MPI_Startall",
    c"MPI_Cancel",
    c"MPI_Recv",
    c"MPI_Irecv",
    c"MPI_Recv_init",
    c"MPI_Sendrecv",
    c"MPI_Sendrecv_replace",
    c"MPI_Wait",
    c"MPI_Waitall",
    c"MPI_Waitany",
    c"MPI_Waitsome",
    c"MPI_Test",
    c"MPI_Testall",
    c"MPI_Testany",
    c"MPI_Testsome",
    c"MPI_Request_free",
    c"MPI_Request_get_status",
    c"MPI_Probe",
    c"MPI_Iprobe",
    c"MPI_Mprobe",
    c"MPI_Improbe",
];

/// Buffer argument of a C function: address, count, datatype.
pub type Buffer<A> = (*mut c_void, c_int, <A as Abi>::Handle);

/// Array of requests of a C function: length and address.
pub type Requests<A> = (c_int, *mut <A as Abi>::Handle);

type Rows = Vec<Option<(MpiHandle, PendingMessage)>>;

fn args<A: Abi>((start, count, datatype): Buffer<A>) -> BufferArgs {
    let (count, datatype) = (count.into(), A::erase(datatype));
    BufferArgs { start, count, datatype, counts: None, displs: None }
}

/// The program's status, or one in its place where it wants none.
struct StatusPlace {
    place: StatusPtr,
    _own: Option<StatusBuffer>,
}

impl StatusPlace {
    fn of(state: &MessageLayer, status: StatusPtr, n: usize) -> Self {
        let mpi = state.0.mpi();
        if !mpi.is_ignored(status) {
            return Self { place: status, _own: None };
        }
        let mut own = mpi.status_buffer(n);
        Self { place: own.start(), _own: Some(own) }
    }
}

/// Arguments of the program, or those of the compressed message.
fn sent<A: Abi>(
    state: &MessageLayer,
    buffer: Buffer<A>,
    sealed: Option<&CompressedMessage>,
) -> Buffer<A> {
    let Some(compressed) = sealed else { return buffer };
    let bytes = compressed.bytes.as_ref();
    let byte = A::restore(state.0.mpi().handles().byte);
    (bytes.as_ptr().cast_mut().cast(), bytes.len() as c_int, byte)
}

fn sealed<A: Abi>(
    state: &MessageLayer,
    buffer: Buffer<A>,
    (to, comm): (c_int, A::Handle),
) -> Option<CompressedMessage> {
    state.0.compressed(&SendArgs { buffer: args::<A>(buffer), to, comm: A::erase(comm) })
}

/// `MPI_Send`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn send<A: Abi>(
    state: State,
    buffer: Buffer<A>,
    to: (c_int, A::Handle),
    next: impl FnOnce(Buffer<A>) -> c_int,
) -> c_int {
    let Some(state) = state else { return next(buffer) };
    let compressed = sealed::<A>(state, buffer, to);
    next(sent::<A>(state, buffer, compressed.as_ref()))
}

/// `MPI_Isend`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn isend<A: Abi>(
    state: State,
    buffer: Buffer<A>,
    to: (c_int, A::Handle),
    request: *mut A::Handle,
    next: impl FnOnce(Buffer<A>) -> c_int,
) -> c_int {
    let Some(state) = state else { return next(buffer) };
    let compressed = sealed::<A>(state, buffer, to);
    let code = next(sent::<A>(state, buffer, compressed.as_ref()));
    if let Some(compressed) = compressed
        && code == SUCCESS
    {
        // SAFETY: MPI has written the request.
        let request = A::erase(unsafe { request.read() });
        state.0.add(request, PendingMessage::Send { _message: compressed });
    }
    code
}

/// `MPI_Send_init`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn send_init<A: Abi>(
    state: State,
    buffer: Buffer<A>,
    (to, tag, comm): (c_int, c_int, A::Handle),
    request: *mut A::Handle,
    next: impl FnOnce() -> c_int,
) -> c_int {
    let code = next();
    if let Some(state) = state
        && code == SUCCESS
    {
        let send = SendArgs { buffer: args::<A>(buffer), to, comm: A::erase(comm) };
        // SAFETY: MPI has written the request.
        state.0.add_persistent(A::erase(unsafe { request.read() }), send, tag);
    }
    code
}

/// `MPI_Start`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn start<A: Abi>(
    state: State,
    request: *mut A::Handle,
    next: impl FnOnce(*mut A::Handle) -> c_int,
) -> c_int {
    let started = state.filter(|state| state.0.has_pending()).and_then(|state| {
        // SAFETY: the program passes a request.
        state.0.start(A::erase(unsafe { request.read() }))
    });
    started.map_or_else(|| next(request), |started| started.map_or_else(|code| code, ok))
}

/// `MPI_Startall`. `each` is `MPI_Start`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn start_all<A: Abi>(
    state: State,
    (n, requests): Requests<A>,
    next: impl FnOnce() -> c_int,
    mut each: impl FnMut(*mut A::Handle) -> c_int,
) -> c_int {
    if state.is_none_or(|state| !state.0.has_pending()) || requests.is_null() {
        return next();
    }
    for at in 0..usize::try_from(n).unwrap_or(0) {
        // SAFETY: the program passes an array of `n` requests.
        let code = unsafe { start::<A>(state, requests.add(at), &mut each) };
        if code != SUCCESS {
            return code;
        }
    }
    SUCCESS
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

/// Opens the compressed message that a blocking call has received.
fn received<A: Abi>(
    state: &MessageLayer,
    buffer: Buffer<A>,
    comm: A::Handle,
    (code, status): (c_int, StatusPtr),
) -> c_int {
    let Some(mut receive) = state.0.receive(&args::<A>(buffer), A::erase(comm), false) else {
        return code;
    };
    if code != SUCCESS {
        if code_is_truncated(state, code) {
            state.0.erase(&mut receive);
        }
        return code;
    }
    state.0.open(&mut receive, status).map_or_else(|code| fail(state, receive.comm(), code), ok)
}

/// Returns whether MPI has received a message that is too long. After other errors the buffer may
/// be invalid.
fn code_is_truncated(state: &MessageLayer, code: c_int) -> bool {
    state.0.mpi().kind(code) == Some(TransportErrorKind::Truncated)
}

const fn ok((): ()) -> c_int {
    SUCCESS
}

fn fail(state: &MessageLayer, comm: MpiHandle, code: c_int) -> c_int {
    state.0.mpi().fail(comm, code)
}

/// `MPI_Recv`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn recv<A: Abi>(
    state: State,
    buffer: Buffer<A>,
    comm: A::Handle,
    status: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
) -> c_int {
    let Some(state) = state.filter(|state| state.0.fits(&args::<A>(buffer))) else {
        return next(status);
    };
    state.0.advance_freed();
    let status = StatusPlace::of(state, status, 1);
    let code = next(status.place);
    received::<A>(state, buffer, comm, (code, status.place))
}

/// `MPI_Irecv` and `MPI_Recv_init`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn irecv<A: Abi>(
    state: State,
    buffer: Buffer<A>,
    comm: A::Handle,
    (request, is_persistent): (*mut A::Handle, bool),
    next: impl FnOnce() -> c_int,
) -> c_int {
    let code = next();
    if let Some(state) = state
        && code == SUCCESS
        && let Some(receive) = state.0.receive(&args::<A>(buffer), A::erase(comm), is_persistent)
    {
        // SAFETY: MPI has written the request.
        state.0.add_receive(A::erase(unsafe { request.read() }), receive);
    }
    code
}

/// `MPI_Sendrecv`.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn sendrecv<A: Abi>(
    state: State,
    [send, recv]: [Buffer<A>; 2],
    (to, comm): (c_int, A::Handle),
    status: StatusPtr,
    next: impl FnOnce(Buffer<A>, StatusPtr) -> c_int,
) -> c_int {
    let Some(state) = state else { return next(send, status) };
    let compressed = sealed::<A>(state, send, (to, comm));
    let status = StatusPlace::of(state, status, 1);
    let code = next(sent::<A>(state, send, compressed.as_ref()), status.place);
    received::<A>(state, recv, comm, (code, status.place))
}

/// `MPI_Sendrecv_replace`. `exchange` is `MPI_Sendrecv` with another send buffer.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn replace<A: Abi>(
    state: State,
    buffer: Buffer<A>,
    (to, comm): (c_int, A::Handle),
    status: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
    exchange: impl FnOnce(Buffer<A>, StatusPtr) -> c_int,
) -> c_int {
    let Some(state) = state else { return next(status) };
    let compressed = sealed::<A>(state, buffer, (to, comm));
    let status = StatusPlace::of(state, status, 1);
    let code = match &compressed {
        None => next(status.place),
        some => exchange(sent::<A>(state, buffer, some.as_ref()), status.place),
    };
    received::<A>(state, buffer, comm, (code, status.place))
}

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

/// Puts the rows back of requests that are not complete after a call that failed.
fn put_back_after_error<A: Abi>(state: &MessageLayer, requests: Requests<A>, rows: Rows) {
    let null = state.0.mpi().handles().request_null;
    for (handle, row) in handles::<A>(requests).into_iter().zip(rows) {
        match row {
            Some(row) if handle == null => state.0.complete_failed(row),
            Some((request, pending)) => state.0.add(request, pending),
            None => {}
        }
    }
}

/// Completes one request. Returns the error code, for which the handler has been called.
fn complete_one(
    state: &MessageLayer,
    row: Option<(MpiHandle, PendingMessage)>,
    status: StatusPtr,
) -> c_int {
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
    let Some((state, mut rows)) = taken::<A>(state, (1, request)) else { return next(status) };
    let status = StatusPlace::of(state, status, 1);
    let code = completed::<A>(state, (1, request), &mut rows, || next(status.place));
    if code != SUCCESS {
        put_back_after_error::<A>(state, (1, request), rows);
        return code;
    }
    // SAFETY: MPI has written the flag.
    if unsafe { flag.read() } == 0 {
        put_back(state, rows);
        return code;
    }
    complete_one(state, rows.pop().flatten(), status.place)
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
    if code != SUCCESS {
        put_back_after_error::<A>(state, requests, rows);
        return code;
    }
    // SAFETY: MPI has written the flag and the index, which is negative if no request is active.
    let (is_done, index) = unsafe { (flag.is_none_or(|flag| flag.read() != 0), index.read()) };
    let done = usize::try_from(index).ok().filter(|_| is_done);
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
        put_back_after_error::<A>(state, requests, rows);
        return code;
    }
    let null = state.0.mpi().handles().request_null;
    let after = handles::<A>(requests);
    let (mut done, mut rest) = (Vec::new(), Vec::new());
    for ((at, row), after) in rows.into_iter().enumerate().zip(after) {
        let Some(row) = row else { continue };
        if after == null || row.1.is_persistent() {
            done.push((at, row));
        } else {
            rest.push(Some(row));
        }
    }
    put_back(state, rest);
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
        put_back_after_error::<A>(state, requests, rows);
        return code;
    }
    // SAFETY: MPI has written the number of complete requests, which is negative if none is active,
    // and as many indices.
    let n = usize::try_from(unsafe { n_done.read() }).unwrap_or(0);
    let row = |at: usize| {
        // SAFETY: as above.
        let index = usize::try_from(unsafe { indices.add(at).read() }).ok()?;
        Some((at, rows.get_mut(index)?.take()?))
    };
    let done = (0..n).filter_map(row).collect();
    put_back(state, rows);
    complete_many(state, done, (statuses.place, n), code)
}

/// Completes requests. The number of each row is that of its status. `code` is what MPI has
/// returned: success, or that errors are in the statuses.
fn complete_many(
    state: &MessageLayer,
    done: Vec<(usize, (MpiHandle, PendingMessage))>,
    (statuses, n): (StatusPtr, usize),
    code: c_int,
) -> c_int {
    let mpi = state.0.mpi();
    let [_, _, in_status] = mpi.codes();
    let mut failed = Vec::new();
    for (at, row) in done {
        let status = mpi.status_at(statuses, at);
        // MPI writes errors to statuses only if it returns that they are there.
        if code == in_status && mpi.status_error(status) != SUCCESS {
            state.0.complete_failed(row);
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

/// The four probes. They are never called unless a file with them has been loaded after
/// `MPI_Init`. `found` returns whether a message was found.
///
/// # Safety
/// The arguments are as MPI requires.
pub unsafe fn probe<A: Abi>(
    state: State,
    comm: A::Handle,
    status: StatusPtr,
    next: impl FnOnce(StatusPtr) -> c_int,
    found: impl FnOnce() -> bool,
) -> c_int {
    let Some(state) = state else { return next(status) };
    let status = StatusPlace::of(state, status, 1);
    let code = next(status.place);
    if code != SUCCESS || !found() {
        return code;
    }
    let mpi = state.0.mpi();
    match mpi.probed_bytes(status.place) {
        // The message may be compressed, and its size not that of the program's message.
        Some(n_bytes) if state.0.may_be_compressed(n_bytes) => {
            eprintln!(
                "foldwire: error: a probe in a file that was loaded after MPI_Init; set \
                 FOLDWIRE_MESSAGES=off"
            );
            fail(state, A::erase(comm), mpi.codes()[1])
        }
        _ => code,
    }
}
