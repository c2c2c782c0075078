//! The communicator and its collectives.
//!
//! A [`Communicator`] takes [`Call`]s. It runs a call to its end, starts it as an [`Operation`]
//! that the caller polls, or prepares it for many runs. Methods named after collectives, such as
//! [`Communicator::all_reduce`], run the call of that name.

mod call;
mod call_state;
mod config;
#[cfg(feature = "alloc")]
mod device_operands;
mod driver;
mod exchange;
mod full_call;
pub(crate) mod named;
mod operands;
mod prepared;
#[cfg(feature = "alloc")]
mod probe;
mod request;
mod resolution;
mod resolved;
mod state;
mod tuning;
pub(crate) mod value_range;

pub use crate::call_spec::RANGE_SCHEDULE;
pub use call::{Buffer, Call, Input, NoValues};
#[cfg(feature = "alloc")]
pub(crate) use call_state::CallState;
#[cfg(feature = "alloc")]
pub use call_state::DeviceOperation;
pub use call_state::Operation;
pub(crate) use call_state::RunningCall;
pub use config::Config;
#[cfg(feature = "alloc")]
pub(crate) use device_operands::{DeviceOperands, HeldDevice};
pub(crate) use driver::Driver;
#[doc(hidden)]
pub use driver::{COMPUTING, Computing};
#[cfg(feature = "alloc")]
pub(crate) use exchange::{
    Cursor, MessageDriver, Messages, Receiving, SegmentLabel, Sending, copy_to_self,
};
pub use exchange::{Exchange, Incoming, Outgoing, Rows};
#[cfg(feature = "alloc")]
pub(crate) use operands::Operands;
pub use prepared::Prepared;
pub(crate) use request::Request;
pub use value_range::N_VALUES as N_RANGE_VALUES;

use crate::call_spec::{self, CallSpec};
#[cfg(feature = "alloc")]
use crate::device::{Device, OnDevice};
use crate::element::Element;
use crate::engine::Notices;
use crate::error::Error;
use crate::group::{Group, RankSet};
use crate::layout::share;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use core::fmt;
use named::named_methods;
use state::{OnHeap, State};

/// One rank's endpoint in a group of ranks that make collective calls together.
///
/// All ranks must make the same calls in the same order, with the same count, operation, root and
/// plan. Ranks that disagree get [`Error::Mismatch`].
///
/// A communicator runs one call at a time. `SharedCommunicator` runs several at once and can be
/// split.
///
/// *Lengths.* A collective works on a logical array of `count` values.
/// [`layout::share`](crate::layout::share) says which part of it is a rank's *share*.
///
/// *Failures.* After an error other than a [usage error](Error::is_usage) the communicator is
/// poisoned on all ranks. [`shrink`](Self::shrink) then forms a communicator of the survivors.
pub struct Communicator<X: Transport> {
    pub(crate) transport: Group<X>,
    pub(crate) config: Config,
    /// Channel whose tags the calls use.
    pub(crate) context: u8,
    /// 0 for all ranks of the transport, incremented for each group of survivors. It wraps.
    pub(crate) epoch: u16,
    /// True unless the communicator was shrunk. Before its first call no frame can be in transit.
    is_first: bool,
    /// Number of the latest call, data scan, or exchange of a measurement.
    sequence: u32,
    poisoned: bool,
    pub(crate) notices: Notices,
    /// Number of tags that calls have used: `0..n_tags`.
    pub(crate) n_tags: u8,
    /// The pool is known to have at least this many frames.
    n_frames: usize,
    /// Each group of this many consecutive ranks is known to share a node.
    pub(crate) ranks_per_node: usize,
    state: OnHeap<State<X::Frame>>,
}

