//! Test that no layer of this crate uses a layer above it, by the paths in its sources.

use std::format;
use std::fs;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;

/// All modules of the crate, from bottom to top. A module may use the modules of earlier layers,
/// but no other module of its own layer.
const LAYERS: [&[&str]; 18] = [
    &["coded_enum"],
    &["values", "wait", "variables", "threads", "transport", "store", "page_lock"],
    &INTERDEPENDENT,
    &["bound", "exact_sum", "fill"],
    &["codec"],
    &["pipeline", "bundle"],
    &["schedule"],
    &["error", "plan"],
    &["device", "frame", "group", "handle", "heap_frame", "preset", "primitive"],
    &["layout"],
    &["rounding", "select"],
    &["report", "call_spec"],
    &["budget", "engine"],
    &["collective"],
    &["shared_transport", "shrink"],
    &["grow"],
    &["shared", "compress", "inter_step", "instances"],
    &["repro_sum", "located"],
];

/// Modules of one layer that use each other: an element type refers to its kernel tables and its
/// reductions, which are written once for all types.
const INTERDEPENDENT: [&str; 3] = ["element", "op", "kernel"];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Describes what is wrong with a path from one module to another; `None` if it is allowed.
fn violation(from: &str, to: &str) -> Option<String> {
    let Some(own) = layer(from) else { return Some(format!("{from} is in no layer")) };
    match layer(to) {
        None => Some(format!("{to} is not a module in a layer; name the module that defines it")),
        Some(other) if from == to || other < own => None,
        Some(_) if [from, to].iter().all(|module| INTERDEPENDENT.contains(module)) => None,
        Some(_) => Some(format!("{from} may not use {to}")),
    }
}

/// Returns the numbered lines of a source, without comments and without items that are only for
/// tests or documentation.
fn code_lines(source: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    // Number of open braces in an item that is left out.
    let mut left_out = None;
    for (at, line) in source.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        if ["#[cfg(test)]", "#[cfg(doc)]"].contains(&line.trim()) {
            left_out = Some(0);
        } else if let Some(open) = &mut left_out {
            *open += line.matches('{').count() as i32 - line.matches('}').count() as i32;
            if *open == 0 && line.trim_end().ends_with([';', '}']) {
                left_out = None;
            }
        } else {
            code.push((at + 1, line));
        }
    }
    code
}

/// Returns the paths in a source that begin at the crate's root, each as its line and its first
/// module. `depth` is the number of `super` that lead to the root.
fn crate_paths(source: &str, depth: usize) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    let to_root = "super::".repeat(depth);
    for (at, line) in code_lines(source) {
        for root in ["crate::", &to_root] {
            for (start, _) in line.match_indices(root) {
                let is_name = |c: char| c.is_alphanumeric() || c == '_';
                let before = &line[..start];
                let rest = &line[start + root.len()..];
                let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
                // The match must start a path.
                let is_path = !before.ends_with(is_name) && !before.ends_with("::");
                if is_path && name != "super" {
                    paths.push((at, name));
                }
            }
        }
    }
    paths
}

/// Returns all sources below a folder, except tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_tests = ["tests", "tests.rs", "layers.rs", "lib.rs"];
    let kept = entries.filter(|path| !of_tests.iter().any(|name| path.ends_with(name)));
    kept.flat_map(|path| if path.is_dir() { sources(&path) } else { Vec::from([path]) }).collect()
}

#[test]
fn no_layer_calls_upwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut violations = Vec::new();
    let mut seen = Vec::new();
    for path in sources(&root) {
        let name = path.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<_> = name.iter().map(|part| part.to_str().unwrap()).collect();
        for (line, to) in crate_paths(&fs::read_to_string(&path).unwrap(), parts.len()) {
            let violation = violation(parts[0], &to);
            violations.extend(
                violation.map(|violation| format!("{}:{line}: {violation}", path.display())),
            );
        }
        seen.push(parts[0].to_string());
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    let absent =
        LAYERS.concat().into_iter().find(|&module| !seen.iter().any(|seen| seen == module));
    assert_eq!(absent, None);
}

#[test]
fn paths_upwards_are_seen_wherever_they_stand() {
    let source = "\
use crate::plan::Plan; // not crate::shared
#[cfg(doc)]
use crate::select;
macro_rules! of { () => { $crate::engine::Lane } }
/// See [`crate::collective`].
fn f() -> super::super::codec::Raw {
    super::own::g::<crate::Element>()
}

#[cfg(test)]
mod tests {
    use crate::shared::Split;
}
fn h(x: super::super::super::x) -> othercrate::y {}
";
    let found = crate_paths(source, 2);
    let found: Vec<_> = found.iter().map(|(line, name)| (*line, name.as_str())).collect();
    let expected = [(1, "plan"), (4, "engine"), (6, "codec"), (7, "Element")];
    assert_eq!(found, expected);
    let is_violation = |from, to| violation(from, to).is_some();
    assert!(
        is_violation("codec", "plan")
            && is_violation("plan", "error")
            && is_violation("plan", "Element")
    );
    assert!(is_violation("new", "op") && is_violation("op", "codec"));
    assert!(
        !is_violation("plan", "codec")
            && !is_violation("plan", "plan")
            && !is_violation("op", "kernel")
    );
}
