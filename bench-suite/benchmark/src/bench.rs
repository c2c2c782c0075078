//! `foldwire bench`: times a collective over array sizes, as the OSU benchmarks do. It compares
//! every preset with the MPI library's own collectives.
//!
//! An implementation is anything that can carry out the collective. Tables, CSV and JSON call it a
//! contestant.
//!
//! | file | what it does |
//! |---|---|
//! | `problem` | one collective on arrays of one length: inputs, shares and the exact result |
//! | `implementation` | the trait of all implementations, and presets as implementations |
//! | `sweep` | every schedule as an implementation, and the schedule that a call chooses |
//! | `best` | an implementation that chooses the fastest of several algorithms by trial |
//! | `call_mode` | runs one rank, from its endpoint to results, with one call after the other |
//! | `concurrent` | does the same with several calls in progress at once |
//! | `overlap` | computation that runs during calls |
//! | `runner` | one rank's communicator, buffers and clock |
//! | `preset_run` | times of one preset on threads, for the validation of the cost model |
//! | `result_check` | the distance of a result from the exact one |
//! | `benchmark` | the loop that all ranks run: sizes × rounds × implementations |
//! | `row`, `output` | results of an implementation at a size; all results, formatted |
//! | `plot` | the plot of times over sizes |
//! | `choose` | `foldwire choose`: automatic plans compared with the plans that they choose from |
//! | `guidelines` | `foldwire guidelines`: collectives compared with each other |
//! | `threads` | starts ranks as threads |
//! | `mpi` | the MPI library's own collectives as implementations |

pub(crate) mod benchmark;
#[cfg(any(test, feature = "mpi"))]
mod best;
mod call_mode;
pub mod choose;
mod concurrent;
#[cfg(feature = "cuda")]
mod device;
pub mod guidelines;
mod implementation;
#[cfg(feature = "mpi")]
mod mpi;
pub(crate) mod output;
mod overlap;
#[cfg(feature = "plots")]
mod plot;
pub(crate) mod preset_run;
mod problem;
mod result_check;
pub(crate) mod row;
pub(crate) mod runner;
mod sweep;
mod threads;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use anyhow::bail;
use foldwire::{Collective, Communicator, Config, DType, Float, Plan, Preset, Transport};
use foldwire_arguments::values::LinkRate;
use foldwire_arguments::{BackendArg, BenchArgs, FormArg, ScheduleArg};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::device::DeviceOption;
use foldwire_workbench::threads::Pools;
use foldwire_workbench::{streams, with_float};
use indicatif::ProgressBar;

use crate::job::{self, Job, Library, Measurement};
use crate::tune;
use benchmark::Settings;
use call_mode::{BackendExtras, BenchInputs, CallMode, SequentialCalls};
use concurrent::ConcurrentCalls;
use implementation::{Implementation, PlanImplementation, WholeMessages};
use output::BenchResults;
use sweep::ScheduleImplementation;

/// All-to-all with uneven shares, which concurrent calls do not support: they have only one list of
/// share lengths, and a rank sends and receives shares of different lengths.
const UNEVEN_EXCHANGE: FormArg = FormArg { collective: Collective::AllToAll, is_uneven: true };

/// Runs the subcommand, or this process's rank of it. Results go to rank 0's stdout, everything
/// else to stderr.
///
/// # Errors
/// Usage errors, calls that fail, output that cannot be written, and results beyond their bound.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    if let Some(ScheduleArg::One(named)) = args.schedule
        && !named.0.supports(args.form.collective)
    {
        let (name, collective) = (named.0.name(), args.form.name());
        bail!(usage!(
            "schedule {name} has no {collective}; `foldwire schedule` lists those that have"
        ));
    }
    if args.sweeps() && args.in_flight > 1 {
        bail!(usage!(
            "--schedule all compares single calls; leave out --in-flight, or name one schedule"
        ));
    }
    if args.form == UNEVEN_EXCHANGE && args.in_flight > 1 {
        bail!(usage!(
            "alltoallv is measured one call after the other; leave out --in-flight, or take \
             alltoall"
        ));
    }
    if args.device.is_some() && (args.in_flight > 1 || args.overlap.is_some() || args.sweeps()) {
        bail!(usage!(
            "--device measures single calls; leave out --in-flight, --overlap and --schedule all"
        ));
    }
    if args.fill.is_some() && args.network.backend == BackendArg::Mpi {
        bail!(usage!(
            "the MPI library knows no fill value; leave out --fill, or take another backend"
        ));
    }
    let source = FieldSource::open_filled(args.field.as_deref(), args.fill)?;
    let dtype = source.dtype(args.dtype);
    args.presets().check(dtype)?;
    if let Some(codec) = args.codec {
        codec.check(dtype)?;
    }
    if args.in_flight > 1 && args.threads.is_none() {
        let presets = args.presets().of(dtype);
        if let Some(preset) = presets.iter().find(|preset| preset.is_threaded()) {
            bail!(usage!(
                "preset {} has two threads, and all calls of --in-flight have as many; add \
                 --threads, or leave it out",
                preset.name()
            ));
        }
    }
    match dtype {
        DType::F32 if args.in_flight > 1 => run_with::<f32, ConcurrentCalls>(args, &source),
        dtype if args.in_flight > 1 => Err(usage!(
            "--in-flight is measured with f32 only, and the values are {dtype}; write --dtype f32"
        )
        .into()),
        dtype => with_float!(dtype, T => run_with::<T, SequentialCalls>(args, &source)),
    }
}

