//! Resolution of a call: from its arguments and plan to a specification, a codec and a program.

use super::resolved::Resolved;
use super::{Communicator, Request};
use crate::bound::Quantum;
#[cfg(feature = "alloc")]
use crate::budget::resolve;
use crate::budget::{Budget, check_plan};
use crate::call_spec::{CallSpec, MIN_SEARCHED_VALUES};
use crate::codec::{CodecParams, Sizes};
use crate::element::DType;
use crate::engine::Program;
use crate::error::{Error, FillError};
use crate::frame::{CallHeader, Template};
use crate::layout::{Cut, Division, Layout, Shares, Window, max_segment};
use crate::op::OpCode;
use crate::plan::{Plan, Sampling};
use crate::primitive::Rules;
use crate::schedule::{Collective, Schedule, default_for};
use crate::select::automatic::{self, Bits, CallFacts, Mode};
use crate::select::{self, Network};
use crate::threads::{self, Threads};
use crate::transport::{Distance, FRAMES_PER_LANE, MAX_LANES, Rank, Transport};
use core::time::Duration;

/// An automatic plan searches for strides only if the link would need at least this long to send
/// this rank's input uncompressed. The search then takes a few percent of the time that the
/// compressed transfer takes.
const MIN_LINK_TIME_FOR_SEARCH: Duration = Duration::from_millis(8);
/// Highest rate of links, in bytes per second, at which value ranges come from all data even if a
/// sample is allowed. A scan of all data takes some 0.1 ns a byte, a twentieth of the compressed
/// transfer. But weights and gradients have rare large values: with the range of a sample, dense
/// took 1.2 to 8 times the bytes for weights.
const MAX_RATE_FOR_SCAN: f64 = 150e6;

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
    pub(super) fn spec_with<'s>(
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
        let plan = if is_short { plan.exactly() } else { plan.for_values(dtype) };
        let mut plan = self.with_scan(plan);
        // Schedules of two levels forward parts. In an `all_to_all_v` only the source and the
        // destination know a part's length.
        let per_node = if is_exchanged { 1 } else { self.ranks_per_node };
        let call = request.call(size).with_nodes(per_node);
        let (rules, network) = (self.config.select, self.network());
        let (mut choice, mut needs_samples) = (None, false);
        // The automatic plan, if the call may compress values. Samples and measurements may change
        // an exact choice.
        let mut may_become = None;
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
            may_become = Some(plan).filter(|_| chosen.choice.is_some_and(|c| !c.is_settled()));
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
        let most = if plan.lanes == 0 { self.lanes() } else { self.lanes().min(plan.lanes) };
        let (lanes, shortest) = match choice {
            _ if !plan.overlaps() => (1, select::shortest(plan.codec)),
            Some(choice) => choice.cut(collective, plan.codec, most),
            None => (most, select::shortest(plan.codec)),
        };
        let (lanes, shortest) = (lanes as u8, shortest as u16);
        let (shares, window) = (request.shares, request.window);
        match collective {
            // All ranks share one node. Reductions within a node are exact.
            Collective::AllReduce if self.ranks_per_node == size && size > 1 => {
                (plan, may_become) = (plan.exactly(), None);
            }
            Collective::AllReduce => {}
            // In all other collectives the parts are the ranks' shares.
            _ => plan.division = Division::Blocks,
        }
        let rounds_first = self.begins_with_pass(request, &plan)?;
        if let Some(plan) = may_become {
            // Refuse the call now. After an exchange, a rank that cannot round would leave others
            // waiting.
            self.begins_with_pass(request, &plan)?;
        }
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
            is_searched: false,
        };
        // Reject a bad frame size before anything is sent.
        let codec = self.sizes(&spec, Quantum::LOSSLESS);
        max_segment(&codec, self.transport.frame_capacity(), schedule.min_run(call))?;
        self.use_lanes()?;
        Ok(spec)
    }

    /// Returns whether the call begins with a rounding pass under this plan, or an error if it
    /// needs one and cannot have it.
    fn begins_with_pass(&self, request: &Request<'_>, plan: &Plan) -> Result<bool, Error> {
        let rounds_first = request.begins_with_pass(plan, self.size(), self.rank())?;
        if rounds_first && plan.marks(request.collective.reduces()).is_some() {
            return Err(FillError::Rounding.into());
        }
        Ok(rounds_first)
    }

    /// Resolves a call within this error budget. Also returns the parameters of its codec.
    pub(super) fn resolve<'s>(
        &self,
        spec: &CallSpec<'s>,
        budget: &Budget,
    ) -> Result<(Resolved<'s>, CodecParams), Error> {
        let params = self.params(spec, budget.quantum);
        let codec = Sizes::new(spec.plan.codec, spec.dtype, params);
        let program = self.program(spec, &codec, spec.own_header(budget.quantum))?;
        let mut report = program.report();
        report.plan = spec.choice;
        report.threads = codec.n_threads(report.segment as usize) as u16;
        budget.note_in(&mut report);
        Ok((Resolved { spec: *spec, program, report }, params))
    }

    /// Drops the calls that are kept for replay. Their schedule or codec may no longer be right
    /// after a change of the transport, or after a measurement.
    pub(super) fn forget_calls(&mut self) {
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
    pub(super) fn params(&self, spec: &CallSpec<'_>, quantum: Quantum) -> CodecParams {
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
    pub(super) fn sizes(&self, spec: &CallSpec<'_>, quantum: Quantum) -> Sizes {
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

    /// Returns the plan with a scan of all data in place of a sample if links are slow. A measured
    /// rate counts for automatic plans only: the results of other plans do not depend on timing.
    pub(super) fn with_scan(&self, plan: Plan) -> Plan {
        let declared = self.declared_link_rate();
        let rate = if plan.is_auto { self.network().link_rate } else { declared };
        let is_slow = rate.is_some_and(|rate| rate <= MAX_RATE_FOR_SCAN);
        match plan.sampling {
            Sampling::Auto if is_slow => plan.with_sampling(Sampling::Never),
            _ => plan,
        }
    }

    /// Returns whether the data scan of an automatic plan has time to search these values for
    /// strides.
    pub(super) fn may_search_strides(&self, n_values: usize, dtype: DType) -> bool {
        let n_bytes = (n_values * dtype.n_bytes()) as f64;
        let is_slow = |rate: f64| n_bytes >= rate * MIN_LINK_TIME_FOR_SEARCH.as_secs_f64();
        n_values >= MIN_SEARCHED_VALUES && self.network().link_rate.is_some_and(is_slow)
    }

    /// Returns the largest distance between ranks, which is the same on all of them.
    pub(super) fn farthest(&self) -> Distance {
        let mut others = (0..self.size()).map(Rank::new).filter(|&rank| rank != self.rank());
        // Stop at the first rank across a network: no rank is farther.
        let farther = |most: Distance, rank| match most.max(self.transport.distance(rank)) {
            Distance::Network => Err(Distance::Network),
            most => Ok(most),
        };
        others.try_fold(Distance::Memory, farther).unwrap_or_else(|network| network)
    }

    /// Returns whether a rank shares this rank's node.
    pub(super) fn is_near(&self, rank: Rank) -> bool {
        rank == self.rank() || self.transport.distance(rank) != Distance::Network
    }

    /// Link rate that the configuration or the transport declares, in bytes per second.
    pub(super) fn declared_link_rate(&self) -> Option<f64> {
        self.config.link_rate.or_else(|| self.transport.link_rate())
    }

    pub(super) fn network(&self) -> Network {
        let link_rate = self.declared_link_rate();
        #[cfg(feature = "alloc")]
        let link_rate = link_rate.or_else(|| self.state.measured.links.rate());
        let frame_bytes = self.transport.frame_capacity();
        Network { link_rate, frame_bytes }
    }

    /// Mode of the running call, if it is a trial.
    #[cfg(not(feature = "alloc"))]
    pub(super) const fn trial_mode(&self) -> Option<Mode> {
        None
    }

    pub(crate) fn checksum(&self) -> bool {
        self.config.checksum.unwrap_or_else(|| self.transport.needs_checksum())
    }

    pub(super) fn lanes(&self) -> usize {
        self.config.lanes.clamp(1, MAX_LANES)
    }

    /// Returns the number of the next call, data scan, or exchange of a measurement. Each has a
    /// number of its own, so that a frame of one cannot be taken for a frame of another.
    pub(super) const fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Builds the program of a call, or of an exchange before it, except for its number.
    pub(super) fn program<'s>(
        &self,
        spec: &CallSpec<'s>,
        codec: &Sizes,
        header: CallHeader,
    ) -> Result<Program<'s>, Error> {
        let &CallSpec { schedule, call, op, ref plan, shares, window, .. } = spec;
        let (rank, capacity) = (self.rank(), self.transport.frame_capacity());
        let max_segment = max_segment(codec, capacity, schedule.min_run(call))?;
        // Each array of a group is one part, which travels whole in a frame with the others.
        let (n_arrays, n_parts, n_lanes, max_segment) = match shares {
            Shares::Arrays(ends) => (ends.len() as u16, ends.len(), 1, max_segment),
            _ => {
                let max_piece = plan.max_piece(spec.dtype, max_segment);
                (1, schedule.n_parts(call), spec.lanes.into(), max_piece)
            }
        };
        let (division, shortest) = (plan.division, spec.shortest.into());
        let cut = Cut { n_parts, division, max_segment, lanes: n_lanes, shortest };
        let layout = Layout::new(call, rank, shares, window, cut);
        let rules = Rules::of_plan(call.collective, plan, op);
        let call = select::with_runs(call, schedule, plan, codec, &layout, capacity);
        let header = CallHeader { context: self.context, epoch: self.epoch, ..header };
        Ok(Program {
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
            n_lanes,
        })
    }
}
