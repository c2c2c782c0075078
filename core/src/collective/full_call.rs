//! A call that is not replayed: it measures links and scans the data if needed, then runs the
//! engine.

use super::call_spec::CallSpec;
#[cfg(feature = "alloc")]
use super::call_state::CallState;
use super::operands::Operands;
#[cfg(feature = "alloc")]
use super::probe::Probe;
#[cfg(feature = "alloc")]
use super::resolved::RecentCall;
use super::resolved::Resolved;
use super::value_range;
use super::{Communicator, Request};
use crate::bound::Quantum;
use crate::budget::{Budget, required_bound, resolve, resolve_for_later_data};
use crate::codec::CodecParams;
use crate::element::DType;
#[cfg(feature = "alloc")]
use crate::element::Element;
use crate::engine::{Buffers, Coding, Engine, Program, Work};
use crate::error::{Error, FillError};
#[cfg(feature = "alloc")]
use crate::frame::StepQuantity;
use crate::handle::Progress;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::rounding::RoundingPass;
use crate::transport::Transport;
use crate::wait::Limits;
#[cfg(feature = "alloc")]
use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

/// State of a call that may go through several phases: measurement, data scan, and the call itself.
pub(super) struct FullCall<'s> {
    pub(super) request: Request<'s>,
    pub(super) spec: CallSpec<'s>,
    /// Current phase. `None` once the call is over.
    pub(super) running: Option<Running<'s>>,
    /// Sum of the reports of all phases that have finished.
    pub(super) setup_report: Option<Report>,
    /// True if the call is only prepared now. Its bound then holds for later data as well.
    pub(super) is_preparation: bool,
}

/// A phase, and the engine that runs it.
pub(super) struct Running<'s> {
    pub(super) engine: Engine<'s>,
    pub(super) phase: Phase,
}

/// Computation that the engine is running.
pub(super) enum Phase {
    /// Measurement of links, before an automatic plan chooses.
    #[cfg(feature = "alloc")]
    Probe(Probe),
    /// Exchange of the results of each rank's data scan.
    DataScan(DataScan),
    /// Agreement on a suspected fill value, before a plan that refuses one.
    FillCheck(FillCheck),
    /// The call itself.
    Call(CallPhase),
}

/// A data scan in progress.
pub(super) struct DataScan {
    values: [f64; value_range::N_WITH_BITS],
    /// True if ranks scanned a sample.
    sampled: bool,
    /// The automatic plan for which ranks also exchange estimates, and then choose. Its strides are
    /// those that this rank found, if it searched.
    undecided: Option<Plan>,
}

/// A search for a suspected fill value in progress.
pub(super) struct FillCheck {
    /// This rank's suspected fill value, or [`value_range::UNKNOWN`].
    suspected: [f64; 1],
    budget: Budget,
}

/// The call itself in progress.
pub(super) struct CallPhase {
    pub(super) coding: Coding,
    /// Pass that rounds this rank's input before anything is sent.
    rounding_pass: Option<RoundingPass>,
    /// The communicator's record of this call, if the communicator keeps the call for replay. The
    /// record returns to the communicator when the call has finished.
    #[cfg(feature = "alloc")]
    recent: Option<Box<RecentCall>>,
}

impl Phase {
    /// Returns the values that ranks exchange in a phase before the call itself.
    pub(super) fn exchanged(&mut self) -> &mut [f64] {
        match self {
            #[cfg(feature = "alloc")]
            Self::Probe(probe) => probe.exchanged(),
            Self::DataScan(scan) => scan.exchanged(),
            Self::FillCheck(check) => &mut check.suspected,
            Self::Call(_) => &mut [],
        }
    }
}

impl DataScan {
    /// Returns the values that ranks exchange.
    fn exchanged(&mut self) -> &mut [f64] {
        let with_bits = self.undecided.is_some();
        let n_values = if with_bits { value_range::N_WITH_BITS } else { value_range::N_VALUES };
        &mut self.values[..n_values]
    }
}

