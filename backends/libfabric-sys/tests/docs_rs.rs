//! docs.rs uses the stored bindings in `docs-rs/`, since it has no libfabric to generate them from.

use std::collections::BTreeSet;

const MADE: &str = concat!(env!("OUT_DIR"), "/bindings.rs");
const SHIM: &str = include_str!("../shim/shim.h");

/// Returns the names that bindings declare with this keyword.
fn names<'a>(bindings: &'a str, keyword: &str) -> BTreeSet<&'a str> {
    let lines = bindings.lines().filter_map(|line| line.trim_start().strip_prefix(keyword));
    lines.filter_map(|line| line.split(['(', ':']).next()).collect()
}

#[test]
fn what_docs_rs_shows_has_every_function_and_constant() {
    let (made, shown) = (
        include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")),
        include_str!("../docs-rs/bindings.rs"),
    );
    for keyword in ["pub fn ", "pub const "] {
        // Later releases have more enumerators. The shim lists the constants in use.
        let is_ours = |name: &&str| keyword == "pub fn " || SHIM.contains(&format!("shim_{name}"));
        let made: BTreeSet<_> = names(made, keyword).into_iter().filter(is_ours).collect();
        let missing: Vec<_> = made.difference(&names(shown, keyword)).copied().collect();
        assert!(
            missing.is_empty(),
            "{missing:?}; copy {MADE} without its assertions of layout to docs-rs/ (libfabric \
             1.17, x86-64)"
        );
    }
}
