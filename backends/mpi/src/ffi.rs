//! Safe wrappers of MPI's functions: a duplicated communicator, and requests on it. No other module
//! of this crate calls MPI's C functions.
#![allow(unsafe_code, reason = "calls the MPI library")]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use foldwire::transport::{Rank, Tag};
use foldwire_messaging::{Completion, Requests};
use mpi::ffi;
use mpi::topology::Communicator;

use crate::Error;

/// MPI's code for "a count is out of range".
pub(crate) const COUNT_ERROR: i32 = ffi::MPI_ERR_COUNT as i32;
const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;
/// Code of calls after `MPI_Finalize`.
const AFTER_THE_END: c_int = ffi::MPI_ERR_OTHER as c_int;

/// Error classes that Foldwire distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Truncated,
    NoMemory,
    Misuse,
    Other,
}

pub(crate) fn error_class(code: i32) -> ErrorClass {
    if mpi::is_finalized() {
        return ErrorClass::Other;
    }
    let mut class = 0;
    // SAFETY: MPI is not finalised; it writes one integer.
    let known = unsafe { ffi::MPI_Error_class(code, &mut class) } == SUCCESS;
    match u32::try_from(class) {
        Ok(ffi::MPI_ERR_TRUNCATE) if known => ErrorClass::Truncated,
        Ok(ffi::MPI_ERR_NO_MEM) if known => ErrorClass::NoMemory,
        Ok(
            ffi::MPI_ERR_BUFFER
            | ffi::MPI_ERR_COUNT
            | ffi::MPI_ERR_TYPE
            | ffi::MPI_ERR_TAG
            | ffi::MPI_ERR_COMM
            | ffi::MPI_ERR_RANK
            | ffi::MPI_ERR_REQUEST
            | ffi::MPI_ERR_ARG,
        ) if known => ErrorClass::Misuse,
        _ => ErrorClass::Other,
    }
}

/// Returns MPI's text for an error.
pub(crate) fn error_string(code: i32) -> String {
    if mpi::is_finalized() {
        return format!("error {code}; MPI_Finalize has run");
    }
    let mut text = [0 as c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the array has space for the longest text and its terminator; MPI writes within it.
    let found = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut length) };
    if found != SUCCESS {
        return format!("error {code}");
    }
    // SAFETY: the array ends with a zero beyond the longest text, so the string is terminated.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

fn checked(code: c_int) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(Error::of_code(code)) }
}

/// A duplicated communicator, with scratch space for the results of `MPI_Testsome`.
pub struct MpiRequests {
    /// Id of the process that duplicated the communicator.
    creator: u32,
    raw: ffi::MPI_Comm,
    rank: Rank,
    size: usize,
    nodes: Vec<i64>,
    /// Never free the communicator ([`Requests::abandon`]): its identifier must not be reused while
    /// a message without a receiver may still arrive.
    keep_forever: bool,
    indices: Vec<c_int>,
    statuses: Vec<MaybeUninit<ffi::MPI_Status>>,
    /// Only the thread that initialised MPI may call it.
    one_thread: PhantomData<*const ()>,
}

