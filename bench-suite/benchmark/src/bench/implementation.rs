//! Implementations: everything that can carry out a collective and take part in a benchmark.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use anyhow::Context;
use foldwire::threads::Threads;
use foldwire::{
    Bound, Collective, Communicator, Error, Float, Operation, Plan, Preset, Report, Transport,
};
use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::sizes::Size;

use super::overlap::OverlapWork;
use super::problem::Problem;
use super::runner::{AnyCommunicator, Runner};

/// One rank's buffers for a problem.
#[derive(Debug)]
pub(super) struct ProblemBuffers<T> {
    /// This rank's input.
    pub(super) send: Vec<T>,
    /// Buffer for the result. It holds the whole array if input and result share a buffer.
    pub(super) recv: Vec<T>,
}

/// An implementation of collectives, run by all ranks together.
pub(super) trait Implementation<C: AnyCommunicator, T: Float> {
    /// Returns a short name in lower case, unique in a benchmark.
    fn name(&self) -> &'static str;

    /// Returns the name for tables.
    fn title(&self) -> String;

    /// Returns whether the implementation supports this problem; the same on all ranks.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "asked of MPI's algorithms only"))]
    fn suits(&self, _problem: &Problem) -> bool {
        true
    }

    /// Prepares for the runner's problem, before the first run.
    fn prepare(&mut self, _runner: &mut Runner<'_, C, T>) -> anyhow::Result<()> {
        Ok(())
    }

    /// Carries out the problem once. The returned value says when the run ended.
    fn run(&mut self, run: Run<'_, C, T>) -> anyhow::Result<CompletedRun>;

    /// Returns an error if the implementation does not support the runner's problem. The result is
    /// the same on all ranks.
    fn refusal(&mut self, _runner: &mut Runner<'_, C, T>) -> anyhow::Result<Option<Error>> {
        Ok(None)
    }

    /// Returns the schedule of an implementation that serves to compare schedules.
    fn swept_schedule(&self, _comm: &C, _problem: &Problem) -> Option<SweptSchedule> {
        None
    }

    /// Returns whether the implementation has nonblocking calls, beside which a rank can work.
    fn can_overlap(&self) -> bool {
        false
    }

    /// Overwrites results in the implementation's own buffers, if it has any.
    fn clear_results(&mut self) {}

    /// Returns the number of results of a run. A single result is in the receive buffer.
    fn n_results(&self) -> usize {
        1
    }

    /// Copies the `nth` of several results to the receive buffer.
    fn fetch(&mut self, _nth: usize, _buffers: &mut ProblemBuffers<T>) {}

    /// Returns the algorithm that was chosen for this problem, if there was a choice.
    fn algorithm(&self) -> Option<String> {
        None
    }
}

/// One schedule in a comparison of schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SweptSchedule {
    pub(super) schedule: &'static str,
    /// True if a call whose plan names no schedule takes this one.
    pub(super) is_chosen: bool,
}

/// A problem to carry out once, from `buffers.send` to `buffers.recv`.
pub(super) struct Run<'r, C, T> {
    pub(super) comm: &'r mut C,
    pub(super) problem: &'r Problem,
    /// If input and result share a buffer, `recv` already holds the input.
    pub(super) buffers: &'r mut ProblemBuffers<T>,
    /// The implementation calls this when it is ready.
    pub(super) start: &'r mut StartClock<'r, C>,
    /// Work between the start and the completion of the call.
    pub(super) work: Option<&'r OverlapWork>,
}

/// Waits for all ranks, then starts the clock.
pub(super) type StartClock<'a, C> = dyn FnMut(&mut C) -> anyhow::Result<()> + 'a;

/// A completed run.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompletedRun {
    /// Time at which the clock stops.
    pub(super) ended: Instant,
    /// Foldwire's report; `None` for other libraries.
    pub(super) report: Option<Report>,
    /// Start of the result in the receive buffer, if it is unusual. Usually it is 0, or the start
    /// of [`Problem::result`] if input and result share a buffer.
    pub(super) result_at: Option<usize>,
}

/// Name of a plan that is not a preset (the user's own row).
const ROW: &str = "row";

/// A plan (schedule × pipeline × codec) as an implementation.
#[derive(Debug)]
pub(super) struct PlanImplementation {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) plan: Plan,
    /// The preset of this plan, and its bound. The preset's schedule depends on the length.
    preset: Option<(Preset, Bound)>,
    /// Bytes of a share from which gZCCL's all-reduce is a ring.
    ring_from: usize,
    /// Threads that compute for each rank.
    pub(super) threads: Threads,
}

impl PlanImplementation {
    pub(super) fn preset(preset: Preset, collective: Collective, bound: Bound) -> Self {
        let title = match preset {
            // Distinct from the MPI library, which may be in the same table.
            Preset::Raw => "Foldwire raw",
            preset => preset.title(),
        };
        let plan = preset.plan(collective, bound);
        let (threads, preset) = (Threads::ONE, (preset, bound));
        let title = title.to_owned();
        let ring_from = Preset::RING_FROM;
        Self { name: preset.0.name(), title, plan, preset: Some(preset), ring_from, threads }
    }

