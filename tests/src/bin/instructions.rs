//! All-reduces between ranks that one thread drives, so many of them, for `cargo xtask
//! instructions` to count what one takes.

use clap::Parser;
use foldwire::{Bound, Call, Op, Plan};
use foldwire_tests::data;
use foldwire_threads::{World, drive};
use std::process::ExitCode;

/// Runs the calls.
#[derive(Parser)]
struct Cli {
    /// How many ranks
    #[arg(long)]
    ranks: usize,
    /// How many values of f32 each has
    #[arg(long)]
    count: usize,
    /// How many calls
    #[arg(long)]
    calls: usize,
    /// By which plan, within 1e-3
    #[arg(long)]
    plan: Preset,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Preset {
    Raw,
    Foldwire,
    Auto,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let bound = Bound::Absolute(1e-3);
    let plan = match cli.plan {
        Preset::Raw => Plan::raw(),
        Preset::Foldwire => Plan::foldwire(bound),
        Preset::Auto => Plan::auto(bound),
    };
    let mut comms = World::new(cli.ranks).communicators();
    let mut values: Vec<Vec<f32>> =
        (0..cli.ranks).map(|rank| data::smooth(rank, cli.count)).collect();
    for _ in 0..cli.calls {
        let operations = comms.iter_mut().zip(&mut values);
        let started = operations.map(|(comm, x)| comm.start(Call::all_reduce(x, Op::Max), &plan));
        let done = drive(started.map(|operation| operation.expect("calls are as they should be")));
        if let Some(error) = done.into_iter().find_map(Result::err) {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