impl MpiRequests {
    /// Duplicates `communicator`. Calls on the duplicate return errors instead of aborting the job.
    /// All ranks call it together.
    ///
    /// # Errors
    /// MPI's errors.
    pub fn duplicate(communicator: &impl Communicator) -> Result<Self, Error> {
        let mut raw = MaybeUninit::uninit();
        let (mut rank, mut size) = (0, 0);
        // SAFETY: rsmpi's communicator is valid. MPI writes the new one, which is read only after
        // success.
        unsafe {
            checked(ffi::MPI_Comm_dup(communicator.as_raw(), raw.as_mut_ptr()))?;
            let raw = raw.assume_init();
            checked(ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            checked(ffi::MPI_Comm_rank(raw, &mut rank))?;
            checked(ffi::MPI_Comm_size(raw, &mut size))?;
            Ok(Self {
                creator: std::process::id(),
                raw,
                rank: Rank::new(rank as usize),
                size: size as usize,
                nodes: nodes(raw, rank, size)?,
                keep_forever: false,
                indices: Vec::new(),
                statuses: Vec::new(),
                one_thread: PhantomData,
            })
        }
    }
}

/// Returns, for each rank, the lowest rank that shares memory with it. Ranks with the same result
/// are on one node. All ranks call it together.
///
/// # Safety
/// The communicator must be valid, with this rank and size.
unsafe fn nodes(comm: ffi::MPI_Comm, rank: c_int, size: c_int) -> Result<Vec<i64>, Error> {
    let mut on_node = MaybeUninit::uninit();
    let mut lowest = i64::from(rank);
    let mut nodes = vec![0; size as usize];
    // SAFETY: the caller guarantees a valid communicator. The new communicator is read only after
    // success, and freed. Its ranks keep their order, so its first rank is the lowest one, and the
    // broadcast passes that to all of them. The gather writes one integer for each of `size` ranks
    // into an array of that length.
    unsafe {
        checked(ffi::MPI_Comm_split_type(
            comm,
            ffi::RSMPI_COMM_TYPE_SHARED,
            rank,
            ffi::RSMPI_INFO_NULL,
            on_node.as_mut_ptr(),
        ))?;
        let mut on_node = on_node.assume_init();
        checked(ffi::MPI_Bcast((&raw mut lowest).cast(), 1, ffi::RSMPI_INT64_T, 0, on_node))?;
        checked(ffi::MPI_Comm_free(&mut on_node))?;
        checked(ffi::MPI_Allgather(
            (&raw const lowest).cast(),
            1,
            ffi::RSMPI_INT64_T,
            nodes.as_mut_ptr().cast(),
            1,
            ffi::RSMPI_INT64_T,
            comm,
        ))?;
    }
    Ok(nodes)
}

impl Drop for MpiRequests {
    fn drop(&mut self) {
        // In a forked child, MPI still belongs to the parent.
        let is_own = self.creator == std::process::id();
        if is_own && !self.keep_forever && mpi::is_initialized() && !mpi::is_finalized() {
            // SAFETY: the communicator is ours, and MPI is initialised and not finalised. Pending
            // requests keep the parts of it that they need (MPI 4.0, section 7.4.3). An error is
            // ignored, since drop cannot return it.
            let _ = unsafe { ffi::MPI_Comm_free(&mut self.raw) };
        }
    }
}

// SAFETY: `test` reports only requests that MPI has completed.
unsafe impl Requests for MpiRequests {
    type Request = ffi::MPI_Request;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn nodes(&self) -> &[i64] {
        &self.nodes
    }

    unsafe fn start_send(
        &mut self,
        memory: *const u8,
        n_bytes: usize,
        (to, tag): (Rank, Tag),
        matched: bool,
    ) -> Result<ffi::MPI_Request, c_int> {
        let start = if matched { ffi::MPI_Issend } else { ffi::MPI_Isend };
        let (n, to, tag) = (count(n_bytes)?, to.0 as c_int, c_int::from(tag.0));
        // SAFETY: the caller guarantees the memory; the request is written before it is read.
        started(|made| unsafe {
            start(memory.cast(), n, ffi::RSMPI_UINT8_T, to, tag, self.raw, made)
        })
    }

    unsafe fn start_recv(
        &mut self,
        memory: *mut u8,
        n_bytes: usize,
        (from, tag): (Option<Rank>, Tag),
    ) -> Result<ffi::MPI_Request, c_int> {
        // SAFETY: reads a constant of the library.
        let from = from.map_or(unsafe { ffi::RSMPI_ANY_SOURCE }, |rank| rank.0 as c_int);
        let (n, tag) = (count(n_bytes)?, c_int::from(tag.0));
        // SAFETY: the caller guarantees the memory; the request is written before it is read.
        started(|made| unsafe {
            ffi::MPI_Irecv(memory.cast(), n, ffi::RSMPI_UINT8_T, from, tag, self.raw, made)
        })
    }

