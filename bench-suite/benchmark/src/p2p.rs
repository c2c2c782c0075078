//! `foldwire p2p`: measures messages between two ranks, and the barrier. Over MPI, it also measures
//! the MPI library's own messages and barrier.
//!
//! | file | what it does |
//! |---|---|
//! | `implementation` | the trait of all implementations, and messages of a plan |
//! | `benchmark` | the loop that all ranks run: sizes × rounds × implementations |
//! | `output` | results for people and programs |
//! | `threads`, `mpi`, `job` | start ranks, or run as a rank that a launcher started |
//!
//! The measurements match those of the OSU benchmarks and of Intel's IMB: osu_latency for
//! `pingpong`, osu_bibw and Sendrecv of IMB for `sendrecv`, osu_barrier for `barrier`.

mod benchmark;
mod implementation;
#[cfg(any(feature = "libfabric", feature = "tcp"))]
mod job;
#[cfg(feature = "mpi")]
mod mpi;
mod output;
mod threads;

use anyhow::bail;
use foldwire::{DType, Plan, Transport};
use foldwire_arguments::{BackendArg, P2pArgs, coding};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::{room, streams};

use crate::bench::benchmark::counts;
#[cfg(feature = "libfabric")]
use crate::bench::libfabric;
#[cfg(not(all(feature = "mpi", feature = "libfabric", feature = "tcp")))]
use crate::bench::not_built;
#[cfg(feature = "tcp")]
use crate::bench::tcp;
use implementation::{MessageImplementation, PlanMessages};
use output::P2pResults;

/// Runs the subcommand, or this process's rank of it. Results go to rank 0's stdout, everything
/// else to stderr.
///
/// # Errors
/// Usage errors, calls that fail, output that cannot be written, and messages beyond their bound.
pub fn run(args: &P2pArgs) -> anyhow::Result<()> {
    if args.backend != BackendArg::Libfabric && args.provider.is_some() {
        bail!(usage!("--provider is for --backend libfabric"));
    }
    if args.backend != BackendArg::Tcp && (args.streams.is_some() || args.encrypt) {
        bail!(usage!("--streams and --encrypt are for --backend tcp"));
    }
    if args.backend != BackendArg::Threads && args.ranks.is_some() {
        bail!(usage!(
            "--ranks is for --backend threads; here the launcher starts the ranks \
             (mpirun -n 2 foldwire p2p …)"
        ));
    }
    coding::check_all(&args.codec, DType::F32)?;
    counts::<f32>(&args.sizes)?;
    let source = FieldSource::open(args.field.as_deref())?;
    match args.backend {
        BackendArg::Threads => threads::run(args, &source),
        #[cfg(feature = "mpi")]
        BackendArg::Mpi => mpi::run(args, &source),
        #[cfg(not(feature = "mpi"))]
        BackendArg::Mpi => Err(not_built("mpi", "an MPI library and libclang")),
        #[cfg(feature = "libfabric")]
        BackendArg::Libfabric => {
            let join = libfabric::joins(args.provider.as_deref(), args.link.as_ref(), None)?;
            job::run(args, &source, join)
        }
        #[cfg(not(feature = "libfabric"))]
        BackendArg::Libfabric => Err(not_built("libfabric", "libfabric and libclang")),
        #[cfg(feature = "tcp")]
        BackendArg::Tcp => {
            let join = tcp::joins(args.streams, args.encrypt, args.link.as_ref(), None)?;
            job::run(args, &source, join)
        }
        #[cfg(not(feature = "tcp"))]
        BackendArg::Tcp => Err(not_built("tcp", "nothing else")),
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
