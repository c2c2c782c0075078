//! The collectives, and messages between two ranks.
//!
//! In the shape of nccl.h: what is sent, what is received, how many, of what type; then a plan,
//! the communicator, and where the request goes. Each function only names its kind of call.

use std::ffi::c_void;

use foldwire::op::OpCode;

use super::call::{CheckedCollective, CollectiveKind, ValueCounts, dtype};
use super::memory::{RequestOut, counts, read};
use super::messages::CheckedMessage;
use super::operations::ReduceOperation;
use super::types::*;
use crate::errors::ApiError;
use crate::group::{Submission, SubmittedCall, catch_call_errors};
use crate::plan::EXACT;
use crate::{group, handle_table};

/// How the caller says how long arrays are.
enum RawCounts {
    Same(usize),
    Given(*const usize),
    Exchanged(*const usize, *const usize),
}

/// The arguments of a collective.
struct RawArguments {
    kind: CollectiveKind,
    counts_arg: RawCounts,
    send: *const c_void,
    recv: *mut c_void,
    data_type: fwDataType,
    op: Option<fwRedOp>,
    root: i32,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
}

/// # Safety
/// As [`read`], but that null is exact.
unsafe fn plan_of(plan: *const fwPlan) -> Result<fwPlan, ApiError> {
    if plan.is_null() {
        return Ok(EXACT);
    }
    // SAFETY: by the caller's promise.
    unsafe { read(plan, EXACT, "fwPlan") }
}

/// # Safety
/// The head of foldwire.h: what pointers point to is there, the arrays until the call is over.
unsafe fn collective(arguments: RawArguments) -> fwResult {
    let RawArguments {
        kind,
        counts_arg,
        send,
        recv,
        data_type,
        op: code,
        root,
        plan,
        comm,
        request,
    } = arguments;
    catch_call_errors(|| {
        // SAFETY: by the caller's promise.
        let place = unsafe { RequestOut::optional(request) }?;
        let (endpoint, rank, size) = handle_table::comm(comm.addr())?;
        let dtype = dtype(data_type)?;
        let op = code.map_or(Ok(ReduceOperation::Known(OpCode::None)), ReduceOperation::of)?;
        // SAFETY: by the caller's promise, there is a count for each rank.
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
                kind,
                counts_arg,
                send,
                recv,
                dtype,
                op,
                root,
                plan,
                (rank, size),
            )?
        };
        let call = SubmittedCall::Collective(Box::new(call), place);
        group::submit(Submission { endpoint, comm: comm.addr(), call })
    })
}

/// Messages of these directions: whether each is sent, its array, the peer. One alone may have a
/// request.
///
/// # Safety
/// As [`collective`].
unsafe fn messages<const N: usize>(
    all: [(bool, *const c_void, usize, i32); N],
    tag: u32,
    data_type: fwDataType,
    plan: *const fwPlan,
    comm: fwComm_t,
    request: *mut fwRequest_t,
) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: by the caller's promise.
        let place = unsafe { RequestOut::optional(request) }?;
        let (endpoint, _, size) = handle_table::comm(comm.addr())?;
        let dtype = dtype(data_type)?;
        // SAFETY: by the caller's promise.
        let plan = unsafe { plan_of(plan) }?;
        let made = all.into_iter().map(|(is_sent, start, count, peer)| {
            let plan = is_sent.then_some(plan);
            // SAFETY: by the caller's promise.
            unsafe { CheckedMessage::new(start, count, dtype, peer, tag, plan, size) }
        });
        let mut made = made.collect::<Result<Vec<_>, ApiError>>()?;
        let call = match place.and_then(|place| Some((made.pop()?, place))) {
            Some((message, place)) => SubmittedCall::Message(Box::new(message), place),
            None => SubmittedCall::Messages(made),
        };
        group::submit(Submission { endpoint, comm: comm.addr(), call })
    })
}

