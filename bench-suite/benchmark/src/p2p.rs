//! `foldwire p2p`: measures messages between two ranks, and the barrier. Over MPI, it also measures
//! the MPI library's own messages and barrier.
//!
//! | file | what it does |
//! |---|---|
//! | `implementation` | the trait of all implementations, and messages of a plan |
//! | `benchmark` | the loop that all ranks run: sizes × rounds × implementations |
//! | `output` | results for people and programs |
//! | `mpi` | the MPI library's own messages as an implementation |
//!
//! The measurements match those of the OSU benchmarks and of Intel's IMB: osu_latency for
//! `pingpong`, osu_bibw and Sendrecv of IMB for `sendrecv`, osu_barrier for `barrier`.

mod benchmark;
mod implementation;
#[cfg(feature = "mpi")]
mod mpi;
mod output;

use foldwire::{Communicator, DType, Plan, Transport};
use foldwire_arguments::values::LinkRate;
use foldwire_arguments::{BackendArg, P2pArgs, coding};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::{ranks, room, streams};

use crate::bench::benchmark::counts;
use crate::bench::{config_from_env, progress};
use crate::job::{self, Library, Measurement, NetworkOptions};
use benchmark::MessageBenchmark;
use implementation::{MessageImplementation, PlanMessages};
use output::{P2pHead, P2pResults};

/// Default number of ranks that are threads.
const DEFAULT_RANKS: usize = 2;

/// Runs the subcommand, or this process's rank of it. Results go to rank 0's stdout, everything
/// else to stderr.
///
/// # Errors
/// Usage errors, calls that fail, output that cannot be written, and messages beyond their bound.
pub fn run(args: &P2pArgs) -> anyhow::Result<()> {
    let link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let options = NetworkOptions {
        provider: args.provider.as_deref(),
        streams: args.streams,
        encrypt: args.encrypt,
        link_rate,
        frame_bytes: None,
    };
    options.check(args.backend, args.ranks, "mpirun -n 2 foldwire p2p …")?;
    coding::check_all(&args.codec, DType::F32)?;
    counts::<f32>(&args.sizes)?;
    let source = FieldSource::open(args.field.as_deref())?;
    if args.backend == BackendArg::Threads {
        let size = args.ranks.unwrap_or(DEFAULT_RANKS);
        check(args, size, size)?;
        let p2p = P2pMeasurement { args, data: source.data::<f32>(size) };
        let run = |endpoint| p2p.run_rank(endpoint, "threads", None);
        let ranks = ranks::world(size, link_rate).run_endpoints(run);
        let mut ranks = ranks::results(ranks)?;
        return show(args, &ranks.swap_remove(0));
    }
    job::run(args.backend, options, |size| {
        // The number of ranks on this machine is unknown, so only this rank's memory is checked.
        check(args, size, 1)?;
        Ok(P2pMeasurement { args, data: source.data::<f32>(size) })
    })
}

/// The benchmark on every rank.
struct P2pMeasurement<'a> {
    args: &'a P2pArgs,
    /// The values of all ranks, so that a receiver can check what it received.
    data: Data<f32>,
}

impl Measurement for P2pMeasurement<'_> {
    type Results = P2pResults;

    fn run_rank<X: Transport + 'static>(
        &self,
        endpoint: X,
        backend: &str,
        library: Option<&Library>,
    ) -> anyhow::Result<P2pResults> {
        let Self { args, data } = self;
        let comm = Communicator::with_config(endpoint, config_from_env()?)?;
        let head = P2pHead::new(args, &comm, backend, data);
        #[cfg_attr(not(feature = "mpi"), expect(unused_mut, reason = "there is no library"))]
        let mut implementations = plans(args);
        #[cfg(feature = "mpi")]
        if let Some(library) = library {
            implementations.push(Box::new(mpi::LibraryMessages::new(library)));
        }
        let progress = &progress(comm.rank().index());
        let mut wait = job::barrier_of(library);
        let barrier = wait.as_mut();
        let benchmark = MessageBenchmark { args, comm, barrier, implementations, data, progress };
        Ok(P2pResults { head, rows: benchmark.run()? })
    }

    fn show(&self, _: &str, results: &P2pResults) -> anyhow::Result<()> {
        show(self.args, results)
    }
}

/// Returns the implementations that every backend has.
fn plans<'a, X: Transport>(args: &P2pArgs) -> Vec<Box<dyn MessageImplementation<X> + 'a>> {
    let exact_below = args.exact_below.unwrap_or(0);
    let variants = coding::variants(&args.codec, &args.bound).into_iter();
    let bounds = variants
        .map(|(name, plan)| PlanMessages { name, plan: plan.with_exact_below(exact_below) });
    let raw = PlanMessages { name: implementation::RAW.to_owned(), plan: Plan::raw() };
    std::iter::once(raw).chain(bounds).map(|plan| Box::new(plan) as Box<_>).collect()
}

/// Rejects a single rank, and arrays that do not fit in this machine's memory. `n_here` of `size`
/// ranks run on this machine.
fn check(args: &P2pArgs, size: usize, n_here: usize) -> Result<(), UsageError> {
    if size < 2 {
        return Err(usage!(
            "a message needs at least 2 ranks; start them with mpirun -n 2 or foldwire launch -n 2"
        ));
    }
    let longest = args.sizes.n_bytes().iter().copied().max().unwrap_or(0);
    // The sent, the received and the expected values.
    room::check(3 * n_here as u128 * longest as u128)
        .map_err(|error| usage!("{error}; ask for smaller --sizes or fewer ranks"))
}

/// Prints results. Only rank 0 calls it.
///
/// # Errors
/// Fails if the results cannot be printed, or a received message exceeds its bound.
fn show(args: &P2pArgs, results: &P2pResults) -> anyhow::Result<()> {
    if args.json {
        streams::write(&format!("{}\n", serde_json::to_string(results)?))?;
    } else if args.csv {
        streams::write(&results.csv()?)?;
    } else {
        streams::write(&results.text())?;
    }
    let faults: Vec<String> = results.rows.iter().filter_map(output::MessageRow::fault).collect();
    anyhow::ensure!(faults.is_empty(), "wrong results\n  {}", faults.join("\n  "));
    Ok(())
}
