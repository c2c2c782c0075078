//! `cargo xtask test`: runs what must pass before a commit, in minutes. [`deep`](crate::deep) takes
//! longer and finds more.

use crate::fabrics::BuildScope;
use crate::machine::MachineParts;
use crate::{devices, fabrics, machine, packages};
use foldwire_steps::Steps;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Part of the names of long tests, after their file's name. Only `deep` runs them; those of core
/// run under the sanitizer. They take longest, and when one fails, a short test usually fails too.
pub(crate) const LONG: &str = "long::";

/// Pattern that matches the names of all test programs except `all` of foldwire-tests.
const ALL_BUT_ALL: &str = "--test [!a]*";

/// Runs the long tests in `cargo xtask deep`.
pub(crate) fn run_long(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    let mut tests = fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --test all");
    steps.run_tests("long tests", tests.args(["--", LONG])).map(drop)
}

/// Runs a test of core that only builds with all features, so not under the sanitizer: interp's
/// quantiser on all patterns of `f32`.
pub(crate) fn run_patterns(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    let mut tests = fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --lib");
    steps.run_tests("patterns of interp", tests.args(["--", "interp::tests::long::"])).map(drop)
}

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let missing = packages::install(steps)?;
    if !missing.is_empty() {
        eprintln!("{}", packages::advice(&missing));
    }
    let here = machine::available();
    fabrics::skip_what_is_missing(steps, here);
    // Build all features that can be built here. Steps with fewer features would rebuild.
    steps.run(
        "compiling",
        &mut fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --no-run"),
    )?;
    let mut tests = short_tests(steps, here, &format!("--lib --bins {ALL_BUT_ALL}"));
    // Many tests wait for processes, so run one more than there are cores.
    let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
    tests.env("RUST_TEST_THREADS", (n_cores + 1).to_string());
    // Cargo runs one test program after the other, and many wait more than they compute. So the
    // largest one and the rest run at the same time. They start when cargo has released its lock on
    // the target folder: at the first output of a test.
    let (begun, first_test) = channel();
    let mut aside = steps.aside();
    let concurrent = &mut aside;
    let (main_result, rest_result) = thread::scope(|scope| {
        let rest = scope.spawn(move || {
            // Without any test, this starts when the channel is closed.
            let _ = first_test.recv();
            rest(concurrent, here)
        });
        let mut output = FirstWriteNotifier { begun: Some(begun) };
        let main_result = steps.run_into("workspace", &mut tests, &mut output).and_then(|_| {
            let mut examples = fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --doc");
            steps.run("examples in documentation", &mut examples)?;
            devices::short_tests(steps, here)
        });
        (main_result, rest.join())
    });
    steps.append(aside);
    main_result?;
    rest_result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns a command for the short tests of these targets.
fn short_tests(steps: &Steps, here: MachineParts, targets: &str) -> Command {
    let words = format!("test --no-fail-fast {targets}");
    let mut tests = fabrics::cargo_on(steps, here, BuildScope::Fabrics, &words);
    tests.args(["--", "--skip", LONG, "--skip", fabrics::SUITES]);
    // Short-lived groups of ranks reuse their memory; returning it to the system each time is slow.
    tests.env("MALLOC_MMAP_THRESHOLD_", "1000000000").env("MALLOC_TRIM_THRESHOLD_", "1000000000");
    tests
}

/// Runs the suites of processes, the largest test program, and the programs in examples/. They take
/// about as long as the other tests.
fn rest(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    fabrics::run_suites(steps, here)?;
    steps.run("all, examples", &mut short_tests(steps, here, "--test all --examples"))?;
    Ok(())
}

/// Standard output that notifies another thread at its first write, or when it is dropped.
struct FirstWriteNotifier {
    begun: Option<Sender<()>>,
}

impl Write for FirstWriteNotifier {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun = None;
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    /// Returns the names of the test programs of the packages in a folder.
    fn programs(folder: &Path) -> Vec<String> {
        let entries = |folder: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        let is_program = |path: &PathBuf| {
            path.extension().is_some_and(|ending| ending == "rs") || path.join("main.rs").exists()
        };
        let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut found: Vec<_> =
            entries(&folder.join("tests")).into_iter().filter(is_program).map(name).collect();
        let is_folder = |path: &PathBuf| path.is_dir() && !path.ends_with("target");
        found.extend(
            entries(folder).iter().filter(|path| is_folder(path)).flat_map(|path| programs(path)),
        );
        found
    }

    #[test]
    fn the_pattern_leaves_out_one_program_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let all = programs(root);
        assert!(all.iter().any(|name| name == "command") && all.len() > 15, "{all:?}");
        let mut left_out = all.iter().filter(|name| name.starts_with('a'));
        assert!(left_out.all(|name| name == "all"), "{all:?}");
    }
}
