//! `cargo xtask bench`: runs the bench-suite's measurements, with JSON output in `out/bench/`.

use anyhow::Context;
use foldwire_steps::Steps;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const OUT: &str = "out/bench";
const BOUNDS: [&str; 3] = ["rel:1e-2", "rel:1e-3", "rel:1e-4"];
const LINKS: [&str; 3] = ["none", "10gbit", "1gbit"];

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench
  cargo xtask bench --data ~/SDRBench/Hurricane";

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder with arrays (.f32, .f64, .npy) for the codec; without arrays, the codec is not
    /// measured
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
    if fields.is_empty() {
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

fn is_array(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "f32" || extension == "f64" || extension == "npy")
}
