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
use foldwire_arguments::{P2pArgs, coding};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::{room, streams};

use crate::bench::benchmark::counts;
use crate::bench::{config_from_env, progress};
use crate::job::{self, Job, Library, Measurement};
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
    let plans = coding::variants(&args.codec, &args.bound, DType::F32)?;
    counts::<f32>(&args.sizes)?;
    let source = FieldSource::open(args.field.as_deref())?;
    let job = Job {
        network: &args.network,
        default_ranks: DEFAULT_RANKS,
        link_rate: args.link.as_ref().and_then(LinkRate::bytes_per_s),
        frame_bytes: None,
    };
    job::run(job, |size, n_here| {
        check(args, size, n_here)?;
        Ok(P2pMeasurement { args, plans, data: source.data::<f32>(size) })
    })
}

/// The benchmark on every rank.
struct P2pMeasurement<'a> {
    args: &'a P2pArgs,
    /// Names and plans of the messages.
    plans: Vec<(String, Plan)>,
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
        let Self { args, plans, data } = self;
        let comm = Communicator::with_config(endpoint, config_from_env()?)?;
        let head = P2pHead::new(args, &comm, backend, data);
        let mut implementations: Vec<Box<dyn MessageImplementation<X>>> = Vec::new();
        for (name, plan) in plans.clone() {
            let plan = plan.with_exact_below(args.exact_below.unwrap_or(0));
            implementations.push(Box::new(PlanMessages { name, plan }));
        }
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
        streams::write(&if self.args.json {
            format!("{}\n", serde_json::to_string(results)?)
        } else if self.args.csv {
            results.csv()?
        } else {
            results.text()
        })?;
        let faults: Vec<String> =
            results.rows.iter().filter_map(output::MessageRow::fault).collect();
        anyhow::ensure!(faults.is_empty(), "wrong results\n  {}", faults.join("\n  "));
        Ok(())
    }
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
