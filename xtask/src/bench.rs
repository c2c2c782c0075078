//! `cargo xtask bench`: runs the bench-suite's measurements, with JSON output in `out/bench/`.
//!
//! A folder in SDRBench's layout gives the papers' tables beside their published columns. Any other
//! folder gives the codecs' speeds on its arrays.

use anyhow::Context;
use foldwire_steps::Steps;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const OUT: &str = "out/bench";
const BOUNDS: [&str; 3] = ["rel:1e-2", "rel:1e-3", "rel:1e-4"];
/// Words in the names of the papers' data sets.
const DATA_SETS: [&str; 5] = ["CESM", "NYX", "HURRICANE", "ISABEL", "RTM"];
/// Folders below the user's that are searched for data sets.
const MAX_DEPTH: usize = 4;
const LINKS: [&str; 3] = ["none", "10gbit", "1gbit"];

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench
  cargo xtask bench --data ~/fields          codecs on arrays
  cargo xtask bench --data ~/SDRBench        the tables of ZCCL and hZCCL, beside their figures";

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder with arrays (.f32, .f64, .npy) for the codec, or with the papers' data sets as
    /// SDRBench names them (CESM, NYX, Hurricane, RTM) for their tables
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let out = steps.root().join(OUT);
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    steps.run("build", &mut steps.cargo("build --release -p foldwire-command"))?;
    let foldwire = "run --quiet --release -p foldwire-command --";

    let data = steps.root().join(&args.data);
    let fields = arrays(&data);
    if has_data_sets(&data, MAX_DEPTH) {
        let mut command = steps.cargo(&format!("{foldwire} papers tables"));
        command.arg("--data").arg(&data).arg("--out").arg(out.join("papers.json"));
        steps.run("the papers' tables", &mut command)?;
    } else if fields.is_empty() {
        eprintln!("note: no arrays in {}: the codec is not measured (see --data)", data.display());
    } else {
        let mut command = steps.cargo(&format!("{foldwire} codec --json"));
        command.args(BOUNDS.iter().flat_map(|bound| ["--bound", bound]));
        command.arg("--field").args(&fields);
        let mut file = create(&out.join("codec.json"))?;
        steps.run_into("codec", &mut command, &mut file)?;
    }
    for link in LINKS {
        let words = format!("{foldwire} stack --json --no-pictures --link {link}");
        let mut file = create(&out.join(format!("stack-{link}.json")))?;
        steps.run_into(&format!("stack, link {link}"), &mut steps.cargo(&words), &mut file)?;
    }
    println!("results: {}", out.display());
    Ok(())
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the arrays in a folder, sorted by name; none if there is no such folder.
fn arrays(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut arrays: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| is_array(path)).collect();
    arrays.sort();
    arrays
}

/// Returns whether a path in the folder, or the folder's own, names one of the papers' data sets.
fn has_data_sets(folder: &Path, depth: usize) -> bool {
    let entries = || fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries().any(|path| {
        (is_array(&path) && is_named_as_data_set(&path))
            || (depth > 0 && path.is_dir() && has_data_sets(&path, depth - 1))
    })
}

fn is_named_as_data_set(path: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let name = absolute.to_string_lossy().to_uppercase();
    name.split(|c: char| !c.is_alphanumeric()).any(|word| DATA_SETS.contains(&word))
}

fn is_array(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "f32" || extension == "f64" || extension == "npy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_sets_are_found_by_whole_words_of_names() {
        let folder = std::env::temp_dir().join(format!("foldwire-bench-{}", std::process::id()));
        let set = folder.join("SDRBENCH-EXASKY-NYX-512x512x512/512");
        fs::create_dir_all(&set).unwrap();
        fs::write(folder.join("partm.f32"), b"").unwrap();
        assert!(!has_data_sets(&folder, MAX_DEPTH));
        fs::write(set.join("temperature.f32"), b"").unwrap();
        assert!(has_data_sets(&folder, MAX_DEPTH) && has_data_sets(&set, 0));
        fs::remove_dir_all(&folder).unwrap();
    }
}
