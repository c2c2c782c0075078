//! Checks `FOLDWIRE_…` variables: a warning for each unknown name, with the most similar known one.
//!
//! The command passes its environment on to ranks, so it knows the names of all variables that any
//! part of Foldwire reads.

use std::env;
use std::ffi::OsStr;

use foldwire_workbench::streams;

/// Writes the warnings to stderr. With several ranks, only rank 0 does.
pub fn warn_of_unknown() {
    if env::var_os("FOLDWIRE_RANK").is_some_and(|rank| rank != OsStr::new("0")) {
        return;
    }
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for unknown in foldwire::variables::unknown(names) {
        streams::remark(format_args!("warning: {unknown}"));
    }
}
