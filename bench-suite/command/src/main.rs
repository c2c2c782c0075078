//! The `foldwire` command: parse, run, and turn errors into exit codes (2 for errors of use, else
//! 1; `launch` has its ranks').

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use foldwire_bench::cli::{Cli, Command, unused};
use foldwire_bench::streams::{self, OutputError};
use foldwire_bench::usage::UsageError;
use foldwire_bench::{
    accuracy, bench, cg, climate, codec, environment, halo, info, p2p, schedule, sim, stack, train,
    transpose, tune,
};
#[cfg(unix)]
use foldwire_bench::{launch, preload};

fn main() -> ExitCode {
    let given = Cli::command().try_get_matches();
    let result = match given.and_then(|given| Ok((Cli::from_arg_matches(&given)?, given))) {
        Ok((Cli { command }, given)) => checked(&command, &given),
        Err(answer) => tell(&answer),
    };
    result.unwrap_or_else(|error| match error.downcast_ref::<OutputError>() {
        Some(output) if output.is_without_reader() => ExitCode::from(streams::NO_READER),
        _ => {
            streams::remark(format_args!("error: {error:#}"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
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
        Command::Stack(args) => stack::run(args)?,
        Command::Codec(args) => codec::run(args)?,
        Command::Accuracy(args) => accuracy::run(args)?,
        Command::Bench(args) => bench::run(args)?,
        Command::P2p(args) => p2p::run(args)?,
        Command::Guidelines(args) => bench::guidelines::run(args)?,
        Command::Choose(args) => bench::choose::run(args)?,
        Command::Tune(args) => tune::run(args)?,
        Command::Cg(args) => cg::run(args)?,
        Command::Climate(args) => climate::run(args)?,
        Command::Halo(args) => halo::run(args)?,
        Command::Train(args) => train::run(args)?,
        Command::Transpose(args) => transpose::run(args)?,
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

/// Prints clap's answer in place of a command: help and version on stdout, mistakes on stderr.
fn tell(answer: &clap::Error) -> anyhow::Result<ExitCode> {
    let printed = answer.print().and_then(|()| io::stdout().flush());
    if !answer.use_stderr() {
        printed.map_err(OutputError::from)?;
    }
    Ok(ExitCode::from(if answer.use_stderr() { 2 } else { 0 }))
}
