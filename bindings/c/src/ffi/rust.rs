//! What the header has, for bindings to other languages that are written in Rust: communicators
//! instead of handles, core's errors and reports, and plans as text. Memory is the caller's here as
//! there, so that all such bindings check it, and compile what they call, in one place.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(doc)]
use foldwire::SharedCommunicator;
use foldwire::op::OpCode;
use foldwire::{Bound, Config, DType, Element, Error, Report};
use foldwire_threads::World;

use super::call::{CheckedCollective, CollectiveKind, CoreCommunicator, DynCall, ValueCounts};
use super::memory::LentArray;
use super::messages::{self, CheckedMessage};
use super::operations::{ReduceOperation, operation};
use super::types::{FW_UNSUPPORTED, fwPlan};
use crate::endpoint::with_messages;
use crate::errors::ApiError;
use crate::plan;
use crate::transport::{self, AnyTransport};

/// Most ranks that are threads.
const MAX_RANKS: usize = 1024;

/// One rank's end of a network.
pub struct RankEndpoint(AnyTransport);

impl RankEndpoint {
    /// Those of ranks that are threads of this process. Their links to each other are as fast as
    /// memory, or of this rate in bytes per second, each way.
    ///
    /// # Errors
    /// A fault if there can be no such ranks.
    pub fn threads(n_ranks: usize, rate: Option<f64>) -> Result<Vec<Self>, ApiError> {
        let Some(rate) = rate else {
            return Ok(transport::threads(n_ranks)?.into_iter().map(Self).collect());
        };
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(ApiError::argument(format!("{rate} is no rate of a link")));
        }
        if !(1..=MAX_RANKS).contains(&n_ranks) {
            return Err(ApiError::argument(format!(
                "{n_ranks} ranks; there can be 1 to {MAX_RANKS}"
            )));
        }
        let endpoints = World::new(n_ranks).link_rate(rate).endpoints().into_iter();
        Ok(endpoints.map(|endpoint| Self(AnyTransport::Threads(Box::new(endpoint)))).collect())
    }

    /// Of a rank of those that come with this unique id, once all have come, or a fault after
    /// `limit`.
    ///
    /// # Errors
    /// A fault if the id is none, or not all come.
    pub fn join(id: &[u8], n_ranks: usize, rank: usize, limit: Duration) -> Result<Self, ApiError> {
        let n_bytes = id.len();
        let wrong = |_| ApiError::argument(format!("a unique id has 128 bytes, and not {n_bytes}"));
        Ok(Self(transport::join(&id.try_into().map_err(wrong)?, n_ranks, rank, limit)?))
    }

    /// Of this process among those that a launcher has started with it.
    ///
    /// # Errors
    /// A fault if the environment says nothing sensible, or not all come.
    pub fn from_env(limit: Duration) -> Result<Self, ApiError> {
        Ok(Self(transport::join_env(limit)?))
    }
}

/// What ranks need to find each other, as fwGetUniqueId makes it.
///
/// # Errors
/// A fault if this host cannot listen at the address that the environment names.
pub fn unique_id() -> Result<Vec<u8>, ApiError> {
    Ok(transport::new_unique_id()?.to_vec())
}

/// Asks `goes_on` whenever a call that `then` waits in looks at the network: once it says no, that
/// call fails, and its communicator with it.
pub fn with_stop_check<R>(goes_on: Box<dyn FnMut() -> bool>, then: impl FnOnce() -> R) -> R {
    transport::stop_check::with_stop_check(goes_on, then)
}

impl fmt::Debug for RankEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a link")
    }
}

/// A plan that was read and found to go together.
#[derive(Clone, Copy, Debug)]
pub struct ParsedPlan(fwPlan);

impl ParsedPlan {
    /// Reads a plan as fwPlanParse does.
    ///
    /// # Errors
    /// A fault that says what can be written.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        Ok(Self(plan::parse(text)?))
    }

    /// Core's plan.
    ///
    /// # Errors
    /// None, as it was read.
    pub fn to_core(self) -> Result<foldwire::Plan, ApiError> {
        plan::to_core(&self.0)
    }
}

/// An array of the caller's: where it begins, and how many values it has.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawArray {
    /// Of the first value; anything if there is none.
    pub address: usize,
    /// How many.
    pub n_values: usize,
}

impl RawArray {
    const fn start(self) -> *const std::ffi::c_void {
        std::ptr::with_exposed_provenance(self.address)
    }
}

