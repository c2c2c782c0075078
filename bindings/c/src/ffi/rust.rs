//! The API for bindings to other languages that are written in Rust.
//!
//! It offers the functions of the header, with communicators instead of handles, and core's errors,
//! reports and plans. The caller owns the memory, as in C. So all bindings share one set of checks,
//! and generic code is compiled once for all of them.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(doc)]
use foldwire::SharedCommunicator;
use foldwire::compress::Layout;
use foldwire::grow::Admission;
use foldwire::op::OpCode;
use foldwire::plan::PlanSpec;
use foldwire::store::{Store, StoreError};
use foldwire::{Bound, Collective, Config, DType, Element, Plan, Report};
use foldwire_bootstrap::StorePlace;
use foldwire_threads::World;

use super::call::{CheckedCollective, CoreCommunicator, ValueCounts};
use super::codec::{self, ValueBytes};
pub use super::communicators::seconds;
pub use super::device::{ArrayMemory, DeviceStream};
use super::memory::LentArray;
use super::messages::{self, CheckedMessage};
use super::operations::{ReduceOperation, operation};
use super::started::DynCall;
use super::types::{FW_UNSUPPORTED, fwDataType};
use crate::endpoint::with_messages;
use crate::errors::ApiError;
use crate::transport::{self, AnyTransport, GrownCommunicator};

/// Largest number of ranks that are threads of one process.
const MAX_RANKS: usize = 1024;

/// Transport endpoint of one rank.
pub struct RankEndpoint(AnyTransport);

impl RankEndpoint {
    /// Creates the endpoints of `n_ranks` ranks that are threads of this process. `rate` limits
    /// each rank's link, in bytes per second in each direction. `None`: as fast as memory.
    ///
    /// # Errors
    /// If `n_ranks` is out of range or `rate` is not positive and finite.
    pub fn threads(n_ranks: usize, rate: Option<f64>) -> Result<Vec<Self>, ApiError> {
        let Some(rate) = rate else {
            return Ok(transport::threads(n_ranks)?.into_iter().map(Self).collect());
        };
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(ApiError::argument(format!(
                "{rate} is not a valid link rate in bytes per second"
            )));
        }
        if !(1..=MAX_RANKS).contains(&n_ranks) {
            return Err(ApiError::argument(format!(
                "{n_ranks} ranks; there can be 1 to {MAX_RANKS}"
            )));
        }
        let endpoints = World::new(n_ranks).link_rate(rate).endpoints().into_iter();
        Ok(endpoints.map(|endpoint| Self(AnyTransport::Threads(Box::new(endpoint)))).collect())
    }

    /// Joins the ranks that pass the same unique id, and waits for them up to `limit`.
    ///
    /// # Errors
    /// If the id is invalid, or a rank is missing after `limit`.
    pub fn join(id: &[u8], n_ranks: usize, rank: usize, limit: Duration) -> Result<Self, ApiError> {
        let n_bytes = id.len();
        let wrong = |_| ApiError::argument(format!("a unique id has 128 bytes, not {n_bytes}"));
        Ok(Self(transport::join(&id.try_into().map_err(wrong)?, n_ranks, rank, limit)?))
    }

    /// Joins the processes that a launcher started together with this one, and waits for them up to
    /// `limit`.
    ///
    /// # Errors
    /// If the launcher's environment variables are invalid, or a rank is missing after `limit`.
    pub fn from_env(limit: Duration) -> Result<Self, ApiError> {
        Ok(Self(transport::join_env(limit)?))
    }

    /// Joins the processes that meet in a store.
    ///
    /// # Errors
    /// If the store fails, the place is invalid, or a rank is missing after its limit.
    pub fn from_store(store: &mut dyn Store, place: StorePlace) -> Result<Self, ApiError> {
        Ok(Self(transport::join_store(store, place)?))
    }
}

/// Converts an error of a store.
#[must_use]
pub fn store_fault(error: StoreError) -> ApiError {
    transport::from_store(error)
}

/// Creates a unique id, like fwGetUniqueId.
///
/// # Errors
/// If this host cannot listen at the address that the environment names.
pub fn unique_id() -> Result<Vec<u8>, ApiError> {
    Ok(transport::new_unique_id()?.to_vec())
}

/// Runs `then` with a check that can stop its calls. A call that waits polls `goes_on` whenever it
/// polls the network. If `goes_on` returns false, the call fails and its communicator is unusable.
pub fn with_stop_check<R>(goes_on: Box<dyn FnMut() -> bool>, then: impl FnOnce() -> R) -> R {
    transport::stop_check::with_stop_check(goes_on, then)
}

impl fmt::Debug for RankEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RankEndpoint")
    }
}

