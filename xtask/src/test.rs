//! `cargo xtask test`: what must pass before a change is committed, in minutes. What takes longer,
//! and finds what this does not, is [`deep`](crate::deep).

use crate::fabrics::BuildScope;
use crate::machine::MachineParts;
use crate::{fabrics, machine, packages};
use anyhow::ensure;
use foldwire_steps::Steps;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// How the names of tests that take longest, and fail seldom without others, go on after their
/// file's: `deep` runs them, those of core under the sanitizer.
const LONG: &str = "::long::";

/// Patterns of the names of all programs of tests but `all` of foldwire-tests.
const ALL_BUT_ALL: &str = "--test [!a]* --test a[!l]*";

/// The step of `cargo xtask deep`: what takes too long for [`run`].
pub(crate) fn run_long(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    let mut tests = fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --test all");
    let tests = steps.run("long tests", tests.args(["--", LONG]))?;
    ensure!(tests.passed > 0, "no test was run");
    Ok(())
}

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let missing = packages::install(steps)?;
    if !missing.is_empty() {
        eprintln!("{}", packages::advice(&missing));
    }
    let here = machine::available();
    fabrics::skip_what_is_missing(steps, here);
    // All features that can be built here; the others take them away again.
    steps.run(
        "compiling",
        &mut fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --no-run"),
    )?;
    let mut tests = short_tests(steps, here, &format!("--lib --bins {ALL_BUT_ALL}"));
    // Many of them wait for processes.
    let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
    tests.env("RUST_TEST_THREADS", (n_cores + 1).to_string());
    // Cargo runs one program of tests after the other, and many wait more than they compute. The
    // largest runs beside, with ranks of processes and the rest, once cargo has let go of its lock
    // on the target folder: when the first test speaks.
    let (begun, first_test) = channel();
    let mut aside = steps.aside();
    let beside = &mut aside;
    let (ran, rested) = thread::scope(|scope| {
        let rest = scope.spawn(move || {
            // Without a test it begins when there can be none any more.
            let _ = first_test.recv();
            rest(beside, here)
        });
        let ran =
            steps.run_into("workspace", &mut tests, &mut FirstWriteNotifier { begun: Some(begun) });
        (ran, rest.join())
    });
    steps.append(aside);
    ran?;
    rested.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The tests of these targets that are not long.
fn short_tests(steps: &Steps, here: MachineParts, targets: &str) -> Command {
    let words = format!("test --no-fail-fast {targets}");
    let mut tests = fabrics::cargo_on(steps, here, BuildScope::Fabrics, &words);
    tests.args(["--", "--skip", LONG, "--skip", fabrics::SUITES]);
    // Thousands of short-lived groups of ranks: their frames need not come from the system anew.
    tests.env("MALLOC_MMAP_THRESHOLD_", "1000000000").env("MALLOC_TRIM_THRESHOLD_", "1000000000");
    tests
}

/// The largest program of tests, processes that wait for each other, and examples: about as long as
/// the others.
fn rest(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    fabrics::run_suites(steps, here)?;
    steps.run("all, examples", &mut short_tests(steps, here, "--test all --examples"))?;
    let mut examples = fabrics::cargo_on(steps, here, BuildScope::Fabrics, "test --doc");
    steps.run("examples in documentation", &mut examples)?;
    Ok(())
}

/// Standard output that tells when it is first written to, or dropped.
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
