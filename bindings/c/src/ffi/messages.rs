//! Messages between two ranks, with checked arguments.

use std::ffi::c_void;
use std::ops::Range;

use foldwire::{DType, Element, Incoming, Outgoing, Plan, Rank, Report};

use super::call::{CoreCommunicator, RankNumber, existing, with_type};
use super::memory::{LentArray, bytes};
use super::started::{DynCall, running};
use crate::errors::ApiError;

/// A message to or from another rank, with checked arguments.
#[derive(Clone, Debug)]
pub(crate) struct CheckedMessage {
    is_sent: bool,
    start: *const c_void,
    count: usize,
    bytes: Range<usize>,
    dtype: DType,
    peer: Rank,
    tag: u32,
    /// The caller's plan. Exact for a message that is received.
    plan: Plan,
}

impl CheckedMessage {
    /// Checks the arguments of a message to `peer`, or from `peer` if `plan` is `None`.
    ///
    /// # Errors
    /// If the buffer or the peer is invalid.
    ///
    /// # Safety
    /// If this returns `Ok`, `count` values must exist at `start` until the call has finished.
    /// Until then nobody else may use an array that is received, and nobody may write one that is
    /// sent.
    pub(crate) unsafe fn new(
        start: *const c_void,
        count: usize,
        dtype: DType,
        peer: impl RankNumber,
        tag: u32,
        plan: Option<Plan>,
        size: usize,
    ) -> Result<Self, ApiError> {
        let peer = Rank::new(existing(peer, "rank", size)?);
        let bytes = bytes(start, count, dtype.n_bytes())?;
        if bytes.start % dtype.n_bytes() != 0 {
            return Err(ApiError::argument(format!("an array of {dtype} values is not aligned")));
        }
        let (is_sent, plan) = (plan.is_some(), plan.unwrap_or(Plan::raw()));
        Ok(Self { is_sent, start, count, bytes, dtype, peer, tag, plan })
    }

    /// Returns the address range of the array, and whether it is written.
    pub(crate) fn range(&self) -> (Range<usize>, bool) {
        (self.bytes.clone(), !self.is_sent)
    }

    /// Rank that the message is sent to; `None` for a receive.
    pub(crate) fn receiver(&self) -> Option<Rank> {
        self.is_sent.then_some(self.peer)
    }

    /// Returns whether the peer is `rank`.
    pub(crate) fn is_with(&self, rank: Rank) -> bool {
        self.peer == rank
    }
}

/// Starts a message.
///
/// # Errors
/// If too many messages are in progress, or core refuses the message.
pub(crate) fn start(
    comm: &CoreCommunicator,
    message: &CheckedMessage,
) -> Result<Box<dyn DynCall>, ApiError> {
    with_type!(message.dtype, T => start_typed::<T>(comm, message))
}

fn start_typed<T: Element>(
    comm: &CoreCommunicator,
    message: &CheckedMessage,
) -> Result<Box<dyn DynCall>, ApiError> {
    let &CheckedMessage { is_sent, start, count, peer, tag, ref plan, .. } = message;
    // SAFETY: guaranteed by the caller of `CheckedMessage::new`.
    let values = unsafe { LentArray::<T>::lend(start, count) }?;
    Ok(running::<T, _>(if is_sent {
        comm.start_send(values, peer, tag, plan)?
    } else {
        comm.start_recv(values, peer, tag)?
    }))
}

/// Sends and receives several messages concurrently, and waits for all of them.
///
/// # Errors
/// If the messages differ in type, the sent ones differ in plan, arrays overlap, or the call fails.
pub(crate) fn exchange(
    comm: &CoreCommunicator,
    messages: &[CheckedMessage],
) -> Result<Report, ApiError> {
    let Some(first) = messages.first() else { return Ok(Report::default()) };
    let sent = messages.iter().find(|message| message.is_sent);
    let plan = sent.map_or(Plan::raw(), |message| message.plan);
    for message in messages {
        if message.dtype != first.dtype || message.is_sent && message.plan != plan {
            let message = "the messages of a group must have one type, and those that are sent \
                           one plan; make one group for each";
            return Err(ApiError::usage(message));
        }
    }
    check_apart(messages.iter().map(CheckedMessage::range))?;
    with_type!(first.dtype, T => exchange_typed::<T>(comm, messages, &plan))
}

/// Checks that no written array overlaps another array. Each item is the address range of an array,
/// and whether it is written.
///
/// # Errors
/// If a written array overlaps another one.
pub(crate) fn check_apart(
    ranges: impl Iterator<Item = (Range<usize>, bool)>,
) -> Result<(), ApiError> {
    let mut ranges: Vec<(Range<usize>, bool)> =
        ranges.filter(|(range, _)| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|(range, _)| range.start);
    // Largest end address of the arrays so far, and of the written ones among them.
    let (mut end, mut end_written) = (0, 0);
    for (range, is_written) in ranges {
        if range.start < if is_written { end } else { end_written } {
            let message = "an array that a call of the group writes overlaps another array of \
                           the group";
            return Err(ApiError::argument(message));
        }
        end = end.max(range.end);
        if is_written {
            end_written = end_written.max(range.end);
        }
    }
    Ok(())
}

fn exchange_typed<T: Element>(
    comm: &CoreCommunicator,
    messages: &[CheckedMessage],
    plan: &Plan,
) -> Result<Report, ApiError> {
    let lent = messages.iter().map(|message| {
        // SAFETY: guaranteed by the caller of `CheckedMessage::new`.
        let values = unsafe { LentArray::<T>::lend(message.start, message.count) }?;
        Ok((message, values))
    });
    let mut lent = lent.collect::<Result<Vec<_>, ApiError>>()?;
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for (message, values) in &mut lent {
        if message.is_sent {
            sends.push(Outgoing::new(message.peer, message.tag, (*values).as_ref()));
        } else {
            recvs.push(Incoming::new(message.peer, message.tag, values.as_mut()));
        }
    }
    Ok(comm.exchange(&mut sends, &mut recvs, plan)?)
}
