//! `foldwire launch`: the command line's [`Launch`], and its errors as those of the command.

use std::process::ExitCode;

use foldwire_arguments::{EnvArg, LaunchArgs};
use foldwire_fields::usage::UsageError;
use foldwire_launch::{Launch, LaunchError, Variable};
use foldwire_workbench::streams::OutputError;

/// Runs the subcommand.
///
/// # Errors
///
/// If a rank cannot be started, or the output cannot be written.
pub(crate) fn run(args: &LaunchArgs) -> anyhow::Result<ExitCode> {
    let LaunchArgs { ranks, env, no_prefix, timeout, grace, program } = args.clone();
    let variables = env.into_iter().map(|arg| {
        let EnvArg { rank, name, value } = arg;
        Variable { rank, name, value }
    });
    let launch = Launch {
        program,
        n_ranks: ranks,
        variables: variables.collect(),
        has_prefix: !no_prefix,
        timeout,
        grace,
    };
    foldwire_launch::run(&launch).map(ExitCode::from).map_err(|error| match error {
        LaunchError::Output(error) => OutputError::from(error).into(),
        error if error.is_usage() => UsageError::new(error.to_string()).into(),
        error => error.into(),
    })
}
