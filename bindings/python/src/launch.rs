//! The command `launch`.

use std::ffi::OsString;
use std::time::Duration;

use foldwire_launch::Launch;
use pyo3::prelude::*;

/// Starts ranks of a program, and waits for their end. Times are in seconds. Returns the exit code,
/// and the error if the launch could not run to its end. Replaces handlers of signals.
#[pyfunction]
pub(crate) fn launch(
    py: Python<'_>,
    program: Vec<OsString>,
    n_ranks: usize,
    has_prefix: bool,
    timeout: Option<f64>,
    grace: f64,
) -> (u8, Option<String>) {
    let (timeout, grace) = (timeout.map(Duration::from_secs_f64), Duration::from_secs_f64(grace));
    let variables = Vec::new();
    let launch = Launch { program, n_ranks, variables, has_prefix, timeout, grace };
    match py.detach(|| foldwire_launch::run(&launch)) {
        Ok(code) => (code, None),
        Err(error) => (if error.is_usage() { 2 } else { 1 }, Some(error.to_string())),
    }
}
