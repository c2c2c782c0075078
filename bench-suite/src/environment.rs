//! Variables `FOLDWIRE_…`: a name that nobody reads is told, with the nearest that somebody does.
//!
//! The command hands its environment on, to ranks and to libraries under MPI programs, so all
//! names count that any of them reads.

use std::env;
use std::ffi::OsStr;

use crate::streams;

const START: &str = "FOLDWIRE_";

/// Names that backends, bindings and this command read, without their start.
const READ: [&str; 15] = [
    "ADDRESS",
    "BOUND",
    "DEBUG",
    "ENCRYPT",
    "IFACE",
    "MIN_BYTES",
    "PROVIDER",
    "RANK",
    "REPORT",
    "ROOT",
    "SELECT",
    "SIZE",
    "STEP",
    "STREAMS",
    "TOKEN",
];
/// What names begin with that are made as they are needed, and those of this project's own tests.
const BEGIN: [&str; 11] = [
    "BOUND_",
    "LOOM_",
    "MIN_BYTES_",
    "MPIRUN",
    "PYTHON",
    "STACK",
    "STRESS_",
    "STRIDE",
    "SUITE_",
    "TEST_",
    "UPDATE_",
];
/// Letters by which a mistaken name may differ.
const MOST_LETTERS: usize = 3;

/// Says on stderr which variables nobody reads; of several ranks, rank 0 does.
pub fn remark_unknown() {
    if env::var_os("FOLDWIRE_RANK").is_some_and(|rank| rank != OsStr::new("0")) {
        return;
    }
    for (name, _) in env::vars_os() {
        if let Some(line) = name.to_str().and_then(unknown) {
            streams::remark(line);
        }
    }
}

/// What is to be said of a variable, if nobody reads it.
fn unknown(name: &str) -> Option<String> {
    let own = name.strip_prefix(START)?;
    if READ.contains(&own) || BEGIN.iter().any(|begin| own.starts_with(begin)) {
        return None;
    }
    let nearest = READ.into_iter().min_by_key(|known| strsim::damerau_levenshtein(own, known));
    let nearest = nearest.filter(|known| {
        strsim::damerau_levenshtein(own, known) <= MOST_LETTERS.min(known.len() / 2)
    });
    let meant = nearest.map_or_else(String::new, |known| format!("; did you mean {START}{known}?"));
    Some(format!("warning: nothing reads the variable {name}{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistaken_name_is_told_with_the_one_that_was_meant() {
        let told = |name: &str| unknown(name).unwrap_or_default();
        assert!(told("FOLDWIRE_STREAM").ends_with("did you mean FOLDWIRE_STREAMS?"));
        assert!(told("FOLDWIRE_ENCYRPT").ends_with("did you mean FOLDWIRE_ENCRYPT?"));
        assert!(told("FOLDWIRE_ADRESS").ends_with("did you mean FOLDWIRE_ADDRESS?"));
        assert!(told("FOLDWIRE_WEATHER").ends_with("FOLDWIRE_WEATHER"));
        for known in ["FOLDWIRE_RANK", "FOLDWIRE_BOUND_ALLREDUCE", "FOLDWIRE_STRIDE", "PATH"] {
            assert_eq!(unknown(known), None, "{known}");
        }
    }
}
