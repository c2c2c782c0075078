//! `foldwire stack` as a separate program, which takes half as long to compile as the whole
//! command.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use foldwire_arguments::{Command, StackArgs, environment, exit, unused, with_negative_numbers};

const AFTER: &str = "\
This is `foldwire stack`, without the other commands: `cargo run --release -- --help` has all of
them, and `cargo run --release -- stack --help` examples.";

/// Sum one image volume per rank with every preset, and compare time, bytes and error
#[derive(Debug, Parser)]
#[command(name = "stack", version, after_help = AFTER)]
struct Cli {
    #[command(flatten)]
    args: StackArgs,
}

fn main() -> ExitCode {
    let given = with_negative_numbers(Cli::command()).try_get_matches();
    exit::code_of(match given.and_then(|given| Ok((Cli::from_arg_matches(&given)?, given))) {
        Ok((Cli { args }, given)) => run(args, &given),
        Err(answer) => exit::print_answer(&answer),
    })
}

fn run(args: StackArgs, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    environment::warn_of_unknown();
    let command = Command::Stack(args);
    unused::check(&command, given)?;
    if let Command::Stack(args) = &command {
        foldwire_stack::run(args)?;
    }
    Ok(ExitCode::SUCCESS)
}
