//! The `foldwire` command: parse, run, and turn errors into exit codes (2 for errors of use, else
//! 1; `launch` has its ranks').

use std::process::ExitCode;

use clap::Parser;
use foldwire_bench::cli::{Cli, Command};
#[cfg(unix)]
use foldwire_bench::launch;
use foldwire_bench::usage::UsageError;
use foldwire_bench::{bench, codec, info, sim, stack};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Stack(args) => stack::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Codec(args) => codec::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Sim(args) => sim::run(&args).map(|()| ExitCode::SUCCESS),
        #[cfg(unix)]
        Command::Launch(args) => launch::run(&args),
        Command::Info(args) => info::run(&args).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
