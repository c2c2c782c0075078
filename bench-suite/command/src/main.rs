//! The `foldwire` command: parse, run, and turn errors into exit codes (2 for errors of use, else
//! 1; `launch` has its ranks').
//!
//! The main job is in [`foldwire_stack`], what else it measures in [`foldwire_benchmark`], and what
//! it runs on several ranks to show them at work in [`foldwire_applications`]. The rest is here:
//!
//! | module | what it does |
//! |---|---|
//! | `info`, `schedule` | what this build and machine have; who sends what to whom |
//! | `launch`, `preload` | starting ranks; Foldwire under MPI programs. They need Unix |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// What only plots show is not looked at without them.
#![cfg_attr(not(feature = "plots"), allow(unused))]

mod info;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod preload;
mod schedule;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
#[cfg(feature = "applications")]
use foldwire_applications::{cg, climate, halo, train, transpose};
use foldwire_arguments::{Cli, Command, environment, exit, unused};
use foldwire_benchmark::{accuracy, bench, codec, p2p, sim, tune};
#[cfg(not(feature = "applications"))]
use foldwire_fields::usage::UsageError;

fn main() -> ExitCode {
    let given = Cli::command().try_get_matches();
    exit::code_of(match given.and_then(|given| Ok((Cli::from_arg_matches(&given)?, given))) {
        Ok((Cli { command }, given)) => checked(&command, &given),
        Err(answer) => exit::print_answer(&answer),
    })
}

fn checked(command: &Command, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    // Libraries that are preloaded warn by themselves.
    if !matches!(command, Command::Preload(_)) {
        environment::warn_of_unknown();
    }
    unused::check(command, given)?;
    run(command)
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Stack(args) => foldwire_stack::run(args)?,
        Command::Codec(args) => codec::run(args)?,
        Command::Accuracy(args) => accuracy::run(args)?,
        Command::Bench(args) => bench::run(args)?,
        Command::P2p(args) => p2p::run(args)?,
        Command::Guidelines(args) => bench::guidelines::run(args)?,
        Command::Choose(args) => bench::choose::run(args)?,
        Command::Tune(args) => tune::run(args)?,
        #[cfg(feature = "applications")]
        Command::Cg(args) => cg::run(args)?,
        #[cfg(feature = "applications")]
        Command::Climate(args) => climate::run(args)?,
        #[cfg(feature = "applications")]
        Command::Halo(args) => halo::run(args)?,
        #[cfg(feature = "applications")]
        Command::Train(args) => train::run(args)?,
        #[cfg(feature = "applications")]
        Command::Transpose(args) => transpose::run(args)?,
        #[cfg(not(feature = "applications"))]
        Command::Cg(_)
        | Command::Climate(_)
        | Command::Halo(_)
        | Command::Train(_)
        | Command::Transpose(_) => return Err(UsageError::new(NO_APPLICATIONS).into()),
        Command::Sim(args) => sim::run(args)?,
        #[cfg(unix)]
        Command::Launch(args) => return launch::run(args),
        #[cfg(unix)]
        Command::Preload(args) => return preload::run(args),
        Command::Schedule(args) => schedule::run(args)?,
        Command::Presets(args) => info::run_presets(args)?,
        Command::Info(args) => info::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "applications"))]
const NO_APPLICATIONS: &str = "this foldwire was built without its applications, cg, climate, \
    halo, train and transpose; build it with --features applications, as in `cargo run --release \
    --features applications -- train`";
