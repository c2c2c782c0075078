//! Control variables of MPICH: `MPIR_CVAR_<FUNCTION>_INTRA_ALGORITHM` for the general algorithms,
//! `…_POSIX_INTRA_ALGORITHM` for shared memory, and `…_DEVICE_COLLECTIVE`, which lets the device
//! compose them.
//!
//! MPICH reads them at each call. If an algorithm does not support a call (for example a size that
//! is no power of two), MPICH silently uses its default. So a name states the request, not the
//! algorithm that ran.
//!
//! MPICH 4.0.2 has a bug in `MPI_Reduce` with `MPI_IN_PLACE`, with every algorithm. If a node has
//! three or more ranks, the root is not the first of them, and the array has more than some hundred
//! bytes, `MPI_Reduce` reads from address −1.

use crate::ffi::tool::Variable;
use crate::variant::CollectiveVariant;

/// Names of algorithms, used to find them in descriptions of variables.
const NAMES: &[&str] = &[
    "auto",
    "binomial",
    "brucks",
    "linear",
    "mpir",
    "nb",
    "noncommutative",
    "pairwise",
    "recursive_doubling",
    "recursive_halving",
    "reduce_scatter_allgather",
    "reduce_scatter_gather",
    "release_gather",
    "ring",
    "scatter_recursive_doubling_allgather",
    "scatter_ring_allgather",
    "smp",
];

/// Returns every algorithm of this function, with and without the device's collectives.
pub(crate) fn variants(default: &CollectiveVariant, function: &str) -> Vec<CollectiveVariant> {
    let prefix = format!("MPIR_CVAR_{}", function.to_uppercase());
    let [general, shared, device] =
        ["INTRA_ALGORITHM", "POSIX_INTRA_ALGORITHM", "DEVICE_COLLECTIVE"]
            .map(|variable| format!("{prefix}_{variable}"));
    let device_off = Variable::open(&device).map(|_| default.with("device off", &device, 0));
    let mut variants: Vec<CollectiveVariant> = Vec::new();
    for (value, algorithm) in algorithms(&general) {
        variants.push(default.with(&algorithm, &general, value));
        variants
            .extend(device_off.as_ref().map(|variant| variant.with(&algorithm, &general, value)));
    }
    for (value, algorithm) in algorithms(&shared) {
        variants.push(default.with(&format!("{algorithm} in shared memory"), &shared, value));
    }
    variants.extend(device_off);
    variants
}

/// Returns the values of a variable and their names, except those that mean the default or do not
/// apply.
fn algorithms(variable: &str) -> Vec<(i32, String)> {
    let Some(variable) = Variable::open(variable) else { return Vec::new() };
    let values = if variable.values.is_empty() {
        (0..).zip(described(&variable.description)).collect()
    } else {
        variable.values.clone()
    };
    // MPI's own reductions commute. The algorithm for non-commutative ones aborts the program where
    // it does not apply.
    let is_choice = |name: &str| name != "auto" && name != "noncommutative";
    values.into_iter().filter(|(_, name)| is_choice(name)).collect()
}

/// Extracts the names from a description, in the order of their values. MPICH 4.0 has no
/// enumerations. It generates the values from lines `name - text`, and joins the lines without
/// separators (`auto - Internal selectionring - Force ring algorithm`).
fn described(description: &str) -> Vec<String> {
    let name = |before: &str| {
        let before = before.trim_end_matches(' ');
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let word_at = before.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
        let word = &before[word_at..];
        // A word that does not start a line may follow other text without a separator. Then the
        // name is the longest known one at the end of the word.
        let is_glued = !before[..word_at].ends_with('\n');
        let known = NAMES.iter().filter(|name| is_glued && word.ends_with(**name));
        known.max_by_key(|name| name.len()).map_or(word, |name| name).to_owned()
    };
    let ends = description.match_indices(" - ").map(|(at, _)| at);
    ends.map(|at| name(&description[..at])).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_descriptions_whose_lines_run_together() {
        let of_bcast = "Variable to select bcast algorithmauto - Internal algorithm selection \
            (can be overridden with MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE)binomial       - \
            Force Binomial Treenb             - Force nonblocking algorithmsmp    - Force smp \
            algorithmscatter_recursive_doubling_allgather    - Force Scatter Recursive-Doubling \
            Allgatherscatter_ring_allgather        - Force Scatter Ring";
        let names = [
            "auto",
            "binomial",
            "nb",
            "smp",
            "scatter_recursive_doubling_allgather",
            "scatter_ring_allgather",
        ];
        assert_eq!(described(of_bcast), names);
    }

    #[test]
    fn names_on_lines_of_their_own_need_not_be_known() {
        let text =
            "Variable to select\nauto - Internal\npipelined_smp - Force\nnew_ring   - Force\n";
        assert_eq!(described(text), ["auto", "pipelined_smp", "new_ring"]);
    }
}
