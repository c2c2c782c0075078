//! The MPI library's own collectives as implementations.
//!
//! The MPI library takes part as two implementations. `mpi-default` runs on a duplicated
//! communicator without any tuning. `mpi-best` (unless `--mpi-best false`) runs the library's
//! fastest algorithm, chosen by trial for each size.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use foldwire::{Collective, Float, Transport};
use foldwire_arguments::OpArg;
use foldwire_mpi_native::{self as native, Buffers as MpiBuffers, Call, Native, Operation, Tuned};
use mpi::topology::{Communicator as _, SimpleCommunicator};

use super::best::BestOf;
use super::implementation::{CompletedRun, Implementation, ProblemBuffers, Run};
use super::problem::Problem;
use super::row::{MPI_BEST, MPI_DEFAULT};
use super::runner::AnyCommunicator;
use super::{Implementations, Settings};

/// Starts this program anew if the library lacks environment variables that its algorithms need. It
/// reads its environment when it starts, and changing it in a process with threads is unsafe.
pub(super) fn set_environment() -> anyhow::Result<()> {
    let Some((name, value)) = native::required_environment() else { return Ok(()) };
    let program = env::current_exe().context("this program's own file is not known")?;
    let error = Command::new(program).args(env::args_os().skip(1)).env(name, value).exec();
    Err(error).context(format!("cannot start again; set {name}={value} yourself"))
}

/// Returns the library's implementations.
pub(super) fn implementations<'a, X: Transport + 'a, T: Float>(
    world: &SimpleCommunicator,
    settings: &Settings,
    has_best: bool,
) -> anyhow::Result<Implementations<'a, X, T>> {
    let mut all: Implementations<'a, X, T> = vec![Box::new(LibraryDefault::new(world)?)];
    if has_best {
        all.push(Box::new(best(world, settings)?));
    }
    Ok(all)
}

/// Collects every algorithm that the library offers for the requested arrays. It offers other
/// algorithms for arrays that divide evenly among the ranks than for the rest.
fn best(
    world: &SimpleCommunicator,
    settings: &Settings,
) -> anyhow::Result<BestOf<TunedImplementation>> {
    let size = world.size() as usize;
    let mut algorithms = Vec::new();
    for is_even in [true, false] {
        let is_requested =
            |count: &usize| (!settings.problem.is_uneven && count.is_multiple_of(size)) == is_even;
        if settings.counts.iter().any(is_requested) {
            for algorithm in native::variants(settings.problem.collective, is_even) {
                let name = algorithm.name().to_owned();
                algorithms.push(TunedImplementation {
                    tuned: Tuned::new(world, algorithm)?,
                    name,
                    is_even,
                });
            }
        }
    }
    Ok(BestOf::new(MPI_BEST, "MPI best", algorithms))
}

/// The library without tuning.
pub(super) struct LibraryDefault(Native);

impl LibraryDefault {
    pub(super) fn new(world: &SimpleCommunicator) -> Result<Self, native::Error> {
        Native::duplicate(world).map(Self)
    }
}

impl<C: AnyCommunicator, T: Float> Implementation<C, T> for LibraryDefault {
    fn name(&self) -> &'static str {
        MPI_DEFAULT
    }

    fn title(&self) -> String {
        "MPI default".to_owned()
    }

    fn run(&mut self, run: Run<'_, C, T>) -> anyhow::Result<CompletedRun> {
        let Run { comm, problem, buffers, start, .. } = run;
        let call = call(problem)?;
        start(comm)?;
        self.0.run(&call, lend(problem, buffers))?;
        Ok(finish(problem, buffers))
    }
}

/// The library with one of its algorithms selected.
struct TunedImplementation {
    tuned: Tuned,
    name: String,
    /// True if the algorithm is for arrays that divide evenly among the ranks.
    is_even: bool,
}

impl<C: AnyCommunicator, T: Float> Implementation<C, T> for TunedImplementation {
    fn name(&self) -> &'static str {
        MPI_BEST
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    fn suits(&self, problem: &Problem) -> bool {
        let is_even = !problem.is_uneven && problem.count.is_multiple_of(problem.size);
        self.is_even == is_even && self.tuned.variant().suits(problem.count * T::BYTES)
    }

    fn run(&mut self, run: Run<'_, C, T>) -> anyhow::Result<CompletedRun> {
        let Run { comm, problem, buffers, start, .. } = run;
        let call = call(problem)?.with_form(self.tuned.variant().form())?;
        let active = self.tuned.activate()?;
        start(comm)?;
        active.run(&call, lend(problem, buffers))?;
        Ok(finish(problem, buffers))
    }
}

/// Returns the problem as a call of the MPI library.
fn call(problem: &Problem) -> Result<Call, native::Error> {
    let op = match problem.op {
        OpArg::Sum | OpArg::Avg => Operation::Sum,
        OpArg::Min => Operation::Min,
        OpArg::Max => Operation::Max,
        OpArg::Prod => Operation::Prod,
    };
    if problem.is_uneven {
        return Call::of_shares(problem.collective, &problem.counts(), op, problem.root);
    }
    Call::new(problem.collective, problem.count, problem.size, op, problem.root)
}

fn lend<'a, T: Float>(problem: &Problem, buffers: &'a mut ProblemBuffers<T>) -> MpiBuffers<'a, T> {
    if problem.one_buffer() {
        MpiBuffers::InPlace(&mut buffers.recv)
    } else {
        MpiBuffers::Split { send: &buffers.send, recv: &mut buffers.recv }
    }
}

/// Finishes a call of the MPI library. MPI has no average, so the sum is divided here. An in-place
/// reduce-scatter leaves its result at the start of the buffer.
fn finish<T: Float>(problem: &Problem, buffers: &mut ProblemBuffers<T>) -> CompletedRun {
    let place = problem.result();
    let at_start = problem.in_place && problem.collective == Collective::ReduceScatter;
    let result_at = at_start.then_some(0);
    if problem.op == OpArg::Avg && problem.collective.reduces() {
        let default = if problem.one_buffer() { place.start } else { 0 };
        let result = &mut buffers.recv[result_at.unwrap_or(default)..][..place.len()];
        let divisor = T::from_f64(problem.size as f64);
        result.iter_mut().for_each(|value| *value = *value / divisor);
    }
    CompletedRun { ended: Instant::now(), report: None, result_at }
}
