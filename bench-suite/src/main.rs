//! The `foldwire` command: parse, run, and turn errors into exit codes (2 for errors of use, else 1).

use std::process::ExitCode;

use clap::Parser;
use foldwire_bench::cli::{Cli, Command};
use foldwire_bench::usage::UsageError;
use foldwire_bench::{bench, codec, stack};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Stack(args) => stack::run(&args),
        Command::Codec(args) => codec::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
