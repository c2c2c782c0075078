//! The communicator and its collectives.
//!
//! A [`Communicator`] takes [`Call`]s. It runs a call to its end, starts it as an [`Operation`]
//! that the caller polls, or prepares it for many runs. Methods named after collectives, such as
//! [`Communicator::all_reduce`], run the call of that name.

mod call;
mod call_state;
mod config;
mod driver;
mod exchange;
mod full_call;
pub(crate) mod named;
mod operands;
mod operation;
mod prepared;
#[cfg(feature = "alloc")]
mod probe;
mod request;
mod resolved;
mod state;
mod tuning;
pub(crate) mod value_range;

pub use crate::call_spec::RANGE_SCHEDULE;
pub use call::{Call, NoValues};
#[cfg(feature = "alloc")]
pub(crate) use call_state::CallState;
pub use config::Config;
pub(crate) use driver::Driver;
#[doc(hidden)]
pub use driver::{COMPUTING, Computing};
#[cfg(feature = "alloc")]
pub(crate) use exchange::{Cursor, Receiving, SegmentLabel, Sending, copy_to_self};
pub use exchange::{Exchange, Incoming, Outgoing, Rows};
pub use operation::Operation;
pub(crate) use operation::RunningCall;
pub use prepared::Prepared;
pub(crate) use request::Request;
pub use value_range::N_VALUES as N_RANGE_VALUES;

use crate::bound::Quantum;
#[cfg(feature = "alloc")]
use crate::budget::resolve;
use crate::budget::{Budget, check_plan};
use crate::call_spec::{self, CallSpec, MIN_SEARCHED_VALUES};
use crate::codec::{CodecParams, Sizes};
use crate::element::{DType, Element};
use crate::engine::{Notices, Program};
use crate::error::Error;
use crate::frame::{CallHeader, Template};
use crate::group::{Group, RankSet};
use crate::layout::{Cut, Division, Layout, Shares, Window, max_segment, share};
use crate::op::{Op, OpCode};
use crate::plan::Plan;
use crate::primitive::Rules;
use crate::report::Report;
use crate::schedule::{Collective, Schedule, default_for};
use crate::select::automatic::{self, Bits, CallFacts, Mode};
use crate::select::{self, Network};
use crate::threads::{self, Threads};
use crate::transport::{Distance, FRAMES_PER_LANE, MAX_LANES, Rank, Transport};
use core::fmt;
use core::time::Duration;
use named::named_methods;
use resolved::Resolved;
use state::{OnHeap, State};

/// An automatic plan searches for strides only if the link would need at least this long to send
/// this rank's input uncompressed. The search then takes a few percent of the time that the
/// compressed transfer takes.
const MIN_LINK_TIME_FOR_SEARCH: Duration = Duration::from_millis(8);

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
        let transport = self.transport.among(members);
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

    /// Returns the transport.
    pub fn into_transport(self) -> X {
        self.transport.into_inner()
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
    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// Any [`Error`], after which the communicator is unusable.
    pub fn barrier(&mut self) -> Result<Report, Error> {
        self.start_barrier()?.wait()
    }

    /// Starts a [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn start_barrier(&mut self) -> Result<Operation<'_, X, f32>, Error> {
        // Even an empty reduction cannot finish before all ranks have begun it.
        self.start(Call::all_reduce(&mut [], Op::Max), &Plan::raw())
    }

    /// Reduces all ranks' `value` exactly. All ranks get the same bits.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    pub fn all_reduce_scalar<T: Element>(&mut self, value: T, op: Op<'_, T>) -> Result<T, Error> {
        let mut values = [value];
        self.all_reduce(&mut values, op, &Plan::raw())?;
        Ok(values[0])
    }
}

