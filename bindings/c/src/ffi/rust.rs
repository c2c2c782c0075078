//! The API for bindings to other languages that are written in Rust.
//!
//! It offers the functions of the header, with communicators instead of handles, and core's errors,
//! reports and plans. The caller owns the memory, as in C: it lends arrays by [`RawArray::new`].
//! So all bindings share one set of checks, and generic code is compiled once for all of them.

use foldwire::compress::Layout;
use foldwire::op::OpCode;
use foldwire::plan::PlanSpec;
use foldwire::{Bound, Collective, DType, Element, Plan, Report};

pub use super::call::{CoreCommunicator, ValueCounts};
pub use super::codec::decompress_any as decompress;
pub use super::communicators::seconds;
pub use super::device::{ArrayMemory, DeviceStream};
pub use super::started::DynCall;
pub use super::sums::repro_sums;
pub use crate::endpoint::with_messages as communicator;
pub use crate::transport::stop_check::with_stop_check;
pub use crate::transport::{
    AnyTransport, GrownCommunicator, admit, from_store, join, join_env, join_store, new_unique_id,
    rejoin, threads,
};

use super::call::{CheckedCollective, with_float};
use super::codec::compress_array;
use super::memory::LentArray;
use super::messages::{self, CheckedMessage, check_apart};
use super::operations::{ReduceOperation, operation};
use crate::errors::ApiError;

/// Address and length of an array that the caller lends to functions and calls. Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawArray {
    address: usize,
    n_values: usize,
}

impl RawArray {
    /// Lends an array. The address of an empty one is ignored.
    ///
    /// # Safety
    /// The array must exist until all functions that get it have returned, and all calls that get
    /// it have finished or are dropped. Until then nobody else may write it, nor read it if such a
    /// call writes it.
    #[must_use]
    pub const unsafe fn new(address: usize, n_values: usize) -> Self {
        Self { address, n_values }
    }

    /// Returns the number of values.
    #[must_use]
    pub const fn n_values(self) -> usize {
        self.n_values
    }

    pub(super) const fn start(self) -> *const std::ffi::c_void {
        std::ptr::with_exposed_provenance(self.address)
    }

    /// Address range, of values of `n_bytes` bytes.
    const fn range(self, n_bytes: usize) -> std::ops::Range<usize> {
        self.address..self.address.saturating_add(self.n_values.saturating_mul(n_bytes))
    }

    pub(super) fn lend<T: Element>(self) -> Result<LentArray<T>, ApiError> {
        // SAFETY: guaranteed by the caller of `new`.
        unsafe { LentArray::lend(self.start(), self.n_values) }
    }
}

/// Calls `then` with the values of an array.
///
/// # Errors
/// If the address is null or misaligned, or the length overflows; otherwise the errors of `then`.
pub fn lent<T: Element, R>(
    array: RawArray,
    then: impl FnOnce(&[T]) -> Result<R, ApiError>,
) -> Result<R, ApiError> {
    then(array.lend()?.as_ref())
}

/// Compresses an array by a plan, like fwCompress. The layout describes the array. Also returns a
/// value that seems to be a fill value.
///
/// # Errors
/// As fwCompress; if the layout has another number of values.
pub fn compress(
    array: RawArray,
    dtype: DType,
    layout: &Layout,
    plan: &PlanSpec,
) -> Result<(Vec<u8>, Option<f64>), ApiError> {
    // SAFETY: guaranteed by the caller of `RawArray::new`.
    unsafe { compress_array(array.start(), array.n_values, dtype, layout, plan) }
}

/// Arguments of a collective.
#[derive(Clone, Debug)]
pub struct CollectiveArgs {
    /// The collective; `None` for a barrier.
    pub collective: Option<Collective>,
    /// Array lengths.
    pub counts: ValueCounts,
    /// The send array.
    pub send: RawArray,
    /// The receive array.
    pub recv: RawArray,
    /// Type of the values.
    pub dtype: DType,
    /// The operation; `OpCode::None` for calls that do not reduce.
    pub op: OpCode,
    /// The root; 0 for calls without a root.
    pub root: usize,
    /// The plan.
    pub plan: Plan,
    /// Location of both arrays.
    pub memory: ArrayMemory,
}

/// Arguments of a message to or from another rank.
#[derive(Clone, Debug)]
pub struct MessageArgs {
    /// The array.
    pub array: RawArray,
    /// Type of the array's values.
    pub dtype: DType,
    /// The receiving rank, or the sending rank if `plan` is `None`.
    pub peer: usize,
    /// The tag.
    pub tag: u32,
    /// The plan of a message that is sent; `None` for a message that is received.
    pub plan: Option<Plan>,
}

/// Looks up a collective by the name that Python has for it, for example `all_reduce`. `None` is
/// the barrier.
///
/// # Errors
/// If there is no collective with this name.
pub fn collective(name: &str) -> Result<Option<Collective>, ApiError> {
    if name == "barrier" {
        return Ok(None);
    }
    let known = Collective::ALL.into_iter().find(|known| known.name().replace('-', "_") == name);
    known.map(Some).ok_or_else(|| ApiError::argument(format!("unknown collective {name}")))
}