/// Address and length of an array of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawArray {
    /// Address of the first value. Ignored for an empty array.
    pub address: usize,
    /// Number of values.
    pub n_values: usize,
}

impl RawArray {
    pub(super) const fn start(self) -> *const std::ffi::c_void {
        std::ptr::with_exposed_provenance(self.address)
    }
}

/// Calls `then` with the values of an array.
///
/// # Errors
/// If the address is null or misaligned, or the length overflows; otherwise the errors of `then`.
///
/// # Safety
/// The array must exist, and nobody may write it during the call.
pub unsafe fn lent<T: Element, R>(
    array: RawArray,
    then: impl FnOnce(&[T]) -> Result<R, ApiError>,
) -> Result<R, ApiError> {
    // SAFETY: guaranteed by the caller.
    let values = unsafe { LentArray::<T>::lend(array.start(), array.n_values) }?;
    then(values.as_ref())
}

/// Compresses an array by a plan, like fwCompress. The layout describes the array.
///
/// # Errors
/// As fwCompress; if the layout has another number of values.
///
/// # Safety
/// The array must exist, and nobody may write it during the call.
pub unsafe fn compress(
    array: RawArray,
    dtype: DType,
    layout: &Layout,
    plan: &PlanSpec,
) -> Result<(Vec<u8>, Option<f64>), ApiError> {
    let dtype = dtype as fwDataType;
    // SAFETY: guaranteed by the caller.
    unsafe { codec::compress_array(array.start(), array.n_values, dtype, layout, plan) }
}

/// Decompresses an array of any type, and returns the memory of its values.
///
/// # Errors
/// If the bytes are damaged or were not made by [`compress`].
pub fn decompress(bytes: &[u8]) -> Result<Box<dyn ValueBytes>, ApiError> {
    codec::decompress_any(bytes)
}

/// Array lengths of a collective, in values.
#[derive(Clone, Debug)]
pub enum CountArgs {
    /// Length of the whole array of a reduction, or of one rank's block.
    Same(usize),
    /// Length of each rank's block.
    Given(Vec<usize>),
    /// Lengths of the blocks to each rank, and of the blocks from each rank.
    Exchanged(Vec<usize>, Vec<usize>),
}

/// Arguments of a collective.
#[derive(Clone, Debug)]
pub struct CollectiveArgs {
    /// The collective; `None` for a barrier.
    pub collective: Option<Collective>,
    /// Array lengths.
    pub lengths: CountArgs,
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

/// Converts a number to its C type.
fn number(n: usize, what: &str) -> Result<i32, ApiError> {
    i32::try_from(n).map_err(|_| ApiError::argument(format!("{what} {n} is too large")))
}

/// One rank of a communicator, for values of all types. Only one thread at a time may use the
/// communicators of one endpoint.
pub struct ErasedCommunicator(CoreCommunicator);

impl fmt::Debug for ErasedCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A communicator of a group that has taken in newcomers.
#[derive(Debug)]
pub struct GrownGroup {
    /// The communicator.
    pub comm: ErasedCommunicator,
    /// Number of times that the group has grown.
    pub generation: u64,
    /// The survivors' bytes for newcomers.
    pub facts: Vec<u8>,
    /// By rank, the rank in the group before; `None` for a newcomer.
    pub old_ranks: Vec<Option<u32>>,
}

impl GrownGroup {
    fn of(grown: GrownCommunicator) -> Self {
        let GrownCommunicator { comm, generation, facts, old_ranks } = grown;
        Self { comm: ErasedCommunicator(comm), generation, facts, old_ranks }
    }
}

impl ErasedCommunicator {
    pub(super) const fn core(&self) -> &CoreCommunicator {
        &self.0
    }

    /// Creates the communicator of all ranks of an endpoint.
    ///
    /// # Errors
    /// The errors of [`SharedCommunicator::with_config`].
    pub fn new(link: RankEndpoint, config: Config, n_calls: usize) -> Result<Self, ApiError> {
        Ok(Self(with_messages(link.0, config, n_calls)?))
    }

    /// Returns this rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank().index()
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Returns the index range of this rank's block in an array of `n_values` values.
    #[must_use]
    pub fn share(&self, n_values: usize) -> std::ops::Range<usize> {
        self.0.share(n_values)
    }

    /// Returns the largest number of calls in progress at once.
    #[must_use]
    pub fn n_calls(&self) -> usize {
        self.0.n_calls()
    }

    /// Returns whether an earlier call has failed and made the communicator unusable.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// Calls `then`, with another time limit: operations that it starts fail after `timeout`
    /// without progress. `None` keeps the communicator's time limit.
    pub fn within<R>(&self, timeout: Option<Duration>, then: impl FnOnce(&Self) -> R) -> R {
        let Some(timeout) = timeout else { return then(self) };
        self.0.set_timeout(timeout);
        let made = then(self);
        self.0.set_timeout(self.0.config().timeout);
        made
    }

