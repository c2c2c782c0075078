//! Collectives, and messages between two ranks.
//!
//! Arguments follow nccl.h: send buffer, receive buffer, count and type. After them come the plan,
//! the communicator and the pointer for the request. Each function only selects the kind of call.

use std::ffi::c_void;
use std::ptr;

use foldwire::op::OpCode;
use foldwire::{Collective, Plan};

use super::call::{CheckedCollective, ValueCounts, parts, times};
use super::codec::copied_plan;
use super::memory::{RequestOut, counts};
use super::messages::CheckedMessage;
use super::operations::ReduceOperation;
use super::types::*;
use crate::errors::ApiError;
use crate::group::{Submission, SubmittedCall, catch_call_errors};
use crate::{group, handle_table, plan};

/// Array lengths as the caller passes them.
enum RawCounts {
    /// One count for all ranks.
    Same(usize),
    /// A count for each rank.
    Given(*const usize),
    /// A count for each rank: values to send to it, and values to receive from it.
    Exchanged(*const usize, *const usize),
}

/// A collective (`None` for a barrier), its array lengths, its operation and its root.
type RawCall = (Option<Collective>, RawCounts, Option<fwRedOp>, i32);

/// Send buffer, receive buffer, and the type of both.
type RawArrays = (*const c_void, *mut c_void, fwDataType);

/// Plan, communicator, and where to write the request.
type RawContext = (*const fwPlan, fwComm_t, *mut fwRequest_t);

/// Reads the caller's plan; NULL means exact.
///
/// # Safety
/// As for [`read`], except that null is allowed.
unsafe fn plan_of(plan: *const fwPlan) -> Result<Plan, ApiError> {
    // SAFETY: guaranteed by the caller.
    plan::to_core(&unsafe { copied_plan(plan) }?)
}

/// Submits a collective.
///
/// # Safety
/// The rules at the top of foldwire.h: pointers are valid, and the arrays stay valid until the call
/// has finished.
unsafe fn collective(
    (collective, counts_arg, code, root): RawCall,
    (send, recv, data_type): RawArrays,
    (plan, comm, request): RawContext,
) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: guaranteed by the caller.
        let request = unsafe { RequestOut::optional(request) }?;
        let (endpoint, rank, size) = handle_table::comm(comm.addr())?;
        let (dtype, width) = parts(data_type)?;
        let op = code.map_or(Ok(ReduceOperation::Known(OpCode::None)), ReduceOperation::of)?;
        if width > 1 {
            op.check_complex()?;
        }
        // SAFETY: the caller guarantees valid pointers, and one count for each rank.
        let call = unsafe {
            let counts_arg = match counts_arg {
                RawCounts::Same(count) => ValueCounts::Same(count),
                RawCounts::Given(given) => ValueCounts::Given(counts(given, size)?),
                RawCounts::Exchanged(to, from) => {
                    ValueCounts::Exchanged(counts(to, size)?, counts(from, size)?)
                }
            };
            let plan = plan_of(plan)?;
            CheckedCollective::new(
                collective,
                counts_arg.times(width)?,
                send,
                recv,
                dtype,
                op,
                root,
                plan,
                (rank, size),
            )?
        };
        let call = SubmittedCall::Collective(Box::new(call), request);
        group::submit(Submission { endpoint, comm: comm.addr(), call })
    })
}

/// Submits messages. Each item of `all` is: whether the message is sent, its array, its count, and
/// the peer. Only a single message can have a request.
///
/// # Safety
/// As for [`collective`].
unsafe fn messages<const N: usize>(
    all: [(bool, *const c_void, usize, i32); N],
    tag: u32,
    data_type: fwDataType,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: guaranteed by the caller.
        let request = unsafe { RequestOut::optional(request) }?;
        let (endpoint, _, size) = handle_table::comm(comm.addr())?;
        let (dtype, width) = parts(data_type)?;
        // SAFETY: guaranteed by the caller.
        let plan = unsafe { plan_of(plan) }?;
        let checked = all.into_iter().map(|(is_sent, start, count, peer)| {
            let (plan, count) = (is_sent.then_some(plan), times(count, width)?);
            // SAFETY: guaranteed by the caller.
            unsafe { CheckedMessage::new(start, count, dtype, peer, tag, plan, size) }
        });
        let mut checked = checked.collect::<Result<Vec<_>, ApiError>>()?;
        let call = match request.and_then(|request| Some((checked.pop()?, request))) {
            Some((message, request)) => SubmittedCall::Message(Box::new(message), request),
            None => SubmittedCall::Messages(checked),
        };
        group::submit(Submission { endpoint, comm: comm.addr(), call })
    })
}

/// All-reduce. recv[count] receives the reduction of all ranks' send[count]. The result has the
/// same bits on every rank. In place if send == recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwAllReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    op: fwRedOp,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::AllReduce), RawCounts::Same(count), Some(op), 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Broadcast. recv[count] receives the root's send[count]. recv has the same bits on every rank,
/// also on the root. send is used on the root only and may be NULL elsewhere. In place if
/// send == recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwBroadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Broadcast), RawCounts::Same(count), None, root);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Reduce. On the root, recv[count] receives the reduction of all ranks' send[count]. On other
/// ranks, recv is not used and may be NULL. In place if send == recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    op: fwRedOp,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Reduce), RawCounts::Same(count), Some(op), root);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Reduce-scatter. The input send[size * count] has count values for each rank. recv[count]
/// receives this rank's block of the reduction of all ranks' send. In place if
/// recv == send + rank * count: then the call writes that block of send. The other blocks keep
/// their values, except that they are rounded if the plan rounds without bias (is_unbiased).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwReduceScatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    op: fwRedOp,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::ReduceScatter), RawCounts::Same(count), Some(op), 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Reduce-scatter with blocks of different lengths: like fwReduceScatter, but the block of rank r
/// has counts[r] values. All ranks pass the same counts[size].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwReduceScatterV(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    data_type: fwDataType,
    op: fwRedOp,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::ReduceScatter), RawCounts::Given(counts), Some(op), 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// All-gather. recv[size * count] receives every rank's send[count], in order of ranks. The result
