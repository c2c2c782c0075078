//! The `foldwire` command: parses the command line, runs the subcommand, and turns errors into exit
//! codes. The code is 2 for usage errors and 1 for others. `launch` returns its ranks' code.
//!
//! [`foldwire_stack`] contains `stack`, [`foldwire_benchmark`] the measurements, and
//! [`foldwire_applications`] the example programs. The other subcommands are here:
//!
//! | module | what it does |
//! |---|---|
//! | `compress`, `decompress` | arrays in files, piece by piece (`files` opens and writes them) |
//! | `info`, `schedule` | features of this build and machine; the messages of a schedule |
//! | `launch`, `preload` | starts ranks; runs MPI programs with Foldwire's collectives (Unix only) |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// Some items are used by plots only.
#![cfg_attr(not(feature = "plots"), allow(unused))]

mod compress;
mod decompress;
mod files;
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
use foldwire_benchmark::{accuracy, bench, codec, p2p, papers, sim, tune};
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
    // The preloaded library writes these warnings itself.
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
        Command::Compress(args) => compress::run(args)?,
        Command::Decompress(args) => decompress::run(args)?,
        Command::Papers(args) => papers::run(args)?,
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
