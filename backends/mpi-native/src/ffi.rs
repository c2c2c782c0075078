//! Safe wrappers of MPI's functions: communicators and collectives here, control variables in
//! [`tool`]. No other module of this crate calls MPI's C functions.
#![allow(unsafe_code, reason = "calls the MPI library")]

pub(crate) mod tool;

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use foldwire::{Collective, DType, Float, Rank};
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::{Communicator, SimpleCommunicator};

use crate::{Call, Error, FunctionForm, Operation};

const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;

unsafe extern "C" {
    /// Returns `MPI_IN_PLACE`.
    safe fn foldwire_mpi_in_place() -> *mut c_void;
}

fn checked(code: c_int) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(foldwire_mpi::Error::of_code(code).into()) }
}

/// Duplicates `communicator`. Calls on the duplicate return errors instead of aborting the job.
pub(crate) fn duplicate(communicator: &impl Communicator) -> Result<SimpleCommunicator, Error> {
    let own = communicator.duplicate();
    // SAFETY: rsmpi's communicator is valid, and its constant was initialised before the program
    // started.
    checked(unsafe { ffi::MPI_Comm_set_errhandler(own.as_raw(), ffi::RSMPI_ERRORS_RETURN) })?;
    Ok(own)
}

/// Buffers of a call as MPI takes them. `send` is `None` in place.
pub(crate) struct CallMemory<'a, T> {
    send: Option<*const T>,
    recv: *mut T,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<'a, T> CallMemory<'a, T> {
    pub(crate) fn in_place(data: &'a mut [T]) -> Self {
        Self { send: None, recv: data.as_mut_ptr(), borrowed: PhantomData }
    }

    pub(crate) fn split(send: &'a [T], recv: &'a mut [T]) -> Self {
        Self { send: Some(send.as_ptr()), recv: recv.as_mut_ptr(), borrowed: PhantomData }
    }
}

fn datatype<T: Float>() -> ffi::MPI_Datatype {
    // SAFETY: reads constants of rsmpi that were initialised before the program started.
    unsafe {
        match T::DTYPE {
            DType::F32 => ffi::RSMPI_FLOAT,
            DType::F64 => ffi::RSMPI_DOUBLE,
            // MPI rejects this type.
            _ => ffi::RSMPI_DATATYPE_NULL,
        }
    }
}

fn operation(op: Operation) -> ffi::MPI_Op {
    // SAFETY: as in `datatype`.
    unsafe {
        match op {
            Operation::Sum => ffi::RSMPI_SUM,
            Operation::Min => ffi::RSMPI_MIN,
            Operation::Max => ffi::RSMPI_MAX,
            Operation::Prod => ffi::RSMPI_PROD,
        }
    }
}

/// Runs the call. The caller has checked that `memory` has the lengths that `call` needs on this
/// rank, and that `call` has as many shares as `comm` has ranks.
pub(crate) fn collective<T: Float>(
    comm: &SimpleCommunicator,
    call: &Call,
    memory: CallMemory<'_, T>,
) -> Result<(), Error> {
    let (dtype, op, comm_raw) = (datatype::<T>(), operation(call.op), comm.as_raw());
    let (count, root) = (call.count as c_int, call.root.0 as c_int);
    let (counts, starts) = (call.counts.as_ptr(), call.starts.as_ptr());
    let rank = Rank::new(comm.rank() as usize);
    let share = call.counts[rank.index()];
    let recv = memory.recv.cast::<c_void>();
    let send = memory.send.map_or(foldwire_mpi_in_place().cast_const(), <*const T>::cast);
    let is_equal = call.form == FunctionForm::Equal;
    // An all-to-all with unequal shares receives `share` values from each rank, one block after the
    // other.
    let is_all_to_all_v = call.collective == Collective::AllToAll && !is_equal;
    let size = if is_all_to_all_v { call.counts.len() as c_int } else { 0 };
    let from_each: Vec<c_int> = (0..size).map(|_| share).collect();
    let from_at: Vec<c_int> = (0..size).map(|source| source * share).collect();
    let (from_each, from_at) = (from_each.as_ptr(), from_at.as_ptr());
    // SAFETY: the buffers are borrowed until the call returns, and blocking collectives do not
    // touch them afterwards. The caller has checked their lengths (see `Call::lengths`). MPI reads
    // and writes the count that is passed with each buffer, or the shares that `counts` and
    // `starts` describe. These lie within `call.count` values, and both arrays have one element for
    // each rank. `FunctionForm::Equal` passes one share for all ranks, and a call has that form
    // only if all shares are equal (see `Call::with_form`). An all-to-all receives `share` values
    // from each rank, and `lengths` requires space for one share from every rank. MPI does not
    // access buffers that a rank does not use.
    checked(unsafe {
        match call.collective {
            Collective::AllReduce => ffi::MPI_Allreduce(send, recv, count, dtype, op, comm_raw),
            Collective::ReduceScatter if is_equal => {
                ffi::MPI_Reduce_scatter_block(send, recv, share, dtype, op, comm_raw)
            }
            Collective::ReduceScatter => {
                ffi::MPI_Reduce_scatter(send, recv, counts, dtype, op, comm_raw)
            }
            Collective::AllGather if is_equal => {
                ffi::MPI_Allgather(send, share, dtype, recv, share, dtype, comm_raw)
            }
            Collective::AllGather => {
                ffi::MPI_Allgatherv(send, share, dtype, recv, counts, starts, dtype, comm_raw)
            }
            Collective::Broadcast => ffi::MPI_Bcast(recv, count, dtype, root, comm_raw),
            Collective::Scatter if is_equal => {
                ffi::MPI_Scatter(send, share, dtype, recv, share, dtype, root, comm_raw)
            }
            Collective::Scatter => {
                ffi::MPI_Scatterv(send, counts, starts, dtype, recv, share, dtype, root, comm_raw)
            }
            Collective::Gather if is_equal => {
                ffi::MPI_Gather(send, share, dtype, recv, share, dtype, root, comm_raw)
            }
            Collective::Gather => {
                ffi::MPI_Gatherv(send, share, dtype, recv, counts, starts, dtype, root, comm_raw)
            }
            Collective::AllToAll if is_equal => {
                ffi::MPI_Alltoall(send, share, dtype, recv, share, dtype, comm_raw)
            }
            Collective::AllToAll => ffi::MPI_Alltoallv(
                send, counts, starts, dtype, recv, from_each, from_at, dtype, comm_raw,
            ),
            Collective::Scan => ffi::MPI_Scan(send, recv, count, dtype, op, comm_raw),
            Collective::ExclusiveScan => ffi::MPI_Exscan(send, recv, count, dtype, op, comm_raw),
            Collective::Reduce if rank != call.root => {
                // Only the root may pass MPI_IN_PLACE.
                let send = memory.send.map_or(recv.cast_const(), <*const T>::cast);
                ffi::MPI_Reduce(send, ptr::null_mut(), count, dtype, op, root, comm_raw)
            }
            Collective::Reduce => ffi::MPI_Reduce(send, recv, count, dtype, op, root, comm_raw),
            collective => return Err(Error::NoSuchCall { collective }),
        }
    })
}