/// has the same bits on every rank. In place if send == recv + rank * count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwAllGather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::AllGather), RawCounts::Same(count), None, 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// All-gather with blocks of different lengths: like fwAllGather, but rank r sends counts[r]
/// values. All ranks pass the same counts[size].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwAllGatherV(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    data_type: fwDataType,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::AllGather), RawCounts::Given(counts), None, 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Gather. On the root, recv[size * count] receives every rank's send[count], in order of ranks. On
/// other ranks, recv is not used and may be NULL. In place on the root if
/// send == recv + root * count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwGather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Gather), RawCounts::Same(count), None, root);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Gather with blocks of different lengths: like fwGather, but rank r sends counts[r] values. All
/// ranks pass the same counts[size].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwGatherV(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    data_type: fwDataType,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Gather), RawCounts::Given(counts), None, root);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Scatter. The root's send[size * count] has count values for each rank. recv[count] receives this
/// rank's block of it. On other ranks, send is not used and may be NULL. In place on the root if
/// recv == send + root * count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwScatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Scatter), RawCounts::Same(count), None, root);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Scatter with blocks of different lengths: like fwScatter, but rank r receives counts[r] values.
/// All ranks pass the same counts[size].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwScatterV(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    data_type: fwDataType,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Scatter), RawCounts::Given(counts), None, root);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// All-to-all. Sends send[r * count .. (r + 1) * count] to each rank r. recv[size * count] receives
/// count values from each rank, in order of ranks. In place if send == recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwAllToAll(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::AllToAll), RawCounts::Same(count), None, 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// All-to-all with blocks of different lengths. Sends send_counts[r] values to each rank r, and
/// receives recv_counts[r] values from it. The blocks of send and of recv are contiguous, in order
/// of ranks. send_counts[r] of one rank must equal that rank's entry in recv_counts of rank r. Not
/// available in place.
///
/// Errors: FW_INVALID_ARGUMENT if this rank's own entries in send_counts and recv_counts differ;
/// FW_MISMATCH or FW_ABORTED if the entries of two ranks for each other differ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwAllToAllV(
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    data_type: fwDataType,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let counts_arg = RawCounts::Exchanged(send_counts, recv_counts);
    let call = (Some(Collective::AllToAll), counts_arg, None, 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Inclusive scan. recv[count] receives the reduction of send[count] over ranks 0 to this rank. In
/// place if send == recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwScan(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    op: fwRedOp,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::Scan), RawCounts::Same(count), Some(op), 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Exclusive scan. recv[count] receives the reduction of send[count] over the ranks before this
/// one. On rank 0, recv is not written and may be NULL. In place if send == recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwExclusiveScan(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    op: fwRedOp,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let call = (Some(Collective::ExclusiveScan), RawCounts::Same(count), Some(op), 0);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, (send, recv, data_type), (plan, comm, request)) }
}

/// Barrier. Finishes when all ranks have called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwBarrier(comm: fwComm_t, request: *mut fwRequest_t) -> fwResult {
    let call = (None, RawCounts::Same(0), None, 0);
    let arrays = (ptr::null(), ptr::null_mut(), FW_FLOAT32);
    // SAFETY: guaranteed by the caller.
    unsafe { collective(call, arrays, (ptr::null(), comm, request)) }
}

/// Sends count values to rank peer, which receives the same number of values with the same tag. The
/// call finishes when send may be reused; the values may not have arrived yet.
///
/// Messages match as in MPI: among messages with the same sender, receiver and tag, the first
/// fwSend matches the first fwRecv, with or without requests. Messages of different tags or peers,
/// and collectives, may be called in any order. At most 1024 sends and 1024 receives can have
/// requests at once. The receiver keeps messages that have no matching fwRecv yet in its memory, up
/// to 1024 from each rank.
///
/// Errors: a receive also returns FW_MISMATCH if it reaches its time limit while a message with an
/// unexpected tag is waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwSend(
    send: *const c_void,
    count: usize,
    data_type: fwDataType,
    peer: i32,
    tag: u32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    // SAFETY: guaranteed by the caller.
    unsafe { messages([(true, send, count, peer)], tag, data_type, plan, comm, request) }
}

/// Receives count values from rank peer. The sender's plan determines their error bound. See fwSend
/// for the matching of messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwRecv(
    recv: *mut c_void,
    count: usize,
    data_type: fwDataType,
    peer: i32,
    tag: u32,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    let (plan, recv) = (ptr::null(), recv.cast_const());
    // SAFETY: guaranteed by the caller.
    unsafe { messages([(false, recv, count, peer)], tag, data_type, plan, comm, request) }
}

/// Sends send[send_count] to rank destination and receives recv[recv_count] from rank source at the
/// same time. The arrays must not overlap. For more than two messages at once, call fwSend and
/// fwRecv in a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwSendRecv(
    send: *const c_void,
    send_count: usize,
    destination: i32,
    recv: *mut c_void,
    recv_count: usize,
    source: i32,
    data_type: fwDataType,
    tag: u32,
    plan: *const fwPlan,
    comm: fwComm_t,
) -> fwResult {
    let all =
        [(true, send, send_count, destination), (false, recv.cast_const(), recv_count, source)];
    let request = ptr::null_mut();
    // SAFETY: guaranteed by the caller.
    unsafe { messages(all, tag, data_type, plan, comm, request) }
}