/// Lends the values of an array to a function.
///
/// # Errors
/// A fault if there can be no such array; what the function returns.
///
/// # Safety
/// The array must be there, and nobody may write it meanwhile.
pub unsafe fn lent<T: Element, R>(
    array: RawArray,
    then: impl FnOnce(&[T]) -> Result<R, ApiError>,
) -> Result<R, ApiError> {
    // SAFETY: the caller's promise.
    let values = unsafe { LentArray::<T>::lend(array.start(), array.n_values) }?;
    then(values.as_ref())
}

/// How long the arrays of a call are.
#[derive(Clone, Debug)]
pub enum CountArgs {
    /// The array of a reduction, or one rank's share.
    Same(usize),
    /// Of each rank's share.
    Given(Vec<usize>),
    /// Of what goes to each rank, and of what comes from it.
    Exchanged(Vec<usize>, Vec<usize>),
}

/// A collective as the caller gave it.
#[derive(Clone, Debug)]
pub struct CollectiveArgs {
    /// Its name, as `all_reduce` or `exclusive_scan`.
    pub name: &'static str,
    /// How long its arrays are.
    pub lengths: CountArgs,
    /// What is sent.
    pub send: RawArray,
    /// Where the result goes.
    pub recv: RawArray,
    /// The type of the values.
    pub dtype: DType,
    /// The operation; `None` of calls without one.
    pub op: OpCode,
    /// The root; 0 of calls without one.
    pub root: usize,
    /// The plan.
    pub plan: ParsedPlan,
}

/// An array that goes to a rank, or comes from it.
#[derive(Clone, Debug)]
pub struct MessageArgs {
    /// The array.
    pub array: RawArray,
    /// The type of its values.
    pub dtype: DType,
    /// The other rank.
    pub peer: usize,
    /// The tag.
    pub tag: u32,
    /// The plan of what is sent; `None` of what is received.
    pub plan: Option<ParsedPlan>,
}

const KINDS: [(&str, CollectiveKind); 11] = [
    ("all_reduce", CollectiveKind::AllReduce),
    ("reduce_scatter", CollectiveKind::ReduceScatter),
    ("all_gather", CollectiveKind::AllGather),
    ("broadcast", CollectiveKind::Broadcast),
    ("reduce", CollectiveKind::Reduce),
    ("gather", CollectiveKind::Gather),
    ("scatter", CollectiveKind::Scatter),
    ("all_to_all", CollectiveKind::AllToAll),
    ("scan", CollectiveKind::Scan),
    ("exclusive_scan", CollectiveKind::ExclusiveScan),
    ("barrier", CollectiveKind::Barrier),
];

/// The name of a collective, if there is one of this name.
#[must_use]
pub fn collective(name: &str) -> Option<&'static str> {
    KINDS.iter().find(|(known, _)| *known == name).map(|(known, _)| *known)
}

/// How many values of its two arrays a call takes of a rank. Counts that add up to more than memory
/// can hold are refused later.
fn needed_lengths(
    kind: CollectiveKind,
    counts: &ValueCounts,
    (rank, size): (usize, usize),
    root: usize,
) -> [usize; 2] {
    let add = |counts: &[usize]| counts.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
    let (own, whole, back) = match counts {
        ValueCounts::Same(own) => (*own, own.saturating_mul(size), own.saturating_mul(size)),
        ValueCounts::Given(counts) => (counts[rank], add(counts), add(counts)),
        ValueCounts::Exchanged(to, from) => (0, add(to), add(from)),
    };
    let at_root = |n| if rank == root { n } else { 0 };
    match kind {
        CollectiveKind::AllReduce | CollectiveKind::Scan | CollectiveKind::ExclusiveScan => {
            [own, own]
        }
        CollectiveKind::Broadcast => [at_root(own), own],
        CollectiveKind::Reduce => [own, at_root(own)],
        CollectiveKind::ReduceScatter => [whole, own],
        CollectiveKind::AllGather => [own, whole],
        CollectiveKind::Gather => [own, at_root(whole)],
        CollectiveKind::Scatter => [at_root(whole), own],
        CollectiveKind::AllToAll => [whole, back],
        CollectiveKind::Barrier => [0, 0],
    }
}

fn number(n: usize, what: &str) -> Result<i32, ApiError> {
    i32::try_from(n).map_err(|_| ApiError::argument(format!("there is no {what} {n}")))
}

/// A rank of a communicator. All that come of one link are for one thread at a time.
pub struct ErasedCommunicator(CoreCommunicator);