/// Starts a collective.
///
/// # Errors
/// If an argument is invalid, or too many calls are in progress.
pub fn start(comm: &CoreCommunicator, args: &CollectiveArgs) -> Result<Box<dyn DynCall>, ApiError> {
    let &CollectiveArgs { collective, send, recv, dtype, op, root, plan, memory, .. } = args;
    let (counts, place) = (args.counts.clone(), (comm.rank().index(), comm.size()));
    counts.check_size(comm.size())?;
    let (send_start, recv_start) = (send.start(), recv.start().cast_mut());
    let op = ReduceOperation::Known(op);
    // SAFETY: `check_lengths` below compares the arrays' lengths with those that the call uses,
    // before it is started. The rest is guaranteed by the caller of `RawArray::new`.
    let checked = unsafe {
        CheckedCollective::new(
            collective, counts, send_start, recv_start, dtype, op, root, plan, place,
        )
    }?;
    checked.check_lengths([send.n_values, recv.n_values])?;
    checked.start(comm, memory)
}

/// Starts to send or receive a message.
///
/// # Errors
/// If an argument is invalid, or too many messages are in progress.
pub fn start_message(
    comm: &CoreCommunicator,
    args: &MessageArgs,
) -> Result<Box<dyn DynCall>, ApiError> {
    messages::start(comm, &message(comm, args)?)
}

/// Sends and receives several messages concurrently, and waits for all of them.
///
/// # Errors
/// If the messages differ in type or plan, if arrays overlap, or if the call fails.
pub fn exchange(comm: &CoreCommunicator, all: &[MessageArgs]) -> Result<Report, ApiError> {
    let all = all.iter().map(|args| message(comm, args)).collect::<Result<Vec<_>, _>>()?;
    messages::exchange(comm, &all)
}

/// Checks the arguments of a message.
fn message(comm: &CoreCommunicator, args: &MessageArgs) -> Result<CheckedMessage, ApiError> {
    let &MessageArgs { array, dtype, peer, tag, plan } = args;
    let (start, count, size) = (array.start(), array.n_values, comm.size());
    // SAFETY: guaranteed by the caller of `RawArray::new`.
    unsafe { CheckedMessage::new(start, count, dtype, peer, tag, plan, size) }
}

/// All-reduces several arrays of floats in place, as one group call. Each array has its own error
/// bound, or else the plan's.
///
/// `feedback` enables error feedback. It has one array for each array, with the rounding errors of
/// earlier calls: `f32` for 16-bit floats, otherwise of the same type.
///
/// # Errors
/// If an argument is invalid, arrays overlap, or the call fails.
pub fn all_reduce_group(
    comm: &CoreCommunicator,
    arrays: &[(RawArray, Option<Bound>)],
    feedback: Option<&[RawArray]>,
    dtype: DType,
    op: OpCode,
    plan: &Plan,
) -> Result<Vec<Report>, ApiError> {
    let refused = |other| format!("group calls support floats, not {other}");
    with_float!(dtype, refused, T => group::<T>(comm, arrays, feedback, op, plan))
}

/// [`all_reduce_group`] for one type of values.
fn group<T: Element<Residue: Element>>(
    comm: &CoreCommunicator,
    arrays: &[(RawArray, Option<Bound>)],
    feedback: Option<&[RawArray]>,
    op: OpCode,
    plan: &Plan,
) -> Result<Vec<Report>, ApiError> {
    let op = operation::<T>(op)?;
    let written = arrays.iter().map(|(array, _)| array.range(T::BYTES));
    let residues = feedback.into_iter().flatten().map(|array| array.range(T::Residue::BYTES));
    check_apart(written.chain(residues).map(|range| (range, true)))?;
    // A lossless codec accepts any bound.
    let any = plan.codec.is_exact().then_some(Bound::Absolute(1.0));
    let none = || {
        ApiError::argument("an array of the group has no bound; pass one, for example `rel:1e-4`")
    };
    let mut lent = Vec::new();
    for (array, bound) in arrays {
        lent.push((array.lend::<T>()?, bound.or(plan.bound).or(any).ok_or_else(none)?));
    }
    let mut arrays: Vec<(&mut [T], Bound)> =
        lent.iter_mut().map(|(values, bound)| (values.as_mut(), *bound)).collect();
    let Some(feedback) = feedback else {
        return Ok(comm.all_reduce_group(&mut arrays, op, plan)?);
    };
    let residues = feedback.iter().map(|array| array.lend::<T::Residue>());
    let mut residues = residues.collect::<Result<Vec<_>, ApiError>>()?;
    let mut residues: Vec<&mut [T::Residue]> = residues.iter_mut().map(AsMut::as_mut).collect();
    Ok(comm.all_reduce_group_with_feedback(&mut arrays, &mut residues, op, plan)?)
}