    /// Advances all calls of the endpoint. Returns whether a call made progress.
    pub fn progress(&self) -> bool {
        self.0.progress()
    }

    /// Splits the communicator, like [`SharedCommunicator::split`].
    ///
    /// # Errors
    /// The errors of [`SharedCommunicator::split`].
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> Result<Option<Self>, ApiError> {
        Ok(self.0.split(color, key, n_calls)?.map(Self))
    }

    /// Shrinks the communicator to the ranks that answer, like [`SharedCommunicator::shrink`].
    ///
    /// # Errors
    /// The errors of [`SharedCommunicator::shrink`].
    pub fn shrink(self, patience: Duration) -> Result<Self, ApiError> {
        let n_calls = self.0.n_calls();
        Ok(Self(self.0.shrink(patience, n_calls)?))
    }

    /// Survivors' side of a grow: forms a group of the ranks that call this and of newcomers that
    /// wait in the store, as `foldwire_tcp::admit` does.
    ///
    /// # Errors
    /// The errors of `foldwire_tcp::admit`.
    pub fn admit(
        self,
        store: &mut dyn Store,
        job: &str,
        wanted: &Admission<'_>,
    ) -> Result<GrownGroup, ApiError> {
        Ok(GrownGroup::of(transport::admit(self.0, store, job, wanted)?))
    }

    /// Newcomer's side of a grow: waits until a group admits this process.
    ///
    /// # Errors
    /// The errors of `foldwire_tcp::rejoin`.
    pub fn rejoin(
        store: &mut dyn Store,
        job: &str,
        limit: Duration,
        config: Config,
        n_calls: usize,
    ) -> Result<GrownGroup, ApiError> {
        Ok(GrownGroup::of(transport::rejoin(store, job, limit, config, n_calls)?))
    }

    /// Starts a collective.
    ///
    /// # Errors
    /// If an argument is invalid, or too many calls are in progress.
    ///
    /// # Safety
    /// The arrays must exist, with the stated lengths, until the call has finished or is dropped.
    /// Until then nobody else may use the receive array, nor write the send array.
    pub unsafe fn start(&self, call: &CollectiveArgs) -> Result<ErasedCall, ApiError> {
        let CollectiveArgs { collective, lengths, dtype, op, root, plan, memory, .. } = call;
        let size = self.size();
        let complete = |counts: &Vec<usize>| match counts.len() {
            n if n == size => Ok(Rc::from(&counts[..])),
            n => Err(ApiError::argument(format!("there are {n} counts for {size} ranks"))),
        };
        let counts = match lengths {
            CountArgs::Same(n_values) => ValueCounts::Same(*n_values),
            CountArgs::Given(counts) => ValueCounts::Given(complete(counts)?),
            CountArgs::Exchanged(to, from) => {
                ValueCounts::Exchanged(complete(to)?, complete(from)?)
            }
        };
        // Each array must have exactly the length that the call uses.
        let (send, recv) = (call.send.start(), call.recv.start().cast_mut());
        let (root, place) = (number(*root, "root")?, (self.rank(), size));
        let op = ReduceOperation::Known(*op);
        // SAFETY: `check_lengths` below compares the arrays' lengths with those that the call uses,
        // before it is started. The rest is guaranteed by the caller.
        let checked = unsafe {
            CheckedCollective::new(*collective, counts, send, recv, *dtype, op, root, *plan, place)
        }?;
        checked.check_lengths([call.send.n_values, call.recv.n_values])?;
        Ok(ErasedCall(checked.start(&self.0, *memory)?))
    }

    /// Starts to send or receive a message.
    ///
    /// # Errors
    /// If an argument is invalid, or too many messages are in progress.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    pub unsafe fn start_message(&self, args: &MessageArgs) -> Result<ErasedCall, ApiError> {
        // SAFETY: guaranteed by the caller.
        let message = unsafe { self.message(args) }?;
        Ok(ErasedCall(messages::start(&self.0, &message)?))
    }

