//! Open MPI's component `tuned`: `coll_tuned_<function>_algorithm` and its segment size.
//!
//! Open MPI reads the variables when a communicator is made, if dynamic rules are enabled. An
//! algorithm of 0 selects the fixed rules, which are the default. Communicators that are made while
//! no algorithm is set use the fixed rules.

use crate::ffi::tool::Variable;
use crate::variant::CollectiveVariant;

/// Environment variable that must be set before `MPI_Init`.
pub(crate) const DYNAMIC_RULES: (&str, &str) = ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1");

/// Segment sizes to try, in KiB. The library's own rules use 1 to 128.
const SEGMENTS_KIB: [usize; 4] = [8, 32, 128, 1024];

/// Algorithms that divide arrays into segments, by function.
const SEGMENTING: &[(&str, &[&str])] = &[
    ("allreduce", &["segmented_ring"]),
    ("bcast", &["chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial"]),
    ("reduce", &["chain", "pipeline", "binary", "binomial", "in-order_binary"]),
];

/// Returns every algorithm of this function, with every segment size.
pub(crate) fn variants(default: &CollectiveVariant, function: &str) -> Vec<CollectiveVariant> {
    let name = format!("coll_tuned_{function}_algorithm");
    let Some(algorithms) = Variable::open(&name) else { return Vec::new() };
    let segment = format!("{name}_segmentsize");
    let has_segments = Variable::open(&segment).is_some();
    let mut variants = Vec::new();
    for (value, algorithm) in algorithms.values.iter().filter(|&&(value, _)| value > 0) {
        let variant = default.with(algorithm, &name, *value);
        let is_segmenting = SEGMENTING
            .iter()
            .any(|&(of, names)| of == function && names.contains(&algorithm.as_str()));
        for kib in SEGMENTS_KIB.into_iter().filter(|_| is_segmenting && has_segments) {
            let n_bytes = kib * 1024;
            let mut segmented =
                variant.with(&format!("segments of {kib} KiB"), &segment, n_bytes as i32);
            // An array of one segment is not divided.
            segmented.least_bytes = n_bytes + 1;
            variants.push(segmented);
        }
        variants.push(variant);
    }
    variants
}