/// recv, of count values, becomes the reduction of all ranks' send, the same bits on every rank. In
/// place if send == recv.
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
    let (kind, counts_arg) = (CollectiveKind::AllReduce, RawCounts::Same(count));
    let (op, root) = (Some(op), 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// recv, of count values, becomes the root's send, the same bits on every rank, the root's
/// included. send is looked at on the root only. In place if send == recv.
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
    let (kind, counts_arg) = (CollectiveKind::Broadcast, RawCounts::Same(count));
    let (op, root) = (None, root);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// The root's recv, of count values, becomes the reduction of all ranks' send; recv is not touched
/// elsewhere and may be NULL. In place if send == recv.
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
    let (kind, counts_arg) = (CollectiveKind::Reduce, RawCounts::Same(count));
    let (op, root) = (Some(op), root);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// recv, of count values, becomes this rank's share of the reduction of all ranks' send, of count
/// values for each rank. In place if recv is that share of send, which is written then; what else
/// is in send is unchanged, or rounded if the plan rounds without bias.
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
    let (kind, counts_arg) = (CollectiveKind::ReduceScatter, RawCounts::Same(count));
    let (op, root) = (Some(op), 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// As fwReduceScatter, where the share of rank r has counts[r] values. All ranks give the same
/// counts, one for each rank.
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
    let (kind, counts_arg) = (CollectiveKind::ReduceScatter, RawCounts::Given(counts));
    let (op, root) = (Some(op), 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// recv, of count values for each rank, becomes all ranks' send of count values, in their order,
/// the same bits on every rank. In place if send is this rank's share of recv.
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
    let (kind, counts_arg) = (CollectiveKind::AllGather, RawCounts::Same(count));
    let (op, root) = (None, 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// As fwAllGather, where the share of rank r has counts[r] values. All ranks give the same counts,
/// one for each rank.
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
    let (kind, counts_arg) = (CollectiveKind::AllGather, RawCounts::Given(counts));
    let (op, root) = (None, 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// The root's recv, of count values for each rank, becomes all ranks' send of count values, in
/// their order; recv is not touched elsewhere and may be NULL. On the root send may be its share of
/// recv.
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
    let (kind, counts_arg) = (CollectiveKind::Gather, RawCounts::Same(count));
    let (op, root) = (None, root);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// As fwGather, where the share of rank r has counts[r] values. All ranks give the same counts, one
/// for each rank.
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
    let (kind, counts_arg) = (CollectiveKind::Gather, RawCounts::Given(counts));
    let (op, root) = (None, root);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// recv, of count values, becomes this rank's share of the root's send, of count values for each
/// rank; send is not looked at elsewhere and may be NULL. On the root recv may be its share of
/// send.
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
    let (kind, counts_arg) = (CollectiveKind::Scatter, RawCounts::Same(count));
    let (op, root) = (None, root);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// As fwScatter, where the share of rank r has counts[r] values. All ranks give the same counts,
/// one for each rank.
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
    let (kind, counts_arg) = (CollectiveKind::Scatter, RawCounts::Given(counts));
    let (op, root) = (None, root);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// Sends count values to each rank, those for rank r at send + r * count, and receives as many from
/// each, in the order of ranks. In place if send == recv.
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
    let (kind, counts_arg) = (CollectiveKind::AllToAll, RawCounts::Same(count));
    let (op, root) = (None, 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// Sends send_counts[r] values to rank r, and receives recv_counts[r] values from it; they lie one
/// after the other by rank. What one rank sends to another must be as many as that expects.
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
    let (kind, counts_arg) =
        (CollectiveKind::AllToAll, RawCounts::Exchanged(send_counts, recv_counts));
    let (op, root) = (None, 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// recv, of count values, becomes the reduction of this rank's send and those of all ranks before
/// it. In place if send == recv.
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
    let (kind, counts_arg) = (CollectiveKind::Scan, RawCounts::Same(count));
    let (op, root) = (Some(op), 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// recv, of count values, becomes the reduction of the send of all ranks before this one. On rank 0
/// recv is not touched and may be NULL. In place if send == recv.
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
    let (kind, counts_arg) = (CollectiveKind::ExclusiveScan, RawCounts::Same(count));
    let (op, root) = (Some(op), 0);
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// Is over when all ranks have called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwBarrier(comm: fwComm_t, request: *mut fwRequest_t) -> fwResult {
    let (kind, counts_arg, data_type) = (CollectiveKind::Barrier, RawCounts::Same(0), FW_FLOAT32);
    let (op, root, send, recv) = (None, 0, std::ptr::null(), std::ptr::null_mut());
    let plan = std::ptr::null();
    // SAFETY: the caller's promise.
    unsafe {
        collective(RawArguments {
            kind,
            counts_arg,
            send,
            recv,
            data_type,
            op,
            root,
            plan,
            comm,
            request,
        })
    }
}

/// Sends count values to a rank, which receives as many with the same tag. It is over when send may
/// be used again, whether the values have arrived or not. Messages match as in MPI: from one rank
/// to another, of those with the same tag, the first that was sent comes to the first fwRecv, with
/// requests or without. Ranks may make messages of other tags and ranks, and collectives, in any
/// order. At most 1024 that are sent have requests at once, and as many that are received. A
/// message for which no fwRecv has come is held in its receiver's memory, up to 1024 of each rank.
///
/// FW_MISMATCH: of a receive also if it waits beyond its time limit, and a message with a tag came
/// that no receive was for.
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
    // SAFETY: the caller's promise.
    unsafe { messages([(true, send, count, peer)], tag, data_type, plan, comm, request) }
}

/// Receives count values from a rank. What they may have lost is the sender's plan.
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
    let (plan, recv) = (std::ptr::null(), recv.cast_const());
    // SAFETY: the caller's promise.
    unsafe { messages([(false, recv, count, peer)], tag, data_type, plan, comm, request) }
}

/// Sends to one rank and receives from another side by side. The arrays must not overlap. For more
/// of both at once: fwSend and fwRecv in a group.
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
    let request = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { messages(all, tag, data_type, plan, comm, request) }
}
