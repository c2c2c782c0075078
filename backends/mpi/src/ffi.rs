//! The only place where MPI's functions are called: a communicator, and a set of requests with the
//! memory that MPI works on, both with safe interfaces.
//!
//! Memory under way belongs to a [`Requests`] and is given back only when MPI says that its request
//! is complete. What is still under way when a `Requests` is dropped is leaked, since MPI may yet
//! touch it.
#![allow(unsafe_code, reason = "calls the MPI library")]

use std::ffi::{CStr, c_char, c_int};
use std::mem::{self, MaybeUninit};

use foldwire::HeapFrame;
use foldwire::transport::{Rank, Tag};
use mpi::ffi;
use mpi::topology::Communicator;

use crate::Error;

/// The code for "a count is out of range".
pub(crate) const COUNT_ERROR: i32 = ffi::MPI_ERR_COUNT as i32;
/// The code for "no memory".
pub(crate) const NO_MEMORY_ERROR: i32 = ffi::MPI_ERR_NO_MEM as i32;
const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;

/// The error classes that we tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Truncated,
    NoMemory,
    Misuse,
    Other,
}

pub(crate) fn error_class(code: i32) -> Class {
    let mut class = 0;
    // SAFETY: MPI may be asked this at any time, and writes one integer.
    let known = unsafe { ffi::MPI_Error_class(code, &mut class) } == SUCCESS;
    match u32::try_from(class) {
        Ok(ffi::MPI_ERR_TRUNCATE) if known => Class::Truncated,
        Ok(ffi::MPI_ERR_NO_MEM) if known => Class::NoMemory,
        Ok(
            ffi::MPI_ERR_BUFFER
            | ffi::MPI_ERR_COUNT
            | ffi::MPI_ERR_TYPE
            | ffi::MPI_ERR_TAG
            | ffi::MPI_ERR_COMM
            | ffi::MPI_ERR_RANK
            | ffi::MPI_ERR_REQUEST
            | ffi::MPI_ERR_ARG,
        ) if known => Class::Misuse,
        _ => Class::Other,
    }
}

/// What MPI says of an error.
pub(crate) fn error_string(code: i32) -> String {
    let mut text = [0 as c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the array has room for the longest text and its end; MPI writes within it.
    let found = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut length) };
    if found != SUCCESS {
        return format!("error {code}");
    }
    // SAFETY: the array ends with a zero that MPI had no room to overwrite.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

fn checked(code: c_int) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(Error::of_code(code)) }
}

/// A communicator of our own.
pub(crate) struct Comm {
    /// The process that made it.
    home: u32,
    raw: ffi::MPI_Comm,
    rank: Rank,
    size: usize,
    /// Of each rank, the lowest that shares memory with it.
    nodes: Vec<c_int>,
    keep_forever: bool,
}

impl Comm {
    /// A duplicate of `communicator` that returns errors.
    pub(crate) fn duplicate(communicator: &impl Communicator) -> Result<Self, Error> {
        let mut raw = MaybeUninit::uninit();
        let (mut rank, mut size) = (0, 0);
        // SAFETY: rsmpi's communicator is valid; MPI writes the new one, which is read only after
        // success.
        unsafe {
            checked(ffi::MPI_Comm_dup(communicator.as_raw(), raw.as_mut_ptr()))?;
            let raw = raw.assume_init();
            checked(ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            checked(ffi::MPI_Comm_rank(raw, &mut rank))?;
            checked(ffi::MPI_Comm_size(raw, &mut size))?;
            let nodes = nodes(raw, rank, size)?;
            let (rank, size) = (Rank::new(rank as usize), size as usize);
            Ok(Self { home: std::process::id(), raw, rank, size, nodes, keep_forever: false })
        }
    }

    /// Whether all ranks share memory, so that messages cross no network.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.nodes.iter().all(|&node| node == 0)
    }

    /// Whether a rank shares memory with this one.
    pub(crate) fn shares_memory_with(&self, peer: Rank) -> bool {
        self.nodes.get(peer.index()) == self.nodes.get(self.rank.index())
    }

    /// Never frees the communicator: a message that nobody received could otherwise meet a later
    /// one that MPI gives the same number.
    pub(crate) fn keep_forever(&mut self) {
        self.keep_forever = true;
    }

    pub(crate) const fn rank(&self) -> Rank {
        self.rank
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }
}