    fn test(
        &mut self,
        requests: &mut [ffi::MPI_Request],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), c_int> {
        // MPI ends the process that calls it after `MPI_Finalize`. An endpoint may outlive that.
        if mpi::is_finalized() {
            return Err(AFTER_THE_END);
        }
        let n = requests.len();
        let mut n_done = 0;
        self.indices.resize(n, 0);
        self.statuses.resize_with(n, MaybeUninit::uninit);
        // SAFETY: the three arrays have `n` elements. The requests are ours, and pending or null.
        // MPI writes as many indices and statuses as it reports in `n_done`.
        let code = unsafe {
            ffi::MPI_Testsome(
                n as c_int,
                requests.as_mut_ptr(),
                &mut n_done,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr().cast(),
            )
        };
        let in_status = code == ffi::MPI_ERR_IN_STATUS as c_int;
        if code != SUCCESS && !in_status {
            return Err(code);
        }
        // Negative (MPI_UNDEFINED) if there are no requests.
        let n_done = usize::try_from(n_done).unwrap_or(0);
        for (index, status) in self.indices.iter().zip(&self.statuses).take(n_done) {
            // SAFETY: MPI has written the first `n_done` statuses.
            let status = unsafe { status.assume_init_ref() };
            let failed = in_status && status.MPI_ERROR != SUCCESS;
            // MPI nulls each request that is complete. With fault tolerance (ULFM), it also lists a
            // receive from any rank once some rank has failed (`PROC_FAILED_PENDING`). Such a
            // receive stays active, and MPI still owns its memory.
            // SAFETY: reads a constant of the library.
            if failed && requests[*index as usize] != unsafe { ffi::RSMPI_REQUEST_NULL } {
                continue;
            }
            let completion = if failed { Err(status.MPI_ERROR) } else { Ok(received(status)) };
            done.push((*index as usize, completion));
        }
        Ok(())
    }

    fn cancel(&mut self, request: &mut ffi::MPI_Request) {
        if mpi::is_finalized() {
            return;
        }
        // SAFETY: the request is ours and pending. If it cannot be cancelled, it stays pending.
        let _ = unsafe { ffi::MPI_Cancel(request) };
    }

    fn abandon(&mut self) {
        self.keep_forever = true;
    }

    fn no_memory(&self) -> c_int {
        ffi::MPI_ERR_NO_MEM as c_int
    }

    fn error(&self, code: c_int, peer: Option<Rank>) -> Error {
        Error::new(code, peer)
    }
}

/// Returns the request that `start` writes, or MPI's error code.
fn started(start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<ffi::MPI_Request, c_int> {
    if mpi::is_finalized() {
        return Err(AFTER_THE_END);
    }
    let mut request = MaybeUninit::uninit();
    match start(request.as_mut_ptr()) {
        // SAFETY: MPI accepted the call, and therefore wrote the request.
        SUCCESS => Ok(unsafe { request.assume_init() }),
        code => Err(code),
    }
}

/// Converts a number of bytes to MPI's count type.
fn count(n_bytes: usize) -> Result<c_int, c_int> {
    c_int::try_from(n_bytes).map_err(|_| COUNT_ERROR)
}

/// Returns the sender and length of a message, or `None` if the request was cancelled.
fn received(status: &ffi::MPI_Status) -> Option<(Rank, usize)> {
    let (mut cancelled, mut n_bytes) = (0, 0);
    // SAFETY: MPI has written the status. Both functions only read it and write one integer.
    unsafe {
        ffi::MPI_Test_cancelled(status, &mut cancelled);
        ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut n_bytes);
    }
    let n_bytes = usize::try_from(n_bytes).ok()?;
    let from = usize::try_from(status.MPI_SOURCE).ok()?;
    (cancelled == 0).then_some((Rank::new(from), n_bytes))
}
