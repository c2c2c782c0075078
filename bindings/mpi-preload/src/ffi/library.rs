//! What is asked of the MPI library that the program has loaded, whichever it is.

mod datatypes;
mod doubts;
mod functions;
mod promises;
mod shares;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use foldwire::op::OpCode;
use foldwire::schedule::Collective;
use foldwire::transport::{Rank, TransportErrorKind};
use foldwire_messaging::Completion;

use functions::{AttributeOf, Functions, SetAttribute};

use super::abi::{Abi, Handle, Own};
use super::progress::is_in_callback;
use super::symbols::Symbols;
use crate::call::Call;
use crate::signature::{Datatypes, Signature};

/// An error code of the library's.
pub(crate) type Code = c_int;
pub(crate) const SUCCESS: c_int = 0;

/// MPI as the rest of the package sees it, whatever the library's handles are.
///
/// Handles that are passed are MPI's or the program's, and not freed; MPI is initialised and not
/// finalised.
pub(crate) trait Mpi: Send + Sync {
    /// The library's own handles.
    fn own(&self) -> &Own;
    fn in_place(&self) -> usize;
    fn rank_and_size(&self, comm: Handle) -> Result<(usize, usize), Code>;
    fn is_inter(&self, comm: Handle) -> Result<bool, Code>;
    /// The name that the program has given it on this rank.
    fn name_of_comm(&self, comm: Handle) -> Result<String, Code>;
    /// Whether all ranks are of the program's own `MPI_COMM_WORLD`; no rank hears of another.
    fn is_within_world(&self, comm: Handle) -> Result<bool, Code>;
    /// Whether threads of the program may be in MPI, at once or one after the other.
    fn is_threaded(&self) -> bool;
    /// Whether it refuses arrays of a reduction that lie in one place, as far as this family does.
    fn refuses_aliases(&self, collective: Collective) -> bool;
    /// How many ranks the other group of an intercommunicator has.
    fn remote_size(&self, comm: Handle) -> Result<usize, Code>;
    /// The sums, minima or maxima of all ranks' values.
    fn all_reduce(&self, comm: Handle, values: &mut [i64], op: OpCode) -> Result<(), Code>;
    /// The same, calling `wait` as long as a rank is missing.
    fn all_reduce_patiently(
        &self,
        comm: Handle,
        values: &mut [i64],
        op: OpCode,
        wait: &mut dyn FnMut(),
    ) -> Result<(), Code>;
    /// A communicator between the same ranks that carries nothing of the program's (no attributes,
    /// no topology) and returns errors.
    fn split(&self, comm: Handle, rank: usize) -> Result<Handle, Code>;
    /// The lowest rank that shares memory with this one.
    fn lowest_near(&self, comm: Handle, rank: usize) -> Result<i64, Code>;
    fn free(&self, comm: Handle);
    /// Has the program hear of an error, as it wants to; what the call is to return.
    fn raise(&self, comm: Handle) -> Code;
    /// The same of a count that is too large.
    fn refuse_count(&self, comm: Handle) -> Code;
    fn abort(&self) -> !;
    /// Two keys, for numbers beside communicators and datatypes, which copies do not get.
    fn new_keys(&self) -> Result<[c_int; 2], Code>;
    fn number_of_comm(&self, comm: Handle, key: c_int) -> Result<Option<usize>, Code>;
    fn set_number_of_comm(&self, comm: Handle, key: c_int, number: usize) -> Result<(), Code>;
    /// What a datatype is made of.
    fn signature(&self, datatype: Handle, key: c_int) -> Result<Signature, Code>;
    /// Bytes from one value of a datatype to the next.
    fn extent(&self, datatype: Handle) -> Result<isize, Code>;
    /// A datatype of ours that is as this one, to be freed.
    fn keep_type(&self, datatype: Handle) -> Result<Handle, Code>;
    fn free_type(&self, datatype: Handle);
    /// A request of the program's about a call of ours, which fails if that says so once the
    /// request is complete.
    fn new_request(&self, has_failed: Arc<AtomicBool>) -> Result<Handle, Code>;
    /// Says that it is complete; once, and whether the program has freed it or not.
    fn complete(&self, request: Handle);
    /// Has the library begin a gather, scatter or all-to-all whose shares differ; the request. What
    /// MPI looks at must be there until it is complete.
    fn start_shares(&self, call: &Call) -> Result<Handle, Code>;
    /// Starts to send; the request.
    ///
    /// # Safety
    /// The memory must be there, and nobody write it, until the request is complete.
    unsafe fn start_send(
        &self,
        memory: *const u8,
        n_bytes: c_int,
        to: (usize, c_int),
        comm: Handle,
        matched: bool,
    ) -> Result<Handle, Code>;
    /// Posts a receive, of any rank unless one is given; the request.
    ///
    /// # Safety
    /// The memory must be there, and nobody use it, until the request is complete.
    unsafe fn start_recv(
        &self,
        memory: *mut u8,
        n_bytes: c_int,
        from: (Option<usize>, c_int),
        comm: Handle,
    ) -> Result<Handle, Code>;
    /// Says which of these requests are complete, and moves MPI along unless it is doing that: in
    /// a callback of MPICH's.
    fn test_some(
        &self,
        requests: &[Handle],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), Code>;
    fn cancel(&self, request: Handle);
    /// What it says that went wrong, if we tell that from the rest.
    fn kind(&self, code: Code) -> Option<TransportErrorKind>;
    fn words(&self, code: Code) -> String;
    fn no_memory(&self) -> Code;
    /// Packs `count` values of a datatype at `from` into these bytes, or the other way.
    ///
    /// # Safety
    /// The program's memory must be there; `packed` must be as long as the values.
    unsafe fn pack(
        &self,
        from: *const c_void,
        count: c_int,
        datatype: Handle,
        packed: &mut [u8],
    ) -> Result<(), Code>;
    /// # Safety
    /// As of [`pack`](Self::pack).
    unsafe fn unpack(
        &self,
        packed: &[u8],
        to: *mut c_void,
        count: c_int,
        datatype: Handle,
    ) -> Result<(), Code>;
}

