//! The end of a program: it prints clap's answer or an error, and returns the exit code (2 for
//! usage errors, else 1).

use std::io::{self, Write};
use std::process::ExitCode;

use foldwire_fields::usage::UsageError;
use foldwire_workbench::streams::{self, OutputError};

/// Returns the exit code of a result. Writes an error to stderr.
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
/// If it cannot be written.
pub fn print_answer(answer: &clap::Error) -> anyhow::Result<ExitCode> {
    let printed = answer.print().and_then(|()| io::stdout().flush());
    if !answer.use_stderr() {
        printed.map_err(OutputError::from)?;
    }
    Ok(ExitCode::from(if answer.use_stderr() { 2 } else { 0 }))
}
