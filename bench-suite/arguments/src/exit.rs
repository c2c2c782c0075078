//! How a program ends: clap's answer in place of it, or what went wrong, and the exit code (2 for
//! errors of use, else 1).

use std::io::{self, Write};
use std::process::ExitCode;

use foldwire_fields::usage::UsageError;
use foldwire_workbench::streams::{self, OutputError};

/// The exit code of this result. Writes an error to stderr.
pub fn code_of(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| match error.downcast_ref::<OutputError>() {
        Some(output) if output.is_without_reader() => ExitCode::from(streams::NO_READER),
        _ => {
            streams::remark(format_args!("error: {error:#}"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    })
}

/// Prints clap's answer: help and version on stdout, mistakes on stderr.
///
/// # Errors
/// When it cannot be written.
pub fn print_answer(answer: &clap::Error) -> anyhow::Result<ExitCode> {
    let printed = answer.print().and_then(|()| io::stdout().flush());
    if !answer.use_stderr() {
        printed.map_err(OutputError::from)?;
    }
    Ok(ExitCode::from(if answer.use_stderr() { 2 } else { 0 }))
}
