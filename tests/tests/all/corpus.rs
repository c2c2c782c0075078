//! Runs every committed input of the fuzz targets through the target's function, so that fixed
//! failures stay fixed.
//!
//! This needs no fuzzer and no nightly toolchain: the functions of the targets are plain functions
//! (`fuzz/src`).

use foldwire_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Most bytes of a committed input.
const MAX_BYTES: usize = 4096;
/// Most inputs of a target, not counting regressions, so that a clone stays small.
const MAX_SEEDS: usize = 30;
/// Prefix of inputs that once failed. They are always kept.
const REGRESSION: &str = "regress-";

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("names are plain");
    entries.map(|entry| name(entry.expect("the folder can be read"))).collect()
}

#[test]
fn no_committed_input_fails_again() {
    for (target, check) in TARGETS {
        let folder = fuzz().join("corpus").join(target);
        let inputs = names(&folder);
        let n_seeds = inputs.iter().filter(|name| !name.starts_with(REGRESSION)).count();
        assert!((1..=MAX_SEEDS).contains(&n_seeds), "{target} has {n_seeds} inputs to start from");
        for name in inputs {
            let input = fs::read(folder.join(&name)).expect("an input can be read");
            assert!(input.len() <= MAX_BYTES, "{target}/{name} has {} bytes", input.len());
            // Shown if the input fails.
            println!("{target}/{name}");
            check(&input);
        }
    }
}

/// The functions, the binaries and the corpus folders must have the same targets.
#[test]
fn the_list_of_targets_is_one() {
    let listed: BTreeSet<_> = TARGETS.iter().map(|(target, _)| (*target).to_owned()).collect();
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("the manifest is there");
    let bins = manifest.split("[[bin]]\nname = \"").skip(1);
    let bins: BTreeSet<_> =
        bins.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect();
    assert_eq!(bins, listed);
    let programs = names(&fuzz().join("fuzz_targets"));
    let programs: BTreeSet<_> =
        programs.iter().filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned())).collect();
    assert_eq!(programs, listed);
    assert_eq!(names(&fuzz().join("corpus")), listed);
}