fn run_with<T: Float + Into<f64>, P: CallMode<T>>(
    args: &BenchArgs,
    source: &FieldSource,
) -> anyhow::Result<()> {
    if args.network.backend == BackendArg::Threads {
        return threads::run::<T, P>(args, source);
    }
    #[cfg(feature = "mpi")]
    if args.network.backend == BackendArg::Mpi && args.mpi_best {
        mpi::set_environment()?;
    }
    let link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let default_ranks = threads::DEFAULT_RANKS;
    let job = Job { network: &args.network, default_ranks, link_rate, frame_bytes: args.frame };
    job::run(job, |size, _| {
        let settings = Settings::new::<T>(args, size)?;
        Ok(BenchMeasurement { args, source, settings, mode: PhantomData::<fn() -> (T, P)> })
    })
}

/// The benchmark as the ranks of a job run it.
struct BenchMeasurement<'a, T, P> {
    args: &'a BenchArgs,
    source: &'a FieldSource,
    settings: Settings,
    mode: PhantomData<fn() -> (T, P)>,
}

impl<T: Float + Into<f64>, P: CallMode<T>> Measurement for BenchMeasurement<'_, T, P> {
    type Results = BenchResults;

    fn run_rank<X: Transport + 'static>(
        &self,
        endpoint: X,
        backend: &str,
        library: Option<&Library>,
    ) -> anyhow::Result<BenchResults> {
        let Self { args, source, settings, .. } = self;
        let (size, rank) = (endpoint.size(), endpoint.rank().index());
        // The number of ranks on this machine is unknown, so only this rank's memory is checked.
        settings.check_room::<T>(rank..rank + 1)?;
        let data = &source.data::<T>(size).with_fill(args.fill);
        let extras = BackendExtras { library, ..BackendExtras::default() };
        #[cfg(feature = "mpi")]
        let extras = match library.filter(|_| settings.in_flight == 1) {
            Some(library) => {
                let implementations = mpi::implementations(library, settings, args.mpi_best)?;
                BackendExtras { implementations, ..extras }
            }
            None => extras,
        };
        let pools = Pools::new(args.threads, &args.presets().of(T::DTYPE))?;
        P::run_rank(BenchInputs { args, settings, data, backend, pools }, endpoint, extras)
    }

    fn show(&self, _: &str, results: &BenchResults) -> anyhow::Result<()> {
        show(self.args, results)
    }
}

/// Returns the implementations that every backend has. The communicator `long`, if there is one,
/// has longer frames, for plans that work message by message.
///
/// # Errors
/// Fails if the environment holds wrong settings.
fn presets<'a, X: Transport + 'a, T: Float>(
    args: &BenchArgs,
    shape: &[usize],
    pools: Pools,
    long: Option<Communicator<X>>,
    #[cfg_attr(not(feature = "cuda"), expect(unused, reason = "there is no device"))]
    device: &DeviceOption,
) -> Result<Implementations<'a, X, T>, UsageError> {
    let mut all: Implementations<'a, X, T> = Vec::new();
    let long = long.map(|comm| Rc::new(RefCell::new(comm)));
    for plan in plans(args, T::DTYPE, shape, pools) {
        #[cfg(feature = "cuda")]
        if let Some(device) = device {
            all.push(Box::new(device::DeviceImplementation::new(plan, device.clone())));
            continue;
        }
        match &long {
            Some(comm) if !plan.plan.overlaps() => {
                all.push(Box::new(WholeMessages::new(plan, Rc::clone(comm))));
            }
            _ => all.push(Box::new(plan)),
        }
    }
    let select = config(args)?.select;
    for (plan, schedule) in args.swept() {
        let planned = own(args, plan.with_schedule(schedule), shape, pools);
        all.push(Box::new(ScheduleImplementation::new(schedule, planned, select)));
    }
    Ok(all)
}