    /// Sets the threads. With `as_published`, drops the guarantee of equal bits on all ranks.
    pub(super) fn with(self, threads: Threads, as_published: bool) -> Self {
        let plan = if as_published { self.plan.as_published() } else { self.plan };
        Self { plan, threads, ..self }
    }

    /// Sets the bytes of a share from which gZCCL's all-reduce is a ring.
    pub(super) fn with_ring_from(self, ring_from: usize) -> Self {
        Self { ring_from, ..self }
    }

    /// Returns the same plan for an array of this shape.
    pub(super) fn of_shape(self, shape: &[usize]) -> Self {
        Self { plan: self.plan.with_shape(shape), ..self }
    }

    /// Returns the same plan with this fill value.
    pub(super) fn with_fill(self, fill: Option<f64>) -> Self {
        let plan = fill.map_or(self.plan, |fill| self.plan.with_fill(fill));
        Self { plan, ..self }
    }

    /// Returns the plan with the schedule for the problem's length.
    pub(super) fn plan<T: Float>(&self, problem: &Problem) -> Plan {
        let n_bytes = problem.count * T::BYTES / problem.size;
        let schedule = self.preset.map_or(self.plan.schedule, |(preset, bound)| {
            preset.plan_switched(problem.collective, bound, n_bytes, self.ring_from).schedule
        });
        let mut plan = self.plan;
        plan.schedule = schedule;
        plan
    }

    /// Makes an implementation of a plan that is not a preset.
    pub(super) fn row(plan: Plan) -> Self {
        let schedule = plan.schedule.map_or("chosen", |schedule| schedule.name());
        let coding = CodecArg { codec: plan.codec, setting: plan.setting };
        let mut title = format!("{schedule} × {} × {coding}", plan.pipeline.name);
        if plan.exact_below > 0 {
            title += &format!(", exact below {}", Size(plan.exact_below));
        }
        let (ring_from, threads) = (Preset::RING_FROM, Threads::ONE);
        Self { name: ROW, title, plan, preset: None, ring_from, threads }
    }

    fn carry_out<X: Transport, T: Float>(
        &self,
        run: Run<'_, Communicator<X>, T>,
    ) -> anyhow::Result<CompletedRun> {
        let Run { comm, problem, buffers, start, work } = run;
        let [counts, from_each] = problem.all_counts();
        comm.config_mut().threads = self.threads;
        let plan = self.plan::<T>(problem);
        start(comm)?;
        let call = begin(comm, problem, [&counts, &from_each], buffers, &plan);
        let mut call = call.with_context(|| self.title.clone())?;
        let mut outcome = None;
        if let Some(work) = work {
            work.run(|| {
                if outcome.is_none()
                    && let Poll::Ready(result) = call.poll()
                {
                    outcome = Some(result);
                }
            });
        }
        let report = outcome.unwrap_or_else(|| call.wait()).with_context(|| self.title.clone())?;
        Ok(CompletedRun { ended: Instant::now(), report: Some(report), result_at: None })
    }
}

impl<X: Transport, T: Float> Implementation<Communicator<X>, T> for PlanImplementation {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn run(&mut self, run: Run<'_, Communicator<X>, T>) -> anyhow::Result<CompletedRun> {
        self.carry_out(run)
    }

    fn can_overlap(&self) -> bool {
        true
    }
}

/// A plan that works message by message, on a communicator whose frames hold whole messages.
pub(super) struct WholeMessages<X: Transport> {
    row: PlanImplementation,
    comm: Rc<RefCell<Communicator<X>>>,
}

impl<X: Transport> WholeMessages<X> {
    pub(super) const fn new(row: PlanImplementation, comm: Rc<RefCell<Communicator<X>>>) -> Self {
        Self { row, comm }
    }
}

impl<X: Transport, T: Float> Implementation<Communicator<X>, T> for WholeMessages<X> {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn title(&self) -> String {
        self.row.title.clone()
    }

    fn run(&mut self, run: Run<'_, Communicator<X>, T>) -> anyhow::Result<CompletedRun> {
        let Run { problem, buffers, start, work, .. } = run;
        let comm = &mut *self.comm.borrow_mut();
        self.row.carry_out(Run { comm, problem, buffers, start, work })
    }

    fn can_overlap(&self) -> bool {
        true
    }
}

fn begin<'a, X: Transport, T: Float>(
    comm: &'a mut Communicator<X>,
    problem: &Problem,
    [counts, from_each]: [&'a [usize]; 2],
    buffers: &'a mut ProblemBuffers<T>,
    plan: &Plan,
) -> Result<Operation<'a, X, T>, Error> {
    let ProblemBuffers { send, recv } = buffers;
    comm.start(problem.call([counts, from_each], &send[..], &mut recv[..]), plan)
}
