//! What takes part in a benchmark: anything that can carry out the collective.

use std::time::Instant;

use anyhow::Context;
use foldwire::{Bound, Collective, Communicator, Error, Float, Plan, Preset, Report, Transport};

use super::problem::Problem;
use super::stage::Stage;
use crate::cli::title;
use crate::sizes::Size;

/// One rank's buffers for a problem.
#[derive(Debug)]
pub(super) struct Buffers<T> {
    /// This rank's contribution.
    pub(super) send: Vec<T>,
    /// Where its result goes; the whole array if input and result share a buffer.
    pub(super) recv: Vec<T>,
}

/// A way to carry out collectives, played by all ranks together.
pub(super) trait Contestant<X: Transport, T: Float> {
    /// A short name in lower case, unique in a benchmark.
    fn name(&self) -> &'static str;

    /// The name in tables.
    fn title(&self) -> String;

    /// Gets ready for the stage's problem, before the first run.
    fn prepare(&mut self, _stage: &mut Stage<'_, X, T>) -> anyhow::Result<()> {
        Ok(())
    }

    /// Carries out the problem once, from `buffers.send` (and, in one buffer, `buffers.recv`, which
    /// holds it at its place) to `buffers.recv`. Calls `start` when it is ready, which waits for
    /// all ranks and starts the clock, and notes when it has done.
    fn run(
        &mut self,
        comm: &mut Communicator<X>,
        problem: &Problem,
        buffers: &mut Buffers<T>,
        start: &mut Start<'_, X>,
    ) -> anyhow::Result<Done>;

    /// Why it cannot carry out the stage's problem, if it cannot; the same on all ranks.
    fn refusal(&mut self, _stage: &mut Stage<'_, X, T>) -> anyhow::Result<Option<Error>> {
        Ok(None)
    }

    /// Its schedule, if it is there to show that.
    fn shown(&self, _comm: &Communicator<X>, _problem: &Problem) -> Option<Shown> {
        None
    }

    /// What was chosen for this problem, if there was a choice.
    fn detail(&self) -> Option<String> {
        None
    }
}

/// A schedule beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) schedule: &'static str,
    /// Whether a call whose plan names none takes it.
    pub(super) is_chosen: bool,
}

/// Waits for all ranks, then starts the clock.
pub(super) type Start<'a, X> = dyn FnMut(&mut Communicator<X>) -> anyhow::Result<()> + 'a;

/// What a run says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// When the clock stops.
    pub(super) ended: Instant,
    /// Foldwire's report.
    pub(super) report: Option<Report>,
    /// Where the result begins in the receive buffer, if not where the problem says.
    pub(super) result_at: Option<usize>,
}

/// The name of a row that is no preset's.
const ROW: &str = "row";

/// A row of schedule × pipeline × codec: a preset's, or another.
#[derive(Debug)]
pub(super) struct OfPlan {
    name: &'static str,
    title: String,
    plan: Plan,
}

impl OfPlan {
    pub(super) fn preset(preset: Preset, collective: Collective, bound: Bound) -> Self {
        let title = match preset {
            // Not to be taken for the MPI library, which may stand beside it.
            Preset::Raw => "Foldwire raw",
            preset => title(preset),
        };
        let plan = preset.plan(collective, bound);
        Self { name: preset.name(), title: title.to_owned(), plan }
    }

    pub(super) fn row(plan: Plan) -> Self {
        let schedule = plan.schedule.map_or("chosen", |schedule| schedule.name());
        let mut title = format!("{schedule} × {} × {}", plan.pipeline.name, plan.codec.name());
        if plan.exact_below > 0 {
            title += &format!(", exact below {}", Size(plan.exact_below));
        }
        Self { name: ROW, title, plan }
    }
}

impl<X: Transport, T: Float> Contestant<X, T> for OfPlan {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn run(
        &mut self,
        comm: &mut Communicator<X>,
        problem: &Problem,
        buffers: &mut Buffers<T>,
        start: &mut Start<'_, X>,
    ) -> anyhow::Result<Done> {
        start(comm)?;
        let report =
            call(comm, problem, buffers, &self.plan).with_context(|| self.title.clone())?;
        Ok(Done { ended: Instant::now(), report: Some(report), result_at: None })
    }
}

fn call<X: Transport, T: Float>(
    comm: &mut Communicator<X>,
    problem: &Problem,
    buffers: &mut Buffers<T>,
    plan: &Plan,
) -> Result<Report, Error> {
    let Buffers { send, recv } = buffers;
    let op = problem.op.into();
    let root = problem.root;
    match (problem.collective, problem.in_place) {
        (Collective::AllReduce, false) => comm.all_reduce_into(send, recv, op, plan),
        (Collective::AllReduce, true) => comm.all_reduce(recv, op, plan),
        (Collective::ReduceScatter, false) => comm.reduce_scatter(send, recv, op, plan),
        (Collective::ReduceScatter, true) => comm.reduce_scatter_in_place(recv, op, plan),
        (Collective::AllGather, false) => comm.all_gather(send, recv, plan),
        (Collective::AllGather, true) => comm.all_gather_in_place(recv, plan),
        (Collective::Broadcast, _) => comm.broadcast(recv, root, plan),
        (Collective::Scatter, _) => comm.scatter(problem.count, send, recv, root, plan),
        (Collective::Gather, _) => comm.gather(problem.count, send, recv, root, plan),
        (Collective::Reduce, false) => comm.reduce(send, recv, op, root, plan),
        (Collective::Reduce, true) => comm.reduce_in_place(recv, op, root, plan),
        (Collective::AllToAll, false) => comm.all_to_all(send, recv, plan),
        (Collective::AllToAll, true) => comm.all_to_all_in_place(recv, plan),
        (Collective::Scan, false) => comm.scan_into(send, recv, op, plan),
        (Collective::Scan, true) => comm.scan(recv, op, plan),
        (Collective::ExclusiveScan, false) => comm.exclusive_scan_into(send, recv, op, plan),
        (Collective::ExclusiveScan, true) => comm.exclusive_scan(recv, op, plan),
        (collective, _) => {
            let schedule = foldwire::schedule::default_for(collective).name();
            Err(Error::Unsupported { schedule, collective })
        }
    }
}