    /// Checks the arguments of a message.
    ///
    /// # Safety
    /// As for [`CheckedMessage::new`].
    unsafe fn message(&self, args: &MessageArgs) -> Result<CheckedMessage, ApiError> {
        let MessageArgs { array, dtype, peer, tag, plan } = args;
        let peer = number(*peer, "rank")?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            CheckedMessage::new(
                array.start(),
                array.n_values,
                *dtype,
                peer,
                *tag,
                *plan,
                self.size(),
            )
        }
    }

    /// Sends and receives several messages concurrently, and waits for all of them.
    ///
    /// # Errors
    /// If the messages differ in type or plan, if arrays overlap, or if the call fails.
    ///
    /// # Safety
    /// The arrays must exist. During the call nobody else may use the arrays that are received, nor
    /// write the arrays that are sent.
    pub unsafe fn exchange(&self, messages: &[MessageArgs]) -> Result<Report, ApiError> {
        // SAFETY: guaranteed by the caller.
        let messages = messages.iter().map(|args| unsafe { self.message(args) });
        let messages = messages.collect::<Result<Vec<_>, ApiError>>()?;
        messages::exchange(&self.0, &messages)
    }

    /// All-reduces several arrays of floats in place, as one group call. Each array has its own
    /// error bound, or else the plan's.
    ///
    /// `feedback` enables error feedback. It has one array for each array, with the rounding errors
    /// of earlier calls: `f32` for 16-bit floats, otherwise of the same type.
    ///
    /// # Errors
    /// If an argument is invalid, or the call fails.
    ///
    /// # Safety
    /// The arrays must exist and not overlap, and nobody else may use them during the call.
    pub unsafe fn all_reduce_group(
        &self,
        arrays: &[(RawArray, Option<Bound>)],
        feedback: Option<&[RawArray]>,
        dtype: DType,
        op: OpCode,
        plan: &Plan,
    ) -> Result<Vec<Report>, ApiError> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match dtype {
                DType::F32 => self.group::<f32>(arrays, feedback, op, plan),
                DType::F64 => self.group::<f64>(arrays, feedback, op, plan),
                DType::F16 => self.group::<foldwire::f16>(arrays, feedback, op, plan),
                DType::Bf16 => self.group::<foldwire::bf16>(arrays, feedback, op, plan),
                other => {
                    let message = format!("group calls support floats, not {other}");
                    Err(ApiError::new(FW_UNSUPPORTED, message))
                }
            }
        }
    }

    /// [`all_reduce_group`](Self::all_reduce_group) for one type of values.
    ///
    /// # Safety
    /// As for [`all_reduce_group`](Self::all_reduce_group).
    unsafe fn group<T: Element<Residue: Element>>(
        &self,
        arrays: &[(RawArray, Option<Bound>)],
        feedback: Option<&[RawArray]>,
        op: OpCode,
        plan: &Plan,
    ) -> Result<Vec<Report>, ApiError> {
        let op = operation::<T>(op)?;
        // A lossless codec accepts any bound.
        let any = plan.codec.is_exact().then_some(Bound::Absolute(1.0));
        let none = || {
            ApiError::argument(
                "an array of the group has no bound; pass one, for example `rel:1e-4`",
            )
        };
        let mut lent = arrays
            .iter()
            .map(|(array, bound)| {
                // SAFETY: guaranteed by the caller.
                let values = unsafe { LentArray::<T>::lend(array.start(), array.n_values) }?;
                Ok((values, bound.or(plan.bound).or(any).ok_or_else(none)?))
            })
            .collect::<Result<Vec<_>, ApiError>>()?;
        let mut residues = feedback
            .unwrap_or_default()
            .iter()
            .map(|array| {
                // SAFETY: guaranteed by the caller.
                unsafe { LentArray::<T::Residue>::lend(array.start(), array.n_values) }
            })
            .collect::<Result<Vec<_>, ApiError>>()?;
        let mut arrays: Vec<(&mut [T], Bound)> =
            lent.iter_mut().map(|(values, bound)| (values.as_mut(), *bound)).collect();
        let reports = if feedback.is_some() {
            let mut residues: Vec<&mut [T::Residue]> =
                residues.iter_mut().map(AsMut::as_mut).collect();
            self.0.all_reduce_group_with_feedback(&mut arrays, &mut residues, op, plan)?
        } else {
            self.0.all_reduce_group(&mut arrays, op, plan)?
        };
        Ok(reports)
    }
}

/// A call in progress. Dropping it aborts the call on all ranks.
#[must_use = "a dropped call is aborted"]
pub struct ErasedCall(Box<dyn DynCall>);

impl fmt::Debug for ErasedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_finished() { "ErasedCall(finished)" } else { "ErasedCall(running)" })
    }
}

impl ErasedCall {
    /// Returns whether the call has finished. Does not advance it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Replaces the time without progress after which the call fails.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self(self.0.with_timeout(timeout))
    }

    /// Advances all calls of the endpoint until this one has finished.
    ///
    /// # Errors
    /// If the call fails.
    pub fn wait(self) -> Result<Report, ApiError> {
        self.0.wait()
    }
}

impl Future for ErasedCall {
    type Output = Result<Report, ApiError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll(context)
    }
}