impl CallPhase {
    /// Creates the phase of a call that needs no rounding pass and is not kept.
    pub(super) const fn new(coding: Coding) -> Self {
        Self {
            coding,
            rounding_pass: None,
            #[cfg(feature = "alloc")]
            recent: None,
        }
    }

    /// Creates the phase of a kept call.
    #[cfg(feature = "alloc")]
    pub(super) fn of_recent(recent: Box<RecentCall>) -> Self {
        Self { coding: recent.coding.clone(), rounding_pass: None, recent: Some(recent) }
    }
}

impl<'s> FullCall<'s> {
    /// Creates a call that can [begin](Self::begin).
    pub(super) const fn new(request: Request<'s>, spec: CallSpec<'s>) -> Self {
        Self { request, spec, running: None, setup_report: None, is_preparation: false }
    }

    /// Describes the phase in words.
    pub(super) fn doing(&self) -> &'static str {
        match self.running.as_ref().map(|running| &running.phase) {
            #[cfg(feature = "alloc")]
            Some(Phase::Probe(_)) => "measuring links",
            Some(Phase::DataScan(_)) => "learning the value range",
            Some(Phase::FillCheck(_)) => "agreeing on fill values",
            Some(Phase::Call(_)) | None => "running",
        }
    }

    /// Returns whether the call itself is running.
    pub(super) const fn is_set_up(&self) -> bool {
        matches!(self.running, Some(Running { phase: Phase::Call(_), .. }))
    }

    /// Begins the call: with a measurement of links if one is due, else with a data scan if the
    /// plan needs one.
    pub(super) fn begin<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        plan: &Plan,
    ) -> Result<(), Error> {
        #[cfg(feature = "alloc")]
        if self.should_measure(comm, plan) {
            return self.start_probe(comm, plan);
        }
        self.begin_with_links(comm, work, plan)
    }

    /// Begins the call without a measurement: with the data scan if the plan needs one, else with
    /// the call itself.
    #[inline]
    pub(super) fn begin_with_links<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        plan: &Plan,
    ) -> Result<(), Error> {
        let undecided = self.spec.needs_samples.then(|| comm.with_scan(*plan));
        let scan_plan = self.scan_spec(undecided).plan;
        if undecided.is_some() || scan_plan.needs_value_range() {
            let sampled =
                !scan_plan.needs_value_range() || scan_plan.samples(self.spec.shares.count());
            return self.start_data_scan(comm, work, sampled, undecided);
        }
        let budget = resolve(&self.spec, None)?;
        let (resolved, call) = self.resolve_call(comm, &budget, work)?;
        #[cfg(feature = "alloc")]
        comm.keep(&self.request, plan, (&resolved, &call.coding));
        self.start(comm, &resolved, call);
        Ok(())
    }

    /// Returns the specification whose bound needs the data scan. Until ranks have chosen the codec
    /// of an automatic plan, it contains the caller's plan, marked as not automatic.
    fn scan_spec(&self, undecided: Option<Plan>) -> CallSpec<'s> {
        let plan = undecided.map_or(self.spec.plan, |plan| Plan { is_auto: false, ..plan });
        CallSpec { plan, ..self.spec }
    }

    /// Starts a data scan. Its header describes the call itself and the bound on each operand.
    /// Ranks that make different calls thus detect the difference.
    fn start_data_scan<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        sampled: bool,
        undecided: Option<Plan>,
    ) -> Result<(), Error> {
        let own = self.request.own(comm.size(), comm.rank());
        let spec = self.scan_spec(undecided);
        let values = [value_range::UNKNOWN; value_range::N_WITH_BITS];
        let mut scan = DataScan { values, sampled, undecided };
        let (value_ranges, bits) = scan.values.split_at_mut(value_range::N_VALUES);
        let mut value_range = None;
        if spec.plan.needs_value_range() {
            let seen = work.scan_values(own.clone(), comm.config.level, sampled, spec.plan.fill)?;
            value_ranges.copy_from_slice(&seen);
            // This rank's own value range is enough to estimate how short its values become.
            value_range = value_range::read_extremes(seen, false).flatten();
        }
        if let Some(undecided) = &mut scan.undecided {
            let search_level = self.scan_searches(comm).then_some(comm.config.level);
            let (estimates, strides) = work.estimate_bits(own, &spec, value_range, search_level)?;
            bits.copy_from_slice(&estimates);
            undecided.strides = strides;
        }
        let (measure, quantity) = required_bound(&spec, sampled);
        let exchange = spec.for_data_scan(scan.exchanged().len());
        let codec = comm.sizes(&exchange, Quantum::LOSSLESS);
        let program = comm.program(&exchange, &codec, spec.header(measure, quantity))?;
        self.run(comm, program, program.report(), Phase::DataScan(scan));
        Ok(())
    }

    /// Returns whether the caller's shape stays whatever the data are: the data of a preparation
    /// say nothing about the shape of later data.
    fn keeps_shape(&self) -> bool {
        self.is_preparation && self.spec.plan.strides != [0; 2]
    }

    /// Returns whether the data scan of an automatic plan searches this rank's input for strides.
    fn scan_searches<X: Transport>(&self, comm: &Communicator<X>) -> bool {
        let n_own = self.request.own(comm.size(), comm.rank()).len();
        !self.keeps_shape() && comm.may_search_strides(n_own, self.spec.dtype)
    }

    /// Resolves the call itself within this error budget.
    fn resolve_call<X: Transport>(
        &self,
        comm: &Communicator<X>,
        budget: &Budget,
        work: &mut dyn Operands,
    ) -> Result<(Resolved<'s>, CallPhase), Error> {
        let (resolved, mut params) = comm.resolve(&self.spec, budget)?;
        let own = self.request.own(comm.size(), comm.rank());
        if self.spec.finds_shape_in(own.len()) && !self.keeps_shape() {
            params = work.find_shape(own, params);
        }
        work.learn(&CodecParams { codec: self.spec.plan.codec, ..params });
        let codec = self.spec.codec(&params);
        let coding = Coding::by(codec, self.spec.divisor(), self.spec.rounds_first)
            .with_marks(self.spec.marks());
        let pass = budget.pass(&self.spec, comm.rank());
        let rounding_pass = pass.map(|pass| pass.on(comm.threads(&self.spec)));
        Ok((resolved, CallPhase { rounding_pass, ..CallPhase::new(coding) }))
    }

    /// Starts the engine on the call itself.
    pub(super) fn start<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        resolved: &Resolved<'s>,
        call: CallPhase,
    ) {
        self.run(comm, resolved.program, resolved.report, Phase::Call(call));
    }

    /// Starts the engine on this program, from this report.
    pub(super) fn run<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        program: Program<'s>,
        report: Report,
        phase: Phase,
    ) {
        let program = program.numbered(comm.next_sequence());
        let (now, on) = (comm.transport.now(), &mut comm.state.lanes);
        self.running = Some(Running { engine: Engine::new(program, report, now, on), phase });
    }

    /// Returns how long to rest before the next poll.
    pub(super) fn rest(&self, limits: Limits) -> Duration {
        let watchdog = self.running.as_ref().map(|running| &running.engine.watchdog);
        watchdog.map_or(Duration::ZERO, |watchdog| watchdog.rest(limits))
    }

    /// Rounds this rank's input if that is still to do.
    pub(super) fn round_input<X: Transport>(
        &mut self,
        comm: &Communicator<X>,
        work: &mut dyn Operands,
    ) {
        if let Some(Running { phase: Phase::Call(call), .. }) = &mut self.running
            && let Some(rounding_pass) = call.rounding_pass.take()
        {
            let (size, rank) = (comm.size(), comm.rank());
            let own = self.spec.shares.within_whole(self.spec.call.input(rank), size, rank);
            work.round(own, &rounding_pass, comm.config.level);
        }
    }

    /// Continues after a phase: with the next one, or with the end of the call.
    pub(super) fn end_phase<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
    ) -> Result<Progress, Error> {
        let Running { engine, phase } = self.running.take().ok_or(Error::Internal)?;
        let mut report = engine.report;
        if let Some(setup_report) = self.setup_report {
            report += setup_report;
        }
        self.setup_report = Some(report);
        match phase {
            #[cfg(feature = "alloc")]
            Phase::Probe(probe) => self.end_probe(comm, work, probe)?,
            Phase::DataScan(scan) => self.end_data_scan(comm, work, &scan)?,
            Phase::FillCheck(check) => self.end_fill_check(comm, work, &check)?,
            Phase::Call(call) => {
                if let Err(error) = self.request.end(comm.size(), comm.rank(), work) {
                    // The other ranks learn of it by a notice of this call.
                    self.running = Some(Running { engine, phase: Phase::Call(call) });
                    return Err(error);
                }
                #[cfg(feature = "alloc")]
                {
                    comm.end_trial();
                    if let Some(recent) = call.recent {
                        comm.put_back(recent);
                    }
                }
                return Ok(Progress::Finished);
            }
        }
        Ok(Progress::Moved)
    }

    /// Continues after a data scan: with the call itself, or with a scan of all values if a sample
    /// does not suffice.
    ///
    /// It fails on all ranks alike if the bound cannot be kept for this value range. No frames are
    /// in transit then, so the call ends but the communicator stays usable.
    fn end_data_scan<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        &DataScan { values, sampled, undecided }: &DataScan,
    ) -> Result<(), Error> {
        let spec = self.scan_spec(undecided);
        let (Some(&value_ranges), Some(&bits)) = (values.first_chunk(), values.last_chunk()) else {
            return Err(Error::Internal);
        };
        let mut value_range = None;
        if spec.plan.needs_value_range() {
            let Some(seen) = value_range::read_extremes(value_ranges, sampled) else {
                return self.start_data_scan(comm, work, false, undecided);
            };
            value_range = seen;
        }
        if let Some(plan) = undecided {
            // Ranks may have found different strides, so the choice must not depend on them.
            let agreed = Plan { strides: self.spec.plan.strides, ..plan };
            let bits = value_range::agreed_bits(&spec, value_range, bits);
            let is_searched = self.scan_searches(comm);
            self.spec = comm.spec_with(&self.request, &agreed, bits, comm.trial_mode())?;
            self.spec.plan.strides = plan.strides;
            self.spec.is_searched = is_searched;
        }
        let resolve = if self.is_preparation { resolve_for_later_data } else { resolve };
        let budget = resolve(&self.spec, value_range)?;
        if !self.spec.plan.may_suspect_fill() {
            return self.start_within(comm, work, &budget);
        }
        let own = self.request.own(comm.size(), comm.rank());
        let refuses = self.spec.plan.refuses_fill;
        let suspected = work.suspect_fill(own, value_range, budget.bound, refuses)?;
        if let Some(report) = &mut self.setup_report {
            report.suspected_fill = suspected;
        }
        // All ranks have the same bound and range, so they all check or none does.
        if !refuses || value_range.is_none() || budget.bound == 0.0 {
            return self.start_within(comm, work, &budget);
        }
        let suspected = [suspected.unwrap_or(value_range::UNKNOWN)];
        let (measure, quantity) = required_bound(&self.spec, false);
        let exchange = self.spec.for_data_scan(suspected.len());
        let codec = comm.sizes(&exchange, Quantum::LOSSLESS);
        let program = comm.program(&exchange, &codec, self.spec.header(measure, quantity))?;
        let check = FillCheck { suspected, budget };
        self.run(comm, program, program.report(), Phase::FillCheck(check));
        Ok(())
    }

    /// Continues after all ranks searched for a fill value: fails on all alike if one found any, as
    /// after a data scan.
    fn end_fill_check<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        &FillCheck { suspected: [value], budget }: &FillCheck,
    ) -> Result<(), Error> {
        if value > value_range::UNKNOWN {
            return Err(FillError::Suspected { value }.into());
        }
        self.start_within(comm, work, &budget)
    }

    /// Starts the engine on the call itself within this error budget.
    fn start_within<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: &mut dyn Operands,
        budget: &Budget,
    ) -> Result<(), Error> {
        let (resolved, call) = self.resolve_call(comm, budget, work)?;
        self.start(comm, &resolved, call);
        Ok(())
    }

    /// Returns the report of a finished call.
    pub(super) fn report(&self) -> Report {
        self.setup_report.unwrap_or_default()
    }

    /// Aborts the call unless it is over: notifies the other ranks, stops what runs on its frames,
    /// and poisons the communicator.
    pub(super) fn give_up<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        work: Option<&mut dyn Operands>,
        error: Option<&Error>,
    ) {
        let mut work = work;
        let mut stop = |meanwhile: &mut dyn FnMut()| {
            if let Some(work) = work.as_deref_mut() {
                work.stop(meanwhile);
            }
        };
        #[cfg(feature = "alloc")]
        comm.forget_trial();
        if let Some(Running { mut engine, .. }) = self.running.take() {
            let Communicator { transport, notices, state, .. } = &mut *comm;
            let lanes = &mut state.lanes;
            engine.abort(transport, lanes, notices, error, &mut stop);
            comm.poisoned = true;
        } else {
            stop(&mut core::hint::spin_loop);
        }
    }
}

