//! Variables `FOLDWIRE_…`: a warning for each name that nothing reads, with the nearest known one.
//!
//! The command passes its environment on to ranks, so it knows all names that any door reads.

use std::env;
use std::ffi::OsStr;

use foldwire_workbench::streams;

/// Writes the warnings on stderr; of several ranks, rank 0 does.
pub fn warn_of_unknown() {
    if env::var_os("FOLDWIRE_RANK").is_some_and(|rank| rank != OsStr::new("0")) {
        return;
    }
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for unknown in foldwire::variables::unknown(names) {
        streams::remark(format_args!("warning: {unknown}"));
    }
}
