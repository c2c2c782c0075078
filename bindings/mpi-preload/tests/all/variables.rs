//! Names of environment variables.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use foldwire::variables::{KNOWN, unknown};
use foldwire_preload::decide::COLLECTIVES;

fn says(name: &str) -> Option<String> {
    unknown([name.to_owned()]).next().map(|unknown| unknown.to_string())
}

#[test]
fn names_that_nothing_reads_are_told_with_the_nearest() {
    assert_eq!(says("FOLDWIRE_BOUND"), None);
    assert_eq!(says("HOME"), None);
    for (wrong, right) in [
        ("FOLDWIRE_BOUND_ALL_REDUCE", "FOLDWIRE_BOUND_ALLREDUCE"),
        ("FOLDWIRE_MINBYTES", "FOLDWIRE_MIN_BYTES"),
        ("FOLDWIRE_REPROT", "FOLDWIRE_REPORT"),
    ] {
        let said = says(wrong).unwrap();
        assert!(said.contains(wrong) && said.ends_with(&format!("do you mean {right}?")), "{said}");
    }
    assert_eq!(says("FOLDWIRE_XYZZYX").unwrap(), "nothing reads the variable FOLDWIRE_XYZZYX");
}

/// Collects the names in all sources except for the list itself.
fn names_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            names_in(&path, found);
        } else if path.file_name().is_some_and(|name| name == "variables.rs") {
            // The list itself also has text that is not a name.
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "py") {
            let text = fs::read_to_string(&path).unwrap();
            // Sources quote whole names.
            for part in text.split("\"FOLDWIRE_").skip(1) {
                let name = part.split('"').next().unwrap_or_default();
                if !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                    found.insert(name.to_owned());
                }
            }
        }
    }
}

#[test]
fn all_names_that_sources_read_are_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeSet::new();
    for folder in [
        "core/src",
        "backends/bootstrap/src",
        "backends/cuda/src",
        "backends/tcp/src",
        "backends/libfabric/src",
        "backends/mpi/src",
        "bindings/c/src",
        "bindings/python/src",
        "bindings/python/python",
        "bindings/mpi-preload/src",
        "bench-suite/applications/src",
        "bench-suite/arguments/src",
        "bench-suite/benchmark/src",
        "bench-suite/command/src",
        "bench-suite/workbench/src",
        "xtask/cluster/src",
        "xtask/src",
    ] {
        names_in(&root.join(folder), &mut found);
    }
    found.extend(COLLECTIVES.map(|row| format!("BOUND_{}", row.variable)));
    // A prefix is only a part of a name, and tests in the sources tell each other by variables.
    found.retain(|name| !name.ends_with('_') && !name.starts_with("TEST_"));
    let unknown: Vec<_> = found.iter().filter(|name| !KNOWN.contains(&name.as_str())).collect();
    assert!(unknown.is_empty() && found.contains("RANK"), "{unknown:?}");
    assert!(KNOWN.is_sorted());
}
