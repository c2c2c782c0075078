//! Runs a number of all-reduces between ranks that one thread drives. `cargo xtask instructions`
//! counts the instructions of one call with it.

use clap::Parser;
use foldwire::{Bound, Call, Op, Plan};
use foldwire_tests::data;
use foldwire_threads::{World, drive};
use std::process::ExitCode;

/// Runs all-reduces between ranks on one thread
#[derive(Parser)]
struct Cli {
    /// Number of ranks
    #[arg(long)]
    ranks: usize,
    /// Number of f32 values on each rank
    #[arg(long)]
    count: usize,
    /// Number of calls
    #[arg(long)]
    calls: usize,
    /// The plan; lossy plans keep an absolute bound of 1e-3
    #[arg(long)]
    plan: PlanChoice,
    /// Prepare the call once, and start it again each time
    #[arg(long)]
    prepared: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PlanChoice {
    Raw,
    Foldwire,
    Auto,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let bound = Bound::Absolute(1e-3);
    let plan = match cli.plan {
        PlanChoice::Raw => Plan::raw(),
        PlanChoice::Foldwire => Plan::foldwire(bound),
        PlanChoice::Auto => Plan::auto(bound),
    };
    let mut comms = World::new(cli.ranks).communicators();
    let mut values: Vec<Vec<f32>> =
        (0..cli.ranks).map(|rank| data::smooth(rank, cli.count)).collect();
    let prepared: Vec<_> =
        (comms.iter_mut().zip(&mut values).take(cli.ranks * usize::from(cli.prepared)))
            .map(|(comm, x)| comm.prepare(Call::all_reduce(x, Op::Max), &plan).expect("a call"))
            .collect();
    for _ in 0..cli.calls {
        let operations = comms.iter_mut().zip(&mut values).enumerate();
        let started = operations.map(|(rank, (comm, x))| match prepared.get(rank) {
            Some(prepared) => prepared.start(comm, &mut x[..]),
            None => comm.start(Call::all_reduce(x, Op::Max), &plan),
        });
        let done = drive(started.map(|operation| operation.expect("a valid call")));
        if let Some(error) = done.into_iter().find_map(Result::err) {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