impl<X: Transport> Communicator<X> {
    /// Checks a call and chooses its schedule.
    pub(crate) fn spec<'s>(
        &mut self,
        request: &Request<'s>,
        plan: &Plan,
    ) -> Result<CallSpec<'s>, Error> {
        self.spec_with(request, plan, None, None)
    }

    /// Checks everything about a call that does not depend on its values.
    #[cfg(feature = "alloc")]
    pub(crate) fn check(&mut self, request: &Request<'_>, plan: &Plan) -> Result<(), Error> {
        let spec = self.spec(request, plan)?;
        let needs_values = spec.needs_samples || spec.plan.needs_value_range();
        if needs_values { Ok(()) } else { resolve(&spec, None).map(drop) }
    }

    /// Does the same as [`spec`](Self::spec), with two facts for the choice of an automatic plan:
    /// `bits` if the ranks have sampled the call's data, and `trial_mode` if the call is a trial.
    fn spec_with<'s>(
        &mut self,
        request: &Request<'s>,
        plan: &Plan,
        bits: Option<Bits>,
        trial_mode: Option<Mode>,
    ) -> Result<CallSpec<'s>, Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        let (size, rank) = (self.size(), self.rank());
        request.check(size, rank)?;
        let (op, dtype, n_bytes) = (request.op, request.dtype, request.n_bytes());
        // Reject a bad bound before anything is sent, whatever the data.
        check_plan(plan, op, dtype)?;
        let is_exchanged = request.shares.is_exchanged();
        let is_short = n_bytes < plan.exact_below && !is_exchanged;
        let mut plan = if is_short { plan.exactly() } else { plan.for_values(dtype) };
        // Schedules of two levels forward parts. In an `all_to_all_v` only the source and the
        // destination know a part's length.
        let per_node = if is_exchanged { 1 } else { self.ranks_per_node };
        let call = request.call(size).with_nodes(per_node);
        let (rules, network) = (self.config.select, self.network());
        let (mut choice, mut needs_samples) = (None, false);
        if plan.is_auto {
            let (farthest, has_configured_rate) =
                (self.farthest(), self.declared_link_rate().is_some());
            let speeds = self.config.speeds;
            #[cfg(feature = "alloc")]
            let trial_mode =
                trial_mode.or_else(|| self.state.measured.trials.found(&request.kind(&plan)));
            let known = CallFacts {
                rules,
                network,
                farthest,
                has_configured_rate,
                speeds,
                bits,
                mode: trial_mode,
            };
            let chosen = automatic::choose(call, op, dtype, &plan, n_bytes, &known);
            (plan, choice, needs_samples) = (chosen.plan, chosen.choice, chosen.needs_samples);
        }
        let mut schedule = select::chosen(rules, call, op, &plan, n_bytes, network);
        let collective = call.collective;
        // Nor may any other schedule of an `all_to_all_v` forward parts.
        let lacks_lens = |schedule: &dyn Schedule| is_exchanged && schedule.passes_on(call);
        if plan.schedule.is_none() && lacks_lens(schedule) {
            schedule = default_for(collective);
        }
        let is_possible = schedule.supports(collective) && !lacks_lens(schedule);
        if size > collective.max_size() || !is_possible {
            return Err(Error::Unsupported { schedule: schedule.name(), collective });
        }
        if collective.is_scan() && op == OpCode::Avg {
            return Err(Error::NoAverage { collective });
        }
        if !dtype.is_float() && op == OpCode::Avg {
            return Err(Error::NoIntegerAverage { dtype });
        }
        let (lanes, shortest) = match choice {
            _ if !plan.overlaps() => (1, select::shortest(plan.codec)),
            Some(choice) => choice.cut(collective, plan.codec, self.lanes()),
            None => (self.lanes(), select::shortest(plan.codec)),
        };
        let (lanes, shortest) = (lanes as u8, shortest as u16);
        let (shares, window) = (request.shares, request.window);
        match collective {
            // All ranks share one node. Reductions within a node are exact.
            Collective::AllReduce if self.ranks_per_node == size && size > 1 => {
                plan = plan.exactly();
            }
            Collective::AllReduce => {}
            // In all other collectives the parts are the ranks' shares.
            _ => plan.division = Division::Blocks,
        }
        let rounds_first = request.begins_with_pass(&plan, size, rank)?;
        // The rounding pass stores the rounded input in the result buffer. An all-gather then reads
        // it there.
        let window = if rounds_first { Window::Whole } else { window };
        let call = call.by(schedule);
        let spec = CallSpec {
            schedule,
            call,
            op,
            plan,
            choice,
            needs_samples,
            dtype,
            lanes,
            shortest,
            shares,
            window,
            rounds_first,
        };
        // Reject a bad frame size before anything is sent.
        let codec = self.sizes(&spec, Quantum::LOSSLESS);
        max_segment(&codec, self.transport.frame_capacity(), schedule.min_run(call))?;
        self.use_lanes()?;
        Ok(spec)
    }

    /// Resolves a call within this error budget. Also returns the parameters of its codec.
    fn resolve<'s>(
        &self,
        spec: &CallSpec<'s>,
        budget: &Budget,
    ) -> Result<(Resolved<'s>, CodecParams), Error> {
        let params = self.params(spec, budget.quantum);
        let codec = Sizes::new(spec.plan.codec, spec.dtype, params);
        let (program, n_lanes) = self.program(spec, &codec, spec.own_header(budget.quantum))?;
        let mut report = program.report(n_lanes);
        report.plan = spec.choice;
        report.threads = codec.n_threads(report.segment as usize) as u16;
        budget.note_in(&mut report);
        Ok((Resolved { spec: *spec, program, n_lanes, report }, params))
    }

    /// Drops the calls that are kept for replay. Their schedule or codec may no longer be right
    /// after a change of the transport, or after a measurement.
    fn forget_calls(&mut self) {
        #[cfg(feature = "alloc")]
        self.state.recent.forget();
    }

    /// Checks before a call that the pool has frames for all lanes. Lanes without frames would wait
    /// forever.
    pub(crate) fn use_lanes(&mut self) -> Result<(), Error> {
        let lanes = self.lanes();
        let need = lanes * FRAMES_PER_LANE;
        // If the pool's size is unknown, only the first call can count the frames. Later some may
        // be in transit.
        let has_sent_nothing = self.is_first && self.n_tags == 0;
        if need > self.n_frames && (has_sent_nothing || self.transport.n_frames().is_some()) {
            let have = self.transport.n_available(need);
            if have < need {
                return Err(Error::TooFewFrames { lanes, need, have });
            }
            self.n_frames = need;
        }
        self.n_tags = self.n_tags.max(lanes as u8);
        Ok(())
    }

    /// Returns the parameters of a call's codec.
    fn params(&self, spec: &CallSpec<'_>, quantum: Quantum) -> CodecParams {
        let max_operands = self.size().min(u32::MAX as usize) as u32;
        let params = CodecParams::new(quantum)
            .with_setting(spec.plan.setting)
            .with_strides(spec.plan.strides)
            .with_prediction(spec.plan.prediction)
            .at(self.config.level)
            .on(self.threads(spec));
        match spec.op {
            OpCode::Avg => params.for_averages_of(max_operands),
            _ => params.for_sums_of(max_operands),
        }
    }

    /// Returns the sizes of payloads that a call's codec produces.
    fn sizes(&self, spec: &CallSpec<'_>, quantum: Quantum) -> Sizes {
        Sizes::new(spec.plan.codec, spec.dtype, self.params(spec, quantum))
    }

    /// Returns the threads that compute in a call. An automatic plan uses at most this rank's share
    /// of its node's cores. (With 2 ranks on 2 cores, calls took up to twice as long if each rank
    /// used a second thread.)
    pub(crate) fn threads(&self, spec: &CallSpec<'_>) -> Threads {
        let threads = self.config.threads;
        if spec.choice.is_none() || threads.is_one() {
            return threads;
        }
        let n_near = (0..self.size()).filter(|&rank| self.is_near(Rank::new(rank))).count();
        threads.at_most(threads::n_cores() / n_near)
    }

    /// Returns whether the data scan of an automatic plan has time to search these values for
    /// strides.
    fn may_search_strides(&self, n_values: usize, dtype: DType) -> bool {
        let n_bytes = (n_values * dtype.n_bytes()) as f64;
        let is_slow = |rate: f64| n_bytes >= rate * MIN_LINK_TIME_FOR_SEARCH.as_secs_f64();
        n_values >= MIN_SEARCHED_VALUES && self.network().link_rate.is_some_and(is_slow)
    }

    /// Returns the largest distance between ranks, which is the same on all of them.
    fn farthest(&self) -> Distance {
        let mut others = (0..self.size()).map(Rank::new).filter(|&rank| rank != self.rank());
        // Stop at the first rank across a network: no rank is farther.
        let farther = |most: Distance, rank| match most.max(self.transport.distance(rank)) {
            Distance::Network => Err(Distance::Network),
            most => Ok(most),
        };
        others.try_fold(Distance::Memory, farther).unwrap_or_else(|network| network)
    }

    /// Returns whether a rank shares this rank's node.
    fn is_near(&self, rank: Rank) -> bool {
        rank == self.rank() || self.transport.distance(rank) != Distance::Network
    }

    /// Link rate that the configuration or the transport declares, in bytes per second.
    fn declared_link_rate(&self) -> Option<f64> {
        self.config.link_rate.or_else(|| self.transport.link_rate())
    }

    fn network(&self) -> Network {
        let link_rate = self.declared_link_rate();
        #[cfg(feature = "alloc")]
        let link_rate = link_rate.or_else(|| self.state.measured.links.rate());
        let frame_bytes = self.transport.frame_capacity();
        Network { link_rate, frame_bytes }
    }

    /// Mode of the running call, if it is a trial.
    #[cfg(not(feature = "alloc"))]
    const fn trial_mode(&self) -> Option<Mode> {
        None
    }

    pub(crate) fn checksum(&self) -> bool {
        self.config.checksum.unwrap_or_else(|| self.transport.needs_checksum())
    }

    fn lanes(&self) -> usize {
        self.config.lanes.clamp(1, MAX_LANES)
    }

    /// Returns the number of the next call, data scan, or exchange of a measurement. Each has a
    /// number of its own, so that a frame of one cannot be taken for a frame of another.
    const fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Builds the program of a call, or of an exchange before it, except for its number. Also
    /// returns how many lanes it runs on.
    fn program<'s>(
        &self,
        spec: &CallSpec<'s>,
        codec: &Sizes,
        header: CallHeader,
    ) -> Result<(Program<'s>, usize), Error> {
        let &CallSpec { schedule, call, op, ref plan, shares, window, .. } = spec;
        let (rank, capacity) = (self.rank(), self.transport.frame_capacity());
        let max_segment = max_segment(codec, capacity, schedule.min_run(call))?;
        // Each array of a group is one part, which travels whole in a frame with the others.
        let (n_arrays, n_parts, lanes, max_segment) = match shares {
            Shares::Arrays(ends) => (ends.len() as u16, ends.len(), 1, max_segment),
            _ => {
                let max_piece = plan.max_piece(spec.dtype, max_segment);
                (1, schedule.n_parts(call), spec.lanes.into(), max_piece)
            }
        };
        let (division, shortest) = (plan.division, spec.shortest.into());
        let cut = Cut { n_parts, division, max_segment, lanes, shortest };
        let layout = Layout::new(call, rank, shares, window, cut);
        let rules = Rules::of_plan(call.collective, plan, op);
        let call = select::with_runs(call, schedule, plan, codec, &layout, capacity);
        let header = CallHeader { context: self.context, epoch: self.epoch, ..header };
        let program = Program {
            schedule,
            call,
            n_arrays,
            rules: if window == Window::Input { rules.reading_only() } else { rules },
            header,
            template: Template::new(&header),
            layout,
            checksum: self.checksum(),
            rank,
            n_steps: schedule.n_steps(call, rank),
        };
        Ok((program, lanes))
    }
}
