//! A warning about misspelled variables of the environment.

use std::env;
use std::io::{self, Write as _};
use std::sync::Once;

/// Writes a line to stderr for each variable `FOLDWIRE_…` that nothing reads, once per process.
pub(crate) fn warn_of_unknown() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for unknown in foldwire::variables::unknown(names) {
            // If stderr is closed, nobody can read the warning.
            let _ = writeln!(io::stderr(), "foldwire: warning: {unknown}");
        }
    });
}
