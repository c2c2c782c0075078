//! `--schedule all`: compares every schedule with the one that a call chooses by default.
//!
//! The ratio of the chosen schedule's time to the best time is the cost of the model in
//! [`foldwire::select`]. The best time is the least of several medians. So among equally fast
//! schedules the ratio is a little above 1 by chance.

use foldwire::codec::CodecId;
use foldwire::op::OpCode;
use foldwire::schedule::{ProgramSpec, Schedule};
use foldwire::select::{self, Network};
use foldwire::{Communicator, Error, Float, Op, Plan, Rank, Transport, pipeline};
use foldwire_arguments::sizes::Size;
use foldwire_workbench::table::{Align, Table};

use super::implementation::{
    CompletedRun, Implementation, PlanImplementation, ProblemBuffers, StartClock, SweptSchedule,
};
use super::overlap::OverlapWork;
use super::problem::Problem;
use super::row::CollectiveRow;
use super::runner::Runner;

/// One schedule of all that are compared.
pub(super) struct ScheduleImplementation {
    schedule: &'static dyn Schedule,
    row: PlanImplementation,
    /// The same plan without a schedule.
    open: Plan,
    /// The user's own rules, which take precedence over the model.
    select: &'static [select::SelectionRule],
}

impl ScheduleImplementation {
    pub(super) fn new(
        (plan, schedule): (Plan, &'static dyn Schedule),
        select: &'static [select::SelectionRule],
    ) -> Self {
        let row = PlanImplementation::row(plan.with_schedule(schedule));
        let mut open = plan;
        open.schedule = None;
        Self { schedule, row, open, select }
    }

    /// Returns the schedule that a call chooses if its plan names none.
    fn chosen<X: Transport, T: Float>(&self, transport: &X, problem: &Problem) -> &dyn Schedule {
        let n_bytes = problem.count * T::BYTES;
        let mut plan = self.open;
        if n_bytes < plan.exact_below {
            (plan.pipeline, plan.codec) = (pipeline::RAW, CodecId::Raw);
        }
        let root = if problem.collective.has_root() { problem.root } else { Rank(0) };
        let call = ProgramSpec::new(problem.collective, problem.size, root);
        let op = Op::<T>::from(problem.op).code();
        let op = if problem.collective.reduces() { op } else { OpCode::None };
        let (link_rate, frame_bytes) = (transport.link_rate(), transport.frame_capacity());
        let network = Network { link_rate, frame_bytes };
        select::chosen(self.select, call, op, &plan, n_bytes, network)
    }
}

impl<X: Transport, T: Float> Implementation<Communicator<X>, T> for ScheduleImplementation {
    fn name(&self) -> &'static str {
        self.schedule.name()
    }

    fn title(&self) -> String {
        Implementation::<Communicator<X>, T>::title(&self.row)
    }

    /// Some schedules need frames that hold many parts.
    fn refusal(
        &mut self,
        runner: &mut Runner<'_, Communicator<X>, T>,
    ) -> anyhow::Result<Option<Error>> {
        let Err(error) = runner.run(self) else { return Ok(None) };
        match error.downcast_ref() {
            Some(&refusal @ (Error::FrameTooSmall { .. } | Error::Unsupported { .. })) => {
                Ok(Some(refusal))
            }
            _ => Err(error),
        }
    }

    fn run(
        &mut self,
        comm: &mut Communicator<X>,
        problem: &Problem,
        buffers: &mut ProblemBuffers<T>,
        start: &mut StartClock<'_, Communicator<X>>,
    ) -> anyhow::Result<CompletedRun> {
        self.row.run(comm, problem, buffers, start)
    }

    fn run_beside(
        &mut self,
        comm: &mut Communicator<X>,
        problem: &Problem,
        buffers: &mut ProblemBuffers<T>,
        start: &mut StartClock<'_, Communicator<X>>,
        work: &OverlapWork,
    ) -> anyhow::Result<Option<CompletedRun>> {
        self.row.run_beside(comm, problem, buffers, start, work)
    }

    fn swept_schedule(&self, comm: &Communicator<X>, problem: &Problem) -> Option<SweptSchedule> {
        let schedule = self.schedule.name();
        let chosen = self.chosen::<X, T>(comm.transport(), problem).name();
        Some(SweptSchedule { schedule, is_chosen: chosen == schedule })
    }
}

/// Formats the chosen and the best schedule for each size. Returns an empty string if schedules are
/// not compared.
pub(super) fn choices(rows: &[CollectiveRow]) -> String {
    let mut table = Table::new(&[
        ("size", "bytes", Align::Right),
        ("chosen", "", Align::Left),
        ("time", "µs", Align::Right),
        ("best", "", Align::Left),
        ("time", "µs", Align::Right),
        ("chosen", "x best", Align::Right),
    ]);
    let chosen = rows.iter().filter(|row| row.is_chosen == Some(true));
    let mut is_empty = true;
    for row in chosen {
        let of_size = rows.iter().filter(|other| other.n_bytes == row.n_bytes);
        let Some(best) = of_size.clone().find(|other| other.times_best == Some(1.0)) else {
            continue;
        };
        is_empty = false;
        table.row(&[
            Size(row.n_bytes).to_string(),
            row.contestant.clone(),
            format!("{:.1}", row.time_s * 1e6),
            best.contestant.clone(),
            format!("{:.1}", best.time_s * 1e6),
            row.times_best.map(|times| format!("{times:.2}")).unwrap_or_default(),
        ]);
    }
    if is_empty { String::new() } else { format!("\n{}", table.render()) }
}
