//! `--schedule all`: compares every schedule with the one that a call chooses by default.
//!
//! The ratio of the chosen schedule's time to the best time shows how much the model in
//! [`foldwire::select`] loses by its choice. The best time is the least of several medians. So the
//! ratio is a little above 1 by chance, even if all schedules are equally fast.

use foldwire::codec::CodecId;
use foldwire::op::OpCode;
use foldwire::schedule::{ProgramSpec, Schedule};
use foldwire::select::{self, Network};
use foldwire::{Communicator, Error, Float, Op, Plan, Rank, Transport, pipeline};
use foldwire_arguments::sizes::Size;
use foldwire_workbench::table::Columns;

use super::implementation::{CompletedRun, Implementation, PlanImplementation, Run, SweptSchedule};
use super::problem::Problem;
use super::row::CollectiveRow;
use super::runner::Runner;

/// One of the compared schedules.
pub(super) struct ScheduleImplementation {
    schedule: &'static dyn Schedule,
    /// Runs the plan with this schedule.
    planned: PlanImplementation,
    /// The same plan without a schedule.
    open_plan: Plan,
    /// The user's own rules for selection, which take precedence over the model.
    select: &'static [select::SelectionRule],
}

impl ScheduleImplementation {
    /// Makes the implementation of `planned`, whose plan has this schedule.
    pub(super) fn new(
        schedule: &'static dyn Schedule,
        planned: PlanImplementation,
        select: &'static [select::SelectionRule],
    ) -> Self {
        let mut open_plan = planned.plan;
        open_plan.schedule = None;
        Self { schedule, planned, open_plan, select }
    }

    /// Returns the schedule that a call chooses if its plan names none. Like the call, it uses the
    /// raw pipeline for arrays that the plan sends uncompressed.
    fn chosen<X: Transport, T: Float>(&self, transport: &X, problem: &Problem) -> &dyn Schedule {
        let n_bytes = problem.count * T::BYTES;
        let mut plan = self.open_plan;
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
        Implementation::<Communicator<X>, T>::title(&self.planned)
    }

    /// Runs the schedule once. Returns the error if the schedule cannot do the call: some schedules
    /// need frames that hold many parts.
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

    fn run(&mut self, run: Run<'_, Communicator<X>, T>) -> anyhow::Result<CompletedRun> {
        self.planned.run(run)
    }

    fn can_overlap(&self) -> bool {
        true
    }

    fn swept_schedule(&self, comm: &Communicator<X>, problem: &Problem) -> Option<SweptSchedule> {
        let schedule = self.schedule.name();
        let chosen = self.chosen::<X, T>(comm.transport(), problem).name();
        Some(SweptSchedule { schedule, is_chosen: chosen == schedule })
    }
}

/// Formats a table with the chosen and the best schedule for each size. Returns an empty string if
/// schedules are not compared.
pub(super) fn choices(rows: &[CollectiveRow]) -> String {
    let chosen = rows.iter().filter(|row| row.is_chosen == Some(true));
    let pairs: Vec<(&CollectiveRow, &CollectiveRow)> = chosen
        .filter_map(|row| {
            let mut of_size = rows.iter().filter(|other| other.n_bytes == row.n_bytes);
            Some((row, of_size.find(|other| other.times_best == Some(1.0))?))
        })
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    let micros = |row: &CollectiveRow| format!("{:.1}", row.time_s * 1e6);
    let table = Columns::of(pairs)
        .number("size", "bytes", |(row, _)| Size(row.n_bytes))
        .text("chosen", "", |(row, _)| &row.contestant)
        .number("time", "µs", |(row, _)| micros(row))
        .text("best", "", |(_, best)| &best.contestant)
        .number("time", "µs", |(_, best)| micros(best))
        .number("chosen", "x best", |(row, _)| {
            row.times_best.map(|times| format!("{times:.2}")).unwrap_or_default()
        });
    format!("\n{}", table.render())
}