#[cfg(feature = "alloc")]
impl<'s> CallState<'s> {
    /// Starts one call on several arrays, which lie one after the other in the buffers and share
    /// frames.
    ///
    /// `ends` holds the end of each array and `budgets` its error budget. Each array must have been
    /// checked, and must allow a call with this specification.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_group<X: Transport, T: Element>(
        comm: &mut Communicator<X>,
        request: Request<'s>,
        work: &mut Work<'_, 's, T>,
        spec: CallSpec<'s>,
        ends: &'s [usize],
        budgets: &[Budget],
    ) -> Result<Self, Error> {
        comm.use_lanes()?;
        let mut call = FullCall::new(request, spec);
        if let [budget] = budgets {
            let (resolved, phase) = call.resolve_call(comm, budget, work)?;
            // A group call rounds its arrays itself, before its calls begin.
            call.start(comm, &resolved, CallPhase { rounding_pass: None, ..phase });
            return Ok(Self::full(comm, call));
        }
        let spec = spec.of_group(ends);
        let codec = |budget: &Budget| spec.codec(&comm.params(&spec, budget.quantum));
        let coding = Coding::by_each(budgets.iter().map(codec).collect(), spec.divisor());
        let coding = coding.ok_or(Error::Internal)?.with_marks(spec.marks());
        let quanta = budgets.iter().map(|budget| budget.quantum.step());
        let header = spec.header(StepQuantity::Group, digest(ends, quanta));
        let first = budgets.first().ok_or(Error::Internal)?;
        let program = comm.program(&spec, &comm.sizes(&spec, first.quantum), header)?;
        (call.spec, work.ends) = (spec, ends);
        call.run(comm, program, program.report(), Phase::Call(CallPhase::new(coding)));
        Ok(Self::full(comm, call))
    }
}

/// Returns what computes an exchange before the call itself: an exact all-reduce that takes the
/// maximum of each value, or the all-gather of a measurement.
pub(super) fn exchange(values: &mut [f64]) -> (Work<'_, '_, f64>, Coding) {
    (Work::new(Op::Max, Buffers::InPlace(values)), Coding::raw(DType::F64))
}

/// Returns a digest of the ends and quanta of a group's arrays, on which all ranks must agree. The
/// shift clears the sign and the highest bit of the exponent, so the number is finite.
#[cfg(feature = "alloc")]
fn digest(ends: &[usize], quanta: impl Iterator<Item = f64>) -> f64 {
    let ends = ends.iter().map(|&end| end as u64);
    let bytes: Vec<u8> = ends.chain(quanta.map(f64::to_bits)).flat_map(u64::to_le_bytes).collect();
    f64::from_bits(xxhash_rust::xxh3::xxh3_64(&bytes) >> 2)
}