/// A library.
pub struct Library<A: Abi> {
    functions: Functions<A>,
    own: Own,
    /// A communicator of this rank alone that returns errors.
    alone: OnceLock<Handle>,
    checks_aliases: OnceLock<bool>,
}

// SAFETY: it holds addresses of functions, and of structures of the library's that only it uses.
unsafe impl<A: Abi> Send for Library<A> {}
// SAFETY: as above; what may be called by which thread is as the program has agreed with MPI.
unsafe impl<A: Abi> Sync for Library<A> {}

const fn checked(code: c_int) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// What `write` writes, and how long that is.
fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, Code> {
    // Longer than any library's MPI_MAX_OBJECT_NAME and MPI_MAX_ERROR_STRING.
    let (mut text, mut length) = ([0 as c_char; 4096], 0);
    checked(write(text.as_mut_ptr(), &raw mut length))?;
    // SAFETY: the array ends with a zero that MPI had no room to overwrite.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

impl<A: Abi> Library<A> {
    /// The one that the program has loaded.
    ///
    /// # Errors
    /// What was not found.
    pub fn find(symbols: &Symbols) -> Result<Self, String> {
        let own = Own::of::<A>(&|name| symbols.find_variable(name));
        let own = own.ok_or_else(|| format!("this is no {}: handles are missing", A::NAME))?;
        let functions = Functions::find(symbols)
            .map_err(|name| format!("this is no {}: no {}", A::NAME, name.to_string_lossy()))?;
        Ok(Self { functions, own, alone: OnceLock::new(), checks_aliases: OnceLock::new() })
    }

    /// What `make` writes into a handle.
    fn made(&self, make: impl FnOnce(*mut A::Handle) -> c_int) -> Result<Handle, Code> {
        let mut made = A::restore(self.own.request_null);
        checked(make(&raw mut made))?;
        Ok(A::erase(made))
    }

    /// The number beside a communicator or a datatype, by the function for its attributes.
    fn number(
        attribute: AttributeOf<A>,
        handle: Handle,
        key: c_int,
    ) -> Result<Option<usize>, Code> {
        let (mut value, mut flag) = (ptr::null_mut::<c_void>(), 0);
        let place = (&raw mut value).cast();
        // SAFETY: by the promise of [`Mpi`]; MPI writes a pointer, which is the number that we set.
        checked(unsafe { attribute(A::restore(handle), key, place, &raw mut flag) })?;
        Ok((flag != 0).then(|| value.addr()))
    }

    fn set_number(
        set: SetAttribute<A>,
        handle: Handle,
        key: c_int,
        number: usize,
    ) -> Result<(), Code> {
        let number = ptr::without_provenance_mut(number);
        // SAFETY: by the promise of [`Mpi`]; MPI never looks through an attribute.
        checked(unsafe { set(A::restore(handle), key, number) })
    }

    /// Has the program hear of an error.
    fn call_handler(&self, comm: Handle, code: Code) -> Code {
        // SAFETY: a communicator of the program's, by the promise of [`Mpi`].
        let _ = unsafe { (self.functions.comm_call_errhandler)(A::restore(comm), code) };
        code
    }

    fn op(&self, op: OpCode) -> A::Handle {
        A::restore(match op {
            OpCode::Min => self.own.min,
            OpCode::Max => self.own.max,
            OpCode::Prod => self.own.prod,
            _ => self.own.sum,
        })
    }
}

/// Copies get no attribute of ours.
unsafe extern "C" fn copy_none<H>(
    _: H,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI calls this with an integer to be written.
    unsafe { *flag = 0 };
    SUCCESS
}

unsafe extern "C" fn delete_none<H>(_: H, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}

// SAFETY of the blocks below: by the trait's promise handles are good and MPI is up. MPI writes
// through pointers to locals of the type that its standard says, and reads them only during the
// call; what else holds is said at each block.
impl<A: Abi> Mpi for Library<A> {
    fn own(&self) -> &Own {
        &self.own
    }

    fn in_place(&self) -> usize {
        A::IN_PLACE
    }

    fn rank_and_size(&self, comm: Handle) -> Result<(usize, usize), Code> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: see above.
        unsafe {
            checked((self.functions.comm_rank)(A::restore(comm), &raw mut rank))?;
            checked((self.functions.comm_size)(A::restore(comm), &raw mut size))?;
        }
        Ok((rank as usize, size as usize))
    }

    fn name_of_comm(&self, comm: Handle) -> Result<String, Code> {
        let (name, comm) = (self.functions.comm_get_name, A::restore(comm));
        // SAFETY: see above; there is room for the longest name and its end.
        text(|start, length| unsafe { name(comm, start, length) })
    }

    fn is_within_world(&self, comm: Handle) -> Result<bool, Code> {
        let world = self.own.comm_world;
        if comm == world {
            return Ok(true);
        }
        let (_, size) = self.rank_and_size(comm)?;
        let group = |comm| {
            // SAFETY: see above.
            self.made(|made| unsafe { (self.functions.comm_group)(A::restore(comm), made) })
        };
        let (own, all) = (A::restore(group(comm)?), A::restore(group(world)?));
        let ranks: Vec<c_int> = (0..size as c_int).collect();
        let mut places = vec![0; size];
        // SAFETY: see above. Both arrays have as many ranks as is said; the groups are ours.
        let code = unsafe {
            let translate = self.functions.group_translate_ranks;
            let code = translate(own, size as c_int, ranks.as_ptr(), all, places.as_mut_ptr());
            for mut group in [own, all] {
                (self.functions.group_free)(&raw mut group);
            }
            code
        };
        // A rank that is not there is `MPI_UNDEFINED`, which is negative.
        checked(code).map(|()| places.iter().all(|&place| place >= 0))
    }

    fn is_threaded(&self) -> bool {
        let mut level = 0;
        // SAFETY: see above.
        let code = unsafe { (self.functions.query_thread)(&raw mut level) };
        // `MPI_THREAD_SINGLE` is the lowest, and 0 in all families.
        code != SUCCESS || level > 0
    }

    fn refuses_aliases(&self, collective: Collective) -> bool {
        A::refuses_aliases(collective) && *self.checks_aliases.get_or_init(|| self.tries_alias())
    }

    fn remote_size(&self, comm: Handle) -> Result<usize, Code> {
        let mut size = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_remote_size)(A::restore(comm), &raw mut size) })?;
        Ok(size as usize)
    }

    fn is_inter(&self, comm: Handle) -> Result<bool, Code> {
        let mut flag = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_test_inter)(A::restore(comm), &raw mut flag) })?;
        Ok(flag != 0)
    }

    fn all_reduce(&self, comm: Handle, values: &mut [i64], op: OpCode) -> Result<(), Code> {
        let sent = values.to_vec();
        // SAFETY: both arrays have as many integers of 64 bits as is said.
        checked(unsafe {
            (self.functions.all_reduce)(
                sent.as_ptr().cast(),
                values.as_mut_ptr().cast(),
                sent.len() as c_int,
                A::restore(self.own.int64),
                self.op(op),
                A::restore(comm),
            )
        })
    }

    fn all_reduce_patiently(
        &self,
        comm: Handle,
        values: &mut [i64],
        op: OpCode,
        wait: &mut dyn FnMut(),
    ) -> Result<(), Code> {
        let (int64, op, comm) = (A::restore(self.own.int64), self.op(op), A::restore(comm));
        // Never freed if this ends before the request does.
        let sent = ManuallyDrop::new(values.to_vec());
        let mut made = ManuallyDrop::new(values.to_vec());
        let (from, to) = (sent.as_ptr().cast(), made.as_mut_ptr().cast());
        let n = values.len() as c_int;
        // SAFETY: both arrays have as many integers of 64 bits as is said, and nobody uses them
        // until the request is complete.
        let request = self.made(|request| unsafe {
            (self.functions.all_reduce_start)(from, to, n, int64, op, comm, request)
        })?;
        let mut done = Vec::new();
        loop {
            self.test_some(&[request], &mut done)?;
            if let Some((_, outcome)) = done.pop() {
                drop(ManuallyDrop::into_inner(sent));
                values.copy_from_slice(&ManuallyDrop::into_inner(made));
                return outcome.map(|_| ());
            }
            wait();
        }
    }

    fn split(&self, comm: Handle, rank: usize) -> Result<Handle, Code> {
        // Where there is no room for one more, the program is not to hear of it.
        let made = self.quietly(comm, || {
            let (split, comm) = (self.functions.comm_split, A::restore(comm));
            // SAFETY: see above.
            self.made(|made| unsafe { split(comm, 0, rank as c_int, made) })
        })??;
        let returns = A::restore(self.own.errors_return);
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_set_errhandler)(A::restore(made), returns) })?;
        Ok(made)
    }

    fn lowest_near(&self, comm: Handle, rank: usize) -> Result<i64, Code> {
        let info = A::restore(self.own.info_null);
        // SAFETY: see above.
        let near = self.made(|made| unsafe {
            (self.functions.comm_split_type)(A::restore(comm), A::SHARED, rank as c_int, info, made)
        })?;
        let mut lowest = [rank as i64];
        let found = self.all_reduce(near, &mut lowest, OpCode::Min);
        self.free(near);
        found.map(|()| lowest[0])
    }

    fn free(&self, comm: Handle) {
        let mut comm = A::restore(comm);
        // SAFETY: see above. An error here has nobody to go to.
        let _ = unsafe { (self.functions.comm_free)(&raw mut comm) };
    }

    fn raise(&self, comm: Handle) -> Code {
        self.call_handler(comm, A::ERRORS[1])
    }

    fn refuse_count(&self, comm: Handle) -> Code {
        self.call_handler(comm, A::ERRORS[4])
    }

    fn abort(&self) -> ! {
        // SAFETY: see above.
        let _ = unsafe { (self.functions.abort)(A::restore(self.own.comm_world), 1) };
        std::process::exit(1)
    }

    fn new_keys(&self) -> Result<[c_int; 2], Code> {
        let mut keys = [0; 2];
        let (copy, delete) = (copy_none::<A::Handle> as _, delete_none::<A::Handle> as _);
        let extra = ptr::null_mut();
        // SAFETY: see above; the functions are there as long as the process.
        unsafe {
            checked((self.functions.comm_create_keyval)(copy, delete, &raw mut keys[0], extra))?;
            checked((self.functions.type_create_keyval)(copy, delete, &raw mut keys[1], extra))?;
        }
        Ok(keys)
    }

    fn number_of_comm(&self, comm: Handle, key: c_int) -> Result<Option<usize>, Code> {
        Self::number(self.functions.comm_get_attr, comm, key)
    }

    fn set_number_of_comm(&self, comm: Handle, key: c_int, number: usize) -> Result<(), Code> {
        Self::set_number(self.functions.comm_set_attr, comm, key, number)
    }

    fn signature(&self, datatype: Handle, key: c_int) -> Result<Signature, Code> {
        if Datatypes::base(self, datatype).is_some() {
            return Signature::of(self, datatype);
        }
        if let Some(number) = Self::number(self.functions.type_get_attr, datatype, key)? {
            return Ok(Signature::from_number(number));
        }
        let signature = Signature::of(self, datatype)?;
        if !signature.is_own {
            self.check_committed(datatype)?;
        }
        if let Some(number) = signature.to_number() {
            Self::set_number(self.functions.type_set_attr, datatype, key, number)?;
        }
        Ok(signature)
    }

    fn extent(&self, datatype: Handle) -> Result<isize, Code> {
        let (mut lower, mut extent) = (0, 0);
        let datatype = A::restore(datatype);
        // SAFETY: see above.
        checked(unsafe {
            (self.functions.type_extent)(datatype, &raw mut lower, &raw mut extent)
        })?;
        Ok(extent)
    }

    fn keep_type(&self, datatype: Handle) -> Result<Handle, Code> {
        let datatype = A::restore(datatype);
        // Not `MPI_Type_dup`, which would have the program copy its attributes.
        // SAFETY: see above.
        let kept =
            self.made(|made| unsafe { (self.functions.type_contiguous)(1, datatype, made) })?;
        let mut typed = A::restore(kept);
        // SAFETY: see above.
        checked(unsafe { (self.functions.type_commit)(&raw mut typed) })?;
        Ok(kept)
    }

    fn free_type(&self, datatype: Handle) {
        let mut datatype = A::restore(datatype);
        // SAFETY: see above. An error here has nobody to go to.
        let _ = unsafe { (self.functions.type_free)(&raw mut datatype) };
    }

    fn new_request(&self, has_failed: Arc<AtomicBool>) -> Result<Handle, Code> {
        self.promise(has_failed)
    }

    fn complete(&self, request: Handle) {
        // SAFETY: see above. An error here has nobody to go to.
        let _ = unsafe { (self.functions.grequest_complete)(A::restore(request)) };
    }

    fn start_shares(&self, call: &Call) -> Result<Handle, Code> {
        self.begin_shares(call)
    }

    unsafe fn start_send(
        &self,
        memory: *const u8,
        n_bytes: c_int,
        (to, tag): (usize, c_int),
        comm: Handle,
        matched: bool,
    ) -> Result<Handle, Code> {
        let start = if matched { self.functions.issend } else { self.functions.isend };
        let (byte, comm) = (A::restore(self.own.byte), A::restore(comm));
        // SAFETY: by the caller's promise.
        self.made(|made| unsafe {
            start(memory.cast(), n_bytes, byte, to as c_int, tag, comm, made)
        })
    }

    unsafe fn start_recv(
        &self,
        memory: *mut u8,
        n_bytes: c_int,
        (from, tag): (Option<usize>, c_int),
        comm: Handle,
    ) -> Result<Handle, Code> {
        let from = from.map_or(A::ANY_SOURCE, |rank| rank as c_int);
        let (byte, comm) = (A::restore(self.own.byte), A::restore(comm));
        // SAFETY: by the caller's promise.
        self.made(|made| unsafe {
            (self.functions.irecv)(memory.cast(), n_bytes, byte, from, tag, comm, made)
        })
    }

    fn test_some(
        &self,
        requests: &[Handle],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), Code> {
        let [source, error, stride] = A::STATUS;
        let is_tested = |request: Handle| match self.functions.request_is_complete {
            // SAFETY: see above. Where all that are tested are complete, nothing moves along.
            Some(is_complete) if is_in_callback() => unsafe {
                is_complete(A::restore(request)) != 0
            },
            _ => true,
        };
        let tested = requests.iter().enumerate().filter(|&(_, &request)| is_tested(request));
        let (places, mut typed): (Vec<usize>, Vec<A::Handle>) =
            tested.map(|(place, &request)| (place, A::restore(request))).unzip();
        let n = typed.len();
        if n == 0 {
            return Ok(());
        }
        let mut indices = vec![0; n];
        let mut statuses = vec![0 as c_int; n * stride + 1];
        let mut n_done = 0;
        // SAFETY: the arrays have room for `n` of each; a status is `stride` integers. Requests
        // that are complete become null in a copy, and the caller drops them.
        let code = unsafe {
            (self.functions.test_some)(
                n as c_int,
                typed.as_mut_ptr(),
                &raw mut n_done,
                indices.as_mut_ptr(),
                statuses.as_mut_ptr(),
            )
        };
        let in_status = code == A::ERRORS[2];
        if !in_status {
            checked(code)?;
        }
        // Negative (MPI_UNDEFINED) where there is no request.
        let n_done = usize::try_from(n_done).unwrap_or(0);
        for (&index, status) in indices.iter().zip(statuses.chunks_exact(stride)).take(n_done) {
            let (mut cancelled, mut n_bytes) = (0, 0);
            let outcome = if in_status && status[error] != SUCCESS {
                Err(status[error])
            } else {
                // SAFETY: a status that MPI has written.
                unsafe {
                    (self.functions.test_cancelled)(status.as_ptr(), &raw mut cancelled);
                    let byte = A::restore(self.own.byte);
                    (self.functions.get_count)(status.as_ptr(), byte, &raw mut n_bytes);
                }
                let from = usize::try_from(status[source]).ok().map(Rank::new);
                let received = from.zip(usize::try_from(n_bytes).ok());
                Ok(received.filter(|_| cancelled == 0))
            };
            done.push((places[index as usize], outcome));
        }
        Ok(())
    }

    fn cancel(&self, request: Handle) {
        let mut request = A::restore(request);
        // SAFETY: see above. If it cannot be cancelled, it stays.
        let _ = unsafe { (self.functions.cancel)(&raw mut request) };
    }

    fn kind(&self, code: Code) -> Option<TransportErrorKind> {
        let mut class = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.error_class)(code, &raw mut class) }).ok()?;
        match class {
            _ if class == A::ERRORS[0] => Some(TransportErrorKind::Truncated),
            _ if class == A::ERRORS[3] => Some(TransportErrorKind::OutOfFrames),
            _ => None,
        }
    }

    fn words(&self, code: Code) -> String {
        // SAFETY: there is room for the longest text and its end.
        let said =
            text(|start, length| unsafe { (self.functions.error_string)(code, start, length) });
        said.unwrap_or_else(|_| format!("error {code}"))
    }

    fn no_memory(&self) -> Code {
        A::ERRORS[3]
    }

    unsafe fn pack(
        &self,
        from: *const c_void,
        count: c_int,
        datatype: Handle,
        packed: &mut [u8],
    ) -> Result<(), Code> {
        let (room, mut position) = (c_int::try_from(packed.len()).unwrap_or(c_int::MAX), 0);
        let (datatype, world) = (A::restore(datatype), A::restore(self.own.comm_world));
        let packed = packed.as_mut_ptr().cast();
        // SAFETY: by the caller's promise; MPI writes within the room.
        checked(unsafe {
            (self.functions.pack)(from, count, datatype, packed, room, &raw mut position, world)
        })
    }

    unsafe fn unpack(
        &self,
        packed: &[u8],
        to: *mut c_void,
        count: c_int,
        datatype: Handle,
    ) -> Result<(), Code> {
        let (room, mut position) = (c_int::try_from(packed.len()).unwrap_or(c_int::MAX), 0);
        let (datatype, world) = (A::restore(datatype), A::restore(self.own.comm_world));
        let packed = packed.as_ptr().cast();
        // SAFETY: by the caller's promise; MPI reads within the room.
        checked(unsafe {
            (self.functions.unpack)(packed, room, &raw mut position, to, count, datatype, world)
        })
    }
}
