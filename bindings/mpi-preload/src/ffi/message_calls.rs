//! The program's calls for messages, with their C arguments. An exported function
//! ([`message_entries`](super)) gives one of these functions its arguments and `next`, which calls
//! the function that the program would call without Foldwire.
//!
//! All of them rely on the program: arguments are as MPI requires, and arrays as long as the counts
//! that are passed with them.

mod completion;

use std::ffi::{CStr, c_int, c_void};

use foldwire::transport::TransportErrorKind;

use super::abi::{Abi, MpiHandle};
use super::library::{SUCCESS, StatusBuffer, StatusPtr};
use crate::call::BufferArgs;
use crate::compressed_message::CompressedMessage;
use crate::messages::{Messages, PendingMessage, SendArgs};

pub use completion::{all, any, cancel, free, get_status, some, test, wait};

/// State of messages if they are compressed, else `None`.
pub type State = Option<&'static MessageLayer>;

/// State of messages.
pub struct MessageLayer(pub(crate) Messages);

impl MessageLayer {
    /// Ends a call of the program.
    #[inline]
    pub fn end_call(&self) {
        self.0.advance_freed();
    }
}

/// Names of all exported functions for messages.
pub(crate) const NAMES: &[&CStr] = &crate::each_message_function! { message_names, () };

/// Buffer argument of a C function: address, count, datatype.
pub type Buffer<A> = (*mut c_void, c_int, <A as Abi>::Handle);

/// Array of requests of a C function: length and address.
pub type Requests<A> = (c_int, *mut <A as Abi>::Handle);

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

/// Opens the compressed message that a blocking call has received.
fn received<A: Abi>(
    state: &MessageLayer,
    buffer: Buffer<A>,
    comm: A::Handle,
    (code, status): (c_int, StatusPtr),
) -> c_int {
    let is_truncated = code_is_truncated(state, code);
    if code != SUCCESS && !is_truncated {
        return code;
    }
    let Some(mut receive) = state.0.receive(&args::<A>(buffer), A::erase(comm), false) else {
        return code;
    };
    if is_truncated {
        state.0.erase(&mut receive);
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