/// Of each rank, the lowest that shares memory with it, so that messages between them cross no
/// network. All ranks call it together.
///
/// # Safety
/// The communicator must be valid, with this rank and size.
unsafe fn nodes(comm: ffi::MPI_Comm, rank: c_int, size: c_int) -> Result<Vec<c_int>, Error> {
    let mut near = MaybeUninit::uninit();
    let mut lowest = rank;
    let mut nodes = vec![0; size as usize];
    // SAFETY: by the caller's promise; the new communicator is read only after success, and freed.
    // Its ranks are in the order of the old ones, so the broadcast from its first one gives all the
    // lowest. The gather writes one integer for each rank into as many.
    unsafe {
        checked(ffi::MPI_Comm_split_type(
            comm,
            ffi::RSMPI_COMM_TYPE_SHARED,
            rank,
            ffi::RSMPI_INFO_NULL,
            near.as_mut_ptr(),
        ))?;
        let mut near = near.assume_init();
        checked(ffi::MPI_Bcast((&raw mut lowest).cast(), 1, ffi::RSMPI_INT32_T, 0, near))?;
        checked(ffi::MPI_Comm_free(&mut near))?;
        checked(ffi::MPI_Allgather(
            (&raw const lowest).cast(),
            1,
            ffi::RSMPI_INT32_T,
            nodes.as_mut_ptr().cast(),
            1,
            ffi::RSMPI_INT32_T,
            comm,
        ))?;
    }
    Ok(nodes)
}

impl Drop for Comm {
    fn drop(&mut self) {
        // In a process that was forked off, MPI is its parent's.
        let is_own = self.home == std::process::id();
        if is_own && !self.keep_forever && mpi::is_initialized() && !mpi::is_finalized() {
            // SAFETY: the communicator is ours, and MPI is up. Requests that are still under way
            // keep what they need of it (MPI 4.0, section 7.4.3). An error here has nobody to go
            // to.
            let _ = unsafe { ffi::MPI_Comm_free(&mut self.raw) };
        }
    }
}

/// How a request ended: what was received (nothing for sends and cancelled receives), or MPI's
/// error code.
pub(crate) type Outcome = Result<Option<(Rank, usize)>, i32>;

/// Requests under way, each with a note `R` and the memory that MPI reads or writes for it.
pub(crate) struct Requests<R> {
    requests: Vec<ffi::MPI_Request>,
    under_way: Vec<(R, HeapFrame)>,
    /// Room for MPI's answers, one for each request.
    indices: Vec<c_int>,
    statuses: Vec<MaybeUninit<ffi::MPI_Status>>,
}

impl<R: Copy> Requests<R> {
    pub(crate) const fn new() -> Self {
        Self {
            requests: Vec::new(),
            under_way: Vec::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
        }
    }

    fn keep(&mut self, request: ffi::MPI_Request, note: R, memory: HeapFrame) {
        self.requests.push(request);
        self.under_way.push((note, memory));
        self.indices.push(0);
        self.statuses.push(MaybeUninit::uninit());
    }

    /// Starts to send the first `n_bytes` of `memory`; on failure gives it back with MPI's code.
    #[allow(clippy::too_many_arguments, reason = "a message has that many properties")]
    pub(crate) fn send(
        &mut self,
        comm: &Comm,
        note: R,
        to: Rank,
        tag: Tag,
        memory: HeapFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), (HeapFrame, i32)> {
        let Some(count) = count(n_bytes).filter(|_| n_bytes <= memory.as_ref().len()) else {
            return Err((memory, COUNT_ERROR));
        };
        let start = if matched { ffi::MPI_Issend } else { ffi::MPI_Isend };
        let mut request = MaybeUninit::uninit();
        // SAFETY: the first `count` bytes are initialised, stay where they are when `memory` moves
        // (they are on the heap), and nobody writes them until the request is complete, since we
        // own them. The request is written before it is read.
        let code = unsafe {
            start(
                memory.as_ref().as_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                to.0 as c_int,
                c_int::from(tag.0),
                comm.raw,
                request.as_mut_ptr(),
            )
        };
        if code != SUCCESS {
            return Err((memory, code));
        }
        // SAFETY: MPI has accepted the call, and so written the request.
        self.keep(unsafe { request.assume_init() }, note, memory);
        Ok(())
    }

