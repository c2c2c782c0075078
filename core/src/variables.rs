//! Names of all environment variables that a part of Foldwire reads.
//!
//! A misspelled variable has no effect, and no error reveals it. Programs and bindings use this
//! list to warn about unknown names.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Prefix of all names.
const PREFIX: &str = "FOLDWIRE_";

/// Known names without the prefix, in alphabetical order.
pub const KNOWN: [&str; 38] = [
    "ADDRESS",
    "BOUND",
    "BOUND_ALLGATHER",
    "BOUND_ALLREDUCE",
    "BOUND_ALLTOALL",
    "BOUND_BCAST",
    "BOUND_GATHER",
    "BOUND_REDUCE",
    "BOUND_REDUCE_SCATTER",
    "BOUND_SCATTER",
    "DEBUG",
    "ENCRYPT",
    "FILL",
    "IFACE",
    "JOB",
    "LOOM_MORE",
    "MESSAGES",
    "MESSAGES_MIN_BYTES",
    "MIN_BYTES",
    "MPIRUN",
    "NVRTC",
    "PROVIDER",
    "PYTHON",
    "RANK",
    "REPORT",
    "ROOT",
    "RULES",
    "SELECT",
    "SHARE_MEMORY",
    "SIZE",
    "STEP",
    "STREAMS",
    "STRESS_SECONDS",
    "STRESS_SEED",
    "STRIDE",
    "SUITE_SIZES",
    "TOKEN",
    "UPDATE_HEADER",
];

/// Variable with the prefix of Foldwire that nothing reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Name of the variable.
    pub name: String,
    /// Most similar known name, without the prefix, if one is similar enough.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing reads the variable {}", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; do you mean {PREFIX}{nearest}?"),
            None => Ok(()),
        }
    }
}

/// Returns the names that have the prefix `FOLDWIRE_` but that nothing reads.
///
/// # Examples
/// ```
/// let names = ["HOME".to_owned(), "FOLDWIRE_BOUNDS".to_owned(), "FOLDWIRE_RANK".to_owned()];
/// let unknown: Vec<_> = foldwire::variables::unknown(names).collect();
/// assert_eq!(unknown.len(), 1);
/// let says = "nothing reads the variable FOLDWIRE_BOUNDS; do you mean FOLDWIRE_BOUND?";
/// assert_eq!(unknown[0].to_string(), says);
/// ```
pub fn unknown(names: impl IntoIterator<Item = String>) -> impl Iterator<Item = UnknownVariable> {
    names.into_iter().filter_map(|name| {
        let rest = name.strip_prefix(PREFIX)?;
        if KNOWN.contains(&rest) {
            return None;
        }
        let near = KNOWN.into_iter().map(|known| (edit_distance(rest, known), known)).min();
        let most = (rest.len() / 3).max(1);
        let nearest = near.filter(|&(n_changes, _)| n_changes <= most).map(|(_, known)| known);
        Some(UnknownVariable { name, nearest })
    })
}

/// Smallest number of bytes to insert, delete or change to turn `a` into `b` (V. Levenshtein,
/// 1965).
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.bytes().enumerate() {
            let changed = row[j] + usize::from(x != y);
            next.push(changed.min(row[j + 1] + 1).min(next[j] + 1));
        }
        row = next;
    }
    row[b.len()]
}
