//! Messages and all-reduces through the MPI library, for Foldwire itself.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use foldwire::op::OpCode;
use foldwire::transport::{Rank, TransportErrorKind};
use foldwire_messaging::Completion;

use super::{MpiErrorCode, MpiLibrary, SUCCESS, checked};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::ffi::progress::is_in_callback;

/// Communication between ranks for Foldwire itself.
pub(crate) trait MessageApi {
    /// Computes the sum, minimum or maximum over all ranks.
    fn all_reduce(
        &self,
        comm: MpiHandle,
        values: &mut [i64],
        op: OpCode,
    ) -> Result<(), MpiErrorCode>;
    /// Does the same as [`all_reduce`](Self::all_reduce), but calls `wait` repeatedly until all
    /// ranks have called.
    fn all_reduce_polling(
        &self,
        comm: MpiHandle,
        values: &mut [i64],
        op: OpCode,
        wait: &mut dyn FnMut(),
    ) -> Result<(), MpiErrorCode>;
    /// Starts a send to a rank with a tag, and returns the request. If `matched` is set, the
    /// request completes only after the peer has posted a matching receive (`MPI_Issend`).
    ///
    /// # Safety
    /// The memory must be valid, and nothing may write to it, until the request is complete.
    unsafe fn start_send(
        &self,
        memory: *const u8,
        n_bytes: c_int,
        to: (usize, c_int),
        comm: MpiHandle,
        matched: bool,
    ) -> Result<MpiHandle, MpiErrorCode>;
    /// Starts a receive with a tag from a given rank or from any, and returns the request.
    ///
    /// # Safety
    /// The memory must be valid, and nothing else may access it, until the request is complete.
    unsafe fn start_recv(
        &self,
        memory: *mut u8,
        n_bytes: c_int,
        from: (Option<usize>, c_int),
        comm: MpiHandle,
    ) -> Result<MpiHandle, MpiErrorCode>;
    /// Appends the index and the result of each complete request to `done`. Also drives MPI's
    /// progress, except in a callback of MPICH, which drives it already.
    fn test_some(
        &self,
        requests: &[MpiHandle],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), MpiErrorCode>;
    fn cancel(&self, request: MpiHandle);
    /// Kind of an error, if Foldwire distinguishes it.
    fn kind(&self, code: MpiErrorCode) -> Option<TransportErrorKind>;
    /// Error code for lack of memory.
    fn no_memory(&self) -> MpiErrorCode;
}

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles and an initialised MPI.
// MPI writes through pointers to locals of the types in its standard, and accesses them only during
// the call. Each block states what else it relies on.
impl<A: Abi> MessageApi for MpiLibrary<A> {
    fn all_reduce(
        &self,
        comm: MpiHandle,
        values: &mut [i64],
        op: OpCode,
    ) -> Result<(), MpiErrorCode> {
        let sent = values.to_vec();
        // SAFETY: both arrays have `sent.len()` integers of 64 bits.
        checked(unsafe {
            (self.functions.all_reduce)(
                sent.as_ptr().cast(),
                values.as_mut_ptr().cast(),
                sent.len() as c_int,
                A::restore(self.handles.int64),
                self.op(op),
                A::restore(comm),
            )
        })
    }

    fn all_reduce_polling(
        &self,
        comm: MpiHandle,
        values: &mut [i64],
        op: OpCode,
        wait: &mut dyn FnMut(),
    ) -> Result<(), MpiErrorCode> {
        let (int64, op, comm) = (A::restore(self.handles.int64), self.op(op), A::restore(comm));
        // Leaked if this function returns before the request is complete.
        let sent = ManuallyDrop::new(values.to_vec());
        let mut reduced = ManuallyDrop::new(values.to_vec());
        let (from, to) = (sent.as_ptr().cast(), reduced.as_mut_ptr().cast());
        let n = values.len() as c_int;
        // SAFETY: both arrays have `n` integers of 64 bits. Nothing accesses them until the request
        // is complete.
        let request = self.made(|request| unsafe {
            (self.functions.all_reduce_start)(from, to, n, int64, op, comm, request)
        })?;
        let mut done = Vec::new();
        loop {
            self.test_some(&[request], &mut done)?;
            if let Some((_, outcome)) = done.pop() {
                drop(ManuallyDrop::into_inner(sent));
                values.copy_from_slice(&ManuallyDrop::into_inner(reduced));
                return outcome.map(|_| ());
            }
            wait();
        }
    }