impl<X: Transport> Communicator<X> {
    /// Creates a communicator over `transport` with the default configuration.
    ///
    /// # Errors
    /// [`Error::FrameTooSmall`] if the transport's frames are smaller than
    /// [`MIN_FRAME_BYTES`](crate::transport::MIN_FRAME_BYTES); [`Error::Transport`] of kind
    /// [`Misuse`](crate::transport::TransportErrorKind::Misuse) if the transport's rank or size is
    /// invalid.
    pub fn new(transport: X) -> Result<Self, Error> {
        Self::with_config(transport, Config::default())
    }

    /// Creates a communicator over `transport` with the configuration `config`.
    ///
    /// # Errors
    /// [`Error::FrameTooSmall`] if the transport's frames are smaller than
    /// [`MIN_FRAME_BYTES`](crate::transport::MIN_FRAME_BYTES); [`Error::Transport`] of kind
    /// [`Misuse`](crate::transport::TransportErrorKind::Misuse) if the transport's rank or size is
    /// invalid.
    pub fn with_config(transport: X, config: Config) -> Result<Self, Error> {
        Ok(Self {
            transport: Group::all(transport)?,
            config,
            context: 0,
            epoch: 0,
            is_first: true,
            sequence: 0,
            poisoned: false,
            notices: Notices::default(),
            n_tags: 0,
            n_frames: 0,
            ranks_per_node: 1,
            state: OnHeap::default(),
        })
    }

    /// Turns this communicator into one of `members` only. No frame of an earlier call may be in
    /// transit between them.
    pub(crate) fn of_survivors(self, members: RankSet, epoch: u16) -> Self {
        let mut transport = self.transport;
        transport.set_members(Some(members));
        let notices = self.notices.among(|rank| transport.member(rank));
        Self {
            transport,
            epoch,
            is_first: false,
            notices,
            sequence: 0,
            poisoned: false,
            n_tags: 0,
            // Start afresh: survivors may have measured and kept different calls.
            state: OnHeap::default(),
            ..self
        }
    }