impl fmt::Debug for ErasedCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ErasedCommunicator {
    /// The communicator of all ranks of a network.
    ///
    /// # Errors
    /// Those of [`SharedCommunicator::with_config`].
    pub fn new(link: RankEndpoint, config: Config, n_calls: usize) -> Result<Self, ApiError> {
        Ok(Self(with_messages(link.0, config, n_calls)?))
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank().index()
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Where this rank's share of so many values is.
    #[must_use]
    pub fn share(&self, n_values: usize) -> std::ops::Range<usize> {
        self.0.share(n_values)
    }

    /// How many calls can be under way at once.
    #[must_use]
    pub fn n_calls(&self) -> usize {
        self.0.n_calls()
    }

    /// Whether an earlier call has failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// Advances all calls over the link. Whether one moved.
    pub fn progress(&self) -> bool {
        self.0.progress()
    }

    /// As [`SharedCommunicator::split`].
    ///
    /// # Errors
    /// Those of that.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        n_calls: usize,
    ) -> Result<Option<Self>, ApiError> {
        Ok(self.0.split(color, key, n_calls)?.map(Self))
    }

    /// As [`SharedCommunicator::shrink`].
    ///
    /// # Errors
    /// Those of that.
    pub fn shrink(self, patience: Duration) -> Result<Self, ApiError> {
        let n_calls = self.0.n_calls();
        Ok(Self(self.0.shrink(patience, n_calls)?))
    }

    /// Starts a collective.
    ///
    /// # Errors
    /// A fault if an argument cannot be, or there are as many calls as there may be.
    ///
    /// # Safety
    /// The arrays must be there, of so many values, until the call is over or dropped; nobody else
    /// may use the one that is written to meanwhile, nor write the other.
    pub unsafe fn start(&self, call: &CollectiveArgs) -> Result<ErasedCall, ApiError> {
        let CollectiveArgs { name, lengths, send, recv, dtype, op, root, plan } = call;
        let kind = KINDS.iter().find(|(known, _)| known == name);
        let (_, kind) = *kind.ok_or_else(|| ApiError::argument(format!("there is no {name}")))?;
        let size = self.size();
        let complete = |counts: &Vec<usize>| match counts.len() {
            n if n == size => Ok(Rc::from(&counts[..])),
            n => Err(ApiError::argument(format!("{n} counts for {size} ranks"))),
        };
        let counts = match lengths {
            CountArgs::Same(n_values) => ValueCounts::Same(*n_values),
            CountArgs::Given(counts) => ValueCounts::Given(complete(counts)?),
            CountArgs::Exchanged(to, from) => {
                ValueCounts::Exchanged(complete(to)?, complete(from)?)
            }
        };
        // What the call takes of each array must be all of it.
        let needed = needed_lengths(kind, &counts, (self.rank(), size), *root);
        for (what, array, need) in [("send", send, needed[0]), ("receive", recv, needed[1])] {
            // Where nothing is needed, nothing is touched.
            if need > 0 && array.n_values != need {
                let message =
                    format!("the {what} array has {} values, {need} are needed", array.n_values);
                return Err(ApiError::argument(message));
            }
        }
        let (send, recv) = (send.start(), recv.start().cast_mut());
        let (root, place) = (number(*root, "root")?, (self.rank(), size));
        let op = ReduceOperation::Known(*op);
        // SAFETY: the arrays are as long as the call takes them to be, and the rest is the caller's
        // promise.
        let call = unsafe {
            CheckedCollective::new(kind, counts, send, recv, *dtype, op, root, plan.0, place)
        }?;
        Ok(ErasedCall(call.start(&self.0)?))
    }

    /// Starts to send or receive one.
    ///
    /// # Errors
    /// A fault if an argument cannot be, or there are as many as there may be.
    ///
    /// # Safety
    /// As of [`start`](Self::start).
    pub unsafe fn start_message(&self, args: &MessageArgs) -> Result<ErasedCall, ApiError> {
        // SAFETY: the caller's promise.
        let message = unsafe { self.message(args) }?;
        Ok(ErasedCall(messages::start(&self.0, &message)?))
    }

    /// # Safety
    /// As [`CheckedMessage::new`].
    unsafe fn message(&self, args: &MessageArgs) -> Result<CheckedMessage, ApiError> {
        let MessageArgs { array, dtype, peer, tag, plan } = args;
        let (peer, plan) = (number(*peer, "rank")?, plan.map(|plan| plan.0));
        // SAFETY: the caller's promise.
        unsafe {
            CheckedMessage::new(
                array.start(),
                array.n_values,
                *dtype,
                peer,
                *tag,
                plan,
                self.size(),
            )
        }
    }