    /// Posts a receive into all of `memory`; on failure gives it back with MPI's code.
    pub(crate) fn recv(
        &mut self,
        comm: &Comm,
        note: R,
        from: Option<Rank>,
        tag: Tag,
        mut memory: HeapFrame,
    ) -> Result<(), (HeapFrame, i32)> {
        let Some(count) = count(memory.as_ref().len()) else { return Err((memory, COUNT_ERROR)) };
        let mut request = MaybeUninit::uninit();
        // SAFETY: the bytes are ours and stay where they are when `memory` moves; nobody else reads
        // or writes them until the request is complete. The request is written before it is read.
        let code = unsafe {
            ffi::MPI_Irecv(
                memory.as_mut().as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                from.map_or(ffi::RSMPI_ANY_SOURCE, |rank| rank.0 as c_int),
                c_int::from(tag.0),
                comm.raw,
                request.as_mut_ptr(),
            )
        };
        if code != SUCCESS {
            return Err((memory, code));
        }
        // SAFETY: MPI has accepted the call, and so written the request.
        self.keep(unsafe { request.assume_init() }, note, memory);
        Ok(())
    }

    /// Moves MPI along and hands out what has completed; returns the first error, after all.
    pub(crate) fn test(
        &mut self,
        mut each: impl FnMut(R, HeapFrame, Outcome) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let n = self.requests.len();
        let mut n_done = 0;
        // SAFETY: the three arrays have `n` elements; the requests are ours, and under way or null.
        // MPI writes as many indices and statuses as it says are done.
        let code = unsafe {
            ffi::MPI_Testsome(
                n as c_int,
                self.requests.as_mut_ptr(),
                &mut n_done,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr().cast(),
            )
        };
        let in_status = code == ffi::MPI_ERR_IN_STATUS as c_int;
        if code != SUCCESS && !in_status {
            return Err(Error::new(code, None));
        }
        // Negative (MPI_UNDEFINED) where there is no request.
        let n_done = usize::try_from(n_done).unwrap_or(0);
        let mut done: Vec<(usize, Outcome)> = Vec::with_capacity(n_done);
        for (index, status) in self.indices.iter().zip(&self.statuses).take(n_done) {
            // SAFETY: MPI has written the first `n_done` statuses.
            let status = unsafe { status.assume_init_ref() };
            let failed = in_status && status.MPI_ERROR != SUCCESS;
            let outcome = if failed { Err(status.MPI_ERROR) } else { Ok(received(status)) };
            done.push((*index as usize, outcome));
        }
        // From the last to the first: taking one out moves none that is still to go.
        done.sort_unstable_by_key(|&(index, _)| std::cmp::Reverse(index));
        let mut result = Ok(());
        for (index, outcome) in done {
            self.requests.swap_remove(index);
            let (note, memory) = self.under_way.swap_remove(index);
            result = result.and(each(note, memory, outcome));
        }
        self.indices.truncate(self.requests.len());
        self.statuses.truncate(self.requests.len());
        result
    }

    /// Asks MPI to give up the requests that `which` picks. They complete in later tests.
    pub(crate) fn cancel(&mut self, which: impl Fn(R) -> bool) {
        for (request, (note, _)) in self.requests.iter_mut().zip(&self.under_way) {
            if which(*note) {
                // SAFETY: the request is ours and under way. If it cannot be cancelled, it stays.
                let _ = unsafe { ffi::MPI_Cancel(request) };
            }
        }
    }
}

/// A number of bytes as MPI counts.
fn count(n_bytes: usize) -> Option<c_int> {
    c_int::try_from(n_bytes).ok()
}

/// Who sent how much, unless the request was cancelled.
fn received(status: &ffi::MPI_Status) -> Option<(Rank, usize)> {
    let (mut cancelled, mut n_bytes) = (0, 0);
    // SAFETY: the status is one that MPI has written; both functions only read it and write one
    // integer.
    unsafe {
        ffi::MPI_Test_cancelled(status, &mut cancelled);
        ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut n_bytes);
    }
    let n_bytes = usize::try_from(n_bytes).ok()?;
    let from = usize::try_from(status.MPI_SOURCE).ok()?;
    (cancelled == 0).then_some((Rank::new(from), n_bytes))
}

impl<R> Drop for Requests<R> {
    fn drop(&mut self) {
        for (_, memory) in self.under_way.drain(..) {
            // MPI may still read or write it.
            mem::forget(memory);
        }
    }
}
