//! One rank of an MPI job, and the MPI library's own collectives as implementations.
//!
//! The MPI library takes part as two implementations. `mpi-default` runs on a duplicated
//! communicator without any tuning. `mpi-best` (unless `--mpi-best false`) runs the library's
//! fastest algorithm, chosen by trial for each size.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use foldwire::select::Speeds;
use foldwire::{Collective, Float};
use foldwire_arguments::values::LinkRate;
use foldwire_arguments::{BenchArgs, ChooseArgs, GuidelinesArgs, OpArg};
use foldwire_mpi_native::{self as native, Buffers as MpiBuffers, Call, Native, Operation, Tuned};
use foldwire_workbench::streams;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::CommunicatorCollectives;

use super::benchmark::counts;
use super::best::{AlgorithmCandidate, BestOf};
use super::call_mode::{BackendExtras, BenchInputs, CallMode};
use super::implementation::{CompletedRun, Implementation, ProblemBuffers, Run};
use super::output::BenchResults;
use super::problem::Problem;
use super::row::{MPI_BEST, MPI_DEFAULT};
use super::runner::AnyCommunicator;
use super::{FieldSource, Settings, choose, config_from_env, guidelines, show};

/// Runs this process's rank.
pub(super) fn run<T: Float + Into<f64>, P: CallMode<T>>(
    args: &BenchArgs,
    source: &FieldSource,
) -> anyhow::Result<()> {
    if args.mpi_best
        && let Some((name, value)) = native::required_environment()
    {
        // The library reads its environment when it starts, and changing it in a process with
        // threads is unsafe. So start this program anew.
        let program = env::current_exe().context("this program's own file is not known")?;
        let error = Command::new(program).args(env::args_os().skip(1)).env(name, value).exec();
        return Err(error).context(format!("cannot start again; set {name}={value} yourself"));
    }
    let universe = mpi::initialize().context("MPI does not start")?;
    let world = universe.world();
    // All ranks detect the same error, and only rank 0 reports it.
    let settings = match Settings::new::<T>(args, world.size() as usize) {
        Err(_) if world.rank() > 0 => return Ok(()),
        settings => settings?,
    };
    match run_rank::<T, P>(args, source, &world, &settings) {
        Ok(results) if world.rank() == 0 => show(args, &results),
        Ok(_) => Ok(()),
        Err(error) => {
            // Other ranks may wait for this rank in an MPI call, which has no timeout.
            streams::remark(format_args!("error: rank {}: {error:#}", world.rank()));
            world.abort(1)
        }
    }
}

fn run_rank<T: Float + Into<f64>, P: CallMode<T>>(
    args: &BenchArgs,
    source: &FieldSource,
    world: &SimpleCommunicator,
    settings: &Settings,
) -> anyhow::Result<BenchResults> {
    let (size, rank) = (world.size() as usize, world.rank() as usize);
    // The number of ranks on this machine is unknown, so only this rank's memory is checked.
    settings.check_room::<T>(size, rank..rank + 1)?;
    let data = source.data::<T>(size).with_fill(args.fill);
    let mut options = foldwire_mpi::Options::default();
    options.frame_bytes = args.frame.unwrap_or(options.frame_bytes);
    options.link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let endpoint = foldwire_mpi::join_with(world, options)?;
    let backend = format!("MPI ({})", native::library());
    let inputs = BenchInputs { args, settings, data: &data, backend: &backend };

    let mut extras = BackendExtras::default();
    if settings.in_flight == 1 {
        extras.implementations.push(Box::new(LibraryDefault(Native::duplicate(world)?)));
        if args.mpi_best {
            extras.implementations.push(Box::new(best(world, settings)?));
        }
    }
    let for_barrier = world.duplicate();
    extras.barrier = Some(Box::new(move || for_barrier.barrier()));
    P::run_rank(inputs, endpoint, extras)
}

/// Runs this process's rank of `foldwire choose`.
pub(super) fn choose(args: &ChooseArgs) -> anyhow::Result<()> {
    let universe = mpi::initialize().context("MPI does not start")?;
    let world = universe.world();
    let task = match choose::ChooseTask::new(args, world.size() as usize, 1, Speeds::default()) {
        Err(_) if world.rank() > 0 => return Ok(()),
        task => task?,
    };
    let options = foldwire_mpi::Options::default();
    let joined = foldwire_mpi::join_with(&world, options).map_err(Into::into);
    match joined.and_then(|endpoint| task.run_rank(endpoint)) {
        Ok(rows) if world.rank() == 0 => task.show(&format!("MPI ({})", native::library()), &rows),
        Ok(_) => Ok(()),
        Err(error) => {
            streams::remark(format_args!("error: rank {}: {error:#}", world.rank()));
            world.abort(1)
        }
    }
}

/// Runs this process's rank of `foldwire guidelines`.
pub(super) fn guidelines(args: &GuidelinesArgs) -> anyhow::Result<()> {
    let counts = counts::<f32>(&args.sizes)?;
    let universe = mpi::initialize().context("MPI does not start")?;
    let world = universe.world();
    match measure_guidelines(args, &world, &counts) {
        Ok(rows) if world.rank() == 0 => {
            let about = format!("{} ranks over MPI ({})", world.size(), native::library());
            guidelines::show(args, &about, &rows)
        }
        Ok(_) => Ok(()),
        Err(error) => {
            streams::remark(format_args!("error: rank {}: {error:#}", world.rank()));
            world.abort(1)
        }
    }
}

fn measure_guidelines(
    args: &GuidelinesArgs,
    world: &SimpleCommunicator,
    counts: &[usize],
) -> anyhow::Result<Vec<guidelines::GuidelineRow>> {
    let data = FieldSource::open(None)?.data::<f32>(world.size() as usize);
    let mut options = foldwire_mpi::Options::default();
    options.link_rate = args.link.bytes_per_s();
    let endpoint = foldwire_mpi::join_with(world, options)?;
    let mut comm = foldwire::Communicator::with_config(endpoint, config_from_env()?)?;
    let mut implementations = guidelines::presets(args)?;
    implementations.push(guidelines::JudgedImplementation {
        name: MPI_DEFAULT,
        make: Box::new(|_| Ok(Box::new(LibraryDefault(Native::duplicate(world)?)))),
    });
    let for_barrier = world.duplicate();
    let mut wait = |_: &mut _| {
        for_barrier.barrier();
        Ok(())
    };
    guidelines::GuidelineMeasurement { counts, data: &data, implementations }
        .measure(args, &mut comm, &mut wait)
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
            |count: &usize| (!settings.is_uneven && count.is_multiple_of(size)) == is_even;
        if settings.counts.iter().any(is_requested) {
            for algorithm in native::variants(settings.collective, is_even) {
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
struct LibraryDefault(Native);

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

    fn run(&mut self, run: Run<'_, C, T>) -> anyhow::Result<CompletedRun> {
        let Run { comm, problem, buffers, start, .. } = run;
        let call = call(problem)?.with_form(self.tuned.variant().form())?;
        let active = self.tuned.activate()?;
        start(comm)?;
        active.run(&call, lend(problem, buffers))?;
        Ok(finish(problem, buffers))
    }
}

impl<C: AnyCommunicator, T: Float> AlgorithmCandidate<C, T> for TunedImplementation {
    fn algorithm_name(&self) -> &str {
        &self.name
    }

    fn suits(&self, problem: &Problem) -> bool {
        let is_even = !problem.is_uneven && problem.count.is_multiple_of(problem.size);
        self.is_even == is_even && self.tuned.variant().suits(problem.count * T::BYTES)
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