    /// Sends and receives all of these side by side.
    ///
    /// # Errors
    /// A fault if they differ in type or plan, overlap, or fail.
    ///
    /// # Safety
    /// The arrays must be there; nobody else may use those that are written to meanwhile, nor write
    /// the others.
    pub unsafe fn exchange(&self, messages: &[MessageArgs]) -> Result<Report, ApiError> {
        // SAFETY: the caller's promise.
        let messages = messages.iter().map(|args| unsafe { self.message(args) });
        let messages = messages.collect::<Result<Vec<_>, ApiError>>()?;
        messages::exchange(&self.0, &messages)
    }

    /// All-reduces of several arrays of floats in place, each within a bound of its own (the plan's
    /// where there is none), as one group call. With feedback, an array for each: what earlier
    /// calls lost of its values, of `f32` for floats of 16 bits, else of their own type.
    ///
    /// # Errors
    /// A fault if an argument cannot be, or the call fails.
    ///
    /// # Safety
    /// The arrays must be there and not overlap, and nobody else may use them meanwhile.
    pub unsafe fn all_reduce_group(
        &self,
        arrays: &[(RawArray, Option<Bound>)],
        feedback: Option<&[RawArray]>,
        dtype: DType,
        op: OpCode,
        plan: ParsedPlan,
    ) -> Result<Vec<Report>, ApiError> {
        // SAFETY: the caller's promise.
        unsafe {
            match dtype {
                DType::F32 => self.group::<f32>(arrays, feedback, op, plan),
                DType::F64 => self.group::<f64>(arrays, feedback, op, plan),
                DType::F16 => self.group::<foldwire::f16>(arrays, feedback, op, plan),
                DType::Bf16 => self.group::<foldwire::bf16>(arrays, feedback, op, plan),
                other => {
                    let message = format!("there are no group calls on {other}, but on floats");
                    Err(ApiError::new(FW_UNSUPPORTED, message))
                }
            }
        }
    }

    /// # Safety
    /// As [`all_reduce_group`](Self::all_reduce_group).
    unsafe fn group<T: Element<Residue: Element>>(
        &self,
        arrays: &[(RawArray, Option<Bound>)],
        feedback: Option<&[RawArray]>,
        op: OpCode,
        plan: ParsedPlan,
    ) -> Result<Vec<Report>, ApiError> {
        let (core, op) = (plan.to_core()?, operation::<T>(op)?);
        // A codec that loses nothing takes any bound.
        let any = core.codec.is_exact().then_some(Bound::Absolute(1.0));
        let none = || ApiError::argument("an array of a group has no bound, as `rel:1e-4`");
        let mut lent = arrays
            .iter()
            .map(|(array, bound)| {
                // SAFETY: the caller's promise.
                let values = unsafe { LentArray::<T>::lend(array.start(), array.n_values) }?;
                Ok((values, bound.or(core.bound).or(any).ok_or_else(none)?))
            })
            .collect::<Result<Vec<_>, ApiError>>()?;
        let mut residues = feedback
            .unwrap_or_default()
            .iter()
            .map(|array| {
                // SAFETY: the caller's promise.
                unsafe { LentArray::<T::Residue>::lend(array.start(), array.n_values) }
            })
            .collect::<Result<Vec<_>, ApiError>>()?;
        let mut arrays: Vec<(&mut [T], Bound)> =
            lent.iter_mut().map(|(values, bound)| (values.as_mut(), *bound)).collect();
        let reports = if feedback.is_some() {
            let mut residues: Vec<&mut [T::Residue]> =
                residues.iter_mut().map(AsMut::as_mut).collect();
            self.0.all_reduce_group_with_feedback(&mut arrays, &mut residues, op, &core)?
        } else {
            self.0.all_reduce_group(&mut arrays, op, &core)?
        };
        Ok(reports)
    }
}

/// A call under way. Dropping it gives it up on all ranks.
#[must_use = "a call that is dropped is given up"]
pub struct ErasedCall(Box<dyn DynCall>);

impl fmt::Debug for ErasedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_finished() { "a call, done" } else { "a call, under way" })
    }
}

impl ErasedCall {
    /// Whether it is done, as far as it has been driven.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// The same with another limit of time without any progress.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self(self.0.with_timeout(timeout))
    }

    /// Drives all calls over the link until this one is done.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(self) -> Result<Report, Error> {
        self.0.wait()
    }
}

impl Future for ErasedCall {
    type Output = Result<Report, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll(context)
    }
}