    unsafe fn start_send(
        &self,
        memory: *const u8,
        n_bytes: c_int,
        (to, tag): (usize, c_int),
        comm: MpiHandle,
        matched: bool,
    ) -> Result<MpiHandle, MpiErrorCode> {
        let start = if matched { self.functions.issend } else { self.functions.isend };
        let (byte, comm) = (A::restore(self.handles.byte), A::restore(comm));
        // SAFETY: the caller guarantees that the memory stays valid and unchanged.
        self.made(|request| unsafe {
            start(memory.cast(), n_bytes, byte, to as c_int, tag, comm, request)
        })
    }

    unsafe fn start_recv(
        &self,
        memory: *mut u8,
        n_bytes: c_int,
        (from, tag): (Option<usize>, c_int),
        comm: MpiHandle,
    ) -> Result<MpiHandle, MpiErrorCode> {
        let from = from.map_or(A::ANY_SOURCE, |rank| rank as c_int);
        let (byte, comm) = (A::restore(self.handles.byte), A::restore(comm));
        // SAFETY: the caller guarantees that the memory stays valid and that nothing else accesses
        // it.
        self.made(|request| unsafe {
            (self.functions.irecv)(memory.cast(), n_bytes, byte, from, tag, comm, request)
        })
    }

    fn test_some(
        &self,
        requests: &[MpiHandle],
        done: &mut Vec<(usize, Completion)>,
    ) -> Result<(), MpiErrorCode> {
        let [source, error, stride] = A::STATUS;
        let is_tested = |request: MpiHandle| match self.functions.request_is_complete {
            // SAFETY: see above. This function does not drive progress.
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
        // SAFETY: the arrays have space for `n` elements, and a status is `stride` integers. MPI
        // sets complete requests to null only in `typed`, and the caller drops their handles.
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
        // `n_done` is `MPI_UNDEFINED`, a negative number, if there is no active request.
        let n_done = usize::try_from(n_done).unwrap_or(0);
        for (&index, status) in indices.iter().zip(statuses.chunks_exact(stride)).take(n_done) {
            let (mut cancelled, mut n_bytes) = (0, 0);
            let failed = in_status && status[error] != SUCCESS;
            // MPI nulls each request that is complete. With fault tolerance (ULFM), it also lists a
            // receive from any rank once some rank has failed (`PROC_FAILED_PENDING`). Such a
            // receive stays active, and MPI still owns its memory.
            if failed && A::erase(typed[index as usize]) != self.handles.request_null {
                continue;
            }
            let outcome = if failed {
                Err(status[error])
            } else {
                // SAFETY: MPI has written this status.
                unsafe {
                    (self.functions.test_cancelled)(status.as_ptr(), &raw mut cancelled);
                    let byte = A::restore(self.handles.byte);
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

    fn cancel(&self, request: MpiHandle) {
        let mut request = A::restore(request);
        // SAFETY: see above. A request that cannot be cancelled stays active.
        let _ = unsafe { (self.functions.cancel)(&raw mut request) };
    }

    fn kind(&self, code: MpiErrorCode) -> Option<TransportErrorKind> {
        match self.class(code)? {
            class if class == A::ERRORS[0] => Some(TransportErrorKind::Truncated),
            class if class == A::ERRORS[3] => Some(TransportErrorKind::OutOfFrames),
            _ => None,
        }
    }

    fn no_memory(&self) -> MpiErrorCode {
        A::ERRORS[3]
    }
}

impl<A: Abi> MpiLibrary<A> {
    /// Class of an error code.
    pub(super) fn class(&self, code: MpiErrorCode) -> Option<c_int> {
        let mut class = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.error_class)(code, &raw mut class) }).ok()?;
        Some(class)
    }

    fn op(&self, op: OpCode) -> A::Handle {
        A::restore(match op {
            OpCode::Min => self.handles.min,
            OpCode::Max => self.handles.max,
            OpCode::Prod => self.handles.prod,
            _ => self.handles.sum,
        })
    }
}