type Implementations<'a, X, T> = Vec<Box<dyn Implementation<Communicator<X>, T> + 'a>>;

/// Returns the presets and the user's own plan, for an array of this type and shape.
fn plans(args: &BenchArgs, dtype: DType, shape: &[usize], pools: Pools) -> Vec<PlanImplementation> {
    let preset = |preset: Preset| {
        let row = PlanImplementation::preset(preset, args.form.collective, args.bound);
        let row = row.with(pools.of(Some(preset)), args.as_published);
        row.with_ring_from(args.ring_from).of_shape(shape).with_fill(args.fill)
    };
    let row = |plan| own(args, plan, shape, pools);
    args.presets().of(dtype).into_iter().map(preset).chain(args.row().map(row)).collect()
}

/// Returns a plan of the user's own, for an array of this shape.
fn own(args: &BenchArgs, plan: Plan, shape: &[usize], pools: Pools) -> PlanImplementation {
    let row = PlanImplementation::row(plan).with(pools.of(None), args.as_published);
    row.of_shape(shape).with_fill(args.fill)
}

/// Returns the communicator's configuration, from the environment and the arguments.
///
/// # Errors
/// Fails if the environment or the file of speeds is wrong.
fn config(args: &BenchArgs) -> Result<Config, UsageError> {
    let config = config_from_env()?.with_lanes(lanes(args));
    Ok(match (tune::speeds(args.speeds.as_deref())?, args.network.backend) {
        (Some(speeds), _) => config.with_speeds(speeds),
        (None, BackendArg::Threads) => config.with_speeds(threads::world(args).speeds()),
        (None, _) => config,
    })
}

/// Returns the configuration from the environment, with defaults for the rest.
///
/// # Errors
/// Fails if the environment holds wrong settings.
pub(crate) fn config_from_env() -> Result<Config, UsageError> {
    let wrong = |error| usage!("{}: {error}", foldwire::select::VARIABLE);
    Config::from_env().map_err(wrong)
}

fn lanes(args: &BenchArgs) -> usize {
    args.lanes.unwrap_or(Config::default().lanes)
}

/// Returns a progress bar on stderr for rank 0 on a terminal, and a hidden one otherwise.
pub(crate) fn progress(rank: usize) -> ProgressBar {
    if rank == 0 {
        foldwire_workbench::progress::bar("measuring", 0)
    } else {
        ProgressBar::hidden()
    }
}

/// Prints results. Only rank 0 calls it.
///
/// # Errors
/// Fails if the results cannot be printed, or exceed their bound.
fn show(args: &BenchArgs, results: &BenchResults) -> anyhow::Result<()> {
    if args.json {
        streams::write(&format!("{}\n", results.json()?))?;
    } else if args.csv {
        streams::write(&results.csv()?)?;
    } else {
        streams::write(&results.text())?;
    }
    // An error of the plot is returned only at the end, so that it does not suppress the rest.
    let drawn = foldwire_workbench::draw!(args.plot, plot::times(results));
    let dtype = DType::ALL.iter().find(|dtype| dtype.name() == results.head.dtype);
    if let Some(note) = dtype.and_then(|dtype| args.presets().note(*dtype)) {
        streams::remark(format_args!("note: {note}"));
    }
    for note in &results.outcome.left_out {
        streams::remark(format_args!("note: {note}"));
    }
    for note in results.outcome.rows.iter().filter_map(row::CollectiveRow::note) {
        streams::remark(format_args!("note: {note}"));
    }
    let faults: Vec<String> =
        results.outcome.rows.iter().filter_map(row::CollectiveRow::fault).collect();
    anyhow::ensure!(faults.is_empty(), "wrong results\n  {}", faults.join("\n  "));
    drawn
}