    /// Rank of this process or thread in the communicator.
    pub fn rank(&self) -> Rank {
        self.transport.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// Epoch of the group, modulo 2¹⁶: 0 for all ranks of the transport, and higher for each group
    /// of survivors. Two groups of the same epoch are equal or disjoint (docs/failures.md).
    pub const fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns whether a call has failed. All further calls then return [`Error::Poisoned`].
    pub const fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// The configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Configuration of the communicator. Changes take effect with the next call.
    pub fn config_mut(&mut self) -> &mut Config {
        #[cfg(feature = "alloc")]
        self.state.recent.config_may_change(self.config);
        &mut self.config
    }

    /// Returns the transport's number for `rank`, or `None` if the communicator has no such rank.
    /// The two numbers are equal unless the communicator was [shrunk](Self::shrink).
    pub fn transport_rank(&self, rank: Rank) -> Option<Rank> {
        (rank.index() < self.size()).then(|| self.transport.outer(rank))
    }

    /// Transport that the communicator uses.
    pub const fn transport(&self) -> &X {
        self.transport.inner()
    }

    /// Transport, for functions that only it offers. Do not send or receive on it.
    pub fn transport_mut(&mut self) -> &mut X {
        self.forget_calls();
        self.transport.inner_mut()
    }

    /// Returns the transport, to close it, or for a communicator if this one has made no call.
    ///
    /// After calls, do not make another communicator on it. Questions of ranks that waited for the
    /// last calls may still arrive, and the new communicator would take them for its own calls'.
    pub fn into_transport(self) -> X {
        self.transport.into_inner()
    }

    /// Number of lanes: the most segments of a call that are computed or sent at a time.
    pub fn n_lanes(&self) -> usize {
        self.lanes()
    }

    /// Returns this rank's share of `count` values.
    pub fn share(&self, count: usize) -> core::ops::Range<usize> {
        share(count, self.size(), self.rank().index())
    }
}

impl<X: Transport + fmt::Debug> fmt::Debug for Communicator<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("transport", self.transport())
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("config", &self.config)
            .field("epoch", &self.epoch)
            .field("is_poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

impl<X: Transport> Communicator<X> {
    /// Runs a call and returns when it has finished.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    pub fn run<T, S, R>(
        &mut self,
        mut call: Call<'_, T, S, R>,
        plan: &Plan,
    ) -> Result<Report, Error>
    where
        T: Element,
        S: AsRef<[T]>,
        R: AsMut<[T]>,
    {
        let (request, work) = call.parts(self.rank());
        RunningCall::start(self, request, work, plan)?.wait()
    }

    /// Runs calls one after the other: what
    /// [`SharedCommunicator::in_turn`](crate::SharedCommunicator) does on one of its slots.
    #[cfg(feature = "alloc")]
    pub(crate) fn in_turn<R>(&mut self, calls: impl FnOnce(&mut Self) -> R) -> R {
        calls(self)
    }

    /// Runs a call on a device's memory and returns when the device has finished all of it
    /// ([`Device::poll_end`]).
    ///
    /// The buffers are [`DeviceSlice`](crate::device::DeviceSlice)s. The other ranks may hold their
    /// values in host memory or on other devices. An automatic plan compresses with fz-light.
    ///
    /// # Errors
    /// Any [`Error`]. [`Error::NotOnDevice`] if the device lacks the codec, type or operation. The
    /// communicator stays usable after a [usage error](Error::is_usage).
    #[cfg(feature = "alloc")]
    pub fn run_on<T, S, R>(
        &mut self,
        device: &mut dyn Device,
        call: Call<'_, T, S, R>,
        plan: &Plan,
    ) -> Result<Report, Error>
    where
        T: Element,
        S: OnDevice<T>,
        R: OnDevice<T>,
    {
        self.start_on(device, call, plan)?.wait()
    }

    /// Starts a call on a device's memory. It advances whenever the operation is polled or waited
    /// for.
    ///
    /// # Errors
    /// As [`run_on`](Self::run_on).
    #[cfg(feature = "alloc")]
    pub fn start_on<'a, T, S, R>(
        &'a mut self,
        device: &'a mut dyn Device,
        call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<DeviceOperation<'a, X>, Error>
    where
        T: Element,
        S: OnDevice<T> + 'a,
        R: OnDevice<T> + 'a,
    {
        let (request, mut work, plan, buffers) =
            DeviceOperands::of(call, HeldDevice::Lent(device), self.rank(), plan)?;
        work.keep(buffers);
        RunningCall::start(self, request, work, &plan)
    }

    /// Starts a call. It advances whenever the operation is polled or waited for.
    ///
    /// # Errors
    /// [Usage errors](Error::is_usage), and [`Error::Poisoned`].
    pub fn start<'a, T, S, R>(
        &'a mut self,
        call: Call<'a, T, &'a S, &'a mut R>,
        plan: &Plan,
    ) -> Result<Operation<'a, X, T>, Error>
    where
        T: Element,
        S: AsRef<[T]> + ?Sized,
        R: AsMut<[T]> + ?Sized,
    {
        let (request, work) = call.into_parts(self.rank());
        RunningCall::start(self, request, work, plan)
    }

    /// Prepares a call that will run many times.
    ///
    /// Pass data that resemble the data of the later runs. This method reads them if the bound
    /// refers to them, and does not change them.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    pub fn prepare<'p, T, S, R>(
        &mut self,
        mut call: Call<'p, T, S, R>,
        plan: &Plan,
    ) -> Result<Prepared<'p, T>, Error>
    where
        T: Element,
        S: AsRef<[T]>,
        R: AsMut<[T]>,
    {
        let (request, work) = call.parts(self.rank());
        Prepared::new(self, request, work, plan)
    }

    named_methods!(mut);
}

impl<X: Transport> Communicator<X> {
    /// Starts a [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn start_barrier(&mut self) -> Result<Operation<'_, X, f32>, Error> {
        self.start(Call::all_reduce(&mut [], Op::Max), &Plan::raw())
    }
}
